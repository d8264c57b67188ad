"""Python's frames as spans, from the stacks or the calls that a capture holds (`collect/stacks.py` says how)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope import captures

Ints = NDArray[np.int64]


class _Thread(NamedTuple):
    """The rows of one thread, in order of time."""

    tid: int
    name: str
    at: Ints
    node: Ints


def spans(path: Path, damaged: dict[str, str] | None = None) -> pl.DataFrame:
    """name, start_ns, dur_ns, tid, thread: outer frames before inner ones."""
    frames = list(captures.pieces(path, "stack_frames", damaged))
    if not frames:
        return pl.DataFrame()
    names = [words[code] for piece in frames for codes, words in [_text(piece["name"])] for code in codes.tolist()]
    node = np.concatenate([np.asarray(piece["node"]) for piece in frames]).astype(np.int64)
    parent, name = np.full(node.max() + 1, -1, np.int64), np.full(node.max() + 1, "", object)
    parent[node], name[node] = np.concatenate([np.asarray(piece["parent"]) for piece in frames]), names
    found = [*_of_samples(path, parent, damaged), *_of_calls(path, damaged)]
    return pl.concat(
        pl.DataFrame(
            {"name": name[number].tolist(), "start_ns": start, "dur_ns": end - start},
            {"name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64},
        ).with_columns(tid=pl.lit(thread.tid, pl.Int64), thread=pl.lit(thread.name))
        for thread, number, start, end in found
    ) if found else pl.DataFrame()  # fmt: skip


Found = tuple[_Thread, Ints, Ints, Ints]  # whose, which frame, from, to


def _of_samples(path: Path, parent: Ints, damaged: dict[str, str] | None) -> Iterator[Found]:
    """A frame lasts as long as it stands in its place in the stack, from sample to sample."""
    depth = np.zeros(len(parent), np.int64)
    for number, above in enumerate(parent.tolist()):  # parents come before their children
        depth[number] = depth[above] + 1 if above >= 0 else 0
    for thread, last in _threads(path, "stack_samples", damaged):
        ends = np.append(thread.at[1:], last)
        known = thread.node >= 0
        deepest = int(depth[thread.node[known]].max(initial=-1))
        levels = []
        here = thread.node.copy()
        for level in range(deepest, -1, -1):
            below = known & (depth[here] > level)
            here[below] = parent[here[below]]
            levels.append(np.where(known & (depth[here] == level), here, -1))
        for frame in reversed(levels):
            first = np.flatnonzero(np.append(True, frame[1:] != frame[:-1]))
            final = np.append(first[1:], len(frame)) - 1
            kept = frame[first] >= 0
            yield thread, frame[first][kept], thread.at[first][kept], ends[final][kept]


def _of_calls(path: Path, damaged: dict[str, str] | None) -> Iterator[Found]:
    """A frame lasts from its call to the next return at the same depth."""
    for thread, last in _threads(path, "stack_calls", damaged):
        begins = thread.node >= 0
        level = np.cumsum(np.where(begins, 1, -1)) - begins
        order = np.argsort(level, kind="stable")
        begun = order[begins[order]]
        after = np.append(order[1:], -1)[begins[order]]
        # The next at that depth is its return, or there is none: the recording ended before.
        returned = (after >= 0) & ~begins[after] & (level[after] == level[begun])
        end = np.where(returned, thread.at[after], last)
        by_depth = np.lexsort((begun, level[begun]))
        yield thread, thread.node[begun][by_depth], thread.at[begun][by_depth], end[by_depth]


def _threads(path: Path, table: str, damaged: dict[str, str] | None) -> Iterator[tuple[_Thread, int]]:
    """Each thread's rows, and the time of the last row of all."""
    pieces = list(captures.pieces(path, table, damaged))
    if not pieces:
        return
    tid, at, node = (np.concatenate([np.asarray(piece[name]) for piece in pieces]).astype(np.int64) for name in ("tid", "at_ns", "node"))
    names: dict[int, str] = {}
    for piece in pieces:
        codes, words = _text(piece["thread"])
        rows, first = np.unique(np.asarray(piece["tid"]), return_index=True)
        names |= {int(row): words[codes[index]] for row, index in zip(rows.tolist(), first.tolist(), strict=True)}
    for one in np.unique(tid[tid != 0]).tolist():
        own = np.flatnonzero(tid == one)
        yield _Thread(one, names[one], at[own], node[own]), int(at.max())


def _text(column: Any) -> tuple[NDArray[np.int32], list[str]]:
    codes, words = column
    return codes, words
