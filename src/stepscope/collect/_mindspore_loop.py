"""The moments of a MindSpore training loop that Python passes through: steps of Model.train, batches, gradients, optimizers, graphs.

The wrappers are put in place once and stay: while nothing records, they cost an empty loop. They are no Cell hooks, which the
graph compiler would try to compile, but stand around methods that only the interpreter calls.
"""

import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from stepscope import clock
from stepscope.collect import _mindspore_jit as jit

active: list["Moments"] = []  # those that record now
Operator = tuple[str, int, int | None]  # of an input pipeline: type, workers, the number of the one that takes its rows
marks_training_calls = False  # True while `stepscope run` marks the end of a step where a training call ended


class Step:
    """A step that Model.train or Model.eval is in."""

    def __init__(self, number: int, sunk: int, start_ns: int) -> None:
        self.number, self.sunk, self.start_ns = number, sunk, start_ns
        self.begun_ns = clock.now_ns()  # its data is there
        self.running_ns: int | None = None  # when the callbacks of its beginning were through


class Moments:
    """What a window saw of the loop."""

    def __init__(self, border: Callable[[], bool]) -> None:
        self.start_ns = clock.now_ns()
        self.began_within = False  # a step
        self.border = border  # to be called where a step ends; whether it waited for all kernels
        self.steps: list[tuple[str, int, int, int, int]] = []  # phase, number, iterations in it, start, end
        self.ranges: list[tuple[str, str, int, int, int]] = []  # kind, name, start, end, thread
        # What the loop itself called: an optimizer, or a cell or compiled function that calls one. Start, end, number of it.
        self.updates: list[tuple[int, int, int]] = []
        self.graphs: list[tuple[str, int, int, bool, int, int, int]] = []  # calls: function, its number, graph, drained, start, end, thread
        self.operators: list[Operator] = []  # of the input pipeline that was read first
        self.batches: list[tuple[int, int]] = []  # of that one: when each was there, and how long it was waited for
        self.other_pipelines = False  # others were read, too
        self.pipeline_problem = ""

    def step_over(self, phase: str, step: Step, end_ns: int) -> None:
        # A window that was opened while the network ran has not seen that step whole.
        if step.running_ns is not None and self.start_ns <= step.running_ns:
            start = max(step.start_ns, self.start_ns)
            # Later than its end: it was taken before the clock of this recording was set to the wall clock.
            self.steps.append((phase, step.number, step.sunk, start if start <= end_ns else self.start_ns, end_ns))
            self.began_within |= step.begun_ns <= self.start_ns

    def range_over(self, kind: str, name: str, start_ns: int, update: int | None = None) -> None:
        end = clock.now_ns()
        if start_ns < self.start_ns:
            return
        if update is not None:
            self.border()
            end = clock.now_ns()
            self.updates.append((start_ns, end, update))
        if name:
            self.ranges.append((kind, name, start_ns, end, threading.get_native_id()))

    def graph_over(self, function: str, number: int, phase: str, start_ns: int, update: bool) -> None:
        """A call of a compiled graph returns when its kernels have been enqueued: at the end of a step they are waited for."""
        end, drained = clock.now_ns(), False
        if start_ns < self.start_ns:
            return
        if update:
            drained = self.border()
            end = clock.now_ns()
            self.updates.append((start_ns, end, number))
        self.graphs.append((function, number, jit.graph_number(phase), drained, start_ns, end, threading.get_native_id()))

    def batch_over(self, pipeline: Any, start_ns: int) -> None:
        end = clock.now_ns()
        if start_ns < self.start_ns:
            return
        operators = _operators(pipeline)
        self.operators = self.operators or operators
        if operators == self.operators:
            self.batches.append((end, end - start_ns))
        else:
            self.other_pipelines = True

    def close(self) -> None:
        """A window that is closed from within an optimizer's call, by whoever counts these calls, has seen it whole."""
        active.remove(self)
        under_way = getattr(_calls, "update", None)
        if under_way:
            name, start, number = under_way
            self.range_over("annotation", name, start, update=number)


def install() -> None:
    """Wrap them, once in a process."""
    global _installed  # noqa: PLW0603 - classes are wrapped once in a process
    if _installed:
        return
    _installed = True
    from mindspore import nn
    from mindspore.dataset.engine.datasets import _ToDevice
    from mindspore.dataset.engine.iterators import Iterator
    from mindspore.experimental.optim import Optimizer
    from mindspore.graph.api import _CellGraphExecutor, _JitExecutor, _PyNativeExecutor
    from mindspore.train.callback._callback import CallbackManager

    for phase in ("train", "eval"):
        _wrap(CallbackManager, f"on_{phase}_epoch_begin", _epoch_begin, phase)
        _wrap(CallbackManager, f"on_{phase}_step_begin", _step_begin, phase)
        _wrap(CallbackManager, f"on_{phase}_step_end", _step_end, phase)
    for kind in (Iterator, _ToDevice):
        _wrap(kind, "__init__", _created)
    _wrap(Iterator, "__next__", _next)
    _wrap(Iterator, "__next__", _ranged, "data", "next batch")
    _wrap(_PyNativeExecutor, "grad", _ranged, "annotation", "backward")
    for kind in (nn.Optimizer, Optimizer, nn.TrainOneStepCell):
        _wrap(kind, "__call__", _update)  # each inherits the __call__ of Cell, and gets one of its own
    _wrap(_JitExecutor, "compile", _compiled)
    _wrap(_JitExecutor, "__call__", _jitted)
    _wrap(_CellGraphExecutor, "_exec_pip", _cell_graph)


def adopt_step() -> None:
    """The step that is beginning, where it began before install(): a profiler may be made in one of the callbacks of its beginning."""
    from mindspore.train.callback._callback import CallbackManager

    phases = {inspect.unwrap(getattr(CallbackManager, f"on_{phase}_step_begin")).__code__: phase for phase in ("train", "eval")}
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        phase = phases.get(frame.f_code)
        if phase and phase not in _steps:
            step = _steps[phase] = _step(frame.f_locals["run_context"], clock.now_ns())
            step.begun_ns, step.running_ns = 0, clock.now_ns()


_installed = False
pipelines: list["weakref.ref[Any]"] = []  # every one created since install(), in order
_described: "weakref.WeakKeyDictionary[Any, list[Operator]]" = weakref.WeakKeyDictionary()
_steps: dict[str, Step] = {}  # by phase: the step that is under way
_edges: dict[str, int] = {}  # by phase: when the next step begins to count: it has its data to wait for
_calls = threading.local()


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any], *words: str) -> None:
    original = getattr(owner, name)
    setattr(owner, name, wraps(original)(wrapper(original, *words)))


def _epoch_begin(original: Any, phase: str) -> Any:
    def epoch_begin(self: Any, run_context: Any) -> Any:
        _edges[phase] = clock.now_ns()
        return original(self, run_context)

    return epoch_begin


def _step_begin(original: Any, phase: str) -> Any:
    def step_begin(self: Any, run_context: Any) -> Any:
        step = _steps[phase] = _step(run_context, _edges.pop(phase, clock.now_ns()))
        result = original(self, run_context)
        step.running_ns = clock.now_ns()
        return result

    return step_begin


def _step(run_context: Any, start_ns: int) -> Step:
    said = run_context.original_args()
    return Step(int(said.cur_step_num), int(said.get("sink_size", 1)) if said.get("dataset_sink_mode") else 1, start_ns)


def _step_end(original: Any, phase: str) -> Any:
    def step_end(self: Any, run_context: Any) -> Any:
        step = _steps.pop(phase, None)
        for moments in active:
            moments.border()
        _edges[phase] = now = clock.now_ns()
        if step:
            for moments in active:
                moments.step_over(phase, step, now)
        return original(self, run_context)

    return step_end


def _created(original: Any) -> Any:
    def created(self: Any, *args: Any, **kwargs: Any) -> None:
        pipelines.append(weakref.ref(self))
        original(self, *args, **kwargs)

    return created


def _next(original: Any) -> Any:
    def next_batch(self: Any) -> Any:
        start = clock.now_ns()
        batch = original(self)
        for moments in active:
            try:
                moments.batch_over(self, start)
            except Exception as error:  # noqa: BLE001 - another release may build its pipelines otherwise: training gets its batch
                moments.pipeline_problem = f"{type(error).__name__}: {error}"
        return batch

    return next_batch


def _operators(pipeline: Any) -> list[Operator]:
    """Of an iterator's pipeline, as MindData itself names them and in its order."""
    from mindspore.dataset import config

    def visit(node: Any, parent: int | None) -> None:
        number = len(found)
        kind = type(node).__name__.removesuffix("Dataset")
        found.append((f"{kind}Op", int(getattr(node, "num_parallel_workers", None) or config.get_num_parallel_workers()), parent))
        for child in getattr(node, "children", []):
            visit(child, number)

    if pipeline not in _described:
        found: list[Operator] = []
        visit(pipeline.dataset, None)
        _described[pipeline] = found
    return _described[pipeline]


def _ranged(original: Any, kind: str, name: str) -> Any:
    def ranged(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not active:
            return original(self, *args, **kwargs)
        start = clock.now_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            for moments in active:
                moments.range_over(kind, name, start)

    return ranged


def _update(original: Any) -> Any:
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Recording may begin or end within this call, so it is followed also while nothing records.
        class_ = type(self).__name__
        name = "" if class_.startswith("TrainOneStep") else f"Optimizer.step#{class_}"
        outer, start = getattr(_calls, "update", None), clock.now_ns()
        number = jit.number(self)
        _calls.update = outer or (name, start, number)
        try:
            result = original(self, *args, **kwargs)
            for moments in active:
                moments.range_over("annotation", name, start, update=number if outer is None else None)
            return result
        finally:
            _calls.update = outer

    return update


def _compiled(original: Any) -> Any:
    def compile_(self: Any, *args: Any, **kwargs: Any) -> Any:
        phase = _calls.phase = original(self, *args, **kwargs)
        return phase

    return compile_


def _jitted(original: Any) -> Any:
    def jitted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not active:
            return original(self, *args, **kwargs)
        outer, start = getattr(_calls, "update", None), clock.now_ns()
        function = self.fn
        update = outer is None and jit.trains(function, self.obj)
        number = jit.number(function)
        _calls.phase = ""
        if update:
            _calls.update = ("", start, number)
        try:
            result = original(self, *args, **kwargs)
        finally:
            _calls.update = outer
        phase = str(_calls.phase) or function.__qualname__
        for moments in active:
            moments.graph_over(f"jit {function.__name__}", number, phase, start, update)
        return result

    return jitted


def _cell_graph(original: Any) -> Any:
    def execute(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if not active:
            return original(self, obj, *args, **kwargs)
        start = clock.now_ns()
        result = original(self, obj, *args, **kwargs)
        for moments in active:
            moments.graph_over(f"graph {type(obj).__name__}", jit.number(obj), str(kwargs.get("phase", "")), start, update=False)
        return result

    return execute
