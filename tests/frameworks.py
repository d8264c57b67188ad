"""Install the frameworks that tests record with: `python tests/frameworks.py torch jax`. `make test` runs this for FRAMEWORKS.

TensorFlow needs other versions of shared packages than the rest, so it has an environment of its own and is not installed by this file.
"""

import subprocess
import sys
import urllib.error
import urllib.request

# Framework: (extra of pyproject.toml, what pip downloads on Linux x86-64 where nothing is cached).
INSTALLED_WITH_EXTRA = {
    "torch": ("test-torch", "PyTorch: 0.2 GB as a CPU build, 3 GB with CUDA"),
    "jax": ("test-jax", "JAX: 0.1 GB"),
    "mindspore": ("test-mindspore", "MindSpore: 0.8 GB"),
}
NAMES = (*INSTALLED_WITH_EXTRA, "tensorflow")
# PyTorch's public index of CPU builds: the default index has only builds with CUDA for Linux, and no test needs a GPU.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PROBE_S = 5


def cpu_index_options() -> list[str]:
    """The pip options that prefer a CPU build of PyTorch; none where the index does not answer, as behind a mirror."""
    if sys.platform != "linux":
        return []  # the default index serves CPU builds
    try:
        with urllib.request.urlopen(f"{TORCH_CPU_INDEX}/torch/", timeout=PROBE_S):
            return ["--extra-index-url", TORCH_CPU_INDEX]
    except (OSError, urllib.error.URLError):
        return []


def install(framework: str) -> int:
    extra, download = INSTALLED_WITH_EXTRA[framework]
    options = cpu_index_options() if framework == "torch" else []
    index = TORCH_CPU_INDEX if options else "the default package index"
    print(f"Installing {download}, from {index}. To leave it out: make test FRAMEWORKS='{without(framework)}'", flush=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--constraint", "constraints.txt"]
    return subprocess.run([*command, *options, "--no-build-isolation", "--editable", f".[{extra}]"], check=False).returncode


def without(framework: str) -> str:
    return " ".join(name for name in NAMES if name != framework)


def main(frameworks: list[str]) -> int:
    if unknown := sorted(set(frameworks) - set(INSTALLED_WITH_EXTRA)):
        print(f"unknown framework: {', '.join(unknown)}. Choose from {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    return max((install(framework) for framework in frameworks), default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
