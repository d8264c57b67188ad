"""What `stepscope run` does in each Python process of a job: finds the steps, records those asked for, listens for `stepscope attach`.

`startup/sitecustomize.py` calls install() before the program starts. Nothing heavy is imported then, and frameworks are touched only after
the program itself has imported them. An error here is one line on standard error, never the program's.

`process` is the job as this process sees it, `imports` how a framework is met, `calls` what is done to its functions; the others know one
framework each, and where a step of it ends.
"""

import json
import os
import sys
from pathlib import Path

from stepscope import telling
from stepscope.endings import before_end
from stepscope.running import imports, process

VARIABLE = "STEPSCOPE_RUN"  # the settings of the job, as JSON
# Programs that only start others. Their children inherit the settings.
_LAUNCHERS = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "msrun", "mindspore.parallel.cluster.run", "accelerate",
    "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch", "horovodrun", "pip", "jupyter",
}  # fmt: skip


def install() -> None:
    words = {Path(word).name for word in sys.orig_argv[1:4]} | set(sys.orig_argv[1:4])
    if not imports.watched() and not words & _LAUNCHERS:
        settings = json.loads(os.environ[VARIABLE])
        settings["first"] = settings.get("first") or os.getpid()  # of this Python and those that it starts, the first
        os.environ[VARIABLE] = json.dumps(settings)
        here = process.begin(settings)
        imports.watch()
        if here.settings.get("step_on"):
            here.name_steps(here.settings["step_on"])
        os.register_at_fork(after_in_child=here.forked)
        telling.listeners.append(here)
        before_end(here.finish)
        here.watch()
