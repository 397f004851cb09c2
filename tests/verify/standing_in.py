"""What the tests of verify share: a case to prove, stand-ins for torch, and the result of one check."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from firstlight.facts.collect import Facts, collect
from firstlight.facts.document import read_machine_or_facts
from firstlight.machine.live import LiveMachine
from firstlight.tables import load
from firstlight.verify.check import Answer, Case, Check, CheckOutcome, Result
from firstlight.verify.checks import CHECKS
from firstlight.verify.runner import chosen, run_checks

_ENVIRON = dict(os.environ)
MACHINES = Path(__file__).parents[1] / "machines"
ROOT = Path(__file__).parents[2]


@functools.cache
def facts_here() -> Facts:
    """The facts of this machine for the Python that runs the tests, whatever a test has put into the environment."""
    return collect(LiveMachine(environ=_ENVIRON), python=sys.executable)


@functools.cache
def facts_of(machine: str) -> Facts:
    """The facts of a recorded machine, e.g. h200."""
    return read_machine_or_facts(str(MACHINES / machine))


def case_of(work: Path, facts: Facts | None = None, **changes: Any) -> Case:
    """A case on this interpreter; `facts` may be those of another machine."""
    case = Case(facts or facts_here(), load(), LiveMachine(), sys.executable, (), str(work))
    return dataclasses.replace(case, **changes)


def stand_in(folder: Path, source: str) -> str:
    """A folder for PYTHONPATH in which torch is this source."""
    package = folder / "torch"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(source)
    return str(folder)


def check_named(name: str, **changes: Any) -> Check:
    """One of the checks, with fields changed, e.g. limit_s."""
    [check] = chosen(CHECKS, (name,))
    return dataclasses.replace(check, **changes) if changes else check


def prove(check: Check, case: Case) -> Result:
    """The result of one check run alone."""
    (result,), _ = run_checks((check,), case, lambda _: None)
    return result


def said(outcome: CheckOutcome = CheckOutcome.OK, says: str = "said", **more: Any) -> Answer:
    """An answer as a child would give it."""
    return Answer(outcome, says, (), (), more, (), 0.1, "")


def python_with(folder: Path, torch: str) -> str:
    """An interpreter of its own whose torch is this source: an environment that starts in a tenth of a second."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python3*/site-packages")
    stand_in(packages, torch)
    return str(folder / "bin/python")
