"""A plan as a JSON document (schema firstlight.plan/2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstlight import __version__
from firstlight.diagnosis.finding import Question
from firstlight.plan.plan import Plan, step_document
from firstlight.plan.request import Ranked
from firstlight.records import encode
from firstlight.report.options_json import amount_document, option_document
from firstlight.report.summary import machine_summary
from firstlight.ways.diffs import unified_diff
from firstlight.ways.step import Step

if TYPE_CHECKING:
    from firstlight.report.documents.planning import PlanDocument, PlanHead

SCHEMA = "firstlight.plan/2"


def plan_document(question: Question, plan: Plan, ranked: Ranked) -> PlanDocument:
    """The document, schema first: the option, its steps with argv and diffs, and the digest over them."""
    return {
        **_head(question, ranked),
        "option": option_document(plan.option),
        "steps": [_step(step) for step in plan.steps],
        "digest": plan.digest,
    }


def no_plan_document(question: Question, ranked: Ranked) -> PlanDocument:
    """The document of a machine where no option can work."""
    return {**_head(question, ranked), "option": None, "steps": [], "digest": ""}


def _head(question: Question, ranked: Ranked) -> PlanHead:
    what, where = machine_summary(question.facts)
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "collected_at": question.facts.collected_at,
        "machine": what,
        "place": where,
        "goal": question.goal.value,
        "wants": list(question.wants),
        "refused": encode(ranked.refused),
        "other_options": [option.id for option in ranked.options],
        "rejected": [{"id": option.id, "why_not": option.why_not} for option in ranked.rejected],
    }


def _step(step: Step) -> Any:
    document = step_document(step)
    for entry, change in zip(document["files"], step.files, strict=True):
        entry["diff"] = unified_diff(change)
    return {**document, "seconds": amount_document(step.seconds), "bytes": amount_document(step.bytes)}
