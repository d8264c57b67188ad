"""`stepscope mcp`, as a client of the Model Context Protocol sees it: the real command, started by the client of the SDK."""

import asyncio
import contextlib
import gzip
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from programs import SOURCE, STEPSCOPE, environment, run_command, started
from stepscope import store
from stepscope.cli.setup.demo import RECORDING
from stepscope.model import schema
from stepscope.model.trace import analysis, analysis_names
from stepscope.server.runs import RunList

pytest.importorskip("mcp", reason="the mcp SDK is not installed, which `make test` does")
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

SAMPLES = Path(__file__).parent / "samples"
TORCH = SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"
PAGES = Path(__file__).parent.parent / "frontend" / "src" / "pages"
# Runs for minutes: the engine cannot answer it from statistics.
ENDLESS = "select sum(hash(a.range * b.range) % 7) as x from range(1000000000) a, range(1000000) b"


def talk(folder: Path, conversation: Callable[[ClientSession], Awaitable[None]], *words: str) -> None:
    """A conversation with `stepscope mcp` about the runs of a folder."""

    failures: list[BaseException] = []

    async def run() -> None:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "stepscope", "mcp", *(words or (str(folder),))], env=environment(folder.parent)
        )
        async with stdio_client(command) as (answers, requests), ClientSession(answers, requests) as client:
            await client.initialize()
            try:
                await asyncio.wait_for(conversation(client), 300)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below: a task group would wrap it
                failures.append(error)

    # In a thread of its own: in this one, the browser of other tests may keep an event loop.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, run()).result()
    if failures:
        raise failures[0]


async def answer(client: ClientSession, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured content of an answer, which is also its text."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(client: ClientSession, tool: str, **arguments: Any) -> str:
    """The line of an error."""
    result = await client.call_tool(tool, arguments)
    text: str = result.content[0].text  # type: ignore[union-attr]
    assert result.is_error and "\n" not in text and "internal error" not in text, text
    return text


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A folder with one run: four steps of GPT-2."""
    shutil.copytree(RECORDING, tmp_path / "runs" / RECORDING.name)
    return tmp_path / "runs"


def test_the_tools_have_schemas_with_the_types_and_bounds_of_the_analyses(demo: Path) -> None:
    async def conversation(client: ClientSession) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"list_runs", "summary", "whatif", "analysis", "sql", "describe"} <= set(tools)
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools.values())
        assert all(tool.output_schema is not None for tool in tools.values())
        of_all = tools["analysis"].input_schema["properties"]
        assert of_all["analysis"]["enum"] == analysis_names()
        options = of_all["parameters"]["properties"]
        assert {key: options["min_ns"][key] for key in ("type", "minimum", "maximum")} == {
            "type": "integer",
            "minimum": 0,
            "maximum": 2**63 - 1,
        }
        assert "gaps" in options["min_ns"]["description"] and options["by_scope"]["type"] == "boolean"
        assert sorted(options["op"]["type"]) == ["integer", "string"]  # links has a text, queue_samples a number
        assert tools["whatif"].input_schema["properties"]["remove"]["type"] == "string"
        assert tools["sql"].input_schema["required"] == ["sql"]

    talk(demo, conversation)


def test_every_analysis_answers_with_its_columns_and_a_page(demo: Path) -> None:
    async def conversation(client: ClientSession) -> None:
        run = (await answer(client, "list_runs"))["rows"][0]["id"]
        for name in analysis_names():
            found = await answer(client, "analysis", analysis=name, run=run, limit=3)
            assert list(found["columns"]) == list(analysis(name).columns), name
            assert len(found["rows"]) == min(3, found["row_count"]), name
            assert found["row_count"] or "lacks the data" in found["notes"][-1], name
            link = found["open"]["link"]
            assert link.startswith(f"#/{run}/") and (PAGES / f"{link.split('/')[2].split('?')[0]}.tsx").exists(), link

    talk(demo, conversation)


def test_the_answers_are_those_of_the_api(demo: Path) -> None:
    trace = store.read(demo / RECORDING.name)

    async def conversation(client: ClientSession) -> None:
        [row] = (await answer(client, "list_runs"))["rows"]
        assert row["id"] == RunList([demo]).scan()[0].id  # so that links open on the pages
        assert (row["framework"], row["ranks"], row["path"]) == ("pytorch", 1, str(demo / RECORDING.name))
        whole = await answer(client, "summary")
        headline = trace.analyse("verdict", topic="overview")["text"][0]
        assert whole["conclusions"]["rows"][0]["text"] == headline
        assert whole["overview"]["rows"][0]["step_ns"] == trace.analyse("overview")["step_ns"][0]
        faster = await answer(client, "whatif", scale="aten::mm=0.5")
        assert faster["rows"][0]["gain_ns"] == trace.analyse("whatif", scale="aten::mm=0.5")["gain_ns"][0]
        kernels = await answer(
            client, "analysis", analysis="kernels", parameters={"by_scope": True}, sort="total_ns", columns=["name", "total_ns"]
        )
        table = trace.analyse("kernels", by_scope=True).sort("total_ns", descending=True)
        assert [row["total_ns"] for row in kernels["rows"]] == table["total_ns"].to_list()[: len(kernels["rows"])]
        [counted] = (await answer(client, "sql", sql="select count(*) as n from spans where step = 9"))["rows"]
        assert counted["n"] == trace.spans.collect()["step"].eq(9).sum()

    talk(demo, conversation)


@pytest.mark.skipif(importlib.util.find_spec("stepscope.comparison") is None, reason="no comparison in this version")
def test_a_run_compared_with_itself_has_no_difference(demo: Path) -> None:
    async def conversation(client: ClientSession) -> None:
        [row] = (await answer(client, "list_runs"))["rows"]
        found = await answer(client, "compare", a=[row["id"]], b=[row["path"]], by="kernel", limit=5)
        assert found["summary"]["rows"][0]["change_ns"] == 0 and found["conclusions"]["rows"]
        assert len(found["operators"]["rows"]) <= 5
        assert found["open"]["link"] == f"#/{row['id']}/compare?with={row['id']}"
        assert "missing b" in await refusal(client, "compare", a=[row["id"]])
        assert "a is empty" in await refusal(client, "compare", a=[], b=[row["id"]])

    talk(demo, conversation)


def test_a_large_answer_is_cut_and_says_how_to_get_the_rest(demo: Path) -> None:
    async def conversation(client: ClientSession) -> None:
        first = await answer(client, "sql", sql="select span, name, args from spans order by span", limit=500)
        assert first["row_count"] == 28622  # spans of the sample, as `stepscope query` counts them
        assert 0 < len(first["rows"]) < 500 and len(json.dumps(first["rows"])) < 26_000
        assert f"rows 1 to {len(first['rows'])} of 28,622 rows" in first["left_out"] and f"offset={len(first['rows'])}" in first["left_out"]
        rest = await answer(client, "sql", sql="select span, name, args from spans order by span", offset=len(first["rows"]), limit=1)
        assert rest["rows"][0]["span"] == len(first["rows"])  # the spans of the sample are numbered from 0
        everything = await answer(client, "sql", sql="select repeat('x', 100000) as long")
        assert everything["rows"][0]["long"].endswith("… (100,000 characters)") and "long values of long are cut" in everything["left_out"]
        assert (await answer(client, "sql", sql="select 1 as x"))["left_out"] is None

    talk(demo, conversation)


REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("analysis", {"analysis": "operatrs"}, "no analysis 'operatrs'; did you mean 'operators'?"),
    ("analysis", {}, "analysis: missing analysis"),
    ("analysis", {"analysis": "gaps", "parameters": {"min_ns": -1}}, "min_ns is -1; expected a number from 0 to"),
    ("analysis", {"analysis": "gaps", "parameters": {"min_ns": "many"}}, "min_ns is 'many'; expected a whole number"),
    ("analysis", {"analysis": "gaps", "parameters": {"min_ns": True}}, "min_ns is True; expected a whole number"),
    ("analysis", {"analysis": "gaps", "parameters": {"by_scope": True}}, "gaps has no parameter 'by_scope'"),
    ("analysis", {"analysis": "gaps", "sort": "nothing"}, "nothing"),
    ("analysis", {"analysis": "gaps", "limit": 501}, "limit is 501; expected a number from 0 to 500"),
    ("summary", {"run": "unknown"}, "no run 'unknown'; there are gpt2-h200-"),
    ("summary", {"run": 3}, "run is 3; expected a string"),
    ("summary", {"steps": "5:2"}, "steps is '5:2'; expected FIRST:LAST"),
    ("summary", {"rank": 7}, "no rank 7"),
    ("summary", {"rnk": 0}, "summary has no parameter 'rnk'; did you mean 'rank'?"),
    ("whatif", {"remove": "everything"}, "everything"),
    ("sql", {"sql": "select * from nothing"}, "no table 'nothing'"),
    ("sql", {"sql": "drop table spans"}, "is not a query"),
    ("sql", {"sql": "select * from read_text('/etc/passwd')"}, "only the tables of the trace can be queried"),
    ("sql", {"sql": "select nme from spans"}, "nme"),
    ("describe", {"name": "spanz"}, "did you mean 'spans'?"),
    ("list_runs", {"path": "nowhere"}, "no such file or folder below"),
]


def test_wrong_use_is_refused_in_one_line_that_says_what_is_expected(demo: Path) -> None:
    async def conversation(client: ClientSession) -> None:
        for tool, arguments, expected in REFUSALS:
            assert expected in await refusal(client, tool, **arguments), (tool, arguments)
        with pytest.raises(MCPError, match="no tool 'sumary'; did you mean 'summary'"):
            await client.call_tool("sumary", {})

    talk(demo, conversation)


def test_nothing_outside_the_folders_can_be_opened(demo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret" / "cpu_training.json.gz"
    outside.parent.mkdir()
    shutil.copy(TORCH, outside)
    (demo / "link.json.gz").symlink_to(outside)

    async def conversation(client: ClientSession) -> None:
        for path in (str(outside), "../secret", "../secret/cpu_training.json.gz", "/etc", f"{demo}/../secret"):
            assert "outside the served folders" in await refusal(client, "list_runs", path=path), path
            assert "outside the served folders" in await refusal(client, "summary", run=path), path
        assert "links to a file outside the served folder" in str((await answer(client, "list_runs"))["rows"])
        line = await refusal(client, "summary", run=str(demo / "link.json.gz"))
        assert "outside" in line
        for word in ("\0", "a/\0"):
            assert "internal error" not in await refusal(client, "list_runs", path=word) + await refusal(client, "summary", run=word)
        assert len(await refusal(client, "summary", run="a" * 10_000)) < 600
        line = await refusal(client, "summary", run=str(tmp_path / "secret" / "not-there.json"))
        assert "outside the served folders" in line  # the same for files that do not exist

    talk(demo, conversation)


def test_a_run_is_chosen_by_id_name_or_path(demo: Path) -> None:
    shutil.copy(TORCH, demo / TORCH.name)

    async def conversation(client: ClientSession) -> None:
        rows = {row["name"]: row for row in (await answer(client, "list_runs"))["rows"]}
        assert set(rows) == {"gpt2_h200", "cpu_training"}
        row = rows["cpu_training"]
        for word in (row["id"], row["name"], row["path"], TORCH.name):
            assert (await answer(client, "summary", run=word))["run"] == row["id"]
        assert "missing run: there are 2 runs" in await refusal(client, "summary")
        assert "has 2 runs; expected the id of one" in await refusal(client, "summary", run=str(demo))
        assert [found["name"] for found in (await answer(client, "list_runs", path=TORCH.name))["rows"]] == ["cpu_training"]
        assert [found["name"] for found in (await answer(client, "list_runs", find="h200"))["rows"]] == ["gpt2_h200"]

    talk(demo, conversation)


def test_a_damaged_trace_is_refused_by_name_and_read_in_part_on_request(tmp_path: Path) -> None:
    whole = gzip.decompress(TORCH.read_bytes())
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "cut.json").write_bytes(whole[: len(whole) // 2])

    async def refused(client: ClientSession) -> None:
        line = await refusal(client, "summary")
        assert "cut.json" in line and "--partial" in line

    async def in_part(client: ClientSession) -> None:
        found = await answer(client, "analysis", analysis="operators")
        assert found["row_count"] and "problem" in found["notes"][0]
        assert (await answer(client, "summary"))["problems"]["row_count"] > 0

    talk(folder, refused)
    talk(folder, in_part, "--partial", str(folder))


def test_a_call_is_answered_while_another_one_runs_which_can_be_cancelled(demo: Path) -> None:
    async def conversation(client: ClientSession) -> None:
        endless = asyncio.ensure_future(client.call_tool("sql", {"sql": ENDLESS}))
        while not (first := query_processes()):
            await asyncio.sleep(0.05)
        found = await asyncio.gather(answer(client, "describe", name="gaps"), answer(client, "sql", sql="select 7 as x"))
        assert "idle" in found[0]["text"] and found[1]["rows"] == [{"x": 7}]
        assert not endless.done() and first <= query_processes()
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        while first & query_processes():  # the process of the endless query ends
            await asyncio.sleep(0.05)
        assert (await answer(client, "sql", sql="select 8 as x"))["rows"] == [{"x": 8}]

    talk(demo, conversation)


def query_processes() -> set[int]:
    """The processes that the server started: they answer queries. Other children of this process belong to other tests."""
    return {child for server in children(os.getpid()) if is_server(server) for child in children(server)}


def is_server(process: int) -> bool:
    with contextlib.suppress(OSError):
        return b"mcp" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
    return False


def children(parent: int) -> set[int]:
    lists = Path(f"/proc/{parent}/task").glob("*/children")
    with contextlib.suppress(FileNotFoundError):  # the process ended meanwhile
        return {int(word) for file in lists for word in file.read_text().split()}
    return set()


def test_each_table_and_analysis_has_a_resource_with_its_columns(demo: Path) -> None:
    async def conversation(client: ClientSession) -> None:
        uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
        tables = {f"stepscope://docs/tables/{name}": columns for name, columns in schema.TABLES.items()}
        analyses = {f"stepscope://docs/analyses/{name}": analysis(name).columns for name in analysis_names()}
        assert uris == {"stepscope://docs/index", *tables, *analyses}
        for uri, columns in (tables | analyses).items():
            text: str = (await client.read_resource(uri)).contents[0].text  # type: ignore[union-attr]
            assert all(f"- `{column}` (" in text for column in columns), uri
        with pytest.raises(MCPError, match="no resource"):
            await client.read_resource("stepscope://docs/../../etc/passwd")

    talk(demo, conversation)


def test_standard_output_has_only_messages_of_the_protocol(demo: Path) -> None:
    requests: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
        },
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "summary", "arguments": {}}},
    ]
    command = [*STEPSCOPE, "mcp", str(demo)]
    with started(demo, *command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in requests) + "no message\n")
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        lines += [json.loads(line) for line in process.stdout]
        assert process.wait(60) == 0  # the end of the input ends the server
    assert all(line["jsonrpc"] == "2.0" for line in lines) and {1, 2} <= {line.get("id") for line in lines}


def test_wrong_paths_and_a_missing_sdk_are_one_line_on_standard_error(tmp_path: Path) -> None:
    missing = run_command(tmp_path, *STEPSCOPE, "mcp", "nowhere")
    assert (missing.returncode, missing.stdout) == (1, "") and missing.stderr == "stepscope: nowhere: no such file or folder\n"
    unnamed = run_command(tmp_path, *STEPSCOPE, "mcp")
    assert unnamed.returncode == 2 and "PATH" in unnamed.stderr
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    without = run_command(tmp_path, *STEPSCOPE, "mcp", ".", PYTHONPATH=f"{tmp_path}:{SOURCE}")
    assert (without.returncode, without.stdout) == (1, "")
    assert without.stderr == "stepscope: mcp is not installed, which serving agents needs: pip install 'stepscope[mcp]'\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_server_which_waits_for_its_client(number: int, code: int, demo: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stepscope", "mcp", str(demo)]
    room = tmp_path / "temporary"
    room.mkdir()
    question = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"TMPDIR": str(room)}
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(question).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        assert process.wait(60) == code and process.stderr and process.stderr.read() == b""
    assert list(room.iterdir()) == []
