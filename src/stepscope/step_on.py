"""Steps that the user names: `--step-on` of `stepscope run`, and `step_on` of a Profiler.

optimizer:NAME        each step of the optimizers of this class; optimizer:2, of the second that the program creates
function:MODULE.NAME  each return of this function; the script itself is the module __main__
annotation:NAME       the end of each range of this name
dataloader            each batch that is fetched begins a step
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from types import FrameType, FunctionType, ModuleType
from typing import Any

from stepscope.errors import UsageError
from stepscope.import_hooks import after_import
from stepscope.telling import say, told

_FORMS = "optimizer:NAME, function:MODULE.NAME, annotation:NAME or dataloader, such as function:__main__.train_step"


@dataclass(frozen=True)
class StepOn:
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


def parse(text: Any, option: str) -> StepOn:
    """The choice as it was written for this option, checked."""
    kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    good = (kind in ("optimizer", "annotation") and name) or (kind == "dataloader" and not colon)
    if kind == "function":
        good = "." in name and all(part.isidentifier() for part in name.split("."))
    if not good or (kind == "optimizer" and name.isdigit() and not int(name)):
        raise UsageError(f"{option} is {text!r}; expected {_FORMS}")
    return StepOn(kind, name)


class Watch:
    """Calls `end` where the named steps end, outside of the framework's own ranges, and `begin` where one begins as far as that is known.

    `later`: the program has not begun, so that the script's functions are still to come.
    """

    def __init__(self, choice: StepOn, end: Callable[[], None], begin: Callable[[], None] = lambda: None, *, later: bool = False) -> None:
        self.choice = choice
        self.seen = False  # a step has ended
        self.found = False  # what was named exists
        self._end, self._begin, self._later = end, begin, later
        self._depth = threading.local()
        self._between = True  # no batch is being worked on
        self._created: list[weakref.ref[Any]] = []
        {"optimizer": self._optimizers, "function": self._function, "annotation": self._annotations, "dataloader": self._loaders}[
            choice.kind
        ]()

    def why_nothing(self) -> str:
        """Why no step was seen, in one line."""
        kind, name = self.choice.kind, self.choice.name
        if kind == "function" and not self.found:
            main = (
                "" if name.startswith("__main__.") else f"; a function of the script itself is function:__main__.{name.rpartition('.')[2]}"
            )
            return f"there was no function {name}{main}"
        return {
            "optimizer": f"no optimizer {name} stepped",
            "function": f"{name} never returned, or was called by another name",
            "annotation": f"no range {name} ended",
            "dataloader": "no batch was fetched from a DataLoader of PyTorch or a dataset of MindSpore",
        }[kind]

    # What happens, as the hooks below report it. Never an error of the program's.

    def _ended(self) -> None:
        self.seen = True
        self._quietly(self._end)

    def _quietly(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  the job is not ours to end
            say(f"step_on {self.choice}: {told(error)}")

    def _around(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The outermost call is the step."""
        if getattr(self._depth, "value", 0):
            return call(*args, **kwargs)
        self._quietly(self._begin)
        self._depth.value = 1
        try:
            result = call(*args, **kwargs)
        finally:
            self._depth.value = 0
        self._ended()
        return result

    # Optimizers

    def _optimizers(self) -> None:
        after_import("torch", self._torch_optimizers)
        for module in ("mindspore.nn.optim.optimizer", "mindspore.experimental.optim.optimizer"):
            after_import(module, lambda module: self._optimizer_class(module.Optimizer, "__call__"))
        after_import("keras.src.optimizers.base_optimizer", lambda module: self._optimizer_class(module.BaseOptimizer, "apply"))

    def _torch_optimizers(self, torch: Any) -> None:
        from stepscope.collect import _torch_optimizers

        if not self._later and self.choice.name.isdigit() and _torch_optimizers.alive():
            raise UsageError(
                f"step_on is 'optimizer:{self.choice.name}', and there are optimizers already, whose order is not known:"
                " create the Profiler before them, or give the name of the class"
            )

        def stepped(optimizer: Any, within: list[Any]) -> None:
            if any(map(self._is_named, (optimizer, *within))):
                self._ended()

        _torch_optimizers.listen(stepped, lambda optimizer: self._created.append(weakref.ref(optimizer)))

    def _optimizer_class(self, kind: Any, name: str) -> None:
        init, call = kind.__init__, getattr(kind, name)

        @wraps(init)
        def created(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self._created.append(weakref.ref(optimizer))

        @wraps(call)
        def called(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_named(optimizer):
                return self._around(call, optimizer, *args, **kwargs)
            return call(optimizer, *args, **kwargs)

        kind.__init__ = created
        setattr(kind, name, called)

    def _is_named(self, optimizer: Any) -> bool:
        if self.choice.name.isdigit():
            number = int(self.choice.name)
            return len(self._created) >= number and self._created[number - 1]() is optimizer
        return any(kind.__name__ == self.choice.name for kind in type(optimizer).__mro__)

    # A function

    def _function(self) -> None:
        parts = self.choice.name.split(".")
        if parts[0] == "__main__":
            main = sys.modules["__main__"]
            if self._later:
                _MainModule(parts[1], lambda: self._replace(main_now(), parts[1:]))
            elif not self._replace(main, parts[1:]):
                raise UsageError(f"step_on is 'function:{self.choice.name}', and the script has no function of this name yet")
            return
        for length in range(1, len(parts)):  # of module.Class.method, the class is no module
            after_import(".".join(parts[:length]), partial(self._replace, path=parts[length:]))

    def _replace(self, module: ModuleType, path: list[str]) -> bool | None:
        """Put ours around the function. False if it is not there; None where it is ours already."""
        owner: Any = module
        for part in path[:-1]:
            owner = getattr(owner, part, None)
        function = next(
            (vars(kind)[path[-1]] for kind in getattr(owner, "__mro__", [owner]) if path[-1] in getattr(kind, "__dict__", {})), None
        )
        inner: Any = getattr(function, "__func__", function)  # of a static or a class method
        if getattr(inner, "_stepscope_watch", None) is self:
            return None
        if not callable(inner) or isinstance(inner, ModuleType):
            return False
        outer = self._watched(inner)
        setattr(owner, path[-1], type(function)(outer) if isinstance(function, (staticmethod, classmethod)) else outer)
        if owner is module and not self._later:  # modules that have imported the function by its name
            for other in list(sys.modules.values()):
                names = vars(other) if isinstance(other, ModuleType) else {}
                for name in [name for name, value in list(names.items()) if value is inner]:
                    setattr(other, name, outer)
        self.found = True
        return True

    def _watched(self, inner: Any) -> Any:
        if not isinstance(inner, FunctionType):
            return _Callable(self, inner)

        @wraps(inner)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return self._around(inner, *args, **kwargs)

        watched._stepscope_watch = self  # type: ignore[attr-defined]
        # What PyTorch compiles is the function itself, as if we were not there.
        watched._torchdynamo_inline = watched._torchdynamo_orig_callable = inner  # type: ignore[attr-defined]
        return watched

    # Ranges

    def _annotations(self) -> None:
        after_import("stepscope.collect.plain", lambda module: module.watchers.append(self._range))
        after_import("torch.autograd.profiler", lambda module: self._range_class(module.record_function))
        after_import("jax", self._jax_ranges)

    def _range(self, name: str, entered: bool) -> None:
        if name == self.choice.name:
            if entered:
                self._quietly(self._begin)
            else:
                self._ended()

    def _jax_ranges(self, jax: Any) -> None:
        for kind in (jax.profiler.TraceAnnotation, jax.profiler.StepTraceAnnotation):
            if kind is jax.profiler.TraceAnnotation or "__exit__" in vars(kind):
                self._range_class(kind)
        named: Any = jax.profiler.TraceAnnotation
        init = named.__init__

        @wraps(init)
        def remember(annotation: Any, name: str, *args: Any, **kwargs: Any) -> None:
            init(annotation, name, *args, **kwargs)
            annotation.name = name

        named.__init__ = remember

    def _range_class(self, kind: Any) -> None:
        enter, leave = kind.__enter__, kind.__exit__

        @wraps(enter)
        def enter_(annotation: Any) -> Any:
            self._range(getattr(annotation, "name", ""), True)
            return enter(annotation)

        @wraps(leave)
        def leave_(annotation: Any, *args: Any) -> Any:
            result = leave(annotation, *args)
            self._range(getattr(annotation, "name", ""), False)
            return result

        kind.__enter__, kind.__exit__ = enter_, leave_

    # Batches

    def _loaders(self) -> None:
        after_import("torch.utils.data.dataloader", lambda module: self._loader_class(module._BaseDataLoaderIter))
        after_import("mindspore.dataset.engine.iterators", lambda module: self._loader_class(module.Iterator))

    def _loader_class(self, kind: Any) -> None:
        fetch = kind.__next__

        @wraps(fetch)
        def next_(iterator: Any) -> Any:
            if getattr(self._depth, "value", 0):  # a loader that reads from another
                return fetch(iterator)
            if self._between:
                self._quietly(self._begin)
            else:
                self._ended()
            self._depth.value, self._between = 1, False
            try:
                return fetch(iterator)
            except StopIteration:
                self._between = True  # up to the next batch there is no step to end
                raise
            finally:
                self._depth.value = 0

        kind.__next__ = next_


class _Callable:
    """Around what can be called and is no function, such as what jax.jit returns."""

    def __init__(self, watch: Watch, inner: Any) -> None:
        self.__dict__.update(_stepscope_watch=watch, _stepscope_inner=inner, __wrapped__=inner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._stepscope_watch._around(self._stepscope_inner, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stepscope_inner"], name)


def main_now() -> ModuleType:
    """The script as a module, also in a process that multiprocessing has spawned."""
    return sys.modules.get("__mp_main__") or sys.modules["__main__"]


class _MainModule:
    """Waits for the script to define a name, with sys.settrace: nothing else tells. Ends with the first call of what was defined.

    Each line at the top level of the script is looked at; other functions cost their call. A script may define a function and then put
    something around it, as `step = torch.compile(step)` does: the latest counts.
    """

    def __init__(self, name: str, replace: Callable[[], bool | None]) -> None:
        self._name, self._replace = name, replace
        self._found = False
        sys.settrace(self._call)
        os.register_at_fork(after_in_child=self._forked)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_name == "<module>" and frame.f_globals.get("__name__") in ("__main__", "__mp_main__"):
            return self._line
        if code.co_filename == __file__ and code.co_name in ("watched", "__call__"):
            sys.settrace(None)
        return None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if self._name in frame.f_globals:
            self._found = self._replace() is not False or self._found
        if event == "return":  # the script is over, or was only imported by a process that multiprocessing has spawned
            sys.settrace(None)
        return self._line

    def _forked(self) -> None:
        """A child, such as one that loads data, is not slowed down for what is there already."""
        if self._found and getattr(sys.gettrace(), "__self__", None) is self:
            sys.settrace(None)
