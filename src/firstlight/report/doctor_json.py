"""A diagnosis as a JSON document (schema firstlight.diagnosis/2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.diagnosis.agreement import doubts
from firstlight.diagnosis.finding import Diagnosis, Finding, Question
from firstlight.diagnosis.log_lines import not_explained
from firstlight.facts.collect import Facts
from firstlight.plan.request import Ranked
from firstlight.report.options_json import option_document
from firstlight.report.summary import machine_summary
from firstlight.report.ways_json import chain_document

if TYPE_CHECKING:
    from firstlight.report.documents.planning import DiagnosisDocument, FindingShown

SCHEMA = "firstlight.diagnosis/2"


def diagnosis_document(facts: Facts, diagnosis: Diagnosis, question: Question, options: Ranked) -> DiagnosisDocument:
    """The document, schema first; `primary` is null on a machine where nothing is wrong."""
    what, where = machine_summary(facts)
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "collected_at": facts.collected_at,
        "machine": what,
        "place": where,
        "goal": question.goal.value,
        "wants": list(question.wants),
        "blocked": diagnosis.blocked,
        "primary": diagnosis.primary or None,
        "findings": [finding_document(finding, diagnosis) for finding in diagnosis.findings],
        "not_explained": [
            {"line": each.line.text, "seen_in": each.line.seen_in, "count": each.count}
            for each in not_explained(facts, diagnosis)
        ],
        "doubts": [each.text for each in doubts(facts, diagnosis)] if not diagnosis.primary else [],
        "options": [option_document(option) for option in options.options],
    }


def finding_document(finding: Finding, diagnosis: Diagnosis) -> FindingShown:
    """One finding; `primary` where it is the cause of the others."""
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "primary": finding.code == diagnosis.primary,
        "caused_by": finding.caused_by or None,
        "title": finding.title,
        "saw": list(finding.saw),
        "means": finding.means,
        "error": finding.error,
        "answers": [chain_document(answer) for answer in finding.answers],
        "source": finding.source,
    }
