"""PyTorch: operators, kernels, memory, modules and the DataLoader, through torch.profiler and without changes to user code."""

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from stepscope.model.captures import Capture
from stepscope.process import clock
from stepscope.process.notices import say
from stepscope.recording.collectors.nvml import Sampler
from stepscope.recording.collectors.options import Options, ProfilerActivity, ProfilerLevel
from stepscope.recording.collectors.torch import npu, ranges, surroundings
from stepscope.recording.collectors.torch.clock import Session
from stepscope.recording.collectors.torch.loader import Watch
from stepscope.recording.collectors.torch.modules import Ranges
from stepscope.recording.collectors.torch.saves import Saves
from stepscope.recording.collectors.torch.sessions import sessions
from stepscope.recording.collectors.torch.sessions.budget import Budget
from stepscope.recording.collectors.torch.sessions.collectives import Collectives
from stepscope.recording.collectors.torch.sessions.session_writer import CLOCK_ERROR_NS, SessionWriter
from stepscope.recording.process.signals import run_on_main_thread

_SIZE_CHECK_S = 0.25  # between two checks of a session's size where no step ends
_OTHER_THREAD = (
    "another thread than the one that started recording trains: PyTorch records the operators of the starting thread only. "
    "Start the profiler in the thread that trains"
)


def prepare(options: Options) -> None:
    """Ranges that are open when a session starts are recorded, if they are tracked before."""
    if not npu.present():
        ranges.track()


class Collector:
    """From start to stop: one session of torch.profiler or, where that would need too much memory, several.

    A session that holds as much as it may is paused. It is written at the first end of a step where that takes no more than its share of
    the time, and the next one starts there: the steps in between are not recorded.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.profiler: Any = None  # PyTorch's, of the latest session
        self.keep_events = False  # PyTorch's own summary stays available after stop, which takes longer then
        self.full = False  # the limit on events was reached
        self.unwanted = False  # the events need not be written: a warm-up
        self._extras: list[Any] = []
        self._running = self._paused = self._resting = self._working = False
        self._refused = ""  # why no session could start
        self._marker: Any = None
        self._step: int | None = None
        self._unrecorded: tuple[int, bool, int] | None = None  # since this step, whether it was recorded in part, and this timestamp
        self._over = threading.Event()

    def start(self, capture: Capture) -> None:
        import torch

        self._capture = capture
        capture.header |= {"base": "torch", "framework": "pytorch"}
        capture.header["versions"] = capture.header.get("versions", {}) | surroundings.versions()
        for notice in surroundings.options_without_effect(self._options):
            capture.notice(notice)
        if npu.present() and ProfilerActivity.NPU in self._options.activities:
            self.profiler = npu.start(self._options, capture)
            return
        ranges.track()
        self._writer = SessionWriter(capture, self._options)
        self._budget = Budget(self._options, older=not surroundings.has_activity_records())
        self._begin()
        sessions.listen(self._give_way)
        self._extras = [Watch(capture), Saves()]
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
        threading.Thread(target=self._check_size, name="stepscope size", daemon=True).start()

    @property
    def events(self) -> int:
        """Written so far."""
        return self._writer.events

    def _begin(self) -> None:
        """Start a session, if one may start here; else it is tried again at the next step."""
        import torch

        if reason := ranges.obstacle():
            self._refused = reason
            return
        options = self._options
        # A session belongs to the thread that starts it. One that another thread than the main one starts must outlive that thread.
        self._all_threads = threading.current_thread() is not threading.main_thread() and "profile_all_threads" in _config_names()
        if self._all_threads and options.profile_memory:
            self._capture.notice("profile_memory: PyTorch records no memory where training runs in another thread than the main one")
        self.profiler = torch.profiler.profile(
            activities=surroundings.activities(options.activities),
            record_shapes=options.record_shapes,
            profile_memory=options.profile_memory,
            with_stack=options.with_stack,
            with_flops=options.with_flops,
            experimental_config=self._config(),
        )
        self._session = Session(self._capture)
        self._collectives = Collectives()
        ranges.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch 2.11 warns that a second session would replace the first, in any case
            self.profiler.start()
        with self._partial_ranges():
            ranges.reopen()
        self._thread, self._native_thread = threading.get_ident(), threading.get_native_id()
        self._since, self._steps = time.monotonic(), 0
        self._running, self._paused, self._refused = True, False, ""
        self._budget.begin()

    def _config(self) -> Any:
        from torch._C._profiler import _ExperimentalConfig

        options = self._options
        settings = {
            "expose_kineto_event_metadata": True,
            "trace_only": not (self.keep_events or options.with_stack or options.with_flops),
            "enable_cuda_sync_events": options.profiler_level in (ProfilerLevel.Level1, ProfilerLevel.Level2),
            "profile_all_threads": self._all_threads,
        }
        names = _config_names()
        config: Any = _ExperimentalConfig
        return config(**{name: value for name, value in settings.items() if name in names})

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
        with self._uninterrupted():
            if self._end_marker():
                self._steps += 1
            if self._running and self._session.clock_was_set:
                self._write(number)  # timestamps of the next session are right again
                self._continue(number)
            elif self._running and self._options.keep_slow is not None and (self._paused or self._budget.is_full(self._steps)):
                self.full = True  # most windows are deleted: end this one rather than write in the middle of it
            elif self._running and not self._paused and self._budget.is_full(self._steps):
                self._pause(number)
            if self._running and self._paused and not self.full and self._budget.may_write() and self._collectives.are_over(self._paused_s):
                self._write(number)
                self._continue(number)
            elif self._resting and self._budget.may_begin():
                self._continue(number)
            elif self._refused and not self.full:
                self._try_again(number)
            self._step = number
            if self._running and not self._paused:
                self._marker = torch.profiler.record_function(f"ProfilerStep#{number}")
                self._session.enter(self._marker, f"ProfilerStep#{number}")

    def _end_marker(self) -> bool:
        marker, self._marker = self._marker, None
        if marker:
            marker.__exit__(None, None, None)
        return bool(marker)

    def _pause(self, number: int | None) -> None:
        """The session holds as much as it may. `number` is the step that begins, None inside a step."""
        self._recorded_s = time.monotonic() - self._since
        since = (self._step or 0, True, clock.now_ns()) if number is None else (number, False, clock.now_ns())
        options = self._options
        if options.with_stack or options.profile_memory or self._all_threads:  # stacks, memory and other threads cannot pause
            self._write(number)
            self._resting = not self.full
        else:
            sessions.pause(self.profiler)
            self._paused, self._paused_at = True, time.monotonic()
        self._unrecorded = since

    @property
    def _paused_s(self) -> float:
        return time.monotonic() - self._paused_at if self._paused else 0.0

    def _write(self, number: int | None) -> None:
        """End the session and write it."""
        if not self._paused:
            self._recorded_s = time.monotonic() - self._since
        began, began_ns = time.monotonic(), clock.now_ns()
        count = self._end_session()
        pause_s = time.monotonic() - began
        self._budget.written(count, self._steps, self._recorded_s, pause_s)
        where = f"before step {number}" if number is not None else f"in step {self._step}"
        self._add_span("recording paused to write", began_ns)
        content = "JSON" if self._writer.as_json else f"{count:,} events"
        self._capture.notice(f"training paused for {pause_s:.3f} s {where}, to write {content}")
        step = self._step if number is None else number
        if self._writer.as_json:
            self.full = True
            reason = f"a JSON file takes one session of at most {self._budget.held:,} events (max_held_events)"
            self._capture.notice(f"recording ended early, at step {step}: {reason}")
        elif not self._budget.room:
            self.full = True
            self._capture.notice(f"recording ended early, at step {step}: max_events={self._options.max_events:,} was reached")

    def _continue(self, number: int) -> None:
        self._resting = False
        self._report_unrecorded(number)
        if not self.full:
            self._begin()

    def _try_again(self, number: int) -> None:
        reason, self._refused = self._refused, ""
        self._begin()
        if self._running:
            self._capture.notice(f"PyTorch is recorded from step {number} on: before, {reason}")

    def _report_unrecorded(self, number: int | None) -> None:
        """Add notices for the time without a session, which ends where step `number` begins, or with the recording."""
        if self._unrecorded is None:
            return
        (first, in_part, since_ns), self._unrecorded = self._unrecorded, None
        if in_part:
            held = f"about {self._budget.held:,} events (max_held_events)"
            self._capture.notice(f"step {first} is recorded in part: PyTorch holds {held}, which are written when a step ends")
            first += 1
        last = ((self._step or 0) if number is None else number) - 1  # the step that runs at the end does not count
        if last >= first:
            steps = f"steps {first} to {last}" if last > first else f"step {first}"
            limit = f"{self._options.max_pause_percent} % of the time (max_pause_percent)"
            self._capture.notice(f"{steps} not recorded: writing may pause training for {limit}")
        if in_part or last >= first:
            self._add_span("not recorded", since_ns)

    def _add_span(self, name: str, since_ns: int) -> None:
        """On a separate track of the timeline."""
        start = np.array([since_ns], np.int64)
        texts = {"kind": ["annotation"], "thread": ["recording"], "group": ["stepscope"], "track_kind": ["annotation"]}
        self._capture.append(
            "spans",
            {"name": [name], "start_ns": start, "dur_ns": np.maximum(clock.now_ns() - start, 0), "tid": np.zeros(1, np.int64), **texts},
        )

    def _check_size(self) -> None:
        """Steps may be long, or may never end: a session that is full does not wait for the end of one."""
        while not self._over.wait(_SIZE_CHECK_S):
            on_main = self._running and self._thread == threading.main_thread().ident  # other threads wait for the end of a step
            if on_main and not self._paused and not self._working and self._budget.is_full():
                run_on_main_thread(self._pause_in_step)

    def _pause_in_step(self) -> None:
        is_full = self._running and not self._paused and not self._working and self._budget.is_full()
        if is_full and not ranges.on_stack():  # inside an operator PyTorch would undo the pause; it is tried again
            with self._uninterrupted():
                if self._end_marker():  # an incomplete step
                    self._capture.header.setdefault("cut_steps", []).append(self._step)
                self._pause(None)

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Calls that are pending for the main thread do nothing in here."""
        self._working = True
        try:
            yield
        finally:
            self._working = False

    def stop(self) -> None:
        self._over.set()
        sessions.ignore(self._give_way)
        for extra in self._extras:
            extra.stop()
        self._report_unrecorded(None)
        if self._running:
            self._end_in_step()
        elif npu.present() and self.profiler is not None:
            self.profiler.stop()
        elif self._refused:
            self._capture.notice(say(f"PyTorch is not recorded: {self._refused}"))
        self._capture.header["torch"] = surroundings.kineto_header(self._options)
        if (job := surroundings.job()) is not None:
            self._capture.header |= job

    def _give_way(self) -> None:
        """Another profiler starts, and PyTorch would silently drop this session for it."""
        if self._running and not self._working:
            self._capture.notice("PyTorch is recorded up to where the program's own torch.profiler started: there is one at a time")
            self._report_unrecorded(None)
            self._end_in_step()

    def _end_in_step(self) -> None:
        """End the session; the step that runs is incomplete."""
        with self._uninterrupted():
            if self._end_marker():
                self._capture.header["open_step"] = self._step
            self._end_session()
            threads = {thread for extra in self._extras if isinstance(extra, Ranges) for thread in extra.threads}
            if not self._all_threads and threads - {self._thread} and not self.unwanted:
                self._capture.notice(say(_OTHER_THREAD))

    def _end_session(self) -> int:
        """Stop PyTorch's profiler and write its events: how many there are."""
        if threading.get_ident() != self._thread and not self._all_threads:
            self._capture.notice("stopped by another thread than the one that started recording: PyTorch's events are lost")
        with self._partial_ranges():
            ranges.close()
        if not self._wait_for_collectives():
            return 0
        if self._paused:
            sessions.resume(self.profiler)
        self._running = self._paused = False
        stopped_ns = clock.now_ns()
        self._session.close()
        self.profiler.stop()
        ranges.reopen()
        count = 0
        open_elsewhere: list[tuple[int, str]] = []
        if not self.unwanted:
            count, open_elsewhere = self._writer.write(
                self.profiler, self._session, room=self._budget.room, thread=self._native_thread, stopped_ns=stopped_ns
            )
        ranges.session_ended(open_elsewhere)
        self.full = self.full or self._writer.full
        if not self.keep_events:
            self.profiler = None  # it holds all events
        return count

    def _wait_for_collectives(self) -> bool:
        """False where a collective may still run: PyTorch's session must not end then, and its events are lost."""
        import torch

        autograd: Any = torch.autograd
        if not self._paused:
            autograd._enable_record_function(False)  # later collectives are not recorded
        over = self._collectives.wait(self._paused_s)
        if not self._paused:
            autograd._enable_record_function(True)
        if not over:
            self._running, self.full = False, True
            ranges.abandon_session()
            self._capture.notice(say("PyTorch's events are lost: a collective was still running when the recording ended"), lost=1)
        return over

    @contextmanager
    def _partial_ranges(self) -> Iterator[None]:
        """Ranges of the program that are open here are recorded in part: readers must distinguish them from complete ones."""
        names, since_ns = ranges.open_names(), clock.now_ns()
        yield
        if names:
            span = [since_ns - CLOCK_ERROR_NS, clock.now_ns() + CLOCK_ERROR_NS]
            self._capture.header.setdefault("in_part", []).extend([name, *span] for name in names)


def _config_names() -> str:
    """Names the settings that this release of PyTorch accepts."""
    from torch._C._profiler import _ExperimentalConfig

    return _ExperimentalConfig.__init__.__doc__ or ""
