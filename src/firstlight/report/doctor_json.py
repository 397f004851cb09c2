"""A diagnosis as a JSON document (schema firstlight.diagnosis/2)."""

from __future__ import annotations

from firstlight.diagnosis.agreement import doubts
from firstlight.diagnosis.finding import Diagnosis, Finding, Question
from firstlight.diagnosis.log_lines import not_explained
from firstlight.facts.collect import Facts
from firstlight.plan.request import Ranked
from firstlight.report.documents.making import headed, shown
from firstlight.report.documents.planning import DiagnosisDocument, FindingShown, LogLine
from firstlight.report.options_json import option_document
from firstlight.report.summary import machine_summary
from firstlight.report.ways_json import chain_document

SCHEMA = "firstlight.diagnosis/2"


def diagnosis_document(facts: Facts, diagnosis: Diagnosis, question: Question, options: Ranked) -> DiagnosisDocument:
    """The document, schema first; `primary` is null on a machine where nothing is wrong."""
    what, where = machine_summary(facts)
    return headed(
        DiagnosisDocument,
        SCHEMA,
        question,
        collected_at=facts.collected_at,
        machine=what,
        place=where,
        blocked=diagnosis.blocked,
        primary=diagnosis.primary or None,
        findings=[finding_document(finding, diagnosis) for finding in diagnosis.findings],
        not_explained=[
            shown(LogLine, each.line, line=each.line.text, count=each.count) for each in not_explained(facts, diagnosis)
        ],
        doubts=[each.text for each in doubts(facts, diagnosis)] if not diagnosis.primary else [],
        options=[option_document(option) for option in options.options],
    )


def finding_document(finding: Finding, diagnosis: Diagnosis) -> FindingShown:
    """One finding; `primary` where it is the cause of the others."""
    return shown(
        FindingShown,
        finding,
        primary=finding.code == diagnosis.primary,
        caused_by=finding.caused_by or None,
        answers=[chain_document(answer) for answer in finding.answers],
    )
