"""Host: how busy the machine is, and whether its cores are enough."""

from collections.abc import Iterator
from typing import Any

from stepscope.analyses.host.cpu_use import cpu_use
from stepscope.analyses.verdict.topics.message import Message, Options, known
from stepscope.model.trace import Trace

_VERDICTS = {"full": ("cpu-full", "high"), "waits for disks": ("cpu-disks", "medium"), "crowded": ("cpu-crowded", "medium")}

_Row = dict[str, Any]


def host_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Per rank."""
    use = cpu_use(trace, **options.samples)
    if use.is_empty():
        yield Message("host", "cpu-none", {})
    for (rank,), rows in use.group_by("rank", maintain_order=True):
        code, parameters, level = _headline(rows.to_dicts())
        yield Message("host", code, parameters, int(rank), level)


def _headline(rows: list[_Row]) -> tuple[str, _Row, str | None]:
    machine = next((row for row in rows if row["of"] == "machine"), None)
    processes = [row for row in rows if row["of"] == "process" and row["busy_cores"] is not None]
    if machine is None or machine["user_share"] is None:
        if machine is not None and machine["samples"]:
            return "cpu-too-short", {"time": machine["covered_ns"]}, None
        return _without_machine(processes, [row for row in rows if row["of"] == "operator"])
    both = None if machine["system_share"] is None else machine["user_share"] + machine["system_share"]
    if both is None and (machine["busy_cores"] is None or not machine["cores"]):
        return "cpu-unknown", {}, None
    busy = machine["busy_cores"] / machine["cores"] if both is None else both
    if not busy and not machine["busy_cores"] and machine["samples"]:  # the recording itself keeps a core busy: the clock did not tick
        return "cpu-too-short", {"time": machine["covered_ns"]}, None
    parameters = known(
        busy=busy, used=machine["busy_cores"], cores=machine["cores"], disks=machine["io_share"], queue=machine["max_run_queue"]
    )
    if machine["verdict"] in _VERDICTS:
        code, level = _VERDICTS[machine["verdict"]]
        return code, parameters, level
    busiest = max(processes, key=lambda row: row["busy_cores"], default=None)
    return "cpu-free", parameters | (known(process=busiest["name"], process_cores=busiest["busy_cores"]) if busiest else {}), "info"


def _without_machine(processes: list[_Row], operators: list[_Row]) -> tuple[str, _Row, str | None]:
    if processes:
        return "cpu-processes", {"used": sum(row["busy_cores"] for row in processes)}, None
    sampled = [row for row in operators if row["user_share"] is not None]
    if not sampled:
        return "cpu-unknown", {}, None
    busiest = max(sampled, key=lambda row: row["user_share"])
    return "cpu-operators", {"operator": busiest["name"], "share": busiest["user_share"] + (busiest["system_share"] or 0)}, None
