"""Steps for the tests of rules: the host launches all work at once, and the device runs it without a gap."""

from typing import NamedTuple

import tiny
from stepscope.model.trace import Trace

_TRACKS = """
    track  kind    label       device
    0      thread  main        -
    7      stream  "stream_7"  0
"""


class Call(NamedTuple):
    """An operator of the host with the kernel that it launches; without a kernel it takes its time on the host."""

    name: str
    kernel: str | None
    dur_ns: int
    shapes: str = "-"
    dtypes: str = "-"
    kind: str = "kernel"
    around: str | None = None  # an operator or annotation that calls it


def step_of(calls: list[Call], framework: str = "pytorch", chip: str | None = None, **tables: str) -> Trace:
    """One step from 0 on. A call takes 1 us of the host; the kernels follow each other from 2 us on, without a gap.

    Neighbors with the same `around` are inside one span: an annotation if its name contains `#`, else an operator.
    """
    rows = ["track kind name start_ns dur_ns span flow_in op op_type shapes dtypes"]
    free_ns, now, span = 2_000, 0, 0
    for at, call in enumerate(calls):
        length = 1_000 if call.kernel else call.dur_ns
        if call.around and (at == 0 or calls[at - 1].around != call.around):
            inside = next((i for i in range(at, len(calls)) if calls[i].around != call.around), len(calls))
            whole = sum(1_000 if inner.kernel else inner.dur_ns for inner in calls[at:inside])
            rows.append(f"0 {'annotation' if '#' in call.around else 'op'} {call.around} {now} {whole} {span} - - - - -")
            span += 1
        rows.append(f"0 op {call.name} {now} {length} {span} - - - {call.shapes} {call.dtypes}")
        if call.kernel:
            rows.append(f"0 api cudaLaunchKernel {now + 100} 500 {span + 1} - - - - -")
            rows.append(f"7 {call.kind} {call.kernel} {free_ns} {call.dur_ns} {span + 2} {span + 1} {span} {call.name} - -")
            free_ns += call.dur_ns
        span, now = span + 3, now + length
    if chip:
        tables["devices"] = f'device name kind memory_bytes\n0 "{chip}" gpu 80000000000'
    step = f"step start_ns end_ns\n0 0 {now}"
    return tiny.trace(spans="\n".join(rows), tracks=_TRACKS, steps=step, **tables).with_meta(framework=framework)
