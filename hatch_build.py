"""Build step: compiles the C code of `process/compiled` where there is a compiler. Without one, the package is complete but slower."""

import importlib.util
import os
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = Path("stepscope", "process", "compiled")
# A platform of zig, such as aarch64-linux-gnu.2.17, for a wheel for another machine or for older systems.
TARGET = "STEPSCOPE_WHEEL_TARGET"


class CompiledHook(BuildHookInterface[Any]):
    """Editable installs get the library in the source folder, wheels from a temporary one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = _library(Path(self.root, "src", COMPILED, "library.py"))
        if version == "editable":
            if reason := library.build(library.FILE):
                self.app.display_warning(f"The compiled code was not built ({reason}): Python does its work, slower")
            return
        target = os.environ.get(TARGET)
        self._folder = tempfile.TemporaryDirectory(prefix="stepscope.")
        file = Path(self._folder.name, library.FILE.name)
        if reason := library.build(file, target):
            if target:
                raise RuntimeError(f"{TARGET}={target}: {reason}")
            return
        build_data["force_include"][str(file)] = str(COMPILED / file.name)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(target)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()


def _library(file: Path) -> ModuleType:
    """The module that builds the library: the package around it needs libraries that a build does not have."""
    specification = importlib.util.spec_from_file_location("compiled_library", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def _platform(target: str | None) -> str:
    if target is None:
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    machine, _, libc = target.partition("-linux-gnu.")
    return f"manylinux_{libc.replace('.', '_')}_{machine}"
