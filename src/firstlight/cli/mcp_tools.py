"""The tools that `firstlight mcp` offers: which verb each calls, its arguments, the schema of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

LONGEST = 20_000  # letters of one argument
_MACHINE = {"facts": "A saved machine instead of this one: a file, a recording or example:NAME"}


@dataclass(frozen=True, slots=True)
class McpTool:
    """One verb as a tool: options by the name of their argument, the one that goes to stdin, the schema's file."""

    name: str
    about: str
    words: tuple[str, ...]
    schema: str
    options: tuple[tuple[str, str], ...] = ()  # argument -> what it is; given to the verb as --argument
    operand: str = ""  # the argument that is the verb's word, e.g. a target
    stdin: str = ""  # the argument that the verb reads on stdin
    required: tuple[str, ...] = ()


TOOLS = (
    McpTool("facts", "Look: what this machine is. Changes nothing.", ("facts",), "facts-1", tuple(_MACHINE.items())),
    McpTool(
        "doctor", "Why CUDA or PyTorch does not work on this machine: the one cause, and what to do.", ("doctor",),
        "diagnosis-2", (("want", 'What is wanted, e.g. "torch==2.9.0+cu130"'), *_MACHINE.items()),
    ),
    McpTool("explain", "An error text or a log: its cause, a proof and the ways out.", ("explain", "-"), "explain-2",
            stdin="text", required=("text",)),
    McpTool(
        "plan", "Every way to get what is wanted, ranked, as exact commands. Nothing is carried out.", ("plan",),
        "plan-2",
        (("want", 'What is wanted, e.g. "torch==2.9.0+cu130"'), *_MACHINE.items()),
    ),
    McpTool("libs", "Where every shared library of a target comes from, and what is missing.", ("libs",), "libs-1",
            operand="target"),
    McpTool("check", "What has changed on this machine since the lock.", ("check",), "check-1",
            (("lock", "The lock; default firstlight.lock"),)),
    McpTool(
        "guard", "May this run: shell text or an edit, judged by the team's policy.", ("guard",), "guard-1",
        (("shell", "Shell text"), ("edit", "The path of a file that would be edited")),
    ),
    McpTool(
        "check_claim", "Whether a claimed time or rate can be true on a GPU.", ("bench", "check-claim"), "claim-1",
        (("case", "gemm, sdpa, linear, ..."), ("shape", "e.g. 8192x8192x8192"), ("dtype", "e.g. fp16"),
         ("gpu", "e.g. H100"),
         ("ms", "The claimed milliseconds"), ("tflops", "The claimed rate"), ("gbps", "The claimed rate in GB/s")),
        required=("case", "shape"),
    ),
)  # fmt: skip


def arguments_of(tool: McpTool) -> dict[str, str]:
    """Every argument of a tool and what it is."""
    found = dict(tool.options)
    if tool.operand:
        found[tool.operand] = "torch, a shared library, a wheel, a folder or an installed distribution"
    if tool.stdin:
        found[tool.stdin] = "The text"
    return found


def input_schema(tool: McpTool) -> dict[str, Any]:
    """The JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": about, "maxLength": LONGEST}
            for name, about in arguments_of(tool).items()
        },
        "required": list(tool.required),
        "additionalProperties": False,
    }


def command_line(tool: McpTool, given: Mapping[str, Any]) -> tuple[list[str], str]:
    """The words for the verb, and what it reads on stdin; BadInput for arguments that are none of the tool's."""
    known = arguments_of(tool)
    for name, value in given.items():
        if name not in known:
            raise BadInput(f"{name[:40]!a} is not an argument of {tool.name}; accepted: {', '.join(known) or 'none'}.")
        if not isinstance(value, str) or len(value) > LONGEST or "\0" in value:
            raise BadInput(f"{name} of {tool.name}: accepted is a text of up to {LONGEST} letters.")
    if missing := [name for name in tool.required if name not in given]:
        raise BadInput(f"{tool.name} needs {', '.join(missing)}.")
    words = [*tool.words, "--json"]
    words += [f"--{name}={given[name]}" for name, _ in tool.options if name in given]
    if tool.operand and tool.operand in given:
        words += ["--", given[tool.operand]]
    return words, given.get(tool.stdin, "") if tool.stdin else ""
