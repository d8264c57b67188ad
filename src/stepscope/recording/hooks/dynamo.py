"""PyTorch's compiler: the first function that it compiles may be the first work of the program."""

from typing import Any

from stepscope.recording.collectors.torch import optimizers
from stepscope.recording.hooks.torch import first_call


def before(dynamo: Any) -> None:
    first_call.unwrap()  # the compiler stores Module.__call__ while it is imported


def failed(dynamo: Any) -> None:
    first_call.wrap()


def after(dynamo: Any) -> None:
    first_call.wrap()
    optimizers.exclude_from_dynamo()
    dynamo.callback.on_compile_start(first_call.begin)
