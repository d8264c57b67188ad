import gzip
import json
from collections import Counter
from pathlib import Path

import stepscope
import tiny

SAMPLE = Path(__file__).parent.parent / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"


def test_device_work_belongs_to_the_ranges_open_at_its_launch_on_any_thread() -> None:
    trace = tiny.trace(
        spans="""
            rank  span  kind        track  name   start_ns  dur_ns  flow_in
            0     0     annotation  1      outer  0         100     -
            0     1     annotation  1      inner  10        20      -
            0     2     annotation  1      inner  15        5       -
            0     3     api         0      run    12        1       -
            0     4     api         0      run    16        1       -
            0     5     api         2      run    30        1       -
            0     6     api         0      run    100       1       -
            0     7     kernel      9      mm     200       7       3
            0     8     kernel      9      mm     300       11      4
            0     9     kernel      9      mm     400       13      5
            0     10    kernel      9      mm     500       17      6
            0     11    kernel      9      mm     600       19      -
            0     12    annotation  8      inner  200       118     -
            1     0     annotation  1      outer  0         40      -
        """,
        tracks="""
            rank  track  kind        pid  tid
            0     0      thread      5    5
            0     1      annotation  5    5
            0     2      thread      5    6
            0     8      annotation  0    7
            0     9      stream      0    7
            1     1      annotation  5    5
        """,
    )
    # outer: the launches at 12, 16 and 30; not that at its end. inner: those at 12 and, once though twice open, 16.
    tiny.assert_rows(
        trace.annotations(),
        """
        rank  name   calls  total_ns  avg_ns  min_ns  max_ns  device_ns
        0     outer  1      100       100.0   100     100     31
        0     inner  2      25        12.5    5       20      18
        1     outer  1      40        40.0    40      40      -
        """,
    )


def test_a_trace_without_annotations_has_no_rows() -> None:
    assert tiny.trace().annotations().height == 0


def test_ranges_of_a_real_recording_have_the_device_time_that_its_events_say() -> None:
    events = [e for e in json.loads(gzip.decompress(SAMPLE.read_bytes()))["traceEvents"] if e.get("ph") == "X"]
    launches = {e["args"]["correlation"]: e["ts"] for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    work = [
        (launches[e["args"]["correlation"]], round(e["dur"] * 1000)) for e in events if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    host: Counter[str] = Counter()
    device: Counter[str] = Counter()
    for event in events:
        if event["cat"] == "user_annotation" and not event["name"].startswith("ProfilerStep"):
            host[event["name"]] += round(event["dur"] * 1000)
            device[event["name"]] += sum(dur for at, dur in work if event["ts"] <= at < event["ts"] + event["dur"])
    got = stepscope.open(SAMPLE).annotations()
    assert dict(got.select("name", "total_ns").iter_rows()) == dict(host)
    assert dict(got.select("name", "device_ns").iter_rows()) == dict(device)
    assert min(device[name] for name in ("forward pass", "backward pass", "update")) > 0
