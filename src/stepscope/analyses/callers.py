"""Which lines of the program call an operator?"""

import numpy as np
import polars as pl

from stepscope.analyses._operators import nearest, rows_of
from stepscope.analyses.instances import instances
from stepscope.intervals import Bools, Ints
from stepscope.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "type": pl.String,
    "line": pl.String,  # the innermost frame of the program or its model: not the framework's, nor Python's own
    "leaf": pl.String,  # the innermost frame that has a line, whoever wrote it
    "stack": pl.String,  # all frames, the outermost first, one per line of text
    "backward": pl.Boolean,  # called by the backward pass of what this line called
    "calls": pl.Int64,
    "total_ns": pl.Int64,
}
_DEEPEST = 200
# Frames as frameworks name them: paths below site-packages are cut to begin with the package, by some frameworks and here.
_PACKAGES = r"^.*[/\\](site|dist)-packages[/\\]"
# A model that comes with a library (transformers, torchvision) is the program's all the same: its lines say which layer it is.
_LIBRARY = (
    r"^(torch|torch_npu|functorch|mindspore|jax|jaxlib|flax|optax|tensorflow|keras|numpy|accelerate|lightning|pytorch_lightning|deepspeed|"
    r"stepscope)[/\\]|^<(built-in|frozen|eval_with_key|string)|[/\\]lib[/\\]python3|"
    r"^(threading|contextlib|functools|runpy|selectors|queue)\.py"
)
_HAS_LINE = r"\(\d+\)"


def callers(
    trace: Trace, *, device: str | None = None, operator: str | None = None, type: str | None = None, kernel: str | None = None
) -> pl.DataFrame:
    """Per rank, device, type and stack of Python frames: the calls made from there, the longest total first.

    `device`, `operator`, `type` and `kernel` choose calls as in `instances`. What the backward pass calls is put down to the line that
    called the forward operator. A recording without Python stacks answers nothing.
    """
    host = (
        trace.spans.filter(~pl.col("kind").is_in(["kernel", "copy", "set", "instant"]))
        .select("rank", "span", "parent", "flow_in", name=pl.col("name").cast(pl.String), kind=pl.col("kind").cast(pl.String))
        .collect()
    )
    python = (host["kind"] == "python").to_numpy()
    if not python.any():
        return pl.DataFrame(schema=COLUMNS)
    calls = instances(trace, device=device, operator=operator, type=type, kernel=kernel)
    parent = rows_of(host, host["rank"], host["parent"])
    origin = rows_of(host, calls["rank"], calls["op"])
    is_op = (host["kind"] == "op").to_numpy()
    forward = np.where(is_op, rows_of(host, host["rank"], host["flow_in"]), -1)
    forward = np.where((forward >= 0) & is_op[forward], forward, -1)
    undoing = _first(parent, forward >= 0, origin)
    backward = undoing >= 0
    origin = np.where(backward, forward[undoing], origin)
    frame = _first(parent, python, origin)
    stacks, which = _stacks(nearest(parent, python), frame, host["name"])
    rows = calls.with_columns(pl.Series("stack", which), pl.Series("backward", backward)).filter(pl.col("stack") >= 0)
    return (
        rows.group_by("rank", "device", "type", "stack", "backward")
        .agg(calls=pl.len(), total_ns=pl.col("dur_ns").sum())
        .join(stacks, on="stack")
        .drop("stack")
        .rename({"text": "stack"})
        .sort("rank", pl.col("device") == "cpu", "device", -pl.col("total_ns"), "type", "stack", "backward")
        .select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items())
    )


def _first(parent: Ints, marked: Bools, rows: Ints) -> Ints:
    """The row itself where it is marked, else the closest marked one around it, -1 for none."""
    above = nearest(parent, marked)
    found = np.where(marked[rows], rows, above[rows])
    return np.where(rows >= 0, found, -1)


def _stacks(above: Ints, frame: Ints, names: pl.Series) -> tuple[pl.DataFrame, Ints]:
    """The distinct stacks, and which of them each row has; -1 for none."""
    codes = names.cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
    levels: list[Ints] = []
    at = frame
    while (at >= 0).any() and len(levels) < _DEEPEST:
        levels.append(np.where(at >= 0, codes[at], -1))
        at = np.where(at >= 0, above[at], -1)
    if not levels:
        return pl.DataFrame(schema={"stack": pl.Int64, "line": pl.String, "leaf": pl.String, "text": pl.String}), np.full(
            len(frame), -1, np.int64
        )
    paths, which = np.unique(np.stack(levels, axis=1), axis=0, return_inverse=True)
    words = dict(zip(codes.tolist(), names.to_list(), strict=True))
    texts = [[words[code] for code in path if code >= 0] for path in paths.tolist()]
    frames = pl.Series([frames or [""] for frames in texts])
    name = pl.element().str.replace(_PACKAGES, "")
    own = frames.list.eval(pl.element().filter(~name.str.contains(_LIBRARY)).first().fill_null(pl.element().first()))
    leaf = frames.list.eval(pl.element().filter(pl.element().str.contains(_HAS_LINE)).first().fill_null(pl.element().first()))
    table = pl.DataFrame(
        {
            "stack": np.arange(len(texts)),
            "line": own.list.first(),
            "leaf": leaf.list.first(),
            "text": ["\n".join(reversed(one)) for one in texts],
        },
        schema_overrides={"stack": pl.Int64, "line": pl.String, "leaf": pl.String, "text": pl.String},
    )
    return table, np.where(frame >= 0, which.reshape(-1), -1)
