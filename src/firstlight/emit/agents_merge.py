"""What is put into files that others write too, and taken out again: marked blocks and JSON entries."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from firstlight.emit.agents_texts import BEGIN, CHECK, END, HOOK, MATCHER, check_line, hook_line, mcp_server
from firstlight.errors import BadInput

_SECONDS = 30


def with_block(text: str, block: str, *, comment: tuple[str, str]) -> str:
    """A text with the block between our marks: where the marks are, else at the end."""
    before, after = comment
    marked = f"{before}{BEGIN}{after}\n{block}{before}{END}{after}\n"
    found = _marked(comment).search(text)
    if found:
        return text[: found.start()] + marked + text[found.end() :]
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + marked


def without_block(text: str, *, comment: tuple[str, str]) -> str:
    """The text without our block and the empty line that came with it."""
    found = _marked(comment).search(text)
    if not found:
        return text
    head = text[: found.start()]
    return (head[:-1] if head.endswith("\n\n") else head) + text[found.end() :]


def _marked(comment: tuple[str, str]) -> re.Pattern[str]:
    before, after = (re.escape(part) for part in comment)
    return re.compile(rf"^[ ]*{before}{BEGIN}[^\n]*\n.*?^[ ]*{before}{END}{after}\n?", re.S | re.M)


def with_repository(text: str, block: Callable[[str], str]) -> str:
    """A pre-commit configuration with our repository first in its list; everything else to the byte."""
    if not text.strip():
        return "repos:\n" + block("  ")
    found = re.search(r"^repos:[ \t]*(?:#[^\n]*)?\n", text, re.M)
    if not found:
        raise BadInput(
            ".pre-commit-config.yaml has no line `repos:` with a list under it; accepted: the usual form. "
            "Add `repos:` there, or leave pre-commit out with --tool."
        )
    item = re.search(r"^([ ]*)- ", text[found.end() :], re.M)
    return text[: found.end()] + block(item[1] if item else "  ") + text[found.end() :]


def without_repository(text: str) -> str:
    """The configuration without our repository."""
    return _marked(("# ", "")).sub("", text, count=1)


def parsed(text: str, path: str) -> dict[str, Any]:
    """A JSON file of somebody else's; one that does not parse is refused with its line."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadInput(
            f"{path}:{error.lineno}: not JSON: {error.msg}. Nothing was written; correct that line first."
        ) from None
    except RecursionError:
        raise BadInput(f"{path}: nested too deep to be a file of settings. Nothing was written.") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path}: accepted is a JSON object. Nothing was written.")
    return found


def dumped(found: dict[str, Any], like: str) -> str:
    """JSON with the indent of the text that it comes from."""
    indent = re.search(r"^([ \t]+)\S", like, re.M)
    return json.dumps(found, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def with_hooks(found: dict[str, Any], tool: str, path: str) -> dict[str, Any]:
    """The settings of a tool with our hooks, whatever else there is kept."""
    made = without_hooks(found)
    hooks = made.setdefault("hooks", {})
    if not isinstance(hooks, dict) or any(not isinstance(entries, list) for entries in hooks.values()):
        raise BadInput(f"{path}: `hooks` is not in the tool's form; accepted: an object of lists. Nothing was written.")
    line = hook_line(tool)
    if tool == "cursor":
        if made.setdefault("version", 1) != 1:
            raise BadInput(f"{path}: version {made['version']!a}; accepted: 1. Nothing was written.")
        entry = {"command": line, "failClosed": True, "timeout": _SECONDS}
        hooks.setdefault("beforeShellExecution", []).append(entry)
        hooks.setdefault("preToolUse", []).append({**entry, "matcher": MATCHER[tool]})
        return made
    command = {"type": "command", "command": line, "timeout": _SECONDS}
    hooks.setdefault("PreToolUse", []).append({"matcher": MATCHER[tool], "hooks": [command]})
    if tool == "claude":
        start = {"type": "command", "command": check_line(), "timeout": _SECONDS}
        hooks.setdefault("SessionStart", []).append({"hooks": [start]})
    return made


def without_hooks(found: dict[str, Any]) -> dict[str, Any]:
    """The settings without what is ours."""
    made = dict(found)
    hooks = made.get("hooks")
    if not isinstance(hooks, dict):
        return made
    left = {}
    for event, entries in hooks.items():
        if not isinstance(entries, list):
            left[event] = entries
            continue
        kept = [entry for entry in entries if not _ours(entry)]
        if kept or not entries:
            left[event] = kept
    if left:
        made["hooks"] = left
    else:
        del made["hooks"]
    return made


def _ours(entry: Any) -> bool:
    lines = commands_of(entry)
    return bool(lines) and all(
        HOOK in line or ("firstlight" in line and f'check --lock "$d/{CHECK}"' in line) for line in lines
    )


def commands_of(entry: Any) -> list[str]:
    """The command lines of one entry of a tool's hooks, in the form of any of the three."""
    if not isinstance(entry, dict):
        return []
    if isinstance(entry.get("command"), str):
        return [entry["command"]]
    inner = entry.get("hooks")
    return [line for each in inner for line in commands_of(each)] if isinstance(inner, list) else []


def with_server(found: dict[str, Any], path: str) -> dict[str, Any]:
    """The servers of a tool with firstlight among them."""
    servers = found.get("mcpServers", {})
    if not isinstance(servers, dict):
        raise BadInput(f"{path}: `mcpServers` is not an object. Nothing was written.")
    return {**found, "mcpServers": {**servers, "firstlight": mcp_server()}}


def without_server(found: dict[str, Any]) -> dict[str, Any]:
    """The servers without firstlight."""
    servers = {name: each for name, each in found.get("mcpServers", {}).items() if name != "firstlight"}
    return {
        **{key: value for key, value in found.items() if key != "mcpServers"},
        **({"mcpServers": servers} if servers else {}),
    }
