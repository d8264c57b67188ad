"""The header of a Chrome trace: the job, its devices, the profiler's options, and the tables that stepscope's exporter adds."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import polars as pl

from stepscope.model import schema
from stepscope.model.trace import Meta, UnprofiledSteps, Window
from stepscope.readers.common.documents import as_dict, as_list, member_text
from stepscope.readers.common.problems import Problem

_Time = Annotated[int, msgspec.Meta(gt=-(2**62), lt=2**62)]
_WINDOW = tuple[Annotated[int, msgspec.Meta(ge=0, lt=2**31)], _Time, _Time]  # rank, start, end
_TABLES = ("steps", "tracks", "devices", "pipeline", "links", "sharded_operators")
_OPTIONS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


class Exported(msgspec.Struct):
    """What stepscope's exporter adds to the trace of another source: small tables that the events do not contain."""

    framework: str = ""
    options: dict[str, Any] | None = None
    unprofiled_steps: list[UnprofiledSteps] = []
    steps: list[dict[str, Any]] = []
    steps_by_time: bool = False  # device work belongs to the step that it runs in, not to that of its launch
    tracks: list[dict[str, Any]] = []
    devices: list[dict[str, Any]] = []
    pipeline: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    sharded_operators: list[dict[str, Any]] = []
    units: dict[str, str] = {}  # of counters, by name

    def table(self, name: str) -> pl.DataFrame:
        columns = {column: dtype for column, dtype in schema.TABLES[name].items() if column != "rank"}
        return pl.DataFrame(getattr(self, name), schema=columns)


class Header:
    """Reads the entries of a header; unusable ones become problems and are ignored."""

    def __init__(self, entries: Mapping[str, Any], problems: list[Problem]) -> None:
        self._problems = problems
        self._entries = dict(entries)
        self.exported = self._read_exported()
        self._windows = self._read_windows()

    def _read_exported(self) -> Exported:
        entry = self._entries.pop("stepscope", {})
        try:
            exported = msgspec.convert(entry, Exported)
            for name in _TABLES:
                exported.table(name)
        except (msgspec.ValidationError, pl.exceptions.PolarsError, TypeError, ValueError, OverflowError):
            self._ignore("stepscope", entry)
            return Exported()
        return exported

    def _read_windows(self) -> list[Window]:
        """Windows of a recording, as stepscope's exporter writes them."""
        entry = self._entries.pop("windows", [])
        try:
            return [Window(*times) for times in msgspec.convert(entry, list[_WINDOW])]
        except msgspec.ValidationError:
            self._ignore("windows", entry)
            return []

    def rank_and_world(self) -> tuple[int | None, int | None]:
        job = self._entries.get("distributedInfo", {})
        if not isinstance(job, dict):
            self._ignore("distributedInfo", job)
            job = {}
        return self._number(job, "rank", "distributedInfo: "), self._number(job, "world_size", "distributedInfo: ")

    def process_groups(self) -> pl.DataFrame:
        """The groups that the rank is in: `pg_config`, a list, or in early versions an object by name."""
        job = self._entries.get("distributedInfo")
        groups = job.get("pg_config") if isinstance(job, dict) else None
        rows = list[tuple[str, str | None, str | None]]()
        entries = groups.items() if isinstance(groups, dict) else ((None, entry) for entry in as_list(groups))
        for key, entry in entries:
            group = as_dict(entry)
            name = group.get("pg_name", key)
            if name is None:
                self._ignore("distributedInfo: pg_config", entry)
            else:
                rows.append((str(name), str(group.get("pg_desc") or "") or None, member_text(group.get("ranks"))))
        return pl.DataFrame(rows, {"group": pl.String, "description": pl.String, "members": pl.String}, orient="row")

    def devices(self) -> pl.DataFrame:
        properties = self._entries.get("deviceProperties", [])
        if not isinstance(properties, list):
            self._ignore("deviceProperties", properties)
            properties = []
        for chip in properties:
            if not isinstance(chip, dict):
                self._ignore("deviceProperties", chip)
        chips = [chip for chip in properties if isinstance(chip, dict)]

        def numbers(name: str, bits: int = 31) -> list[int | None]:
            return [self._number(chip, name, "deviceProperties: ", bits) for chip in chips]

        columns = {
            "device": numbers("id"),
            "name": [str(chip.get("name", "")) for chip in chips],
            "kind": ["gpu"] * len(chips),
            "cores": numbers("numSms"),
            "memory_bytes": numbers("totalGlobalMem", 63),
        }
        return pl.DataFrame(columns, schema={name: schema.TABLES["devices"][name] for name in columns})

    def meta(self, rank: int, world: int | None, has_operators: bool, recorded: dict[str, bool]) -> Meta:
        """`recorded` are the options that the trace shows to be on: not every version of PyTorch writes them into the header."""
        entries, exported = self._entries, self.exported
        options = {key: bool(entries[key]) for key in _OPTIONS if key in entries}
        return Meta(
            format="chrome",
            framework=exported.framework or ("pytorch" if "schemaVersion" in entries or has_operators else ""),
            versions={key: str(value) for key, value in entries.items() if key.endswith("_version")},
            world_size=world,
            ranks=[rank],
            options=options | (exported.options if exported.options is not None else recorded | options),
            extra={key: value for key, value in entries.items() if key not in ("deviceProperties", *_OPTIONS)},
            unprofiled_steps=exported.unprofiled_steps,
            windows=self._windows,
        )

    def _number(self, entries: dict[str, Any], name: str, place: str, bits: int = 31) -> int | None:
        """A number that a column can hold."""
        value = entries.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << bits:
            return value
        if name in entries:
            self._ignore(place + name, value)
        return None

    def _ignore(self, name: str, value: object) -> None:
        text = str(value)
        self._problems.append(Problem("header", f"{name} is unusable, and ignored: {text if len(text) <= 60 else f'{text[:59]}…'}", 0))
