"""The server is attacked: without the token, from other sites, out of the folder, with too much, with names that are no names."""

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stepscope.model import captures
from stepscope.server.http.access import split_host
from stepscope.server.routes import uploads

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "samples"
CPU = SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"
Serve = Callable[..., Any]
ADDRESSES = [
    "",
    "assets/x.js",
    "api/runs",
    "api/analyses",
    "api/events",
    "api/runs/{run}",
    "api/runs/{run}/progress",
    "api/runs/{run}/analyses/operators",
    "api/runs/{run}/tables/spans",
    "api/runs/{run}/export/csv",
    "api/runs/{run}/live",
    "nothing",
]


@pytest.fixture
def served(server: Serve) -> Any:
    return server(SAMPLES)


@pytest.fixture
def run(served: Any) -> str:
    return str(served.run("cpu_training"))


# The token


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "Basic a-token-for-tests"},
        {"Authorization": "a-token-for-tests"},
        {"Cookie": "stepscope-{port}=a-token-for-tests"},  # the token is no cookie
        {"Cookie": "stepscope-{port}="},
        {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
    ],
    ids=lambda headers: next(iter(headers.values()), "nothing"),
)
def test_nothing_is_answered_without_the_token(path: str, headers: dict[str, str], served: Any, run: str) -> None:
    given = {name: text.format(port=served.port) for name, text in headers.items()}
    answer = served.ask(path.format(run=run), headers=given, bearer=False)
    assert answer.status == 401
    assert run.encode() not in answer.body


@pytest.mark.parametrize("path", ["api/uploads?name=x", "api/runs/{run}/query", "api/runs/{run}/cancel"])
def test_nothing_is_taken_without_the_token(path: str, served: Any, run: str) -> None:
    assert served.ask(path.format(run=run), "POST", b"{}", {"Content-Type": "application/json"}, bearer=False).status == 401


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_cannot_read(server: Serve) -> None:
    for prefix in ("", "/behind/a/proxy"):
        served = server(SAMPLES, prefix=prefix)
        answer = served.ask(f"?token={served.token}&kept=1", bearer=False)
        assert (answer.status, answer.headers["location"]) == (303, f"{prefix}/?kept=1")
        cookie = answer.headers["set-cookie"]
        assert re.fullmatch(rf"stepscope-{served.port}=[\w-]{{43}}; HttpOnly; Path={prefix}/; SameSite=strict", cookie)
        assert served.token not in cookie
        assert served.ask("api/runs", headers={"Cookie": cookie.split(";")[0]}, bearer=False).status == 200
        assert served.ask("api/runs", headers={"Cookie": cookie.split(";")[0].replace(str(served.port), "1")}, bearer=False).status == 401


@pytest.mark.parametrize("given", ["", "wrong", "A-TOKEN-FOR-TESTS", "a-token-for-test", "a-token-for-tests1", "%00", "%F0%9F%94%91"])
def test_a_wrong_token_in_the_address_opens_nothing(given: str, served: Any) -> None:
    answer = served.ask(f"?token={given}", bearer=False)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


def test_the_token_in_the_address_of_the_interface_opens_nothing(served: Any) -> None:
    """There it would end up in logs, and links to it could be made."""
    assert served.ask(f"api/runs?token={served.token}", bearer=False).status == 401


def test_a_post_does_not_log_in(served: Any) -> None:
    assert served.ask(f"?token={served.token}", "POST", b"", bearer=False).status == 401


def test_without_a_token_the_other_checks_still_hold(server: Serve) -> None:
    served = server(SAMPLES, token=None)
    assert served.ask("api/runs").status == 200
    assert served.ask("api/runs", headers={"Host": "evil.example"}).status == 403
    assert served.ask("api/runs", headers={"Origin": "http://evil.example"}).status == 403


# Other sites


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost:{port}@evil.example",
        "evil.example/localhost",
        "127.0.0.1:{port}, evil.example",
        "0.0.0.0:{port}",
        "192.168.0.1:{port}",
        "[::]",
        "[::1",
        "localhost:99999",
        "localhost:x",
        "",
    ],
)
def test_a_name_that_is_not_this_servers_reaches_nothing(host: str, served: Any) -> None:
    assert served.ask("api/runs", headers={"Host": host.format(port=served.port)}).status == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:{port}", "127.0.0.1:1234", "[::1]:{port}", "localhost."])
def test_the_loopback_is_reached_by_all_its_names_and_any_port_of_a_tunnel(host: str, served: Any) -> None:
    assert served.ask("api/runs", headers={"Host": host.format(port=served.port)}).status == 200


def test_a_name_that_was_allowed_is_answered(server: Serve) -> None:
    served = server(SAMPLES, hosts=["Gpu.Example"])
    assert served.ask("api/runs", headers={"Host": "gpu.example:80"}).status == 200
    assert served.ask("api/runs", headers={"Host": "other.example"}).status == 403


def test_on_other_addresses_an_address_is_answered_and_a_name_is_not(server: Serve) -> None:
    """A name can be made to point here; an address cannot."""
    served = server(SAMPLES, addresses=True)
    assert served.ask("api/runs", headers={"Host": "192.168.0.7:7007"}).status == 200
    assert served.ask("api/runs", headers={"Host": "evil.example"}).status == 403


def test_a_request_has_one_host(served: Any) -> None:
    for lines in ("", "Host: localhost\r\nHost: evil.example\r\n"):
        answer = raw(
            served.port, f"GET /api/runs HTTP/1.1\r\n{lines}Authorization: Bearer {served.token}\r\nConnection: close\r\n\r\n".encode()
        )
        assert re.match(rb"HTTP/1.1 4\d\d ", answer)
        assert b'"runs"' not in answer


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        "http://localhost:{port}",
        "http://127.0.0.1:{port}.evil.example",
        "file://",
        "",
        "http://127.0.0.1:{port}/",
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "api/runs"), ("POST", "api/uploads?name=x"), ("OPTIONS", "api/runs"), ("GET", "")])
def test_a_page_of_another_origin_is_answered_nothing(origin: str, method: str, path: str, served: Any) -> None:
    answer = served.ask(path, method, headers={"Origin": origin.format(port=served.port)})
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_pages_own_origin_is_answered(served: Any) -> None:
    assert served.ask("api/runs", headers={"Origin": f"http://127.0.0.1:{served.port}"}).status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_here_and_do_nothing_else(site: str, served: Any) -> None:
    """A page on another port of this machine is the same site, and its requests carry the cookie."""
    assert served.ask("api/runs", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}).status == 403
    assert (
        served.ask("api/runs", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}).status == 403
    )
    assert served.ask("", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}).status == 403
    assert served.ask("", headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}).status == 200


@pytest.mark.parametrize("path", [*ADDRESSES, "api/runs/nobody", "%"])
def test_every_answer_forbids_what_it_can(path: str, served: Any, run: str) -> None:
    if path.endswith(("events", "live", "progress")):
        headers = raw_headers(served, path.format(run=run))
    else:
        headers = served.ask(path.format(run=run)).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:;")
    assert "frame-ancestors 'self'; base-uri 'self'; form-action 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in headers


# Methods


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "PROPFIND"])
@pytest.mark.parametrize("path", ["", "api/runs", "api/runs/{run}", "api/runs/{run}/analyses/operators", "api/runs/{run}/export/csv"])
def test_what_is_read_is_only_read(method: str, path: str, served: Any, run: str) -> None:
    for headers in ({}, {"X-HTTP-Method-Override": "GET"}):
        answer = served.ask(path.format(run=run), method, b"", headers)
        assert answer.status == 405
        assert answer.json()["kind"] == "usage"


@pytest.mark.parametrize("path", ["api/uploads?name=x", "api/runs/{run}/query", "api/runs/{run}/cancel"])
def test_what_is_written_is_not_written_by_reading(path: str, served: Any, run: str) -> None:
    for headers in ({}, {"X-HTTP-Method-Override": "POST"}):
        assert served.ask(path.format(run=run), headers=headers).status == 405


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_question_that_a_form_could_send_is_refused(kind: str, served: Any, run: str) -> None:
    assert served.ask(f"api/runs/{run}/query", "POST", b'{"sql": "select 1"}', {"Content-Type": kind}).status == 415


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"sql": 1}', b'{"sql": "select 1", "rank": "x"}', b'{"sql": "select 1", "path": "/etc"}', b'"\xff"']
)
def test_a_question_that_is_none_is_refused(body: bytes, served: Any, run: str) -> None:
    answer = served.ask(f"api/runs/{run}/query", "POST", body, {"Content-Type": "application/json"})
    assert (answer.status, answer.json()["kind"]) == (400, "usage")


def test_a_question_of_megabytes_is_refused(served: Any, run: str) -> None:
    body = json.dumps({"sql": "select 1 -- " + "x" * (1 << 21)})
    assert served.ask(f"api/runs/{run}/query", "POST", body, {"Content-Type": "application/json"}).status == 413


# Out of the folder


OUT = [
    "../../../../../../etc/passwd",
    "..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "%252e%252e%252f%252e%252e%252fetc%252fpasswd",
    "..%5c..%5c..%5cetc%5cpasswd",
    "....//....//....//etc/passwd",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "..%c0%af..%c0%afetc%c0%afpasswd",
    "..;/..;/etc/passwd",
    "x%00/../../../../etc/passwd",
    "file:///etc/passwd",
]


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize(
    "where", ["", "assets/", "assets/../", "api/runs/", "api/runs/{run}/analyses/", "api/runs/{run}/tables/", "api/runs/{run}/export/"]
)
def test_no_spelling_of_a_path_leads_out(where: str, out: str, served: Any, run: str) -> None:
    answer = served.ask(where.format(run=run) + out)
    assert answer.status in (400, 404)
    assert b"root:" not in answer.body


def test_the_server_gives_no_file_but_those_of_the_build(served: Any) -> None:
    for name in (
        "assets/../index.html",
        "assets/..%2findex.html",
        "../app.py",
        "assets/../../app.py",
        "assets/",
        "index.html",
        "report/report.js",
    ):
        assert served.ask(name).status == 404


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A trace beside the folder that is served."""
    folder = tmp_path / "secret"
    folder.mkdir()
    shutil.copy(CPU, folder / "secret.json.gz")
    return folder


def test_a_link_to_a_file_outside_is_listed_as_such_and_not_opened(outside: Path, tmp_path: Path, server: Serve) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link.json.gz").symlink_to(outside / "secret.json.gz")
    (root / "folder").symlink_to(outside)
    refused(server(root), "link.json.gz")


def test_a_link_inside_stays_usable(tmp_path: Path, server: Serve) -> None:
    shutil.copy(CPU, tmp_path / "real.json.gz")
    (tmp_path / "other.json.gz").symlink_to(tmp_path / "real.json.gz")
    served = server(tmp_path)
    assert {run["state"] for run in served.ask("api/runs").json()["runs"]} == {"finished"}
    assert served.ask(f"api/runs/{served.run('other')}").status == 200


@pytest.mark.parametrize("table", ["spans.parquet", "run.json"])
def test_a_run_folder_whose_table_is_a_link_outside_is_not_opened(table: str, tmp_path: Path, server: Serve) -> None:
    import stepscope
    from stepscope.io import store

    root = tmp_path / "root"
    store.write(stepscope.open(CPU), root / "run")
    (root / "run" / table).rename(tmp_path / table)
    (root / "run" / table).symlink_to(tmp_path / table)
    refused(server(root), table)


def test_a_capture_whose_piece_is_a_link_outside_is_not_opened(tmp_path: Path, server: Serve) -> None:
    root = tmp_path / "root"
    made = captures.Capture(root / "rank0_host_1_20260101120000000000.capture", {"rank": 0})
    made.finish()
    (tmp_path / "steps.npz").write_bytes(b"secret")
    (made.folder / "steps.000000.npz").symlink_to(tmp_path / "steps.npz")
    refused(server(root), "steps.000000.npz")


def test_a_link_that_turns_outside_after_the_list_was_made_is_not_followed(outside: Path, tmp_path: Path, server: Serve) -> None:
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(CPU, root / "run.json.gz")
    served = server(root)
    run = served.run("run")
    (root / "run.json.gz").unlink()
    (root / "run.json.gz").symlink_to(outside / "secret.json.gz")
    answer = served.ask(f"api/runs/{run}")
    assert answer.status == 409
    assert "outside the served folder" in answer.json()["error"]


def test_a_file_beside_a_trace_that_is_a_link_outside_is_not_read(tmp_path: Path, server: Serve) -> None:
    root, marey = tmp_path / "root", next((SAMPLES / "marey").rglob("*.json"))
    root.mkdir()
    shutil.copy(marey, root / "timeline_7.json")
    (tmp_path / "secret.json").write_text('{"scope_map": {"Conv2D-op1": "/secret"}}')
    (root / "scope_map_7.json").symlink_to(tmp_path / "secret.json")
    served = server(root)
    run = next(run["id"] for run in served.ask("api/runs").json()["runs"] if run["format"] == "marey")
    assert "leads out of its folder" in str(served.ask(f"api/runs/{run}").json()["problems"])
    assert b"secret" not in served.ask(f"api/runs/{run}/tables/spans?format=csv").body
    (root / "scope_map_7.json").unlink()
    (root / "scope_map_7.json").write_text('{"scope_map": {"Conv2D-op1": "/net/own"}}')
    deadline = time.monotonic() + 30
    while b"net/own" not in served.ask(f"api/runs/{run}/tables/spans?format=csv").body:  # what lies beside is looked at, too
        assert time.monotonic() < deadline


def refused(served: Any, name: str) -> None:
    runs = served.ask("api/runs").json()["runs"]
    assert [(run["name"], run["state"]) for run in runs if run["state"] != "finished"] and all(run["state"] == "unreadable" for run in runs)
    (run,) = (run for run in runs if run["name"] == name)
    assert "outside the served folder" in run["error"]
    answer = served.ask(f"api/runs/{run['id']}")
    assert (answer.status, "outside the served folder" in answer.json()["error"]) == (409, True)


# Too much


def test_an_upload_that_says_it_is_too_large_is_refused_before_it_comes(server: Serve) -> None:
    served = server(SAMPLES, max_upload=1000)
    head = f"POST /api/uploads?name=x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\nConnection: close\r\n"
    answer = raw(served.port, f"{head}Content-Length: 1001\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_an_upload_that_does_not_say_how_large_it_is_ends_at_the_limit(server: Serve) -> None:
    served = server(SAMPLES, max_upload=100_000)

    def chunks() -> Iterator[bytes]:
        yield from (b"x" * 10_000 for _ in range(1000))

    try:
        answer = served.ask("api/uploads?name=x", "POST", chunks(), {"Transfer-Encoding": "chunked"})
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was hung up on
    else:
        assert answer.status == 413
        assert "--max-upload" in answer.json()["error"]
    assert kept(served) == 0


def test_all_uploads_together_are_bounded(server: Serve) -> None:
    size = CPU.stat().st_size
    served = server(SAMPLES, max_upload=size + 1)
    statuses = [served.ask(f"api/uploads?name=u{number}.json.gz", "POST", CPU.read_bytes()).status for number in range(6)]
    assert statuses == [201] * 4 + [413] * 2
    assert "all uploads together" in served.ask("api/uploads?name=u.json.gz", "POST", CPU.read_bytes()).json()["error"]


def test_a_bomb_is_not_unpacked(server: Serve) -> None:
    served = server(SAMPLES, max_upload=10**9)
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(b'{"traceEvents":[') + b"".join(packer.compress(b" " * (1 << 20)) for _ in range(300)) + packer.flush()
    assert len(bomb) < 1_000_000
    answer = served.ask("api/uploads?name=bomb.json.gz", "POST", bomb)
    assert answer.status == 413
    assert "the unpacked file is too large" in answer.json()["error"]
    two = gzip.compress(b"{}") + bomb  # a second member of the same file
    assert served.ask("api/uploads?name=bomb.json.gz", "POST", two).status == 413


BLANKS = b'{"traceEvents":[' + b" " * (80 << 20)


def packed(*, flags: int = 0, extra: bytes = b"") -> bytes:
    """A gzip member of 80 MiB, with these flags and what they announce in its header."""
    packer = zlib.compressobj(9, wbits=-15)
    content = packer.compress(BLANKS) + packer.flush()
    end = zlib.crc32(BLANKS).to_bytes(4, "little") + len(BLANKS).to_bytes(4, "little")
    return b"\x1f\x8b\x08" + bytes([flags]) + bytes(6) + extra + content + end


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    plain, small = packed(), gzip.compress(b"{}", mtime=0)
    found = {
        "plain": plain,
        "after a small member": small + plain,
        "after padding": small + bytes(1000) + plain,
        "with a name and a comment": packed(flags=8 | 16, extra=b"name\0comment\0"),
        "with an extra field": packed(flags=4, extra=b"\x03\0abc"),
        # zlib refuses these two, and Python's gzip, by which traces are read, does not.
        "with reserved flags": packed(flags=0xE0),
        "with a wrong checksum of the header": packed(flags=2, extra=b"\0\0"),
    }
    for name, bomb in found.items():
        with gzip.open(io.BytesIO(bomb)) as file:
            assert sum(map(len, iter(lambda: file.read(1 << 20), b""))) >= len(BLANKS), name  # a reader would unpack it
    return found


@pytest.mark.parametrize("first", [None, 1, 2, 22, 1022], ids=lambda first: f"first chunk {first or 'whole'}")
def test_no_way_of_packing_or_sending_hides_how_large_a_file_is(first: int | None, bombs: dict[str, bytes], server: Serve) -> None:
    """The first chunk ends within the magic number, behind it, behind a small member of 22 bytes, and behind the padding."""
    served = server(SAMPLES, max_upload=10**9)
    head = f"POST /api/uploads?name=bomb.json.gz HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n"
    for name, bomb in bombs.items():
        begun, rest = (bomb, b"") if first is None else (bomb[:first], bomb[first:])
        with socket.create_connection(("127.0.0.1", served.port), timeout=60) as client:
            # The answer 100 comes when the first chunk, which came with the headers, is taken.
            client.sendall(head.encode() + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n" + chunk(begun))
            answer = client.makefile("rb")
            assert answer.readline().startswith(b"HTTP/1.1 100 ") and answer.readline() == b"\r\n"
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall((chunk(rest) if rest else b"") + b"0\r\n\r\n")
            assert answer.readline().startswith(b"HTTP/1.1 413 "), name
    assert kept(served) == 0


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_no_more_than_so_many_files_are_kept_and_the_line_says_so(server: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "_FILES", 2)
    served = server(SAMPLES, token="few uploads")
    answers = [served.ask(f"api/uploads?name=u{number}.json", "POST", b"no trace") for number in range(3)]
    assert [answer.status for answer in answers] == [409] * 3  # what is not kept does not count
    answers = [served.ask(f"api/uploads?name=u{number}.json.gz", "POST", CPU.read_bytes()) for number in range(3)]
    assert [answer.status for answer in answers] == [201, 201, 413]
    assert answers[-1].json()["error"] == "the server has 2 uploaded files, which is the limit: open the file with `stepscope view FILE`"
    assert kept(served) == 2


def test_a_thousand_files_are_taken_and_no_more(server: Serve) -> None:
    served = server(SAMPLES, token="many uploads")
    content = gzip.compress(b'{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}')
    answer = [served.ask(f"api/uploads?name=u{number}.json.gz&together=all&more=1", "POST", content).status for number in range(1000)]
    assert answer == [202] * 1000
    assert served.ask("api/uploads?name=last.json.gz", "POST", content).status == 413


@pytest.mark.parametrize("content", [b"", b"hello", b"\x1f\x8b" + b"\x00" * 100, b"\x80\x04cos\nsystem\n(S'true'\ntR."])
def test_what_is_no_trace_is_not_kept(content: bytes, served: Any) -> None:
    before = len(served.ask("api/runs").json()["runs"])
    answer = served.ask("api/uploads?name=x.json", "POST", content)
    assert answer.status in (400, 409)
    assert len(served.ask("api/runs").json()["runs"]) == before


def kept(served: Any) -> int:
    return sum(run["path"].find("uploads") >= 0 for run in served.ask("api/runs").json()["runs"])


# Names


@pytest.mark.parametrize(
    "name",
    [
        "../../../../tmp/evil.json.gz",
        "/etc/evil.json.gz",
        "..",
        ".",
        "",
        ".hidden.json.gz",
        "a%00b.json.gz",
        "a%0d%0aX-Evil:%201.json.gz",
        "%1b%5b31mred.json.gz",
        "%e2%80%aegnp.json.gz",
        "x" * 5000 + ".json.gz",
        "..%5c..%5cevil.json.gz",
        "CON.json.gz",
        "%3Cscript%3Ealert(1)%3C/script%3E.json.gz",
        "%F0%9F%92%A3.json.gz",
    ],
)
def test_an_upload_lands_in_its_own_folder_whatever_it_is_called(name: str, server: Serve) -> None:
    served = server(SAMPLES, max_upload=10**7)
    answer = served.ask(f"api/uploads?name={name}", "POST", CPU.read_bytes())
    assert answer.status == 201, answer.body
    (run,) = (run for run in served.ask("api/runs").json()["runs"] if run["id"] == answer.json()["id"])
    path = Path(run["path"])
    assert path.parent.parent.name == "uploads"
    assert path.name.isprintable() and not path.name.startswith(".") and len(os.fsencode(path.name)) <= 120
    assert oct(path.parent.parent.stat().st_mode)[-3:] == "700"
    assert re.fullmatch(r"[a-z0-9-]+", run["id"])
    export = served.ask(f"api/runs/{run['id']}/analyses/steps?format=csv".replace("analyses", "tables"))
    assert re.fullmatch(r'attachment; filename="[\w.-]+"; filename\*=UTF-8\'\'[\w.%~-]+', export.headers["content-disposition"])
    assert "x-evil" not in export.headers


HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(1)>",
    "javascript:alert(1)",
    "${7*7}{{7*7}}",
    "\u202egnp.exe",
    "\x1b[31mred",
    "a\nb\tc",
    "=cmd|'/c calc'!A1",
    "\ud83d\udca3" * 50,
    "x" * 10_000,
    "__proto__",
    "constructor",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with such names in every place that has one."""
    folder = tmp_path_factory.mktemp("hostile")
    rows: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": HOSTILE[0]}}]
    rows.append({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 10_000})
    for number, name in enumerate(HOSTILE):
        at = {"pid": 1, "tid": 1, "ts": 10 + 100 * number, "dur": 50}
        args = {"Input Dims": name, "Input type": [name], "Call stack": name, name: name, "correlation": number, "External id": number}
        rows.append({"ph": "X", "cat": "cpu_op", "name": name, "args": args, **at})
        rows.append({"ph": "X", "cat": "kernel", "name": name, "args": args | {"stream": 7, "device": 0}, **at, "pid": 0, "tid": 7})
        rows.append({"ph": "X", "cat": name, "name": name, "pid": name, "tid": name, "ts": 10 + 100 * number, "dur": 50})
        rows.append({"ph": "C", "name": name, "pid": 1, "ts": 10 + 100 * number, "args": {name: 1}})
    (folder / "<b>hostile<b>.json").write_text(json.dumps({"traceEvents": rows, "deviceProperties": [{"id": 0, "name": HOSTILE[1]}]}))
    return folder


def test_hostile_names_come_through_as_the_text_they_are(hostile: Path, server: Serve) -> None:
    import io

    import polars as pl

    served = server(hostile)
    (run,) = served.ask("api/runs").json()["runs"]
    answer = served.ask(f"api/runs/{run['id']}/tables/spans?columns=name")
    assert set(HOSTILE) - {HOSTILE[9]} <= set(pl.read_ipc_stream(io.BytesIO(answer.body))["name"].cast(pl.String))
    for form in ("csv", "json"):
        assert (
            served.ask(f"api/runs/{run['id']}/tables/spans?format={form}")
            .headers["content-type"]
            .startswith(("text/csv", "application/json"))
        )


def test_the_pages_show_hostile_names_as_text(hostile: Path, server: Serve, page: "Page") -> None:
    served = server(hostile)
    (run,) = served.ask("api/runs").json()["runs"]
    output: list[str] = []

    def dismiss(dialog: Any) -> None:
        output.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.goto(served.url())
    for name in ["", *page_names()]:
        page.goto(f"{served.base}#/{run['id']}/{name}")
        page.wait_for_load_state("networkidle")
        assert page.locator("svg[onload], img[onerror]").count() == 0
    assert output == []


def page_names() -> list[str]:
    return sorted(path.stem for path in (ROOT / "frontend" / "src" / "pages").glob("*.tsx"))


# In a browser


def test_the_address_with_the_token_opens_the_page_and_leaves_the_address_bar(server: Serve, page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url("#/"))
    page.wait_for_load_state("networkidle")
    assert served.token not in page.url
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("fetch('api/runs').then(answer => answer.status)") == 200


def test_a_link_on_another_site_opens_the_page_for_who_has_the_cookie(server: Serve, browser: "Browser") -> None:
    """SameSite=Strict keeps the cookie from such a request: the page asks again by itself."""
    served, other = server(SAMPLES), server(SAMPLES, token=None)
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"http://localhost:{other.port}/api/analyses")  # another site than 127.0.0.1
        page.evaluate("address => { location.href = address }", served.url())
        page.wait_for_url(served.base + "**")
        page.wait_for_selector("#app *")
        assert page.evaluate("fetch('api/runs').then(answer => answer.status)") == 200
    finally:
        context.close()


def test_another_site_gets_nothing_with_the_users_cookie(server: Serve, browser: "Browser") -> None:
    served, evil = server(SAMPLES), server(SAMPLES, token=None)
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(served.url())
        page.goto(evil.base)  # the same site, another origin: SameSite lets the cookie pass
        request = """address => fetch(address, {mode: MODE, credentials: 'include'}).then(answer => answer.text(), error => 'blocked')"""
        for mode in ("'cors'", "'no-cors'"):
            assert page.evaluate(request.replace("MODE", mode), f"{served.base}api/runs") in ("", "blocked")
    finally:
        context.close()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost", ("localhost", "")),
        ("LocalHost:80", ("localhost", "80")),
        ("[::1]:80", ("::1", "80")),
        ("a.b.", ("a.b", "")),
        ("a b", None),
        ("a/b", None),
        ("u@h", None),
        ("[::1", None),
        ("h:x", None),
        ("", None),
        (":80", None),
    ],
)
def test_a_host_header_is_taken_apart_or_refused(text: str, parts: tuple[str, str] | None) -> None:
    assert split_host(text) == parts


def raw(port: int, text: bytes) -> bytes:
    """What the server says to these very bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)


def raw_headers(served: Any, path: str) -> dict[str, str]:
    """The head of an answer that does not end."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.token}\r\n\r\n".encode())
        output = b""
        while b"\r\n\r\n" not in output:
            output += connection.recv(1 << 16)
    lines = output.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")[1:]
    return {name.lower(): text for name, text in (line.split(": ", 1) for line in lines)}
