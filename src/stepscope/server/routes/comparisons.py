"""Comparisons for the client: two sets of runs of the list, computed once, then encoded for each request."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stepscope.comparison.compare import TABLES, Comparison, side_of
from stepscope.comparison.operators import KEYS
from stepscope.comparison.statistics import RUN_NOISE
from stepscope.errors import UsageError
from stepscope.model import parameters
from stepscope.model.memo import Memo
from stepscope.model.output import tables
from stepscope.model.trace import Trace
from stepscope.server import answers
from stepscope.server.answers import Answer, part_of_trace

MOST_RUNS = 16  # on a side
NUMBERS = {"rank": int, "warmup": int, "run_noise": float, "offset": int, "limit": int}


class Question(msgspec.Struct, frozen=True):
    """A table of the comparison of two sets of runs, and a format."""

    table: str
    baseline: tuple[str, ...]
    candidate: tuple[str, ...]
    by: str | None = None
    rank: int | None = None
    steps: tuple[int, int] | None = None
    warmup: int | None = None
    run_noise: float = RUN_NOISE
    offset: int = 0
    limit: int | None = None
    format: str = "arrow"

    @property
    def runs(self) -> tuple[str, ...]:
        return (*self.baseline, *self.candidate)


def parse_question(table: str, words: Mapping[str, str]) -> Question:
    """The question of a URL; an unknown word is refused."""
    parameters.check_word("table of a comparison", table, TABLES)
    rest = dict(words)
    sides = {name: tuple(filter(None, rest.pop(name, "").split(","))) for name in ("baseline", "candidate")}
    for name, runs in sides.items():
        if not 0 < len(runs) <= MOST_RUNS:
            raise UsageError(f"{name} has {len(runs)} runs; expected the ids of 1 to {MOST_RUNS} runs, separated by commas")
    values: dict[str, Any] = {name: parameters.value(kind, name, rest.pop(name)) for name, kind in NUMBERS.items() if name in rest}
    if "steps" in rest:
        values["steps"] = parameters.steps(rest.pop("steps"))
    if "by" in rest:
        if table != "operators":
            raise UsageError("by is for the table operators")
        values["by"] = parameters.check_word("key", rest.pop("by"), KEYS)
    if "format" in rest:
        values["format"] = parameters.check_word("format", rest.pop("format"), answers.TYPES)
    if rest:
        raise UsageError(f"compare has no parameter '{next(iter(rest))}'")
    return Question(table, sides["baseline"], sides["candidate"], **values)


class Comparisons:
    """Tables that were computed before, up to a total size."""

    def __init__(self, limit: int = answers.MEMO_BYTES) -> None:
        self._tables = Memo(limit)

    def answer(
        self, question: Question, traces: Sequence[tuple[Trace, tuple[int, int] | None]], key: tuple[Any, ...], scratch: Path
    ) -> Answer:
        """`traces` are those of `question.runs`, each with the steps to show by default; `key` identifies their files."""
        identity = (key, question.table, question.by, question.rank, question.steps, question.warmup, question.run_noise)
        frame = self._tables.get(identity, lambda: self._comparison(question, traces).table(question.table, question.by))
        rows = frame.slice(question.offset, question.limit)
        header = {"table": question.table, "rows_in_all": frame.height}
        return answers.encode(tables.chosen(rows.lazy()), question.format, frame.height, scratch, f"compare-{question.table}", header)

    def _comparison(self, question: Question, traces: Sequence[tuple[Trace, tuple[int, int] | None]]) -> Comparison:
        parts = [part_of_trace(trace, question.rank, question.steps or steps) for trace, steps in traces]
        count = len(question.baseline)
        a, b = side_of("A", parts[:count], question.warmup), side_of("B", parts[count:], question.warmup)
        return Comparison(a, b, question.run_noise)
