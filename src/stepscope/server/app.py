"""The HTTP interface: the routes and their answers. Nothing is computed in the event loop."""

import asyncio
import base64
import contextlib
import functools
import shutil
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stepscope import __version__
from stepscope.errors import DataError, StepscopeError, SummaryError, UsageError
from stepscope.io import store
from stepscope.model import parameters
from stepscope.query.process import MEMORY
from stepscope.server import answers
from stepscope.server.http import pages
from stepscope.server.http.access import Access
from stepscope.server.http.connections import Limits
from stepscope.server.http.responses import answer_response, event_stream, json_body, json_response, not_modified, query_words, tagged
from stepscope.server.routes import comparisons, exports, live, perfetto, timeline
from stepscope.server.routes.dismissals import Dismissals
from stepscope.server.routes.queries import QueryPool
from stepscope.server.routes.timeline import Building
from stepscope.server.routes.uploads import Uploads
from stepscope.server.runs import LARGE, Run, RunList
from stepscope.server.traces import Opening, Signature, Traces

_T = TypeVar("_T")
_WORKERS = 4
_MANY = 1 << 20  # rows of a table that takes long to answer
_PROGRESS_S = 0.25


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `stepscope view`."""

    roots: list[Path]
    token: str | None
    hosts: list[str] = []
    addresses: bool = False  # accept any IP address as Host: the server listens beyond the loopback
    prefix: str = ""
    partial: bool = False
    step_name: str | None = None
    cache: bool = True
    max_upload: int = 2 * 10**9
    query_s: float = 60.0  # the longest time of a SQL query
    limits: Limits = Limits()
    query_memory: int = MEMORY  # bytes of a SQL query
    debug: bool = False


class GoneError(StepscopeError):
    """The run does not exist."""


class Server:
    """The state that all routes share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ending = asyncio.Event()
        self.scratch = Path(tempfile.mkdtemp(prefix="stepscope.view."))  # readable for its owner only
        self.uploads = Uploads(self.scratch / "uploads", settings.max_upload)
        self.list = RunList([*settings.roots, self.uploads.folder])
        self.traces = Traces(self.scratch, partial=settings.partial, step_name=settings.step_name, cache=settings.cache)
        self.answers = answers.Answers()
        self.comparisons = comparisons.Comparisons()
        self.timelines = timeline.Timelines()
        self.dismissals = Dismissals(use_cache=settings.cache)
        self.queries = QueryPool(settings.query_s, settings.query_memory)
        self.watch = live.Watch(self._rows)
        self._pool = ThreadPoolExecutor(_WORKERS, "stepscope-answer")
        # Analyses may take minutes: the timeline does not wait for them.
        self._analysis_pool = ThreadPoolExecutor(_WORKERS, "stepscope-analyse")
        self._large_turn = asyncio.Semaphore(1)
        self._scan_lock = asyncio.Lock()
        self._scanned = False

    def application(self) -> ASGIApp:
        """The routes behind the access checks."""
        handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = dict.fromkeys(
            (StepscopeError, HTTPException, Exception), self.error_response
        )
        app = Starlette(routes=self.routes(), exception_handlers=handlers, lifespan=self.lifespan)
        app.router.redirect_slashes = False
        settings = self.settings
        return Access(app, token=settings.token, hosts=settings.hosts, addresses=settings.addresses, prefix=settings.prefix)

    def routes(self) -> list[Route]:
        return [
            Route("/", self.index),
            Route("/assets/{name:path}", self.asset),
            Route("/perfetto/{name:path}", self.perfetto),
            Route("/api/perfetto", self.perfetto_info),
            Route("/api/runs", self.runs),
            Route("/api/analyses", self.analyses),
            Route("/api/compare/{table}", self.compare),
            Route("/api/events", self.events),
            Route("/api/uploads", self.upload, methods=["POST"]),
            Route("/api/runs/{run}", self.info),
            Route("/api/runs/{run}/progress", self.progress),
            Route("/api/runs/{run}/cancel", self.cancel, methods=["POST"]),
            Route("/api/runs/{run}/analyses/{name}", functools.partial(self.table, "analyses")),
            Route("/api/runs/{run}/tables/{name}", functools.partial(self.table, "tables")),
            Route("/api/runs/{run}/dismissed", self.dismissed, methods=["GET", "POST"]),
            Route("/api/runs/{run}/query", self.query, methods=["POST"]),
            Route("/api/runs/{run}/export/{format}", self.export),
            Route("/api/runs/{run}/live", self.live),
            Route("/api/runs/{run}/timeline/progress", self.timeline_progress),
            *(
                Route(f"/api/runs/{{run}}/timeline{rest}", functools.partial(self.timeline, answer))
                for rest, answer in timeline.ROUTES.items()
            ),
        ]

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.close()

    def stop(self) -> None:
        """End the event streams, and the work that requests wait for."""
        self.ending.set()
        self.traces.stop()
        self.timelines.stop()
        self.queries.close()

    def close(self) -> None:
        self.stop()
        self.traces.close()
        self.timelines.close()
        for pool in (self._pool, self._analysis_pool):
            pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self.scratch, ignore_errors=True)

    # Pages

    async def index(self, request: Request) -> Response:
        return await self._threaded(lambda: pages.index(self.settings.prefix))

    async def asset(self, request: Request) -> Response:
        response = await self._threaded(lambda: pages.asset(request))
        if response is None:
            raise HTTPException(404, "no such file")
        return response

    async def perfetto(self, request: Request) -> Response:
        response = await self._threaded(lambda: perfetto.file_response(request, self.settings.prefix))
        if response is None:
            raise HTTPException(404, "no such file of the Perfetto viewer")
        return response

    async def perfetto_info(self, request: Request) -> Response:
        return json_response(await self._threaded(perfetto.info))

    # Runs

    async def runs(self, request: Request) -> Response:
        return json_response({"runs": await self._rows(), "roots": [str(root) for root in self.settings.roots], "version": __version__})

    async def info(self, request: Request) -> Response:
        run = await self._run(request)
        _, info, signature = await self.traces.trace(run)
        return tagged(request, json_response(info | {"state": run.state}), answers.entity_tag("info", run.state, run.id, signature))

    async def progress(self, request: Request) -> Response:
        """Events "progress" while a run is being read, then "finished", with an error if it failed. Starts to read if necessary."""
        return self._progress(await self.traces.open(await self._run(request)))

    async def cancel(self, request: Request) -> Response:
        return json_response({"cancelled": self.traces.cancel(await self._run(request))})

    async def events(self, request: Request) -> Response:
        return event_stream(self.watch.changes(self.ending))

    async def live(self, request: Request) -> Response:
        run = await self._run(request)

        async def current() -> Run | None:
            await self._scan()
            return self.list.run(run.id.partition("~")[0])

        return event_stream(live.states(run, current, self._threaded, self.ending))

    async def upload(self, request: Request) -> Response:
        """A file becomes a run. With more=1 it waits for the next file of its batch (together=): the ranks of a job become one run."""
        batch = request.query_params.get("together", "")
        try:
            path = await self.uploads.receive(request, self._threaded)
        except Exception:
            await self._publish(batch)  # the earlier files of the batch do not wait
            raise
        if batch and request.query_params.get("more") == "1":
            self.uploads.hold(path, batch)
            return json_response({"id": None}, 202)
        published = await self._publish(batch, path)
        run_id = next(run.id for run in self.list.runs() if any(source.path == published for source in run.sources))
        return json_response({"id": run_id}, 201)

    async def _publish(self, batch: str, last: Path | None = None) -> Path | None:
        """Move the files of a batch to the listed folder while no scan runs. Returns the new path of the last one."""
        async with self._scan_lock:
            if last is not None:
                self.uploads.hold(last, batch)
            paths = await self._threaded(lambda: self.uploads.publish(batch))
            if paths:
                await self._threaded(self.list.scan)
                self._scanned = True
        if paths:
            self.watch.wake()
        return paths[-1] if paths else None

    # Tables

    async def analyses(self, request: Request) -> Response:
        return json_response({"analyses": await self._threaded(answers.list_analyses)})

    async def table(self, kind: str, request: Request) -> Response:
        run = await self._run(request)
        words = query_words(request)
        question = await self._threaded(lambda: answers.parse_question(kind, request.path_params["name"], words))
        trace, info, signature = await self.traces.trace(run)
        tag = answers.entity_tag(*question.key, run.id, signature)
        if (unchanged := not_modified(request, tag)) is not None:
            return unchanged
        is_slow = kind == "analyses" or info["tables"][question.name] > _MANY
        kept = self._identity(run, signature) if self._has_cache(run) else None
        async with self._turn(info, question.steps) if is_slow else contextlib.nullcontext():
            answer = await self._threaded(
                lambda: self.answers.answer(trace, question, (run.id, signature), self.scratch, str(run.path), kept=kept),
                self._analysis_pool if is_slow else self._pool,
            )
        return await answer_response(request, answer, run.name, tag)

    async def compare(self, request: Request) -> Response:
        """A table of the comparison of two sets of runs: each is opened as for its own pages, and reading can be stopped there."""
        question = comparisons.parse_question(request.path_params["table"], query_words(request))
        runs = [await self._run_of(run_id) for run_id in question.runs]
        opened = [await self.traces.trace(run) for run in runs]
        key = tuple((run.id, signature) for run, (_, _, signature) in zip(runs, opened, strict=True))
        tag = answers.entity_tag(question, key)
        if (unchanged := not_modified(request, tag)) is not None:
            return unchanged
        parts = [(trace, info["part"] and tuple(info["part"])) for trace, info, _ in opened]
        largest = max((info for _, info, _ in opened), key=lambda info: int(info["tables"]["spans"]))
        async with self._turn(largest, question.steps or largest["part"]):
            answer = await self._threaded(lambda: self.comparisons.answer(question, parts, key, self.scratch), self._analysis_pool)
        return await answer_response(request, answer, runs[-1].name, tag)

    async def query(self, request: Request) -> Response:
        run = await self._run(request)
        body = await json_body(request)
        for name, number in body.items():
            if name in parameters.BOUNDS and isinstance(number, int | float):
                parameters.checked(int, name, number)
        trace, info, signature = await self.traces.trace(run)

        async def analyse(name: str, rank: int | None, steps: tuple[int, int] | None) -> pl.DataFrame:
            question = answers.Question("analyses", name, {}, rank, steps)
            async with self._turn(info, steps):
                return await self._threaded(lambda: self.answers.analysis(trace, question, (run.id, signature)), self._analysis_pool)

        content, rows = await self.queries.run(trace, body, analyse, request.is_disconnected)
        return await answer_response(request, answers.Answer(content, rows, answers.TYPES["arrow"]), run.name)

    async def dismissed(self, request: Request) -> Response:
        """The findings that the user dismissed; POST changes them, which needs a token: any local program could send it."""
        run = await self._run(request)
        if request.method != "POST":
            return json_response(
                await self._threaded(lambda: self.dismissals.answer(run.place)) | {"can_change": self.settings.token is not None}
            )
        if self.settings.token is None:
            raise HTTPException(403, "findings can only be dismissed on a server with a token")
        body = await json_body(request)
        return json_response(await self._threaded(lambda: self.dismissals.change(run.place, body)) | {"can_change": True})

    def _turn(self, info: dict[str, Any], steps: tuple[int, int] | None) -> contextlib.AbstractAsyncContextManager[Any]:
        """Analyses of all steps of a large run wait for each other: two at a time would need too much memory."""
        return self._large_turn if info["tables"]["spans"] > LARGE and steps is None else contextlib.nullcontext()

    async def export(self, request: Request) -> Response:
        run, format_name = await self._run(request), request.path_params["format"]
        parameters.check_word("format", format_name, exports.names())
        words = query_words(request)
        rank, steps = exports.pop_rank_and_steps(words)
        trace, info, _ = await self.traces.trace(run)
        window = exports.pop_window(words, int(info["origin_ns"]))
        options = parameters.values(words, exports.format_parameters(format_name), format_name)

        def export() -> answers.Answer:
            part = answers.part_of_trace(trace, rank, steps)
            part = part if window is None else part.of_time(*window)
            return exports.export(part, format_name, options, self.scratch, run.name)

        return await answer_response(request, await self._threaded(export, self._analysis_pool), run.name)

    async def timeline(self, answer: timeline.Answer, request: Request) -> Response:
        run, words = await self._run(request), query_words(request)
        words |= {name: word for name, word in request.path_params.items() if name != "run"}
        options = parameters.values(words, parameters.of(answer), f"timeline/{answer.__name__}")
        opened = await (await self._timeline(run)).result()
        response = await self._threaded(lambda: answer(opened, **options))
        opened.count_answer()
        return response

    async def timeline_progress(self, request: Request) -> Response:
        """Events "progress" while the timeline is being built, then "finished". Starts to build if necessary."""
        return self._progress(await self._timeline(await self._run(request)))

    async def _timeline(self, run: Run) -> Building:
        trace, info, signature = await self.traces.trace(run)
        ends = int(info["origin_ns"]), int(info["end_ns"])
        return self.timelines.open(trace, ends, *self._identity(run, signature), use_cache=self._has_cache(run))

    def _identity(self, run: Run, signature: Signature) -> tuple[str, Signature, bool, str | None]:
        """Identifies the files of a run and how they are opened."""
        return run.id, signature, self.settings.partial, run.step_name or self.settings.step_name

    def _has_cache(self, run: Run) -> bool:
        return self.settings.cache and run.state != "live"

    def _progress(self, job: Opening | Building) -> Response:
        async def events() -> AsyncIterator[tuple[str, Any]]:
            while not job.over and not self.ending.is_set():
                yield "progress", job.progress()
                await asyncio.sleep(_PROGRESS_S)
            error = job.error() if isinstance(job, Opening) else None
            yield "finished", job.progress() | ({"error": str(error)} if error else {})

        return event_stream(events())

    async def error_response(self, request: Request, error: Exception) -> Response:
        """Every error as one line."""
        if isinstance(error, HTTPException):
            kind = "gone" if error.status_code == 404 else "usage"
            return json_response({"error": error.detail or "refused", "kind": kind}, error.status_code, dict(error.headers or {}))
        if isinstance(error, pl.exceptions.PolarsError):
            error = await run_in_threadpool(store.named_damage, error)
        status, kind = next(((status, kind) for types, status, kind in _ERRORS if isinstance(error, types)), (500, "server"))
        if status == 500 and self.settings.debug:
            traceback.print_exception(error, file=sys.stderr)
        line = str(error)
        if not isinstance(error, StepscopeError):
            line = f"{type(error).__name__}: {(line.strip().splitlines() or [''])[0]}"
        return json_response({"error": line, "kind": kind}, status)

    # Shared by the routes

    async def _rows(self) -> list[dict[str, Any]]:
        await self._scan()
        return [self._row(run) for run in self.list.runs()]

    def _row(self, run: Run) -> dict[str, Any]:
        """The row of the list; a run that failed to open is shown as unreadable until its files change."""
        row = run.row()
        if (failed := self.traces.failed.get(run.id)) and failed[0] == run.modified_ns:
            row |= {"state": "unreadable", "error": failed[1]}
        return row

    async def _scan(self) -> None:
        """Requests at the same time share one scan."""
        waited = self._scan_lock.locked()
        async with self._scan_lock:
            if not waited or not self._scanned:
                await self._threaded(self.list.scan)
                self._scanned = True

    async def _run(self, request: Request) -> Run:
        return await self._run_of(request.path_params["run"])

    async def _run_of(self, run_id: str) -> Run:
        base_id, has_choice, choice = run_id.partition("~")  # the choice of steps follows the id
        run = self.list.run(base_id)
        # A live recording ends and moves: a capture becomes a run folder of the same id.
        if run is None or run.state == "live" or not await self._threaded(run.exists):
            await self._scan()
            run = self.list.run(base_id)
        if run is None:
            raise GoneError("no such run; it may have been moved or removed")
        if not run.sources:
            raise DataError(run.path, run.error or "cannot be read")
        return run.with_steps(run_id, _decode_choice(choice)) if has_choice else run

    async def _threaded(self, work: Callable[[], _T], pool: ThreadPoolExecutor | None = None) -> _T:
        return await asyncio.get_running_loop().run_in_executor(pool or self._pool, work)


_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (GoneError, 404, "gone"),
    (SummaryError, 400, "summary"),
    (UsageError, 400, "usage"),
    (StepscopeError, 409, "data"),
    (FileNotFoundError, 409, "gone"),
    (pl.exceptions.PolarsError, 409, "data"),
    (ClientDisconnect, 400, "gone"),
)


def _decode_choice(choice: str) -> str:
    """The choice of steps in an address: base64url without padding."""
    try:
        return base64.urlsafe_b64decode(choice + "=" * (-len(choice) % 4)).decode()
    except ValueError:
        raise UsageError("the choice of steps after ~ is not base64url") from None
