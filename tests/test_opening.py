"""Opening anything: files, run folders, folders of ranks; with a cache, without one, and beside other processes."""

import bz2
import contextlib
import errno
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import stepscope
import tiny
from stepscope import readers
from stepscope.errors import DataError, StepscopeError, UnknownFormatError, UsageError
from stepscope.io import cache, cache_folder, open_source, store
from stepscope.io.discover import Source
from stepscope.io.sources import find_sources
from stepscope.model import captures
from stepscope.model.trace import Trace
from stepscope.readers.capture import reader as capture_reader
from stepscope.recording.conversion import convert


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def chrome(path: Path, rank: int | None = None, events: int = 3) -> Path:
    """A trace of operators of 1 µs each."""
    ops = [{"ph": "X", "cat": "cpu_op", "name": f"op{n}", "pid": 1, "tid": 1, "ts": n, "dur": 1} for n in range(events)]
    header = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 4}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(header | {"traceEvents": ops}))
    return path


def run_folder(path: Path, rank: int = 0) -> Path:
    spans = f"rank kind name start_ns dur_ns\n{rank} op a 0 10"
    store.write(tiny.trace(spans=spans), path)
    return path


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on, rather than found in the cache."""
    names: list[str] = []
    read = readers.read

    def noted(path: Path, name: str, options: readers.Options) -> Trace:
        names.append(path.name)
        return read(path, name, options)

    monkeypatch.setattr(readers, "read", noted)
    return names


def test_a_file_is_read_once_and_then_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, names = chrome(tmp_path / "trace.json"), reads(monkeypatch)
    first, second = stepscope.open(file), stepscope.open(file)
    assert names == ["trace.json"]
    assert first.spans.collect().equals(second.spans.collect())
    assert len(cache.entries()) == 1
    stepscope.open(file, cache=False)
    stepscope.open(file, partial=True)
    assert names == ["trace.json"] * 3


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = chrome(tmp_path / "trace.json", events=3)
    assert stepscope.open(file).spans.collect().height == 3
    chrome(file, events=5)
    assert stepscope.open(file).spans.collect().height == 5


def test_a_file_found_in_the_cache_under_another_name_is_called_by_its_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, names = chrome(tmp_path / "before.json"), reads(monkeypatch)
    assert stepscope.open(file).problems.collect()["file"].to_list() == [str(file)]  # no step markers
    moved = file.rename(tmp_path / "after.json")
    trace = stepscope.open(moved)
    assert names == ["before.json"]
    assert trace.meta.source == str(moved)
    assert trace.problems.collect()["file"].to_list() == [str(moved)]


@pytest.mark.parametrize("damage", ["run.json", "spans.parquet"])
def test_a_damaged_entry_of_the_cache_is_read_anew(damage: str, tmp_path: Path) -> None:
    file = chrome(tmp_path / "trace.json")
    stepscope.open(file)
    (cache.entries()[0].path / damage).write_text("{")
    assert stepscope.open(file).spans.collect().height == 3
    assert stepscope.open(file).spans.collect().height == 3


def test_what_a_killed_removal_left_does_not_stand_in_the_way(tmp_path: Path) -> None:
    file = chrome(tmp_path / "trace.json")
    stepscope.open(file)
    (cache.entries()[0].path / "run.json").unlink()
    stepscope.open(file)
    assert len(cache.entries()) == 1


@pytest.mark.parametrize("place", ["a file", "no home"])
def test_without_a_place_for_a_cache_everything_is_read_anew(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if place == "a file":
        (tmp_path / "blocked").write_text("")
        monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "blocked" / "cache"))
    else:
        monkeypatch.delenv("STEPSCOPE_CACHE")
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    file, names = chrome(tmp_path / "trace.json"), reads(monkeypatch)
    assert stepscope.open(file).spans.collect().height == 3
    assert stepscope.open(file).spans.collect().height == 3
    assert names == ["trace.json"] * 2


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    assert stepscope.open(chrome(tmp_path / "trace.json")).spans.collect().height == 3


def test_processes_that_read_the_same_file_at_once_all_get_it(tmp_path: Path) -> None:
    file = chrome(tmp_path / "trace.json")
    code = f"import stepscope; print(stepscope.open({str(file)!r}).spans.collect().height)"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in processes] == ["3"] * 3
    assert len(cache.entries()) == 1
    assert not list(cache_folder.folder().glob(".*"))


def test_the_slower_of_two_readers_takes_what_the_faster_one_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = chrome(tmp_path / "trace.json")
    write = store.write

    def overtaken(trace: Trace, path: Path, *, overwrite: bool = False) -> None:
        write(trace, path, overwrite=overwrite)
        monkeypatch.setattr(store, "write", write)
        stepscope.open(file)  # meanwhile, another reads and keeps the same
        first.append(cache.entries()[0].path.stat().st_ino)

    first: list[int] = []
    monkeypatch.setattr(store, "write", overtaken)
    assert stepscope.open(file).spans.collect().height == 3
    assert [entry.path.stat().st_ino for entry in cache.entries()] == first  # it may be reading it now
    assert not list(cache_folder.folder().glob(".*"))


def test_a_failed_read_leaves_nothing_behind(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    file = chrome(tmp_path / "trace.json")
    file.write_text(file.read_text()[:-20])
    for keep in (True, False):
        with pytest.raises(DataError):
            stepscope.open(file, cache=keep)
    assert list(folder.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "trace.json"]


def test_without_the_cache_the_tables_live_as_long_as_the_process_and_not_longer(tmp_path: Path) -> None:
    for rank in (0, 1):
        chrome(tmp_path / "run" / f"r{rank}.json", rank)
    code = (
        f"import gc, stepscope; trace = stepscope.open({str(tmp_path / 'run')!r}, cache=False).of_rank(1); "
        "gc.collect(); print(trace.spans.collect().height)"
    )
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_folder_of_ranks_is_one_trace(tmp_path: Path) -> None:
    chrome(tmp_path / "run" / "b.json", 0)
    chrome(tmp_path / "run" / "deep" / "a.json", 2)
    run_folder(tmp_path / "run" / "c", 1)
    trace = stepscope.open(tmp_path / "run")
    assert trace.meta.ranks == [0, 1, 2]
    assert trace.meta.source == str(tmp_path / "run")
    assert trace.spans.group_by("rank").len().sort("rank").collect()["len"].to_list() == [3, 1, 3]


def test_a_rank_in_the_name_counts_where_the_file_does_not_say(tmp_path: Path) -> None:
    chrome(tmp_path / "run" / "trace_rank-3.json")
    chrome(tmp_path / "run" / "trace_rank7.json", 5)
    assert stepscope.open(tmp_path / "run").meta.ranks == [3, 5]


def test_one_rank_of_many_is_opened_without_reading_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(4):
        chrome(tmp_path / "run" / f"rank{rank}.json", rank)
    names = reads(monkeypatch)
    trace = stepscope.open(tmp_path / "run", rank=2)
    assert names == ["rank2.json"]
    assert trace.meta.source == str(tmp_path / "run" / "rank2.json")


def test_names_that_lie_about_ranks_cost_time_not_truth(tmp_path: Path) -> None:
    chrome(tmp_path / "run" / "rank0.json", 1)
    chrome(tmp_path / "run" / "rank1.json", 0, events=5)
    assert stepscope.open(tmp_path / "run", rank=0).spans.collect().height == 5


def test_a_rank_of_a_trace_of_several_is_a_trace_of_one(tmp_path: Path) -> None:
    for rank in (0, 1):
        chrome(tmp_path / "in" / f"r{rank}.json", rank)
    store.write(stepscope.open(tmp_path / "in"), tmp_path / "both")
    assert stepscope.open(tmp_path / "both").meta.ranks == [0, 1]
    assert stepscope.open(tmp_path / "both", rank=1).meta.ranks == [1]


def test_a_folder_that_is_called_after_a_rank_says_whose_its_files_are(tmp_path: Path) -> None:
    for rank in (0, 3):
        (tmp_path / f"rank_{rank}").mkdir()
        event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0}
        (tmp_path / f"rank_{rank}" / "trace.json").write_text(json.dumps({"traceEvents": [event]}))
    assert stepscope.open(tmp_path).meta.ranks == [0, 3]


def test_a_rank_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    chrome(tmp_path / "rank0.json", 0)
    with pytest.raises(UsageError, match="no rank 9"):
        stepscope.open(tmp_path, rank=9)


def test_several_runs_in_a_folder_are_not_one_trace_and_the_error_names_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        chrome(tmp_path / "runs" / f"{name}.json", 0)
    names = reads(monkeypatch)
    with pytest.raises(DataError, match=r"two recordings of rank 0: .*a\.json and .*b\.json; open one of them") as caught:
        stepscope.open(tmp_path / "runs")
    assert "\n" not in str(caught.value)
    assert names == ["a.json", "b.json"]  # c is not read in vain


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, DataError, "no such file or folder"),
        (b"", DataError, "the file is empty"),
        (
            b"\x00\x01noise" * 100,
            UnknownFormatError,
            r"not a trace that stepscope knows\. Known: PyTorch/Chrome JSON \(\.json, \.json\.gz\), JAX/TensorFlow xplane \(\.xplane\.pb\)",
        ),
    ],
)
def test_what_cannot_be_opened_is_named(content: bytes | None, error: type[StepscopeError], message: str, tmp_path: Path) -> None:
    file = tmp_path / "thing"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(error, match=message) as caught:
        stepscope.open(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_folder_without_a_trace_says_so(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing here")
    with pytest.raises(UnknownFormatError, match=r"no trace in this folder: the folder has only notes\.txt\. Known: PyTorch/Chrome JSON"):
        stepscope.open(tmp_path)
    (tmp_path / "report.nsys-rep").write_bytes(b"\x01\x02")
    with pytest.raises(UnknownFormatError, match=r"files such as notes\.txt; report\.nsys-rep is an Nsight Systems report"):
        stepscope.open(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnknownFormatError, match="no trace in this folder: the folder has no files"):
        stepscope.open(tmp_path / "empty")


def test_every_reader_names_its_format_in_users_words() -> None:
    assert [text.partition(" (")[0] for text in readers.formats()[:3]] == [
        "PyTorch/Chrome JSON",
        "JAX/TensorFlow xplane",
        "Ascend PROF_* directory",
    ]
    assert len(set(readers.formats())) == len(readers.names())


def zipped(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "{}")
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("trace.json"))
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("job.nsys-rep", b"\x01\x02", "an Nsight Systems report, which stepscope does not read; record the job with `stepscope run`"),
        ("kernel.ncu-rep", b"NVR\x00", "an Nsight Compute report"),
        ("a.pt.trace.json.zip", zipped("trace.json"), r"a zip archive; unpack it \(unzip\)"),
        ("model.pt", zipped("model/data.pkl"), "a PyTorch checkpoint"),
        ("trace.tar.gz", tarred(), r"a tar archive; unpack it \(tar xf\)"),
        ("trace.json.bz2", bz2.compress(b"{}"), r"compressed with bzip2; decompress it \(bunzip2\)"),
        ("trace.json.xz", lzma.compress(b"{}"), r"compressed with xz; decompress it \(unxz\)"),
        ("snapshot.pickle", pickle.dumps({"segments": [], "device_traces": []}), "a PyTorch memory snapshot .* `stepscope run --memory`"),
        ("snapshot.pickle.gz", gzip.compress(pickle.dumps({"segments": [], "device_traces": []})), "a PyTorch memory snapshot"),
        ("x.pkl", pickle.dumps([1]), "a Python pickle, not a profile"),
        ("config.json", b'{"lr": 0.1}', "JSON without traceEvents"),
        (
            "flames.json",
            b'{"$schema": "https://www.speedscope.app/file-format-schema.json"}',
            "a speedscope profile; open it on speedscope.app",
        ),
        ("trace.pftrace", b"\x0a\x02\x08\x01", "a Perfetto trace .* convert it first: traceconv json"),
        ("events.out.tfevents.1", b"\x18\x00", r"a TensorBoard event file; the profile is in plugins/profile/\*/\*\.xplane\.pb"),
        ("graph.pb", b"\x0a\x02xx", "not an xplane file"),
        ("report.html", b"<!doctype html><title>run \xc2\xb7 stepscope</title>", "a report of stepscope; open it in a browser"),
        ("train.py", b"import torch", r"a Python script; record it: stepscope run train\.py"),
        ("op_summary.csv", b"a,b\n1,2\n", "one CSV table; open the folder of the profiler that wrote it"),
        ("other.db", b"SQLite format 3\0" + bytes(2000), "an SQLite database of an unknown program"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else None,  # a compressed file holds the time, and workers must agree on the names
)
def test_an_unknown_file_is_told_what_it_is_and_what_to_do(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnknownFormatError, match=f"not a trace that stepscope knows: this is {message}") as caught:
        stepscope.open(tmp_path / name)
    assert str(caught.value).count("\n") == 0 and ". Known: PyTorch/Chrome JSON (.json, .json.gz), " in str(caught.value)


def test_one_file_of_a_recording_leads_to_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "host_1_20260101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    folder.mkdir(parents=True)
    (folder / "step_trace_time.csv").write_text("Step,Computing,Free\n1,1.0,1.0\n")
    (folder / "api_statistic.csv").write_text("Name,Count\n")
    with pytest.raises(UnknownFormatError, match=f"one file of a recording; open the folder of the recording: {folder}"):
        stepscope.open(folder / "api_statistic.csv")


def test_a_table_of_a_run_folder_leads_to_the_folder(tmp_path: Path) -> None:
    store.write(tiny.trace(), tmp_path / "run")
    with pytest.raises(UnknownFormatError, match=f"one table of a run folder; open the folder: {tmp_path / 'run'}"):
        stepscope.open(tmp_path / "run" / "spans.parquet")


def test_files_of_other_profilers_are_named(shared: Path) -> None:
    for pattern, words in (
        ("nsys/*.sqlite", "Nsight Systems"),
        ("memory_snapshot/*", "memory snapshot"),
    ):
        for file in list(shared.glob(pattern))[:3]:
            with pytest.raises(UnknownFormatError, match=words):
                stepscope.open(file)


def test_a_pipe_is_neither_waited_for_nor_taken_for_a_trace(tmp_path: Path) -> None:
    chrome(tmp_path / "run" / "trace.json")
    os.mkfifo(tmp_path / "run" / "pipe")
    assert [source.path.name for source in find_sources(tmp_path / "run")] == ["trace.json"]
    with pytest.raises(DataError, match="neither a file nor a folder"):
        stepscope.open(tmp_path / "run" / "pipe")


def test_links_that_go_round_in_circles_end(tmp_path: Path) -> None:
    chrome(tmp_path / "run" / "trace.json")
    (tmp_path / "run" / "again").symlink_to(tmp_path / "run", target_is_directory=True)
    (tmp_path / "run" / "lost").symlink_to(tmp_path / "nowhere")
    assert [source.path.name for source in find_sources(tmp_path / "run")] == ["trace.json"]


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    chrome(tmp_path / ".hidden" / "trace.json")
    chrome(tmp_path / ".trace.json")
    assert list(find_sources(tmp_path)) == []


def test_what_a_run_folder_holds_is_not_looked_into(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "runs" / "one")
    chrome(run / "attachment.json")
    assert list(find_sources(tmp_path)) == [Source(run, "run")]


def test_looking_goes_on_past_what_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        chrome(tmp_path / f"{name}.json")
    sniff = readers.sniff

    def forbidden(path: Path) -> str | None:
        if path.name == "b.json":
            raise PermissionError(13, "Permission denied", str(path))
        return sniff(path)

    monkeypatch.setattr(readers, "sniff", forbidden)
    received: list[DataError] = []
    assert [source.path.name for source in find_sources(tmp_path, received.append)] == ["a.json", "c.json"]
    assert [str(error) for error in received] == [f"{tmp_path / 'b.json'}: Permission denied"]
    with pytest.raises(DataError, match="Permission denied"):
        list(find_sources(tmp_path))


def test_thousands_of_other_files_are_passed_over(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"checkpoint{number}.bin").write_bytes(b"\x80\x02" + bytes(200))
    chrome(tmp_path / "z.json")
    assert [source.path.name for source in find_sources(tmp_path)] == ["z.json"]


def test_a_name_that_is_not_utf8_is_refused_in_words(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/run/tr\xff.json"))
    chrome(odd)
    chrome(tmp_path / "run" / "fine.json")
    with pytest.raises(DataError, match=r"tr\\udcff\.json: the name is not UTF-8"):
        stepscope.open(odd)
    received: list[DataError] = []
    assert [source.path.name for source in find_sources(tmp_path / "run", received.append)] == ["fine.json"]
    assert len(received) == 1


def test_a_trace_can_be_asked_from_several_threads(tmp_path: Path) -> None:
    trace = stepscope.open(chrome(tmp_path / "trace.json"))
    heights: list[int] = []
    threads = [threading.Thread(target=lambda: heights.append(trace.spans.select(pl.len()).collect().item())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heights == [3] * 4


def test_a_full_disk_is_one_line_that_names_the_place(tmp_path: Path) -> None:
    """A limit on the size of files is as good as a full disk: writing fails."""
    file = chrome(tmp_path / "trace.json", events=20_000)
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "sys.dont_write_bytecode = True  # half a file of bytecode would stay beside the source\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from stepscope.cli import main\n"
        f"sys.exit(main(['show', 'overlap', {str(file)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("stepscope: ")
    assert "File too large" in done.stderr
    with contextlib.suppress(FileNotFoundError):
        assert list(cache_folder.folder().iterdir()) == []


def test_kept_run_says_where_without_reading(tmp_path: Path) -> None:
    file = chrome(tmp_path / "trace.json")
    source = Source(file, "chrome")
    keep = open_source.cached_run(source)
    assert keep is not None and not keep.exists()
    stepscope.open(file)
    assert store.sniff(keep)
    assert open_source.cached_run(Source(tmp_path, "run")) is None


# Folders


def cluster_folder(path: Path) -> Path:
    shutil.copytree(next((Path(__file__).parent / "samples" / "cluster_output").rglob("cluster_analysis_output")), path)
    return path


def test_a_folder_is_read_once_and_then_found_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, names = cluster_folder(tmp_path / "cluster_analysis_output"), reads(monkeypatch)
    (place / "empty.csv").touch()  # a row of `problems`
    first, second = stepscope.open(place), stepscope.open(place)
    assert names == [place.name]
    assert all(frame.collect().equals(second.tables[name].collect()) for name, frame in first.tables.items())
    assert first.meta == second.meta
    monkeypatch.chdir(tmp_path)
    relative = stepscope.open(place.name)
    assert names == [place.name]
    assert relative.meta.source == place.name
    assert set(relative.problems.collect()["file"].drop_nulls()) == {place.name}


def test_a_changed_added_or_removed_file_of_a_folder_gives_another_key(tmp_path: Path) -> None:
    place = cluster_folder(tmp_path / "cluster_analysis_output")
    file = next(path for path in place.iterdir() if path.stat().st_size)
    changes: list[Callable[[], object]] = [
        lambda: file.write_bytes(file.read_bytes() + b" "),
        (place / "new").mkdir,
        lambda: (place / "new" / "added.csv").write_text("a,b"),
        lambda: os.utime(place / "new" / "added.csv", ns=(1, 1)),
        lambda: (place / "new" / "added.csv").rename(place / "new" / "other.csv"),
        (place / "new" / "other.csv").unlink,
    ]
    keys = [open_source.cached_run(Source(place, "cluster_output"))]
    for change in changes:
        change()
        keys.append(open_source.cached_run(Source(place, "cluster_output")))
    assert keys[2] == keys[1]  # an empty folder holds nothing
    assert len({*keys}) == len(keys) - 2  # and without its file, the new folder is empty again


def test_the_content_of_a_file_in_a_folder_counts_though_its_time_does_not_change(tmp_path: Path) -> None:
    place = cluster_folder(tmp_path / "cluster_analysis_output")
    keys = []
    for letter in "ab":
        (place / "x.csv").write_text(letter)
        os.utime(place / "x.csv", ns=(1, 1))
        keys.append(open_source.cached_run(Source(place, "cluster_output")))
    assert keys[0] != keys[1]


def test_captures_are_not_cached(tmp_path: Path) -> None:
    assert open_source.cached_run(Source(tmp_path, "capture")) is None


# What is in use


def test_opening_one_trace_takes_nothing_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "1")
    first = stepscope.open(chrome(tmp_path / "a.json"))
    second = stepscope.open(chrome(tmp_path / "b.json", events=4))
    assert (first.spans.collect().height, second.spans.collect().height) == (3, 4)


def test_ranks_that_are_more_than_the_cache_may_hold_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(3):
        chrome(tmp_path / "run" / f"r{rank}.json", rank, events=3 + rank)
    monkeypatch.setenv("STEPSCOPE_CACHE_LIMIT", "1")
    trace = stepscope.open(tmp_path / "run")
    assert trace.spans.group_by("rank").len().sort("rank").collect().rows() == [(0, 3), (1, 4), (2, 5)]


def test_clearing_the_cache_leaves_what_is_open(tmp_path: Path) -> None:
    trace = stepscope.open(chrome(tmp_path / "trace.json"))
    cache.clear()
    assert trace.spans.collect().height == 3


def test_damage_inside_an_entry_of_the_cache_is_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same size, and with a footer that can be read."""
    file = chrome(tmp_path / "trace.json", events=1000)
    whole = stepscope.open(file).spans.collect()
    damaged = cache.entries()[0].path / "spans.parquet"
    content = bytearray(damaged.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    damaged.write_bytes(content)
    names = reads(monkeypatch)
    assert stepscope.open(file).spans.collect().equals(whole)
    assert stepscope.open(file).spans.collect().equals(whole)
    assert names == ["trace.json"]


# A cache that cannot be used


def test_a_cache_that_cannot_be_used_is_done_without_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cache, "_notices", [])
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / ("x" * 300)))  # no file system takes such a name
    for rank in (0, 1):
        chrome(tmp_path / "run" / f"r{rank}.json", rank)
    assert stepscope.open(tmp_path / "run").spans.collect().height == 6
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and "cannot be used (File name too long): results are not cached" in output


@pytest.mark.parametrize(
    "error",
    [
        DataError("run", f"could not be written ({os.strerror(errno.ENOSPC)})"),
        RuntimeError("RuntimeError: OSError: No space left on device (os error 28)"),  # as Polars raises it
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_full_cache_is_done_without_and_told_of_once(
    error: Exception, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk of the cache is full when its first table is written; that of temporary files is not."""
    monkeypatch.setattr(cache, "_notices", [])
    write = store.write

    def full(trace: Trace, path: Path, *, overwrite: bool = False) -> None:
        if path.is_relative_to(folder):
            raise error
        write(trace, path, overwrite=overwrite)

    monkeypatch.setattr(store, "write", full)
    for rank in (0, 1):
        chrome(tmp_path / "run" / f"r{rank}.json", rank)
    assert stepscope.open(tmp_path / "run").spans.collect().height == 6
    output = capsys.readouterr().err
    assert output.count("\n") == 1 and "cannot be used (could not be written (No space left on device))" in output
    assert list(folder.iterdir()) == []


# A file that somebody writes meanwhile


def rewriting(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """The file is written anew each time that it has been read, so many times: with one event more."""
    read, events = readers.read, [3]

    def meddled(path: Path, name: str, options: readers.Options) -> Trace:
        trace = read(path, name, options)
        if events[0] < 3 + times:
            events[0] += 1
            chrome(path, events=events[0])
        return trace

    monkeypatch.setattr(readers, "read", meddled)
    return events


def test_a_file_that_is_written_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, events = chrome(tmp_path / "trace.json"), rewriting(monkeypatch, 1)
    assert stepscope.open(file).spans.collect().height == 4
    assert events == [4] and len(cache.entries()) == 1
    assert stepscope.open(file).spans.collect().height == 4


def test_a_file_that_is_written_all_the_time_is_refused_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    file, _ = chrome(tmp_path / "trace.json"), rewriting(monkeypatch, 9)
    for keep in (True, False):
        with pytest.raises(DataError, match="changed while it was being read, twice; open it again when no process writes to it"):
            stepscope.open(file, cache=keep)
    assert list(folder.iterdir()) == []


def test_a_folder_in_which_files_change_opens_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may grow beside a recording for as long as the job runs."""
    sample = next((Path(__file__).parent / "samples" / "cluster_output").iterdir())
    place = tmp_path / "cluster_analysis_output"
    shutil.copytree(sample, place)
    read = readers.read

    def logged(path: Path, name: str, options: readers.Options) -> Trace:
        trace = read(path, name, options)
        with (path / "job.log").open("a") as log:
            log.write("still running\n")
        return trace

    quiet = stepscope.open(place, cache=False)
    monkeypatch.setattr(readers, "read", logged)
    trace = stepscope.open(place)
    assert trace.spans.collect().height == quiet.spans.collect().height
    assert "changed while it was being read, twice" in trace.problems.collect()["what"].to_list()
    assert "changed while it was being read, twice" not in quiet.problems.collect()["what"].to_list()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("moment", ["before it is read", "after its header", "after its tables"])
def test_a_capture_that_becomes_a_run_folder_while_it_is_read_is_read_from_there(
    moment: str, keep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = captures.Capture(tmp_path / "rank0_a.capture", {"rank": 0})
    steps = np.arange(3)
    capture.append("steps", {"step": steps, "start_ns": steps * 100, "end_ns": steps * 100 + 90})
    capture.finish()
    (source,) = find_sources(tmp_path)
    header, read, converted = capture_reader._load_header, readers.read, [False]

    def convert_once() -> None:
        """In another process, which has its own reader."""
        if not converted[0]:
            converted[0] = True
            with monkeypatch.context() as other:
                other.setattr(readers, "read", read)
                other.setattr(capture_reader, "_load_header", header)
                convert.convert(capture.folder, keep=keep)

    def load_header(path: Path) -> object:
        found = header(path)
        convert_once()
        return found

    def decode(path: Path, name: str, options: readers.Options) -> Trace:
        if moment == "before it is read":
            convert_once()
        trace = read(path, name, options)
        if moment == "after its tables":
            convert_once()
        return trace

    monkeypatch.setattr(readers, "read", decode)
    if moment == "after its header":
        monkeypatch.setattr(capture_reader, "_load_header", load_header)
    trace = open_source.SourceOpener(use_cache=False).open(source)
    assert converted[0] and not capture.folder.exists()
    assert trace.steps.collect()["step"].to_list() == [0, 1, 2]


def test_a_capture_that_is_removed_while_it_is_read_is_no_empty_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capture = captures.Capture(tmp_path / "rank0_a.capture", {"rank": 0})
    capture.finish()
    (source,) = find_sources(tmp_path)
    header = capture_reader._load_header

    def load_header(path: Path) -> object:
        found = header(path)
        shutil.rmtree(path)
        return found

    monkeypatch.setattr(capture_reader, "_load_header", load_header)
    with pytest.raises(DataError, match="was moved or removed while it was being read; open it again"):
        open_source.SourceOpener(use_cache=False).open(source)
