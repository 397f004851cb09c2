"""The findings of `lint` as text: file:line, what was seen, because, the error it leads to, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from firstlight.diagnosis.finding import WORST_FIRST, Question, Severity
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.lint.model import Syntax
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.lint.written import lines_of, says
from firstlight.numerals import counted
from firstlight.report.layout import headed, joined, labelled
from firstlight.report.summary import machine_summary
from firstlight.secrets import masked
from firstlight.visible import visible

_NO_DRIVER = (
    "\nNo driver is known for this machine, so nothing was checked against one. Name the machine that it is for:\n"
    '  --for "H100, driver 550", or --for machine.json (`firstlight facts --json` run there)\n'
)
_BUILT = "read, not built: what it copies in was not looked at"
_READ_AS: dict[Syntax | None, str] = {Syntax.DOCKERFILE: _BUILT, Syntax.COMPOSE: _BUILT}
_WORDS = {Severity.BLOCKS: "blocks", Severity.DEGRADES: "degrades", Severity.NOTE: "note"}


def lint_text(reports: Iterable[LintReport], question: Question) -> str:
    """The reports for a person to read; of several files those that have nothing are named in one line."""
    reports = tuple(reports)
    machine = machine_line(question.facts)
    hint = "" if isinstance(question.facts.driver.kernel_version, Known) else _NO_DRIVER
    if len(reports) == 1:
        return visible(_text(reports[0], machine) + _unread(reports[0]) + _silenced(reports[0]) + hint)
    if not reports:
        return "none of the files is one that lint reads\n"
    speaking = [each for each in reports if each.findings or each.not_judged or each.ignored]
    quiet = [each.file for each in reports if each not in speaking]
    not_read = sum(each.unread for each in reports)
    read = counted(len(reports), "file") + (f" ({not_read} of them not read)" if not_read else "")
    counts = joined([read, _counts(reports)])
    out = labelled("", (f"{counts} for {machine}",), label_width=0)
    for report in speaking:
        out += "".join(f"\n{_finding(finding)}" for finding in report.findings) + _unread(report) + _silenced(report)
    if quiet:
        out += "\n" + labelled("nothing to say", (", ".join(quiet),), label_width=16)
    return visible(out + hint)


def machine_line(facts: Facts) -> str:
    """GPUs and driver: 'NVIDIA H100 80GB HBM3 (9.0), driver 550'; the machine's own torch is not the image's."""
    bare = replace(facts, torch=Unknown("the image has its own"))
    return machine_summary(bare)[0].removesuffix(", no torch")


def _text(report: LintReport, machine: str) -> str:
    if report.unread:
        return labelled("", (f"{report.file} for {machine}",), label_width=0) + "it could not be read\n"
    if not report.findings:
        head = labelled("", (f"{report.file} for {machine}",), label_width=0)
        how = _READ_AS.get(report.syntax, "read, nothing was installed or run")
        return f"{head}nothing in it is known to break there ({how})\n"
    head = labelled("", (f"{report.file} for {machine}: {_counts((report,))}",), label_width=0)
    return head + "\n" + "\n".join(_finding(finding) for finding in report.findings)


def _unread(report: LintReport) -> str:
    """The lines about what was not judged; '' where all of it was."""
    label = "not read" if report.unread else "not judged"
    return f"\n{labelled(label, report.not_judged)}" if report.not_judged else ""


def _silenced(report: LintReport) -> str:
    """The lines about what comments in the file silence; '' where none do."""
    said = [f"{each.finding.file}:{each.finding.line} [{each.finding.code}]: {each.reason}" for each in report.ignored]
    return f"\n{labelled('ignored', said)}" if said else ""


def _finding(finding: LintFinding) -> str:
    where = f"{finding.file}:{finding.line}"
    stage = f" ({finding.target})" if finding.target else ""
    head = f"{where}{stage}: {_WORDS[finding.severity]}: {finding.title}"
    out = headed(head, f"[{finding.code}]")
    out += _indented("saw", (finding.saw,))
    if finding.severity is not Severity.NOTE:
        out += _indented("because", (finding.because,))
        out += _indented("error", (finding.error,) if finding.error else ())
    for number, answer in enumerate(finding.answers):
        out += _indented("or" if number else "do", (says(answer, finding.syntax),))
        out += "".join(f"{'':<13}{masked(line)}\n" for line in lines_of(answer, finding.syntax))
    return out


def _indented(label: str, lines: tuple[str, ...]) -> str:
    return labelled(f"  {label}", lines, label_width=11) if lines else ""


def _counts(reports: Iterable[LintReport]) -> str:
    """1 blocks, 4 degrade, 2 notes."""
    severities = [finding.severity for report in reports for finding in report.findings]
    counts = {each: severities.count(each) for each in WORST_FIRST}
    blocks, degrades, notes = (counts[each] for each in WORST_FIRST)
    return joined(
        [
            f"{blocks} block{'s' if blocks == 1 else ''}" if blocks else "nothing blocks",
            f"{degrades} degrade{'s' if degrades == 1 else ''}" if degrades else "",
            counted(notes, "note") if notes else "",
        ]
    )
