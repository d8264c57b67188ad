"""The module path of each span."""

import numpy as np
import polars as pl

from stepscope.model.intervals import Ints


def assign_scopes(spans: pl.DataFrame) -> pl.DataFrame:
    """Spans with `scope`: the modules around it, or those of the operator or forward pass that it belongs to."""
    is_scope, modules = (spans["kind"] == "scope").to_numpy(), spans["module"]
    if not is_scope.any() and modules.null_count() == spans.height:
        return spans.with_columns(scope=pl.lit(None, dtype=pl.Categorical)).drop("module")
    paths = [""]
    code = np.zeros(spans.height, np.int64)  # of each span the index in `paths`
    parent, names = spans["parent"].fill_null(-1).to_numpy(), spans["name"].to_physical().to_numpy().astype(np.int64)
    levels = _rows_by_depth(spans["depth"].to_numpy())
    for rows in levels:
        code[rows] = np.where(parent[rows] >= 0, code[parent[rows]], 0)
        inner = rows[is_scope[rows]]
        if len(inner):
            distinct, first, inverse = np.unique(np.stack((code[inner], names[inner])), axis=1, return_index=True, return_inverse=True)
            code[inner] = len(paths) + inverse.reshape(-1)
            paths += _module_paths(spans[inner[first]], [paths[outer] for outer in distinct[0].tolist()])
    if modules.null_count() < spans.height:
        distinct_modules = modules.unique().drop_nulls().cast(pl.String).to_list()
        numbers = {module: len(paths) + index for index, module in enumerate(distinct_modules)}
        paths += distinct_modules
        by_module = modules.cast(pl.String).replace_strict(numbers, default=None, return_dtype=pl.Int64)
        code = np.where(by_module.is_not_null().to_numpy(), by_module.fill_null(0).to_numpy(), code)
    _inherit_scopes(spans, code, levels)
    scope = pl.Series(paths).cast(pl.Categorical).gather(code)
    return spans.with_columns(scope=scope.set(pl.Series(code == 0), None)).drop("module")


def _rows_by_depth(depth: Ints) -> list[Ints]:
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(1, int(depth.max()) + 1))
    return np.split(order, edges)


def _module_paths(modules: pl.DataFrame, outer_paths: list[str]) -> list[str]:
    names = modules["name"].cast(pl.String).str.strip_prefix("nn.Module: ").to_list()
    has_full_path = (modules["category"].cast(pl.String) == "cpu_op").to_list()  # recorded by stepscope
    rows = zip(names, has_full_path, outer_paths, strict=True)
    return [name if full else f"{outer}/{name}".lstrip("/") for name, full, outer in rows]


def _inherit_scopes(spans: pl.DataFrame, code: Ints, levels: list[Ints]) -> None:
    """Give spans without a scope that of their forward operator, of the operator around them, or of the one that launched them."""
    parent, flow_in, op = (spans[name].fill_null(-1).to_numpy() for name in ("parent", "flow_in", "op"))
    is_op = (spans["kind"] == "op").to_numpy()
    backward = np.flatnonzero(is_op & (code == 0) & (flow_in >= 0))
    code[backward] = code[flow_in[backward]]
    for rows in levels[1:]:
        inner = rows[(code[rows] == 0) & is_op[rows]]
        code[inner] = code[parent[inner]]
    launched = np.flatnonzero((code == 0) & ((op >= 0) | (flow_in >= 0)) & ~is_op)
    code[launched] = code[np.where(op[launched] >= 0, op[launched], flow_in[launched])]
