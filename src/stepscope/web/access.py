"""Who may ask: Host, Origin and token are checked before anything else, and every answer says what a browser may do with it.

A page of another site cannot ask in the user's name (Origin, Sec-Fetch-Site, SameSite), a name that someone points at this machine
does not reach it (Host), and another user of this machine does not know the token.
"""

import hashlib
import html
import ipaddress
import secrets
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self' blob:",
        "frame-ancestors 'self'",
        "base-uri 'self'",
        "form-action 'none'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "SAMEORIGIN",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Access:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Iterable[str] = (), addresses: bool = False, prefix: str = "") -> None:
        """`hosts` are names it may be called by besides the loopback's; `addresses` allows any IP address in place of a name.

        To point a name at this machine is how a foreign page would get in; an address cannot be pointed anywhere.
        """
        self._app, self._token, self._prefix = app, token, prefix
        self._names = {*_LOOPBACK, *(name.lower().rstrip(".") for name in hosts)}
        self._addresses = addresses
        self._cookie = secrets.token_urlsafe(32)  # worth nothing in a URL, as the token is worth nothing in a cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no WebSocket is ever answered

        async def labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in _HEADERS.items():
                    headers.setdefault(name, text)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        scope = {**scope, "path": self._below_prefix(scope["path"])}
        answer = self._refusal(scope)
        await (answer or self._app)(scope, receive, labelled)

    def _below_prefix(self, path: str) -> str:
        """A proxy may have taken the prefix off, or not."""
        return path[len(self._prefix) :] or "/" if path == self._prefix or path.startswith(f"{self._prefix}/") else str(path)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if (host := split_host(headers.get("host", ""))) is None or not self._is_ours(host[0]):
            return _refused(403, "called by a name that is not this server's; `stepscope view --allow-host NAME` allows one", headers)
        if len(headers.getlist("origin")) > 1 or not _is_same(headers.get("origin"), headers["host"]):
            return _refused(403, "asked by a page of another site", headers)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_navigation(scope, headers):
            return _refused(403, "asked by a page of another site", headers)
        if self._token is None:
            return None
        name = f"stepscope-{host[1]}"
        if scope["method"] == "GET" and not scope["path"].startswith("/api/"):
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            if (given := dict(query).get("token")) is not None and _equal(given, self._token):
                return self._welcome(name, [(key, value) for key, value in query if key != "token"])
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(bearer.strip(), self._token):
            return None
        if any(_equal(cookie, self._cookie) for cookie in _cookies(headers, name)):
            return None
        return _refused(401, "the address that `stepscope view` printed has a token in it: open that one", headers)

    def _is_ours(self, name: str) -> bool:
        return name in self._names or (self._addresses and _is_address(name))

    def _welcome(self, name: str, query: list[tuple[str, str]]) -> Response:
        """The token leaves the address bar, and with it the history and every screenshot."""
        answer = RedirectResponse(f"{self._prefix}/" + (f"?{urlencode(query)}" if query else ""), status_code=303)
        answer.set_cookie(name, self._cookie, path=f"{self._prefix}/", httponly=True, samesite="strict")
        return answer


def split_host(text: str) -> tuple[str, str] | None:
    """The name and the port of a Host header; None for what is none."""
    if not text or any(char in text for char in "/@\\?# \t,"):
        return None
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (name.rstrip("."), "" if port is None else str(port)) if name else None


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_same(origin: str | None, host: str) -> bool:
    """Browsers name the origin of the page that asks. A proxy may speak https for us, so the scheme is not compared."""
    return origin is None or origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _is_navigation(scope: Scope, headers: Headers) -> bool:
    """A link that someone followed: it shows our page, and tells the other site nothing."""
    return (
        scope["method"] == "GET"
        and not scope["path"].startswith("/api/")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _cookies(headers: Headers, name: str) -> list[str]:
    found = []
    for line in headers.getlist("cookie"):
        try:
            said = SimpleCookie(line)
        except CookieError:
            continue
        found += [said[name].value] if name in said else []
    return found


def _equal(given: str, wanted: str) -> bool:
    """In a time that tells nothing of either."""
    one, other = (hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest() for text in (given, wanted))
    return secrets.compare_digest(one, other)


def _refused(status: int, why: str, headers: Headers) -> Response:
    if "text/html" not in headers.get("accept", ""):
        extra = {"WWW-Authenticate": 'Bearer realm="stepscope"'} if status == 401 else None
        return JSONResponse({"error": why, "kind": "usage"}, status_code=status, headers=extra)
    # Who came by a link on another site has the cookie, but no browser sends it along such a way: the page asks once more by itself.
    again = '<meta http-equiv="refresh" content="0">' if headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") else ""
    page = f"<!doctype html><meta charset=utf-8>{again}<title>stepscope</title><h1>stepscope</h1><p>{html.escape(why)}</p>"
    return HTMLResponse(page, status_code=status)
