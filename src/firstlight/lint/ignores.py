"""Comments that silence a finding: `# firstlight: ignore[code] because ...` on its line or the line above."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from firstlight.diagnosis.finding import Severity
from firstlight.frozen import dataclass
from firstlight.lint.model import Place, Syntax
from firstlight.lint.rule import Ignored, LintFinding
from firstlight.lint.written import ask

CODE = "ignore-comment"
_COMMENT = re.compile(
    r"(?P<before>.*?)(?:#|//)\s*firstlight:\s*ignore(?:\[(?P<codes>[^\]]*)\])?(?:[ :,-]*because\b[ :]*(?P<reason>.*))?"
)
# Instructions that read a # as a word of theirs; in RUN, CMD and ENTRYPOINT it is for the shell.
_WITHOUT_COMMENT = re.compile(
    r"(?i)\s*(?:FROM|ENV|COPY|ADD|ARG|LABEL|USER|WORKDIR|EXPOSE|VOLUME|SHELL|STOPSIGNAL|MAINTAINER)\s"
)
NOWHERE = 0
_FORM = "# firstlight: ignore[code] because ..."


@dataclass(frozen=True, slots=True)
class Ignore:
    """One code that a comment names: torch-not-pinned, on line 3, for the findings of line 4."""

    code: str
    reason: str
    line: int  # of the comment
    covers: int  # the line that it is about; NOWHERE: it stands where the file takes no comment


def ignores_of(text: str, syntax: Syntax) -> tuple[Ignore, ...]:
    """All that the comments of a text silence; a comment alone on its line is about the next line that is none."""
    lines = text.splitlines()
    found: list[Ignore] = []
    for number, line in enumerate(lines, 1):
        match = _COMMENT.match(line) if "firstlight:" in line else None
        if match is None:
            continue
        covers = number
        if not match["before"].strip():
            covers = next(
                (each for each in range(number + 1, len(lines) + 1) if not _is_comment(lines[each - 1])), number
            )
        elif syntax is Syntax.DOCKERFILE and _WITHOUT_COMMENT.match(line):
            covers = NOWHERE
        reason = (match["reason"] or "").strip().removesuffix("*/").strip()
        codes = [code.strip() for code in (match["codes"] or "").split(",")]
        found += (Ignore(code, reason, number, covers) for code in codes)
    return tuple(found)


def _is_comment(line: str) -> bool:
    match = _COMMENT.match(line) if "firstlight:" in line else None
    return match is not None and not match["before"].strip()


def silenced(
    findings: tuple[LintFinding, ...], ignores: tuple[Ignore, ...], file: str
) -> tuple[tuple[LintFinding, ...], tuple[Ignored, ...]]:
    """The findings that stay, and those of a file that its comments silence, which take a reason for it."""
    reasons = {(each.covers, each.code): each.reason for each in ignores if each.reason}

    def reason_of(finding: LintFinding) -> str:
        return reasons.get((finding.line, finding.code), "") if finding.file == file else ""

    ignored = tuple(Ignored(each, reason) for each in findings if (reason := reason_of(each)))
    return tuple(each for each in findings if not reason_of(each)), ignored


def remarks(
    ignores: tuple[Ignore, ...], place: Place, *, codes: frozenset[str], found: tuple[LintFinding, ...]
) -> Iterator[LintFinding]:
    """What is wrong with the comments themselves: no reason, a code that does not exist, or nothing to silence."""
    there = {(each.line, each.code) for each in found if each.file == place.file}
    for each in ignores:
        do = f"write {_FORM}, or take the comment out if no machine needs it"
        if each.covers == NOWHERE:
            saw = "a Dockerfile takes comments on lines of their own, and behind RUN; here # is one more word"
            do = "put it on a line of its own above this one"
        elif not each.code:
            saw = "it names no code"
        elif each.code not in codes:
            near = get_close_matches(each.code, sorted(codes), 1)
            saw = f"there is no rule {each.code[:60]}" + (f"; did you mean {near[0]}?" if near else "")
        elif not each.reason:
            saw = f"ignore[{each.code}] gives no reason, so it silences nothing"
        elif (each.covers, each.code) not in there:
            saw = f"line {each.covers} has no {each.code} on this machine"
            do = "leave it if another machine needs it, else take it out"
        else:
            continue
        yield LintFinding(CODE, Severity.NOTE, place.file, each.line, "", "the comment silences nothing", saw,
                          "Only a comment with a code and a reason silences a finding.", "", (ask(do),),
                          "docs/lint.md", place.syntax)  # fmt: skip
