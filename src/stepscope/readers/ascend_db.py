"""SQLite databases of Ascend's tools, each by itself: `ascend_pytorch_profiler_R.db`, `ascend_mindspore_profiler_R.db`, `msprof_*.db`."""

import re
from pathlib import Path

from stepscope.readers import Options, _ascend_database
from stepscope.trace import Trace

FORMAT = "Ascend database (.db)"


def sniff(path: Path) -> bool:
    return _ascend_database.claims(path)


def read(path: Path, options: Options) -> Trace:
    return _ascend_database.read([path], options, rank=rank(path), problems=[])


def rank(path: Path) -> int | None:
    named = re.search(r"profiler_(\d{1,9})\.db$", path.name)
    return int(named[1]) if named else None


def beside(path: Path) -> list[Path]:
    return _ascend_database.beside(path)
