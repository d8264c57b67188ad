"""Keras 3 with any backend: a step ends with a batch of fit, or with a call that trains on one batch."""

import importlib
from typing import Any

from stepscope.recording.hooks.calls import outermost, wrap
from stepscope.recording.hooks.process import this_process
from stepscope.recording.hooks.tensorflow import gradients


def after(keras: Any) -> None:
    callbacks = importlib.import_module("keras.src.callbacks.callback_list")
    wrap(callbacks.CallbackList, "on_train_batch_end", after=lambda callbacks: this_process().end_step())
    wrap(keras.Model, "fit", around=lambda model, call: outermost.call(call, ends_step=False))
    wrap(keras.Model, "train_on_batch", around=lambda model, call: outermost.call(call))
    base = importlib.import_module("keras.src.optimizers.base_optimizer").BaseOptimizer
    wrap(base, "apply", around=lambda optimizer, call: gradients.call(optimizer, call, applies=True))
