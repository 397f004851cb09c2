"""The files by which coding tools ask `firstlight guard`: what each becomes, and what is left of it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from firstlight.emit import agents_merge as merge
from firstlight.emit import agents_texts as texts
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.guard.policy import NAME, Policy

TOOLS = ("claude", "cursor", "codex", "pre-commit")
HTML, HASH = ("<!-- ", " -->"), ("# ", "")
HOOK_FILES = {"claude": ".claude/settings.json", "cursor": ".cursor/hooks.json", "codex": ".codex/hooks.json"}
_OWN = {".cursor/rules/firstlight.mdc": "cursor", ".codex/rules/firstlight.rules": "codex"}
_SERVERS = {"claude": ".mcp.json", "cursor": ".cursor/mcp.json"}
_PRE_COMMIT = ".pre-commit-config.yaml"
_CODEX_CONFIG = ".codex/config.toml"
_IMPORT = "@AGENTS.md"


@dataclass(frozen=True, slots=True)
class AgentsAsked:
    """What is asked for: the tools, and whether each gets an entry for the MCP server."""

    tools: tuple[str, ...]
    mcp: bool = False


def touched_files(asked: AgentsAsked) -> tuple[str, ...]:
    """The files that would be written, from the project's folder."""
    files = [NAME, "AGENTS.md"]
    if "claude" in asked.tools:
        files.append("CLAUDE.md")
    files += [HOOK_FILES[tool] for tool in asked.tools if tool in HOOK_FILES]
    files += [path for path, tool in _OWN.items() if tool in asked.tools]
    if "pre-commit" in asked.tools:
        files.append(_PRE_COMMIT)
    if asked.mcp:
        files += [_SERVERS[tool] for tool in asked.tools if tool in _SERVERS]
        files += [_CODEX_CONFIG] if "codex" in asked.tools else []
    return tuple(files)


def every_file() -> tuple[str, ...]:
    """Every file that `emit agents` may ever have written."""
    return touched_files(AgentsAsked(TOOLS, mcp=True))


def added(path: str, text: str, policy: Policy, asked: AgentsAsked) -> str:
    """A file with our part in it; `text` is what it is without ('' where it is not there)."""
    if path == NAME:
        return text or texts.STARTER
    if path == "AGENTS.md":
        return merge.with_block(text, texts.agents_block(policy), comment=HTML)
    if path == "CLAUDE.md":
        if _IMPORT in text.split("\n"):
            return text
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{_IMPORT}\n"
    for tool, name in HOOK_FILES.items():
        if path == name:
            return merge.dumped(merge.with_hooks(merge.parsed(text, path), tool, path), text)
    if path in _OWN:
        if text:
            raise BadInput(f"{path} is there and is not ours; accepted: no file of that name. Rename it first.")
        return texts.cursor_rule(policy) if _OWN[path] == "cursor" else texts.codex_rules(policy)
    if path == _PRE_COMMIT:
        return merge.with_repository(text, texts.pre_commit_block)
    if path == _CODEX_CONFIG:
        if "[mcp_servers.firstlight]" in text:
            raise BadInput(f"{path} has [mcp_servers.firstlight] already. Take it out first, or leave --mcp out.")
        server = "".join(f"{key} = {json.dumps(value)}\n" for key, value in texts.mcp_server().items())
        return merge.with_block(text, f"[mcp_servers.firstlight]\n{server}", comment=HASH)
    return merge.dumped(merge.with_server(merge.parsed(text, path), path), text)


def stripped(path: str, text: str) -> str:
    """A file without our part, where a person has changed it since: '' where nothing is left."""
    if path == NAME:
        return "" if text == texts.STARTER else text
    if path == "AGENTS.md":
        return merge.without_block(text, comment=HTML)
    if path == "CLAUDE.md":
        return "".join(line for line in text.splitlines(keepends=True) if line.strip() != _IMPORT)
    if path in _OWN:
        return "" if texts.BEGIN in text else text
    if path == _PRE_COMMIT:
        left = merge.without_repository(text)
        return "" if left.strip() == "repos:" else left
    if path == _CODEX_CONFIG:
        return merge.without_block(text, comment=HASH)
    found = merge.parsed(text, path)
    left_over = merge.without_hooks(found) if path in HOOK_FILES.values() else merge.without_server(found)
    if left_over == found:
        return text
    return "" if set(left_over) <= {"version"} else merge.dumped(left_over, text)


def hooks_in(files: Mapping[str, str]) -> dict[str, list[str]]:
    """The command lines of the hooks before an action that each tool's own file holds: {'claude': [...]}."""
    events = {"PreToolUse", "preToolUse", "beforeShellExecution"}
    found: dict[str, list[str]] = {}
    for tool, path in HOOK_FILES.items():
        hooks = merge.parsed(files.get(path, ""), path).get("hooks", {})
        lines = [
            line
            for event, entries in (hooks.items() if isinstance(hooks, dict) else ())
            if event in events and isinstance(entries, list)
            for entry in entries
            for line in merge.commands_of(entry)
        ]
        if lines:
            found[tool] = list(dict.fromkeys(lines))
    return found
