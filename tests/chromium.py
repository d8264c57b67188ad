"""The browser of the browser tests: the system's Chromium, or else one that is installed here. `make test` runs this."""

import os
import shutil
import subprocess
import sys

_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
OPTIONS = [
    *("--no-sandbox", "--disable-dev-shm-usage"),  # containers have neither namespaces nor much shared memory
    # Without what the tests do not need, a page takes an eighth less of the processor.
    *("--disable-gpu", "--disable-extensions", "--disable-component-update", "--disable-background-networking"),
    "--disable-features=Translate,OptimizationHints,MediaRouter,WebUIOmniboxPopup",
]


def system() -> str | None:
    """Where the system's own is; None where there is none that starts."""
    return next((path for path in map(shutil.which, _NAMES) if path and _starts(path)), None)


def _starts(path: str) -> bool:
    """Ubuntu's `chromium-browser` may be a script that only says that there is a snap."""
    try:
        output = subprocess.run([path, "--version", *OPTIONS], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return output.returncode == 0 and "snap" not in output.stdout + output.stderr


def main() -> int:
    if found := system():
        print(f"The browser tests use {found}")
        return 0
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    ways = [[sys.executable, "-m", "playwright", "install", *(["--with-deps"] if root else []), "--only-shell", "chromium"]]
    if root and shutil.which("apt-get"):
        ways.append(
            ["sh", "-c", "apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium"]
        )
    for words in ways:
        print(f"Installing Chromium for the browser tests: {' '.join(words[:4])} ...", flush=True)
        if subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode == 0 and ("playwright" in words or system()):
            return 0
    print("No Chromium could be installed. Install one so that `chromium` is on the PATH; the browser tests fail without.", file=sys.stderr)
    return 0  # the other tests are worth running


if __name__ == "__main__":
    sys.exit(main())
