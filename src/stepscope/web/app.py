"""The HTTP interface: what each address answers. Nothing is computed in the event loop."""

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
from urllib.parse import quote

import msgspec
import polars as pl
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from stepscope import __version__, parameters, store
from stepscope.errors import DataError, StepscopeError, UsageError
from stepscope.query_process import MEMORY
from stepscope.web import answers, exports, live, pages, perfetto, timeline
from stepscope.web.access import Access, is_loopback
from stepscope.web.connections import Limits
from stepscope.web.queries import Asker
from stepscope.web.runs import LARGE, Run, Table
from stepscope.web.timeline import Building
from stepscope.web.traces import Opening, Traces
from stepscope.web.uploads import Uploads

_T = TypeVar("_T")
_WORKERS = 4
_MANY = 1 << 20  # rows of a table that is not answered at once
_PROGRESS_S = 0.25
_LONGEST_BODY = 1 << 20


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How `stepscope view` was called."""

    roots: list[Path]
    token: str | None
    hosts: list[str] = []
    addresses: bool = False  # any IP address may stand in Host: bound to more than the loopback
    prefix: str = ""
    partial: bool = False
    step_name: str | None = None
    cache: bool = True
    max_upload: int = 2 * 10**9
    query_s: float = 60.0  # the longest that SQL may take
    limits: Limits = Limits()
    query_memory: int = MEMORY  # bytes that it may use
    debug: bool = False


class GoneError(StepscopeError):
    """No such run."""


class Server:
    """What the addresses share, for as long as the server runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ending = asyncio.Event()
        self.scratch = Path(tempfile.mkdtemp(prefix="stepscope.view."))  # readable for its owner alone
        self.uploads = Uploads(self.scratch / "uploads", settings.max_upload)
        self.list = Table([*settings.roots, self.uploads.folder])
        self.traces = Traces(self.scratch, partial=settings.partial, step_name=settings.step_name, cache=settings.cache)
        self.kept = answers.Answers()
        self.timelines = timeline.Timelines()
        self.asker = Asker(settings.query_s, settings.query_memory)
        self.watch = live.Watch(self._rows)
        self._pool = ThreadPoolExecutor(_WORKERS, "stepscope-answer")
        # Analyses may take minutes: whoever looks at the timeline meanwhile does not wait for them.
        self._analysing = ThreadPoolExecutor(_WORKERS, "stepscope-analyse")
        self._alone = asyncio.Semaphore(1)
        self._scanning = asyncio.Lock()
        self._scanned = False

    def application(self) -> ASGIApp:
        """The routes, behind the checks of who asks."""
        handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
            StepscopeError: self.refused,
            HTTPException: self.refused,
            Exception: self.refused,
        }
        app = Starlette(routes=self.routes(), exception_handlers=handlers, lifespan=self.lifespan)
        app.router.redirect_slashes = False
        said = self.settings
        return Access(app, token=said.token, hosts=said.hosts, addresses=said.addresses, prefix=said.prefix)

    def routes(self) -> list[Route]:
        """Every address."""
        return [
            Route("/", self.index),
            Route("/assets/{name:path}", self.asset),
            Route("/perfetto/{name:path}", self.perfetto),
            Route("/api/perfetto", self.about_perfetto),
            Route("/api/runs", self.runs),
            Route("/api/analyses", self.analyses),
            Route("/api/events", self.events),
            Route("/api/uploads", self.upload, methods=["POST"]),
            Route("/api/runs/{run}", self.info),
            Route("/api/runs/{run}/progress", self.progress),
            Route("/api/runs/{run}/cancel", self.cancel, methods=["POST"]),
            Route("/api/runs/{run}/analyses/{name}", functools.partial(self.table, "analyses")),
            Route("/api/runs/{run}/tables/{name}", functools.partial(self.table, "tables")),
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
        """Nobody waits any longer: not for events, nor for what is being read or asked."""
        self.ending.set()
        self.traces.stop()
        self.timelines.stop()
        self.asker.close()

    def close(self) -> None:
        self.stop()
        self.traces.close()
        self.timelines.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._analysing.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self.scratch, ignore_errors=True)

    # Pages

    async def index(self, request: Request) -> Response:
        return await self._threaded(lambda: pages.index(self.settings.prefix))

    async def asset(self, request: Request) -> Response:
        found = await self._threaded(lambda: pages.asset(request))
        if found is None:
            raise HTTPException(404, "no such file")
        return found

    async def perfetto(self, request: Request) -> Response:
        found = await self._threaded(lambda: perfetto.answer(request, self.settings.prefix))
        if found is None:
            raise HTTPException(404, "no such file of Perfetto here")
        return found

    async def about_perfetto(self, request: Request) -> Response:
        return _json(await self._threaded(perfetto.about))

    # Runs

    async def runs(self, request: Request) -> Response:
        return _json({"runs": await self._rows(), "roots": [str(root) for root in self.settings.roots], "version": __version__})

    async def info(self, request: Request) -> Response:
        run = await self._run(request)
        _, info, signature = await self.traces.trace(run)
        return self._tagged(request, _json(info | {"state": run.state}), answers.tag("info", run.state, run.id, signature))

    async def progress(self, request: Request) -> Response:
        """Events "progress" while a run is being read, then "finished", with an error where it failed. Begins the reading, if need be."""
        run = await self._run(request)
        return _events(self._progress(await self.traces.open(run)))

    async def cancel(self, request: Request) -> Response:
        return _json({"cancelled": self.traces.cancel(await self._run(request))})

    async def events(self, request: Request) -> Response:
        return _events(self.watch.changes(self.ending))

    async def live(self, request: Request) -> Response:
        run = await self._run(request)

        async def again() -> Run | None:
            await self._scan()
            return self.list.run(run.id.partition("~")[0])

        return _events(live.states(run, again, self._threaded, self.ending))

    async def upload(self, request: Request) -> Response:
        """A file becomes a run. One sent with more=1 waits for the next of its batch (together=): ranks are one run from the first."""
        batch = request.query_params.get("together", "")
        try:
            path = await self.uploads.take(request, self._threaded)
        except Exception:
            await self._show(batch)  # what came before it does not wait for what will not come
            raise
        if batch and request.query_params.get("more") == "1":
            self.uploads.keep(path, batch)
            return _json({"id": None}, 202)
        shown = await self._show(batch, path)
        return _json({"id": next(run.id for run in self.list.runs() if any(source.path == shown for source in run.sources))}, 201)

    async def _show(self, batch: str, last: Path | None = None) -> Path | None:
        """Nobody looks while the files of a batch are put, one after another, where the list looks. Where the last one is now."""
        async with self._scanning:
            if last is not None:
                self.uploads.keep(last, batch)
            shown = await self._threaded(lambda: self.uploads.show(batch))
            if shown:
                await self._threaded(self.list.scan)
                self._scanned = True
        if shown:
            self.watch.wake()
        return shown[-1] if shown else None

    # Tables

    async def analyses(self, request: Request) -> Response:
        return _json({"analyses": await self._threaded(answers.listed)})

    async def table(self, kind: str, request: Request) -> Response:
        run = await self._run(request)
        words = _words(request)
        asked = await self._threaded(lambda: answers.question(kind, request.path_params["name"], words))
        trace, info, signature = await self.traces.trace(run)
        tag = answers.tag(*answers.identity(asked), run.id, signature)
        if _has(request, tag):
            return self._unchanged(tag)
        pool = self._analysing if kind == "analyses" or info["tables"][asked.name] > _MANY else self._pool
        # Two analyses of all of a large run at the same time would need more memory than there is.
        large = info["tables"]["spans"] > LARGE and asked.steps is None and pool is self._analysing
        async with self._alone if large else contextlib.nullcontext():
            answer = await self._threaded(lambda: self.kept.answer(trace, asked, (run.id, signature), self.scratch, str(run.path)), pool)
        return await self._sent(request, answer, run, tag)

    async def query(self, request: Request) -> Response:
        run = await self._run(request)
        asked = await _body(request)
        for name, number in asked.items():
            if name in parameters.BOUNDS and isinstance(number, int | float):
                parameters.checked(int, name, number)
        trace, info, signature = await self.traces.trace(run)

        async def analyse(name: str, rank: int | None, steps: tuple[int, int] | None) -> pl.DataFrame:
            question = answers.Question("analyses", name, {}, rank, steps)
            async with self._alone if info["tables"]["spans"] > LARGE and steps is None else contextlib.nullcontext():
                return await self._threaded(lambda: self.kept.analysis(trace, question, (run.id, signature)), self._analysing)

        content, rows = await self.asker.ask(trace, asked, analyse, request.is_disconnected)
        return await self._sent(request, answers.Answer(content, rows, answers.TYPES["arrow"]), run, None)

    async def export(self, request: Request) -> Response:
        run, form = await self._run(request), request.path_params["format"]
        parameters.check_word("format", form, exports.names())
        words = _words(request)
        rank, steps = exports.chosen(words)
        trace, info, _ = await self.traces.trace(run)
        time = exports.window(words, int(info["origin_ns"]))
        given = parameters.values(words, exports.own_parameters(form), form)
        answer = await self._threaded(
            lambda: exports.export(exports.part(trace, rank, steps, time), form, given, self.scratch, run.name), self._analysing
        )
        return await self._sent(request, answer, run, None)

    async def timeline(self, answer: timeline.Answer, request: Request) -> Response:
        run, words = await self._run(request), _words(request)
        words |= {name: word for name, word in request.path_params.items() if name != "run"}
        given = parameters.values(words, parameters.of(answer), f"timeline/{answer.__name__}")
        opened = await (await self._timeline(run)).opened()
        found = await self._threaded(lambda: answer(opened, **given))
        opened.answered()
        return found

    async def timeline_progress(self, request: Request) -> Response:
        """Events "progress" while the timeline is being built, then "finished". Begins that, if need be."""
        building = await self._timeline(await self._run(request))

        async def shares() -> AsyncIterator[tuple[str, Any]]:
            while not building.over and not self.ending.is_set():
                yield "progress", building.progress()
                await asyncio.sleep(_PROGRESS_S)
            yield "finished", building.progress()

        return _events(shares())

    async def _timeline(self, run: Run) -> Building:
        trace, info, signature = await self.traces.trace(run)
        said, ends = self.settings, (int(info["origin_ns"]), int(info["end_ns"]))
        keep = said.cache and run.state != "live"
        return self.timelines.begin(trace, ends, run.id, signature, said.partial, run.step_name or said.step_name, keep=keep)

    # What goes wrong

    async def refused(self, request: Request, error: Exception) -> Response:
        """Every error as one line, here and nowhere else."""
        if isinstance(error, HTTPException):
            kind = "gone" if error.status_code == 404 else "usage"
            return _json({"error": error.detail or "refused", "kind": kind}, error.status_code, dict(error.headers or {}))
        if isinstance(error, pl.exceptions.PolarsError):
            error = await run_in_threadpool(store.named_damage, error)
        status, kind = next(((code, word) for of, code, word in _ERRORS if isinstance(error, of)), (500, "server"))
        if status == 500 and self.settings.debug:
            traceback.print_exception(error, file=sys.stderr)
        line = (
            str(error) if isinstance(error, StepscopeError) else f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        )
        return _json({"error": line, "kind": kind}, status)

    # Shared

    async def _rows(self) -> list[dict[str, Any]]:
        await self._scan()
        return [self._shown(run) for run in self.list.runs()]

    def _shown(self, run: Run) -> dict[str, Any]:
        """What could not be read when it was opened says so in the list, until it changes."""
        row = run.shown()
        if (failed := self.traces.failed.get(run.id)) and failed[0] == run.modified_ns:
            row |= {"state": "unreadable", "error": failed[1]}
        return row

    async def _scan(self) -> None:
        """Of those who ask at the same time, one looks."""
        waited = self._scanning.locked()
        async with self._scanning:
            if not waited or not self._scanned:
                await self._threaded(self.list.scan)
                self._scanned = True

    async def _run(self, request: Request) -> Run:
        whole = request.path_params["run"]
        identity, chosen, choice = whole.partition("~")  # what follows the id is the choice of steps
        run = self.list.run(identity)
        # What is being recorded ends, and moves: a capture becomes a run folder of the same id.
        if run is None or run.state == "live" or not await self._threaded(lambda: run is not None and run.is_there()):
            await self._scan()
            run = self.list.run(identity)
        if run is None:
            raise GoneError("no such run here; it may have been moved or removed")
        if not run.sources:
            raise DataError(run.path, run.error or "cannot be read")
        return run.with_steps(whole, _decoded(choice)) if chosen else run

    async def _threaded(self, question: Callable[[], _T], pool: ThreadPoolExecutor | None = None) -> _T:
        return await asyncio.get_running_loop().run_in_executor(pool or self._pool, question)

    async def _progress(self, opening: Opening) -> AsyncIterator[tuple[str, Any]]:
        while not opening.over and not self.ending.is_set():
            yield "progress", opening.progress()
            await asyncio.sleep(_PROGRESS_S)
        error = opening.error()
        yield "finished", opening.progress() | ({"error": str(error)} if error else {})

    async def _sent(self, request: Request, answer: answers.Answer, run: Run, tag: str | None) -> Response:
        headers = {"X-Stepscope-Rows": str(answer.rows), "Cache-Control": "private, no-cache"}
        headers |= {"ETag": f'"{tag}"'} if tag else {}
        if answer.filename:
            headers["Content-Disposition"] = _attachment(answer.filename if answer.known_by_name else f"{run.name}-{answer.filename}")
        if answer.file is not None:
            removed = BackgroundTask(answer.file.unlink, missing_ok=True)
            return FileResponse(
                answer.file, media_type=answer.media_type, headers=headers, background=removed, stat_result=answer.file.stat()
            )
        content = answer.content
        if _wants_packed(request):
            content = await self._threaded(lambda: answers.packed(content))
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"} | ({"ETag": f'"{tag}-gzip"'} if tag else {})
        return Response(content, media_type=answer.media_type, headers=headers)

    def _tagged(self, request: Request, answer: Response, tag: str) -> Response:
        if _has(request, tag):
            return self._unchanged(tag)
        answer.headers["ETag"] = f'"{tag}"'
        answer.headers["Cache-Control"] = "private, no-cache"
        return answer

    def _unchanged(self, tag: str) -> Response:
        return Response(status_code=304, headers={"ETag": f'"{tag}"', "Cache-Control": "private, no-cache"})


_ERRORS: tuple[tuple[type[Exception], int, str], ...] = (
    (GoneError, 404, "gone"),
    (UsageError, 400, "usage"),
    (StepscopeError, 409, "data"),
    (FileNotFoundError, 409, "gone"),
    (pl.exceptions.PolarsError, 409, "data"),
    (ClientDisconnect, 400, "gone"),
)


def _decoded(choice: str) -> str:
    """A choice of steps as an address has it: base64url without its padding."""
    try:
        return base64.urlsafe_b64decode(choice + "=" * (-len(choice) % 4)).decode()
    except ValueError:
        raise UsageError("the choice of steps after ~ is not base64url") from None


def _json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def _events(events: AsyncIterator[tuple[str, Any]]) -> Response:
    async def lines() -> AsyncIterator[bytes]:
        async for name, data in events:
            # A comment keeps proxies from closing what is quiet.
            yield f"event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode() if name else b": still here\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


def _words(request: Request) -> dict[str, str]:
    """The words of the URL; one that is said twice is refused rather than chosen from."""
    pairs = request.query_params.multi_items()
    words = dict(pairs)
    if len(words) != len(pairs):
        raise UsageError("a parameter is given twice")
    return words


async def _body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected application/json")
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LONGEST_BODY:
            raise HTTPException(413, f"a question of more than {_LONGEST_BODY:,} bytes")
    try:
        said = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise UsageError("expected a JSON object")
    return said


def _has(request: Request, tag: str) -> bool:
    said = request.headers.get("if-none-match", "")
    return any(word.strip().removeprefix("W/") in (f'"{tag}"', f'"{tag}-gzip"') for word in said.split(","))


def _wants_packed(request: Request) -> bool:
    """On one machine packing costs more than it saves."""
    client = request.client.host if request.client else ""
    return "gzip" in request.headers.get("accept-encoding", "") and not is_loopback(client)


def _attachment(name: str) -> str:
    """No folders in the name of a file, which a run's name may have, nor what some systems do not allow there."""
    name = "".join(char if char.isprintable() and char not in '<>:"/\\|?*' else "_" for char in name)
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
