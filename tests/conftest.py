"""What all tests share: real data kept beside the project, and a cache that is not the user's."""

import os
import signal
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

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPSCOPE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("no shared data beside the project")
    return SHARED
