"""The compiled library: how it is built and loaded. Only the standard library: the build imports this module alone."""

import ctypes
import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
FILE = FOLDER / ("_compiled.dylib" if sys.platform == "darwin" else "_compiled.so")
TABLES = 13
SCANNED, OTHER_PRECISION = 0, 3  # results of a scan
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")
_BUILD_S = 300


class Rows(ctypes.Structure):
    _fields_ = [("rows", ctypes.c_void_p), ("count", ctypes.c_int64), ("capacity", ctypes.c_int64)]


class Result(ctypes.Structure):
    _fields_ = [
        ("tables", Rows * TABLES),
        ("entries", ctypes.c_int64),
        ("rest", ctypes.c_int64),
        ("stopped", ctypes.c_int64),
        ("precision", ctypes.c_bool * 6),
    ]


@functools.cache
def load() -> ctypes.CDLL | None:
    """The library; None where it was not built, or from other sources, or for another machine."""
    try:
        library = ctypes.CDLL(str(FILE))
        library.stepscope_version.restype = ctypes.c_uint32
        if library.stepscope_version() != version():
            return None
        text, size, result = ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(Result)
        library.stepscope_scan.argtypes = [text, size, ctypes.c_uint32, ctypes.c_bool, result]
        library.stepscope_free.argtypes = [result]
        rows, count, stride = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        library.stepscope_texts.argtypes = [text, size, rows, count, stride, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
        nodes = ctypes.c_void_p
        library.stepscope_replay.argtypes = [count, *[nodes] * 7]
        library.stepscope_path.argtypes = [count, nodes, nodes, count, ctypes.c_int64, nodes]
        library.stepscope_path.restype = ctypes.c_int64
    except (OSError, AttributeError):
        return None
    return library


def version() -> int:
    """A number of the sources, which a library built from them contains."""
    check = 0
    for source in sorted(FOLDER.glob("*.[ch]")):
        check = zlib.crc32(source.read_bytes(), check)
    return check


def build(file: Path, target: str | None = None) -> str:
    """Compile the library; the reason where that fails. `target` is a platform of zig, such as aarch64-linux-gnu.2.17."""
    reasons = []
    for compiler in _compilers(target):
        try:
            with tempfile.TemporaryDirectory(dir=file.parent, prefix=".build.") as folder:
                draft = Path(folder, file.name)
                command = [
                    *compiler,
                    *_FLAGS,
                    f"-DSTEPSCOPE_VERSION={version()}u",
                    *map(str, sorted(FOLDER.glob("*.c"))),
                    "-o",
                    str(draft),
                    "-lm",
                ]
                done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
                if done.returncode == 0 and draft.is_file():
                    draft.replace(file)
                    return ""
                reasons.append(f"{compiler[0]}: {(done.stderr.strip() or 'no output').splitlines()[0]}")
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{compiler[0]}: {error}")
    return "; ".join(reasons) or "neither cc nor the Python package ziglang is there"


def _compilers(target: str | None) -> Iterator[list[str]]:
    """Commands that compile C: that of CC or the system's, and zig, which compiles for other platforms too."""
    if target is None:
        named = shlex.split(os.environ.get("CC", ""))
        yield from ([path, *rest] for name, *rest in ([named] if named else [["cc"], ["gcc"], ["clang"]]) if (path := shutil.which(name)))
    if importlib.util.find_spec("ziglang") is not None:
        yield [sys.executable, "-m", "ziglang", "cc", *(["-target", target] if target else [])]
