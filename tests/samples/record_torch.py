"""Makes chrome/torch-<version>/cpu_training.json.gz: a small real training on the CPU with everything that torch.profiler records."""

import gzip
import re
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 6 * 6, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = DataLoader(TensorDataset(torch.randn(64, 1, 8, 8), torch.randint(10, (64,))), batch_size=8)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3, repeat=1),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_flops=True,
    ) as profiler:
        for inputs, labels in batches:
            with torch.profiler.record_function("forward"):
                loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    folder = Path(__file__).parent / "chrome" / f"torch-{torch.__version__.split('+')[0]}"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        written = Path(temporary) / "trace.json"
        profiler.export_chrome_trace(str(written))
        text = written.read_text()
    # Where it was recorded is nobody's business.
    text = re.sub(r'"(host_name|traceName)": "[^"]*"', r'"\1": "sample"', text)
    text = re.sub(r'"[^"\n]*?/site-packages/', '"', text)
    text = re.sub(r'"/[^"\n]*?/(lib/python[\d.]+|samples)/', '"', text)
    (folder / "cpu_training.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
