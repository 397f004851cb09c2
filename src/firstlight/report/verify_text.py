"""A run of `verify` as text: one line per check with what was seen, failures with what to do."""

from __future__ import annotations

import enum

from firstlight.report.layout import labelled, width
from firstlight.verify.check import Check, CheckOutcome, Evidence, FeatureResult, FeatureState, Met, Report, Result
from firstlight.verify.verdict import summary

_LABEL = 31
_WORDS = {
    CheckOutcome.OK: "ok",
    CheckOutcome.FAILED: "FAILED",
    CheckOutcome.SKIPPED: "skipped",
    CheckOutcome.NOT_HERE: "not here",
}
_STDERR_LINES = 6


class Detail(enum.Enum):
    """How much of the evidence is printed."""

    LINE = "line"
    ALL = "all"


def verify_text(report: Report, detail: Detail) -> str:
    """The report for a person to read."""
    out = f"{report.machine}\n{report.place}\nproved with {report.interpreter}\n"
    out += "\n" if report.results else ""
    out += "".join(result_text(result, detail) for result in report.results)
    if report.features:
        out += f"\nfeatures of torch that people rely on\n{_features(report.features, detail)}"
    if report.requirements:
        out += f"\nrequirements of {report.require_file}\n{_requirements(report)}"
    return out + "\n" + "".join(labelled("", (line,), label_width=0) for line in summary(report))


def result_text(result: Result, detail: Detail) -> str:
    """One check: 'ok        gpus      1 of 1 GPU computes what float64 computes (...)'."""
    label = f"  {_WORDS[result.outcome]:<10}{result.check}"
    out = labelled(label, (result.says,), label_width=_LABEL)
    if detail is Detail.ALL:
        out += _pieces(result)
    if result.outcome is CheckOutcome.FAILED:
        if detail is Detail.LINE:
            out += _lines("saw", [_piece(each) for each in result.evidence[-3:]])
        out += _lines("said", _last_lines(result.stderr))
        out += _lines("do", list(result.do))
    return out


def _pieces(result: Result) -> str:
    out = _lines("saw", [_piece(each) for each in result.evidence])
    if result.command:
        out += _lines("ran", [" ".join(result.command)])
        out += _lines("took", [f"{result.seconds:.1f} s"])
    return out


def _piece(evidence: Evidence) -> str:
    value = f"{evidence.value:.3g}" if isinstance(evidence.value, float) else str(evidence.value)
    return f"{evidence.what}: {value}"


def _lines(word: str, lines: list[str]) -> str:
    return labelled(f"{'':<{_LABEL - 6}}{word}", [line for line in lines if line], label_width=_LABEL)


def _last_lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [line[:300] for line in lines[-_STDERR_LINES:]]


_SHOWN_EACH = (FeatureState.BROKEN, FeatureState.WORKS, FeatureState.COMPILED, FeatureState.NO_SUCH_THING)
_SHOWN_TOGETHER = (
    FeatureState.NOT_ON_GPU,
    FeatureState.NOT_BUILT,
    FeatureState.NOT_INSTALLED,
    FeatureState.NOT_LOOKED_AT,
)


def _features(table: tuple[FeatureResult, ...], detail: Detail) -> str:
    """By state: what was seen of each that is there; the others by name, unless all evidence is asked for."""
    out = ""
    for state in (*_SHOWN_EACH, *_SHOWN_TOGETHER):
        rows = [row for row in table if row.state is state]
        if detail is Detail.LINE and state in _SHOWN_TOGETHER:
            lines = [", ".join(row.title for row in rows)] if rows else []
        else:
            lines = [line for row in rows for line in _feature_lines(row, detail)]
        out += labelled(f"  {state.value}", lines, label_width=22)
    return out


def _feature_lines(row: FeatureResult, detail: Detail) -> list[str]:
    if detail is Detail.ALL:
        parts = [part for part in (row.saw, row.is_so) if part]
        return [f"{row.title}: {'; '.join(parts)}" if parts else row.title, f"  source: {row.source}"]
    told = row.is_so if row.state is FeatureState.NO_SUCH_THING else row.saw
    return [f"{row.title}: {told}" if told else row.title]


def _requirements(report: Report) -> str:
    out = ""
    for row in report.requirements:
        word = {Met.YES: "met", Met.NO: "NOT MET", Met.NOT_KNOWN: "NOT KNOWN"}[row.met]
        where = "" if row.met is Met.YES else f" (line {row.line})"
        out += labelled(f"  {word}", (f"{row.requirement}: needed {row.needed}, given {row.given}{where}",))
    return out


def list_text(checks: tuple[Check, ...]) -> str:
    """The checks: name, what it proves, what it needs, its time limit."""
    out = ""
    for check in checks:
        needs = ", ".join(need.value for need in check.needs if need.name != "TORCH") or "nothing else"
        out += labelled(
            f"  {check.name}", (f"{check.title}; needs {needs}; at most {check.limit_s:g} s",), label_width=21
        )
    return out


def progress_text(result: Result) -> str:
    """One short line while checks run: 'ok gpus (3.1 s)'."""
    return f"{_WORDS[result.outcome]} {result.check} ({result.seconds:.1f} s)"[: width()]
