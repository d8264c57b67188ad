"""Clients that connect and say nothing, or too little, or do not listen: they are hung up on, and the others are served."""

import contextlib
import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from settling import until
from stepscope.server.http.connections import Limits

SAMPLES = Path(__file__).parents[1] / "samples"
CPU = SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"
DESCRIPTORS = 200
PATIENCE_S = 60
SHORT = Limits(head=0.5, body=0.5, answer=1.0)


@pytest.fixture
def few() -> Iterator[int]:
    """The port of a server that may have few files open."""
    command = [sys.executable, "-m", "stepscope", "view", str(CPU), "--port", "0", "--no-browser", "--no-token"]
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command]
    with subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        match = re.search(r":(\d+)/", process.stdout.readline())
        try:
            assert match
            yield int(match[1])
        finally:
            process.terminate()


def test_hundreds_of_half_open_connections_keep_nobody_else_out(few: int) -> None:
    """More of them than the server has file descriptors for: some silent, some in the middle of a request."""
    port = few
    beginnings = [
        b"",
        b"GET / HT",
        b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/uploads?name=x HTTP/1.1\r\nHost: localhost\r\nContent",
    ]
    with contextlib.ExitStack() as held:
        for number in range(2 * DESCRIPTORS):
            one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
            with contextlib.suppress(OSError):  # it may have been hung up on already
                one.sendall(beginnings[number % len(beginnings)])
            if number % 50 == 49:
                assert status(port, "/api/runs") == 200, number
        assert status(port, "/") == 200


def test_who_asks_while_others_are_silent_is_not_hung_up_on(few: int) -> None:
    """A connection that waits for events stays; so does one that has asked before, while there are silent ones."""
    port = few
    listening = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    listening.request("GET", "/api/events")
    events = listening.getresponse()
    assert events.readline() == b"event: runs\n"
    asking = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    asking.request("GET", "/api/runs")
    asking.getresponse().read()
    own = asking.sock
    with contextlib.ExitStack() as held:
        for _ in range(2 * DESCRIPTORS):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
        asking.request("GET", "/api/runs")
        assert asking.getresponse().status == 200
        assert asking.sock is own
        # A file that comes is told to those who listen.
        assert status(port, "/api/uploads?name=new.json.gz", "POST", CPU.read_bytes()) == 201
        assert events.readline().startswith(b"data: ") and events.readline() == b"\n"
        assert events.readline() == b"event: runs\n"
    listening.close()
    asking.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT",  # the second of a connection
        b"POST /api/uploads?name=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n",  # without the token
        b"POST /api/uploads?name=x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{",
    ],
    ids=["nothing", "half a header", "half of a second one", "a refused body", "half a body"],
)
def test_who_does_not_finish_a_request_is_hung_up_on(sent: bytes, server: Any) -> None:
    served = server(SAMPLES, limits=Limits(between_requests=1, head=0.5, body=0.5))
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as client:
        client.sendall(sent.replace(b"{token}", served.token.encode()))
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1 << 16):
                pass
    assert served.ask("api/runs").status == 200


def test_a_request_that_comes_byte_by_byte_ends_at_the_limit(server: Any) -> None:
    """What counts is when all headers are there, not when the last byte came."""
    served = server(SAMPLES, limits=SHORT)
    deadline = time.monotonic() + PATIENCE_S
    with socket.create_connection(("127.0.0.1", served.port), timeout=0.05) as client, contextlib.suppress(OSError):
        client.sendall(b"GET / HTTP/1.1\r\nX: ")
        while time.monotonic() < deadline:
            client.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                if not client.recv(1):
                    break
    assert time.monotonic() < deadline


def test_a_connection_is_served_again_after_a_pause_longer_than_the_limits(server: Any) -> None:
    served = server(SAMPLES, limits=SHORT)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)) as client:
        for _ in range(2):
            client.request("GET", "/api/runs", headers={"Authorization": f"Bearer {served.token}"})
            assert client.getresponse().read()
            own = client.sock
            with (
                socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as silent,
                contextlib.suppress(ConnectionResetError),
            ):
                assert silent.recv(1) == b""  # hung up on: the limits are over
            assert client.sock is own


def test_an_upload_that_stops_leaves_nothing_behind(server: Any) -> None:
    served = server(SAMPLES, limits=SHORT)
    head = f"POST /api/uploads?name=stalled.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE_S) as client:
        client.sendall(head.encode() + b"Content-Length: 99999\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")  # it is being taken
        client.sendall(b'{"traceEvents": [')
        with contextlib.suppress(ConnectionResetError):
            while client.recv(1 << 16):
                pass
    assert "stalled" not in [run["name"] for run in served.ask("api/runs").json()["runs"]]


def test_who_does_not_take_the_answer_is_hung_up_on(tmp_path: Path) -> None:
    """Otherwise the answer would be kept in memory for as long as the client likes."""
    code = (
        "import sys; from pathlib import Path; from stepscope.server.http import http_server; from stepscope.server.app import Settings\n"
        "from stepscope.server.http.connections import Limits\n"
        "listener = http_server.listen('127.0.0.1', 0); print(listener.getsockname()[1], flush=True)\n"
        "http_server.serve(Settings(roots=[Path(sys.argv[1])], token=None, limits=Limits(answer=1.0)), listener)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(SAMPLES)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            assert status(port, "/api/runs") == 200
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", port))
            own = client.getsockname()[1]
            # Many answers at once, of together more than the system holds for a client that does not read.
            client.sendall(b"GET /api/analyses HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
            soon(lambda: connected(own, port))
            soon(lambda: not connected(own, port))
            client.close()
        finally:
            process.terminate()


def test_no_more_than_so_many_are_connected_and_the_next_is_told(server: Any) -> None:
    served = server(SAMPLES, limits=Limits(connections=3))
    with contextlib.ExitStack() as held:
        listening = [
            held.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_S)))
            for _ in range(3)
        ]
        for one in listening:
            one.request("GET", "/api/events", headers={"Authorization": f"Bearer {served.token}"})
            assert one.getresponse().readline() == b"event: runs\n"
        assert status(served.port, "/api/runs") == 503
    soon(lambda: served.ask("api/runs").status == 200)


def status(port: int, path: str, method: str = "GET", body: bytes | None = None) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as client:
        client.request(method, path, body)
        return client.getresponse().status


def connected(client: int, server: int) -> bool:
    """Does the server hold the connection from this port?"""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return any(one[1].endswith(f":{server:04X}") and one[2].endswith(f":{client:04X}") and one[3] == "01" for one in fields)


def soon(holds: Callable[[], bool]) -> None:
    assert until(holds, patience_s=PATIENCE_S)
