"""The findings of `lint` as text: file:line, what was seen, because, the error it leads to, what to do."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import WORST_FIRST, Question, Severity
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown
from firstlight.lint.rule import LintFinding, LintReport
from firstlight.report.layout import WIDTH, counted, joined, labelled
from firstlight.report.summary import machine_summary
from firstlight.visible import visible

_NO_DRIVER = (
    "\nNo driver is known for this machine, so nothing was held against one. Name the machine that it is for:\n"
    '  --for "H100, driver 550", or --for machine.json (`firstlight facts --json` run there)\n'
)
_WORDS = {Severity.BLOCKS: "blocks", Severity.DEGRADES: "degrades", Severity.NOTE: "note"}


def lint_text(report: LintReport, question: Question) -> str:
    """The report for a person to read; nothing found is one line."""
    machine = machine_line(question.facts)
    hint = "" if isinstance(question.facts.driver.kernel_version, Known) else _NO_DRIVER
    return visible(_text(report, machine) + _unread(report) + hint)


def machine_line(facts: Facts) -> str:
    """GPUs and driver: 'NVIDIA H100 80GB HBM3 (9.0), driver 550'; the machine's own torch is not the image's."""
    bare = replace(facts, torch=Unknown("the image has its own"))
    return machine_summary(bare)[0].removesuffix(", no torch")


def _text(report: LintReport, machine: str) -> str:
    if not report.findings:
        head = labelled("", (f"{report.file} for {machine}",), label_width=0)
        return f"{head}nothing in it is known to break there (read, not built: what it copies in was not looked at)\n"
    head = labelled("", (f"{report.file} for {machine}: {_counts(report)}",), label_width=0)
    return head + "\n" + "\n".join(_finding(finding) for finding in report.findings)


def _unread(report: LintReport) -> str:
    """The lines about what was not judged; '' where all of it was."""
    return f"\n{labelled('not judged', report.not_judged)}" if report.not_judged else ""


def _finding(finding: LintFinding) -> str:
    where = f"{finding.file}:{finding.line}"
    stage = f" ({finding.target})" if finding.target else ""
    head = f"{where}{stage}: {_WORDS[finding.severity]}: {finding.title}"
    code = f"[{finding.code}]"
    gap = WIDTH - len(head) - len(code)
    out = f"{head}{' ' * gap}{code}\n" if gap > 1 else f"{head}\n  {code}\n"
    out += _indented("saw", (finding.saw,))
    if finding.severity is not Severity.NOTE:
        out += _indented("because", (finding.because,))
        out += _indented("error", (finding.error,) if finding.error else ())
    return out + _indented("do", finding.do)


def _indented(label: str, lines: tuple[str, ...]) -> str:
    return labelled(f"  {label}", lines, label_width=11) if lines else ""


def _counts(report: LintReport) -> str:
    """1 blocks, 4 degrade, 2 notes."""
    counts = {each: sum(finding.severity is each for finding in report.findings) for each in WORST_FIRST}
    blocks, degrades, notes = (counts[each] for each in WORST_FIRST)
    return joined(
        [
            f"{blocks} block{'s' if blocks == 1 else ''}" if blocks else "nothing blocks",
            f"{degrades} degrade{'s' if degrades == 1 else ''}" if degrades else "",
            counted(notes, "note") if notes else "",
        ]
    )
