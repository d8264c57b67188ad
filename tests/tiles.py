"""A tile of the timeline taken apart, as a client would: from docs/web.md, not from the code that writes it."""

import json
from typing import Any

import numpy as np

_ARRAYS = (
    ("long_start", "<f8"),
    ("long_dur", "<f8"),
    ("point_at", "<f8"),
    ("point_low", "<f8"),
    ("point_high", "<f8"),
    ("long_name", "<u4"),
    ("long_span", "<i4"),
    ("bucket_count", "<u4"),
    ("bucket_name", "<u4"),
    ("bucket_span", "<i4"),
    ("bucket_x", "<u2"),
    ("long_kind", "u1"),
    ("bucket_busy", "u1"),
    ("bucket_kind", "u1"),
)


def decoded(content: bytes) -> dict[str, Any]:
    """The header, under "header", and the arrays of all rows by name."""
    at = 4 + int.from_bytes(content[:4], "little")
    assert at % 8 == 0
    header = json.loads(content[4:at])
    rows = [row for lane in header["lanes"] for row in lane.get("rows", [])]
    counts = {
        "long": sum(long for long, _ in rows),
        "bucket": sum(buckets for _, buckets in rows),
        "point": sum(lane.get("points", 0) for lane in header["lanes"]),
    }
    tile: dict[str, Any] = {"header": header}
    for name, kind in _ARRAYS:
        count = counts[name.split("_")[0]]
        tile[name] = np.frombuffer(content, kind, count, at)
        at += -(-tile[name].nbytes // 8) * 8
    assert at == len(content)
    return tile


def by_row(tile: dict[str, Any]) -> dict[tuple[int, int], dict[str, Any]]:
    """The arrays of each row by (lane, row); a counter's points by (lane, -1)."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    at = {"long": 0, "bucket": 0, "point": 0}
    for lane in tile["header"]["lanes"]:
        parts = [(row, {"long": long, "bucket": buckets, "point": 0}) for row, (long, buckets) in enumerate(lane.get("rows", []))]
        parts += [(-1, {"long": 0, "bucket": 0, "point": lane["points"]})] if "points" in lane else []
        for row, counts in parts:
            own = {}
            for name, _ in _ARRAYS:
                kind = name.split("_")[0]
                own[name] = tile[name][at[kind] : at[kind] + counts[kind]]
            for kind, count in counts.items():
                at[kind] += count
            found[lane["id"], row] = own
    return found
