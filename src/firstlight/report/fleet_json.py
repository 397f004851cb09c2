"""A fleet as a document (schema firstlight.fleet/1), and as JUnit XML with one test case a host."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight import __version__
from firstlight.fleet.folding import folded
from firstlight.fleet.judged import Fleet, Row, Verdict
from firstlight.lock.drift import Change, Drift
from firstlight.report.fleet_rows import against_words, cells_of, difference_words
from firstlight.report.host_names import HostNames
from firstlight.report.junit import clean, junit_text

if TYPE_CHECKING:
    from firstlight.report.documents.fleets import Difference, FleetDocument, FleetRow

SCHEMA = "firstlight.fleet/1"


def fleet_document(fleet: Fleet, names: HostNames) -> FleetDocument:
    """All rows; `names` says what each host is called in it."""
    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "exit_code": fleet.exit_code,
        "counts": {verdict.value: fleet.count(verdict) for verdict in Verdict},
        "rows": [_row(row, names) for row in fleet.rows],
    }


def fleet_junit(fleet: Fleet, names: HostNames) -> str:
    """A host that is blocked or differs is a failure, one that could not be looked at an error, never a pass."""
    root = ET.Element("testsuites", name="firstlight fleet doctor")
    suite = ET.SubElement(root, "testsuite", name="firstlight.fleet")
    for row in fleet.rows:
        for host in row.hosts:
            case = ET.SubElement(suite, "testcase", classname="firstlight.fleet", name=clean(names[host]), time="0")
            _said(case, row, names)
    return junit_text(root, digits=0)


def _row(row: Row, names: HostNames) -> FleetRow:
    cells = cells_of(row)
    state = row.state
    findings = () if state is None else state.diagnosis.findings
    return {
        "hosts": [names[host] for host in row.hosts],
        "verdict": row.verdict.value,
        "primary": "" if state is None else state.diagnosis.primary,
        "reason": names.apply(row.reason),
        "do": names.apply(row.do),
        "asked_by": "" if state is None else state.asked_by.value,
        "gpus": cells.gpus,
        "driver": cells.driver,
        "cuda": cells.cuda,
        "torch": cells.torch,
        "findings": [
            {"code": each.code, "severity": each.severity.value, "caused_by": each.caused_by} for each in findings
        ],
        "against": {
            "hosts": [names[host] for host in row.against.hosts],
            "unlike": [names[host] for host in row.against.unlike],
            "with_gpus": [names[host] for host in row.against.with_gpus],
            "lock": handed_on(row, names).against.lock,
            "class": row.against.class_name,
        },
        "differs": [_drift(each) for each in row.differs],
        "harmless": [_drift(each) for each in row.harmless],
    }


def handed_on(row: Row, names: HostNames) -> Row:
    """The row with the lock's path under these names: it may lie in somebody's home."""
    return replace(row, against=replace(row.against, lock=names.apply(row.against.lock)))


def _drift(drift: Drift) -> Difference:
    return {
        "part": drift.part.value,
        "name": drift.name,
        "change": drift.change.value,
        "here": "" if drift.change is Change.GONE else drift.here,
        "there": "" if drift.change is Change.ADDED else drift.locked,
    }


def _said(case: ET.Element, row: Row, names: HostNames) -> None:
    if row.state is None:
        ET.SubElement(case, "error", message=clean(names.apply(row.reason)), type="not-looked-at")
        return
    primary = row.state.primary
    if row.verdict is Verdict.BLOCKED and primary is not None:
        ET.SubElement(case, "failure", message=clean(f"{primary.title} [{primary.code}]"), type=primary.code)
    elif row.is_odd:
        said = against_words(handed_on(row, names), lambda hosts: folded(names[host] for host in hosts))
        told = " ".join((said, "; ".join(difference_words(each) for each in row.differs))).strip()
        ET.SubElement(case, "failure", message=clean(told), type="differs")
    cells = cells_of(row)
    said = f"{cells.gpus}, driver {cells.driver}, CUDA {cells.cuda}, torch {cells.torch}: {cells.verdict}"
    ET.SubElement(case, "system-out").text = clean(said)
