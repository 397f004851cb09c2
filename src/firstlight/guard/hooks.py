"""What the hooks of three coding tools hand over on stdin, as actions; and the answer in each tool's own form.

Only two answers exist. Exit code 2 with a reason is deny for all three; 0 is allow. Any other end means "go on" to
these tools, so nothing here ends in any other way.
"""

from __future__ import annotations

import json
import re
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.guard.judge import Decision, decide_edit, decide_shell, decide_words
from firstlight.guard.place import Place
from firstlight.guard.policy import Policy

TOOLS = ("claude", "cursor", "codex")
LARGEST = 4 << 20  # bytes on stdin
_SHELLS = {
    "bash",
    "shell",
    "local_shell",
    "exec_command",
    "unified_exec",
    "exec",
    "terminal",
    "run_terminal_cmd",
    "monitor",
}
_EDITS = {
    "edit", "write", "multiedit", "notebookedit", "strreplace", "delete", "tabwrite", "editnotebook", "edit_file",
    "search_replace", "delete_file", "write_file", "create_file", "editfile",
}  # fmt: skip
_ASKS = {
    "read", "glob", "grep", "ls", "webfetch", "websearch", "todowrite", "task", "agent", "list", "read_file",
    "list_dir",
    "codebase_search", "view_image", "update_plan", "toolsearch", "semanticsearch", "readlints",
    "askuserquestion",
}  # fmt: skip
_PATHS = ("file_path", "notebook_path", "path", "target_file", "target_notebook", "filePath")
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$", re.M)


@dataclass(frozen=True, slots=True)
class HookAction:
    """What a tool is about to do: kind 'shell', 'words', 'edit' or 'asks'."""

    kind: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HookCall:
    """One call of a hook: the action and the folder that the tool works in ('' where it does not say)."""

    action: HookAction
    cwd: str


def read_call(tool: str, data: bytes) -> HookCall:
    """The call that a tool describes on stdin; BadInput for everything that is not one."""
    if len(data) > LARGEST:
        raise BadInput(f"the hook was handed more than {LARGEST >> 20} MiB; nothing of that size is read.")
    try:
        found = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadInput(f"what {tool} handed over is not UTF-8 (byte {error.start}).") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"what {tool} handed over is not JSON ({str(error)[:80]}).") from None
    if not isinstance(found, dict):
        raise BadInput(f"what {tool} handed over is not a JSON object.")
    roots = found.get("workspace_roots")
    cwd = found.get("cwd") or (roots[0] if isinstance(roots, list) and roots else "")
    if not isinstance(cwd, str) or "\0" in cwd:
        raise BadInput(f"the cwd that {tool} handed over is not a path.")
    return HookCall(_action(tool, found), cwd)


def _action(tool: str, found: dict[str, Any]) -> HookAction:
    given, name = found.get("tool_input"), found.get("tool_name")
    if name is None and isinstance(found.get("command"), str):
        return HookAction("shell", (found["command"],))  # Cursor's beforeShellExecution
    if not isinstance(name, str):
        raise BadInput(f"{tool} named no tool; accepted: the JSON of its hook.")
    if isinstance(given, str) and tool == "cursor":
        given = _inner(given)
    if not isinstance(given, dict):
        raise BadInput(f"{tool} handed over no tool_input for {name[:40]!a}.")
    plain = name.lower().rsplit(".", 1)[-1]
    if plain in ("apply_patch", "applypatch"):
        return _patch(tool, given)
    if plain in _SHELLS:
        return _command(tool, name, given)
    if plain in _EDITS:
        paths = tuple(given[key] for key in _PATHS if isinstance(given.get(key), str))
        if not paths:
            raise BadInput(f"{tool} named no file for {name[:40]!a}; accepted: one of {', '.join(_PATHS)}.")
        return HookAction("edit", paths)
    if plain in _ASKS:
        return HookAction("asks", ())
    raise BadInput(f"{name[:60]!a} is not a tool of {tool} that the guard knows. Leave it out of the hook's matcher.")


def _inner(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _command(tool: str, name: str, given: dict[str, Any]) -> HookAction:
    command = given.get("command", given.get("cmd"))
    if isinstance(command, str):
        return (
            _patch(tool, given) if command.lstrip().startswith("*** Begin Patch") else HookAction("shell", (command,))
        )
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        return HookAction("words", tuple(command))
    raise BadInput(f"{tool} named no command for {name[:40]!a}.")


def _patch(tool: str, given: dict[str, Any]) -> HookAction:
    texts = [value for value in given.values() if isinstance(value, str)]
    texts += [word for value in given.values() if isinstance(value, list) for word in value if isinstance(word, str)]
    paths = tuple(path for text in texts for path in _PATCHED.findall(text))
    if not paths:
        raise BadInput(f"{tool} handed over a patch that names no file.")
    return HookAction("edit", paths)


def decide_call(action: HookAction, policy: Policy, place: Place) -> Decision:
    """The decision on what a tool is about to do."""
    if action.kind == "shell":
        return decide_shell(action.texts[0], policy, place)
    if action.kind == "words":
        return decide_words(action.texts, policy, place)
    if action.kind == "edit":
        decisions = [decide_edit(path, policy, place) for path in action.texts]
        denied = tuple(each for decision in decisions for each in decision.denied)
        return Decision(denied, tuple(call for decision in decisions for call in decision.calls))
    return Decision((), ())


def answer_on_stdout(tool: str, reason: str) -> str:
    """What goes to stdout, reason '' for allow: Cursor reads JSON; the other two read the exit code, and stderr."""
    if tool != "cursor":
        return ""
    if not reason:
        return json.dumps({"permission": "allow"}) + "\n"
    return json.dumps({"permission": "deny", "user_message": reason, "agent_message": reason}) + "\n"


def asked_in(tool: str, kind: str, text: str, cwd: str) -> bytes:
    """The JSON that a tool hands over for an action: what `guard test` sends."""
    if tool == "cursor" and kind == "shell":
        found: dict[str, Any] = {
            "hook_event_name": "beforeShellExecution",
            "command": text,
            "cwd": cwd,
            "workspace_roots": [cwd],
        }
    elif kind == "shell":
        found = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": text}, "cwd": cwd}
    elif tool == "codex":
        patch = f"*** Begin Patch\n*** Update File: {text}\n@@\n-a\n+b\n*** End Patch\n"
        found = {
            "hook_event_name": "PreToolUse",
            "tool_name": "apply_patch",
            "tool_input": {"command": patch},
            "cwd": cwd,
        }
    else:
        event = "preToolUse" if tool == "cursor" else "PreToolUse"
        found = {
            "hook_event_name": event,
            "tool_name": "Write",
            "tool_input": {"file_path": text, "content": ""},
            "cwd": cwd,
        }
    return json.dumps(found).encode()
