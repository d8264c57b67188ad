"""What stepscope is measured against, run with the peers' own packages: peers.py HTA|orjson TRACE.json"""

import sys
from pathlib import Path

FIELDS = "name", "cat", "ph", "ts", "dur", "pid", "tid"
NUMBERS = (
    *("External id", "Record function id", "Sequence number", "Fwd thread id", "Ev Idx"),
    *("Python id", "Python parent id", "Python module id", "correlation"),
    *("Device Type", "Device Id", "Addr", "Bytes", "Total Allocated", "Total Reserved"),
)
TEXTS = "Input Dims", "Input type", "Input Strides", "Concrete Inputs"


def hta(path: str) -> int:
    """HolisticTraceAnalysis loads the file as its users have it load files; it answers nothing yet."""
    from hta.trace_analysis import TraceAnalysis

    return len(TraceAnalysis(trace_files={0: path}).t.traces[0])


def orjson(path: str) -> int:
    """What a script would do: parse the whole file, then make a table of one column for each field; it answers nothing yet either."""
    import orjson
    import polars as pl

    events = orjson.loads(Path(path).read_bytes())["traceEvents"]
    args = [event.get("args", {}) for event in events]
    columns = {field: pl.Series(field, [event.get(field) for event in events], strict=False) for field in FIELDS}
    columns |= {name: pl.Series(name, [one.get(name) for one in args], pl.Int64) for name in NUMBERS}
    columns |= {
        name: pl.Series(name, [orjson.dumps(one[name]).decode() if name in one else None for one in args], pl.String) for name in TEXTS
    }
    return pl.DataFrame(columns).height


print("rows", {"HTA": hta, "orjson": orjson}[sys.argv[1]](sys.argv[2]))
