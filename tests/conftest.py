"""What all tests share: real data kept beside the project, and a cache that is not the user's."""

import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no reason to fail, and what passed once passes again. STEPSCOPE_EXPLORE=1 tries other examples each time.
settings.register_profile(
    "stepscope", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="STEPSCOPE_EXPLORE" not in os.environ
)
settings.load_profile("stepscope")

# A shell that starts the tests in the background has them ignore Ctrl-C, and so everything they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hundreds of tests start stepscope: without its bytecode beside it each of these processes would compile it anew, for a third of a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

TESTS = Path(__file__).parent
ROOT = TESTS.parent
# Folders and files that `make test-fast` leaves out: they start many processes, or read each sample for each law. They run first, those
# with tests of many seconds before all others: the last tests of a run are short, so that no process waits long for the other one.
SLOW = {
    *("cluster", "collect", "fuzzing", "robustness", "soak", "web"),
    *("test_chrome_odd_values", "test_cli", "test_device_steps", "test_docs", "test_export_mindinsight", "test_exporters", "test_gaps"),
    *("test_msprof_back", "test_msprof_command", "test_msprof_export", "test_msprof_output", "test_packaging", "test_partial_jobs"),
    *("test_diagnosis", "test_mcp"),
    *("test_queries", "test_conversion", "test_samples", "test_timeline_beside_ascend", "test_timelines", "test_xplane"),
}
LONGEST = {
    "soak",
    "collect",
    "test_everywhere",
    "test_bad_input",
    "test_compare_checkouts",
    "test_device_steps",
    "test_packaging",
    "test_ray",
}
FRAMEWORKS = ("torch", "jax", "mindspore", "tensorflow")
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def isolated_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache and a folder for the sockets of `stepscope attach` that belong to this worker alone."""
    # In the temporary folder itself: the folders of pytest-xdist have paths too long for the address of a Unix socket.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="stepscope-") as sockets:
        patch.setenv("STEPSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("STEPSCOPE_JOBS", f"{sockets}/jobs")
        patch.setenv("STEPSCOPE_TEST_SOCKETS", sockets)  # for programs.socket_folder
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
        if SLOW & places(item):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: (not LONGEST & places(item), not SLOW & places(item)))  # within a file they keep their order


def places(item: pytest.Item) -> set[str]:
    """The folders and the file of a test."""
    inside = item.path.is_relative_to(TESTS)
    return {part.removesuffix(".py") for part in item.path.relative_to(TESTS).parts} if inside else set()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each framework whose tests were skipped, and why: among hundreds of lines of single skips nobody sees that."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if reason.split(":")[0] in FRAMEWORKS:
            reasons[reason] += 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} tests skipped: {reason}", yellow=True)


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("no shared data beside the project")
    return SHARED
