"""The compiled scanner of Chrome traces gives exactly the columns and reports of the Python path, or leaves the text to it."""

import functools
import gzip
import json
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
import volume
from fuzzing import mutators
from stepscope.errors import DataError, UsageError
from stepscope.process.compiled import choice, library
from stepscope.process.worker import Worker
from stepscope.readers import Options
from stepscope.readers.chrome import reader, workers
from stepscope.readers.chrome import text as texts
from stepscope.readers.chrome.scanner import pieces

TESTS = Path(__file__).parents[1]
SAMPLES = TESTS / "samples"
SHARED = TESTS.parents[1] / "shared" / "data"
SCANNER = library.FOLDER
COMPILER = shutil.which("cc")

needs_scanner = pytest.mark.skipif(library.load() is None and COMPILER is None, reason="needs a C compiler")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")


def chrome_files() -> Iterator[Path]:
    """Every trace in Chrome's format among the samples and the data of others; of the synthetic ones, two."""
    for root in (SAMPLES, SHARED):
        for path in sorted([*root.rglob("*.json"), *root.rglob("*.json.gz")]):
            if ("synth" not in path.parts or path.parts[-3] in ("c01_base", "c10_two_devices")) and reader.sniff(path):
                yield path


@functools.cache
def scanner() -> Any:
    found = library.load()
    assert found is not None, "the scanner is not built, or from other sources: run `make`"
    return found


def comparable(parts: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    return {name: part.with_columns(pl.col(pl.Categorical).cast(pl.String)) for name, part in parts.items()}


def decode_with(decoder: str, path: Path, scratch: Path, partial: bool) -> tuple[object, dict[str, pl.DataFrame]]:
    """What the reader makes of a file, or its error, and the columns."""
    scratch.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(choice.VARIABLE, decoder)
        try:
            result: object = reader.decode_file(path, Options(scratch=scratch, partial=partial))
        except DataError as error:
            result = str(error)
    parts = {file.name: pl.read_ipc(file.read_bytes()) for file in sorted(scratch.glob("*.arrow"))}
    shutil.rmtree(scratch)
    return result, comparable(parts)


def assert_decoders_agree(path: Path, room: Path, partial: bool = True) -> None:
    expected, expected_parts = decode_with("python", path, room / "python", partial)
    result, parts = decode_with("native", path, room / "native", partial)
    assert result == expected
    assert parts.keys() == expected_parts.keys()
    for name, part in parts.items():
        assert part.schema == expected_parts[name].schema
        assert part.equals(expected_parts[name]), name


@needs_scanner
def test_every_recorded_trace_is_scanned_without_the_python_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = list(chrome_files())
    assert len(files) >= 5
    for path in files:
        with texts.Text(path, partial=True) as text:
            opening = texts.read_opening(text)
            for piece in texts.split_pieces(text, opening, exact=False):
                assert pieces.decode(scanner(), text.event_array(piece)) is not None, path
        assert_decoders_agree(path, tmp_path)


def event(**fields: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10.5, "dur": 3, **fields}


MIXED: list[dict[str, Any]] = [
    event(args={"External id": 5, "Input Dims": [[8, 3], []], "Input type": ["float", ""], "flops": 48}),
    event(name="gemm", cat="kernel", pid=0, tid=7, args={"External id": 5, "correlation": 9, "stream": 7, "grid": [1, 2, 3]}),
    event(name='a "b" \\ \u00e9 \u7b97\u5b50 \U0001f600', args={"Module Hierarchy": "net/conv", "x": {"y": [True, None, 1e-5]}}),
    event(name="step", cat="user_annotation", tid="main", ts="12.000", dur="0.25"),
    event(ph="i", name="[memory]", cat="cpu_instant_event", args={"Addr": 4096, "Bytes": -512, "Device Type": 0, "Total Allocated": 7}),
    event(ph="i", name="mark", s="t"),
    event(ph="M", name="thread_name", args={"name": "worker"}),
    event(ph="C", name="memory", args={"used": 3.5, "free": 1}),
    event(ph="s", id=4, cat="fwdbwd"),
    event(ph="f", id=4, bp="e", cat="fwdbwd", ts=11),
    event(ph="B", name="open"),
    event(ph="E", name="open", ts=14),
    event(ph="b", name="request", id="0x7f", cat="net"),
    event(ph="e", name="request", id="0x7f", cat="net", ts=12.75),
    event(ph="P", name="sample", ts=1.5e1),
    event(ts=12.3456789, dur=0.0000001),
]


@needs_scanner
def test_times_and_arguments_become_typed_columns() -> None:
    decoded = pieces.decode(scanner(), json.dumps(MIXED).encode())
    assert decoded is not None
    report, parts = decoded
    assert (report.events, report.entries, report.oddities, report.rest) == (16, 16, {}, None)
    spans = parts["spans"]
    assert spans["start_ns"].to_list() == [10_500, 10_500, 10_500, 12_000, 10_500, 15_000, 12_346]
    assert spans["dur_ns"].to_list() == [3000, 3000, 3000, 250, 0, 0, 0]
    assert spans["correlation"].to_list() == [None, 9, None, None, None, None, None]
    assert spans["flops"].to_list() == [48, None, None, None, None, None, None]
    assert spans["shapes"].cast(pl.String).to_list()[:2] == ["[[8, 3], []]", None]
    assert spans["name"].cast(pl.String).to_list()[2] == 'a "b" \\ \u00e9 \u7b97\u5b50 \U0001f600'
    assert spans["args"].to_list()[3] == "{}"
    assert json.loads(spans["args"].to_list()[2]) == MIXED[2]["args"]
    assert [report.tracks[track] for track in spans["track"]] == [
        *((1, 2, ""), (0, 7, ""), (1, 2, ""), (1, "main", "annotation"), (1, 2, ""), (1, 2, ""), (1, 2, "")),
    ]
    assert parts["pairs"]["flow"].to_list() == ["", "", "0x7f", "0x7f"]
    assert parts["flows"].select("phase", "flow", "at_ns").rows() == [("s", "4", 10_500), ("f", "4", 11_000)]
    assert parts["memory"].select("address", "bytes", "allocated", "reserved").rows() == [(4096, -512, 7, None)]
    assert sorted(parts["counters"].with_columns(pl.col("name").cast(pl.String)).select("name", "value").rows()) == [
        ("memory free", 1.0),
        ("memory used", 3.5),
    ]
    assert report.metadata == [("thread_name", 1, 2, {"name": "worker"})]


@needs_scanner
@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("far", [False, True], ids=["near", "since 1970"])
def test_times_are_those_of_the_python_path(indent: int | None, far: bool, tmp_path: Path) -> None:
    chance = random.Random(f"{indent} {far}")
    base = 1_700_000_000_000_000 if far else 3_857_152_232_182
    events = [
        event(ts=f"@{base + row}.{chance.randrange(10**digits):0{digits}}@", dur=f"@{chance.randrange(99)}.{chance.randrange(10**8):08}@")
        for row, digits in enumerate(chance.choices(range(1, 18), k=300))
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}, indent=indent).replace('"@', "").replace('@"', ""))
    assert_decoders_agree(path, tmp_path)


@needs_scanner
@pytest.mark.parametrize(
    "text",
    [
        *('[{"ph":"X","ts":1,"dur":1},]', '[{"ph":"X","ts":01,"dur":1}]', '[{"ph":"X","ts":NaN}]', '[{"ph":"X","ts":1', "[1]", "[null]"),
        *(
            '[{"name":"\\ud800"}]',
            '[{"name":"a\tb"}]',
            '[{"name":"\\q"}]',
            '[{"name":5}]',
            '[{"args":[]}]',
            '[{"args":{"correlation":1.5}}]',
        ),
        *('[{"ts":1,"ts":2}]', '[{"n\\u0061me":"a"}]', '[{"ts":1e30}]', '[{"ts":99999999999999999999}]', '[{"pid":1.0}]', '[{"cat":null}]'),
        *('[{"ph":"X","ts":1,"dur":-1}]', '[{"stepscope":{"kind":"op"}}]', '[{"args":{"bytes":-7}}]', "[{}", "[", "{}", ""),
        '[{"args":' + '{"a":' * 100 + "1" + "}" * 100 + "}]",
        '[{"ph":"i","ts":1,"name":"[memory]","args":{"Addr":"text"}}]',
    ],
)
def test_text_that_is_unusual_is_left_to_the_python_path(text: str) -> None:
    assert pieces.decode(scanner(), text.encode()) is None
    assert pieces.decode(scanner(), text.encode().replace(b"n", b"\xff")) is None


@needs_scanner
def test_pieces_are_scanned_in_threads_and_an_unusual_one_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event(ts=row, tid=row % 3, name=f"op {row % 50}", args={"row": row}) for row in range(3000)]
    events[1500]["name"] = 5
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, "traceName": "a"}))
    monkeypatch.setattr(texts, "PIECE", 1 << 15)
    started: list[Worker] = []

    def start(*args: Any, **options: Any) -> Worker:
        started.append(Worker(*args, **options))
        return started[-1]

    monkeypatch.setattr(workers, "Worker", start)
    result, parts = decode_with("native", path, tmp_path / "native", False)
    assert len(started) == 1
    assert len(parts) > 5
    expected, expected_parts = decode_with("python", path, tmp_path / "python", False)
    assert result == expected
    assert all(part.equals(expected_parts[name]) for name, part in parts.items())


def inputs() -> list[bytes]:
    """Texts to mutate: small, so that a mutation meets what matters."""
    found = [json.dumps({"schemaVersion": 1, "traceEvents": MIXED}).encode(), json.dumps(MIXED, indent=2).encode()]
    for path in sorted([*(SAMPLES / "chrome").glob("*/*.gz"), *SAMPLES.rglob("trace_view.json")]):
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        events = document["traceEvents"] if isinstance(document, dict) else document
        found.append(json.dumps({"traceEvents": events[:: max(1, len(events) // 40)]}, indent=len(found) % 3 or None).encode())
    return found


def make_mutant(texts: list[bytes], seed: int, file: Path) -> None:
    chance = random.Random(f"scanner {seed}")
    file.write_bytes(chance.choice(texts))
    mutators.mutate(file, chance)


@needs_scanner
@pytest.mark.parametrize("seeds", volume.seeds(300, 20_000))
def test_decoders_agree_on_mutants(seeds: range, tmp_path: Path) -> None:
    originals = inputs()
    path = tmp_path / "trace.json"
    for seed in seeds:
        make_mutant(originals, seed, path)
        try:
            assert_decoders_agree(path, tmp_path, partial=seed % 2 == 0)
        except AssertionError as error:
            raise AssertionError(f"mutant {seed}") from error


@needs_compiler
@pytest.mark.parametrize("seeds", volume.seeds(500, 40_000))
def test_no_mutant_makes_the_scanner_read_outside_of_its_text(seeds: range, tmp_path: Path) -> None:
    originals = inputs()
    mutant, bundle, driver = tmp_path / "trace.json", tmp_path / "bundle", tmp_path / "driver"
    flags = ["-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ffp-contract=off", f"-I{SCANNER}"]
    build = [str(COMPILER), *flags, str(Path(__file__).with_name("scanner_driver.c")), "-o", str(driver), "-lm"]
    if subprocess.run(build, capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no sanitizers")
    with bundle.open("wb") as file:
        for seed in seeds:
            make_mutant(originals, seed, mutant)
            data = mutant.read_bytes()
            start = data.find(b"[") if seed % 3 else 0
            text = data[max(start, 0) :][: random.Random(seed).choice((None, len(data) // 2, -1))]
            file.write(struct.pack("<Q", len(text)) + text)
    done = subprocess.run([driver, bundle], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"{len(seeds)} texts")


@needs_compiler
def test_a_library_of_other_sources_or_of_another_machine_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "_compiled.so"
    monkeypatch.setattr(library, "FILE", file)
    load = library.load.__wrapped__
    assert load() is None, "there is none"
    assert library.build(file) == ""
    assert load() is not None
    monkeypatch.setattr(library, "version", lambda: 1)
    assert load() is None
    file.unlink()
    file.write_bytes(b"\x7fELF of another machine")
    assert load() is None


def test_without_a_compiler_the_build_says_why_and_python_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "neither cc nor" in library.build(tmp_path / "_compiled.so")
    monkeypatch.setattr(library, "load", lambda: None)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": MIXED}))
    assert stepscope.open(path, cache=False).spans.collect().height == 9
    monkeypatch.setenv(choice.VARIABLE, "native")
    with pytest.raises(UsageError, match="not built"):
        stepscope.open(path, cache=False)
    monkeypatch.setenv(choice.VARIABLE, "rust")
    with pytest.raises(UsageError, match="expected native or python"):
        stepscope.open(path, cache=False)


def test_a_compiler_that_fails_does_not_stop_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such target')\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "no such target" in library.build(tmp_path / "_compiled.so")
    assert not (tmp_path / "_compiled.so").exists()
