"""The rules of `advice`: one per file, in one folder per topic. The folders are the registry.

A rule is a module with

- a docstring: its first line is the symptom,
- `NEEDS`: the data that it reads, words of `engine/needs.py`; without them the rule is reported as not checked,
- `APPLIES`: where it can apply at all, words of the same file, empty for everywhere; elsewhere the rule has no row,
- `LINK`: a page of documentation,
- `FIX`: code to copy by framework, with the key "" for every other framework,
- optional `EXPLAINS`: rules whose findings with the same culprit are the same problem, seen less precisely: these are left out,
- optional `AFTER`: rules whose fix must come first: behind their findings of at least medium severity, whatever the gain,
- optional `HOST_BOUND = True`: what it gains is time of the host, which the recording itself lengthens: see `recording_overhead`,
- optional `NOTICE = True`: its statements are about the recording or chance, not about the program: they follow all others,
- optional `ALL_RANKS = True`: it is called once for the run, else once per rank,
- a function of the module's name: `Run` to its findings.
"""

import functools
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope.analyses.advice.engine.findings import Finding
from stepscope.analyses.advice.engine.run import Run


class Rule(NamedTuple):
    name: str
    topic: str
    symptom: str
    needs: tuple[str, ...]
    applies: tuple[str, ...]
    link: str
    fix: dict[str, str]
    explains: tuple[str, ...]
    host_bound: bool
    notice: bool
    all_ranks: bool
    find: Callable[[Run], Iterator[Finding]]
    after: tuple[str, ...] = ()


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, by topic and name."""
    return tuple(_rule(file) for file in sorted(Path(__file__).parent.glob("*/*.py")) if not file.stem.startswith("_"))


def _rule(file: Path) -> Rule:
    module = importlib.import_module(f"{__name__}.{file.parent.name}.{file.stem}")
    return Rule(
        name=file.stem,
        topic=file.parent.name,
        symptom=(module.__doc__ or "").strip(),
        needs=module.NEEDS,
        applies=module.APPLIES,
        link=module.LINK,
        fix=module.FIX,
        explains=getattr(module, "EXPLAINS", ()),
        host_bound=getattr(module, "HOST_BOUND", False),
        notice=getattr(module, "NOTICE", False),
        all_ranks=getattr(module, "ALL_RANKS", False),
        find=getattr(module, file.stem),
        after=getattr(module, "AFTER", ()),
    )
