"""`Profiler.offline_analyse`: captures become run folders, PROF directories get their results."""

from collections.abc import Sequence
from pathlib import Path

from stepscope.errors import StepscopeError, UsageError
from stepscope.model import captures
from stepscope.process.notices import say
from stepscope.recording.windows.window import wait_for_conversions


def analyse_offline(
    root: Path, *, pretty: bool, step_list: Sequence[int] | None, data_simplification: bool, processes: int | None = None
) -> list[Path]:
    """The results at or below a path, made in at most this many processes."""
    steps = checked_steps(step_list)
    for name, flag in (("pretty", pretty), ("data_simplification", data_simplification)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name} is {flag!r}; expected True or False")
    if not root.exists():
        raise UsageError(f"{root}: no such folder")
    from stepscope.io import store
    from stepscope.recording.conversion import prof_folders

    wait_for_conversions()  # of this program
    headers = sorted([root / captures.HEADER, *root.rglob(f"*{captures.SUFFIX}/{captures.HEADER}")])
    folders = [folder for folder in dict.fromkeys(file.parent for file in headers) if _is_capture(folder)]
    prof_directories = [] if root in folders else prof_folders.below(root)
    if not folders and not prof_directories:
        if runs := sorted(file.parent for file in root.rglob(store.RUN_JSON)):
            say(f"{root}: analysed already")
            return runs
        raise UsageError(f"{root}: neither a capture nor a PROF directory; open the files of other tools with stepscope.open")
    runs, failures = _convert_captures(folders, steps, keep=not data_simplification)
    requests = [
        prof_folders.Request(folder=str(folder), text=True, pretty=pretty, steps=steps, clear=data_simplification)
        for folder in prof_directories
    ]
    for result in prof_folders.each(requests, processes):
        if result.failed:
            failures.append(say(f"{result.folder}: {result.failed}"))
        else:
            runs.append(Path(result.folder) / prof_folders.OUTPUT)
    if failures and not runs:
        raise StepscopeError(failures[0])
    return sorted(runs)


def checked_steps(steps: Sequence[int] | None) -> list[int] | None:
    """`step_list` as a list."""
    if steps is None:
        return None
    numbers = list(steps) if isinstance(steps, (list, tuple, range, set)) else []
    if not numbers or not all(isinstance(step, int) and not isinstance(step, bool) for step in numbers):
        raise UsageError(f"step_list is {steps!r}; expected a list of step numbers")
    return numbers


def _is_capture(folder: Path) -> bool:
    return (folder / captures.HEADER).is_file() and not folder.name.startswith(".")


def _convert_captures(folders: list[Path], steps: list[int] | None, *, keep: bool) -> tuple[list[Path], list[str]]:
    """The run folders, and a line for each capture that could not be converted."""
    from stepscope.recording.conversion import convert

    runs, failures = [], []
    for folder in folders:
        try:
            if pid := captures.recorder(folder):
                raise StepscopeError(f"{folder}: process {pid} is still recording it; it can be opened as it is")
            runs.append(convert.convert(folder, steps=steps, keep=keep))
        except (OSError, ValueError, StepscopeError) as error:
            failures.append(say(f"{folder}: {error}" if str(folder) not in str(error) else str(error)))
    return runs, failures
