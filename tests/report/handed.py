"""Parts of a machine as they are handed over: a journal that a plan's steps went through, a proof as recorded."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

from firstlight.apply.disk import Disk
from firstlight.apply.journal import Journal
from firstlight.apply.stored_steps import steps_to_json
from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.document import read_machine_or_facts
from firstlight.plan.options import rank_options
from firstlight.plan.plan import Plan, plan_for
from firstlight.plan.request import Request
from firstlight.report.summary import machine_summary
from firstlight.report.verify_json import verify_document
from firstlight.tables import load
from firstlight.verify.check import CheckOutcome, Report, Result
from firstlight.verify.checks import CHECKS
from firstlight.ways.extras import Extras

ROOT = Path(__file__).parents[2]
MACHINES = ROOT / "tests" / "machines"
PROVED_AT = "2026-11-15T05:00:00Z"


def plan_of(machine: str) -> Plan:
    """The plan of the first option for a machine."""
    question = Question(read_machine_or_facts(str(MACHINES / machine)), load(), Goal.INFER)
    option = rank_options(question, judge(question, RULES), Request(())).options[0]
    return plan_for(question, option, extras=Extras())


def write_journal(folder: Path, machine: str, *, day: int = 15) -> Path:
    """The journal of a run of the first option for a machine: its steps begun and done, a minute apart."""
    plan = plan_of(machine)
    option = plan.option
    folder.mkdir(mode=0o700)
    minutes = count()
    path = folder / "journal.jsonl"
    journal = Journal(str(path), disk=Disk(), now=lambda: f"2026-11-{day}T04:{next(minutes):02d}:00Z")
    journal.open()
    steps = [step for step in plan.steps if step.commands]
    about = {"digest": plan.digest, "option": option.id, "title": option.title, "steps": steps_to_json(tuple(steps))}
    journal.add("run-begun", run=1, **about)
    for step in steps:
        journal.add("step-begun", run=1, step=step.id)
        journal.add("step-done", run=1, step=step.id, seconds=42.5, saw="as it should be")
    journal.add("run-done", run=1)
    journal.close()
    return path


def proof_text(machine: str, *, failed: tuple[str, ...] = ()) -> str:
    """What `verify --json` prints of a machine, with the checks and times that were recorded on an H200."""
    recorded = json.loads((ROOT / "results" / "verify-h200.json").read_text())
    what, where = machine_summary(read_machine_or_facts(str(MACHINES / machine)))
    titles = {check.name: check.title for check in CHECKS}
    results = tuple(
        Result(
            check=each["check"],
            title=titles[each["check"]],
            outcome=CheckOutcome.FAILED if each["check"] in failed else CheckOutcome(each["outcome"]),
            says="as recorded on an H200",
            command=("/usr/bin/python3", "-I", "-c", "pass"),
            seconds=each["seconds"],
        )
        for each in recorded["checks"]
    )
    report = Report(what, where, "/usr/bin/python3", PROVED_AT, 38.0, results, (), (), "", (), has_gpu=True)
    return json.dumps(verify_document(report))
