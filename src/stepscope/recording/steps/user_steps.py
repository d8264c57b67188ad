"""Steps that the user chooses: `--step-on` of `stepscope run`, and `step_on` of a Profiler.

optimizer:NAME        each step of the optimizers of this class; optimizer:2, of the second one that the program creates
function:MODULE.NAME  each return of this function; the script itself is the module __main__
annotation:NAME       the end of each range of this name
dataloader            each batch that is fetched begins a step
"""

import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from types import FrameType, FunctionType, ModuleType
from typing import Any

from stepscope.errors import UsageError
from stepscope.process.notices import error_line, say
from stepscope.recording.process.runtime import runtime

_FORMS = "optimizer:NAME, function:MODULE.NAME, annotation:NAME or dataloader, such as function:__main__.train_step"


@dataclass(frozen=True)
class StepOn:
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


def parse(text: Any, option: str) -> StepOn:
    """The value of this option, checked."""
    kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    valid = (kind in ("optimizer", "annotation") and name) or (kind == "dataloader" and not colon)
    if kind == "function":
        valid = "." in name and all(part.isidentifier() for part in name.split("."))
    if not valid or (kind == "optimizer" and name.isdigit() and not int(name)):
        raise UsageError(f"{option} is {text!r}; expected {_FORMS}")
    return StepOn(kind, name)


class Watch:
    """Calls `end` where the chosen steps end, outside of the framework's own ranges, and `begin` where one begins, if that is known.

    `later`: the program has not started, so its functions do not exist yet.
    """

    def __init__(self, choice: StepOn, end: Callable[[], None], begin: Callable[[], None] = lambda: None, *, later: bool = False) -> None:
        self.choice = choice
        self.seen = False  # a step has ended
        self._function_exists = False
        self._end, self._begin, self._later = end, begin, later
        self._depth = threading.local()
        self._between_epochs = True  # the next batch ends no step
        self._created: list[weakref.ref[Any]] = []
        {
            "optimizer": self._watch_optimizers,
            "function": self._watch_function,
            "annotation": self._watch_annotations,
            "dataloader": self._watch_loaders,
        }[choice.kind]()

    def why_nothing(self) -> str:
        """Why no step was found, in one line."""
        kind, name = self.choice.kind, self.choice.name
        if kind == "function" and not self._function_exists:
            hint = "" if name.startswith("__main__.") else f"; for a function of the script use function:__main__.{name.rpartition('.')[2]}"
            return f"there is no function {name}{hint}"
        return {
            "optimizer": f"no optimizer {name} stepped",
            "function": f"{name} never returned, or was called by another name",
            "annotation": f"no range {name} ended",
            "dataloader": "no batch was fetched from a DataLoader of PyTorch or a dataset of MindSpore",
        }[kind]

    def _end_step(self) -> None:
        self.seen = True
        self._try(self._end)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  the job must not end
            say(f"step_on {self.choice}: {error_line(error)}")

    def _call_step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The outermost call is the step."""
        if getattr(self._depth, "value", 0):
            return function(*args, **kwargs)
        self._try(self._begin)
        self._depth.value = 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._depth.value = 0
        self._end_step()
        return result

    def _wrap(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        runtime.patches.wrap(owner, name, self, wrapper)

    # Optimizers

    def _watch_optimizers(self) -> None:
        runtime.imports.after_import("torch", self._watch_torch_optimizers)
        for module in ("mindspore.nn.optim.optimizer", "mindspore.experimental.optim.optimizer"):
            runtime.imports.after_import(module, lambda module: self._watch_optimizer_class(module.Optimizer, "__call__"))
        keras = "keras.src.optimizers.base_optimizer"
        runtime.imports.after_import(keras, lambda module: self._watch_optimizer_class(module.BaseOptimizer, "apply"))

    def _watch_torch_optimizers(self, torch: Any) -> None:
        from stepscope.recording.collectors.torch import optimizers

        if not self._later and self.choice.name.isdigit() and optimizers.alive():
            raise UsageError(
                f"step_on is 'optimizer:{self.choice.name}', but the order of the existing optimizers is not known:"
                " create the Profiler before them, or use the name of the class"
            )

        def stepped(optimizer: Any, nested: list[Any]) -> None:
            if any(map(self._is_chosen, (optimizer, *nested))):
                self._end_step()

        optimizers.listen(stepped, lambda optimizer: self._created.append(weakref.ref(optimizer)))

    def _watch_optimizer_class(self, kind: Any, name: str) -> None:
        def init_wrapper(init: Any) -> Any:
            @wraps(init)
            def init_optimizer(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                init(optimizer, *args, **kwargs)
                self._created.append(weakref.ref(optimizer))

            return init_optimizer

        def call_wrapper(call: Any) -> Any:
            @wraps(call)
            def call_optimizer(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
                if self._is_chosen(optimizer):
                    return self._call_step(call, optimizer, *args, **kwargs)
                return call(optimizer, *args, **kwargs)

            return call_optimizer

        self._wrap(kind, "__init__", init_wrapper)
        self._wrap(kind, name, call_wrapper)

    def _is_chosen(self, optimizer: Any) -> bool:
        if self.choice.name.isdigit():
            number = int(self.choice.name)
            return len(self._created) >= number and self._created[number - 1]() is optimizer
        return any(kind.__name__ == self.choice.name for kind in type(optimizer).__mro__)

    # A function

    def _watch_function(self) -> None:
        parts = self.choice.name.split(".")
        if parts[0] == "__main__":
            main = sys.modules["__main__"]
            if self._later:
                _MainModule(parts[1], lambda: self._replace(main_module(), parts[1:]))
            elif not self._replace(main, parts[1:]):
                raise UsageError(f"step_on is 'function:{self.choice.name}', but the script has no function of this name yet")
            return
        for length in range(1, len(parts)):  # in module.Class.method, the class is no module
            runtime.imports.after_import(".".join(parts[:length]), partial(self._replace, path=parts[length:]))

    def _replace(self, module: ModuleType, path: list[str]) -> bool | None:
        """Wrap the function. False if there is none of this name; None where it is wrapped already."""
        owner: Any = module
        for part in path[:-1]:
            owner = getattr(owner, part, None)
        classes = getattr(owner, "__mro__", [owner])  # a method of an instance's class is not replaced in the instance
        function = next((vars(kind)[path[-1]] for kind in classes if path[-1] in getattr(kind, "__dict__", {})), None)
        inner: Any = getattr(function, "__func__", function)  # of a static or a class method
        if getattr(inner, "_stepscope_watch", None) is self:
            return None
        if not callable(inner) or isinstance(inner, ModuleType):
            return False
        outer = self._step_function(inner)
        key = (self, id(inner))  # the script may define the function again, such as step = torch.compile(step)
        runtime.patches.wrap(owner, path[-1], key, lambda _: outer)
        if owner is module and not self._later:  # modules that have imported the function by its name
            for other in list(sys.modules.values()):
                names = vars(other) if isinstance(other, ModuleType) else {}
                for name in [name for name, value in list(names.items()) if value is inner]:
                    runtime.patches.wrap(other, name, key, lambda _: outer)
        self._function_exists = True
        return True

    def _step_function(self, inner: Any) -> Any:
        if not isinstance(inner, FunctionType):
            return _Callable(self, inner)

        @wraps(inner)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return self._call_step(inner, *args, **kwargs)

        watched._stepscope_watch = self  # type: ignore[attr-defined]
        # PyTorch compiles the function itself, without ours.
        watched._torchdynamo_inline = watched._torchdynamo_orig_callable = inner  # type: ignore[attr-defined]
        return watched

    # Annotations

    def _watch_annotations(self) -> None:
        after_import = runtime.imports.after_import
        after_import("stepscope.recording.collectors.annotations", lambda module: module.watchers.append(self._on_range))
        after_import("torch.autograd.profiler", lambda module: self._watch_range_class(module.record_function))
        after_import("jax", self._watch_jax_ranges)

    def _on_range(self, name: str, entered: bool) -> None:
        if name == self.choice.name:
            if entered:
                self._try(self._begin)
            else:
                self._end_step()

    def _watch_jax_ranges(self, jax: Any) -> None:
        for kind in (jax.profiler.TraceAnnotation, jax.profiler.StepTraceAnnotation):
            if kind is jax.profiler.TraceAnnotation or "__exit__" in vars(kind):
                self._watch_range_class(kind)

        def init_wrapper(init: Any) -> Any:
            @wraps(init)
            def init_annotation(annotation: Any, name: str, *args: Any, **kwargs: Any) -> None:
                init(annotation, name, *args, **kwargs)
                annotation.name = name

            return init_annotation

        self._wrap(jax.profiler.TraceAnnotation, "__init__", init_wrapper)

    def _watch_range_class(self, kind: Any) -> None:
        def enter_wrapper(enter: Any) -> Any:
            @wraps(enter)
            def enter_range(annotation: Any) -> Any:
                self._on_range(getattr(annotation, "name", ""), True)
                return enter(annotation)

            return enter_range

        def exit_wrapper(leave: Any) -> Any:
            @wraps(leave)
            def exit_range(annotation: Any, *args: Any) -> Any:
                result = leave(annotation, *args)
                self._on_range(getattr(annotation, "name", ""), False)
                return result

            return exit_range

        self._wrap(kind, "__enter__", enter_wrapper)
        self._wrap(kind, "__exit__", exit_wrapper)

    # Batches

    def _watch_loaders(self) -> None:
        after_import = runtime.imports.after_import
        after_import("torch.utils.data.dataloader", lambda module: self._wrap(module._BaseDataLoaderIter, "__next__", self._next_wrapper))
        after_import("mindspore.dataset.engine.iterators", lambda module: self._wrap(module.Iterator, "__next__", self._next_wrapper))

    def _next_wrapper(self, fetch: Any) -> Any:
        @wraps(fetch)
        def next_batch(iterator: Any) -> Any:
            if getattr(self._depth, "value", 0):  # a loader that reads from another
                return fetch(iterator)
            if self._between_epochs:
                self._try(self._begin)
            else:
                self._end_step()
            self._depth.value, self._between_epochs = 1, False
            try:
                return fetch(iterator)
            except StopIteration:
                self._between_epochs = True
                raise
            finally:
                self._depth.value = 0

        return next_batch


class _Callable:
    """Around a callable that is not a function, such as the result of jax.jit."""

    def __init__(self, watch: Watch, inner: Any) -> None:
        self.__dict__.update(_stepscope_watch=watch, _stepscope_inner=inner, __wrapped__=inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stepscope_watch._call_step(self._stepscope_inner, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stepscope_inner"], name)


def main_module() -> ModuleType:
    """The script as a module, also in a process that multiprocessing has spawned."""
    return sys.modules.get("__mp_main__") or sys.modules["__main__"]


class _MainModule:
    """Waits for the script to define a name, with sys.settrace: there is no other way. Ends with the first call of that function.

    Each line at the top level of the script is checked; other functions cost one call each. A script may define a function and then
    wrap it, as `step = torch.compile(step)` does: the latest counts.
    """

    def __init__(self, name: str, replace: Callable[[], bool | None]) -> None:
        self._name, self._replace = name, replace
        self._defined = False
        sys.settrace(self._call)
        runtime.on_fork(self._forked)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_name == "<module>" and frame.f_globals.get("__name__") in ("__main__", "__mp_main__"):
            return self._line
        if code.co_filename == __file__ and code.co_name in ("watched", "__call__"):
            sys.settrace(None)
        return None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._name in frame.f_globals:
            self._defined = self._replace() is not False or self._defined
        if event == "return":  # the script is over, or was imported by a process that multiprocessing has spawned
            sys.settrace(None)
        return self._line

    def _forked(self) -> None:
        """A child, such as a data worker, is not slowed down for a function that is defined already."""
        if self._defined and getattr(sys.gettrace(), "__self__", None) is self:
            sys.settrace(None)
