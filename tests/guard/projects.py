"""Projects of the corpus on disk, and decisions in them."""

from __future__ import annotations

import os
from pathlib import Path

from firstlight.guard.corpus import Section, lay_out
from firstlight.guard.judge import Decision, decide_edit, decide_shell
from firstlight.guard.place import Place
from firstlight.guard.policy import Policy, read_policy

ENV = {"PATH": os.environ["PATH"], "HOME": "/home/nobody"}
BANS_TRITON = '[ban]\npackages = ["triton"]\n'


def project(folder: Path, policy: str = BANS_TRITON, **files: str) -> tuple[Policy, Place]:
    """A folder with a policy and files, as a place to decide in."""
    folder.mkdir(parents=True, exist_ok=True)
    lay_out(Section("x", container=False, policy=policy, files=tuple(files.items()), links=(), actions=()), str(folder))
    return read_policy(str(folder / "firstlight.toml")), Place(str(folder), str(folder), ENV)


def decide(text: str, where: tuple[Policy, Place]) -> Decision:
    return decide_shell(text, *where)


def decide_path(text: str, where: tuple[Policy, Place]) -> Decision:
    return decide_edit(text, *where)
