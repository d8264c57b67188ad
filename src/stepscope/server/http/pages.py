"""The files of the front end. Only files in the listing of `dist/` are served."""

import html
import os
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

# For work on the pages: node frontend/build.mjs --out FOLDER
DIST = Path(os.environ.get("STEPSCOPE_WEB_DIST") or Path(__file__).parent.parent / "dist")
_BASE = re.compile(r"<base\b[^>]*>", re.IGNORECASE)
_HASHED = re.compile(r"-[0-9A-Za-z_]{8,}\.\w+$")
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".map": "application/json",
    ".woff2": "font/woff2",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain",
}
_MISSING = (
    "<!doctype html><meta charset=utf-8><title>stepscope</title><h1>stepscope</h1>"
    "<p>The front end is not built. Run <code>make frontend</code>.</p>"
)


def index(prefix: str) -> Response:
    """The page, with its base address: all its links are relative."""
    try:
        page = (DIST / "index.html").read_text("utf-8")
    except FileNotFoundError:
        return HTMLResponse(_MISSING, status_code=503)
    base = f'<base href="{html.escape(prefix)}/">'
    page = _BASE.sub(lambda _: base, page, count=1) if _BASE.search(page) else page.replace("<head>", f"<head>{base}", 1)
    return HTMLResponse(page, headers={"Cache-Control": "no-cache"})


def asset(request: Request) -> Response | None:
    """A file of the build. A name with a hash identifies the content, so the client may keep it."""
    folder = DIST / "assets"
    names = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
    path = names.get(request.path_params["name"])
    if path is None:
        return None
    caching = "private, max-age=31536000, immutable" if _HASHED.search(path.name) else "no-cache"
    kind = _TYPES.get(path.suffix, "application/octet-stream")
    return FileResponse(path, media_type=kind, headers={"Cache-Control": caching})
