"""What `stepscope run` does in each Python process of a job: finds the steps, records those asked for, listens for `stepscope attach`.

`startup/sitecustomize.py` calls install() before the program starts. Nothing heavy is imported then, and frameworks are touched only after
the program itself has imported them. An error here is one line on standard error, never the program's.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from stepscope import telling
from stepscope.endings import before_end
from stepscope.recorder import Recorder, Request
from stepscope.telling import say, told

VARIABLE = "STEPSCOPE_RUN"  # the settings of the job, as JSON
# Where neither --steps nor --seconds says when to end: a longer run shows nothing more, but costs memory.
MOST_STEPS = 1000
# Programs that only start others. Their children inherit the settings.
_LAUNCHERS = {
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "msrun", "mindspore.parallel.cluster.run", "accelerate",
    "accelerate.commands.launch", "deepspeed", "deepspeed.launcher.runner", "deepspeed.launcher.launch", "horovodrun", "pip", "jupyter",
}  # fmt: skip


class Process:
    """This process of the job. There is one, `here`, when stepscope started the job."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.job: str = settings["job"]
        self.recorder = Recorder(told=self._tell, options=settings["options"])
        self._agent: Any = None
        self._ended = False
        self._yielded = self._is_fork = False
        self._wanted = self._first_request()

    def active(self) -> None:
        """Training may begin now: the first module called, the first dataset iterated, the first step."""
        if self.recorder.busy:
            return
        self.listen()
        request, self._wanted = self._wanted, None
        if request is not None:
            if request.first == 0 and self.recorder.step > 0:
                request.first = None  # a loop whose beginning could not be seen: from the second step on
            self._try(lambda: self.recorder.ask(request))

    def border(self) -> None:
        """A step is over."""
        if self.recorder.busy:  # our own marks are no steps
            return
        self.recorder.border()
        if self._wanted or self._agent is None:
            self.active()

    def own_profiler(self) -> None:
        """The script has a profiler of its own: it knows best, and two would disturb each other."""
        if not self.recorder.busy:
            if not self._yielded:
                self._yielded = True
                self._write({"pid": os.getpid(), "yielded": True})
            self._wanted = None
            self.recorder.give_way()

    def own_window(self, capture: Path, steps: int) -> None:
        """The script's own recordings are told of, too."""
        self._write({"pid": os.getpid(), "capture": str(capture), "problem": None, "whole_steps": steps})

    def listen(self) -> None:
        if self._agent is None:
            from stepscope import jobs

            self._agent = self._try(lambda: jobs.listen(self.recorder, self.settings)) or False

    def finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self._try(self.recorder.finish)
        if self._agent:
            self._agent.close()
        if self._wanted and self.recorder.step:
            self._wanted.problem = f"the program ended in step {self.recorder.step}"
        if self.recorder.step or not self._is_fork:  # not for every process that loads data
            self._write({"pid": os.getpid(), "steps": self.recorder.step, "seen": sorted(_seen)})

    def forked(self) -> None:
        """A child that trains is a process like any other; one that loads data never makes a step."""
        self.recorder.forked()
        if self._agent:
            self._agent.close()
        self._agent, self._ended, self._is_fork = None, False, True
        self._wanted = self._first_request()

    def _first_request(self) -> Request | None:
        said = self.settings
        if said.get("idle"):
            return None
        options = {**said["options"], "output_path": Path(said["out"])}
        if said.get("steps"):
            first, end = said["steps"]
            return Request(first=first, count=end - first, options=options)
        if said.get("seconds"):
            return Request(seconds=said["seconds"], options=options)
        return Request(first=0, count=MOST_STEPS, options=options, bound=True)

    def _tell(self, request: Request) -> None:
        """The command line prints where the recording is when the job ends."""
        self._write(
            {
                "pid": os.getpid(),
                "capture": str(request.capture) if request.capture else None,
                "problem": request.problem,
                "whole_steps": request.steps,
            }
        )

    def _write(self, line: dict[str, Any]) -> None:
        with contextlib.suppress(OSError), open(self.settings["journal"], "a") as journal:  # noqa: PTH123  one write, whole lines
            journal.write(json.dumps(line) + "\n")

    def _try(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:  # noqa: BLE001  the job is not ours to end
            say(told(error))
            return None


here: Process | None = None
_seen: set[str] = set()  # frameworks that the program imported


def install() -> None:
    global here  # noqa: PLW0603  there is one process here
    words = {Path(word).name for word in sys.orig_argv[1:4]} | set(sys.orig_argv[1:4])
    if here is None and not words & _LAUNCHERS:
        here = Process(json.loads(os.environ[VARIABLE]))
        sys.meta_path.insert(0, _Finder())
        os.register_at_fork(after_in_child=here.forked)
        telling.listeners.append(here)
        before_end(here.finish)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets our functions run before and after the modules of _BEFORE and _AFTER are executed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name not in _AFTER and name not in _BEFORE:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None and spec.loader is not None:
                self._surround(name, spec.loader)
                return spec
        return None

    def _surround(self, name: str, loader: Any) -> None:
        """The loader stays what it is, for whoever looks at it: only this one object's exec_module is another."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            _guarded(_BEFORE.get(name), module)
            try:
                execute(module)
            finally:
                # Also when it failed: what _BEFORE hid must come back.
                _guarded(_AFTER.get(name), module)

        with contextlib.suppress(AttributeError):  # a loader that takes no attributes: the module loads as ever
            loader.exec_module = exec_module


def _guarded(action: Callable[[ModuleType], None] | None, module: ModuleType) -> None:
    if action is not None:
        try:
            action(module)
        except Exception as error:  # noqa: BLE001  another version than those we know: the import goes on
            say(f"steps of {module.__name__} cannot be seen: {told(error)}")


def _process() -> Process:
    assert here is not None
    return here


# PyTorch: a step ends when the optimizer has stepped.


def _torch(torch: Any) -> None:
    _seen.add("torch")
    leader = _Leader()
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(lambda optimizer, args, kwargs: leader.stepped(optimizer))

    def first_call(module: Any, args: Any) -> None:
        handle.remove()
        _process().active()

    handle = torch.nn.modules.module.register_module_forward_pre_hook(first_call)
    _wrap(sys.modules["torch.autograd.profiler"].profile, "_prepare_trace", before=lambda profile: _process().own_profiler())
    before_end(_process().finish)  # before the framework's own exit handlers, which end what we record
    _start_by_variable(torch)


class _Leader:
    """Of several optimizers (two networks, one per layer) one counts: the first, as long as it is used."""

    def __init__(self) -> None:
        self._leader: Any = None
        self._others = 0

    def stepped(self, optimizer: Any) -> None:
        if self._leader is None or self._leader() is None or self._others > 64:
            self._leader = weakref.ref(optimizer)
        if self._leader() is optimizer:
            self._others = 0
            _process().border()
        else:
            self._others += 1


# MindSpore: a step ends with Model.train's step, or with the outermost call that holds an optimizer.


def _mindspore(mindspore: Any) -> None:
    from stepscope.collect import _mindspore_loop as loop
    from stepscope.collect import mindspore as collector
    from stepscope.collect import options

    _seen.add("mindspore")
    loop.install()  # first, so that ours stand around the collector's: a recording ends after it has seen the end of the step
    # Before a graph is compiled or data is read, also of an idle job: whoever attaches to it wants its scopes and shapes.
    collector.prepare(options.parse(_process().settings["options"]))
    modules = sys.modules
    manager = modules["mindspore.train.callback._callback"].CallbackManager
    _wrap(manager, "on_train_step_end", after=lambda manager: _process().border())
    model = modules["mindspore.train.model"].Model
    for name in ("train", "fit"):
        _wrap(model, name, around=lambda call: _in_step(call, counts=False))
    for module, name in (
        ("mindspore.nn.optim.optimizer", "Optimizer"),
        ("mindspore.experimental.optim.optimizer", "Optimizer"),
        ("mindspore.nn.wrap.cell_wrapper", "TrainOneStepCell"),
    ):
        if module in modules and hasattr(modules[module], name):
            _wrap(getattr(modules[module], name), "__call__", around=_in_step)
    for module in ("mindspore.graph.api", "mindspore.common.api"):
        executor = getattr(modules.get(module), "_JitExecutor", None)
        if executor is not None and "__call__" in vars(executor):
            _wrap(executor, "__call__", around=_in_step, when=lambda executor: _trains(getattr(executor, "fn", None)))
            break
    dataset = modules.get("mindspore.dataset.engine.datasets")
    if dataset is not None:
        for name in ("create_dict_iterator", "create_tuple_iterator"):
            _wrap(dataset.Dataset, name, before=lambda dataset: _process().active())
    before_end(_process().finish)  # before the framework's own exit handlers, which end what we record
    _start_by_variable(mindspore)


_inside = 0  # calls that hold an optimizer, within one another


def _in_step(call: Callable[[], Any], counts: bool = True) -> Any:
    """The outermost such call is the step."""
    global _inside  # noqa: PLW0603
    _process().active()
    _inside += 1
    try:
        result = call()
    finally:
        _inside -= 1
    if counts and not _inside:
        _process().border()
    return result


def _wrap(
    owner: type,
    name: str,
    *,
    before: Callable[[Any], None] | None = None,
    after: Callable[[Any], None] | None = None,
    around: Callable[[Callable[[], Any]], Any] | None = None,
    around_self: Callable[[Any, Callable[[], Any]], Any] | None = None,
    when: Callable[[Any], bool] | None = None,
) -> None:
    method = getattr(owner, name)

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if when is not None and not when(self):
            return method(self, *args, **kwargs)
        if before is not None:
            before(self)
        if around_self is not None:
            result = around_self(self, lambda: method(self, *args, **kwargs))
        else:
            result = around(lambda: method(self, *args, **kwargs)) if around is not None else method(self, *args, **kwargs)
        if after is not None:
            after(self)
        return result

    setattr(owner, name, wrapped)


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


# MindSpore's own profiler classes become ours, whatever name the script knows them by.


def _hide_variable(profiler: ModuleType) -> None:
    """MindSpore starts its profiler while it is imported when this is set: ours starts instead, afterwards."""
    hidden = os.environ.pop(_OPTIONS, None)
    if hidden is not None:
        _hidden[_OPTIONS] = hidden


def _substitute(profiler: ModuleType) -> None:
    os.environ |= _hidden  # for child processes
    import stepscope

    for module, names in _STOCK.items():
        stock = sys.modules.get(module)
        for name, ours in names.items():
            if stock is not None and hasattr(stock, name):
                setattr(stock, name, getattr(stepscope, ours))


_OPTIONS = "MS_PROFILER_OPTIONS"
_hidden: dict[str, str] = {}
_ENUMS = ("ProfilerLevel", "ProfilerActivity", "AicoreMetrics", "ExportType", "HostSystem")
_STOCK: dict[str, dict[str, str]] = {
    "mindspore.profiler": {
        **{
            name: name
            for name in (*_ENUMS, "Profiler", "profile", "schedule", "tensorboard_trace_handler", "DynamicProfilerMonitor", "mstx")
        },
        "_ExperimentalConfig": "_ExperimentalConfig",
    },
    "mindspore.profiler.profiler": {"Profiler": "Profiler", "Profile": "profile", "tensorboard_trace_handler": "tensorboard_trace_handler"},
    "mindspore.profiler.schedule": {"Schedule": "schedule"},
    "mindspore.profiler.mstx": {"Mstx": "mstx"},
    "mindspore.profiler.dynamic_profiler": {"DynamicProfilerMonitor": "DynamicProfilerMonitor"},
    "mindspore.profiler.experimental_config": {"_ExperimentalConfig": "_ExperimentalConfig"},
    "mindspore.profiler.common.constant": {name: name for name in _ENUMS},
}


def _start_by_variable(framework: Any) -> None:
    """MS_PROFILER_OPTIONS, with our profiler."""
    if _OPTIONS in os.environ:
        framework.__spec__._initializing = False  # it is whole: importlib says so a moment later
        from stepscope import profiler

        if profiler.running() is None:
            profiler.from_environment()


# JAX knows no optimizer: its steps are those that the program annotates.


def _jax(jax: Any) -> None:
    _seen.add("jax")
    jax.monitoring.register_event_duration_secs_listener(lambda *args, **kwargs: _process().active())
    _wrap(jax.profiler.StepTraceAnnotation, "__enter__", before=lambda annotation: _process().active())
    _wrap_exit(jax.profiler.StepTraceAnnotation)
    start = jax.profiler.start_trace

    @wraps(start)
    def start_trace(*args: Any, **kwargs: Any) -> Any:
        _process().own_profiler()
        return start(*args, **kwargs)

    jax.profiler.start_trace = start_trace
    setattr(sys.modules[start.__module__], "start_trace", start_trace)  # noqa: B010  jax.profiler.trace looks there
    before_end(_process().finish)  # before the framework's own exit handlers, which end what we record


def _wrap_exit(annotation: type, when: Callable[[Any], bool] = lambda one: True) -> None:
    leave = annotation.__exit__  # type: ignore[attr-defined]

    def exit_(self: Any, *args: Any) -> Any:
        result = leave(self, *args)
        if when(self):
            _process().border()
        return result

    annotation.__exit__ = exit_  # type: ignore[attr-defined]


# TensorFlow: a step ends with a batch of Keras's fit, else with the outermost call that computes gradients (a tf.function) or applies them
# (an optimizer), unless the program marks its steps itself.


def _tensorflow(tf: Any) -> None:
    _seen.add("tensorflow")
    functions = importlib.import_module("tensorflow.python.eager.polymorphic_function.polymorphic_function")
    _wrap(tf.GradientTape, "gradient", before=lambda tape: _gradients.computed())
    _wrap(functions.Function, "__call__", around_self=_gradients.called)
    _wrap(tf.data.Dataset, "__iter__", before=lambda dataset: _process().active())
    mark = tf.profiler.experimental.Trace
    _wrap(mark, "__enter__", before=lambda one: _process().active())
    init = mark.__init__

    @wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self._stepscope_step = "step_num" in kwargs and not _process().recorder.busy
        _gradients.marked = _gradients.marked or self._stepscope_step

    mark.__init__ = remember
    _wrap_exit(mark, when=lambda one: one._stepscope_step)
    profiler: Any = importlib.import_module("tensorflow.python.profiler.profiler_v2")
    start = profiler.start

    @wraps(start)
    def start_profiler(*args: Any, **kwargs: Any) -> Any:
        _process().own_profiler()
        return start(*args, **kwargs)

    profiler.start = tf.profiler.experimental.start = start_profiler
    before_end(_process().finish)  # before the framework's own exit handlers, which end what we record


def _keras(keras: Any) -> None:
    """Keras 3, on any of its backends."""
    callbacks = importlib.import_module("keras.src.callbacks.callback_list")
    _wrap(callbacks.CallbackList, "on_train_batch_end", after=lambda callbacks: _process().border())
    _wrap(keras.Model, "fit", around=lambda call: _in_step(call, counts=False))
    _wrap(keras.Model, "train_on_batch", around=_in_step)
    base = importlib.import_module("keras.src.optimizers.base_optimizer").BaseOptimizer
    _wrap(base, "apply", around_self=lambda optimizer, call: _gradients.called(optimizer, call, applies=True))


class _Gradients:
    """Which calls train: those within which gradients are computed or applied."""

    def __init__(self) -> None:
        self._leader = _Leader()
        self._training: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen = False
        self.marked = False  # the program says itself where its steps end: it knows best

    def computed(self) -> None:
        """While a function is traced, or by a loop itself."""
        _process().active()
        self._seen = True

    def called(self, who: Any, call: Callable[[], Any], *, applies: bool = False) -> Any:
        global _inside  # noqa: PLW0603
        _process().active()
        outermost = not _inside
        if outermost:
            self._seen = applies
        _inside += 1
        try:
            result = call()
        finally:
            _inside -= 1
        if outermost and not self.marked:
            if self._seen:  # a function tells so when it is traced: in its first call
                self._training.add(who)
            if who in self._training:
                self._leader.stepped(who)
        return result


# No framework: ranges that the program names.


def _plain(plain: Any) -> None:
    enter = plain.record_function.__enter__

    def first_range(self: Any) -> Any:
        plain.record_function.__enter__ = enter
        _seen.add("record_function")
        _process().active()
        return enter(self)

    plain.record_function.__enter__ = first_range


_gradients = _Gradients()
_BEFORE: dict[str, Callable[[ModuleType], None]] = {"mindspore.profiler": _hide_variable}
_AFTER: dict[str, Callable[[ModuleType], None]] = {
    "torch": _torch,
    "mindspore.profiler": _substitute,
    "mindspore": _mindspore,
    "jax": _jax,
    "tensorflow": _tensorflow,
    "keras": _keras,
    "stepscope.collect.plain": _plain,
}
