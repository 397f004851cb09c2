"""`firstlight mcp` asked by the SDK's own client over stdio: every tool, bad arguments, answers by their schemas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from firstlight.cli.main import run
from firstlight.cli.mcp import offered
from tests.guard.projects import BANS_TRITON
from tests.schemas import fits

ASKED: dict[str, dict[str, Any]] = {
    "facts": {"facts": "example:h100-driver-570"},
    "doctor": {"facts": "example:h100-driver-570"},
    "explain": {"text": "CUDA error: no kernel image is available for execution on the device"},
    "plan": {"want": "torch==2.9.0+cu128", "facts": "example:h100-driver-570"},
    "libs": {"target": "/bin/sh"},
    "check": {"lock": "firstlight.lock"},
    "guard": {"shell": "pip install triton"},
    "check_claim": {"case": "gemm", "shape": "8192x8192x8192", "gpu": "H100", "ms": "1.5"},
}
BAD: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("apply", {}, "is not a tool"),
    ("guard", {"shel": "x"}, "is not an argument of guard"),
    ("guard", {"shell": "x" * 30_000}, "up to 20000"),
    ("explain", {}, "needs text"),
    ("guard", {}, "guard decides on one action"),
)


async def _ask(folder: Path) -> tuple[list[Any], dict[str, Any], list[Any]]:
    server = StdioServerParameters(command=sys.executable, args=["-m", "firstlight", "mcp"], cwd=str(folder))
    async with Client(server) as client:
        tools = (await client.list_tools()).tools
        answers = {name: await client.call_tool(name, given) for name, given in ASKED.items()}
        refused = [await client.call_tool(name, given) for name, given, _ in BAD]
    return list(tools), answers, refused


def test_every_tool_answers_the_sdks_client_by_its_schema(tmp_path: Path) -> None:
    (tmp_path / "firstlight.toml").write_text(BANS_TRITON)
    assert run(["lock", "--facts", "example:h100-driver-570", "--out", str(tmp_path / "firstlight.lock")]) == 0
    tools, answers, refused = anyio.run(_ask, tmp_path)
    assert {tool.name for tool in tools} == {tool.name for tool in offered()}
    assert "apply" not in {tool.name for tool in tools}
    for tool in tools:
        assert tool.annotations.read_only_hint is True
        if tool.name in answers:
            answer = answers[tool.name]
            assert not answer.is_error, (tool.name, answer.content[0].text[:300])
            fits(answer.structured_content, tool.output_schema)
    assert answers["check"].structured_content["lock"] == "firstlight.lock"
    assert answers["guard"].structured_content["decision"] == "deny"
    for answer, (_, _, says) in zip(refused, BAD, strict=True):
        assert answer.is_error
        assert says in answer.content[0].text
