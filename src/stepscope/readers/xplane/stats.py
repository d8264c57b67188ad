"""Stats of an XPlane file: columns by name, and all stats of an event as JSON."""

import json
import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.model.intervals import Bools, Ints
from stepscope.readers.xplane.xspace import DOUBLE, SIGNED, Plane, Stats


class StatColumns:
    """The stats of `count` owners, by name."""

    def __init__(self, plane: Plane, stats: Stats, count: int) -> None:
        self._plane, self._stats, self._count = plane, stats, count
        narrow = stats.name.astype(np.uint16) if len(plane.texts) < 1 << 16 else stats.name
        self._order = np.argsort(narrow, kind="stable")
        self._names = stats.name[self._order]

    def owners(self, name: str) -> Ints:
        return self._stats.owner[self._rows(name)]

    def numbers(self, name: str) -> tuple[Ints, Bools]:
        """The number of that name for each owner, and whether it has one."""
        values, has = np.zeros(self._count, np.int64), np.zeros(self._count, np.bool_)
        rows = self._rows(name)
        rows = rows[(self._stats.text[rows] < 0) & (self._stats.number[rows] > 0)]
        owner, number = self._stats.owner[rows], self._stats.value[rows].view(np.int64)
        is_double = self._stats.number[rows] == DOUBLE
        if is_double.any():
            double = number.view(np.float64)
            fits = ~is_double | (np.abs(double) < 2**62)
            number = np.where(is_double, np.where(fits & is_double, double, 0).astype(np.int64), number)
            owner, number = owner[fits], number[fits]
        values[owner], has[owner] = number, True
        return values, has

    def optional_numbers(self, name: str) -> pl.Series:
        """The number of that name for each owner, null for none."""
        return optional(*self.numbers(name))

    def floats(self, name: str) -> NDArray[np.float64] | None:
        """The number of that name for each owner, NaN for none; None where no owner has one."""
        rows = self._rows(name)
        rows = rows[self._stats.text[rows] < 0]
        if len(rows) == 0:
            return None
        value, number = self._stats.value[rows], self._stats.number[rows]
        result = np.full(self._count, np.nan)
        whole = np.where(number == SIGNED, value.view(np.int64).astype(np.float64), value.astype(np.float64))
        result[self._stats.owner[rows]] = np.where(number == DOUBLE, value.view(np.float64), whole)
        return result

    def texts(self, name: str) -> Ints:
        """The code of the text of that name for each owner, -1 for none."""
        codes = np.full(self._count, -1, np.int64)
        rows = self._rows(name)
        codes[self._stats.owner[rows]] = self._stats.text[rows]
        return codes

    def _rows(self, name: str) -> Ints:
        code = self._plane.code(name)
        low, high = (int(np.searchsorted(self._names, code, side)) for side in ("left", "right"))
        return self._order[low:high] if code >= 0 else self._order[:0]


def optional(values: Ints, has: Bools) -> pl.Series:
    return pl.Series(values).set(pl.Series(~has), None)


class ArgsWriter:
    """Writes the stats of events as JSON objects, column by column."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._json: list[str] = []  # of each text of the plane

    def args(self, stats: Stats, count: int) -> pl.Series:
        """The stats of each event, null where it has none."""
        self._json += [json.dumps(text, ensure_ascii=False) for text in self._plane.texts[len(self._json) :]]
        texts = pl.Series(self._json, dtype=pl.String)
        fields = pl.select(pl.concat_str(texts.gather(stats.name), pl.lit(":"), self._values(stats, texts))).to_series()
        objects = (
            pl.DataFrame({"owner": stats.owner, "field": fields})
            .group_by("owner", maintain_order=True)
            .agg(pl.col("field").str.join(","))
            .with_columns(field=pl.concat_str(pl.lit("{"), "field", pl.lit("}")))
        )
        return pl.Series([None], dtype=pl.String).new_from_index(0, count).scatter(objects["owner"], objects["field"])

    def _values(self, stats: Stats, texts: pl.Series) -> pl.Series:
        is_text, has_launch = stats.text >= 0, stats.name == self._plane.code("kernel_details")
        is_double, is_signed, is_empty = stats.number == DOUBLE, stats.number == SIGNED, stats.number == 0
        kinds = np.select([is_text & has_launch, is_text, is_double, is_empty, is_signed], np.arange(5), 5)
        rows, values = [], []
        for kind in np.unique(kinds).tolist():
            at = np.flatnonzero(kinds == kind)
            value, codes = stats.value[at], stats.text[at]
            rows.append(at)
            if kind == 0:
                values.append(self._launches(codes))
            elif kind == 1:
                values.append(texts.gather(codes))
            elif kind == 2:
                double = pl.Series(value.view(np.float64))
                text = pl.when(double.is_finite()).then(double.cast(pl.String)).otherwise(pl.format('"{}"', double))
                values.append(pl.select(text).to_series())
            elif kind == 3:
                values.append(pl.Series(["null"]).new_from_index(0, len(at)))
            else:
                values.append(pl.Series(value.view(np.int64) if kind == 4 else value).cast(pl.String))
        return pl.concat(values).gather(np.argsort(np.concatenate(rows))) if rows else pl.Series([], dtype=pl.String)

    def _launches(self, codes: Ints) -> pl.Series:
        """Texts of kernel_details, followed by the same values under the names that other sources use."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        texts = [self._json[code] + _launch_fields(self._plane.texts[code]) for code in distinct.tolist()]
        return pl.Series(texts, dtype=pl.String).gather(inverse)


def _launch_fields(details: str) -> str:
    """`regs:66 static_shared:0 dynamic_shared:16 grid:2,1,1 block:8,1,1` as fields of a JSON object."""
    values = dict(re.findall(r"(\w+):([\d.,]+)", details))
    fields = []
    if "regs" in values:
        fields.append(f'"registers per thread":{values["regs"]}')
    if "static_shared" in values and "dynamic_shared" in values:
        fields.append(f'"shared memory":{int(values["static_shared"]) + int(values["dynamic_shared"])}')
    fields += [f'"{side}":[{values[side]}]' for side in ("grid", "block") if side in values]
    return "".join("," + field for field in fields)
