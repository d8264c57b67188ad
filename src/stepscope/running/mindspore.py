"""MindSpore: a step ends with Model.train's step, or with the outermost call that holds an optimizer."""

import contextlib
import sys
import weakref
from typing import Any

from stepscope.endings import before_end
from stepscope.running import stock
from stepscope.running.calls import outermost, wrap
from stepscope.running.process import here


def after(mindspore: Any) -> None:
    from stepscope.collect import _mindspore_loop as loop
    from stepscope.collect import mindspore as collector
    from stepscope.collect import options

    here().seen.add("mindspore")
    loop.install()  # first, so that ours stand around the collector's: a recording ends after it has seen the end of the step
    # Before a graph is compiled or data is read, also of an idle job: whoever attaches to it wants its scopes and shapes.
    collector.prepare(options.parse(here().settings["options"]))
    modules = sys.modules
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
            wrap(getattr(modules[module], name), "__call__", around=outermost.called)
    for module in ("mindspore.graph.api", "mindspore.common.api"):
        executor = getattr(modules.get(module), "_JitExecutor", None)
        if executor is not None and "__call__" in vars(executor):
            wrap(executor, "__call__", around=outermost.called, when=lambda executor: _trains(getattr(executor, "fn", None)))
            break
    dataset = modules.get("mindspore.dataset.engine.datasets")
    if dataset is not None:
        for name in ("create_dict_iterator", "create_tuple_iterator"):
            wrap(dataset.Dataset, name, before=lambda dataset: here().active())
    before_end(here().finish)  # before the framework's own exit handlers, which end what we record
    stock.start_by_variable(mindspore)


def _trains(function: Any, depth: int = 2) -> bool:
    """A compiled function that uses an optimizer, itself or through a function that it calls, is a training step."""
    try:
        known = _training.get(function)
        if known is None:
            known = _training[function] = _uses_optimizer(function, depth)
    except TypeError:  # no function that could be looked into or remembered
        return False
    return known


_training: "weakref.WeakKeyDictionary[Any, bool]" = weakref.WeakKeyDictionary()


def _uses_optimizer(function: Any, depth: int) -> bool:
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    optimizers = tuple(
        getattr(sys.modules[module], "Optimizer")  # noqa: B009
        for module in ("mindspore.nn.optim.optimizer", "mindspore.experimental.optim.optimizer")
        if module in sys.modules
    )
    values = [function.__globals__.get(name) for name in code.co_names]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not bound yet
            values.append(cell.cell_contents)
    values.append(getattr(function, "__self__", None))
    return any(isinstance(value, optimizers) for value in values) or (
        depth > 0 and any(_uses_optimizer(value, depth - 1) for value in values if callable(value) and hasattr(value, "__code__"))
    )
