"""The whole inputs that fuzzing starts from, per target: recordings of the samples, of what the tests write, and of real data where it is.

Large files are cut down to a few hundred events, so that a mutant is read in milliseconds.
"""

import contextlib
import gzip
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

import ascend_kinds
import flight_dumps
import prof_kinds
from stepscope.io import store
from stepscope.recording import monitor
from stepscope.timeline import cache, layout

TESTS = Path(__file__).absolute().parents[1]
SAMPLES = TESTS / "samples"
SHARED = TESTS.parents[1] / "shared" / "data"
_ROWS, _EVENTS = 120, 300
_MOST_BYTES = 600_000  # of one input


def make(room: Path, *, own: bool = False) -> None:
    """Write every input to room/target/name/, from where `found` reads them; `own`: only those that come with the project."""
    for target, name, path in _every(room.with_name(f"{room.name}.made"), own):
        if own and path.is_relative_to(SHARED):
            continue
        place = room / target / name.replace(" ", "-") / path.name
        place.parent.mkdir(parents=True)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, place)
        for file in [place, *place.rglob("*")]:
            file.chmod(0o755 if file.is_dir() else 0o644)
            if file.is_file() and target not in _AS_THEY_ARE:
                cut(file)
        if sum(file.stat().st_size for file in [place, *place.rglob("*")] if file.is_file()) > _MOST_BYTES:
            shutil.rmtree(place.parent)
    shutil.rmtree(room.with_name(f"{room.name}.made"), ignore_errors=True)


_AS_THEY_ARE = ("run", "cache", "timeline", "prof", "flight_recorder")


def find_inputs(room: Path) -> dict[str, dict[str, Path]]:
    """The inputs by target and name."""
    targets = {target.name: {one.name: next(one.iterdir()) for one in sorted(target.iterdir())} for target in sorted(room.iterdir())}
    return {target: inputs for target, inputs in targets.items() if inputs}


def _every(room: Path, own: bool) -> Iterator[tuple[str, str, Path]]:
    """Target, name of the input, where it is."""
    room.mkdir(parents=True)
    yield from _chrome(room / "chrome", own)
    for path in sorted((SAMPLES / "xplane").glob("*/*")):
        yield "xplane", path.parent.name, path
    yield from _captures(room / "captures")
    for path in prof_kinds.written(room / "prof"):
        yield "prof", path.parent.name, path
    for case in sorted((SHARED / "ascend" / "synth").glob("c*")):
        for path in case.glob("PROF_*"):
            yield "prof", case.name, path
    for path in sorted((SHARED / "ascend" / "legacy" / "raw").glob("*JOB*")):
        yield "prof", path.name, path
    yield from _ascend(room / "ascend")
    yield "marey", "by-hand", SAMPLES / "marey" / "by-hand"
    if (SHARED / "mindinsight" / "marey_graph").is_dir():
        yield "marey", "mindinsight", SHARED / "mindinsight" / "marey_graph"
    calls = {rank: [flight_dumps.entry(1, "0", 1), flight_dumps.entry(2, "1", 1, "send 0->1")] for rank in (0, 1)}
    yield "flight_recorder", "by-hand", flight_dumps.write(room / "dumps", calls, {0: {"0": (1, 0)}})
    for path in sorted((SHARED / "flight_recorder").glob("*/_dump_12")):
        yield "flight_recorder", path.parent.name, path
    run = _small_run(room / "small.run")
    yield "run", "resnet50", run
    yield "cache", "chrome", _small_chrome(room / "trace.json")
    yield "timeline", "resnet50", _timeline(run, room / "timeline")
    yield from _settings(room / "settings")
    yield "ranks", "chrome", _ranks(room / "ranks")
    yield "ranks", "captures", _capture_ranks(room / "capture_ranks")


def _small_chrome(path: Path) -> Path:
    with gzip.open(SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz") as file:
        path.write_bytes(file.read())
    cut(path)
    return path


def _chrome(room: Path, own: bool) -> Iterator[tuple[str, str, Path]]:
    room.mkdir()
    traces = sorted((SAMPLES / "chrome").glob("*/*.gz"))
    for name in () if own else ("torch_h200", "torch_public", "tracelens"):
        files = sorted((SHARED / name).rglob("*.json.gz"))
        traces += [file for file in files if file.stat().st_size < 30_000_000][:: max(len(files) // 4, 1)]
    for number, file in enumerate(traces):
        name = f"{number:02d}-{file.name.removesuffix('.json.gz')[:30]}"
        plain = room / f"{name}.json"
        with gzip.open(file) as packed:
            plain.write_bytes(packed.read())
        cut(plain)
        yield "chrome", name, plain
        if number < 2:
            gz = room / f"{name}.json.gz"
            gz.write_bytes(gzip.compress(plain.read_bytes(), 1, mtime=0))
            yield "chrome", f"{name}-gz", gz
            array = room / f"{name}-array.json"
            array.write_text(json.dumps(json.loads(plain.read_text())["traceEvents"]))
            yield "chrome", f"{name}-array", array
    every = room / "phases.json"
    every.write_text(json.dumps(_PHASES))
    yield "chrome", "phases", every


_AT: dict[str, Any] = {"pid": 1, "tid": 2}
# One event of each phase that the format has, as other tools write them.
_PHASES: list[dict[str, Any]] = [
    {"ph": "M", "name": "process_name", **_AT, "args": {"name": "python"}},
    {"ph": "M", "name": "thread_sort_index", **_AT, "args": {"sort_index": 3}},
    {"ph": "X", "name": "outer", "cat": "cpu_op", "ts": 1, "dur": 100, **_AT,
     "args": {"External id": 1, "Input Dims": [[2, 3]], "Sequence number": 4}},
    {"ph": "B", "name": "inner", "ts": 5.5, **_AT}, {"ph": "E", "ts": 7.25, **_AT},
    {"ph": "i", "name": "instant", "s": "g", "ts": 9, **_AT}, {"ph": "I", "name": "instant", "ts": 9, **_AT},
    {"ph": "C", "name": "memory", "ts": 10, "pid": 1, "args": {"bytes": 5, "other": 2.5}},
    {"ph": "b", "id": 1, "cat": "async", "name": "a", "ts": 10, **_AT}, {"ph": "n", "id": 1, "cat": "async", "name": "a", "ts": 11, **_AT},
    {"ph": "e", "id": "1", "cat": "async", "name": "a", "ts": 12, **_AT}, {"ph": "s", "id": 7, "name": "f", "ts": 2, **_AT},
    {"ph": "t", "id": 7, "name": "f", "ts": 3, **_AT}, {"ph": "f", "id": 7, "bp": "e", "name": "f", "ts": 12, **_AT},
    {"ph": "N", "id": 1, "name": "object", "ts": 1, **_AT},
    {"ph": "O", "id": 1, "name": "object", "ts": 2, **_AT, "args": {"snapshot": {}}},
    {"ph": "P", "name": "sample", "ts": 3, **_AT}, {"ph": "X", "name": "ProfilerStep#3", "ts": 0, "dur": 200, **_AT},
    {"ph": "X", "name": "k", "cat": "kernel", "ts": 20, "dur": 5, "pid": 0, "tid": 7,
     "args": {"device": 0, "stream": 7, "correlation": 9, "External id": 1}},
    {"ph": "X", "name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": 10, "dur": 2, **_AT, "args": {"correlation": 9, "External id": 1}},
    {"ph": "i", "s": "t", "name": "[memory]", "cat": "cpu_instant_event", "ts": 14, **_AT,
     "args": {"Addr": 140_000_000, "Bytes": 512, "Device Id": 0, "Device Type": 1, "Total Allocated": 512, "Total Reserved": 1024}},
]  # fmt: skip


def _captures(room: Path) -> Iterator[tuple[str, str, Path]]:
    for path in sorted((SAMPLES / "capture").glob("*/*.capture")):
        yield "capture_" + path.name.removesuffix(".capture"), path.parent.name, path
    header = json.loads(next((SAMPLES / "capture").glob("*/python.capture/capture.json")).read_text())
    tables = sorted(next((SAMPLES / "capture").glob("*/python.capture")).glob("*.npz"))
    for name in ("mindspore", "jax"):
        folder = room / f"{name}.capture"
        folder.mkdir(parents=True)
        (folder / "capture.json").write_text(json.dumps(header | {"base": name, "framework": name}))
        for file in tables:
            shutil.copy(file, folder)
    shutil.copytree(next((SAMPLES / "ascend_result").glob("mindspore*/*/FRAMEWORK")), room / "mindspore.capture" / "mindspore" / "000000")
    minddata = ascend_kinds.of_mindinsight(room / "minddata")
    (room / "mindspore.capture" / "minddata").mkdir()
    for file in [*minddata.glob("pipeline_*"), *minddata.glob("dataset_*"), *minddata.glob("minddata_cpu*")]:
        shutil.copy(file, room / "mindspore.capture" / "minddata")
    session = room / "jax.capture" / "xplane" / "000000"
    session.mkdir(parents=True)
    shutil.copy(next((SAMPLES / "xplane").glob("jax-*-cpu/*.pb")), session / "host.xplane.pb")
    yield "capture_mindspore", "made", room / "mindspore.capture"
    yield "capture_jax", "made", room / "jax.capture"


def _ascend(room: Path) -> Iterator[tuple[str, str, Path]]:
    made = ascend_kinds.written(room)
    for file in sorted(made["msprof"].iterdir()):
        file.rename(file.with_name(re.sub(r"_\d{14}", "_20260101000000", file.name)))
    for path in sorted((SAMPLES / "ascend_result").glob("*/*")):
        yield "ascend_ms" if path.name.endswith("_ms") else "ascend_pt", path.parent.name, path
    yield "ascend_pt", "raw with framework", made["raw with framework"]
    yield "ascend_pt", "tables", made["tables"]
    for path in sorted((SAMPLES / "ascend_db").glob("*/*")):
        yield "ascend_db", path.parent.name, path
    yield "ascend_db", "msprof", made["msprof_db"]
    yield "msprof_output", "by-hand", next((SAMPLES / "msprof_output").glob("*/*"))
    yield "msprof_output", "exported", made["msprof"]
    yield "cluster_output", "by-hand", next((SAMPLES / "cluster_output").glob("*/*"))
    yield "cluster_output", "matrix", made["cluster"]
    yield "mindinsight", "mindspore", next((SAMPLES / "mindinsight").glob("*/*"))
    for name in ("mindinsight", "mindinsight export", "mindinsight files"):
        yield "mindinsight", name, made[name]
    ascend, mindspore = SHARED / "ascend", SHARED / "mindspore_cpu"
    for path in sorted(ascend.glob("torch_npu/text/*/*_ascend_pt")):
        yield "ascend_pt", f"{path.parent.name} {path.name}", path
    for path in sorted(ascend.glob("torch_npu/db/*/*_ascend_pt")):
        yield "ascend_db", f"{path.parent.name} {path.name}", path
    for path in sorted(ascend.glob("real_prof/*/PROF_*/msprof_*.db")):
        yield "ascend_db", path.parents[1].name, path
    for path in sorted(ascend.glob("real_prof/*/PROF_*/mindstudio_profiler_output")):
        yield "msprof_output", path.parents[1].name, path
    for path in sorted(ascend.glob("synth/*/expected/mindstudio_profiler_output"))[::6]:
        yield "msprof_output", path.parents[1].name, path
    for path in sorted((ascend / "prof_2023").glob("PROF_*")):
        yield "msprof_output", path.name[:40], path
    for path in (ascend / "cluster_output", ascend / "trace_view"):
        if path.is_dir():
            yield "cluster_output" if path.name == "cluster_output" else "ascend_pt", path.name, path
    for path in sorted((*ascend.glob("legacy/expected/*/*/profiler"), *(SHARED / "mindinsight").rglob("profiler"))):
        yield "mindinsight", "-".join(path.parts[-3:]), path
    if (SHARED / "mindinsight" / "parallel_strategy").is_dir():
        yield "mindinsight", "parallel_strategy", SHARED / "mindinsight" / "parallel_strategy"
    for path in sorted((*mindspore.glob("*/*_ascend_ms"), *mindspore.glob("all*/rank_*"), *mindspore.glob("minddata*"))):
        yield "ascend_ms" if path.name.endswith("_ms") else "mindinsight", f"{path.parent.name} {path.name[-12:]}", path


def _small_run(room: Path) -> Path:
    run = next((SAMPLES / "run").glob("*/resnet50_h200"))
    shutil.copytree(run, room)
    for file in room.glob("*.parquet"):
        frame = pl.read_parquet(file, memory_map=False)
        frame.head(1500).write_parquet(file, compression="zstd", compression_level=1)
    return room


def _timeline(run: Path, folder: Path) -> Path:
    folder.mkdir()
    cache.write(layout.build(store.read(run), None, folder), folder, "run")
    shutil.copytree(run, folder / "run")  # the trace that it is of
    return folder


def _ranks(room: Path) -> Path:
    room.mkdir()
    for rank in range(2):
        _small_chrome(room / f"rank{rank}.json")
        document = json.loads((room / f"rank{rank}.json").read_text())
        document["distributedInfo"] = {"rank": rank, "world_size": 2, "backend": "gloo"}
        (room / f"rank{rank}.json").write_text(json.dumps(document))
    return room


def _capture_ranks(room: Path) -> Path:
    for rank in range(2):
        folder = room / f"rank{rank}.capture"
        shutil.copytree(next((SAMPLES / "capture").glob("*/torch.capture")), folder)
        header = json.loads((folder / "capture.json").read_text())
        (folder / "capture.json").write_text(json.dumps(header | {"rank": rank, "world_size": 2, "pid": 100 + rank}))
    return room


def _settings(room: Path) -> Iterator[tuple[str, str, Path]]:
    """What a running job reads: the monitor's file, and what comes over the socket of `stepscope attach`."""
    config = room / "monitor"
    config.mkdir(parents=True)
    settings = monitor.DEFAULTS | {"start_step": 2, "stop_step": 3, "activities": ["CPU"], "host_sys": ["cpu"]}
    (config / monitor.CONFIG).write_text(json.dumps(settings, indent=4))
    yield "monitor", "config", config
    request = [
        {"ask": "state"},
        {"ask": "record", "id": "a", "first": 5, "count": 2, "seconds": None, "options": {"record_shapes": True}, "out": "recorded"},
        {"ask": "wait", "id": "a"},
        {"ask": "withdraw", "id": "a"},
    ]
    questions = room / "questions.txt"
    questions.write_text("".join(json.dumps(line) + "\n" for line in request))
    yield "attach", "questions", questions
    answer = {"pid": 5, "job": "j", "root": None, "rank": 0, "world_size": 1, "program": "a.py", "folder": "/a", "out": "out", "began": 1.5}
    answers = room / "answers.json"
    answers.write_text(json.dumps(answer | {"step": 5, "step_s": 0.5, "quiet_s": 0.25, "state": "idle"}))
    yield "attach", "answers", answers


# Cutting


def cut(file: Path) -> None:
    """Keep the first events, rows and lines of a large file; what it is stays."""
    if file.stat().st_size < 60_000:
        return
    data = file.read_bytes()
    if data[:16] == b"SQLite format 3\0":
        _cut_database(file)
    elif data.lstrip()[:1] in (b"{", b"["):
        with contextlib.suppress(ValueError):
            file.write_text(json.dumps(_cut_document(json.loads(data))))
    elif b"\0" not in data[:512]:
        file.write_bytes(b"".join(data.splitlines(keepends=True)[: _ROWS + 1]))


def _cut_document(value: Any) -> Any:
    """Of the events the metadata, and the busiest stretch that has steps and device work: the middle."""
    if isinstance(value, dict):
        return {key: _cut_document(inner) for key, inner in list(value.items())[:_EVENTS]}
    if not isinstance(value, list):
        return value
    if len(value) <= _EVENTS:
        return [_cut_document(inner) for inner in value]
    if not isinstance(value[0], dict) or "ph" not in value[0]:
        return [_cut_document(inner) for inner in value[:_ROWS]]
    about = [event for event in value if event.get("ph") == "M"][:60]
    first: dict[tuple[Any, Any], list[Any]] = {}
    for event in value:
        if event.get("ph") != "M":
            kept = first.setdefault((event.get("ph"), event.get("cat")), [])
            if len(kept) < 40:
                kept.append(event)
    return [*about, *(event for events in first.values() for event in events)]


def _cut_database(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as database:
        for (name,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            if name != "STRING_IDS":
                database.execute(f'delete from "{name}" where rowid not in (select rowid from "{name}" limit {_ROWS})')
        database.commit()
        database.execute("vacuum")
