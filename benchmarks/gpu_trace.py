"""Write a large GPU trace: a recorded Kineto trace, repeated with later times, higher ids and further step numbers.

python benchmarks/gpu_trace.py TRACE.json.gz MEGABYTES OUTPUT.json
"""

import gzip
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

_FIRST, _LAST = b'"traceEvents": [\n', b"\n  ],\n"
_EVENT = re.compile(rb"\n  \},(?=\n  \{)")
_TIME = re.compile(rb'"ts": (\d+)\.(\d{3})')
_DURATION = re.compile(rb'"dur": (\d+)\.(\d{3})')
_STEP = re.compile(rb"ProfilerStep#(\d+)")
_IDS = re.compile(rb'"(External id|correlation|Ev Idx|Sequence number|id)": (\d+)')
_STEP_EVENT = b'"cat": "user_annotation", "name": "ProfilerStep#'


def main() -> None:
    source, megabytes, output = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    head, _, rest = text.partition(_FIRST)
    body, _, tail = rest.rpartition(_LAST)
    draft = output.with_suffix(".draft")
    with draft.open("wb") as file:
        file.write(head + _FIRST)
        written = 0
        for part in _copies(body):
            file.write(part if not written else b",\n" + part)
            written += len(part)
            if written >= megabytes * 1_000_000:
                break
        file.write(_LAST + tail)
    draft.rename(output)


def _copies(body: bytes) -> Iterator[bytes]:
    """The events, then only those of the recording again, each time later by the length of the recording."""
    yield body
    events = [event for event in _EVENT.split(body) if b'"ph": "M"' not in event and b'"cat": "Trace"' not in event]
    repeated = b"\n  },".join(events)
    steps = [event for event in events if _STEP_EVENT in event]
    numbers = [int(step) for event in steps for step in _STEP.findall(event)]
    starts = [_picoseconds(_TIME, event) for event in steps]
    ends = [start + _picoseconds(_DURATION, event) for start, event in zip(starts, steps, strict=True)]
    length, count = max(ends) - min(starts), max(numbers) - min(numbers) + 1
    most = max(int(number) for _, number in _IDS.findall(body)) + 1
    copy = 0
    while True:
        copy += 1
        yield _shifted(repeated, copy * length, copy * most, copy * count)


def _picoseconds(pattern: re.Pattern[bytes], event: bytes) -> int:
    match = pattern.search(event)
    assert match is not None
    return int(match[1] + match[2])


def _shifted(events: bytes, time: int, ids: int, steps: int) -> bytes:
    def later(match: re.Match[bytes]) -> bytes:
        return b'"ts": %s' % str(Decimal(int(match[1] + match[2]) + time).scaleb(-3)).encode()

    events = _TIME.sub(later, events)
    events = _IDS.sub(lambda match: b'"%s": %d' % (match[1], int(match[2]) + ids if int(match[2]) else 0), events)
    return _STEP.sub(lambda match: b"ProfilerStep#%d" % (int(match[1]) + steps), events)


if __name__ == "__main__":
    main()
