"""MindSpore: a step ends with Model.train's step, or with the outermost call that holds an optimizer."""

import sys
from collections.abc import Callable
from typing import Any

from stepscope.endings import before_end
from stepscope.running import stock
from stepscope.running.calls import Leader, outermost, wrap
from stepscope.running.process import here


def after(mindspore: Any) -> None:
    from stepscope.collect import _mindspore_jit as jit
    from stepscope.collect import _mindspore_loop as loop
    from stepscope.collect import mindspore as collector
    from stepscope.collect import options

    here().seen.add("mindspore")
    loop.install()  # first, so that ours stand around the collector's: a recording ends after it has seen the end of the step
    # Before a graph is compiled or data is read, also of an idle job: whoever attaches to it wants its scopes and shapes.
    collector.prepare(options.parse(here().settings["options"]))
    modules, leader = sys.modules, Leader()

    def training(caller: Any, call: Callable[[], Any]) -> Any:
        """A call that trains. Of several optimizers or functions that take turns, the first counts."""
        result = outermost.called(call, counts=False)
        if not outermost.depth and leader.counts(caller):
            loop.marks_training_calls = True
            try:
                here().border()
            finally:
                loop.marks_training_calls = False
        return result

    manager = modules["mindspore.train.callback._callback"].CallbackManager
    wrap(manager, "on_train_step_end", after=lambda manager: here().border())
    model = modules["mindspore.train.model"].Model
    for name in ("train", "fit"):
        wrap(model, name, around=lambda call: outermost.called(call, counts=False))
    for module, name in (
        ("mindspore.nn.optim.optimizer", "Optimizer"),
        ("mindspore.experimental.optim.optimizer", "Optimizer"),
        ("mindspore.nn.wrap.cell_wrapper", "TrainOneStepCell"),
    ):
        if module in modules and hasattr(modules[module], name):
            wrap(getattr(modules[module], name), "__call__", around_self=training)
    for module in ("mindspore.graph.api", "mindspore.common.api"):
        executor = getattr(modules.get(module), "_JitExecutor", None)
        if executor is not None and "__call__" in vars(executor):
            wrap(
                executor,
                "__call__",
                around_self=lambda executor, call: training(executor.fn, call),
                when=lambda executor: jit.trains(executor.fn, executor.obj),
            )
            break
    dataset = modules.get("mindspore.dataset.engine.datasets")
    if dataset is not None:
        for name in ("create_dict_iterator", "create_tuple_iterator"):
            wrap(dataset.Dataset, name, before=lambda dataset: here().active())
    before_end(here().finish)  # before the framework's own exit handlers, which end what we record
    stock.start_by_variable(mindspore)
