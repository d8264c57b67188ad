"""Files of jobs with several ranks: communication calls and links of hccl_raw_R.csv, and parallel_strategy_R.json.

hccl_raw_R.csv            step_num, communication_cost, wait_cost (ms), link_info {"src-dst": {"SDMA": [ms, KB, KB/s]}},
                          communication_operator_cost {operator: [step, communication, wait, link_info]}; the step `-` is the average
parallel_strategy_R.json  config: rankId, stageId, parallelType, stageDevices; graph: node: name, opType, scope, attribute, input
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from stepscope.model import schema
from stepscope.readers.ascend.common.communication_tables import link_table
from stepscope.readers.ascend.common.tables import nested_items, report_lost
from stepscope.readers.common.documents import as_dict, as_list, to_index, to_int
from stepscope.readers.common.problems import Problem
from stepscope.readers.mindinsight.files import parse_cell

_OPERATORS: dict[str, Any] = {name: dtype for name, dtype in schema.TABLES["sharded_operators"].items() if name != "rank"}


def sharded_operators(document: dict[str, Any], problems: list[Problem]) -> pl.DataFrame:
    """The operators of this rank's stage: name, type, scope, shards and inputs of each."""
    config = document.get("config")
    if not isinstance(config, dict):
        return pl.DataFrame(schema=_OPERATORS)
    operators, invalid = list[dict[str, Any]](), 0
    for node in as_list(as_dict(document.get("graph")).get("node")):
        try:
            operators.append(_operator(node))
        except (KeyError, TypeError, AttributeError):
            invalid += 1
    report_lost(problems, "parallel_strategy", invalid, "node", "without a name or a type")
    groups = [group for group in as_list(config.get("stageDevices")) if isinstance(group, dict)]
    devices = [dim.get("size") for group in groups for dim in as_list(group.get("dim")) if isinstance(dim, dict)]
    number, mode = str(config.get("stageId")), config.get("parallelType")
    stage = {
        "stage": int(number) if re.fullmatch(r"[0-9]{1,9}", number) else None,
        "mode": mode if isinstance(mode, str) else None,
        "devices": json.dumps(devices),
    }
    return pl.DataFrame([stage | operator for operator in operators], _OPERATORS)


def _operator(node: Any) -> dict[str, Any]:
    attributes = {str(entry["name"]): entry.get("value") for entry in node.get("attribute") or []}
    name, op_type, scope = str(node["name"]), str(node["opType"]), str(node.get("scope") or "")
    shards = _attribute_value(attributes.get("in_strategy") or attributes.get("gen_strategy"))
    return {
        "node": name,
        "name": str(node.get("fullName") or f"{scope}/{op_type}-op{name}".removeprefix("/")),
        "type": op_type,
        "scope": scope,
        "instance": str(node.get("instanceName") or ""),
        "shards": None if shards is None else json.dumps(shards),
        "inputs": json.dumps([str(entry["name"]) for entry in node.get("input") or []]),
    }


def _attribute_value(value: object) -> Any:
    """A value of MindSpore's graphs: `{"dtype": "DT_TUPLE", "values": [{"intVal": "2"}, ...]}` is [2, ...]."""
    if not isinstance(value, dict):
        return value
    if isinstance(values := value.get("values"), list):
        return [_attribute_value(element) for element in values]
    if (number := value.get("intVal")) is not None:
        return int(number) if re.fullmatch(r"-?[0-9]{1,18}", str(number)) else str(number)
    return next((element for key, element in value.items() if key != "dtype"), None)


def _steps(rows: pl.DataFrame) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """Number, row and operators of each step, without the average."""
    for row in rows.iter_rows(named=True):
        step = str(row.get("step_num") or "")
        if re.fullmatch(r"[0-9]{1,9}", step) and int(step) > 0:
            yield int(step), row, as_dict(parse_cell(row.get("communication_operator_cost")))


def calls(rows: pl.DataFrame, problems: list[Problem]) -> pl.DataFrame:
    """hccl_raw: communication and wait time of each operator of a step. Older files have only the sums of the step. Milliseconds."""
    times: list[tuple[int, str, int, int]] = []
    invalid = 0
    for step, row, operators in _steps(rows):
        sums = {"communication": [None, row.get("communication_cost"), row.get("wait_cost")]}
        for name, cost in (operators or sums).items():
            try:
                times.append((step, str(name), to_int(cost[1], 1e6), to_int(cost[2], 1e6)))
            except (ValueError, TypeError, IndexError, KeyError):
                invalid += 1
    report_lost(problems, "hccl_raw", invalid, "operator", "without a communication time and a wait time")
    return pl.DataFrame(times, {"step": pl.Int32, "name": pl.String, "communication_ns": pl.Int64, "wait_ns": pl.Int64}, orient="row")


def links(rows: pl.DataFrame, rank: int, problems: list[Problem]) -> pl.DataFrame:
    """hccl_raw: per step and operator `{"src-dst": {"SDMA": [ms, KB, KB/s]}}`. The rate there is a sum of rates, and is not read."""
    transfers: list[tuple[Any, ...]] = []
    invalid = 0
    for step, row, operators in _steps(rows):
        pairs: dict[str | None, Any] = {
            str(name): cost[3] if isinstance(cost, list) and len(cost) > 3 else {} for name, cost in operators.items()
        }
        for name, pair, transport, values in nested_items(pairs or {None: parse_cell(row.get("link_info"))}, 3):
            try:
                src, dst = (to_index(number) for number in str(pair).split("-"))
                transfers.append((step, name, src, dst, str(transport), to_int(values[1], 1000), to_int(values[0], 1e6)))
            except (ValueError, TypeError, IndexError, KeyError):
                invalid += 1
    report_lost(problems, "hccl_raw", invalid, "link", "without two ranks, a time and a size")
    return _with_global_ranks(link_table(transfers), rank, problems)


def _with_global_ranks(links: pl.DataFrame, rank: int, problems: list[Problem]) -> pl.DataFrame:
    """Files number ranks within a group. If this rank is in none of its links, its group is one of several of the same size."""
    ends = {*links["src"], *links["dst"]}
    if not ends or rank in ends:
        return links
    size = max(ends) + 1
    first = rank - rank % size
    problems.append(Problem("hccl_raw", f"links number ranks within groups of {size}: their rank 0 is read as rank {first} of the job", 0))
    return links.with_columns(pl.col("src") + first, pl.col("dst") + first)
