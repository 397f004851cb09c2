"""Drifts planted on this live machine: digests, files that start with Python, variables, checkouts; untouched: none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apply.wheels import make_wheel
from tests.lock.test_hold import UV, Team

pytestmark = pytest.mark.skipif(not UV.exists(), reason="needs uv beside the interpreter")


class Machine(Team):
    """A team's environment on this machine, with a checkout beside it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tree = folder / "home/tree"
        self.tree.mkdir()
        self.git("init", "--quiet", "--initial-branch", "main")
        self.commit()
        make_wheel(self.wheels, "extra", "1.0")
        make_wheel(self.wheels, "extra", "2.0")
        assert self.uv("extra==1.0").returncode == 0

    def git(self, *words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
        subprocess.run(["git", "-C", str(self.tree), *who, *words], check=True, capture_output=True)

    def commit(self) -> None:
        self.git("commit", "--quiet", "--allow-empty", "--message", "one more")

    def evidence(self, **changes: Any) -> str:
        """What verify says of this machine, with the outcomes of a torch that computes: the one here is a stand-in."""
        path = self.folder / "verify.json"
        if not path.exists():
            path.write_text(self.firstlight("verify", "--python", str(self.venv), "--json").stdout)
        document = json.loads(path.read_text())
        results = [{**each, "outcome": "ok"} for each in document["results"]]
        other = self.folder / "evidence.json"
        other.write_text(json.dumps({**document, "results": results, "exit_code": 0, **changes}))
        return str(other)

    def lock_live(self, **changes: Any) -> subprocess.CompletedProcess[str]:
        words = ("lock", "--python", str(self.venv), "--checkout", str(self.tree))
        return self.firstlight(*words, "--evidence", self.evidence(**changes))

    @property
    def text(self) -> str:
        return (self.folder / "firstlight.lock").read_text()

    def check(self, **environ: str) -> tuple[int, list[tuple[str, str, str]]]:
        words = ("check", "--python", str(self.venv), "--json", "--locked")
        done = self.run(sys.executable, "-X", "importtime", "-m", "firstlight", *words, more=environ)
        assert "| torch" not in done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        drifts = [each["drift"] for each in document["drifts"]]
        return done.returncode, [(each["part"], each["name"], each["change"]) for each in drifts]


def test_each_drift_on_a_live_machine_is_named_alone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for changes, code in (({"machine": "another"}, 2), ({"results": []}, 2), ({"exit_code": 1}, 1)):
        refused = machine.lock_live(**changes)
        assert (refused.returncode, refused.stderr.count("\n")) == (code, 1)
        assert not (tmp_path / "firstlight.lock").exists()
    assert machine.lock_live().returncode == 0
    text = machine.text
    assert "verified = true" in text
    assert machine.lock_live().returncode == 0
    assert machine.text == text, "the same machine gives the same bytes"
    assert str(tmp_path) not in text
    assert machine.check() == (0, [])

    pth = machine.site / "late.pth"
    pth.write_text("import sys\n")
    assert machine.check() == (3, [("startup", "late.pth", "added")])
    pth.unlink()

    record = machine.site / "extra-1.0.dist-info/RECORD"
    before = record.read_text()
    record.write_text(before + "extra/patched.py,sha256=x,1\n")
    assert machine.check() == (3, [("packages", "extra", "other content")])
    record.write_text(before + "../../../bin/extra,sha256=x,1\nextra/__pycache__/a.pyc,,\n")
    assert machine.check() == (0, []), "rows that installers add are no drift"
    record.write_text(before)

    assert machine.uv("extra==2.0").returncode == 0
    assert machine.check() == (3, [("packages", "extra", "changed")])
    assert machine.uv("extra==1.0").returncode == 0

    machine.commit()
    assert machine.check() == (3, [("checkouts", "~/tree", "changed")])
    machine.git("reset", "--quiet", "--hard", "HEAD~1")

    assert machine.check(NCCL_DEBUG="INFO") == (3, [("settings", "NCCL_DEBUG", "added")])
    assert machine.check(TORCH_LOGS="all") == (3, [("settings", "TORCH_LOGS", "added")])
    assert machine.check() == (0, [])

    looped = "import sys; from firstlight.cli.main import run; sys.exit(max(run(sys.argv[1:]) for _ in range(20)))"
    words = ("check", "--python", str(machine.venv), "--locked")
    untouched = machine.run(sys.executable, "-c", looped, *words)
    assert (untouched.returncode, untouched.stdout.count("AS LOCKED")) == (0, 20), untouched.stdout[-500:]


def test_lock_then_a_change_then_what_check_says_to_do_then_lock_gives_the_same_bytes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert machine.lock_live().returncode == 0
    text = machine.text
    assert machine.uv("extra==2.0").returncode == 0
    done = machine.firstlight("check", "--python", str(machine.venv), "--json", "--locked")
    commands = [argv for each in json.loads(done.stdout)["to_do"] for argv in each["commands"]]
    assert commands
    for argv in commands:
        assert machine.run(*argv).returncode == 0
    assert machine.lock_live().returncode == 0
    assert machine.text == text
