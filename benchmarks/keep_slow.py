"""What `keep_slow` costs: CPU time per step of a PyTorch job without a recording, recorded as a whole, and with keep_slow.

python benchmarks/keep_slow.py [--steps 2000] [--rounds 5]      the three take turns, each in a process of its own
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
# The factor is one that no step reaches: what is measured is the cost of recording and discarding.
WAYS = {"bare": None, "always": {"max_events": 1_000_000_000}, "keep_slow": {"keep_slow": 1000.0}}
# A transformer's block on small tensors: 190 operators in a step of 3 ms.
JOB = """
import json, sys, time, torch
from stepscope import Profiler
steps, options = int(sys.argv[1]), json.loads(sys.argv[2])
torch.set_num_threads(1)
block = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
adam = torch.optim.AdamW(block.parameters(), fused=True)
x = torch.randn(8, 16, 64)
def train(profiler):
    block(x).square().mean().backward()
    adam.step()
    adam.zero_grad()
    if profiler: profiler.step()
for _ in range(50): train(None)
profiler = Profiler(output_path=sys.argv[3], **options) if options is not None else None
for _ in range(50): train(profiler)
began = time.process_time()
for _ in range(steps): train(profiler)
print((time.process_time() - began) / steps)
if profiler: profiler.stop()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="measured steps of each process; default 2000")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each way; default 5")
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way in WAYS:
            seconds[way].append(_step_s(way, args.steps))
    bare = statistics.median(seconds["bare"])
    for way, values in seconds.items():
        middle = statistics.median(values)
        spread = f"{min(values) * 1e3:.3f} to {max(values) * 1e3:.3f}"
        print(f"{way:10} {middle * 1e3:6.3f} ms of CPU per step ({spread}), {middle / bare:.2f} x bare")


def _step_s(way: str, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", JOB, str(steps), json.dumps(WAYS[way]), folder]
        done = subprocess.run(words, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"})
        if "kept" in done.stderr:
            print(next(line for line in done.stderr.splitlines() if "kept" in line), file=sys.stderr)
    return float(done.stdout)


if __name__ == "__main__":
    main()
