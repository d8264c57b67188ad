"""Peaks of memory by device, with the memory that the device has."""

from typing import NamedTuple

import polars as pl

from stepscope.analyses.advice.engine.run import Run


class Peak(NamedTuple):
    """The highest values of a recording. Where nothing is reserved ahead of use, reserved is null."""

    device: str
    step: int | None
    allocated: int
    reserved: int | None
    op: str | None
    scope: str | None
    capacity: int | None

    @property
    def taken(self) -> int:
        """What other programs cannot use."""
        return max(self.allocated, self.reserved or 0)


def peaks(run: Run) -> list[Peak]:
    """One per device that is no host."""
    rows = run.table("memory_peaks").filter(pl.col("device") != "cpu", pl.col("peak_bytes").is_not_null())
    capacity = {
        f"{kind} {number}": size
        for kind, number, size in run.trace.devices.select(pl.col("kind").cast(pl.String), "device", "memory_bytes").collect().iter_rows()
    }
    by_device = []
    for (device,), of_device in rows.group_by("device", maintain_order=True):
        highest = of_device.sort("peak_bytes", descending=True, maintain_order=True).row(0, named=True)
        reserved = of_device["reserved_bytes"].max()
        size = capacity.get(str(device)) or next(
            (size for name, size in capacity.items() if name.split()[-1] == str(device).split()[-1]), None
        )
        by_device.append(
            Peak(
                str(device),
                highest["step"],
                int(highest["peak_bytes"]),
                int(reserved) if isinstance(reserved, int) and reserved > 0 else None,
                highest["op"],
                highest["scope"],
                size,
            )
        )
    return by_device
