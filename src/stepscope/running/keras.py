"""Keras 3, on any of its backends: a step ends with a batch of fit, or with a call that trains on one."""

import importlib
from typing import Any

from stepscope.running.calls import outermost, wrap
from stepscope.running.process import here
from stepscope.running.tensorflow import gradients


def after(keras: Any) -> None:
    callbacks = importlib.import_module("keras.src.callbacks.callback_list")
    wrap(callbacks.CallbackList, "on_train_batch_end", after=lambda callbacks: here().border())
    wrap(keras.Model, "fit", around=lambda call: outermost.called(call, counts=False))
    wrap(keras.Model, "train_on_batch", around=outermost.called)
    base = importlib.import_module("keras.src.optimizers.base_optimizer").BaseOptimizer
    wrap(base, "apply", around_self=lambda optimizer, call: gradients.called(optimizer, call, applies=True))
