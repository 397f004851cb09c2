"""A run of `check` as JUnit XML: one test case for the class, and one for each drift."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from firstlight.report.check import Check, DriftShown
from firstlight.report.junit import clean, junit_text


def check_junit(check: Check) -> str:
    """The document; a drift that counts is a failure, a harmless one is skipped with its words."""
    root = ET.Element("testsuites", name="firstlight check")
    suite = ET.SubElement(root, "testsuite", name="firstlight.check")
    fits = _case(suite, f"class {check.class_name}" if check.class_name else "class")
    if not check.class_name:
        message = f"no class of {check.lock} fits this machine ({check.machine})"
        ET.SubElement(fits, "failure", message=clean(message), type="class")
    for each in check.drifts:
        _drift(suite, each, strict=check.strict)
    for deep in check.deep:
        case = _case(suite, "verify libraries")
        if deep.outcome != "ok":
            kind = "failure" if deep.outcome == "failed" else "skipped"
            ET.SubElement(case, kind, message=clean(f"{deep.outcome}: {deep.says}"))
    return junit_text(root, digits=3)


def _drift(suite: ET.Element, each: DriftShown, *, strict: bool) -> None:
    drift = each.drift
    case = _case(suite, f"{drift.part} {drift.name}")
    told = f"{each.consequence}: lock {drift.locked}, here {drift.here}"
    fails = strict or each.consequence != "harmless"
    element = ET.SubElement(case, "failure" if fails else "skipped", message=clean(told))
    if fails:
        element.set("type", each.consequence)
        codes = [f"{finding.code}: {finding.means}" for finding in each.because]
        element.text = clean("\n".join([told, *([f"seen in {drift.seen_in}"] if drift.seen_in else []), *codes]))


def _case(suite: ET.Element, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname="firstlight.check", name=clean(name), time="0.000")
