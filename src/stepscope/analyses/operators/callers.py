"""Which lines of the program call an operator?"""

import numpy as np
import polars as pl

from stepscope.analyses.operators.instances import instances
from stepscope.analyses.shared.operator_calls import enclosing_rows, nearest, rows_of
from stepscope.model.intervals import Bools, Ints
from stepscope.model.trace import Trace

COLUMNS = {
    "rank": pl.Int32,
    "device": pl.String,
    "type": pl.String,
    "line": pl.String,  # the innermost frame of the program or its model, not of the framework or of Python
    "leaf": pl.String,  # the innermost frame that has a line
    "stack": pl.String,  # all frames, the outermost first, one per line of text
    "backward": pl.Boolean,  # called by the backward pass of the operator that this line called
    "calls": pl.Int64,
    "total_ns": pl.Int64,
}
_DEEPEST = 200
# Some frameworks cut paths below site-packages to begin with the package; others are cut here.
_PACKAGES = r"^.*[/\\](site|dist)-packages[/\\]"
# The lines of a model of a library (transformers, torchvision) count as the program: they show the layer.
_LIBRARY = (
    r"^(torch|torch_npu|functorch|mindspore|jax|jaxlib|flax|optax|tensorflow|keras|numpy|accelerate|lightning|pytorch_lightning|deepspeed|"
    r"stepscope)[/\\]|^<(built-in|frozen|eval_with_key|string)|[/\\]lib[/\\]python3|"
    r"^(threading|contextlib|functools|runpy|selectors|queue)\.py"
)
_HAS_LINE = r"\(\d+\)"


def callers(
    trace: Trace, *, device: str | None = None, operator: str | None = None, type: str | None = None, kernel: str | None = None
) -> pl.DataFrame:
    """Per rank, device, type and stack of Python frames: the calls of this stack, the longest total first.

    `device`, `operator`, `type` and `kernel` select calls as in `instances`. Calls of the backward pass belong to the line that called the
    forward operator. Without recorded Python stacks there are no rows.
    """
    host = (
        trace.spans.filter(~pl.col("kind").is_in(["kernel", "copy", "set", "instant"]))
        .select("rank", "span", "parent", "depth", "flow_in", name=pl.col("name").cast(pl.String), kind=pl.col("kind").cast(pl.String))
        .collect()
    )
    python = (host["kind"] == "python").to_numpy()
    if not python.any():
        return pl.DataFrame(schema=COLUMNS)
    calls = instances(trace, device=device, operator=operator, type=type, kernel=kernel)
    parent = enclosing_rows(host)
    origin = rows_of(host, calls["rank"], calls["op"])
    is_op = (host["kind"] == "op").to_numpy()
    forward = np.where(is_op, rows_of(host, host["rank"], host["flow_in"]), -1)
    forward = np.where((forward >= 0) & is_op[forward], forward, -1)
    backward_op = _first(parent, forward >= 0, origin)
    backward = backward_op >= 0
    origin = np.where(backward, forward[backward_op], origin)
    frame = _first(parent, python, origin)
    stacks, stack = _stacks(nearest(parent, python), frame, host["name"])
    rows = calls.with_columns(pl.Series("stack", stack), pl.Series("backward", backward)).filter(pl.col("stack") >= 0)
    return (
        rows.group_by("rank", "device", "type", "stack", "backward")
        .agg(calls=pl.len(), total_ns=pl.col("dur_ns").sum())
        .join(stacks, on="stack")
        .drop("stack")
        .rename({"text": "stack"})
        .sort("rank", pl.col("device") == "cpu", "device", -pl.col("total_ns"), "type", "stack", "backward")
        .select(pl.col(column).cast(dtype) for column, dtype in COLUMNS.items())
    )


def is_library(frames: pl.Series) -> pl.Series:
    """Whether a frame is of a framework or of Python, not of the program or its model."""
    return frames.str.replace(_PACKAGES, "").str.contains(_LIBRARY)


def _first(parent: Ints, marked: Bools, rows: Ints) -> Ints:
    """The row itself if it is marked, else the closest marked row around it, -1 for none."""
    above = nearest(parent, marked)
    return np.where(rows >= 0, np.where(marked[rows], rows, above[rows]), -1)


def _stacks(above: Ints, frame: Ints, names: pl.Series) -> tuple[pl.DataFrame, Ints]:
    """The distinct stacks, and the stack of each row; -1 for none."""
    codes = names.cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
    levels: list[Ints] = []
    at = frame
    while (at >= 0).any() and len(levels) < _DEEPEST:
        levels.append(np.where(at >= 0, codes[at], -1))
        at = np.where(at >= 0, above[at], -1)
    schema = {"stack": pl.Int64, "line": pl.String, "leaf": pl.String, "text": pl.String}
    if not levels:
        return pl.DataFrame(schema=schema), frame
    paths, stack = np.unique(np.stack(levels, axis=1), axis=0, return_inverse=True)
    name_of = dict(zip(codes.tolist(), names.to_list(), strict=True))
    texts = [[name_of[code] for code in path if code >= 0] for path in paths.tolist()]
    frames = pl.Series([text or [""] for text in texts])
    name = pl.element().str.replace(_PACKAGES, "")
    line = frames.list.eval(pl.element().filter(~name.str.contains(_LIBRARY)).first().fill_null(pl.element().first()))
    leaf = frames.list.eval(pl.element().filter(pl.element().str.contains(_HAS_LINE)).first().fill_null(pl.element().first()))
    table = pl.DataFrame(
        {
            "stack": np.arange(len(texts)),
            "line": line.list.first(),
            "leaf": leaf.list.first(),
            "text": ["\n".join(reversed(frames)) for frames in texts],
        },
        schema,
    )
    return table, np.where(frame >= 0, stack.reshape(-1), -1)
