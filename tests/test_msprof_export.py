"""What we write of raw Ascend directories, against what Ascend's own exporter wrote of the same bytes: every file, row, cell and event.

Where the two differ, the case says that the other one is odd, or has lost data; each such difference is listed here, and nothing else
may differ.
"""

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepscope.exporters.msprof import exporter as msprof
from stepscope.readers import Options
from stepscope.readers.ascend.prof import reader as prof

SYNTH = Path(__file__).parents[2] / "shared" / "data" / "ascend" / "synth"
pytestmark = pytest.mark.skipif(not SYNTH.is_dir(), reason="no ../shared/data/ascend")
CASES = sorted(path.name for path in SYNTH.iterdir()) if SYNTH.is_dir() else []
WHOLE = [case for case in CASES if not case.startswith("c12") or case == "c12_base"]
# Date and time pass through a float there: 0.2 microseconds.
GRAIN = Decimal("0.2")

Row = dict[str, str]


class Oddity(NamedTuple):
    """Cells in which the other exporter is odd, as its case says."""

    case: str
    table: str
    column: str
    where: Callable[[Row], bool]


def _no_contexts(row: Row) -> bool:
    """The kernel of c03 without context ids: its time is that of its whole task there, and its counters are lost."""
    return row["Task Type"] == "MIX_AIC" and row["Context ID"] == "N/A"


def _any(row: Row) -> bool:
    return True


ODDITIES = [
    # A second forward tag is pushed into the next iteration there.
    Oddity("c01b*", "step_trace", "FP Start(us)", lambda row: row["Iteration ID"] == "5"),
    Oddity("c01b*", "step_trace", "FP to BP Time(us)", lambda row: row["Iteration ID"] == "5"),
    Oddity("c01b*", "step_trace", "Data Aug Bound(us)", lambda row: row["Iteration ID"] == "5"),
    *(
        Oddity("c03*", "op_summary", column, _no_contexts)
        for column in ("Task Start Time(us)", "Task Duration(us)", "Context ID", "aic*", "aiv*", "cube*")
    ),
    # The row of such a kernel and the one behind it.
    Oddity("c03*", "op_summary", "Task Wait Time(us)", lambda row: int(row["Task ID"]) % 14 in (12, 13)),
    Oddity("c03*", "op_statistic", "*", lambda row: row["OP Type"] in ("MatMulV3", "GroupedMatmul", "FlashAttentionScore")),
    Oddity("c03*", "op_statistic", "Ratio(%)", _any),  # of a sum with the time of whole tasks in it
    Oddity("c03*", "task_time", "kernel_type", lambda row: row["kernel_type"] == "KERNEL_MIX_AIC"),
]
# That exporter knows no columns of this group of counters.
NO_COUNTERS = "c06*_pmu_MemoryAccess"


def exported(case: str, tmp_path: Path) -> Path:
    out = tmp_path / "mindstudio_profiler_output"
    msprof.export(prof.read(next((SYNTH / case).glob("PROF*")), Options(scratch=tmp_path)), out)
    return out


def truth(case: str) -> Path:
    true = SYNTH / case / "expected_true"
    return true if true.is_dir() else SYNTH / case / "expected"


def tables(folder: Path) -> dict[str, list[list[str]]]:
    """Header and rows of each table. Cells without the tab behind times."""
    found = {}
    for file in folder.glob("*.csv"):
        with file.open() as lines:
            found[file.stem.rpartition("_")[0]] = [[cell.strip() for cell in row] for row in csv.reader(lines)]
    if "api_statistic" in found:  # calls are of the host, as current msprof writes; earlier ones repeat them for each device
        header, *rows = found["api_statistic"]
        found["api_statistic"] = [header, *([*row] for row in dict.fromkeys(("host", *row[1:]) for row in rows))]
    return found


def number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def same(ours: str, theirs: str) -> bool:
    """Equal to the last digit that is printed there; moments to what a float keeps of them."""
    one, other = number(ours), number(theirs)
    if one is None or other is None:
        return ours == theirs
    if other > 10**14 and "." in theirs:
        return abs(one - other) <= GRAIN
    return abs(one - other) <= Decimal(1).scaleb(-len(theirs.partition(".")[2]))


# What tells rows of a table apart, in the order in which they stand. Rows of one moment stand in any order.
KEYS = {
    "op_summary": ("Device_id", "Task Start Time(us)", "Task ID", "Op Name"),
    "task_time": ("Device_id", "task_start(us)", "stream_id", "task_id", "kernel_type"),
    "aicpu": ("Device_id", "Timestamp(us)", "Stream ID"),
    "step_trace": ("Device_id", "Model ID", "Iteration ID"),
    "op_statistic": ("Device_id", "OP Type", "Core Type"),
    "communication_statistic": ("Device_id", "OP Type"),
    "api_statistic": ("Device_id", "Level", "API Name"),
    "fusion_op": ("Device_id", "Model ID", "Fusion Op"),
}


def in_order(name: str, found: list[list[str]]) -> list[list[str]]:
    places = [found[0].index(column) for column in KEYS[name]]
    return sorted(found[1:], key=lambda row: [(number(row[place]) or Decimal(0), row[place]) for place in places])


def differences(case: str, ours: dict[str, list[list[str]]], theirs: dict[str, list[list[str]]]) -> Iterator[str]:
    if set(ours) != set(theirs):
        yield f"tables: only here {sorted(set(ours) - set(theirs))}, only there {sorted(set(theirs) - set(ours))}"
    for name in sorted(set(ours) & set(theirs)):
        ((header, *here), (other, *there)) = ours[name], theirs[name]
        if header != other and not (fnmatch(case, NO_COUNTERS) and header[: len(other)] == other):
            yield f"{name}: columns {header} instead of {other}"
            continue
        if len(here) != len(there):
            yield f"{name}: {len(here)} rows instead of {len(there)}"
            continue
        for mine, row in zip(in_order(name, ours[name]), in_order(name, theirs[name]), strict=True):
            known = dict(zip(other, row, strict=False))
            odd = [oddity for oddity in ODDITIES if fnmatch(case, oddity.case) and oddity.table == name and oddity.where(known)]
            # Rows there are as long as they have collectives; ours say N/A for the rest.
            for column, one, theirs_ in zip(other, mine, row + ["N/A"] * (len(other) - len(row)), strict=False):
                if not same(one, theirs_) and not any(fnmatch(column, oddity.column) for oddity in odd):
                    yield f"{name} {known[other[0]]} {list(known.values())[1:6]}: {column} is {one} instead of {theirs_}"


@pytest.mark.parametrize("case", WHOLE)
def test_every_table_row_and_cell_is_that_of_the_other_exporter(case: str, tmp_path: Path) -> None:
    assert list(differences(case, tables(exported(case, tmp_path)), tables(truth(case)))) == []


@pytest.mark.parametrize("case", WHOLE)
def test_operators_and_tasks_stand_by_device_and_time_and_statistics_by_what_takes_longest(case: str, tmp_path: Path) -> None:
    found = tables(exported(case, tmp_path))
    for name, column in (("op_summary", "Task Start Time(us)"), ("aicpu", "Timestamp(us)")):
        header, *rows = found.get(name, [["Device_id", column]])
        at = [(int(row[0]), Decimal(row[header.index(column)])) for row in rows]
        assert at == sorted(at)
    for name in ("op_statistic", "communication_statistic"):
        header, *rows = found.get(name, [["Device_id", "Total Time(us)"]])
        totals = [(int(row[0]), -Decimal(row[header.index("Total Time(us)")])) for row in rows]
        assert totals == sorted(totals)


# What is lost of the undamaged twin, by table: of nine lost records of the log five tasks, and so on; see each case.
DAMAGED: dict[str, dict[str, int]] = {
    "c12a_truncated_device": {"op_summary": 1, "task_time": 1},
    "c12b_truncated_host": {"op_summary": 1},
    "c12c_bad_magic_device": {"op_summary": 3, "task_time": 3},
    "c12d_bad_magic_host": {"op_summary": 1},
    "c12e_bad_magic_api": {},
    "c12f_no_info_json_device": {},
    "c12g_no_info_json_host": {},
    "c12j_lost_records": {"op_summary": 5, "task_time": 5},
    "c12k_empty_stars": {"op_summary": 24, "task_time": 24},
    "c12l_no_ts_track": {"step_trace": 3},
    "c12n_bad_sample_json": {},
}
# Cells that the damage itself changes.
UNKNOWN = {
    "c12b_truncated_host": ("kernel_name", "kernel_type", "Task Wait Time(us)"),
    "c12c_bad_magic_device": ("Node", "Task Wait Time(us)", "aic*", "aiv*", "cube*"),  # counters of one kernel are lost, too
    "c12d_bad_magic_host": ("kernel_name", "kernel_type", "Task Wait Time(us)"),
    "c12f_no_info_json_device": ("aic*_time(us)", "aiv*_time(us)", "cube*"),  # how fast the cores are is not known
    "c12j_lost_records": ("Node", "Task Wait Time(us)", "aic*", "aiv*", "cube*"),
    "c12k_empty_stars": ("Node",),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_of_a_damaged_directory_what_is_left_equals_its_undamaged_twin(case: str, tmp_path: Path) -> None:
    """The other exporter loses whole files, or everything."""
    ours, theirs = tables(exported(case, tmp_path)), tables(truth("c12_base"))
    wrong = []
    for name in ("op_summary", "task_time", "aicpu", "step_trace", "fusion_op"):
        (other, *there), (header, *here) = theirs[name], ours.get(name, theirs[name][:1])
        if len(there) - len(here) != DAMAGED[case].get(name, 0):
            wrong.append(f"{name}: {len(there)} rows became {len(here)}")
        key = [other.index(column) for column in KEYS[name]]
        known = [(row, [number(row[place]) or Decimal(0) for place in key]) for row in there]
        for row in here:
            mine = [number(row[place]) or Decimal(0) for place in key]
            twin = next((one for one, place in known if all(abs(a - b) <= GRAIN for a, b in zip(place, mine, strict=True))), None)
            if twin is None:
                wrong.append(f"{name}: {row[:9]} is not in the twin")
                continue
            for column, cell in zip(header, row, strict=True):
                free = any(fnmatch(column, pattern) for pattern in UNKNOWN.get(case, ()))
                if not free and not same(cell, dict(zip(other, twin, strict=False)).get(column, "N/A")):
                    wrong.append(f"{name} {row[:6]}: {column} is {cell}")
    assert wrong == []


def test_without_the_dictionary_of_hashes_all_numbers_stay(tmp_path: Path) -> None:
    ours, theirs = tables(exported("c12h_no_hash_dic", tmp_path)), tables(truth("c12_base"))
    names = ("Op Name", "OP Type", "kernel_name", "Node", "Model Name", "Fusion Op", "Original Ops", "HF32 Eligible")
    for name in ("op_summary", "task_time", "aicpu", "step_trace", "api_statistic"):
        header = theirs[name][0]
        assert ours[name][0] == header and len(ours[name]) == len(theirs[name])
        for mine, row in zip(in_order(name, ours[name]), in_order(name, theirs[name]), strict=True):
            assert [column for column, a, b in zip(header, mine, row, strict=False) if not same(a, b) and column not in names] == []


def test_an_end_without_a_start_is_no_task_of_hours(tmp_path: Path) -> None:
    ours, theirs = tables(exported("c12o_hwts_orphans", tmp_path)), tables(truth("c12o_hwts_orphans"))
    theirs["task_time"] = [row for row in theirs["task_time"] if row[2] != "Other"]
    assert list(differences("c12o_hwts_orphans", ours, theirs)) == []


# Timelines

Event = dict[str, Any]


def timeline(folder: Path, name: str) -> dict[tuple[str, ...], list[Event]]:
    """Events by layer, device, phase, category, name and thread; what describes a process once."""
    file = next(folder.glob(f"{name}_2*.json"), None)
    found: list[Event] = json.loads(file.read_text()) if file else []
    layers = {event["pid"]: event["args"]["name"] for event in found if event["name"] == "process_name"}
    groups: dict[tuple[str, ...], list[Event]] = defaultdict(list)
    for event in found:
        layer, metadata_text = layers[event["pid"]], json.dumps(event["args"]) if event["ph"] == "M" else ""
        key = (layer, str(event["pid"] % 32), event["ph"], event.get("cat", ""), event["name"] + metadata_text, str(event.get("tid")))
        if not metadata_text or not groups[key]:
            groups[key].append(event)
    return groups


def alike(ours: object, theirs: object) -> bool:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(alike(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, str) and isinstance(theirs, str) and ours != theirs:
        return "." in theirs and same(ours, theirs)
    if isinstance(ours, int | float) and isinstance(theirs, int | float):
        return abs(ours - theirs) <= 1e-3 + 1e-6 * abs(theirs)
    return ours == theirs


def _expected_events(case: str, name: str) -> dict[tuple[str, ...], list[Event]]:
    """Less what the cases call odd, and pieces of no length, which say nothing."""
    found = timeline(truth(case), name)
    for key, rows in list(found.items()):
        layer, _, phase, _, title, _ = key
        kept = [row for row in rows if not (title == "Communication(Not Overlapped)" and row.get("dur") == 0)]
        if layer == "AI Core Freq" and phase == "C":  # once per millisecond there
            kept = []
        if case in ("c10_two_devices", "c10b_level0"):
            if title.startswith("process_sort_index") and layer == "Overlap Analysis":  # 21 on one device, 20 on the other
                kept = []
            once = {json.dumps(row, sort_keys=True): row for row in kept}  # the first call stands there for each device
            kept = list(once.values()) if layer == "CANN" and phase == "X" else kept
        found[key] = kept
    return {key: rows for key, rows in found.items() if rows}


def _odd_event(case: str, key: tuple[str, ...], row: Event) -> bool:
    """Events that are odd there, and their counterparts here."""
    layer, _, phase, category, title, _ = key
    args = row.get("args", {})
    if layer == "AI Core Freq" and phase == "C":
        return True
    if case.startswith("c10") and layer == "Overlap Analysis" and title.startswith("process_sort_index"):
        return True
    if case.startswith("c01b") and category in ("FP_BP Time", "Iteration Time", "Data_aug Bound") and phase in "Xst":
        return args.get("Iteration ID") == 5 or title.endswith(" 5")
    if case.startswith("c03"):  # the kernel without context ids lasts as long as its task in Overlap Analysis, and has no name
        return layer == "Overlap Analysis" or (layer == "Ascend Hardware" and args.get("Task Id", 0) % 14 == 12)
    if case == "c05_comm" and category == "HostToDevice" and phase == "s":  # two arrows have no start there
        return int(row["id"]) % 2**32 == 2**32 - 1 and int(row["id"]) < 2**64
    if case == "c10b_level0":  # kernels on both kinds of core have no name there, and tasks of planes are left out
        return args.get("Task Type") == "KERNEL_MIX_AIC" or (layer == "Communication" and "task type" in args)
    return False


@pytest.mark.parametrize("name", ["msprof", "step_trace"])
@pytest.mark.parametrize("case", WHOLE)
def test_every_event_of_timelines_is_that_of_the_other_exporter(case: str, name: str, tmp_path: Path) -> None:
    ours, theirs = timeline(exported(case, tmp_path), name), _expected_events(case, name)
    wrong = []
    for key in sorted(set(ours) | set(theirs)):
        here, there = ([row for row in rows.get(key, []) if not _odd_event(case, key, row)] for rows in (ours, theirs))
        if len(here) != len(there):
            wrong.append(f"{key}: {len(here)} events instead of {len(there)}")
        by_time = [sorted(rows, key=lambda row: (row.get("ts", ""), json.dumps(row.get("args")))) for rows in (here, there)]
        for mine, row in zip(*by_time, strict=False):
            sort = key[0] == "Overlap Analysis" and case.startswith("c10")
            wrong += [
                f"{key}: {field} is {mine.get(field)} instead of {row.get(field)}"
                for field in {*mine, *row}
                if not alike(mine.get(field), row.get(field)) and not (sort and field == "pid")
            ]
    assert wrong == []


@pytest.mark.parametrize("case", [case for case in WHOLE if case not in ("c10b_level0",)])
def test_every_arrow_has_both_ends(case: str, tmp_path: Path) -> None:
    found = [row for rows in timeline(exported(case, tmp_path), "msprof").values() for row in rows if row.get("cat") == "HostToDevice"]
    starts, ends = (Counter(row["id"] for row in found if row["ph"] == phase) for phase in "sf")
    assert starts == ends


def test_the_clock_of_cores_is_written_where_it_changes(tmp_path: Path) -> None:
    """c04: 1850 MHz, then 800 and others; there a value every millisecond."""
    ours, theirs = (
        [(row["ts"], row["args"]["MHz"]) for key, rows in found.items() if key[0] == "AI Core Freq" and key[2] == "C" for row in rows]
        for found in (timeline(exported("c04_aicpu_dsa_host", tmp_path), "msprof"), timeline(truth("c04_aicpu_dsa_host"), "msprof"))
    )
    changes = [value for at, value in enumerate(theirs) if at == 0 or value[1] != theirs[at - 1][1]]
    assert [mhz for _, mhz in ours if mhz] and [mhz for at, (_, mhz) in enumerate(ours) if at == 0 or mhz != ours[at - 1][1]] == [
        mhz for _, mhz in changes
    ]
