"""How long a client may take, and how many there may be: who connects and then says nothing, or too little, is hung up on.

uvicorn limits the time between two requests of one connection, and nothing else. Without the rest, some hundred connections that never
finish a request would take all file descriptors of the server, which nobody needs the token for.
"""

import contextlib
import time
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, unless said otherwise."""

    connections: int = 256  # at most; less where the system allows few file descriptors
    between_requests: int = 30
    head: float = 20.0  # from the connection, or the first byte of a request, to the end of its headers
    body: float = 30.0  # in which the body of a request must grow by
    body_bytes: int = 30 << 10  # so many bytes; after an answer, the time that is left to send the rest of it
    answer: float = 60.0  # without a byte taken by who asked


class Connection(H11Protocol):
    """One client's connection. `look` is called about every second."""

    def __init__(self, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self._limits, self._most = limits, min(limits.connections, descriptors() // 4)
        self._began = time.monotonic()  # when the client began to connect, or to send the headers of a request
        self._received = 0
        self._body = 0.0, 0  # since when, and at how many bytes, the growth of a body is measured
        self._taken = 0.0, 0  # when the client last took bytes of an answer, and how many wait to be sent since

    @property
    def idle(self) -> bool:
        """Is no request of this connection being answered?"""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) <= self._most:
            return
        # Who has been silent for longest goes first, and of those who never finished a request before others.
        others = [one for one in self.connections if isinstance(one, Connection) and one.idle and one is not self]
        oldest = min(others, key=lambda one: (one.cycle is not None, one._began), default=None)
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

    def look(self, now: float) -> None:
        """Hang up if the client has taken too long for what it is to do next."""
        limits, waiting = self._limits, self.transport.get_write_buffer_size()
        if waiting == 0 or waiting < self._taken[1] or not self._taken[0]:
            self._taken = now, waiting
        else:
            self._taken = self._taken[0], waiting
        if now - self._taken[0] > limits.answer:
            self.hang_up()
        elif self.conn.their_state is h11.IDLE and self.idle:
            if self.timeout_keep_alive_task is None and now - self._began > limits.head:
                self.hang_up()
        elif self.conn.their_state is h11.SEND_BODY:
            if not self.idle and (self.flow.read_paused or self.cycle.waiting_for_100_continue):
                self._body = now, self._received  # it is we who take long
            elif now - self._body[0] > limits.body:
                if self.idle or self._received - self._body[1] < limits.body_bytes:
                    self.hang_up()
                self._body = now, self._received

    def hang_up(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


def descriptors() -> int:
    """How many files this process may have open."""
    with contextlib.suppress(ImportError):  # Windows
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return soft if soft != resource.RLIM_INFINITY else 1 << 20
    return 1 << 20
