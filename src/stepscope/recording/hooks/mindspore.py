"""MindSpore: a step ends with a step of Model.train, or with the outermost call that runs an optimizer."""

import sys
from collections.abc import Callable
from typing import Any

from stepscope.recording.hooks import stock_profilers
from stepscope.recording.hooks.calls import Leader, outermost, wrap
from stepscope.recording.hooks.process import this_process
from stepscope.recording.process.runtime import runtime


def after(mindspore: Any) -> None:
    from stepscope.recording.collectors import options
    from stepscope.recording.collectors.mindspore import collector, loop

    this_process().frameworks.add("mindspore")
    loop.install()  # first, so that ours are outside: a recording ends after its collector has seen the end of the step
    # Before a graph is compiled or data is read, also in an idle job: `stepscope attach` needs its scopes and shapes.
    collector.prepare(options.parse(this_process().settings["options"]))
    _wrap_training(sys.modules)
    dataset = sys.modules.get("mindspore.dataset.engine.datasets")
    if dataset is not None:
        for name in ("create_dict_iterator", "create_tuple_iterator"):
            wrap(dataset.Dataset, name, before=lambda dataset: this_process().begin_work())
    runtime.before_exit(this_process().finish)  # before the exit handlers of the framework, which end the recording
    stock_profilers.start_by_variable(mindspore)


def _wrap_training(modules: dict[str, Any]) -> None:
    from stepscope.recording.collectors.mindspore import jit, loop

    leader = Leader()

    def train(caller: Any, call: Callable[[], Any]) -> Any:
        """A call that trains. Of several optimizers or functions that take turns, the first ends the step."""
        result = outermost.call(call, ends_step=False)
        if not outermost.depth and leader.ends_step(caller):
            loop.marks_training_calls = True
            try:
                this_process().end_step()
            finally:
                loop.marks_training_calls = False
        return result

    manager = modules["mindspore.train.callback._callback"].CallbackManager
    wrap(manager, "on_train_step_end", after=lambda manager: this_process().end_step())
    model = modules["mindspore.train.model"].Model
    for name in ("train", "fit"):
        wrap(model, name, around=lambda model, call: outermost.call(call, ends_step=False))
    for module, name in (
        ("mindspore.nn.optim.optimizer", "Optimizer"),
        ("mindspore.experimental.optim.optimizer", "Optimizer"),
        ("mindspore.nn.wrap.cell_wrapper", "TrainOneStepCell"),
    ):
        if module in modules and hasattr(modules[module], name):
            wrap(getattr(modules[module], name), "__call__", around=train)
    for module in ("mindspore.graph.api", "mindspore.common.api"):
        executor = getattr(modules.get(module), "_JitExecutor", None)
        if executor is not None and "__call__" in vars(executor):
            wrap(
                executor,
                "__call__",
                around=lambda executor, call: train(executor.fn, call),
                when=lambda executor: jit.trains(executor.fn, executor.obj),
            )
            break
