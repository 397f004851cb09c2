"""Run the rules over a file. Pure: the machine is facts, the file is text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from firstlight.diagnosis.finding import WORST_FIRST, Question, Severity
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.lint.build_rules import BUILD_LINT_RULES
from firstlight.lint.compose_rules import COMPOSE_LINT_RULES, hosted_without_gpu
from firstlight.lint.driver_rules import DRIVER_LINT_RULES
from firstlight.lint.framework_rules import FRAMEWORK_LINT_RULES
from firstlight.lint.ignores import ignores_of, remarks, silenced
from firstlight.lint.image_rules import IMAGE_LINT_RULES
from firstlight.lint.kinds import kind_of
from firstlight.lint.library_path_rules import LIBRARY_PATH_LINT_RULES
from firstlight.lint.missing_wheel_rules import MISSING_WHEEL_LINT_RULES
from firstlight.lint.model import Place, Syntax, Target
from firstlight.lint.overwritten_rules import OVERWRITTEN_LINT_RULES
from firstlight.lint.python_rules import PYTHON_LINT_RULES
from firstlight.lint.readers import read_targets
from firstlight.lint.reading import ReadFile, Reading
from firstlight.lint.rule import Ignored, LintFinding, LintReport, LintRule, SeenAt
from firstlight.lint.run_rules import RUN_LINT_RULES
from firstlight.lint.unjudged import not_judged
from firstlight.ways.kinds import StartContainer

LINT_RULES: tuple[LintRule, ...] = (
    *IMAGE_LINT_RULES,
    *DRIVER_LINT_RULES,
    *MISSING_WHEEL_LINT_RULES,
    *OVERWRITTEN_LINT_RULES,
    *LIBRARY_PATH_LINT_RULES,
    *RUN_LINT_RULES,
    *BUILD_LINT_RULES,
    *PYTHON_LINT_RULES,
    *COMPOSE_LINT_RULES,
    *FRAMEWORK_LINT_RULES,
)


@dataclass(frozen=True, slots=True)
class Given:
    """A file to lint: its name, its text, the build arguments and the stage that the user names."""

    file: str
    text: str
    target: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    kind: Syntax | None = None  # None: by its name and content


_DIGITS = re.compile(r"\d{1001}")  # int() refuses 4301, and nothing that is read has so many


def lint(given: Given, question: Question, *, read: ReadFile) -> LintReport:
    """What will break on the machine, by line; each finding once, also where several services share a Dockerfile."""
    found: dict[tuple[str, str, int, str], LintFinding] = {}
    idle: list[LintFinding] = []
    syntax = given.kind or kind_of(given.file, given.text)
    if _DIGITS.search(given.text):
        raise BadInput(f"{given.file}: a number of more than 1000 digits, which no version or count is. Take it out.")
    arch = question.facts.place.arch
    reading = Reading(given.file, given.text, syntax, read, arch, given.target, given.arguments)
    targets = read_targets(reading)
    unread: dict[str, None] = {}
    for target in targets:
        every = _found(target, question)
        said = tuple(_said(every, target, arch))
        idle += [finding for finding in every if finding not in said]
        unread.update(dict.fromkeys(not_judged(target, question, decided=_decided(said))))
        for finding in said:
            key = (finding.code, finding.file, finding.line, finding.saw)
            if key not in found or _arguments(finding) > _arguments(found[key]):
                found[key] = finding
    kept, ignored = _silenced(tuple(found.values()), reading)
    order = sorted(kept, key=lambda each: (each.file != given.file, each.file, each.line, _rank(each)))
    return LintReport(given.file, tuple(order), tuple(unread), ignored, syntax, tuple(idle))


def _arguments(finding: LintFinding) -> int:
    """How much an answer changes: a job seen from inside its image has the command that goes with its GPUs."""
    ways = (way for answer in finding.answers for way in answer.ways)
    return sum(len(way.arguments) for way in ways if isinstance(way, StartContainer))


def _decided(said: tuple[LintFinding, ...]) -> frozenset[Place]:
    """Where a torch was found not to exist."""
    missing = (each for each in said if each.code == "torch-wheel-does-not-exist" and each.severity is Severity.BLOCKS)
    return frozenset(Place(each.file, each.line, each.syntax) for each in missing)


def _silenced(found: tuple[LintFinding, ...], reading: Reading) -> tuple[tuple[LintFinding, ...], tuple[Ignored, ...]]:
    """The findings that no comment silences, here or in a file read from here, and what is wrong with comments."""
    own = ignores_of(reading.text, reading.syntax)
    codes = frozenset(rule.code for rule in LINT_RULES)
    kept, ignored = silenced(found, own, reading.file)
    others = {each.file: each.syntax for each in kept if each.file != reading.file}
    for file, syntax in sorted(others.items()):
        kept, more = silenced(kept, ignores_of(reading.read(file) or "", syntax), file)
        ignored = (*ignored, *more)
    return (*kept, *remarks(own, reading.place(1), codes=codes, found=found)), ignored


# What is said of the torch and the driver is idle where nothing of the image runs on the machine at all.
_FOR_ANOTHER = ("image-other-architecture", "rocm-image")
_IDLE_THEN = re.compile(r"(?:torch|framework|toolkit|extension|vendor)-(?!backend-auto).*|image-refused-by-driver")
# Said all the same where the processor is the same (Jetson's image on another aarch64): the build goes through.
_WHATEVER_THE_GPU = ("torch-is-cpu-only", "torch-wheel-does-not-exist", "framework-without-cuda")
# A job on a runner without a GPU is not for the machine that is asked about.
_OF_THE_MACHINE = re.compile(
    r"(?:torch|framework|toolkit|extension|vendor|rocm|gpus|service)-.*|image-(?:other|refused).*|small-shared-memory"
)
# Where the first is found, the others on that line are never met.
_ENDS_BEFORE = {
    "torch-wheel-does-not-exist": (
        "torch-needs-newer-driver",
        "torch-has-no-code-for-gpu",
        "torch-is-cpu-only",
        "toolkit-differs-from-torch",
    ),
    "framework-libraries-differ": ("framework-has-no-code-for-gpu",),
    "framework-without-cuda": ("framework-has-no-code-for-gpu",),
}


def _found(target: Target, question: Question) -> list[LintFinding]:
    return [_finding(rule, seen, target) for rule in LINT_RULES for seen in rule.check(target, question)]


def _said(found: list[LintFinding], target: Target, arch: str) -> Iterator[LintFinding]:
    """The findings less those that are idle, since the image or the wheel does not get so far."""
    other = any(each.code in _FOR_ANOTHER and each.line == target.place.line for each in found)
    builds = "tegra" in target.image.processors and arch == "aarch64"
    elsewhere = hosted_without_gpu(target)
    ended = {(code, one.file, one.line) for one in found for code in _ends(one)}
    for each in found:
        never_met = other and _IDLE_THEN.fullmatch(each.code) and not (builds and each.code in _WHATEVER_THE_GPU)
        on_runner = (
            arch == "x86_64" and each.code == "torch-wheel-does-not-exist"
        )  # for which it is no matter what runs
        idle = never_met or (elsewhere and _OF_THE_MACHINE.fullmatch(each.code) and not on_runner)
        if not idle and (each.code, each.file, each.line) not in ended:
            yield each


def _ends(finding: LintFinding) -> tuple[str, ...]:
    return _ENDS_BEFORE.get(finding.code, ()) if finding.severity is Severity.BLOCKS else ()


def _finding(rule: LintRule, seen: SeenAt, target: Target) -> LintFinding:
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
        seen.answers,
        rule.source,
        seen.place.syntax,
    )


def _rank(finding: LintFinding) -> int:
    return WORST_FIRST.index(finding.severity)
