"""Hints for files that no reader supports: what the file probably is, by its first bytes or its name, and what to do with it."""

import itertools
import os
import shlex
from pathlib import Path

from stepscope.readers.common.documents import unpack_head

_HEAD = 1 << 16
_FILES = 100  # of a folder that are inspected
_RECORD = "record the job with `stepscope run` or torch.profiler instead"
_PACKED = {
    b"PK\x03\x04": ("a zip archive", "unpack it (unzip)"),
    b"BZh": ("compressed with bzip2", "decompress it (bunzip2)"),
    b"\xfd7zXZ": ("compressed with xz", "decompress it (unxz)"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "decompress it (unzstd)"),
    b"\x04\x22\x4d\x18": ("compressed with lz4", "decompress it (lz4 -d)"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "unpack it (7z x)"),
}
_SNAPSHOT = (
    "a PyTorch memory snapshot (pickle), which stepscope does not read; open it on pytorch.org/memory_viz, or record memory with"
    " `stepscope run --memory`"
)
# Texts near the start of files whose first bytes are not enough; the first match counts.
_INSIDE = {
    "SQLite": (
        (b"CUPTI_ACTIVITY_KIND", f"an Nsight Systems export (SQLite), which stepscope does not read; {_RECORD}"),
        (b"TARGET_INFO_GPU", f"an Nsight Systems export (SQLite), which stepscope does not read; {_RECORD}"),
        (b"rocpd", f"a ROCm profile (SQLite), which stepscope does not read; {_RECORD}"),
    ),
    "pickle": (
        (b"device_traces", _SNAPSHOT),
    ),
    "JSON": (
        (b"speedscope.app", "a speedscope profile; open it on speedscope.app"),
        (b'"execution_trace"', "a PyTorch execution trace without times; record with torch.profiler and export_chrome_trace"),
        (b'"schema"', "JSON without traceEvents, such as a PyTorch execution trace; record with torch.profiler and export_chrome_trace"),
    ),
}  # fmt: skip
_NAMES = {
    ".nsys-rep": f"an Nsight Systems report, which stepscope does not read; {_RECORD}",
    ".qdrep": f"an Nsight Systems report, which stepscope does not read; {_RECORD}",
    ".ncu-rep": f"an Nsight Compute report, which stepscope does not read; {_RECORD}",
    ".pftrace": "a Perfetto trace (protobuf); convert it first: traceconv json IN OUT.json",
    ".perfetto-trace": "a Perfetto trace (protobuf); convert it first: traceconv json IN OUT.json",
    ".prof": "perhaps a profile of Python's cProfile, which stepscope does not read; `stepscope run --stack` records Python stacks",
    ".pstats": "perhaps a profile of Python's cProfile, which stepscope does not read; `stepscope run --stack` records Python stacks",
    ".pb": "not an xplane file; the JAX and TensorFlow profilers write *.xplane.pb into plugins/profile/",
    ".csv": "one CSV table; open the folder of the profiler that wrote it, such as PROF_* or *_ascend_pt",
    ".bin": "perhaps one slice of a raw profile; open the folder of the profiler that wrote it, such as PROF_*",
}


def hint(path: Path) -> str:
    """What the file is and what to do, as a clause; empty where it is unknown."""
    try:
        if not path.is_file():  # a pipe blocks when it is opened
            return ""
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return ""
    return _hint_by_content(path, head) or _hint_by_name(path)


def folder_hint(path: Path) -> str:
    """The files of a folder without a trace, and the hint for the first file that has one."""
    files = list(itertools.islice((Path(at, name) for at, _, names in os.walk(path) for name in sorted(names)), _FILES))
    if not files:
        return "the folder has no files"
    names = f"files such as {files[0].name}" if len(files) > 1 else f"only {files[0].name}"
    first_hint = next((f"; {file.name} is {text}" for file in files if (text := hint(file))), "")
    return f"the folder has {names}{first_hint}"


def _hint_by_content(path: Path, head: bytes) -> str:
    inner = unpack_head(head, _HEAD)
    if b"data.pkl" in head[:4096] and head.startswith(b"PK"):
        return "a PyTorch checkpoint, not a profile"
    for start, (kind, how) in _PACKED.items():
        if head.startswith(start):
            return f"{kind}; {how} and open its contents"
    if inner[257:262] == b"ustar":
        return "a tar archive; unpack it (tar xf) and open its contents"
    if inner.startswith(b"SQLite format 3\0"):
        return _hint_by_text("SQLite", inner) or "an SQLite database of an unknown program"
    if inner[:1] == b"\x80" and inner[1:2] in b"\x02\x03\x04\x05" and len(inner) > 1:
        return _hint_by_text("pickle", inner) or "a Python pickle, not a profile"
    if inner.startswith(b"PAR1"):
        return _parquet_hint(path)
    start = inner.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a report of stepscope; open it in a browser" if b"stepscope" in inner else "a web page"
    if start.startswith((b"{", b"[")):
        return _hint_by_text("JSON", inner) or "JSON without traceEvents, so no Chrome trace"
    return ""


def _hint_by_name(path: Path) -> str:
    name = path.name.lower()
    if "tfevents" in name:
        return "a TensorBoard event file; the profile is in plugins/profile/*/*.xplane.pb beside it"
    if name.endswith(".py"):
        return f"a Python script; record it: stepscope run {shlex.quote(path.name)}"
    return next((text for ending, text in _NAMES.items() if name.removesuffix(".gz").endswith(ending)), "")


def _hint_by_text(kind: str, head: bytes) -> str:
    return next((text for word, text in _INSIDE[kind] if word in head), "")


def _parquet_hint(path: Path) -> str:
    if (path.parent / "run.json").is_file():
        return f"one table of a run folder; open the folder: {path.parent}"
    return "a Parquet table, and no run folder of stepscope is around it (no run.json)"
