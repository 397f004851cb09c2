"""What has to be here before something is compiled: the machine as a chain leaves it, judged for the build. Pure."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.build_flags_rules import externally_managed_python, prefix_not_writable
from firstlight.diagnosis.finding import Diagnosis, Goal, Question, Severity
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.observed import may_become_root
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wheel_answers import COMPANIONS
from firstlight.facts.known import Unknown
from firstlight.ways import traits
from firstlight.ways.kinds import BuildFromSource, InstallWheels, Manner
from firstlight.ways.platform import platform_of
from firstlight.ways.way import Chain, Way

# Where pip may not write, the steps make an environment of their own.
_ELSEWHERE = (externally_managed_python, prefix_not_writable)
FOR_BUILDS = tuple(
    rule
    for rule in RULES
    if dict(rule.for_goals).get(Goal.BUILD_EXTENSIONS) is Severity.BLOCKS and rule.check not in _ELSEWHERE
)
_OWN_TORCH = Unknown("it is about to be built")


def compiles(way: Way) -> bool:
    """Whether a way compiles something here; flash-attn, unless it is told to, takes a wheel of its release page."""
    if isinstance(way, InstallWheels):
        return way.manner is Manner.COMPILED
    return isinstance(way, BuildFromSource)


def before_build(ways: tuple[Way, ...]) -> tuple[Way, ...] | None:
    """The ways before the first that compiles; None where none does."""
    place = next((place for place, way in enumerate(ways) if compiles(way)), None)
    return None if place is None else ways[:place]


def judged_for_build(question: Question, build: Way) -> Diagnosis:
    """What keeps a build from being made on a machine; of torch itself the one that is installed says nothing."""
    of_torch = isinstance(build, BuildFromSource) and build.project == "torch"
    facts = replace(question.facts, torch=_OWN_TORCH) if of_torch else question.facts
    return judge(replace(question, facts=facts, goal=Goal.BUILD_EXTENSIONS, wants=()), FOR_BUILDS)


def blocking(diagnosis: Diagnosis) -> tuple[str, ...]:
    return tuple(each.code for each in diagnosis.findings if each.severity is Severity.BLOCKS and not each.caused_by)


def answers_for_build(diagnosis: Diagnosis, question: Question, build: Way) -> tuple[Chain, ...]:
    """What brings the first thing that lacks, best first; where nobody here becomes root, what needs none first."""
    lacking = diagnosis.of(diagnosis.primary)
    found = () if lacking is None else tuple(each for each in lacking.answers if not each.why_not)
    platform = platform_of(question.facts)
    if not may_become_root(question.facts):
        found = tuple(sorted(found, key=lambda one: any(traits.needs_root(way, platform) for way in one.ways)))
    return tuple(replace(one, ways=_without_torch(one.ways)) for one in found) if _is_torch(build) else found


def _is_torch(build: Way) -> bool:
    return isinstance(build, BuildFromSource) and build.project == "torch"


def _without_torch(ways: tuple[Way, ...]) -> tuple[Way, ...]:
    """A toolkit comes with a torch of its CUDA where none is known; here torch is about to be built.

    What follows a torch is of the release that goes.
    """
    kept: list[Way] = []
    for way in ways:
        if isinstance(way, InstallWheels) and way.package("torch") is not None:
            others = tuple(each for each in way.packages if each.project not in ("torch", *COMPANIONS))
            kept += [replace(way, packages=others)] if others else []
        else:
            kept.append(way)
    return tuple(kept)
