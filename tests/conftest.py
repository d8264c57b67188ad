"""Real data kept beside the project, for tests that want it and skip where it is absent."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("no shared data beside the project")
    return SHARED
