"""The tools as a server of the Model Context Protocol, over standard input and output. Only this module needs the `mcp` SDK."""

import functools
import json
from typing import Any

import mcp_types as types
import polars as pl
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from stepscope import __version__
from stepscope.errors import StepscopeError
from stepscope.io import store
from stepscope.model import parameters
from stepscope.server.agents import documents
from stepscope.server.agents.library import Library
from stepscope.server.agents.tools import Tool, all_tools

Context = ServerRequestContext[Any, Any]
_INSTRUCTIONS = (
    "stepscope analyses recordings of neural-network training: where the time, memory and communication of each step go. "
    "Call list_runs, then summary of a run, then advice for what to do, then analysis or sql for details; describe explains every table. "
    "Times are integers of nanoseconds (_ns), shares are 0 to 1. Answers are cut to a few rows: left_out says what is missing. "
    "Null means that the recording lacks the data, not zero. `open` is the page that shows an answer to a person."
)


async def serve(library: Library) -> None:
    """Answer until the client closes the connection."""
    server = create_server(library)
    async with stdio_server() as (requests, answers):
        await server.run(requests, answers, server.create_initialization_options())


def create_server(library: Library) -> Server[Any]:
    tools = all_tools()

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool_type(tool) for tool in tools.values()])

    async def call_tool(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in tools:
            known = parameters.suggestion(params.name, tools)
            raise MCPError(types.INVALID_PARAMS, f"no tool '{params.name}'{known}")
        try:
            answer = await tools[params.name].answer_to(library, params.arguments or {}, context.session.report_progress)
        except Exception as error:  # noqa: BLE001  every error is an answer of one line
            line = await library.threaded(functools.partial(_line, error))
            return types.CallToolResult(content=[types.TextContent(text=line)], is_error=True)
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=answer)

    async def list_resources(context: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        resources = [types.Resource(uri=uri, name=title, mime_type=documents.MEDIA_TYPE) for uri, title in documents.uris().items()]
        return types.ListResourcesResult(resources=resources)

    async def read_resource(context: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri = str(params.uri)
        text = await library.threaded(lambda: documents.document(uri))
        if text is None:
            raise MCPError(types.INVALID_PARAMS, f"no resource {uri}; {documents.ROOT}index lists the tables and analyses")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=documents.MEDIA_TYPE, text=text)])

    return Server(
        "stepscope",
        version=__version__,
        title="stepscope",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def _tool_type(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


def _line(error: Exception) -> str:
    """Every error as one line."""
    if isinstance(error, pl.exceptions.PolarsError):
        error = store.named_damage(error)
    if isinstance(error, StepscopeError):
        return str(error)
    first = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, OSError):
        return ": ".join(str(part) for part in (error.filename, error.strerror or first) if part)
    return f"internal error: {type(error).__name__}: {first} (please report it)"
