"""Ascend's raw data: a `PROF_*` directory as the device and CANN wrote it, or the slices of 2020, without Ascend's tools."""

from pathlib import Path

from stepscope.readers import Options, _prof_2020
from stepscope.trace import Trace


def sniff(path: Path) -> bool:
    return path.is_dir() and _prof_2020.sniff(path)


def read(path: Path, options: Options) -> Trace:
    return _prof_2020.read(path, options)
