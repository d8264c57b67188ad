"""Makes capture/stepscope-<version>/: what recording leaves where polars is not installed, of a plain Python loop and of PyTorch."""

import json
import shutil
import tempfile
import time
from pathlib import Path

import stepscope


def main() -> None:
    folder = Path(__file__).parent / "capture" / f"stepscope-{stepscope.__version__}"
    _keep(folder / "python.capture", _python, framework="python", host_interval_ms=5)
    _keep(folder / "torch.capture", _torch, framework="torch", record_shapes=True, profile_memory=True, host_interval_ms=5)


def _keep(place: Path, train: object, **options: object) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        profiler = stepscope.Profiler(output_path=temporary, **options)
        for number in range(4):
            train(number)  # type: ignore[operator]
            profiler.step()
        profiler.stop()
        [capture] = Path(temporary).glob("*.capture")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(capture, place)
    # Where it was recorded is nobody's business.
    header = json.loads((place / "capture.json").read_text())
    header["options"]["output_path"] = "data"
    (place / "capture.json").write_text(json.dumps(header, indent=1))


def _python(number: int) -> None:
    with stepscope.record_function("load"):
        time.sleep(0.002)
    with stepscope.record_function("train"), stepscope.record_function("forward"):
        sum(range(20_000 + number))


def _torch(number: int) -> None:
    import torch

    torch.manual_seed(number)
    layer = torch.nn.Linear(16, 4)
    layer(torch.randn(8, 16)).sum().backward()


if __name__ == "__main__":
    main()
