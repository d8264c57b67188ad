"""Requests and responses: words and bodies of requests, JSON, event streams, files and entity tags."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from stepscope.errors import UsageError
from stepscope.server import answers
from stepscope.server.http.access import is_loopback

_LONGEST_BODY = 1 << 20
_CACHING = {"Cache-Control": "private, no-cache"}


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def event_stream(events: AsyncIterator[tuple[str, Any]]) -> Response:
    """Server-sent events. An event without a name is a comment, which keeps proxies from closing a quiet connection."""

    async def lines() -> AsyncIterator[bytes]:
        async for name, data in events:
            yield f"event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n".encode() if name else b": still here\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


def query_words(request: Request) -> dict[str, str]:
    """The parameters of the URL."""
    pairs = request.query_params.multi_items()
    words = dict(pairs)
    if len(words) != len(pairs):
        raise UsageError("a parameter is given twice")
    return words


async def json_body(request: Request) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "expected application/json")
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LONGEST_BODY:
            raise HTTPException(413, f"a body of more than {_LONGEST_BODY:,} bytes")
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError("expected a JSON object")
    return value


def not_modified(request: Request, tag: str) -> Response | None:
    """The short answer for a client that has this version already."""
    tags = (word.strip().removeprefix("W/") for word in request.headers.get("if-none-match", "").split(","))
    if any(word in (f'"{tag}"', f'"{tag}-gzip"') for word in tags):
        return Response(status_code=304, headers=_CACHING | {"ETag": f'"{tag}"'})
    return None


def tagged(request: Request, response: Response, tag: str) -> Response:
    if (unchanged := not_modified(request, tag)) is not None:
        return unchanged
    response.headers.update(_CACHING | {"ETag": f'"{tag}"'})
    return response


async def answer_response(request: Request, answer: answers.Answer, run_name: str, tag: str | None = None) -> Response:
    headers = _CACHING | {"X-Stepscope-Rows": str(answer.rows)} | ({"ETag": f'"{tag}"'} if tag else {})
    if answer.filename:
        headers["Content-Disposition"] = _attachment(answer.filename if answer.fixed_name else f"{run_name}-{answer.filename}")
    if answer.file is not None:
        remove = BackgroundTask(answer.file.unlink, missing_ok=True)
        return FileResponse(answer.file, media_type=answer.media_type, headers=headers, background=remove, stat_result=answer.file.stat())
    content = answer.content
    if _wants_gzip(request):
        content = await run_in_threadpool(answers.compress, content)
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"} | ({"ETag": f'"{tag}-gzip"'} if tag else {})
    return Response(content, media_type=answer.media_type, headers=headers)


def _wants_gzip(request: Request) -> bool:
    """On one machine compression costs more than it saves."""
    client = request.client.host if request.client else ""
    return "gzip" in request.headers.get("accept-encoding", "") and not is_loopback(client)


def _attachment(name: str) -> str:
    """The name of a run may contain folders and characters that some systems do not allow in file names."""
    name = "".join(char if char.isprintable() and char not in '<>:"/\\|?*' else "_" for char in name)
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
