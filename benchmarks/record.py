"""Record a real PyTorch training run on the CPU as a Kineto trace of about the size asked for: record.py MEGABYTES OUTPUT.json"""

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset

_WIDTH, _HEADS, _BATCH = 64, 4, 8
_PILOT_STEPS = 4, 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("megabytes", type=int)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps = _steps_for(args.megabytes * 1_000_000)
    partial = args.output.with_name(f"{args.output.name}.partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    _record(steps, partial)
    partial.replace(args.output)
    print(f"{args.output.name}: {steps} steps, {args.output.stat().st_size / 1e6:.0f} MB")


def _steps_for(target_bytes: int) -> int:
    """How many steps fill the file: two short recordings give the bytes of a step and the bytes that every file has."""
    with tempfile.TemporaryDirectory() as folder:
        pilot = Path(folder) / "pilot.json"
        few, many = (_record(steps, pilot) for steps in _PILOT_STEPS)
    per_step = (many - few) / (_PILOT_STEPS[1] - _PILOT_STEPS[0])
    return max(1, round((target_bytes - few) / per_step) + _PILOT_STEPS[0])


def _record(steps: int, path: Path) -> int:
    """Train for one unrecorded and `steps` recorded steps; the size of the file written."""
    model = _Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = (steps + 1) * _BATCH
    loader = DataLoader(TensorDataset(torch.randn(samples, 3, 16, 16), torch.randint(10, (samples,))), batch_size=_BATCH, shuffle=True)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_flops=True,
    ) as profiler:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    return path.stat().st_size


class _Model(nn.Module):
    """A convolution that cuts an image into patches, two transformer layers over them, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Sequential(
            nn.Conv2d(3, _WIDTH, 3, padding=1), nn.BatchNorm2d(_WIDTH), nn.ReLU(), nn.Conv2d(_WIDTH, _WIDTH, 4, stride=4)
        )
        layer = nn.TransformerEncoderLayer(_WIDTH, _HEADS, 2 * _WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(_WIDTH, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        return self.classifier(self.encoder(tokens).mean(1))


if __name__ == "__main__":
    main()
