"""`firstlight guard test`: fire the corpus at the hooks that are installed here, and break each on purpose."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import click

from firstlight.emit.agents import HOOK_FILES, hooks_in
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.guard.corpus import Action, Section, lay_out, load_corpus
from firstlight.guard.hooks import asked_in
from firstlight.guard.place import in_container, text_of
from firstlight.guard.policy import find_policy

_SECONDS = 60
_FAILS_OPEN = {  # what a tool does where its hook ends with anything but 0 and 2; docs/guard.md has the pages
    "claude": "Claude Code continues where a hook ends with any code but 2",
    "cursor": "Cursor continues, unless the hook has failClosed: true",
    "codex": "Codex continues where a hook ends with any code but 2",
}


@dataclass(frozen=True, slots=True)
class Shot:
    """One action at one hook, and what came of it: 'allow', 'deny' or 'exit N', which the tool takes for go on."""

    tool: str
    action: Action
    answer: str


def test_hooks(*, every: str, as_json: str) -> int:
    """Exit code 1 where something forbidden gets through, an allowed action is stopped, or a broken hook lets pass."""
    root = os.path.dirname(find_policy(os.getcwd())) or os.getcwd()
    hooks = hooks_in({path: text_of(os.path.join(root, path)) or "" for path in HOOK_FILES.values()})
    if not hooks:
        raise BadInput(
            f"no hooks in {root}; accepted: a project with {', '.join(HOOK_FILES.values())}. "
            "Write them: firstlight emit agents"
        )
    with tempfile.TemporaryDirectory(prefix="firstlight guard test ") as folder:
        shots = _fire(hooks, folder, every)
        broken = [each for tool, lines in hooks.items() for each in _break(tool, lines, folder)]
    wrong = [shot for shot in shots if shot.answer != shot.action.expect]
    open_ones = [each for each in broken if each["answer"] != "deny"]
    if as_json == "yes":
        rows = [
            {
                "tool": shot.tool,
                "way": shot.action.way,
                "text": shot.action.text,
                "expect": shot.action.expect,
                "answer": shot.answer,
            }
            for shot in wrong
        ]
        click.echo(
            json.dumps(
                {"schema": "firstlight.guard-test/1", "fired": len(shots), "wrong": rows, "broken": broken}, indent=1
            )
        )
    else:
        _tell(shots, wrong, broken)
    return 1 if wrong or open_ones else 0


def _sections(every: str) -> list[Section]:
    """The corpus, or two forbidden and one allowed action of each way; sections for the kind of machine this is."""
    inside = in_container(os.environ)
    chosen = []
    for section in load_corpus():
        if "container" in section.name and section.container != inside:
            continue
        seen: Counter[tuple[str, str]] = Counter()
        actions = []
        for action in section.actions:
            seen[action.way, action.expect] += 1
            if every == "yes" or seen[action.way, action.expect] <= (2 if action.expect == "deny" else 1):
                actions.append(action)
        chosen.append(
            Section(section.name, section.container, section.policy, section.files, section.links, tuple(actions))
        )
    return chosen


def _fire(hooks: dict[str, list[str]], folder: str, every: str) -> list[Shot]:
    work = []
    for number, section in enumerate(_sections(every)):
        project = os.path.join(folder, f"project {number}")
        lay_out(section, project)
        work += [(tool, lines, action, project) for tool, lines in hooks.items() for action in section.actions]
    click.echo(f"firstlight: {len(work)} actions at {', '.join(hooks)}", err=True)
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        return list(pool.map(lambda each: Shot(each[0], each[2], _answer(each[0], each[1], each[2], each[3])), work))


def _answer(tool: str, lines: list[str], action: Action, project: str, path: str = "") -> str:
    """What the lines of a tool say to an action: deny where one denies, as the tool has it."""
    data = asked_in(tool, action.kind, action.text, project)
    answers = [_one(tool, line, data, project, path) for line in lines]
    return next((each for each in answers if each != "allow"), "allow")


def _one(tool: str, line: str, data: bytes, project: str, path: str) -> str:
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    env = {
        **os.environ,
        "PATH": path or f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "CLAUDE_PROJECT_DIR": project,
    }
    env["GIT_CEILING_DIRECTORIES"] = os.path.dirname(project)
    shell = shutil.which("sh") or "/bin/sh"
    try:
        done = subprocess.run(
            [shell, "-c", line], input=data, capture_output=True, cwd=project, env=env, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return "no answer in a minute"
    if done.returncode == 2:
        return "deny"
    if done.returncode == 0:
        return "deny" if tool == "cursor" and b'"deny"' in done.stdout else "allow"
    return f"exit {done.returncode}"


def _break(tool: str, lines: list[str], folder: str) -> list[dict[str, str]]:
    """Each hook with its interpreter gone, its script gone, and its policy torn: does it still deny."""
    found = []
    for how in ("interpreter gone", "script gone", "policy torn", "policy gone"):
        project = os.path.join(folder, f"broken {tool} {how}")
        tools = os.path.join(project, "only these tools")
        os.makedirs(tools)
        for name in ("git", "pwd", "sh", "cat"):
            if real := shutil.which(name):
                os.symlink(real, os.path.join(tools, name))
        path = ""
        lay_out(load_corpus()[0], project)
        if how == "interpreter gone":
            script = os.path.join(tools, "firstlight")
            with open(script, "w", encoding="utf-8") as file:
                file.write("#!/nowhere/python3\n")
            os.chmod(script, 0o700)
            path = tools
        elif how == "script gone":
            path = tools
        elif how == "policy torn":
            with open(os.path.join(project, "firstlight.toml"), "w", encoding="utf-8") as file:
                file.write("[ban\npackages = [")
        else:
            os.remove(os.path.join(project, "firstlight.toml"))
        answer = _answer(tool, lines, Action("deny", how, "shell", "pip install triton"), project, path)
        found.append(
            {"tool": tool, "broken": how, "answer": answer, "then": "" if answer == "deny" else _FAILS_OPEN[tool]}
        )
    return found


def _tell(shots: list[Shot], wrong: list[Shot], broken: list[dict[str, str]]) -> None:
    for tool in dict.fromkeys(shot.tool for shot in shots):
        mine = [shot for shot in shots if shot.tool == tool]
        denied = [shot for shot in mine if shot.action.expect == "deny"]
        through = [shot for shot in denied if shot.answer != "deny"]
        stopped = [shot for shot in mine if shot.action.expect == "allow" and shot.answer != "allow"]
        click.echo(
            f"{tool}: {len(denied)} forbidden actions, {len(through)} got through; "
            f"{len(mine) - len(denied)} allowed, {len(stopped)} stopped"
        )
    for shot in wrong:
        word = "got through" if shot.action.expect == "deny" else "was stopped"
        click.echo(f"  {shot.tool}: {word} ({shot.answer}): {' '.join(shot.action.text.split())[:100]}")
    for each in broken:
        click.echo(
            f"{each['tool']}, {each['broken']}: {each['answer']}" + (f". {each['then']}" if each["then"] else "")
        )
