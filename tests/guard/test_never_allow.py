"""Bad input, broken parts and our own bugs: one line, exit 2, no traceback, never allow; by the real command."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.emit.agents_texts import check_line
from firstlight.guard import policy
from firstlight.guard.syntax import INSTALL
from firstlight.guard.ways_out import REMOVE, is_way_out
from firstlight.lock import hold
from tests.guard.projects import decide, decide_path, project

FIRSTLIGHT = [sys.executable, "-m", "firstlight"]


def _hook(folder: Path, data: bytes, tool: str = "claude", **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*FIRSTLIGHT, "guard", "--hook", tool], input=data, capture_output=True, cwd=folder, env={**os.environ, **env}
    )


def _bash(command: object) -> bytes:
    return json.dumps({"tool_name": "Bash", "tool_input": {"command": command}}).encode()


BAD: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"{",
    "a list": b"[]",
    "NUL": _bash("ls \0 -la"),
    "invalid UTF-8": b'{"tool_name": "Bash", "tool_input": {"command": "ls \xff"}}',
    "a lone surrogate": b'{"tool_name": "Bash", "tool_input": {"command": "ls \\ud800"}}',
    "10 MB of shell text": _bash("ls; " * 2_500_000),
    "2 MB of shell text": _bash("ls; " * 500_000),
    "200,000 words": _bash("echo " + "a " * 200_000),
    "a command that is a number": _bash(5),
    "no command": b'{"tool_name": "Bash", "tool_input": {}}',
    "no input": b'{"tool_name": "Bash"}',
    "a tool that nobody knows": b'{"tool_name": "Teleport", "tool_input": {"command": "ls"}}',
    "an edit without a file": b'{"tool_name": "Edit", "tool_input": {}}',
    "a file with NUL": b'{"tool_name": "Edit", "tool_input": {"file_path": "a\\u0000b"}}',
    "nested JSON": b"[" * 100_000,
    "nested shells": _bash("$(" * 400 + "ls" + ")" * 400),
    "a patch of nothing": b'{"tool_name": "apply_patch", "tool_input": {"command": "*** Begin Patch"}}',
}


@pytest.mark.parametrize("tool", ["claude", "cursor", "codex"])
@pytest.mark.parametrize("name", BAD)
def test_bad_input_of_a_hook_is_denied_in_a_line(name: str, tool: str, tmp_path: Path) -> None:
    if tool != "claude" and len(BAD[name]) > 100_000:
        return  # the same code reads it; once is enough
    project(tmp_path)
    done = _hook(tmp_path, BAD[name], tool)
    assert done.returncode == 2
    assert done.stderr.startswith(b"firstlight guard: denied: ")
    assert b"Traceback" not in done.stderr
    if tool == "cursor":
        assert json.loads(done.stdout)["permission"] == "deny"
    else:
        assert done.stdout == b""


def test_two_hundred_thousand_words_behind_the_dashes_are_denied(tmp_path: Path) -> None:
    where = project(tmp_path)
    assert not decide("echo " + "a " * 60_000, where).allowed


@pytest.mark.parametrize(
    "break_it",
    [
        lambda folder: (folder / "firstlight.toml").write_text("[ban"),
        lambda folder: (folder / "firstlight.toml").unlink(),
        lambda folder: (
            (folder / "firstlight.toml").chmod(0) if os.geteuid() else (folder / "firstlight.toml").write_bytes(b"\xff")
        ),
        lambda folder: (folder / "firstlight.toml").write_text("[surprise]\nx = 1\n"),
    ],
)
def test_a_torn_or_missing_policy_denies_everything(break_it: object, tmp_path: Path) -> None:
    project(tmp_path)
    assert callable(break_it)
    break_it(tmp_path)
    done = _hook(tmp_path, _bash("ls"))
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_without_tree_sitter_everything_is_denied_with_what_to_install(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "without" / "tree_sitter").mkdir(parents=True)
    (tmp_path / "without" / "tree_sitter" / "__init__.py").write_text("raise ImportError('gone', name='tree_sitter')\n")
    done = _hook(tmp_path, _bash("ls"), PYTHONPATH=str(tmp_path / "without"))
    assert done.returncode == 2
    assert b"pip install 'tree-sitter>=0.23' 'tree-sitter-bash>=0.23'" in done.stderr


def test_a_bug_of_ours_is_deny(tmp_path: Path) -> None:
    project(tmp_path)
    (tmp_path / "without" / "tree_sitter").mkdir(parents=True)
    (tmp_path / "without" / "tree_sitter" / "__init__.py").write_text("raise ZeroDivisionError('planted')\n")
    done = _hook(tmp_path, _bash("ls"), PYTHONPATH=str(tmp_path / "without"))
    assert done.returncode == 2
    assert b"a bug in firstlight" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [("--shell", "pip install triton"), ("--edit", "firstlight.lock"), (), ("--shell", "ls", "--")]
)
def test_files_without_files_behind_the_dashes_is_denied(words: tuple[str, ...], tmp_path: Path) -> None:
    project(tmp_path)
    done = subprocess.run([*FIRSTLIGHT, "guard", "--files", *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "--files" in done.stderr


def test_a_symlinked_pip_is_pip(tmp_path: Path) -> None:
    where = project(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "pip").write_text("#!/bin/sh\n")
    (tmp_path / "real" / "pip").chmod(0o755)
    (tmp_path / "tool").symlink_to(tmp_path / "real" / "pip")
    assert not decide("./tool install triton", where).allowed
    assert not decide(f"{tmp_path}/tool install triton", where).allowed
    assert not decide("ln -s real/pip other && ./other install triton", where).allowed
    assert not decide("cp /usr/bin/pip3 x; ./x install triton", where).allowed


def test_who_is_denied_is_not_locked_out(tmp_path: Path) -> None:
    where = project(tmp_path, '[commands]\nmode = "allow-list"\nallow = ["make build"]\n')
    for text in ("firstlight emit agents --remove", "firstlight check", "python -m firstlight doctor"):
        assert decide(text, where).allowed, text
    assert not decide("firstlight run -- pip install triton", where).allowed


WAYS_OUT = (REMOVE, f".venv/bin/{REMOVE}", INSTALL)
NO_WAYS_OUT = (
    f"{REMOVE}; ls", f"{REMOVE} && ls", f"{REMOVE} $(ls)", f"{REMOVE}\nls", f"{REMOVE} > x", f"{INSTALL} lpips",
    INSTALL.replace("'", ""),
    f"./{REMOVE}", f"A=1 {REMOVE}", "firstlight emit agents", "firstlight run -- ls",
)  # fmt: skip


def _without_tree_sitter(folder: Path) -> dict[str, str]:
    (folder / "without" / "tree_sitter").mkdir(parents=True)
    (folder / "without" / "tree_sitter" / "__init__.py").write_text("raise ImportError('gone', name='tree_sitter')\n")
    return {"PYTHONPATH": str(folder / "without")}


@pytest.mark.parametrize("torn", ["policy", "parser", "both"])
def test_nobody_is_locked_out_by_a_torn_policy_or_a_missing_parser(torn: str, tmp_path: Path) -> None:
    project(tmp_path)
    env = _without_tree_sitter(tmp_path) if torn != "policy" else {}
    if torn != "parser":
        (tmp_path / "firstlight.toml").write_text("[ban")
    for tool, text in itertools.product(("claude", "cursor"), WAYS_OUT):
        done = _hook(tmp_path, _bash(text), tool, **env)
        assert (done.returncode, done.stderr) == (0, b""), (tool, text)
        assert done.stdout == (b"" if tool == "claude" else b'{"permission": "allow"}\n')


@pytest.mark.parametrize("text", NO_WAYS_OUT)
def test_what_only_begins_like_a_way_out_is_none(text: str) -> None:
    assert not is_way_out("shell", (text,))
    assert not is_way_out("edit", (text,))


def test_the_repair_that_a_deny_prints_is_not_denied(tmp_path: Path) -> None:
    where = project(tmp_path, "[ban]\n", **{"firstlight-constraints.txt": "torch==2.9.0\n"})
    denied = decide("pip install lpips", where).denied[0]
    assert denied.command == "pip install lpips -c firstlight-constraints.txt"
    assert decide(denied.command, where).allowed


def test_the_constraints_that_are_protected_are_those_that_lock_hold_writes() -> None:
    assert policy.CONSTRAINTS == hold.CONSTRAINTS
    assert hold.CONSTRAINTS in policy.ALWAYS


def test_the_line_of_a_session_that_starts_calls_a_check_that_there_is(tmp_path: Path) -> None:
    (tmp_path / "firstlight.lock").write_text("torn")
    env = {**os.environ, "CLAUDE_PROJECT_DIR": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", check_line()], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0
    assert "firstlight.lock" in done.stderr
    assert "No such" not in done.stderr  # neither the command nor an option of it


def test_an_edit_of_what_firstlight_writes_is_answered_with_the_verb_that_writes_it(tmp_path: Path) -> None:
    where = project(tmp_path)
    for path, command in (
        ("firstlight.lock", "firstlight lock"),
        ("firstlight-constraints.txt", "firstlight lock --hold"),
    ):
        [denied] = decide_path(path, where).denied
        assert (denied.instead, denied.command) == ("firstlight writes it:", command)
        assert decide(denied.command, where).allowed
    [denied] = decide_path("firstlight.toml", where).denied
    assert denied.command == ""


def test_files_that_are_committed_are_judged_as_files(tmp_path: Path) -> None:
    held = {"firstlight-constraints.txt": "torch==2.9.0\n"}
    project(tmp_path, '[ban]\npackages = ["triton"]\n[commands]\ncontainer = true\n', **held, **{
        "pyproject.toml": '[project]\nname = "x"\ndependencies = ["numpy"]\n', "requirements.txt": "numpy\n",
        "sub/pyproject.toml": '[project]\nname = "x"\n[project.optional-dependencies]\nfast = ["triton"]\n',
    })  # fmt: skip
    for path, code in (("pyproject.toml", 0), ("requirements.txt", 0), ("sub/pyproject.toml", 2)):
        done = subprocess.run(
            [*FIRSTLIGHT, "guard", "--files", "--", path], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == code, (path, done.stderr)
