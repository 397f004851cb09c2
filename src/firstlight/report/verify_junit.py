"""A run of `verify` as JUnit XML, which CI systems show: one test case per check and per requirement."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from firstlight.report.junit import clean, junit_text, seconds_text
from firstlight.verify.check import CheckOutcome, Met, Report, RequirementResult, Result
from firstlight.verify.verdict import not_proved

_DIGITS = 3


def verify_junit(report: Report) -> str:
    """The document; a check that is not here or was skipped is <skipped>, never a pass."""
    root = ET.Element("testsuites", name="firstlight verify")
    checks = _suite(root, "firstlight.verify", report)
    for result in report.results:
        _check(checks, result, must=result in not_proved(report))
    if report.requirements:
        required = _suite(root, "firstlight.require", report)
        for row in report.requirements:
            _requirement(required, row)
    return junit_text(root, digits=_DIGITS)


def _suite(root: ET.Element, name: str, report: Report) -> ET.Element:
    return ET.SubElement(root, "testsuite", name=name, timestamp=report.started_at.rstrip("Z"))


def _check(suite: ET.Element, result: Result, *, must: bool) -> None:
    case = _case(suite, "firstlight.verify", result.check, seconds=result.seconds)
    if result.outcome is CheckOutcome.FAILED:
        failure = ET.SubElement(case, "failure", message=clean(result.says), type=result.check)
        failure.text = clean("\n".join([result.says, *(f"do: {each}" for each in result.do), result.stderr]))
    elif must:
        message = f"asked for by name, but not proved: {result.outcome.value}: {result.says}"
        ET.SubElement(case, "failure", message=clean(message), type=result.check)
    elif result.outcome is not CheckOutcome.OK:
        ET.SubElement(case, "skipped", message=clean(f"{result.outcome.value}: {result.says}"))
    seen = [result.title, result.says, *(f"{each.what}: {each.value}" for each in result.evidence)]
    ET.SubElement(case, "system-out").text = clean("\n".join(seen))


def _requirement(suite: ET.Element, row: RequirementResult) -> None:
    case = _case(suite, "firstlight.require", row.requirement, seconds=0.0)
    told = f"{row.requirement}: needed {row.needed}, given {row.given} (line {row.line})"
    if row.met is not Met.YES:
        ET.SubElement(case, "failure", message=clean(f"{row.met.value}: {told}"), type="requirement")
    ET.SubElement(case, "system-out").text = clean(told)


def _case(suite: ET.Element, kind: str, name: str, *, seconds: float) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=kind, name=clean(name), time=seconds_text(seconds, _DIGITS))
