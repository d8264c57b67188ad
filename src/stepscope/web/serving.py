"""A port, a server on it, and its end."""

import errno
import functools
import ipaddress
import socket
import time
from collections.abc import Callable
from typing import Any

import uvicorn

from stepscope.errors import UsageError
from stepscope.web.app import Server, Settings
from stepscope.web.connections import Connection

PORT = 7007
_TRIED = 100
_BACKLOG = 64  # connections that may wait to be accepted; so many are accepted at once
_TICKS = 5


def bound(host: str, port: int | None) -> socket.socket:
    """A socket on the port asked for, or on the first free one from the usual port on."""
    for number in range(PORT, PORT + _TRIED) if port is None else [port]:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        except socket.gaierror as error:
            raise UsageError(f"--host is '{host}': {error.strerror}") from error
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(address)
            found.listen(_BACKLOG)
        except OSError as error:
            found.close()
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"cannot listen on {host} port {number}: {error.strerror}") from error
            if port is not None:
                raise UsageError(f"port {port} is taken; without --port the next free one is used") from error
        else:
            return found
    raise UsageError(f"the ports {PORT} to {PORT + _TRIED - 1} are taken; choose one with --port")


def serve(settings: Settings, listener: socket.socket, ready: Callable[[str], None] = lambda page: None) -> None:
    """Serve until a signal comes. `ready` is called with the end of the address to open first, when requests are answered."""
    page = ""
    server = make(settings, lambda: ready(page))
    page = server.first_page()
    server.run(sockets=[listener])


def make(settings: Settings, ready: Callable[[], None] = lambda: None) -> "_Serving":
    ours = Server(settings)
    config = uvicorn.Config(
        ours.application(),
        http=_protocol(settings),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # nobody is believed to speak for someone else
        timeout_keep_alive=settings.limits.between_requests,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=2,
    )
    return _Serving(config, ours, ready)


def _protocol(settings: Settings) -> Any:
    return functools.partial(Connection, settings.limits)


class _Serving(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ours: Server, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ours, self._ready = ours, ready

    def first_page(self) -> str:
        """The overview, where there is one run; otherwise nothing, which is the list of runs."""
        try:
            runs = self._ours.list.scan()
        except OSError:  # the list says so
            return ""
        except BaseException:
            self._ours.close()
            raise
        return f"#/{runs[0].id}/overview" if len(runs) == 1 and runs[0].state == "finished" else ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % _TICKS == 0:
            now = time.monotonic()
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.look(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Whoever waits is told: otherwise they would be waited for."""
        self._ours.stop()
        await super().shutdown(sockets)


def address(listener: socket.socket, prefix: str, token: str | None) -> str:
    """What to open in a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{prefix}/" + (f"?token={token}" if token else "")
