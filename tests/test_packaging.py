"""What a user gets: the wheel, in an environment that has nothing else."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import stepscope

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment into which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    _run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", wheel)
    return folder / "bin"


def test_the_wheel_holds_every_module_the_types_and_the_licence(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert modules <= inside
    assert "stepscope/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)


def test_the_wheel_holds_nothing_but_the_package(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"stepscope", f"stepscope-{stepscope.__version__}.dist-info"}


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_the_wheel_holds_the_compiled_code_for_every_python_of_its_platform(wheel: Path) -> None:
    assert "stepscope/process/compiled/_compiled.so" in zipfile.ZipFile(wheel).namelist()
    assert "-py3-none-linux_" in wheel.name or "-py3-none-macosx_" in wheel.name


def test_without_a_compiler_the_wheel_is_built_for_every_platform(tmp_path: Path) -> None:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
        ROOT,
    ]
    _run(*command, PATH=str(tmp_path), CC=str(tmp_path / "none"))
    assert [path.name for path in tmp_path.glob("*.whl")] == [f"stepscope-{stepscope.__version__}-py3-none-any.whl"]


def test_the_installed_command_says_its_version(installed: Path) -> None:
    assert stepscope.__version__ in _run(installed / "stepscope", "--version")


def test_the_demo_runs_where_only_the_wheel_is_installed(installed: Path, tmp_path: Path) -> None:
    output = _run(installed / "stepscope", "demo", cwd=tmp_path, STEPSCOPE_CACHE=str(tmp_path / "cache"))
    assert "H200" in output
    assert [path.name for path in tmp_path.iterdir()] in ([], ["cache"]), "the demo leaves nothing where it was started"


def test_the_package_imports_where_no_other_library_is(wheel: Path) -> None:
    """How long that takes decides no test; `pytest -s` prints it."""
    code = "import time; start = time.perf_counter(); import stepscope; print(f'{(time.perf_counter() - start) * 1000:.1f} ms')"
    print("import stepscope:", _run(sys.executable, "-S", "-c", code, PYTHONPATH=str(wheel)))


def _run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        cwd=cwd,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "CI": "true"} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
