"""Texts for coding tools: the block of AGENTS.md, the rule of Cursor, the rules of Codex, the line of every hook."""

from __future__ import annotations

import json
from collections.abc import Iterator

from firstlight import __version__
from firstlight.guard.policy import ALWAYS, Policy

BEGIN, END = "firstlight:begin", "firstlight:end"
HOOK = "guard --hook"  # by which an entry of ours is known again
CHECK = "firstlight.lock"
MATCHER = {
    "claude": "Bash|Edit|Write|MultiEdit|NotebookEdit",
    "cursor": "Write|StrReplace|Edit|EditNotebook|Delete|ApplyPatch|TabWrite",
    "codex": "Bash|apply_patch|Edit|Write",
}
_MANAGERS = (("pip", "install"), ("pip3", "install"), ("uv", "pip", "install"), ("uv", "add"), ("conda", "install"),
             ("mamba", "install"), ("pixi", "add"), ("poetry", "add"))  # fmt: skip
STARTER = """\
# The team's policy: what `firstlight guard` goes by. Only firstlight reads it. See docs/guard.md.

[ban]
packages = []          # e.g. ["triton", "flash-attn<2.8"]

[protect]
paths = []             # more than the lock, this file and the hooks, which always are

[commands]
mode = "deny-list"     # or "allow-list", with allow = ["make build", "make run"]
container = false      # true: package managers and compilers only inside of a container
"""


def hook_line(tool: str) -> str:
    """The command of a hook: finds firstlight, hands on its answer, and denies where it cannot run."""
    folder = "$(git rev-parse --show-toplevel 2>/dev/null || pwd)"
    if tool == "claude":
        folder = "${CLAUDE_PROJECT_DIR:-" + folder + "}"
    return (
        f'd="{folder}"; f="$d/.venv/bin/firstlight"; [ -x "$f" ] || f=firstlight; '
        f'"$f" {HOOK} {tool} --policy "$d/firstlight.toml"; r=$?; case $r in 0|2) exit $r;; esac; '
        'echo "firstlight guard could not run (exit $r), so this is denied. In a terminal of your own, install '
        "firstlight from its wheel or its checkout, with tree-sitter and tree-sitter-bash, or take the hooks out with "
        'firstlight emit agents --remove" >&2; exit 2'
    )


def check_line() -> str:
    """What runs when a session of Claude Code starts: the drift since the lock, where there is a lock."""
    return (
        'd="${CLAUDE_PROJECT_DIR:-$(pwd)}"; f="$d/.venv/bin/firstlight"; [ -x "$f" ] || f=firstlight; '
        f'[ ! -f "$d/{CHECK}" ] || "$f" check --lock "$d/{CHECK}"; exit 0'
    )


def agents_block(policy: Policy) -> str:
    """What an agent is told: the rules in words, and what to ask instead of guessing."""
    lines = [
        "## The GPU stack of this project is locked",
        "",
        "`firstlight guard` decides on commands and edits by `firstlight.toml`. A denied action says what is open",
        "instead. Do not work around it: ask a person.",
        "",
    ]
    banned = ", ".join(f"`{ban.name}{ban.spec}`" for ban in policy.bans)
    if banned:
        lines.append(f"- Not used here: {banned}.")
    for ban in policy.kept:
        lines.append(f"- Kept: `{ban.name}{ban.spec}` ({policy.require}).")
    if policy.toolkit:
        lines.append(f"- CUDA toolkit: {policy.toolkit}, no other.")
    if policy.cutlass:
        lines.append(f"- CUTLASS: {policy.cutlass}, no other.")
    if policy.archs:
        lines.append(f"- Architectures: {', '.join(f'sm_{arch}' for arch in policy.archs)}, no other.")
    if policy.container:
        lines.append("- Package managers and compilers run inside of the container only.")
    if policy.mode == "allow-list":
        lines.append(f"- Only these commands run: {', '.join('`' + ' '.join(entry) + '`' for entry in policy.allow)}.")
    own = [path for path in policy.protected if path not in ALWAYS]
    lines.append(f"- Not edited by an agent: the lock, the policy, the hooks{''.join(f', `{path}`' for path in own)}.")
    lines += [
        "- May this run? `firstlight guard --why --shell 'COMMAND'`",
        "- Why does CUDA not work? `firstlight doctor`. What changed? `firstlight check`",
    ]
    return "\n".join(lines) + "\n"


def cursor_rule(policy: Policy) -> str:
    """`.cursor/rules/firstlight.mdc`: the same words; alwaysApply is a boolean, or Cursor ignores the file."""
    head = '---\ndescription: "The GPU stack of this project is locked"\nglobs:\nalwaysApply: true\n---\n\n'
    return f"{head}<!-- {BEGIN} (firstlight {__version__}) -->\n{agents_block(policy)}<!-- {END} -->\n"


def codex_rules(policy: Policy) -> str:
    """`.codex/rules/firstlight.rules`: what prefixes can say; the hook sees the rest."""
    lines = [
        f"# {BEGIN} (firstlight {__version__}): made from firstlight.toml by `firstlight emit agents`; edit that file.",
        "# Prefix rules see words in their order. python -m pip, sh -c and the like are seen by .codex/hooks.json.",
        "",
    ]
    for rule in _prefixes(policy):
        lines += [
            "prefix_rule(",
            f"    pattern = {json.dumps(list(rule[0]))},",
            '    decision = "forbidden",',
            f"    justification = {json.dumps(rule[1])},",
            f"    match = [{json.dumps(list(rule[0]))}],",
            ")",
            "",
        ]
    return "\n".join([*lines, f"# {END}", ""])


def _prefixes(policy: Policy) -> Iterator[tuple[tuple[str, ...], str]]:
    for ban in policy.bans:
        if not ban.spec:
            for manager in _MANAGERS:
                yield (*manager, ban.name), f"{ban.name} is banned by firstlight.toml"
    for path in ("firstlight.lock", "firstlight.toml", ".git/hooks"):
        for words in (("rm",), ("rm", "-f"), ("rm", "-rf")):
            yield (*words, path), f"{path} is changed by a person"
    yield ("git", "commit", "--no-verify"), "hooks are not left out"


def pre_commit_block(indent: str) -> str:
    """The entry of .pre-commit-config.yaml, with the indent that its list has."""
    lines = [
        f"# {BEGIN}",
        "- repo: local",
        "  hooks:",
        "    - id: firstlight-guard",
        "      name: requirements and scripts keep to firstlight.toml",
        "      entry: firstlight guard --files --",
        "      language: system",
        "      files: (requirements[^/]*\\.txt|pyproject\\.toml|environment\\.ya?ml|\\.sh|firstlight\\.toml)$",
        f"# {END}",
    ]
    return "".join(f"{indent}{line}\n" for line in lines)


def mcp_server() -> dict[str, object]:
    """The entry of firstlight among the servers of a tool: the project's own firstlight first, as the hooks look."""
    folder = "$(git rev-parse --show-toplevel 2>/dev/null || pwd)"
    line = f'f="{folder}/.venv/bin/firstlight"; [ -x "$f" ] || f=firstlight; exec "$f" mcp'
    return {"command": "sh", "args": ["-c", line]}
