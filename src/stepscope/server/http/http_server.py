"""Start and end of the server on a port."""

import contextlib
import errno
import functools
import ipaddress
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import uvicorn

from stepscope.errors import UsageError
from stepscope.server.app import Server, Settings
from stepscope.server.http.connections import Connection

PORT = 7007
_TRIED = 100
_BACKLOG = 64  # connections that may wait to be accepted
_TICKS = 5


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on the given port, or on the first free one from PORT on."""
    for number in range(PORT, PORT + _TRIED) if port is None else [port]:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        except socket.gaierror as error:
            raise UsageError(f"--host is '{host}': {error.strerror}") from error
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"cannot listen on {host} port {number}: {error.strerror}") from error
            if port is not None:
                raise UsageError(f"port {port} is in use; choose another one, or omit --port to use the next free one") from error
        else:
            return listener
    raise UsageError(f"the ports {PORT} to {PORT + _TRIED - 1} are in use; choose another one with --port")


def serve(settings: Settings, listener: socket.socket, ready: Callable[[str], None] = lambda page: None) -> None:
    """Serve until a signal arrives. When the server answers requests, `ready` is called with the end of the address to open."""
    page = ""
    server = make(settings, lambda: ready(page))
    page = server.first_page()
    server.run(sockets=[listener])


def make(settings: Settings, ready: Callable[[], None] = lambda: None) -> "_HttpServer":
    application = Server(settings)
    config = uvicorn.Config(
        application.application(),
        http=cast(Any, functools.partial(Connection, settings.limits)),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # no proxy is trusted
        timeout_keep_alive=settings.limits.between_requests,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=2,
    )
    return _HttpServer(config, application, ready)


class _HttpServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, application: Server, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._application, self._ready = application, ready

    def first_page(self) -> str:
        """The overview of a single run; empty, the list of runs, otherwise."""
        try:
            runs = self._application.list.scan()
        except OSError:  # the list shows the error
            return ""
        except BaseException:
            self._application.close()
            raise
        return f"#/{runs[0].id}/overview" if len(runs) == 1 and runs[0].state == "finished" else ""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT, SIGTERM and, where it is not ignored, SIGHUP of a closed terminal end the server."""
        with super().capture_signals():
            closed = getattr(signal, "SIGHUP", None)
            if closed is None or threading.current_thread() is not threading.main_thread() or signal.getsignal(closed) == signal.SIG_IGN:
                yield
                return
            before = signal.signal(closed, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(closed, before)

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
                    connection.check(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop event streams and jobs first: uvicorn waits for open requests."""
        self._application.stop()
        await super().shutdown(sockets)


def address(listener: socket.socket, prefix: str, token: str | None) -> str:
    """The address to open in a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{prefix}/" + (f"?token={token}" if token else "")
