"""Every number that a URL can give has bounds: an extreme one is refused in a line that names it, and costs the server nothing."""

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.routing import Route

from stepscope.comparison.compare import TABLES as COMPARISONS
from stepscope.model import parameters, schema
from stepscope.model.trace import analysis, analysis_names
from stepscope.server import answers
from stepscope.server.app import Server, Settings
from stepscope.server.routes import comparisons, exports, timeline

SAMPLES = Path(__file__).parents[1] / "samples"
RECORDING = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"
# Addresses that take no number: whoever adds one declares its numbers where this test looks, or adds it to these lines.
NO_NUMBERS = {
    "/",
    "/assets/{name:path}",
    "/perfetto/{name:path}",
    "/api/perfetto",
    "/api/runs",
    "/api/analyses",
    "/api/events",
    "/api/uploads",
    "/api/runs/{run}",
    "/api/runs/{run}/progress",
    "/api/runs/{run}/cancel",
    "/api/runs/{run}/live",
    "/api/runs/{run}/dismissed",
    "/api/runs/{run}/timeline/progress",
}
# What parameters that an address needs are given while another one is extreme.
VALID = {"level": 0, "index": 0, "t0": 0, "t1": 1000, "at": 0, "lane": 0, "span": 0, "group": 0}
NO_NUMBER = [
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e309",
    "-1e309",
    "1.5.2",
    "0x10",
    "1_000",
    "\u0663",
    "\uff11",
    "9" * 400,
    "9" * 5000,
    "-",
    "\0",
    "1,2",
]
GROWTH = 1 << 29  # bytes: the largest answers below, 100,000 buckets, need a tenth of that


class Watched:
    """A server in a process of its own, and how much memory it has ever had."""

    def __init__(self, process: "subprocess.Popen[str]", port: int) -> None:
        self._process, self._port = process, port
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, path: str, method: str = "GET", body: str | None = None) -> tuple[int, bytes]:
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except http.client.HTTPException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def peak(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._process.pid}/status").read_text())
        assert found
        return int(found[1]) << 10


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if not Path("/proc/self/status").exists():
        pytest.skip("the memory of a process is looked up in /proc")
    command = [sys.executable, "-m", "stepscope", "view", str(RECORDING), "--port", "0", "--no-browser", "--no-token"]
    environment = os.environ | {"STEPSCOPE_CACHE": str(tmp_path_factory.mktemp("cache"))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        found = Watched(process, int(address.split(":")[2].split("/")[0]))
        try:
            yield found
        finally:
            found.close()
            process.terminate()


@pytest.fixture(scope="module")
def run(watched: Watched) -> str:
    (found,) = json.loads(watched.ask("/api/runs")[1])["runs"]
    return str(found["id"])


def routes() -> list[Route]:
    server = Server(Settings(roots=[], token=None))
    try:
        return server.routes()
    finally:
        server.close()


def numeric(given: dict[str, Any]) -> dict[str, type]:
    kinds = {name: parameters.type_of(one) for name, one in given.items()}
    return {name: kind for name, kind in kinds.items() if kind in (int, float)}


def addresses(path: str) -> list[tuple[str, dict[str, type]]]:
    """Each address of a route, and the numbers that it takes."""
    if path in NO_NUMBERS:
        return []
    if path.endswith("/analyses/{name}"):
        common: dict[str, type] = dict.fromkeys(answers.NUMBERS, int)
        return [(path.replace("{name}", name), common | numeric(analysis(name).parameters)) for name in analysis_names()]
    if path.endswith("/tables/{name}"):
        return [(path.replace("{name}", name), dict.fromkeys(answers.NUMBERS, int)) for name in schema.TABLES]
    if path.endswith("/export/{format}"):
        common = dict.fromkeys(exports.NUMBERS, int)
        return [(path.replace("{format}", name), common | numeric(exports.format_parameters(name))) for name in exports.names()]
    if "/timeline" in path:
        return [(path, numeric(parameters.of(timeline.ROUTES[path.partition("/timeline")[2]])))]
    if path.endswith("/compare/{table}"):
        return [(path.replace("{table}", name), comparisons.NUMBERS) for name in COMPARISONS]
    assert path.endswith("/query"), f"{path}: declare its numbers"
    return [(path, {"rank": int})]


ADDRESSES = {path: numbers for route in routes() for path, numbers in addresses(route.path)}


def url(path: str, run: str, name: str, word: object) -> str:
    """The address with one word for the parameter of this name, and valid words for the others that it needs."""
    words = {key: valid for key, valid in VALID.items() if key in ADDRESSES[path]} | {name: word}
    if "/timeline" in path:
        needed = parameters.of(timeline.ROUTES[path.partition("/timeline")[2]])
        words = {key: one for key, one in words.items() if key == name or needed[key].default is needed[key].empty}
    elif "/export/" in path:
        words = words if name in ("t0", "t1") else {name: word}
    for key in [key for key in words if f"{{{key}}}" in path]:
        path = path.replace(f"{{{key}}}", quote(str(words.pop(key)), safe=""))
    if "/compare/" in path:
        words |= {"baseline": run, "candidate": run}
    return path.replace("{run}", run) + "?" + "&".join(f"{key}={quote(str(one), safe='')}" for key, one in words.items())


@pytest.mark.parametrize("path", ADDRESSES, ids=lambda path: path.removeprefix("/api/runs/{run}/"))
def test_an_extreme_number_is_refused_by_its_name_and_costs_nothing(path: str, watched: Watched, run: str) -> None:
    before = watched.peak()
    for name, kind in ADDRESSES[path].items():
        low, high = parameters.BOUNDS[name]
        refused = [str(low - 1), str(high + 1), str(1 << 64), str(-(1 << 64)), *NO_NUMBER, *(["1e6", "0.5"] if kind is int else [])]
        for word in refused:
            if "{" + name + "}" in path and word in ("", "\0"):
                continue  # another address
            if path.endswith("/query"):
                text = word if re.fullmatch(r"-?\d{1,30}|-?[\d.]+e\d+", word, re.ASCII) else json.dumps(word)
                status, body = watched.ask(path.replace("{run}", run), "POST", f'{{"sql": "select 1 from steps", "{name}": {text}}}')
                assert status == 400, (word, body)
                continue
            status, body = watched.ask(url(path, run, name, word))
            assert status == 400, (name, word[:50], status, body[:500])
            error = json.loads(body)["error"]
            assert error.startswith(f"{name} is ") and error.endswith(f"from {low} to {high}"), error
            assert len(error) < 250
    assert watched.peak() - before < GROWTH


@pytest.mark.parametrize("path", ADDRESSES, ids=lambda path: path.removeprefix("/api/runs/{run}/"))
def test_the_bounds_themselves_are_answered_or_refused_in_a_line(path: str, watched: Watched, run: str) -> None:
    """There may be no such rank; but nothing fails, and nothing needs much memory."""
    before = watched.peak()
    for name in ADDRESSES[path]:
        low, high = parameters.BOUNDS[name]
        for number in {low, high} | (set() if "/export/" in path else {max(low, min(high, other)) for other in (0, (1 << 31) - 1)}):
            if path.endswith("/query"):
                body = json.dumps({"sql": "select 1 from steps", name: number})
                status, answer = watched.ask(path.replace("{run}", run), "POST", body)
            else:
                status, answer = watched.ask(url(path, run, name, number))
            assert status in (200, 400) or json.loads(answer)["kind"] == "data", (name, number, status, answer[:300])
            assert status == 200 or "\n" not in json.loads(answer)["error"]
            if name in (
                "limit",
                "offset",
                "buckets",
                "pixels",
                "top",
                "depth",
                "warmup",
                "min_ns",
                "start_ns",
                "end_ns",
                "at_ns",
                "min_share",
            ):
                assert status == 200, (name, number, answer[:300])
    assert watched.peak() - before < GROWTH


def test_offset_and_limit_together_reach_every_row_and_none_beyond(watched: Watched, run: str) -> None:
    last = (1 << 32) - 1
    for words, rows in (("", 4), (f"limit={last}", 4), (f"offset=3&limit={last}", 1), (f"offset={last}&limit={last}", 0)):
        _, body = watched.ask(f"/api/runs/{run}/tables/steps?format=json&{words}")
        assert len(json.loads(body)["rows"]) == rows, words


def test_a_word_that_is_given_twice_or_names_a_lane_twice_is_refused(watched: Watched, run: str) -> None:
    for path in (
        "tables/steps?limit=1&limit=2",
        "timeline/area?t0=0&t1=9&t0=1",
        "timeline/tiles/0/0?lanes=0,0",
        "timeline/tiles/0/0?level=3&level=3",
    ):
        assert watched.ask(f"/api/runs/{run}/{path}")[0] == 400, path
    lanes = ",".join(["0"] * 20_000)
    for path in (f"timeline/area?t0=0&t1=9&lanes={lanes}", f"timeline/tiles/0/0?lanes={lanes}"):
        status, body = watched.ask(f"/api/runs/{run}/{path}")
        assert (status, json.loads(body)["error"]) == (400, "`lanes` names a track twice")


def test_a_text_of_any_length_is_answered_or_refused_at_once(watched: Watched, run: str) -> None:
    for path in ("tables/spans", "analyses/kernels"):
        status, body = watched.ask(f"/api/runs/{run}/{path}?find=" + "+".join("a" for _ in range(20_000)))
        assert (status, json.loads(body)["error"]) == (400, "find has 39,999 characters; expected at most 1,000")
        assert watched.ask(f"/api/runs/{run}/{path}?limit=5&find=" + "+".join("a" for _ in range(500)))[0] == 200
    status, body = watched.ask(f"/api/runs/{run}/query", "POST", "[" * 100_000)
    assert status == 400 and json.loads(body)["error"].startswith("not JSON")


def test_every_number_of_an_analysis_is_described_with_its_bounds(watched: Watched) -> None:
    for one in json.loads(watched.ask("/api/analyses")[1])["analyses"]:
        for parameter in one["parameters"]:
            bounds = parameter.get("minimum"), parameter.get("maximum")
            assert bounds == (parameters.BOUNDS[parameter["name"]] if parameter["type"] in ("int", "float") else (None, None))


def test_no_request_names_a_file_of_this_machine(watched: Watched, run: str, tmp_path: Path) -> None:
    """On the command line `--reports` does: over HTTP it would read, or wait for, any file that the server's user can."""
    chosen = tmp_path / "reports.json"
    chosen.write_text('{"json_process": {"cann": true}}')
    status, body = watched.ask(f"/api/runs/{run}/export/msprof?reports={quote(str(chosen), safe='')}")
    assert (status, json.loads(body)["error"]) == (400, "msprof has no parameter 'reports'")
