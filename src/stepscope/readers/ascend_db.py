"""SQLite databases of Ascend's tools, each by itself: `ascend_pytorch_profiler_R.db`, `ascend_mindspore_profiler_R.db`, `msprof_*.db`."""

import re
from pathlib import Path

from stepscope.readers import Options, _ascend_database
from stepscope.trace import Trace


def sniff(path: Path) -> bool:
    return _ascend_database.claims(path)


def read(path: Path, options: Options) -> Trace:
    named = re.search(r"profiler_(\d+)\.db$", path.name)
    return _ascend_database.read([path], options, rank=int(named[1]) if named else None, problems=[])
