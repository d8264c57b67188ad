"""PyTorch: a step ends when the optimizer has stepped."""

import sys
from typing import Any

from stepscope.endings import before_end
from stepscope.running import stock
from stepscope.running.calls import Leader, wrap
from stepscope.running.process import here


def after(torch: Any) -> None:
    here().seen.add("torch")
    leader = Leader()
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(lambda optimizer, args, kwargs: leader.stepped(optimizer))

    def first_call(module: Any, args: Any) -> None:
        handle.remove()
        here().active()

    handle = torch.nn.modules.module.register_module_forward_pre_hook(first_call)
    wrap(sys.modules["torch.autograd.profiler"].profile, "_prepare_trace", before=lambda profile: here().own_profiler())
    before_end(here().finish)  # before the framework's own exit handlers, which end what we record
    stock.start_by_variable(torch)
