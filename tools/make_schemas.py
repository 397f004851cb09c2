"""Every schema under src/firstlight/schemas, from the type of its document."""

from __future__ import annotations

from pathlib import Path

from firstlight.apply.bundle import SCHEMA as BUNDLE
from firstlight.apply.bundle import Bundle
from firstlight.bench.results import SCHEMA as BENCH
from firstlight.bench.results import RunResult
from firstlight.facts.collect import Facts
from firstlight.facts.document import SCHEMA as FACTS
from firstlight.lock.stack import LockedClass
from firstlight.lock.writing import SCHEMA as LOCK
from firstlight.report.check import SCHEMA as CHECK
from firstlight.report.check import Check
from firstlight.report.documents import acting, agents, building, files, fleets, libraries, measuring, planning
from firstlight.report.handover import SCHEMA as HANDOVER
from firstlight.report.handover import Handover
from firstlight.report.lock_hold_text import HoldShown
from tools.generate import SCHEMAS, as_json
from tools.schemas import Document, schema_of_document

_MADE = {"made_by": str}
DOCUMENTS = (
    Document(FACTS, "What a GPU machine is, as seen by firstlight", Facts, before=_MADE),
    Document("firstlight.diagnosis/2", "What firstlight doctor found on a machine", planning.DiagnosisDocument),
    Document("firstlight.rule/2", "A rule of firstlight doctor", planning.RuleDocument),
    Document("firstlight.rules/1", "The rules of firstlight doctor", planning.RulesDocument),
    Document("firstlight.why-not/2", "Why a rule of firstlight doctor did not fire on a machine, or did",
             planning.WhyNotDocument),
    Document("firstlight.explain/2", "What firstlight explain says: an answer, or with --list the known signatures",
             (files.ExplainDocument, files.ExplainListDocument)),
    Document("firstlight.options/2", "The ways out of what firstlight found on a machine, best first",
             planning.OptionsDocument),
    Document("firstlight.plan/2", "One way out as the exact commands and file changes that firstlight would make",
             planning.PlanDocument),
    Document("firstlight.apply/1", "What one call of `firstlight apply` did", acting.ApplyDocument),
    Document("firstlight.undo/1", "What one call of `firstlight undo` took back", acting.UndoDocument),
    Document("firstlight.build/1",
             "A build from source: its plan and how it ended, where one stands, or those that are kept",
             (building.BuildPlanned, building.BuildEnded, building.BuildStanding, building.BuildList)),
    Document(BUNDLE, "The wheels for a machine without a network, in a folder", Bundle),
    Document("firstlight.libs/1", "What `firstlight libs` found, and what --fix did", libraries.LibsDocument),
    Document("firstlight.verify/1", "What firstlight verify proved on a machine", measuring.VerifyDocument),
    Document(LOCK, "What was locked of a machine", LockedClass, before={**_MADE, "file": str, "digest": str},
             after={"hold": HoldShown}),
    Document(CHECK, "What has changed since the lock", Check, before=_MADE),
    Document(BENCH, "One run of firstlight bench", RunResult, after={"judgement": measuring.RunJudged},
             is_open=True),
    Document("firstlight.claim/1", "Whether a claimed number can be true", measuring.ClaimDocument, is_open=True),
    Document("firstlight.compare/1", "Two runs of firstlight bench, compared", measuring.CompareDocument, is_open=True),
    Document("firstlight.export/1", "What firstlight bench export wrote, and what it left out",
             measuring.ExportDocument),
    Document("firstlight.bench-report/1", "What firstlight bench report wrote", measuring.BenchReportDocument),
    Document("firstlight.profile/1", "One case or command seen through a profiler", measuring.ProfileDocument),
    Document("firstlight.kernels/1", "Which block-sparse kernel path runs on this machine", measuring.KernelsDocument,
             is_open=True),
    Document("firstlight.emit/1", "Files that bring a plan to other machines, and the gates written into them",
             acting.EmitDocument),
    Document("firstlight.emit-build/1", "Files that carry a build from source out on another machine",
             acting.EmitBuildDocument),
    Document("firstlight.agents/1", "What `firstlight emit agents` wrote, took out again, or keeps of what was there",
             (agents.AgentsWritten, agents.AgentsRemoved, agents.AgentsRecord)),
    Document("firstlight.guard-test/1", "What got past the hooks that are installed", agents.GuardTestDocument),
    Document("firstlight.mcp/1", "The tools that firstlight offers a coding agent", agents.McpDocument),
    Document("firstlight.lint/3", "What firstlight lint found in files for one machine", files.LintDocument),
    Document("firstlight.guard/1", "A decision on one action: allow or deny, why, and how the action was read",
             files.GuardDocument),
    Document("firstlight.fleet/1", "Many hosts, judged and compared", fleets.FleetDocument),
    Document("firstlight.fleet-add/1", "A host that was added", fleets.FleetAddDocument),
    Document("firstlight.fleet-gpus/1", "Of a run of fleet bench: which GPUs are slow", fleets.FleetGpusDocument),
    Document("firstlight.fleet-plan/1", "What `fleet apply` would do, hosts with the same plan together",
             fleets.FleetPlanDocument),
    Document("firstlight.fleet-run/1", "What became of every host of a run over a fleet", fleets.FleetRunDocument),
    Document("firstlight.ship/1", "An image that was shipped to a host, or would be", acting.ShipDocument),
    Document(HANDOVER, "What is handed over with a machine", Handover, before={**_MADE, "file": str}),
    Document("firstlight.tables/1", "What firstlight knows of the world, every row with its source",
             files.TablesDocument),
)  # fmt: skip


def made() -> dict[Path, str]:
    """Each schema with its place."""
    return {SCHEMAS / f"{each.file}.json": as_json(schema_of_document(each)) for each in DOCUMENTS}
