"""Makes capture/stepscope-<version>/: what recording leaves where polars is not installed.

Of a plain Python loop and of PyTorch or, where TensorFlow is installed, of that.
"""

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import stepscope


def main() -> None:
    folder = Path(__file__).parent / "capture" / f"stepscope-{stepscope.__version__}"
    if importlib.util.find_spec("tensorflow"):
        _keep_tensorflow(folder / "tensorflow.capture")
        return
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
        _copy(capture, place)


def _keep_tensorflow(place: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        job = Path(__file__).parent.parent / "collect" / "tensorflow_job.py"
        subprocess.run([sys.executable, job, temporary], check=True)
        [capture] = Path(temporary).glob("*/raw")
        [file] = capture.rglob("*.xplane.pb")
        host = socket.gethostname()
        content = file.read_bytes().replace(host.encode(), b"h" * len(host))
        file.unlink()
        file.with_name("host.xplane.pb").write_bytes(content)
        _copy(capture, place)


def _copy(capture: Path, place: Path) -> None:
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
