"""What a run proved and what not: one sentence and an exit code. Pure."""

from __future__ import annotations

from firstlight.numerals import counted
from firstlight.verify.check import CheckOutcome, Met, Report, Result

PROVED, FAILED = 0, 1


def exit_code(report: Report) -> int:
    """0: all that this machine can prove is proved; 1: a check failed, or what was asked for by name was not proved.

    A check that was skipped, or has nothing here to prove, is no failure unless it was named with --only.
    """
    unmet = any(row.met is not Met.YES for row in report.requirements)
    failed = bool(with_outcome(report, CheckOutcome.FAILED)) or bool(not_proved(report))
    idle = bool(report.results) and not with_outcome(report, CheckOutcome.OK)
    return FAILED if unmet or failed or idle else PROVED


def not_proved(report: Report) -> tuple[Result, ...]:
    """Checks named with --only that could not be run here."""
    could_not = (CheckOutcome.SKIPPED, CheckOutcome.NOT_HERE)
    return tuple(each for each in report.results if each.check in report.asked and each.outcome in could_not)


def with_outcome(report: Report, outcome: CheckOutcome) -> tuple[Result, ...]:
    """The results of one kind, in order."""
    return tuple(result for result in report.results if result.outcome is outcome)


def summary(report: Report) -> tuple[str, ...]:
    """Sentences that end every report: what is proved, what failed, what was not looked at."""
    proved = with_outcome(report, CheckOutcome.OK)
    failed = with_outcome(report, CheckOutcome.FAILED)
    skipped = with_outcome(report, CheckOutcome.SKIPPED)
    absent = with_outcome(report, CheckOutcome.NOT_HERE)
    lines = []
    if report.results:
        lines.append(_head(report))
        lines.append(f"proved: {_names(proved)}")
    if failed:
        lines.append(f"FAILED: {_names(failed)}")
    if skipped:
        lines.append(f"skipped, not proved: {_names(skipped)}")
    if absent:
        lines.append(f"nothing here to prove: {_names(absent)}")
    unmet = [row for row in report.requirements if row.met is not Met.YES]
    if report.requirements:
        met = len(report.requirements) - len(unmet)
        lines.append(f"{met} of {len(report.requirements)} requirements of {report.require_file} are met")
    return tuple(lines)


def _head(report: Report) -> str:
    """The one sentence a person takes along."""
    failed = with_outcome(report, CheckOutcome.FAILED)
    proved = {result.check for result in with_outcome(report, CheckOutcome.OK)}
    took = f"in {report.seconds:.0f} s"
    if failed:
        return f"NOT PROVED: {counted(len(failed), 'check')} failed, {len(proved)} proved, {took}"
    if not proved:
        return f"nothing was proved, {took}"
    if missed := not_proved(report):
        return f"NOT PROVED: {_names(missed)}, asked for by name, could not be run here, {took}"
    if not report.has_gpu and "cpu" not in proved:
        return f"what was asked for is proved; there is no GPU here, {took}"
    if not report.has_gpu:
        return f"the CPU part is proved; there is no GPU here, and that is all that was proved, {took}"
    if "gpus" not in proved:
        return f"what was asked for is proved; the GPU was not among it, {took}"
    left = len(with_outcome(report, CheckOutcome.SKIPPED))
    rest = f"; {counted(left, 'check')} skipped" if left else ""
    return f"proved on this machine: {counted(len(proved), 'check')}{rest}, {took}"


def _names(results: tuple[Result, ...]) -> str:
    return ", ".join(result.check for result in results) or "none"
