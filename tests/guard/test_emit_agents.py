"""`emit agents` in real projects: merged, never replaced; restored to the byte; read by the tools that read them."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.cli.main import run
from tests.guard.projects import BANS_TRITON

BIN = Path(sys.executable).parent
ENV = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
MINE = {
    "AGENTS.md": "# Mine\n\nno line end",
    "CLAUDE.md": "",
    ".claude/settings.json": '{\n\t"permissions": {"allow": ["Bash(ls)"]},\n\t"hooks": {"PreToolUse": [{"matcher": '
    '"Bash", "hooks": [{"type": "command", "command": "./mine.sh"}]}]}\n}',
    ".cursor/hooks.json": '{"version": 1, "hooks": {"stop": [{"command": "./mine.sh"}]}}',
    ".codex/config.toml": 'model = "x"\r\n',
    ".pre-commit-config.yaml": "# ours\nrepos:\n- repo: meta\n  hooks:\n  - id: identity\n",
}


def _project(folder: Path, files: dict[str, str] | None = None) -> Path:
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    for name, text in {"firstlight.toml": BANS_TRITON, **(files or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"folder"
        for path in sorted(folder.rglob("*"))
        if ".git/" not in f"{path.relative_to(folder)}/"
    }


@pytest.mark.parametrize("files", [{}, MINE], ids=["an empty project", "a project with files of its own"])
def test_remove_restores_every_file_to_the_byte(files: dict[str, str], tmp_path: Path) -> None:
    folder = _project(tmp_path / "my project", files)
    before = _tree(folder)
    assert run(["emit", "agents", "--mcp", "--out", str(folder)]) == 0
    once = _tree(folder)
    assert run(["emit", "agents", "--mcp", "--out", str(folder)]) == 0
    assert _tree(folder) == once
    for name, text in files.items():
        if name.endswith(".md") and text:
            assert once[name].startswith(before[name])
    assert run(["emit", "agents", "--remove", "--out", str(folder)]) == 0
    assert _tree(folder) == before


def test_what_others_wrote_since_stays(tmp_path: Path) -> None:
    folder = _project(tmp_path / "my project", MINE)
    run(["emit", "agents", "--out", str(folder)])
    for name in ("AGENTS.md", ".pre-commit-config.yaml"):
        (folder / name).write_text((folder / name).read_text() + "# added later\n")
    settings = json.loads((folder / ".claude/settings.json").read_text())
    settings["model"] = "opus"
    (folder / ".claude/settings.json").write_text(json.dumps(settings))
    (folder / ".firstlight/agents.json").unlink()  # a clone does not have it
    run(["emit", "agents", "--remove", "--out", str(folder)])
    assert (folder / "AGENTS.md").read_text().endswith("# added later\n")
    assert "firstlight" not in (folder / "AGENTS.md").read_text()
    assert (folder / ".pre-commit-config.yaml").read_text() == MINE[".pre-commit-config.yaml"] + "# added later\n"
    left = json.loads((folder / ".claude/settings.json").read_text())
    assert left == {**json.loads(MINE[".claude/settings.json"]), "model": "opus"}


@pytest.mark.parametrize("text", ['{\n "hooks": {,}\n}', "[]", '{"hooks": []}', "[" * 100_000])
def test_json_that_is_not_in_the_tools_form_is_refused_and_nothing_is_written(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _project(tmp_path / "p", {".claude/settings.json": text})
    before = _tree(folder)
    assert run(["emit", "agents", "--out", str(folder)]) == 2
    said = capsys.readouterr().err
    assert ".claude/settings.json" in said
    assert "Nothing was written" in said
    assert _tree(folder) == before
    if "," in text:
        assert ".claude/settings.json:2:" in said


def test_a_link_out_of_the_project_is_refused(tmp_path: Path) -> None:
    folder = _project(tmp_path / "p")
    (tmp_path / "outside.md").write_text("x")
    (folder / "AGENTS.md").symlink_to(tmp_path / "outside.md")
    assert run(["emit", "agents", "--out", str(folder)]) == 2
    assert (tmp_path / "outside.md").read_text() == "x"


def test_options_of_a_plan_say_nothing_to_agents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["emit", "agents", "--want", "torch", "--out", str(tmp_path)]) == 2
    assert run(["emit", "bash", "--remove"]) == 2
    assert "accepted: with agents" in capsys.readouterr().err


def test_skillsaw_finds_no_error_in_what_is_written(tmp_path: Path) -> None:
    folder = _project(tmp_path / "my project")
    run(["emit", "agents", "--mcp", "--out", str(folder)])
    done = subprocess.run([BIN / "skillsaw", "lint", str(folder)], capture_output=True, text=True, env=ENV)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_real_pre_commit_stops_a_banned_requirement(tmp_path: Path) -> None:
    folder = _project(tmp_path / "my project")
    run(["emit", "agents", "--tool", "pre-commit", "--out", str(folder)])
    (folder / "requirements.txt").write_text("einops\n")
    (folder / "setup.sh").write_text("echo hello\n")

    def committed() -> subprocess.CompletedProcess[str]:
        subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
        return subprocess.run(
            [BIN / "pre-commit", "run", "--all-files"], cwd=folder, capture_output=True, text=True,
            env={**ENV, "PRE_COMMIT_HOME": str(tmp_path / "home")},
        )  # fmt: skip

    done = committed()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout
    (folder / "requirements.txt").write_text("einops\ntriton\n")
    done = committed()
    assert done.returncode == 1
    assert "triton is banned" in done.stdout
    (folder / "requirements.txt").write_text("einops\n")
    (folder / "setup.sh").write_text("pip install triton\n")
    assert "triton is banned" in committed().stdout


@pytest.mark.system  # hundreds of processes
def test_guard_test_finds_a_hook_that_lets_everything_through(tmp_path: Path) -> None:
    folder = _project(tmp_path / "my project")
    run(["emit", "agents", "--tool", "claude", "--out", str(folder)])
    path = folder / ".claude/settings.json"
    settings = json.loads(path.read_text())

    def tested(line: str) -> dict[str, object]:
        settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"] = line
        path.write_text(json.dumps(settings))
        done = subprocess.run(
            [BIN / "firstlight", "guard", "test", "--json"], cwd=folder, capture_output=True, text=True, env=ENV
        )
        assert done.returncode == 1, done.stdout
        found: dict[str, object] = json.loads(done.stdout)
        return found

    gone = tested("/nowhere/firstlight guard --hook claude")  # what a moved environment leaves behind: exit 127
    assert isinstance(gone["wrong"], list)
    assert len(gone["wrong"]) == gone["fired"]
    assert gone["broken"][0]["answer"] == "exit 127"  # type: ignore[index]
    bare = tested('firstlight guard --hook claude --policy "$CLAUDE_PROJECT_DIR/firstlight.toml"')
    assert bare["wrong"] == []
    answers = {each["broken"]: each["answer"] for each in bare["broken"]}  # type: ignore[attr-defined]
    assert answers["policy torn"] == "deny"
    assert answers["script gone"] == "exit 127"


@pytest.mark.parametrize("tool", ["claude", "cursor", "codex"])
@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_a_hook_line_works_in_folders_with_spaces_and_denies_where_firstlight_is_gone(
    tool: str, shell: str, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    from firstlight.emit.agents_texts import hook_line
    from firstlight.guard.hooks import asked_in

    folder = _project(tmp_path / "a b 'c' $d")

    def answer(text: str, **env: str) -> int:
        data = asked_in(tool, "shell", text, str(folder))
        where = {**ENV, "CLAUDE_PROJECT_DIR": str(folder), **env}
        return subprocess.run(
            [shutil.which(shell) or shell, "-c", hook_line(tool)],
            input=data,
            capture_output=True,
            cwd=folder,
            env=where,
        ).returncode

    assert answer("ls") == 0
    assert answer("pip install triton") == 2
    only = tmp_path / "only"
    only.mkdir()
    (only / "git").symlink_to(shutil.which("git") or "/usr/bin/git")
    assert answer("ls", PATH=str(only)) == 2


def test_the_server_is_the_projects_own_firstlight_where_it_has_one(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    own = folder / ".venv/bin/firstlight"
    own.parent.mkdir(parents=True)
    own.write_text('#!/bin/sh\necho "own $*"\n')
    own.chmod(0o755)
    assert run(["emit", "agents", "--mcp", "--out", str(folder)]) == 0
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["firstlight"]
    done = subprocess.run([server["command"], *server["args"]], capture_output=True, text=True, cwd=folder, check=False)
    assert done.stdout == "own mcp\n"
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    codex = toml.loads((folder / ".codex/config.toml").read_text())
    assert codex["mcp_servers"]["firstlight"] == server
    assert re.search(r"files: \(.*pyproject", (folder / ".pre-commit-config.yaml").read_text())
