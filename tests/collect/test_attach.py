"""`stepscope attach` and `stepscope jobs`: a job that is running is found, asked, and goes on."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepscope
from programs import STEPSCOPE, environment, names, needs, only, recordings, run, run_command, script, socket_folder, started, steps
from settling import until
from stepscope.errors import StepscopeError, UsageError
from stepscope.recording.attach import jobs, sockets

LOOP = """
    import os, pathlib, time
    from stepscope import DynamicProfilerMonitor, record_function
    monitor = DynamicProfilerMonitor("cfg", "out", host_interval_ms=0)
    while not pathlib.Path("end").exists():
        with record_function("work"):
            time.sleep(0.005)
        monitor.step()
"""


@pytest.fixture
def job_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_JOBS", str(socket_folder(tmp_path)))
    return tmp_path


@pytest.fixture
def ranks(job_folder: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    script(job_folder, LOOP)
    cluster = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29998"}
    jobs = [started(job_folder, sys.executable, "train.py", stdin=None, **cluster, RANK=str(rank)) for rank in (0, 1)]
    try:
        listed(job_folder, 2)
        yield jobs
    finally:
        (job_folder / "end").touch()
        for job in jobs:
            job.communicate(timeout=300)


def listed(folder: Path, count: int, beyond: int = 0) -> list[dict[str, Any]]:
    """What `stepscope jobs` says, as soon as that many processes listen and are beyond a step."""

    def look() -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = json.loads(run_command(folder, *STEPSCOPE, "jobs", "--format", "json").stdout)
        return answer

    def complete(jobs: list[dict[str, Any]]) -> bool:
        return len(jobs) == count and all(job["step"] > beyond for job in jobs)

    listing = until(look, complete, 300)
    assert complete(listing), listing
    return listing


def test_all_ranks_of_a_job_record_the_same_steps_and_go_on(job_folder: Path, ranks: list[Any]) -> None:
    found = listed(job_folder, 2)
    assert [one["rank"] for one in found] == [0, 1] and {one["pid"] for one in found} == {job.pid for job in ranks}
    attached = run_command(job_folder, *STEPSCOPE, "attach", str(ranks[1].pid), "--steps", "4", "--memory")
    assert attached.returncode == 0, attached.stderr
    place = only(re.findall(r"^recorded (\S+); open it with: stepscope view \1$", attached.stdout, re.MULTILINE))
    trace = stepscope.open(job_folder / place, cache=False)
    recorded = trace.steps.collect().sort("rank", "step")
    by_rank = [recorded.filter(rank=rank)["step"].to_list() for rank in (0, 1)]
    assert by_rank[0] == by_rank[1] and len(by_rank[0]) == 4
    assert by_rank[0][0] > min(one["step"] for one in found)
    assert f"steps {by_rank[0][0]} to {by_rank[0][-1]} of 2 ranks" in attached.stderr
    assert trace.meta.options["profile_memory"] is True
    later = listed(job_folder, 2, beyond=by_rank[0][-1])
    assert {one["state"] for one in later} == {"idle"}


def test_a_job_is_attached_to_by_its_name_again_and_again(job_folder: Path, ranks: list[Any]) -> None:
    name = listed(job_folder, 2)[0]["job"]
    for _ in range(2):
        assert run_command(job_folder, *STEPSCOPE, "attach", name, "--steps", "1").returncode == 0
    assert len(recordings(job_folder / "out")) == 4


def test_a_step_that_has_passed_is_refused_and_nothing_is_left_waiting(job_folder: Path, ranks: list[Any]) -> None:
    listed(job_folder, 2, beyond=3)
    attached = run_command(job_folder, *STEPSCOPE, "attach", str(ranks[0].pid), "--from-step", "2")
    assert attached.returncode == 1 and "step 2 has begun already" in attached.stderr
    assert {one["state"] for one in listed(job_folder, 2)} == {"idle"}


def test_seconds_are_recorded_where_no_steps_are_counted(job_folder: Path, ranks: list[Any]) -> None:
    attached = run_command(job_folder, *STEPSCOPE, "attach", str(ranks[0].pid), "--seconds", "1")
    assert attached.returncode == 0, attached.stderr
    for recording in recordings(job_folder / "out"):
        assert "work" in names(recording)
    assert len(recordings(job_folder / "out")) == 2


def test_a_rank_that_dies_while_it_is_recorded_is_told_of(job_folder: Path, ranks: list[Any]) -> None:
    with started(job_folder, *STEPSCOPE, "attach", str(ranks[0].pid), "--steps", "1000000") as attached:
        while {one["state"] for one in listed(job_folder, 2)} != {"recording"}:
            assert attached.poll() is None
        ranks[1].kill()
        (job_folder / "end").touch()
        _, err = attached.communicate(timeout=300)
    assert attached.returncode == 1 and f"process {ranks[1].pid} ended" in err


def test_leaving_attach_withdraws_what_was_asked(job_folder: Path, ranks: list[Any]) -> None:
    with started(job_folder, *STEPSCOPE, "attach", str(ranks[0].pid), "--steps", "1000000") as attached:
        while {one["state"] for one in listed(job_folder, 2)} != {"recording"}:
            assert attached.poll() is None
        attached.send_signal(signal.SIGINT)
        attached.communicate(timeout=300)
    assert attached.returncode == 130
    end = time.monotonic() + 300
    while {one["state"] for one in listed(job_folder, 2)} != {"idle"}:
        assert time.monotonic() < end


def test_a_process_that_does_not_listen_is_told_how_to_start_it(job_folder: Path) -> None:
    attached = run_command(job_folder, *STEPSCOPE, "attach", str(os.getpid()))
    assert attached.returncode == 2 and attached.stderr.count("\n") == 1
    assert "stepscope run --idle" in attached.stderr and f"py-spy record -p {os.getpid()}" in attached.stderr
    assert "there is no process 4194305" in run_command(job_folder, *STEPSCOPE, "attach", "4194305").stderr
    assert "no job 'train' listens here" in run_command(job_folder, *STEPSCOPE, "attach", "train").stderr
    assert "no job on this machine can be recorded" in run_command(job_folder, *STEPSCOPE, "jobs").stderr


def test_a_process_that_is_too_busy_to_answer_is_told_of_and_its_socket_stays(
    job_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A socket that nobody looks at: the kernel lets callers in, and no answer comes."""
    monkeypatch.setattr(sockets, "PATIENCE_S", 0.1)
    path = sockets.folder() / f"{sockets._host()}.{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(path))
        deaf.listen(8)
        assert list(jobs.members()) == []
        assert f"process {os.getpid()} listens but does not answer: it is busy" in capsys.readouterr().err
        with pytest.raises(UsageError, match="it is busy"):
            jobs.members_of_job(str(os.getpid()))
        with pytest.raises(StepscopeError, match="it is busy"):
            jobs.record([jobs.Member(path, {"pid": os.getpid(), "job": "j"})], count=1, seconds=None, first=None, options={}, out=None)
        assert path.exists()


def test_the_socket_of_a_process_whose_queue_of_callers_is_full_stays(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers EAGAIN then, at once, which is no sign of death."""
    monkeypatch.setattr(sockets, "PATIENCE_S", 0.1)
    path = sockets.folder() / f"{sockets._host()}.{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as deaf, contextlib.ExitStack() as waiting:
        deaf.bind(str(path))
        deaf.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                caller = waiting.enter_context(socket.socket(socket.AF_UNIX))
                caller.setblocking(False)
                caller.connect(str(path))
        assert list(sockets.listening()) == [path]
        assert list(jobs.members()) == []
        with pytest.raises(UsageError, match="it is busy"):
            jobs.members_of_job(str(os.getpid()))
        assert path.exists()


def test_a_refused_connection_is_death_only_where_the_process_is_gone_or_began_later(job_folder: Path) -> None:
    """Between bind and listen a process refuses callers. A number that was used again is of another process."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    paths = {pid: sockets.folder() / f"{sockets._host()}.{pid}.sock" for pid in (os.getpid(), gone.pid)}
    with contextlib.ExitStack() as opened:
        for path in paths.values():
            opened.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        assert list(sockets.listening()) == []
        assert [path.exists() for path in paths.values()] == [True, False]
        os.utime(paths[os.getpid()], (0, 0))  # made long before this process began
        assert list(sockets.listening()) == []
        assert not paths[os.getpid()].exists()


def test_the_folder_of_the_cache_is_private_when_recording_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = socket_folder(tmp_path)  # the address of a socket has 107 bytes at most
    home.mkdir(parents=True)
    for name in ("STEPSCOPE_JOBS", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    jobs_folder = sockets.folder()
    assert jobs_folder == home / ".cache" / "stepscope" / "jobs"
    assert [path.stat().st_mode & 0o777 for path in (jobs_folder, jobs_folder.parent)] == [0o700, 0o700]


def test_sockets_are_the_owners_alone_and_those_of_the_dead_are_removed(job_folder: Path, ranks: list[Any]) -> None:
    folder = socket_folder(job_folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    ranks[0].kill()
    ranks[0].wait()
    assert len(list(folder.iterdir())) == 2
    listed(job_folder, 1)
    assert len(list(folder.iterdir())) == 1
    (job_folder / "end").touch()
    ranks[1].communicate(timeout=300)
    assert not list(folder.iterdir()), "a process that ends takes its socket along"


def test_a_folder_that_others_can_enter_is_closed_to_them(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket_folder(job_folder).mkdir(mode=0o777)
    socket_folder(job_folder).chmod(0o777)
    assert sockets.folder().stat().st_mode & 0o777 == 0o700


def test_another_user_is_not_answered(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says who calls; here everybody but us is another."""
    agent = sockets.Agent(lambda request: {"heard": request})
    try:
        assert sockets.ask(agent.path, {"hello": 1}) == {"heard": {"hello": 1}}
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        if os.getuid() != 0:  # root is always answered
            with pytest.raises(OSError):
                sockets.ask(agent.path, {"hello": 1})
    finally:
        monkeypatch.undo()
        agent.close()


@pytest.mark.parametrize(
    "line", [b"no json\n", b"[1]\n", b'{"ask": "no such thing"}\n', b'{"ask": "record"}\n', b"\xff\xfe\n", b'{"ask": []}\n']
)
def test_nonsense_on_the_socket_is_answered_with_an_error(job_folder: Path, ranks: list[Any], line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(10)
        caller.connect(str(next(sockets.listening())))
        caller.sendall(line * 2)
        lines = caller.makefile("rb")
        assert "error" in json.loads(lines.readline()) and "error" in json.loads(lines.readline())
    assert len(listed(job_folder, 2)) == 2


def test_an_idle_job_that_stepscope_started_is_attached_to(job_folder: Path) -> None:
    needs("torch")
    script(
        job_folder,
        """
        import pathlib, time
        import torch
        net = torch.nn.Linear(8, 8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        while not pathlib.Path("end").exists():
            net(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            time.sleep(0.01)
        """,
    )
    with started(job_folder, *STEPSCOPE, "run", "--idle", "--out", "out", "train.py") as job:
        member = only(listed(job_folder, 1))
        assert member["root"] == job.pid and member["program"] == "train.py"
        table = run_command(job_folder, *STEPSCOPE, "jobs").stdout
        assert re.search(rf"^{member['job']} +{member['pid']} +0 of 1 +train.py +\d+ .*idle$", table, re.MULTILINE), table
        attached = run_command(job_folder, *STEPSCOPE, "attach", str(job.pid), "--steps", "3", "--shapes")
        assert attached.returncode == 0, attached.stderr
        (job_folder / "end").touch()
        _, err = job.communicate(timeout=300)
    assert job.returncode == 0
    recording = only(recordings(job_folder / "out"))
    assert len(steps(recording)) == 3 and names(recording).issuperset({"aten::addmm"})
    assert str(recording.relative_to(job_folder)) in err, "the end of the job tells of it once more"


NETWORK = """
    import pathlib, sys, time
    import mindspore as ms, numpy as np
    from mindspore import nn
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv, self.flat, self.fc1, self.fc2 = nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Dense(256, 16), nn.Dense(16, 4)
        def construct(self, x):
            return self.fc2(self.fc1(self.flat(self.conv(x))))
    net = Net()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    for number in range(int(sys.argv[1])):
        step(ms.Tensor(np.ones((2, 1, 8, 8), np.float32)), ms.Tensor(np.ones((2, 4), np.float32)))
        time.sleep(0.01)
        if pathlib.Path("end").exists():
            break
"""


def test_an_idle_mindspore_job_has_the_scopes_and_shapes_of_one_recorded_from_the_start_each_time(job_folder: Path) -> None:
    needs("mindspore")
    script(job_folder, NETWORK)
    finished = run(job_folder, "--steps", "1:2", "--shapes", "--out", "whole", "train.py", "5")
    assert finished.returncode == 0, finished.stderr
    with started(job_folder, *STEPSCOPE, "run", "--idle", "--out", "out", "train.py", "1000000") as job:
        listed(job_folder, 1, beyond=3)
        for _ in range(2):
            attached = run_command(job_folder, *STEPSCOPE, "attach", str(job.pid), "--steps", "2", "--shapes")
            assert attached.returncode == 0, attached.stderr
        (job_folder / "end").touch()
        job.communicate(timeout=300)
    whole, first, second = (
        stepscope.open(path, cache=False) for path in [only(recordings(job_folder / "whole")), *sorted(recordings(job_folder / "out"))]
    )
    columns = ["name", "type", "scope", "calls", "shapes", "dtypes"]
    expected = whole.operators().select(columns).sort(columns).rows()
    assert len(expected) > 20 and any("conv-Conv2d" in row[2] and row[4] == "[[2,1,8,8],[4,1,3,3]]" for row in expected)
    for trace in (first, second):
        assert trace.operators().select(columns).sort(columns).rows() == expected
        assert not [what for what in trace.problems.collect()["what"].to_list() if "graph" in what]


def test_a_forked_child_does_not_answer_for_its_parent(job_folder: Path) -> None:
    script(
        job_folder,
        """
        import os, time
        from stepscope import DynamicProfilerMonitor
        monitor = DynamicProfilerMonitor("cfg", "out")
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        print(len(os.listdir(os.environ["STEPSCOPE_JOBS"])), flush=True)
        """,
    )
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=job_folder, env=environment(job_folder), capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n" and not list(socket_folder(job_folder).iterdir())
