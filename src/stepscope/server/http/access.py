"""Access control: Host, Origin and token are checked first, and every answer has security headers.

A page of another site cannot send requests in the user's name (Origin, Sec-Fetch-Site, SameSite), a foreign host name that resolves to
this machine is refused (Host), and another user of this machine does not know the token.
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
        """`hosts` are allowed host names besides those of the loopback; `addresses` allows any IP address as well.

        A foreign page can make a name resolve to this machine (DNS rebinding); it cannot do that with an address.
        """
        self._app, self._token, self._prefix = app, token, prefix
        self._names = {*_LOOPBACK, *(name.lower().rstrip(".") for name in hosts)}
        self._addresses = addresses
        self._cookie = secrets.token_urlsafe(32)  # not valid in a URL, as the token is not valid in a cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # WebSockets are not supported

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in _HEADERS.items():
                    headers.setdefault(name, text)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        scope = {**scope, "path": self._below_prefix(scope["path"])}
        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _below_prefix(self, path: str) -> str:
        """The path without the prefix, which a proxy may have removed already."""
        return path[len(self._prefix) :] or "/" if path == self._prefix or path.startswith(f"{self._prefix}/") else str(path)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if (host := split_host(headers.get("host", ""))) is None or not self._is_allowed(host[0]):
            return _refuse(403, "this host name is not allowed; allow it with `stepscope view --allow-host NAME`", headers)
        if len(headers.getlist("origin")) > 1 or not _is_same(headers.get("origin"), headers["host"]):
            return _refuse(403, "the request comes from a page of another site", headers)
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _is_navigation(scope, headers):
            return _refuse(403, "the request comes from a page of another site", headers)
        if self._token is None:
            return None
        name = f"stepscope-{host[1]}"
        if scope["method"] == "GET" and not scope["path"].startswith("/api/"):
            query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            if (token := dict(query).get("token")) is not None and _equal(token, self._token):
                return self._sign_in(name, [(key, value) for key, value in query if key != "token"])
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _equal(bearer.strip(), self._token):
            return None
        if any(_equal(cookie, self._cookie) for cookie in _cookies(headers, name)):
            return None
        return _refuse(401, "the token is missing or wrong; open the address that `stepscope view` printed", headers)

    def _is_allowed(self, name: str) -> bool:
        return name in self._names or (self._addresses and _is_address(name))

    def _sign_in(self, name: str, query: list[tuple[str, str]]) -> Response:
        """Remove the token from the address bar, and so from the history and from screenshots."""
        response = RedirectResponse(f"{self._prefix}/" + (f"?{urlencode(query)}" if query else ""), status_code=303)
        response.set_cookie(name, self._cookie, path=f"{self._prefix}/", httponly=True, samesite="strict")
        return response


def split_host(text: str) -> tuple[str, str] | None:
    """The name and the port of a Host header; None if it is invalid."""
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
    """Is the origin of the page this server? The scheme is not compared: a proxy may use https."""
    return origin is None or origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _is_navigation(scope: Scope, headers: Headers) -> bool:
    """Did the user follow a link? That shows our page and gives the other site no data."""
    return (
        scope["method"] == "GET"
        and not scope["path"].startswith("/api/")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _cookies(headers: Headers, name: str) -> list[str]:
    values = []
    for line in headers.getlist("cookie"):
        try:
            cookies = SimpleCookie(line)
        except CookieError:
            continue
        values += [cookies[name].value] if name in cookies else []
    return values


def _equal(text: str, secret: str) -> bool:
    """Compares in constant time."""
    return secrets.compare_digest(*(hashlib.sha256(word.encode("utf-8", "surrogateescape")).digest() for word in (text, secret)))


def _refuse(status: int, reason: str, headers: Headers) -> Response:
    if "text/html" not in headers.get("accept", ""):
        extra = {"WWW-Authenticate": 'Bearer realm="stepscope"'} if status == 401 else None
        return JSONResponse({"error": reason, "kind": "usage"}, status_code=status, headers=extra)
    # Browsers do not send the cookie with a link from another site: the page reloads itself once.
    reload = '<meta http-equiv="refresh" content="0">' if headers.get("sec-fetch-site", "none") in ("cross-site", "same-site") else ""
    page = f"<!doctype html><meta charset=utf-8>{reload}<title>stepscope</title><h1>stepscope</h1><p>{html.escape(reason)}</p>"
    return HTMLResponse(page, status_code=status)
