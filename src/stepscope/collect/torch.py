"""PyTorch: operators, kernels, memory, modules and the DataLoader, through torch.profiler and without touching user code."""

import ctypes
import gc
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from stepscope import clock
from stepscope.captures import Capture, Column
from stepscope.collect import _torch_events, _torch_older
from stepscope.collect import _torch_npu as npu
from stepscope.collect import _torch_ranges as ranges
from stepscope.collect._nvml import Sampler
from stepscope.collect._torch_budget import Budget
from stepscope.collect._torch_clock import Session
from stepscope.collect._torch_loader import Watch
from stepscope.collect._torch_modules import Ranges
from stepscope.collect.options import Options, ProfilerActivity, ProfilerLevel, of_ascend_alone
from stepscope.endings import on_main_thread
from stepscope.telling import say

FALLBACK = "kineto.json"  # Kineto's own file, where its events could not be taken over
_WATCHED_S = 0.25  # how often the size of a session is looked at where no step ends
_CLOCKS_NS = 100_000  # by which PyTorch's times may differ from the system's


class Collector:
    """From start to stop: one session of torch.profiler or, where that would hold too much in memory, several.

    A session that holds as much as it may records nothing more. It is written at the first step border where that takes no more than
    its share of the time, and the next one begins there: steps in between are not recorded.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.profiler: Any = None  # torch's own, of the latest session
        self.keep_events = False  # torch can be asked for its own summary afterwards; stop takes longer then
        self.full = False  # the bound on events was reached
        self.unwanted = False  # what was recorded is not to be written: a warm-up
        self.events = 0  # written down so far
        self._extras: list[Any] = []
        self._running = self._paused = self._resting = self._at_work = False
        self._refused = ""  # why no session could begin
        self._as_json = False  # the session was written in Kineto's own form
        self._marker: Any = None
        self._step: int | None = None
        self._unrecorded: tuple[int, bool, int] | None = None  # since this step, whether it was recorded in part, and this timestamp
        self._first_number = self._last_number = 0  # what the numbers of this session are counted from, and the largest
        self._over = threading.Event()

    def start(self, capture: Capture) -> None:
        import torch

        self._capture = capture
        capture.header |= {"base": "torch", "framework": "pytorch"}
        capture.header["versions"] = capture.header.get("versions", {}) | _versions()
        for what in _without_effect(self._options):
            capture.notice(what)
        if npu.present() and ProfilerActivity.NPU in self._options.activities:
            self.profiler = npu.start(self._options, capture)
            return
        _watch_for_others()
        ranges.track()
        _collecting.append(self)
        self._budget = Budget(self._options, older=not _gives_activities())
        self._begin()
        self._extras = [Watch(capture)]
        if self._options.with_modules:
            self._extras.append(Ranges())
        if torch.cuda.is_available() and self._options.host_interval_ms and ProfilerActivity.GPU in self._options.activities:
            self._extras.append(Sampler(capture, self._options))
        for extra in list(self._extras):
            try:
                extra.start()
            except (ImportError, AttributeError, OSError, RuntimeError) as error:  # another release, no driver: the rest is recorded
                self._extras.remove(extra)
                capture.notice(f"{extra.WHAT} not recorded: {error}")
        threading.Thread(target=self._watch_size, name="stepscope size", daemon=True).start()

    def _begin(self) -> None:
        """A session, if one may begin here; else it is tried again at the next step."""
        import torch
        from torch._C._profiler import _ExperimentalConfig

        if why := ranges.obstacle():
            self._refused = why
            return
        options = self._options
        config: Any = _ExperimentalConfig
        known = config.__init__.__doc__ or ""  # names what this release takes
        # A session belongs to the thread that begins it. One begun elsewhere must outlive its thread.
        self._all_threads = threading.current_thread() is not threading.main_thread() and "profile_all_threads" in known
        if self._all_threads and options.profile_memory:
            self._capture.notice("profile_memory: PyTorch tells nothing of memory where training runs in another thread than the main one")
        wanted = {
            "expose_kineto_event_metadata": True,
            "trace_only": not (self.keep_events or options.with_stack or options.with_flops),
            "enable_cuda_sync_events": options.profiler_level in (ProfilerLevel.Level1, ProfilerLevel.Level2),
            "profile_all_threads": self._all_threads,
        }
        self.profiler = torch.profiler.profile(
            activities=_activities(options.activities),
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_flops=options.with_flops,
            experimental_config=config(**{name: value for name, value in wanted.items() if name in known}),
        )
        self._session = Session(self._capture)
        ranges.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch 2.11 warns that a second session would forget the first, whether or not there is one
            self.profiler.start()
        with self._in_part():
            ranges.reopen()
        self._thread, self._native_thread = threading.get_ident(), threading.get_native_id()
        self._since, self._steps = time.monotonic(), 0
        self._running, self._paused, self._refused = True, False, ""
        self._budget.begin()

    def step(self, number: int) -> None:
        import torch

        if npu.present() and self.profiler is not None and not self._running:
            if self._step is not None:
                self.profiler.step()
            self._step = number
            return
        if self._running and not self._all_threads and threading.get_ident() != self._thread:
            self._capture.notice(say(_OTHER_THREAD))
            return
        with self._working():
            if self._marker:
                self._marker.__exit__(None, None, None)
                self._marker = None
                self._steps += 1
            if self._running and self._session.clock_was_set:
                self._write(number)  # what PyTorch records from here on will have true timestamps again
                self._go_on(number)
            elif self._running and not self._paused and self._budget.is_full(self._steps):
                self._relieve(number)
            if self._running and self._paused and self._budget.may_write() and self._collectives_ended():
                self._write(number)
                self._go_on(number)
            elif self._resting and self._budget.may_begin():
                self._go_on(number)
            elif self._refused and not self.full:
                self._try_again(number)
            self._step = number
            if self._running and not self._paused:
                self._marker = torch.profiler.record_function(f"ProfilerStep#{number}")
                self._session.enter(self._marker, f"ProfilerStep#{number}")

    def _relieve(self, number: int | None) -> None:
        """The session holds what it may. `number` is the step that begins, None within a step."""
        self._recorded_s = time.monotonic() - self._since
        since = (self._step or 0, True, clock.now_ns()) if number is None else (number, False, clock.now_ns())
        options = self._options
        if options.with_stack or options.profile_memory or self._all_threads:  # no pause for stacks, memory and other threads
            self._write(number)
            self._resting = not self.full
        else:
            _leave_out(self.profiler, True)
            self._paused, self._paused_at = True, time.monotonic()
        self._unrecorded = since

    def _collectives_ended(self) -> bool:
        """Whether those that were under way when recording was paused have long been over."""
        return not _is_distributed() or time.monotonic() - self._paused_at >= _COLLECTIVES_S

    def _write(self, number: int | None) -> None:
        """End the session and write it."""
        if not self._paused:
            self._recorded_s = time.monotonic() - self._since
        began, began_ns = time.monotonic(), clock.now_ns()
        count = self._end_session()
        pause_s = time.monotonic() - began
        self._budget.written(count, self._steps, self._recorded_s, pause_s)
        where = f"before step {number}" if number is not None else f"in step {self._step}"
        self._mark("recording paused to write", began_ns)
        self._capture.notice(f"training paused for {pause_s:.3f} s {where}, to write {'JSON' if self._as_json else f'{count:,} events'}")
        step = self._step if number is None else number
        if self._as_json:
            self.full = True
            what = f"a JSON file takes one session of at most {self._budget.held:,} events (max_held_events)"
            self._capture.notice(f"recording ended early, at step {step}: {what}")
        elif not self._budget.room:
            self.full = True
            self._capture.notice(f"recording ended early, at step {step}: max_events={self._options.max_events:,} was reached")

    def _go_on(self, number: int) -> None:
        self._resting = False
        self._note_unrecorded(number)
        if not self.full:
            self._begin()

    def _try_again(self, number: int) -> None:
        why, self._refused = self._refused, ""
        self._begin()
        if self._running:
            self._capture.notice(f"PyTorch is recorded from step {number} on: before, {why}")

    def _note_unrecorded(self, number: int | None) -> None:
        """Nothing was recorded until step `number` begins, or until the end."""
        if self._unrecorded is None:
            return
        (first, in_part, since_ns), self._unrecorded = self._unrecorded, None
        percent = f"writing may pause training for {self._options.max_pause_percent} % of the time (max_pause_percent)"
        if in_part:
            held = f"about {self._budget.held:,} events (max_held_events)"
            self._capture.notice(f"step {first} is recorded in part: PyTorch holds {held}, which are written when a step ends")
            first += 1
        last = ((self._step or 0) if number is None else number) - 1  # the step that is under way at the end is none
        if last >= first:
            self._capture.notice(f"{f'steps {first} to {last}' if last > first else f'step {first}'} not recorded: {percent}")
        if in_part or last >= first:
            self._mark("not recorded", since_ns)

    def _mark(self, name: str, since_ns: int) -> None:
        """On the timeline, on a track of its own."""
        start = np.array([since_ns], np.int64)
        more = {"kind": ["annotation"], "thread": ["recording"], "group": ["stepscope"], "track_kind": ["annotation"]}
        self._capture.append(
            "spans",
            {"name": [name], "start_ns": start, "dur_ns": np.maximum(clock.now_ns() - start, 0), "tid": np.zeros(1, np.int64), **more},
        )

    def _watch_size(self) -> None:
        """Steps may be long, or none may ever end: a session that is full does not wait for one."""
        while not self._over.wait(_WATCHED_S):
            on_main = self._running and self._thread == threading.main_thread().ident  # else the next step border must do
            if on_main and not self._paused and not self._at_work and self._budget.is_full():
                on_main_thread(self._relieve_in_step)

    def _relieve_in_step(self) -> None:
        full = self._running and not self._paused and not self._at_work and self._budget.is_full()
        if full and not ranges.on_stack():  # inside an operator PyTorch would take it back; it is tried again
            with self._working():
                if self._marker:  # such a step is none
                    self._marker.__exit__(None, None, None)
                    self._marker = None
                    self._capture.header.setdefault("cut_steps", []).append(self._step)
                self._relieve(None)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """What the main thread is asked to do between two instructions must not come in between here."""
        self._at_work = True
        try:
            yield
        finally:
            self._at_work = False

    def stop(self) -> None:
        self._over.set()
        if self in _collecting:
            _collecting.remove(self)
        for extra in self._extras:
            extra.stop()
        self._note_unrecorded(None)
        if self._running:
            self._end_in_step()
        elif npu.present() and self.profiler is not None:
            self.profiler.stop()
        elif self._refused:
            self._capture.notice(say(f"PyTorch is not recorded: {self._refused}"))
        self._capture.header["torch"] = _surroundings(self._options)
        if (job := _job()) is not None:
            self._capture.header |= job

    def give_way(self) -> None:
        """A profiler of the program's own begins, and PyTorch would forget this session for it, without a word."""
        if self._running:
            self._capture.notice("PyTorch is recorded up to where the program's own torch.profiler began: there is one at a time")
            self._note_unrecorded(None)
            self._end_in_step()

    def _end_in_step(self) -> None:
        """The step that is not over is no step."""
        with self._working():
            if self._marker:
                self._marker.__exit__(None, None, None)
                self._marker = None
                self._capture.header["open_step"] = self._step
            self._end_session()
            called = {thread for extra in self._extras if isinstance(extra, Ranges) for thread in extra.threads}
            if not self._all_threads and called - {self._thread} and not self.unwanted:
                self._capture.notice(say(_OTHER_THREAD))

    def _end_session(self) -> int:
        """Stop torch's profiler and write down what it saw: how many events."""
        if threading.get_ident() != self._thread and not self._all_threads:
            self._capture.notice("stopped by another thread than the one that started recording: what PyTorch did is lost")
        with self._in_part():
            ranges.close()
        if not self._paused or not self._collectives_ended():
            _let_collectives_end()
        if self._paused:
            _leave_out(self.profiler, False)
        self._running = self._paused = False
        stopped_ns = clock.now_ns()
        self._session.close()
        self.profiler.stop()
        ranges.reopen()
        elsewhere: list[tuple[int, str]] = []
        count, cut = 0, _torch_events.Cut(self._budget.room)
        collects = gc.isenabled()
        gc.disable()  # what is made here is no garbage, and to look through the program's objects for some takes long
        try:
            results = self.profiler.profiler.kineto_results
            source = _torch_events if hasattr(results, "trace_activities") else _torch_older
            pieces = iter(()) if self.unwanted else source.pieces(results, self._options, cut)
            if self._options.with_stack and source is _torch_older and not self.unwanted:
                self._write_json("before 2.12 it gives Python stacks in no other way")
                pieces = iter(())
            for table, piece in self._session.corrected(pieces):
                self._capture.append(table, self._renumbered(piece))
                count += len(piece["start_ns"])
                if table == "torch":
                    elsewhere += self._open_elsewhere(piece, stopped_ns - _CLOCKS_NS)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:  # private to PyTorch: another release may do otherwise
            self._fall_back(f"{type(error).__name__}: {error}")
        finally:
            if collects:
                gc.enable()
        ranges.session_ended(elsewhere)
        if not self.keep_events:
            self.profiler = None  # holds everything it recorded
        if cut.lost:
            self.full = True
            self._capture.header["recorded_until_ns"] = cut.at_ns
            what = f"max_events={self._options.max_events:,} was reached: what began later is not written"
            self._capture.notice(what, lost=cut.lost)
        self.events += count
        self._first_number = self._last_number
        return count

    @contextmanager
    def _in_part(self) -> Iterator[None]:
        """Ranges of the program that are open here are recorded in part: readers must know them from whole ones."""
        names, since_ns = ranges.open_names(), clock.now_ns()
        yield
        if names:
            span = [since_ns - _CLOCKS_NS, clock.now_ns() + _CLOCKS_NS]
            self._capture.header.setdefault("in_part", []).extend([name, *span] for name in names)

    def _open_elsewhere(self, piece: Mapping[str, Any], late_ns: int) -> list[tuple[int, str]]:
        """Operators on other threads that had not ended when the session did."""
        late = (piece["start_ns"] + piece["dur_ns"] > late_ns) & (piece["tid"] != self._native_thread)
        names = piece["name"]
        return [(int(piece["tid"][row]), names.words[names.codes[row]]) for row in np.flatnonzero(late & piece["category"].where(_ON_HOST))]

    def _renumbered(self, piece: Mapping[str, Column]) -> dict[str, Column]:
        """Numbers that tie events together start again in each session; in the capture they must not."""
        columns = dict(piece)
        for name in columns.keys() & {"correlation", "external", "flow"}:
            values = np.asarray(columns[name])
            self._last_number = max(self._last_number, self._first_number + int(values.max(initial=0)))
            if self._first_number:
                columns[name] = np.where(values > 0, values + np.int64(self._first_number), values)
        return columns

    def _fall_back(self, why: str) -> None:
        if self.events:
            self.full = True
            self._capture.notice(f"recording ended early: PyTorch's events could not be taken over ({why})", lost=1)
            return
        self._write_json(f"they could not be taken over ({why})")

    def _write_json(self, why: str) -> None:
        """Kineto's own file. A capture has one of them, so no session may follow."""
        self.profiler.export_chrome_trace(str(self._capture.folder / FALLBACK))
        self._as_json = True
        self._capture.notice(f"PyTorch's events are written as JSON, which takes longer to read: {why}")


_ON_HOST = ("cpu_op", "user_annotation")
_OTHER_THREAD = (
    "another thread than the one that started recording trains: PyTorch records the operators of the latter only. "
    "Start the profiler in the thread that trains"
)


def _leave_out(profiler: Any, off: bool) -> None:
    """Let this thread's session see nothing for a while, or go on. What is open stays known to it."""
    import torch

    autograd: Any = torch.autograd
    autograd._enable_record_function(not off)
    if torch.cuda.is_available() and hasattr(profiler, "toggle_collection_dynamic"):
        with _without_warning():
            profiler.toggle_collection_dynamic(not off, [torch.profiler.ProfilerActivity.CUDA])


def _let_collectives_end() -> None:
    """The range of a collective ends in the thread that carries it out, a moment after who waited for it went on: were the session over by
    then, PyTorch would write into what it has freed. Of later ones nothing is recorded meanwhile."""
    import torch

    if _is_distributed():
        autograd: Any = torch.autograd
        autograd._enable_record_function(False)
        time.sleep(_COLLECTIVES_S)
        autograd._enable_record_function(True)


def _is_distributed() -> bool:
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


_COLLECTIVES_S = 0.5  # on a busy machine such a thread may have to wait that long


@contextmanager
def _without_warning() -> Iterator[None]:
    """PyTorch's C++ warns each time that host and device could be told apart wrongly: not where the session ends while they are off."""
    import torch

    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so")), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):  # another build: it warns
        yield
        return
    before, level.value = level.value, 2
    try:
        yield
    finally:
        level.value = before


def prepare(options: Options) -> None:
    """Ranges that are open when a session begins are in it, if they are known by then."""
    if not npu.present():
        ranges.track()


_collecting: list[Collector] = []


def _watch_for_others() -> None:
    """Every profiler of PyTorch begins here."""
    import torch

    kind: Any = torch.autograd.profiler.profile
    begin = getattr(kind, "_prepare_trace", None)
    if begin is None or hasattr(begin, "_watched"):
        return

    @wraps(begin)
    def prepare_trace(profiler: Any) -> Any:
        for collector in list(_collecting):
            try:
                collector.give_way()
            except Exception as error:  # noqa: BLE001 - the program's profiler begins, whatever becomes of ours
                collector._capture.notice(f"what PyTorch did is lost: {type(error).__name__}: {error}")
        return begin(profiler)

    prepare_trace._watched = True  # type: ignore[attr-defined]
    kind._prepare_trace = prepare_trace


def _activities(wanted: tuple[ProfilerActivity, ...]) -> list[Any]:
    import torch

    profiler: Any = torch.profiler
    there = profiler.supported_activities()
    names = {ProfilerActivity.CPU: ("CPU",), ProfilerActivity.GPU: ("CUDA", "XPU"), ProfilerActivity.NPU: ("PrivateUse1", "MTIA", "HPU")}
    found = [activity for one in wanted for name in names[one] if (activity := getattr(profiler.ProfilerActivity, name, None)) in there]
    # Where none of the devices that were asked for is there, the host is what can be seen.
    return found or [profiler.ProfilerActivity.CPU]


def _gives_activities() -> bool:
    """Whether PyTorch gives its events as they are; before 2.12 it makes a Python object of each."""
    import torch

    result = getattr(torch._C._autograd, "_ProfilerResult", None)
    return hasattr(result, "trace_activities")


def _versions() -> dict[str, str]:
    import torch

    return {"torch": str(torch.__version__)} | ({"cuda": str(torch.version.cuda)} if torch.version.cuda else {})


def _without_effect(options: Options) -> Iterator[str]:
    """What was asked for and cannot be had here."""
    import torch

    if npu.present():
        return
    yield from of_ascend_alone(options)
    for name in ("hbm_ddr", "pcie"):
        if getattr(options, name) and not torch.cuda.is_available():
            yield f"{name}: there is no GPU"


def _surroundings(options: Options) -> dict[str, Any]:
    """What Kineto writes at the head of its file, and the names of the threads."""
    import torch

    cuda: Any = torch.cuda
    chips = [cuda.get_device_properties(number) for number in range(cuda.device_count())] if cuda.is_initialized() else []
    flags = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    threads = {task.name: _text(task / "comm") for task in Path("/proc/self/task").glob("*")}
    return {
        "header": {
            "schemaVersion": 1,
            "deviceProperties": [
                {
                    "id": number,
                    "name": chip.name,
                    "totalGlobalMem": chip.total_memory,
                    "computeMajor": chip.major,
                    "computeMinor": chip.minor,
                    "numSms": chip.multi_processor_count,
                }
                for number, chip in enumerate(chips)
            ],
            **{flag: int(getattr(options, flag)) for flag in flags},
        },
        "threads": threads,
    }


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:  # the thread has ended
        return ""


def _job() -> dict[str, Any] | None:
    """Rank and world as the process group has them; launchers may not say."""
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return {
        "rank": torch.distributed.get_rank(),
        "world_size": torch.distributed.get_world_size(),
        "backend": torch.distributed.get_backend(),
    }
