"""`firstlight mcp`: the verbs that change nothing as tools of a Model Context Protocol server, over stdio."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from typing import TYPE_CHECKING, Any

import click

from firstlight import __version__
from firstlight.cli.mcp_tools import TOOLS, McpTool, command_line, input_schema
from firstlight.errors import BadInput

if TYPE_CHECKING:
    import mcp.types as types

LARGEST = 400_000  # bytes of an answer; a document that is larger is not sent
_SECONDS = 300
_DOCUMENTS = (0, 1, 2, 3)  # exit codes with which a verb prints its document


@click.command(
    short_help="the verbs that change nothing, as tools for a coding agent over stdio",
    epilog="Example: firstlight emit agents --mcp writes the entry for each tool; firstlight mcp --json lists them",
)
@click.option("--json", "as_json", is_flag=True, help="Print the tools and their schemas, and stop.")
def command(as_json: bool) -> None:  # noqa: FBT001 click's signature
    """Serve facts, doctor, explain, plan, libs, check, guard and check_claim to a coding agent. Nothing is changed.

    It speaks the Model Context Protocol on stdin and stdout, by the official SDK, the package mcp. Each
    call runs the verb in a process of its own, for at most five minutes, and answers with its JSON document. Exit code
    0: the other side has ended; 2: the SDK is not installed.
    """
    if as_json:
        tools = [
            {"name": tool.name, "about": tool.about, "arguments": input_schema(tool), "answer": tool.schema}
            for tool in offered()
        ]
        click.echo(json.dumps({"schema": "firstlight.mcp/1", "firstlight": __version__, "tools": tools}, indent=1))
        return
    try:
        import anyio
        import mcp  # noqa: F401 asked for here, so that the complaint is one line
    except ImportError:
        raise BadInput(
            "the mcp package is not installed; accepted: 2.0 or newer. Install it: pip install 'mcp>=2.0'"
        ) from None
    anyio.run(_serve)


def offered() -> tuple[McpTool, ...]:
    """The tools whose verbs this firstlight has."""
    from firstlight.cli.main import VERBS

    return tuple(tool for tool in TOOLS if tool.words[0] in VERBS)


async def _serve() -> None:
    import anyio
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    server = Server("firstlight", version=__version__, on_list_tools=_list, on_call_tool=_call)
    # the protocol has stdout to itself: what tools print stays in their own processes
    answers = anyio.wrap_file(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    async with stdio_server(stdout=answers) as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


async def _list(context: Any, params: Any) -> types.ListToolsResult:
    import mcp.types as types

    hints = types.ToolAnnotations(
        read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
    )
    return types.ListToolsResult(
        tools=[
            types.Tool(
                name=tool.name,
                description=tool.about,
                input_schema=input_schema(tool),
                output_schema=_schema(tool.schema),
                annotations=hints,
            )
            for tool in offered()
        ]
    )


async def _call(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    import anyio
    import mcp.types as types

    tool = next((each for each in offered() if each.name == params.name), None)
    if tool is None:
        names = ", ".join(each.name for each in offered())
        return _error(f"{params.name[:40]!a} is not a tool; accepted: {names}.")
    try:
        words, stdin = command_line(tool, params.arguments or {})
    except BadInput as error:
        return _error(str(error))
    text, found = await anyio.to_thread.run_sync(lambda: _answer(words, stdin))
    if found is None:
        return _error(text)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=found)


def _error(text: str) -> types.CallToolResult:
    import mcp.types as types

    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def _answer(words: list[str], stdin: str) -> tuple[str, dict[str, Any] | None]:
    """The document of a verb as text and as data; a complaint and None where there is none, or it is too large."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "firstlight", *words], input=stdin.encode(), capture_output=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"firstlight {words[0]} took longer than {_SECONDS} s.", None
    complaint = done.stderr.decode(errors="replace").strip()[-2000:]
    if done.returncode not in _DOCUMENTS or not done.stdout.strip():
        return complaint or f"firstlight {words[0]} ended with {done.returncode}.", None
    if len(done.stdout) > LARGEST:
        return (
            f"firstlight {words[0]} printed {len(done.stdout)} bytes; {LARGEST} are sent. Run it in a terminal.",
            None,
        )
    text = done.stdout.decode()
    found: dict[str, Any] = json.loads(text)
    return text, found


def _schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((resources.files("firstlight") / "schemas" / f"{name}.json").read_text("utf-8"))
    return found
