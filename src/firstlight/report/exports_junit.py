"""A run as JUnit XML, which CI systems show: a suite per family, a test case per case.

It fails where `firstlight bench` would have ended with another exit code than 0. The time of a test case is the median
of one call; suites add them up.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from firstlight.bench.limits import limit_of_interest
from firstlight.bench.results import CaseResult, RunResult, Verdict
from firstlight.numerals import DASH, percent_text
from firstlight.report.bench_cells import environment_rows, rate_text, spread_text, time_text
from firstlight.report.exports_rows import case_name, started
from firstlight.report.junit import clean, junit_text, seconds_text

_PACKAGE = "firstlight.bench"
_DIGITS = 9  # nanoseconds still show


def junit(run: RunResult) -> str:
    """The document: what was skipped is <skipped>, what is wrong, disturbed or impossible is <failure>."""
    root = ET.Element("testsuites", name="firstlight bench")
    for family in dict.fromkeys(case.family for case in run.cases):
        suite = _suite(root, run, family)
        for case in run.cases:
            if case.family == family:
                _case(suite, run, case)
    _whole_run(_suite(root, run, "run"), run)
    return junit_text(root, digits=_DIGITS)


def _suite(root: ET.Element, run: RunResult, name: str) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=clean(f"{_PACKAGE}.{name}"), hostname=clean(run.host.name))
    if (began := started(run)) is not None:
        suite.set("timestamp", began.strftime("%Y-%m-%dT%H:%M:%S"))
    properties = ET.SubElement(suite, "properties")
    for key, value in (*environment_rows(run), ("Tool", run.tool), ("Run", run.run.id)):
        ET.SubElement(properties, "property", name=key, value=clean(value))
    return suite


def _case(suite: ET.Element, run: RunResult, case: CaseResult) -> None:
    shown = case.shown if case.verdict is Verdict.OK else None
    name = case_name(run, case)
    element = _test(suite, case.family, name, seconds=0.0 if shown is None else shown.time_s.median)
    if case.verdict is Verdict.SKIPPED:
        ET.SubElement(element, "skipped", message=clean(case.reason))
    elif case.verdict is not Verdict.OK:
        _tell(element, "failure", kind=case.verdict.value, lines=(f"{case.verdict.value}: {case.reason}",))
    else:
        ET.SubElement(element, "system-out").text = clean("\n".join(_lines(case)))


def _lines(case: CaseResult) -> list[str]:
    """'sustained: 1.582 ms (0.3 %), 695.2 TFLOPS, 86 % of the limit' for each regime."""
    told = []
    for figure in case.figures:
        rate, share = rate_text(case, figure), percent_text(limit_of_interest(figure.limit)[1])
        parts = [
            f"{figure.regime.value}: {time_text(figure.time_s.median)}, 95 % interval +-{spread_text(figure.time_s)}",
            "" if rate == DASH else rate,
            "" if share == DASH else f"{share} of the limit",
            ", ".join((*case.flags, *figure.flags)),
        ]
        told.append(", ".join(part for part in parts if part))
    return told


def _whole_run(suite: ET.Element, run: RunResult) -> None:
    """Whether the run came to its end, and what it saw of the card's health."""
    finished = _test(suite, "run", "finished", seconds=0.0)
    if run.run.interrupted:
        _tell(finished, "error", kind="interrupted", lines=("broken off by the user; what was finished is here",))
    if run.why_nothing:
        _tell(finished, "error", kind="nothing-measured", lines=(f"nothing was measured: {run.why_nothing}",))
    health = _test(suite, "run", "health", seconds=0.0)
    blocking = [finding for finding in run.health.findings if finding.severity == "blocks"]
    if blocking:
        _tell(health, "failure", kind="health", lines=[f"{each.text} [{each.code}]" for each in blocking])
    warnings = [f"{each.text} [{each.code}]" for each in run.health.findings if each.severity != "blocks"]
    if told := [*run.health.contention, *warnings]:
        ET.SubElement(health, "system-out").text = clean("\n".join(told))


def _test(suite: ET.Element, kind: str, name: str, *, seconds: float) -> ET.Element:
    # Jenkins reads package and class out of the name of the class, at its last dot.
    described = {"classname": clean(f"{_PACKAGE}.{kind}"), "name": clean(name), "time": seconds_text(seconds, _DIGITS)}
    return ET.SubElement(suite, "testcase", described)


def _tell(element: ET.Element, tag: str, *, kind: str, lines: Sequence[str]) -> None:
    """A <failure> or <error>: the first line as its message, all of them as its text."""
    ET.SubElement(element, tag, message=clean(lines[0]), type=kind).text = clean("\n".join(lines))
