"""What MindInsight's folders say of a job of several ranks: calls and links of hccl_raw_R.csv, and parallel_strategy_R.json.

hccl_raw_R.csv            step_num, communication_cost, wait_cost (ms), link_info {"src-dst": {"SDMA": [ms, KB, KB/s]}},
                          communication_operator_cost {operator: [step, communication, wait, link_info]}; the step `-` is the average
parallel_strategy_R.json  config: rankId, stageId, parallelType, stageDevices; graph: node: name, opType, scope, attribute, input
"""

import re
from typing import Any

import polars as pl

from stepscope import units
from stepscope.readers._ascend_tables import links_of
from stepscope.readers._documents import decoded as document
from stepscope.readers._documents import exact, index, listed
from stepscope.readers._kineto import Problem


def strategy(found: dict[str, Any], rank: int, problems: list[Problem]) -> list[dict[str, Any]]:
    """How the operators of this rank's stage are cut: of each its place in the graph, its shards and what else the compiler marked."""
    config = found.get("config")
    if not isinstance(config, dict):
        return []
    graph = found.get("graph")
    nodes = graph.get("node") if isinstance(graph, dict) else None
    operators, odd = [], 0
    for node in nodes if isinstance(nodes, list) else []:
        try:
            said = {str(one["name"]): one.get("value") for one in node.get("attribute") or []}
            name, kind, scope = str(node["name"]), str(node["opType"]), str(node.get("scope") or "")
            operators.append(
                {
                    "node": name,
                    "name": str(node.get("fullName") or f"{scope}/{kind}-op{name}".removeprefix("/")),
                    "type": kind,
                    "scope": scope,
                    "instance": str(node.get("instanceName") or ""),
                    "shards": _plain(said.get("in_strategy") or said.get("gen_strategy")),
                    "inputs": [str(one["name"]) for one in node.get("input") or []],
                }
            )
        except (KeyError, TypeError, AttributeError):
            odd += 1
    if odd:
        problems.append(Problem("parallel_strategy", f"{units.count(odd, 'node')} without a name or a type", odd))
    groups = [group for group in listed(config.get("stageDevices")) if isinstance(group, dict)]
    devices = [dim.get("size") for group in groups for dim in listed(group.get("dim")) if isinstance(dim, dict)]
    return [
        {
            "rank": rank,
            "stage": config.get("stageId"),
            "mode": config.get("parallelType"),
            "devices": devices,
            "operators": operators,
        }
    ]


def _plain(value: object) -> Any:
    """A value of MindSpore's graphs: `{"dtype": "DT_TUPLE", "values": [{"intVal": "2"}, ...]}` is [2, ...]."""
    if not isinstance(value, dict):
        return value
    if isinstance(values := value.get("values"), list):
        return [_plain(one) for one in values]
    if (number := value.get("intVal")) is not None:
        return int(number) if re.fullmatch(r"-?[0-9]{1,18}", str(number)) else str(number)
    return next((one for key, one in value.items() if key != "dtype"), None)


def calls(rows: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """hccl_raw: what each operator of a step took to communicate and to wait; older files have only the step's sums. Milliseconds."""
    found: list[tuple[int, str, int, int]] = []
    odd = 0
    for row in rows.iter_rows(named=True):
        step = str(row.get("step_num") or "")
        if not re.fullmatch(r"[0-9]{1,9}", step) or int(step) == 0:  # the average
            continue
        operators = decoded(row.get("communication_operator_cost"))
        sums = {"communication": [None, row.get("communication_cost"), row.get("wait_cost")]}
        for name, cost in (operators if isinstance(operators, dict) and operators else sums).items():
            try:
                found.append((int(step), str(name), exact(cost[1], 1e6), exact(cost[2], 1e6)))
            except (ValueError, TypeError, IndexError, KeyError):
                odd += 1
    if odd:
        problems.append(Problem("hccl_raw", f"{units.count(odd, 'operator')} without a time and a wait", odd))
    return pl.DataFrame(found, {"step": pl.Int32, "name": pl.String, "communication_ns": pl.Int64, "wait_ns": pl.Int64}, orient="row")


def links(rows: pl.DataFrame, rank: int, problems: list[Problem]) -> pl.DataFrame:
    """hccl_raw: per step and operator `{"src-dst": {"SDMA": [ms, KB, KB/s]}}`; the rate there is a sum of rates, and is not read."""
    found: list[tuple[Any, ...]] = []
    odd = 0
    for row in rows.iter_rows(named=True):
        step = str(row.get("step_num") or "")
        if not re.fullmatch(r"[0-9]{1,9}", step) or int(step) == 0:  # the average
            continue
        operators = decoded(row.get("communication_operator_cost"))
        named: dict[str | None, Any] = (
            {str(name): cost[3] if isinstance(cost, list) and len(cost) > 3 else {} for name, cost in operators.items()}
            if isinstance(operators, dict)
            else {}
        )
        for name, pairs in (named or {None: decoded(row.get("link_info")) or {}}).items():
            for pair, transports in pairs.items() if isinstance(pairs, dict) else []:
                for transport, said in transports.items() if isinstance(transports, dict) else []:
                    try:
                        src, dst = (index(one) for one in str(pair).split("-"))
                        found.append((int(step), name, src, dst, str(transport), exact(said[1], 1000), exact(said[0], 1e6)))
                    except (ValueError, TypeError, IndexError, KeyError):
                        odd += 1
    if odd:
        problems.append(Problem("hccl_raw", f"{units.count(odd, 'link')} without two ranks, a time and a size", odd))
    return _of_world(links_of(found), rank, problems)


def _of_world(links: pl.DataFrame, rank: int, problems: list[Problem]) -> pl.DataFrame:
    """Ranks are counted within their group; where this rank is in none of its own links, the group is one of several alike."""
    ends = {*links["src"], *links["dst"]}
    if not ends or rank in ends:
        return links
    size = max(ends) + 1
    first = rank - rank % size
    problems.append(Problem("hccl_raw", f"links count ranks within groups of {size}: rank {first} of all is their 0", 0))
    return links.with_columns(pl.col("src") + first, pl.col("dst") + first)


def decoded(text: object) -> Any:
    """JSON, also with the quotes of Python."""
    if not isinstance(text, str):
        return None
    for attempt in (text, text.replace("'", '"')):
        try:
            return document(attempt.encode())
        except (ValueError, RecursionError):
            continue
    return None
