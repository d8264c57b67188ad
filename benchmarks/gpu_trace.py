"""Repeat a real GPU trace, with shifted times and numbers, to about a size: gpu_trace.py MEGABYTES OUTPUT.json [SOURCE.json.gz]

The text stays as PyTorch wrote it, line breaks and blanks included.
"""

import argparse
import gzip
import re
from decimal import Decimal
from pathlib import Path

SAMPLE = Path(__file__).resolve().parents[1] / "tests" / "samples" / "chrome" / "torch-2.11" / "h200_modules.json.gz"
_OPENING = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_CLOSING = re.compile(rb"\s*\]\s*,?\s*\"traceName\"")
_NUMBERED = rb'"(?:correlation|External id|id|Python id|Python parent id|Ev Idx|Sequence number)"\s*:\s*'
_SHIFTED = re.compile(rb'("ts"\s*:\s*)(\d+\.\d+)|(' + _NUMBERED + rb")(\d+)|(ProfilerStep#)(\d+)")
_NS = 1000  # in a microsecond, the unit of the text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int)
    parser.add_argument("output", type=Path)
    parser.add_argument("source", type=Path, nargs="?", default=SAMPLE)
    args = parser.parse_args()
    repeat_trace(args.source, args.megabytes * 1_000_000, args.output)


def repeat_trace(source: Path, size: int, output: Path) -> None:
    text = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    opening = _OPENING.search(text)
    closing = next(_CLOSING.finditer(text, opening.end())) if opening else None
    if opening is None or closing is None:
        raise SystemExit(f"{source}: not a trace of PyTorch")
    events = text[opening.end() : closing.start()]
    matches = list(_SHIFTED.finditer(events))
    times = [int(Decimal(match[2].decode()) * _NS) for match in matches if match[2]]
    numbers = [int(match[4]) for match in matches if match[4]]
    steps = {int(match[6]) for match in matches if match[6]}
    period = (max(times) - min(times)) * 11 // 10
    distance = 10 ** len(str(max(numbers)))  # no number of one repetition is one of another

    partial = output.with_name(f"{output.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    with partial.open("wb") as file:
        file.write(text[: opening.end()])
        count = max(1, size // len(events))
        for repetition in range(count):

            def shift(match: re.Match[bytes], repetition: int = repetition) -> bytes:
                if match[1]:
                    time = int(Decimal(match[2].decode()) * _NS) + repetition * period
                    return b"%s%d.%03d" % (match[1], time // _NS, time % _NS)
                if match[3]:
                    return b"%s%d" % (match[3], int(match[4]) + repetition * distance)
                return b"%s%d" % (match[5], int(match[6]) + repetition * len(steps))

            file.write(_SHIFTED.sub(shift, events))
            file.write(b",\n  " if repetition < count - 1 else b"")
        file.write(text[closing.start() :])
    partial.replace(output)


if __name__ == "__main__":
    main()
