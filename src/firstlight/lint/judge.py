"""Run the rules over a file. Pure: the machine is facts, the file is text."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import WORST_FIRST, Question
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.lint.build_rules import BUILD_LINT_RULES
from firstlight.lint.compose import ReadFile, read_compose
from firstlight.lint.compose_rules import COMPOSE_LINT_RULES
from firstlight.lint.driver_rules import DRIVER_LINT_RULES
from firstlight.lint.installs import installs_of
from firstlight.lint.library_path_rules import LIBRARY_PATH_LINT_RULES
from firstlight.lint.model import Target
from firstlight.lint.rule import LintFinding, LintReport, LintRule, Seen
from firstlight.lint.run_rules import RUN_LINT_RULES
from firstlight.lint.stages import read_dockerfile
from firstlight.lint.unjudged import not_judged

LINT_RULES: tuple[LintRule, ...] = (
    *DRIVER_LINT_RULES,
    *LIBRARY_PATH_LINT_RULES,
    *RUN_LINT_RULES,
    *BUILD_LINT_RULES,
    *COMPOSE_LINT_RULES,
)
_YAML = (".yml", ".yaml")


@dataclass(frozen=True, slots=True)
class Given:
    """A file to lint: its name, its text, the build arguments and the stage that the user names."""

    file: str
    text: str
    target: str = ""
    arguments: tuple[tuple[str, str], ...] = ()


def read_targets(given: Given, read: ReadFile) -> tuple[Target, ...]:
    """The images of a Dockerfile (one) or a compose file (one for each service)."""
    if given.file.lower().endswith(_YAML):
        if given.target:
            raise BadInput(
                f"--target {given.target[:40]!a}: {given.file} is a compose file, which names its own targets."
            )
        return read_compose(given.text, given.file, read=read, variables=dict(given.arguments))
    return (read_dockerfile(given.text, given.file, target=given.target, given=given.arguments),)


def _with_lists(target: Target, read: ReadFile) -> Target:
    """The target with the requirements files that its installs name, looked for beside the Dockerfile and above it."""
    found: dict[str, str] = {}
    for install in installs_of(target):
        folder = posixpath.dirname(install.ran.place.file)
        for name in install.files:
            inside = (name, posixpath.basename(name))[name.startswith("/") :]  # /tmp/x.txt was copied there
            places = (posixpath.normpath(posixpath.join(folder, up, each)) for each in inside for up in ("", ".."))
            text = next((text for place in places if (text := read(place)) is not None), None)
            if text is not None:
                found[name] = text
    others = tuple(_with_lists(other, read) for other in target.copied_from)
    return replace(target, lists=tuple(found.items()), copied_from=others)


def lint(given: Given, question: Question, *, read: ReadFile) -> LintReport:
    """What will break on the machine, by line; each finding once, also where several services share a Dockerfile."""
    found: dict[tuple[str, str, int, str], LintFinding] = {}
    targets = [_with_lists(target, read) for target in read_targets(given, read)]
    for target in targets:
        for finding in _of(target, question):
            found.setdefault((finding.code, finding.file, finding.line, finding.saw), finding)
    order = sorted(found.values(), key=lambda each: (each.file != given.file, each.file, each.line, _rank(each)))
    unread = dict.fromkeys(sentence for target in targets for sentence in not_judged(target, question))
    return LintReport(given.file, tuple(order), tuple(unread))


def _of(target: Target, question: Question) -> Iterator[LintFinding]:
    for rule in LINT_RULES:
        for seen in rule.check(target, question):
            yield _finding(rule, seen, target)


def _finding(rule: LintRule, seen: Seen, target: Target) -> LintFinding:
    return LintFinding(
        rule.code,
        rule.severity if seen.severity is None else seen.severity,
        seen.place.file,
        seen.place.line,
        target.name,
        rule.title,
        seen.saw,
        seen.because or rule.because,
        seen.error or rule.error,
        seen.do,
        rule.source,
    )


def _rank(finding: LintFinding) -> int:
    return WORST_FIRST.index(finding.severity)
