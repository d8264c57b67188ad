"""`stepscope run` in each Python process of a job: detects the steps, records the requested ones, listens for `stepscope attach`.

`startup/sitecustomize.py` calls install() before the program starts. Nothing large is imported then, and a framework is touched only after
the program has imported it. An error here is one line on stderr and never reaches the program.

`process` is this process of the job, `imports` maps frameworks to our modules, `calls` wraps their functions; each of the other modules
knows one framework and where its steps end.
"""

import json
import os
import sys
from pathlib import Path

from stepscope.recording.hooks import imports, process
from stepscope.recording.process.runtime import runtime

VARIABLE = "STEPSCOPE_RUN"  # the settings of the job, as JSON
# Programs that only start others. Their children inherit the settings.
_LAUNCHERS = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "msrun", "mindspore.parallel.cluster.run", "accelerate",
    "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch", "horovodrun", "pip", "jupyter",
}  # fmt: skip


def install() -> None:
    """Once in a process: a second call has no effect."""
    words = {Path(word).name for word in sys.orig_argv[1:4]} | set(sys.orig_argv[1:4])
    if process.is_installed() or words & _LAUNCHERS:
        return
    settings = json.loads(os.environ[VARIABLE])
    settings["first"] = settings.get("first") or os.getpid()  # the first Python of this process and the ones that it starts
    os.environ[VARIABLE] = json.dumps(settings)
    job_process = process.install(settings)
    imports.install()
    if settings.get("step_on"):
        job_process.set_step_choice(settings["step_on"])
    runtime.listeners.append(job_process)
    runtime.before_exit(job_process.finish)
    job_process.start_timed()


def uninstall() -> None:
    """Remove all hooks and patches from the process."""
    process.uninstall()
    runtime.uninstall()
