import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from flight_dumps import entry, write
from programs import environment, needs
from stepscope.errors import DataError, UnknownFormatError
from stepscope.readers.flight_recorder import plain_pickle

DATA = Path(__file__).parents[3] / "shared" / "data" / "flight_recorder"
VALUES = {
    "numbers": [0, 1, 255, 256, 65536, -1, -(2**31), 2**40, -(2**70), 1.5],
    "texts": ["", "rank", "é" * 300, "排名"],
    "tuples": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    "others": [None, True, False, {}, {"nested": [[], {}]}],
}
# Two real processes: rank 1 never calls the fourth all_reduce.
JOB = """
import os, pickle, sys, time
import torch, torch.distributed as dist
import torch._C._distributed_c10d as recorder
folder, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
x = torch.ones(4)
for _ in range(3):
    dist.all_reduce(x)
dump = lambda: recorder._dump_fr_trace(True, True, False)
while not all(entry["retired"] for entry in pickle.loads(dump())["entries"]):  # what is completed is noticed a little later
    time.sleep(0.01)
if rank == 0:
    work = dist.all_reduce(x, async_op=True)  # the line that waits
for name, dump in (("dump", dump()), ("json", recorder._dump_fr_trace_json(True, False))):
    os.makedirs(f"{folder}/{name}", exist_ok=True)
    with open(f"{folder}/{name}/trace_rank_{rank}", "wb") as file:
        file.write(dump)
open(f"{folder}/done_{rank}", "w").close()
while not os.path.exists(f"{folder}/done_{1 - rank}"):  # a peer that leaves would end the transfer with an error
    time.sleep(0.01)
os._exit(0)
"""


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_pickles_of_plain_data_are_what_python_reads(protocol: int) -> None:
    data = pickle.dumps(VALUES | {"bytes": [b"", b"x" * 300], "again": VALUES["texts"]}, protocol)
    assert plain_pickle.load(data) == pickle.loads(data)
    assert plain_pickle.load(pickle.dumps(VALUES, 2)) == VALUES


@pytest.mark.parametrize("value", [os.system, Path("x"), {1, 2}, pickle.UnpicklingError(), range(3), complex(1, 2)])
@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickle_that_builds_anything_else_is_refused(value: object, protocol: int) -> None:
    with pytest.raises(ValueError, match="more than plain data"):
        plain_pickle.load(pickle.dumps({"entries": [value]}, protocol))


def test_a_pickle_that_runs_a_command_runs_nothing_and_names_its_file(tmp_path: Path) -> None:
    class Command:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path}/ran",)

    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(pickle.dumps({"version": "2.9", "pg_config": {}, "entries": [Command()]}, 2))
    with pytest.raises(DataError, match=r"nccl_trace_rank_0.*more than plain data"):
        stepscope.open(file, cache=False)
    assert not (tmp_path / "ran").exists()


def nested(levels: int) -> bytes:
    """The pickle of () in so many tuples."""
    return b")" + b"\x85" * levels


def text(word: str) -> bytes:
    return b"X" + len(word).to_bytes(4, "little") + word.encode()


def record(**fields: bytes) -> bytes:
    """A dump with one record that has these pickled fields."""
    plain = {
        "process_group": b"(" + text("0") + text("default") + b"t",
        "profiling_name": text("nccl:all_reduce"),
        "state": text("completed"),
    }
    content = b"".join(text(key) + value for key, value in (plain | fields).items())
    return b"\x80\x02}(" + text("version") + text("2.10") + text("pg_config") + b"}" + text("entries") + b"]}(" + content + b"uau."


DOUBLED = b"](K\x01K\x01eq\x00" + b"".join(b"0](h%ch%ceq%c" % (level, level, level + 1) for level in range(60))
SQUARED = b"](](" + b"K\x01" * 60_000 + b"eq\x01" + b"h\x01" * 60_000 + b"e"


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("state", nested(200_000), "nested in more than 100 levels"),
        ("state", DOUBLED, "more than 20,000,000 values, most of them repeated"),
        ("input_sizes", SQUARED, "more than 20,000,000 values, most of them repeated"),
        (
            "thread_name",
            b"](" + text("x" * 100_000) + b"q\x01" + b"h\x01" * 10_000 + b"e",
            "more than 20,000,000 values, most of them repeated",
        ),
        ("frames", b"]q\x01h\x01a", "it contains itself"),
        ("frames", b"]q\x01]h\x01aa", "it contains itself"),
        ("frames", b"}" + nested(3_000_000) + b"Ns", "damaged at byte"),  # a key: its hash ended the process
    ],
    ids=["deep", "doubled", "squared", "long text", "cycle", "longer cycle", "deep key"],
)
def test_a_small_pickle_that_builds_a_huge_or_deep_value_is_refused(field: str, value: bytes, line: str, tmp_path: Path) -> None:
    file = tmp_path / "nccl_trace_rank_0"
    file.write_bytes(record(**{field: value}))
    run = subprocess.run(
        [sys.executable, "-m", "stepscope", "show", "flight_records", str(file), "--no-cache"],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        check=False,
    )
    assert (run.returncode, run.stdout) == (1, "")
    assert re.fullmatch(rf"stepscope: {re.escape(str(file))}: not a dump of the flight recorder: {line}.*\n", run.stderr), run.stderr[-500:]


def test_records_may_share_their_frames(tmp_path: Path) -> None:
    shared = [{"name": f"call_{depth}", "filename": "train.py", "line": depth} for depth in range(50)]
    value = {"entries": [{"frames": shared, "number": number} for number in range(2_000)]}
    assert plain_pickle.load(pickle.dumps(value, 2)) == value


def test_a_truncated_pickle_is_refused_wherever_it_ends() -> None:
    data = pickle.dumps(VALUES, 2)
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"truncated|damaged"):
            plain_pickle.load(data[:length])


@pytest.mark.parametrize("name", sorted(folder.name for folder in DATA.iterdir()) if DATA.is_dir() else [])
def test_exactly_the_ranks_with_an_injected_fault_are_causes(name: str) -> None:
    (injected,) = re.findall(r"Fault ranks: \[(.*)\]", (DATA / name / "fault_injection.log").read_text())
    trace = stepscope.open(DATA / name, cache=False)
    assert trace.meta.world_size == 16
    causes = trace.hangs().filter(role="cause")
    assert causes["rank"].to_list() == [int(rank) for rank in injected.split(",")]
    sentence = trace.verdict(topic="hangs")["text"][0]
    assert f"({injected})" in sentence
    assert "Waiting ranks: 14 of 16" in sentence


def test_counts_belong_to_groups_by_order_where_no_entry_names_them(tmp_path: Path) -> None:
    file = write(tmp_path / "d", {0: [entry(5, "1", 7)]}, {0: {"0": (3, 3), "1": (7, 6)}}) / "nccl_trace_rank_0"
    groups = (
        stepscope.open(file, cache=False).table("process_groups").select("group", "members", "enqueued", "completed", "started").collect()
    )
    assert groups.rows() == [("0", "0,1,2,3", 3, 3, None), ("1", "0,1", 7, 6, None)]


def test_invalid_entries_are_problems_and_the_others_open(tmp_path: Path) -> None:
    broken: list[Any] = [{"process_group": ("0", "x")}, 5, entry(2, "0", 2) | {"time_created_ns": "soon"}]
    file = write(tmp_path / "d", {0: [entry(1, "0", 1), *broken]}) / "nccl_trace_rank_0"
    trace = stepscope.open(file, cache=False)
    assert trace.table("flight_records").collect().height == 1
    assert trace.problems.collect()["lost"].sum() == 3


def test_a_name_without_a_rank_is_a_remark(tmp_path: Path) -> None:
    file = (write(tmp_path / "d", {0: [entry(1, "0", 1)]}) / "nccl_trace_rank_0").rename(tmp_path / "dump")
    assert "no rank at its end" in stepscope.open(file, cache=False).problems.collect()["what"][0]


def test_a_real_job_of_pytorch_names_the_rank_and_the_line(tmp_path: Path) -> None:
    needs("torch")
    script = tmp_path / "train.py"
    script.write_text(JOB)
    variables = environment(tmp_path) | {"TORCH_FR_BUFFER_SIZE": "100"}
    jobs = [
        subprocess.Popen([sys.executable, script, tmp_path, str(rank)], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for rank in range(2)
    ]
    for job in jobs:
        output, _ = job.communicate(timeout=300)
        assert job.returncode == 0, output.decode()
    line = next(number for number, text in enumerate(JOB.splitlines(), 1) if "the line that waits" in text)
    trace = stepscope.open(tmp_path / "dump", cache=False)
    rows = trace.hangs().select("rank", "role", "why", "operation", "number", "line", "last_operation").rows()
    where = f"{script}:{line} <module>"
    assert rows == [
        (0, "waiting", None, "all_reduce", 4, where, "all_reduce"),
        (1, "cause", "not called", "all_reduce", 4, where, "all_reduce"),
    ]
    assert f"1 rank (1) did not call all_reduce number 4 of default_pg 0 ({where})." in trace.verdict(topic="hangs")["text"][0]
    from_json = stepscope.open(tmp_path / "json", cache=False)  # without stacks
    compared = ["rank", "record", "group", "number", "operation", "name", "state", "created_ns", "input_shapes", "output_dtypes", "thread"]
    tables = [
        one.table("flight_records").select(compared).with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
        for one in (trace, from_json)
    ]
    assert tables[0].equals(tables[1])
    assert from_json.hangs().filter(role="cause")["rank"].to_list() == [1]


def test_json_with_nothing_of_a_dump_is_not_taken_for_one(tmp_path: Path) -> None:
    file = tmp_path / "trace_rank_0.json"
    file.write_text(json.dumps({"version": 1, "entries": []}))
    with pytest.raises(UnknownFormatError):
        stepscope.open(file, cache=False)
