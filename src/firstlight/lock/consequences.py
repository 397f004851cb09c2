"""What a drift leads to, by the rules of diagnosis: findings that the lock does not know, and that go with the drift.

A drift is undone on paper and the machine judged again: what is then gone, the drift brought about. A finding that two
drifts bring about, so that neither alone takes it away, belongs to each that brings it without the others. Where paper
cannot tell, it belongs to the drifts that its rule looks at. Pure.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from dataclasses import replace

from firstlight.diagnosis.finding import WORST_FIRST, Finding, Question, Rule, Severity
from firstlight.diagnosis.judge import judge
from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.lock.back import without
from firstlight.lock.drift import Change, Drift, Group
from firstlight.lock.places import Places
from firstlight.lock.stack import Judged, LockedClass, Part


class Consequence(enum.Enum):
    """What follows from a drift, worst first."""

    BLOCKS = "blocks"  # a rule says that CUDA in torch, or what the machine is for, no longer works
    ABI = "abi"  # a rule says that what is loaded or was compiled no longer fits together
    PERFORMANCE = "performance"  # a rule says that it works and is slower
    HARMLESS = "harmless"  # no rule says anything


CONSEQUENCES = tuple(Consequence)
_SLOWER = 70  # the depth from which on rules are about speed and health; below it they are about what fits together
# Of more drifts than these, as of another environment, the rules' own looks decide. A drift undone takes 2 ms; to leave
# one alone all others are undone, so that takes their square.
_MOST_ON_PAPER = 200
_MOST_ALONE = 60
_MARK = 12  # letters of a SHA-256
# Parts of a lock -> where the same is told in facts; `packages` is told apart below.
_PATHS: dict[Part, tuple[str, ...]] = {
    Part.GPU: ("gpus",),
    Part.DRIVER: ("driver",),
    Part.COMPAT: ("compat", "libcuda"),
    Part.TOOLKIT: ("toolkits",),
    Part.COMPILER: ("compilers",),
    Part.PYTHON: ("python.environments.python_version",),
    Part.IMPORTS: ("torch.shadowed_by", "torch.found_via", "python.python_path"),
    Part.STARTUP: ("python.environments.hooks", "libcuda.ld_preload"),
    Part.LIBRARIES: ("torch_libraries", "libcuda.would_load"),
    Part.CHECKOUTS: ("cutlass",),
    Part.FILES: ("python.project_files",),
}
_OF_SETTINGS = {
    "LD_LIBRARY_PATH": ("libcuda.ld_library_path", "torch_libraries.shadowed"),
    "LD_PRELOAD": ("libcuda.ld_preload",),
    "CUDA_VISIBLE_DEVICES": ("gpus.cuda_visible_devices",),
    "CUDA_HOME": ("toolkits.cpp_extension_home",),
    "CUDA_PATH": ("toolkits.cpp_extension_home",),
}
# What passes by itself is no part of a stack: a lock does not keep it, and no drift brings it about.
_PASSING = ("health", "resources", "network", "collected_at", "fleet")


@dataclass(frozen=True, slots=True)
class Told:
    """A drift with its consequence and the findings that say so."""

    group: Group
    consequence: Consequence
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Every drift with its consequence, and new findings that no drift brought about."""

    told: tuple[Told, ...]
    besides: tuple[Finding, ...]

    @property
    def worst(self) -> Consequence | None:
        return min((each.consequence for each in self.told), key=CONSEQUENCES.index, default=None)


def findings_to_keep(question: Question, rules: tuple[Rule, ...], *, places: Places) -> tuple[Judged, ...]:
    """The findings of a machine that is locked: what they say is known then, and no drift later."""
    looks = {rule.code: rule.looks_at for rule in rules}
    found = judge(question, rules).findings
    kept = [each for each in found if each.severity is not Severity.NOTE and not _passes(looks[each.code])]
    return tuple(
        Judged(each.code, each.severity.value, tuple(sorted(_mark(line, places) for line in each.saw)))
        for each in sorted(kept, key=lambda each: each.code)
    )


def _mark(line: str, places: Places) -> str:
    """What stands for a line that a finding saw: the same on two machines of a kind, and it names nobody."""
    return hashlib.sha256(places.shown(line).encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]


def _passes(looks_at: tuple[str, ...]) -> bool:
    return all(path.split(".")[0] in _PASSING for path in looks_at)


def judged(
    groups: tuple[Group, ...], question: Question, rules: tuple[Rule, ...], *, locked: LockedClass, places: Places
) -> Verdict:
    """Every drift with what it leads to."""
    court = _Court(question, rules, locked, places)
    new = court.new_findings(question.facts)
    on_paper = {group.drift: court.gone_without(group.drift, new) for group in groups[:_MOST_ON_PAPER]} if new else {}
    gone = {drift: codes for drift, codes in on_paper.items() if codes is not None}
    settled = frozenset().union(*gone.values())
    if len(groups) <= _MOST_ALONE and frozenset(new) - settled:
        together = frozenset(new) - settled - court.left_without(tuple(gone))
        gone = {
            drift: codes | (together & court.left_without(tuple(other for other in gone if other != drift)))
            for drift, codes in gone.items()
        }
        settled = frozenset().union(*gone.values())
    told = []
    for group in groups:
        seen = {code for code in new if code not in settled and court.looks_at(code, group)}
        if group.drift in gone:
            seen -= court.known  # paper tells whether it changed what a known finding sees
        codes = gone.get(group.drift, frozenset()) | seen
        found = (*_causes_first(new[code] for code in new if code in codes), *court.other_torch(group.drift))
        worst = min((_consequence(each, court) for each in found), key=CONSEQUENCES.index, default=Consequence.HARMLESS)
        told.append(Told(group, worst, found))
    named = {finding.code for each in told for finding in each.findings}
    return Verdict(tuple(told), tuple(each for code, each in new.items() if code not in named | court.known))


def _causes_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Symptoms behind what they are symptoms of, in the order of the diagnosis."""
    return tuple(sorted(findings, key=lambda each: bool(each.caused_by)))


def _consequence(finding: Finding, court: _Court) -> Consequence:
    if finding.severity is Severity.BLOCKS:
        return Consequence.BLOCKS
    return Consequence.PERFORMANCE if court.rule(finding.code).depth >= _SLOWER else Consequence.ABI


@dataclass(frozen=True, slots=True)
class _Court:
    """The rules, and what the lock knows already."""

    question: Question
    rules: tuple[Rule, ...]
    locked: LockedClass
    places: Places

    @property
    def known(self) -> frozenset[str]:
        return frozenset(each.code for each in self.locked.findings)

    def rule(self, code: str) -> Rule:
        return next(each for each in self.rules if each.code == code)

    def new_findings(self, facts: Facts) -> dict[str, Finding]:
        """By code: what is worse than the lock knows, or saw what the lock does not; notes are no consequence."""
        known = {each.code: each for each in self.locked.findings}
        found = judge(Question(facts, self.question.tables, self.locked.goal), self.rules).findings
        told = (self._beyond(each, known.get(each.code)) for each in found if each.severity is not Severity.NOTE)
        return {each.code: each for each in told if each is not None}

    def _beyond(self, finding: Finding, known: Judged | None) -> Finding | None:
        """A finding with what the lock does not know of it; None where it knows all. One of before marks knows all."""
        order = [each.value for each in WORST_FIRST]
        if known is None or order.index(finding.severity.value) < order.index(known.severity):
            return finding
        lines = tuple(line for line in finding.saw if known.saw and _mark(line, self.places) not in known.saw)
        return replace(finding, saw=lines) if lines else None

    def gone_without(self, drift: Drift, new: dict[str, Finding]) -> frozenset[str] | None:
        """The new findings that are not there on paper, once the drift is taken back; None where paper cannot tell."""
        paper = without(drift, self.question.facts, self.question.tables, places=self.places)
        if paper is None:
            return None
        left = self.new_findings(paper)
        return frozenset(
            code
            for code, finding in new.items()
            if code not in left or (code in self.known and not set(finding.saw) <= set(left[code].saw))
        )

    def left_without(self, drifts: tuple[Drift, ...]) -> frozenset[str]:
        """The new findings that are left on paper where all of these drifts are taken back."""
        paper = self.question.facts
        for drift in drifts:
            paper = without(drift, paper, self.question.tables, places=self.places) or paper
        return frozenset(self.new_findings(paper))

    def looks_at(self, code: str, group: Group) -> bool:
        """Whether a rule looks at what has drifted, or at what follows from that."""
        seen = self.rule(code).looks_at
        paths = [path for drift in (group.drift, *group.follows) for path in _paths(drift)]
        return any(look == path or look.startswith(f"{path}.") for look in seen for path in paths)

    def other_torch(self, drift: Drift) -> tuple[Finding, ...]:
        """Another torch than that of the lock is not the one that is wanted: the rule for `--want` says so."""
        if drift.part is not Part.PACKAGES or drift.name != "torch" or drift.change is not Change.CHANGED:
            return ()
        wants = (f"torch=={drift.locked.partition(' ')[0]}",)
        asked = Question(self.question.facts, self.question.tables, self.locked.goal, wants)
        return judge(asked, (self.rule("torch-not-as-wanted"),)).findings


def _paths(drift: Drift) -> tuple[str, ...]:
    if drift.part is Part.SETTINGS:
        return _OF_SETTINGS.get(drift.name, ("build_variables",))
    if drift.part is not Part.PACKAGES:
        return _PATHS[drift.part]
    if drift.name == "torch":
        return ("torch",)
    if drift.name.startswith("nvidia-"):
        return ("nvidia_wheels",)
    return ("companions", "extensions", "python.environments.distributions")
