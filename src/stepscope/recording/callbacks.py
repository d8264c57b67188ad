"""Callbacks for MindSpore's `Model.train`: record from one step or epoch to another, or mark every step."""

import sys
from typing import Any

from stepscope.errors import UsageError
from stepscope.recording.profiler import Profiler


class TrainCallback:
    """A class that `Model.train` accepts: it becomes a child of `mindspore.Callback` when the first object is created, so that importing
    this module does not import MindSpore."""

    def __new__(cls, *args: Any, **choices: Any) -> Any:
        callback = getattr(sys.modules.get("mindspore"), "Callback", None)
        if callback is None or issubclass(cls, callback):
            return object.__new__(cls)
        return object.__new__(type(cls.__name__, (cls, callback), {"__module__": cls.__module__, "__doc__": cls.__doc__}))


class StopAtStep(TrainCallback):
    """Record the steps `start_step` to `stop_step`, both included; the first is 1. Further arguments are those of `Profiler`."""

    def __init__(self, start_step: int, stop_step: int, **choices: Any) -> None:
        _check("step", start_step, stop_step)
        self.start_step, self.stop_step = start_step, stop_step
        self.profiler = Profiler(**choices, start_profile=False)

    def on_train_step_begin(self, run_context: Any) -> None:
        number = run_context.original_args().cur_step_num
        if number == self.start_step:
            self.profiler.step_num = number
            self.profiler.start()

    def on_train_step_end(self, run_context: Any) -> None:
        number = run_context.original_args().cur_step_num
        if self.start_step <= number <= self.stop_step:
            self.profiler.step()
        if number == self.stop_step:
            self.profiler.analyse()

    def on_train_end(self, run_context: Any) -> None:
        self.profiler.analyse()


class StopAtEpoch(TrainCallback):
    """Record the epochs `start_epoch` to `stop_epoch`, both included; the first is 1. For data sinking, which hides the steps."""

    def __init__(self, start_epoch: int, stop_epoch: int, **choices: Any) -> None:
        _check("epoch", start_epoch, stop_epoch)
        self.start_epoch, self.stop_epoch = start_epoch, stop_epoch
        self.profiler = Profiler(**choices, start_profile=False)
        self._recording = False

    def on_train_epoch_begin(self, run_context: Any) -> None:
        args = run_context.original_args()
        if args.cur_epoch_num == self.start_epoch:
            self.profiler.step_num = args.cur_step_num + 1  # the steps of earlier epochs are over
            self.profiler.start()
            self._recording = True

    def on_train_step_end(self, run_context: Any) -> None:
        if self._recording:
            self.profiler.step()

    def on_train_epoch_end(self, run_context: Any) -> None:
        if run_context.original_args().cur_epoch_num == self.stop_epoch:
            self.on_train_end(run_context)

    def on_train_end(self, run_context: Any) -> None:
        self._recording = False
        self.profiler.analyse()


class MarkSteps(TrainCallback):
    """Mark every step of `Model.train` for a profiler, such as one with a schedule."""

    def __init__(self, profiler: Profiler) -> None:
        self.profiler = profiler

    def on_train_step_end(self, run_context: Any) -> None:
        self.profiler.step()


def _check(unit: str, first: int, last: int) -> None:
    for name, value in ((f"start_{unit}", first), (f"stop_{unit}", last)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{name} is {value!r}; expected a whole number, 1 or more")
    if last < first:
        raise UsageError(f"stop_{unit} is {last}, before start_{unit}, {first}")
