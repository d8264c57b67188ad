"""What Python sees of a MindSpore training loop: steps of Model.train, batches, gradients, optimizers, calls of graphs.

The wrappers are installed once and stay: while nothing is recorded, they cost an empty loop. They are not Cell hooks, which the graph
compiler would try to compile, but wrap methods that only the interpreter calls.
"""

import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from stepscope.process import clock
from stepscope.recording.collectors.mindspore import jit
from stepscope.recording.process.runtime import runtime

active: list["LoopRecord"] = []  # of the open windows
Operator = tuple[str, int, int | None]  # of an input pipeline: type, workers, number of the operator that reads its rows
marks_training_calls = False  # True while `stepscope run` ends a step because a training call ended


class Step:
    """A running step of Model.train or Model.eval."""

    def __init__(self, number: int, sunk: int, start_ns: int) -> None:
        self.number, self.sunk, self.start_ns = number, sunk, start_ns
        self.begun_ns = clock.now_ns()  # its data has arrived
        self.running_ns: int | None = None  # the callbacks of its beginning have returned


class LoopRecord:
    """The loop during one window."""

    def __init__(self, end_step: Callable[[], bool]) -> None:
        self.start_ns = clock.now_ns()
        self.began_in_step = False
        self.end_step = end_step  # to be called where a step ends; returns whether it waited for all kernels
        self.steps: list[tuple[str, int, int, int, int]] = []  # phase, number, iterations in it, start, end
        self.ranges: list[tuple[str, str, int, int, int]] = []  # kind, name, start, end, thread
        # Start, end and number of what the loop itself called: an optimizer, or a cell or compiled function that calls one.
        self.updates: list[tuple[int, int, int]] = []
        self.graphs: list[tuple[str, int, int, bool, int, int, int]] = []  # calls: function, its number, graph, drained, start, end, thread
        self.operators: list[Operator] = []  # of the input pipeline that was read first
        self.batches: list[tuple[int, int]] = []  # of that one: arrival and wait
        self.other_pipelines = False  # further ones were read
        self.pipeline_problem = ""

    def step_over(self, phase: str, step: Step, end_ns: int) -> None:
        # A window that was opened while the network ran did not record the whole step.
        if step.running_ns is not None and self.start_ns <= step.running_ns:
            start = max(step.start_ns, self.start_ns)
            # Later than its end: it was read before the clock of this recording was set to the wall clock.
            self.steps.append((phase, step.number, step.sunk, start if start <= end_ns else self.start_ns, end_ns))
            self.began_in_step |= step.begun_ns <= self.start_ns

    def range_over(self, kind: str, name: str, start_ns: int, update: int | None = None) -> None:
        end = clock.now_ns()
        if start_ns < self.start_ns:
            return
        if update is not None:
            self.end_step()
            end = clock.now_ns()
            self.updates.append((start_ns, end, update))
        if name:
            self.ranges.append((kind, name, start_ns, end, threading.get_native_id()))

    def graph_over(self, function: str, number: int, phase: str, start_ns: int, update: bool) -> None:
        """A call of a compiled graph returns when its kernels are enqueued: at the end of a step the host waits for them."""
        end, drained = clock.now_ns(), False
        if start_ns < self.start_ns:
            return
        if update:
            drained = self.end_step()
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
        """A window that is closed inside an optimizer's call, because that call ends a step, has recorded the whole call."""
        active.remove(self)
        update = getattr(_calls, "update", None)
        if update:
            name, start, number = update
            self.range_over("annotation", name, start, update=number)


def install() -> None:
    """Wrap the methods, where they are not wrapped yet."""
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
    _wrap(_PyNativeExecutor, "grad", _backward)
    for kind in (nn.Optimizer, Optimizer, nn.TrainOneStepCell):
        _wrap(kind, "__call__", _update)  # which each inherits from Cell
    _wrap(_JitExecutor, "compile", _compiled)
    _wrap(_JitExecutor, "__call__", _jitted)
    _wrap(_CellGraphExecutor, "_exec_pip", _cell_graph)


def adopt_step() -> None:
    """Find the step that is beginning, where it began before install(): one of its callbacks may create the profiler."""
    from mindspore.train.callback._callback import CallbackManager

    phases = {inspect.unwrap(getattr(CallbackManager, f"on_{phase}_step_begin")).__code__: phase for phase in ("train", "eval")}
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        phase = phases.get(frame.f_code)
        if phase and phase not in _steps:
            step = _steps[phase] = _step(frame.f_locals["run_context"], clock.now_ns())
            step.begun_ns, step.running_ns = 0, clock.now_ns()


pipelines: list["weakref.ref[Any]"] = []  # all that were created since install(), in order
_pipeline_operators: "weakref.WeakKeyDictionary[Any, list[Operator]]" = weakref.WeakKeyDictionary()
_steps: dict[str, Step] = {}  # by phase: the running step
_step_starts: dict[str, int] = {}  # by phase: when the next step starts, with its wait for data
_calls = threading.local()


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any], *args: str) -> None:
    runtime.patches.wrap(owner, name, "loop", lambda original: wraps(original)(wrapper(original, *args)))


def _epoch_begin(original: Any, phase: str) -> Any:
    def epoch_begin(self: Any, run_context: Any) -> Any:
        _step_starts[phase] = clock.now_ns()
        return original(self, run_context)

    return epoch_begin


def _step_begin(original: Any, phase: str) -> Any:
    def step_begin(self: Any, run_context: Any) -> Any:
        step = _steps[phase] = _step(run_context, _step_starts.pop(phase, clock.now_ns()))
        result = original(self, run_context)
        step.running_ns = clock.now_ns()
        return result

    return step_begin


def _step(run_context: Any, start_ns: int) -> Step:
    args = run_context.original_args()
    return Step(int(args.cur_step_num), int(args.get("sink_size", 1)) if args.get("dataset_sink_mode") else 1, start_ns)


def _step_end(original: Any, phase: str) -> Any:
    def step_end(self: Any, run_context: Any) -> Any:
        step = _steps.pop(phase, None)
        for record in active:
            record.end_step()
        _step_starts[phase] = now = clock.now_ns()
        if step:
            for record in active:
                record.step_over(phase, step, now)
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
        try:
            batch = original(self)
            for record in active:
                try:
                    record.batch_over(self, start)
                except Exception as error:  # noqa: BLE001 - the pipelines of another release may differ: training gets its batch
                    record.pipeline_problem = f"{type(error).__name__}: {error}"
            return batch
        finally:
            for record in active:
                record.range_over("data", "next batch", start)

    return next_batch


def _operators(pipeline: Any) -> list[Operator]:
    """The operators of an iterator's pipeline, with the names and in the order of MindData."""
    from mindspore.dataset import config

    def visit(node: Any, parent: int | None) -> None:
        number = len(operators)
        kind = type(node).__name__.removesuffix("Dataset")
        operators.append((f"{kind}Op", int(getattr(node, "num_parallel_workers", None) or config.get_num_parallel_workers()), parent))
        for child in getattr(node, "children", []):
            visit(child, number)

    if pipeline not in _pipeline_operators:
        operators: list[Operator] = []
        visit(pipeline.dataset, None)
        _pipeline_operators[pipeline] = operators
    return _pipeline_operators[pipeline]


def _backward(original: Any) -> Any:
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not active:
            return original(self, *args, **kwargs)
        start = clock.now_ns()
        try:
            return original(self, *args, **kwargs)
        finally:
            for record in active:
                record.range_over("annotation", "backward", start)

    return backward


def _update(original: Any) -> Any:
    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Recording may begin or end inside this call, so it is followed also while nothing is recorded.
        class_ = type(self).__name__
        name = "" if class_.startswith("TrainOneStep") else f"Optimizer.step#{class_}"
        outer, start = getattr(_calls, "update", None), clock.now_ns()
        number = jit.number(self)
        _calls.update = outer or (name, start, number)
        try:
            result = original(self, *args, **kwargs)
            for record in active:
                record.range_over("annotation", name, start, update=number if outer is None else None)
            return result
        finally:
            _calls.update = outer

    return update


def _compiled(original: Any) -> Any:
    from mindspore.graph import api

    graphs = getattr(api, "ms_compile_cache", ())  # grows with each graph; another release may have none

    def compile_(self: Any, *args: Any, **kwargs: Any) -> Any:
        count, start = len(graphs), clock.now_ns()
        phase = _calls.phase = original(self, *args, **kwargs)
        if len(graphs) > count:
            for record in active:
                record.range_over("other", f"compile {self.fn.__name__}", start)
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
        for record in active:
            record.graph_over(f"jit {function.__name__}", number, phase, start, update)
        return result

    return jitted


def _cell_graph(original: Any) -> Any:
    def execute(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if not active:
            return original(self, obj, *args, **kwargs)
        start = clock.now_ns()
        result = original(self, obj, *args, **kwargs)
        for record in active:
            record.graph_over(f"graph {type(obj).__name__}", jit.number(obj), str(kwargs.get("phase", "")), start, update=False)
        return result

    return execute
