"""The name of a project whose setup.py makes it up while it runs: asked of setup.py, once the build is agreed to."""

from __future__ import annotations

import os
import re
import subprocess

from firstlight.build.fault import Fault, note
from firstlight.build.project import Project
from firstlight.build.tools import LEAKING, BuildTools
from firstlight.facts.known import Fact, Known, Unknown

_PATIENCE_S = 120
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def ask_name(tools: BuildTools, tree: str) -> Fact[str]:
    """What `setup.py --name` says last, by the interpreter that builds: it may print before that."""
    if isinstance(tools.python, Unknown) or not os.path.isfile(f"{tree}/setup.py"):
        return Unknown("no setup.py that could be asked")
    env = {name: value for name, value in os.environ.items() if name not in LEAKING}
    try:
        asked = subprocess.run(
            [tools.python.value, "setup.py", "--name"], cwd=tree, env={**env, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, text=True, errors="replace", timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Unknown(f"setup.py --name: {error}")
    last = (asked.stdout.strip().splitlines() or [""])[-1].strip()
    if asked.returncode != 0 or not _NAME.fullmatch(last):
        said = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        return Unknown(f"setup.py --name ended with status {asked.returncode}: {said}")
    return Known(last, seen_in="setup.py --name")


def name_not_stated(project: Project, found: Unknown) -> Fault:
    """What is said where setup.py could not be asked; a name that is not the wheel's cannot be installed by it."""
    return note("name-not-stated", f"this tree does not state its name ({found.reason}): {project.name} is taken for "
                "it. A wheel of another name is kept, and its install stops",
                "State it in pyproject.toml or setup.cfg.")  # fmt: skip


def name_of_a_look(project: Project) -> Fault:
    """What a dry run says, which runs nothing of the tree."""
    return note("name-not-stated", f"this tree does not state its name: here it is called {project.name}, and the "
                "build asks setup.py --name")  # fmt: skip
