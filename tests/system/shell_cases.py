"""Start-up files as data: each with the folders to take out of LD_LIBRARY_PATH, and what a new shell must say after."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from firstlight.frozen import dataclass

FOLDER = Path(__file__).parent / "shell_files"
VARIABLE = "LD_LIBRARY_PATH"
_VOLATILE = {"_", "SHLVL", "PWD", "OLDPWD", VARIABLE}
_PROGRAMS = {"sh": "dash", "csh": "tcsh"}


@dataclass(frozen=True, slots=True)
class Said:
    """What a new shell said: its exported variables, what it printed, and whether the file parses."""

    value: str | None
    others: dict[str, str]
    printed: bytes
    reached: bool
    parses: bool


class Case:
    """One file of the collection, laid out below a folder of its own."""

    def __init__(self, folder: Path, top: Path) -> None:
        self.about = self.about_of(folder)
        self.before = (folder / "before").read_bytes()
        self.home, name = top / "home", self.about["file"]
        self.home.mkdir(parents=True)
        self.path = Path(f"{top}/root{name}") if name.startswith("/") else self.home / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.before)
        for each, text in self.about.get("aux", {}).items():
            target = self.home / each
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        self.shell = shutil.which(_PROGRAMS.get(self.about["shell"], self.about["shell"])) or ""

    @staticmethod
    def about_of(folder: Path) -> dict[str, Any]:
        """What is written down about a case."""
        found: dict[str, Any] = json.loads((folder / "case.json").read_text())
        return found

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(each.replace("TOP/home", str(self.home)) for each in self.about["folders"])

    @property
    def accepted_values(self) -> list[str | None]:
        found = [each["value"] for each in self.about["accepted"] if each["edited"]]
        return [value and value.replace("TOP/home", str(self.home)) for value in found]

    @property
    def may_stay(self) -> bool:
        return {"edited": False} in self.about["accepted"]

    def said(self) -> Said:
        """Ask a new shell, started in the way that reads the file in life."""
        env = {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
        if self.path.name in (".kshrc", ".shrc"):
            env["ENV"] = str(self.path)
        env.update(self.about.get("start_env", {}))
        answer = self.home.parent / "answer"
        answer.unlink(missing_ok=True)
        done = subprocess.run(
            self._argv(f"/usr/bin/env -0 > '{answer}'"), env=env, cwd=self.home, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=20, check=False, start_new_session=True,
        )  # fmt: skip
        text = answer.read_bytes().decode("utf-8", "surrogateescape") if answer.exists() else ""
        pairs = dict(each.partition("=")[::2] for each in text.split("\0") if "=" in each)
        parsed = subprocess.run(
            [self.shell, "-n", str(self.path)], env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        others = {name: value for name, value in pairs.items() if name not in _VOLATILE}
        return Said(pairs.get(VARIABLE), others, done.stdout, answer.exists(), parsed.returncode == 0)

    def _argv(self, show: str) -> list[str]:
        name = self.path.name
        if self.about["file"].startswith("/"):
            return [self.shell, "-c", f". '{self.path}'\n{show}"]
        if self.about["shell"] in ("fish", "csh") or name == ".zshenv":
            return [self.shell, "-c", show]
        kind = "-i" if name in (".bashrc", ".zshrc", ".kshrc", ".shrc") else "-l"
        return [self.shell, kind, "-c", show]


def all_cases() -> list[str]:
    return sorted(os.listdir(FOLDER))
