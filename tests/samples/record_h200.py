"""Makes recordings of GPT-2 and ResNet-50 on an NVIDIA H200: the demo's run, run/stepscope-<version>/resnet50_h200, torch's summaries.

Where the GPU is: `record_h200.py gpt2 FOLDER`, `record_h200.py resnet50 FOLDER`; numpy and PyTorch are enough. Then, where polars is:
`record_h200.py keep FOLDER`.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import stepscope

SAMPLES = Path(__file__).parent
STEPS = 4


def main(what: str, folder: Path) -> None:
    if what == "keep":
        keep(folder / "gpt2.capture", Path(stepscope.__file__).parent / "data" / "gpt2_h200")
        keep(folder / "resnet50.capture", SAMPLES / "run" / f"stepscope-{stepscope.__version__}" / "resnet50_h200")
        return
    folder.mkdir(parents=True, exist_ok=True)
    record({"gpt2": gpt2, "resnet50": resnet50}[what](), folder / what)


def record(steps: Iterator[None], place: Path) -> None:
    """Four steps, once everything is warm, as a capture; and what torch.profiler itself counts in them."""
    choices: dict[str, Any] = {"record_shapes": True, "profile_memory": True, "with_flops": True, "pcie": True, "hbm_ddr": True}
    plan = stepscope.schedule(wait=6, warmup=2, active=STEPS, repeat=1)
    with stepscope.Profiler(output_path=place.parent / "raw", schedule=plan, host_interval_ms=20, **choices) as profiler:
        for _ in range(8 + STEPS):
            next(steps)
            profiler.step()
            if profiler._windows.current:
                torchs = next(one.collector for one in profiler._windows.current._running if hasattr(one, "collector")).profiler  # type: ignore[attr-defined]
    profiler.run.rename(place.with_suffix(".capture"))  # type: ignore[union-attr]
    rows = [
        {
            "name": row.key,
            "device": row.device_type.name,
            "annotation": getattr(row, "is_user_annotation", False),
            "calls": row.count,
            "total_us": row.cpu_time_total,
            "self_us": row.self_cpu_time_total,
            "device_us": row.self_device_time_total,
            "flops": row.flops,
        }
        for row in torchs.key_averages()
    ]
    place.with_suffix(".summary.json").write_text(json.dumps(rows))


def keep(capture: Path, place: Path) -> None:
    """The capture as a run folder, with torch's summary in summaries/. Where it was recorded is nobody's business."""
    from stepscope.recording.conversion import convert

    copy = shutil.copytree(capture, place.with_name(f"{place.name}.capture"))
    header = json.loads((copy / "capture.json").read_text())
    header["options"]["output_path"] = "data"
    (copy / "capture.json").write_text(json.dumps(header))
    shutil.rmtree(place, ignore_errors=True)
    convert.convert(copy)
    described = json.loads((place / "run.json").read_text())
    (place / "run.json").write_text(json.dumps(described | {"source": copy.name}, indent=2) + "\n")
    (SAMPLES / "summaries").mkdir(exist_ok=True)
    rows = json.loads(capture.with_suffix(".summary.json").read_text())
    (SAMPLES / "summaries" / f"{place.name}.json").write_text("[" + ",\n".join(map(json.dumps, rows)) + "]\n")


def gpt2() -> Iterator[None]:
    """GPT-2 small, eight texts of 1,024 tokens at a time, in bfloat16."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads, self.c_attn, self.c_proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.c_attn(x).split(c, 2))
            return self.c_proj(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))

    class MLP(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            return self.c_proj(functional.gelu(self.c_fc(x), approximate="tanh"))

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width), MLP(width)

        def forward(self, x: Any) -> Any:
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, vocabulary: int = 50257, context: int = 1024) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            self.lm_head.weight = self.wte.weight

        def forward(self, tokens: Any) -> Any:
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.h:
                x = block(x)
            return self.lm_head(self.ln_f(x))

    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)

    def loss(batch: Any) -> Any:
        tokens = batch.cuda(non_blocking=True)
        return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return _trained(loss, optimizer, lambda number: torch.randint(50257, (1025,)), batch=8, workers=2)


def resnet50() -> Iterator[None]:
    """ResNet-50, 64 images at a time, in bfloat16 and channels last."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Bottleneck(nn.Module):
        def __init__(self, inner: int, outer: int, middle: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inner, middle, 1, bias=False), nn.BatchNorm2d(middle)
            self.conv2, self.bn2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle)
            self.conv3, self.bn3 = nn.Conv2d(middle, outer, 1, bias=False), nn.BatchNorm2d(outer)
            self.relu, self.downsample = nn.ReLU(inplace=True), None
            if stride != 1 or inner != outer:
                self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

        def forward(self, x: Any) -> Any:
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            return self.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))

    class ResNet50(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
            self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
            inner = 64
            for number, (blocks, middle, stride) in enumerate(((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)), 1):
                layer = []
                for block in range(blocks):
                    layer.append(Bottleneck(inner, 4 * middle, middle, stride if block == 0 else 1))
                    inner = 4 * middle
                setattr(self, f"layer{number}", nn.Sequential(*layer))
            self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(2048, 1000)

        def forward(self, x: Any) -> Any:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(torch.flatten(self.avgpool(x), 1))

    model = ResNet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def loss(batch: Any) -> Any:
        images, labels = batch
        images = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        return functional.cross_entropy(model(images), labels.cuda(non_blocking=True))

    return _trained(loss, optimizer, lambda number: (torch.rand(3, 224, 224), number % 1000), batch=64, workers=8)


def _trained(loss: Callable[[Any], Any], optimizer: Any, example: Callable[[int], Any], *, batch: int, workers: int) -> Iterator[None]:
    """A step of training with each `next`."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Examples(Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 100 * batch

        def __getitem__(self, number: int) -> Any:
            return example(number)

    for given in DataLoader(Examples(), batch, num_workers=workers, pin_memory=True):
        with torch.autocast("cuda", torch.bfloat16):
            found = loss(given)
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
