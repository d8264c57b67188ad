"""Python frames as spans, from the stacks or the calls in a capture (`recording/collectors/stacks.py` describes the tables)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model import captures
from stepscope.model.intervals import Ints


class _Thread(NamedTuple):
    """The rows of one thread, in order of time."""

    tid: int
    name: str
    at: Ints
    node: Ints


class _Frames(NamedTuple):
    """Calls of functions in one thread."""

    thread: _Thread
    node: Ints
    start: Ints
    end: Ints


def load_frames(path: Path, damaged: dict[str, str] | None = None) -> pl.DataFrame:
    """name, start_ns, dur_ns, tid, thread: outer frames before inner ones."""
    pieces = list(captures.pieces(path, "stack_frames", damaged))
    if not pieces:
        return pl.DataFrame()
    names = [texts[code] for piece in pieces for codes, texts in [_codes_and_texts(piece["name"])] for code in codes.tolist()]
    node = np.concatenate([np.asarray(piece["node"]) for piece in pieces]).astype(np.int64)
    parent, name = np.full(node.max() + 1, -1, np.int64), np.full(node.max() + 1, "", object)
    parent[node], name[node] = np.concatenate([np.asarray(piece["parent"]) for piece in pieces]), names
    rows = [
        pl.DataFrame(
            {"name": name[frames.node].tolist(), "start_ns": frames.start, "dur_ns": frames.end - frames.start},
            {"name": pl.String, "start_ns": pl.Int64, "dur_ns": pl.Int64},
        ).with_columns(tid=pl.lit(frames.thread.tid, pl.Int64), thread=pl.lit(frames.thread.name))
        for frames in (*_frames_of_samples(path, parent, damaged), *_frames_of_calls(path, damaged))
    ]
    return pl.concat(rows) if rows else pl.DataFrame()


def _frames_of_samples(path: Path, parent: Ints, damaged: dict[str, str] | None) -> Iterator[_Frames]:
    """A frame lasts as long as it has its place in the stack, from sample to sample."""
    depth = np.zeros(len(parent), np.int64)
    for number, outer in enumerate(parent.tolist()):  # parents come before their children
        depth[number] = depth[outer] + 1 if outer >= 0 else 0
    for thread, last in _threads(path, "stack_samples", damaged):
        ends = np.append(thread.at[1:], last)
        has_stack = thread.node >= 0
        deepest = int(depth[thread.node[has_stack]].max(initial=-1))
        levels = []
        node = thread.node.copy()
        for level in range(deepest, -1, -1):
            below = has_stack & (depth[node] > level)
            node[below] = parent[node[below]]
            levels.append(np.where(has_stack & (depth[node] == level), node, -1))
        for nodes in reversed(levels):
            first = np.flatnonzero(np.append(True, nodes[1:] != nodes[:-1]))
            final = np.append(first[1:], len(nodes)) - 1
            is_frame = nodes[first] >= 0
            yield _Frames(thread, nodes[first][is_frame], thread.at[first][is_frame], ends[final][is_frame])


def _frames_of_calls(path: Path, damaged: dict[str, str] | None) -> Iterator[_Frames]:
    """A frame lasts from its call to the next return at the same depth."""
    for thread, last in _threads(path, "stack_calls", damaged):
        is_call = thread.node >= 0
        level = np.cumsum(np.where(is_call, 1, -1)) - is_call
        order = np.argsort(level, kind="stable")
        call = order[is_call[order]]
        after = np.append(order[1:], -1)[is_call[order]]
        # The next row at that depth is its return. Without one, the recording ended before.
        has_return = (after >= 0) & ~is_call[after] & (level[after] == level[call])
        end = np.where(has_return, thread.at[after], last)
        by_depth = np.lexsort((call, level[call]))
        yield _Frames(thread, thread.node[call][by_depth], thread.at[call][by_depth], end[by_depth])


def _threads(path: Path, table: str, damaged: dict[str, str] | None) -> Iterator[tuple[_Thread, int]]:
    """The rows of each thread, and the time of the last row of all."""
    pieces = list(captures.pieces(path, table, damaged))
    if not pieces:
        return
    tid, at, node = (np.concatenate([np.asarray(piece[name]) for piece in pieces]).astype(np.int64) for name in ("tid", "at_ns", "node"))
    names: dict[int, str] = {}
    for piece in pieces:
        codes, texts = _codes_and_texts(piece["thread"])
        tids, first = np.unique(np.asarray(piece["tid"]), return_index=True)
        names |= {int(number): texts[codes[index]] for number, index in zip(tids.tolist(), first.tolist(), strict=True)}
    for number in np.unique(tid[tid != 0]).tolist():
        rows = np.flatnonzero(tid == number)
        yield _Thread(number, names[number], at[rows], node[rows]), int(at.max())


def _codes_and_texts(column: Any) -> tuple[NDArray[np.int32], list[str]]:
    codes, texts = column
    return codes, texts
