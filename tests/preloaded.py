"""Programs that start in a copy of a process which has imported a framework already: PyTorch takes seconds to import, a copy milliseconds.

Only for programs that are not about their start, nor, but with `teardown`, about what happens after the handlers of atexit: there Python
takes apart all that was imported, which in a copy means to copy it first.
"""

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import programs

LIMIT_S = 900

# PyTorch imports its compiler when the first optimizer is made: that takes as long again.
MODULES = {"torch": ["numpy", "torch", "torch._dynamo", "torch.profiler"], "mindspore": ["numpy", "mindspore", "mindspore.dataset"]}
SERVER = """
import gc, importlib, json, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
threads = len(os.listdir("/proc/self/task"))
assert threads == 1, f"a copy would have one of {threads} threads"
gc.collect()
gc.freeze()
print("ready", flush=True)
while line := sys.stdin.readline():
    job = json.loads(line)
    if not (child := os.fork()):
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
# The copy goes on as the program, in its main module, so that it ends as the program would.
for number, name in enumerate(("/dev/null", job["out"], job["err"])):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
os.chdir(job["folder"])
os.environ.clear()
os.environ.update(job["environment"])
sys.argv = job["words"]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
__file__ = sys.argv[0]
teardown = job["teardown"]
for name in ("gc", "importlib", "json", "os", "sys", "name", "threads", "line", "job", "child", "number"):
    del globals()[name]
exec(compile(open(__file__, "rb").read(), __file__, "exec"))
if not teardown:
    import atexit, os, sys, threading
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
"""


def run(
    framework: str, folder: Path, *words: str, variables: dict[str, str] | None = None, teardown: bool = False, **at_start: str
) -> "subprocess.CompletedProcess[str]":
    """A script with its arguments, run in the folder to its end. Variables `at_start` are set before the framework is imported."""
    programs.needs(framework)
    if sys.platform == "linux":
        return _server(framework, tuple(sorted(at_start.items()))).run(folder, words, variables or {}, teardown)
    return programs.run_command(folder, sys.executable, *words, **at_start, **(variables or {}))


class _Server:
    def __init__(self, framework: str, at_start: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="stepscope-test-")
        self._at_start = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | at_start
        words = [sys.executable, "-c", SERVER, *MODULES[framework]]
        variables = programs.environment(Path(self._folder.name), **self._at_start)
        self._process = subprocess.Popen(
            words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._answer() == "ready"
        atexit.register(self._end)

    def run(self, folder: Path, words: tuple[str, ...], variables: dict[str, str], teardown: bool) -> "subprocess.CompletedProcess[str]":
        out, err = (Path(self._folder.name) / name for name in ("out", "err"))
        for file in (out, err):
            file.unlink(missing_ok=True)
        environment = programs.environment(folder, **self._at_start, **variables)
        job = {"folder": str(folder), "words": words, "environment": environment, "out": str(out), "err": str(err), "teardown": teardown}
        assert self._process.stdin
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return subprocess.CompletedProcess(words, int(self._answer()), out.read_text(), err.read_text())

    def _answer(self) -> str:
        assert self._process.stdout
        if not select.select([self._process.stdout], [], [], LIMIT_S)[0]:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.stdout.readline().strip()

    def _end(self) -> None:
        with self._process:  # its input ends, and so does it
            assert self._process.stdin
            self._process.stdin.close()
        self._folder.cleanup()


@functools.cache
def _server(framework: str, at_start: tuple[tuple[str, str], ...]) -> _Server:
    return _Server(framework, dict(at_start))
