"""PyTorch's compiler: the first function that it compiles may be the first work of the program."""

from typing import Any

from stepscope.collect import _torch_optimizers
from stepscope.running.torch import first_call


def before(dynamo: Any) -> None:
    first_call.step_back()  # it remembers Module.__call__


def failed(dynamo: Any) -> None:
    first_call.step_in()


def after(dynamo: Any) -> None:
    first_call.step_in()
    _torch_optimizers.show_dynamo()
    dynamo.callback.on_compile_start(first_call.begin)
