"""Limits of connections: their number, and the time that a client may take for a request.

uvicorn only limits the time between two requests of one connection. Without further limits, a few hundred connections that never finish
a request would use all file descriptors of the server, and that requires no token.
"""

import contextlib
import time
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds, except for counts."""

    connections: int = 256  # at most; less where the system allows few file descriptors
    between_requests: int = 30
    head: float = 20.0  # from the connection, or the first byte of a request, to the end of its headers
    body: float = 30.0  # in which the body of a request must grow by `body_bytes`; after the answer, in which the rest must arrive
    body_bytes: int = 30 << 10
    answer: float = 60.0  # in which the client must read a byte of an answer


class Connection(H11Protocol):
    """The connection of a client. `check` is called about every second."""

    def __init__(self, limits: Limits, **options: Any) -> None:
        super().__init__(**options)
        self._limits, self._max_connections = limits, min(limits.connections, descriptors() // 4)
        self._began = time.monotonic()  # when the client began to connect, or to send the headers of a request
        self._received = 0
        self._body = 0.0, 0  # time and number of bytes from which the growth of a body is measured
        self._read = 0.0, 0  # when the client last read bytes of an answer, and how many wait to be sent

    @property
    def idle(self) -> bool:
        """Does the connection have no request that is being answered?"""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) <= self._max_connections:
            return
        # Close the connection that is idle for longest; connections that never finished a request first.
        idle = [other for other in self.connections if isinstance(other, Connection) and other.idle and other is not self]
        oldest = min(idle, key=lambda other: (other.cycle is not None, other._began), default=None)
        if oldest is not None:
            oldest.hang_up()
        else:
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            self.connections.discard(self)
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            self._began = time.monotonic()
        self._received += len(data)
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._body = time.monotonic(), self._received

    def check(self, now: float) -> None:
        """Close the connection if the client takes too long."""
        limits, waiting = self._limits, self.transport.get_write_buffer_size()
        if waiting == 0 or waiting < self._read[1] or not self._read[0]:
            self._read = now, waiting
        else:
            self._read = self._read[0], waiting
        if now - self._read[0] > limits.answer:
            self.hang_up()
        elif self.conn.their_state is h11.IDLE and self.idle:
            if self.timeout_keep_alive_task is None and now - self._began > limits.head:
                self.hang_up()
        elif self.conn.their_state is h11.SEND_BODY:
            if not self.idle and (self.flow.read_paused or self.cycle.waiting_for_100_continue):
                self._body = now, self._received  # the delay is on our side
            elif now - self._body[0] > limits.body:
                if self.idle or self._received - self._body[1] < limits.body_bytes:
                    self.hang_up()
                self._body = now, self._received

    def hang_up(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


def descriptors() -> int:
    """The number of files that this process may open."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft if soft != resource.RLIM_INFINITY else 1 << 20
    return 1 << 20
