"""firstlight from Python: what the verbs answer, as typed objects.

    from firstlight.api import diagnose, look

    found = diagnose()  # this machine; diagnose(look("example:h100-driver-570")) one that comes along
    if found.blocked:
        print(found.primary.title, found.options[0].title)

Nothing here changes the machine or prints. `to_dict()` gives the document that the verb prints with --json; its schema
is named in it, and a version of a schema only ever gains fields. What is not on docs/library.md is private.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from firstlight.frozen import dataclass

__all__ = [
    "ClaimJudged",
    "Diagnosed",
    "Looked",
    "Planned",
    "Told",
    "Verified",
    "check_claim",
    "diagnose",
    "explain",
    "look",
    "plan",
    "verify",
]

if TYPE_CHECKING:
    from firstlight.bench.claim import Claim, ClaimJudgement
    from firstlight.cli.planning import Wanted
    from firstlight.diagnosis.explain import Explained, Explanation
    from firstlight.diagnosis.finding import Diagnosis, Finding, Question
    from firstlight.facts.collect import Facts
    from firstlight.facts.look import Look
    from firstlight.plan.option import Option
    from firstlight.plan.plan import Plan
    from firstlight.plan.request import Ranked
    from firstlight.verify.check import Report, Result
    from firstlight.ways.step import Step


@dataclass(frozen=True, slots=True)
class Looked:
    """A machine that was looked at: `facts` is all that is known of it, each known or unknown with the reason."""

    facts: Facts
    asked: Look  # which machine that is

    @property
    def summary(self) -> str:
        """One line, e.g. 'NVIDIA H200 (9.0, 139.8 GiB), driver 580.159.04 (CUDA 13.0), torch 2.11.0+cu130'."""
        from firstlight.report.summary import machine_summary

        return machine_summary(self.facts)[0]

    def to_dict(self) -> dict[str, Any]:
        """The document of `firstlight facts --json`, under pseudonyms."""
        import json

        from firstlight.facts.document import to_text
        from firstlight.facts.look import under_pseudonyms

        document: dict[str, Any] = json.loads(
            to_text(self.facts if self.asked.facts_file else under_pseudonyms(self.facts))
        )
        return document


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """What keeps PyTorch + CUDA from working on a machine, and the ways out, best first."""

    looked: Looked
    question: Question
    diagnosis: Diagnosis
    ranked: Ranked

    @property
    def blocked(self) -> bool:
        """Whether something keeps CUDA in torch from working."""
        return self.diagnosis.blocked

    @property
    def primary(self) -> Finding | None:
        """The one cause to begin with; None where nothing was found."""
        return self.diagnosis.of(self.diagnosis.primary) if self.diagnosis.primary else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that was found, the most basic and worst first."""
        return self.diagnosis.findings

    @property
    def options(self) -> tuple[Option, ...]:
        """The ways out as `firstlight plan --options` ranks them."""
        return self.ranked.options

    def to_dict(self) -> dict[str, Any]:
        """The document of `firstlight doctor --json`."""
        from firstlight.report.doctor_json import diagnosis_document

        return {**diagnosis_document(self.question.facts, self.diagnosis, self.question, self.ranked)}


@dataclass(frozen=True, slots=True)
class Planned:
    """One option as ordered steps, with what was found before; nothing was done."""

    diagnosed: Diagnosed
    chosen: Plan | None  # None where no option can work, or nothing is to be done

    @property
    def blocked(self) -> bool:
        """Whether something blocks before the plan is carried out."""
        return self.diagnosed.blocked

    @property
    def primary(self) -> Finding | None:
        """The cause that the plan answers first."""
        return self.diagnosed.primary

    @property
    def options(self) -> tuple[Option, ...]:
        """All options, best first; the plan is of one of them."""
        return self.diagnosed.options

    @property
    def steps(self) -> tuple[Step, ...]:
        """What would be done, in order; () where there is no plan."""
        return self.chosen.steps if self.chosen is not None else ()

    def to_dict(self) -> dict[str, Any]:
        """The document of `firstlight plan --json`."""
        from firstlight.report.plan_json import no_plan_document, plan_document

        question, ranked = self.diagnosed.question, self.diagnosed.ranked
        if self.chosen is None:
            return {**no_plan_document(question, ranked)}
        return {**plan_document(question, self.chosen, ranked)}


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of an error text or a log."""

    explained: Explained

    @property
    def known(self) -> bool:
        """Whether anything in the text was recognised."""
        return bool(self.explained.explanations)

    @property
    def causes(self) -> tuple[Explanation, ...]:
        """Every cause that was recognised, the most basic first."""
        return self.explained.explanations

    @property
    def primary(self) -> Explanation | None:
        """The most basic cause; None where nothing was recognised."""
        return self.causes[0] if self.causes else None

    def to_dict(self) -> dict[str, Any]:
        """The document of `firstlight explain --json`."""
        import json

        from firstlight.report.explain_text import explained_json

        document: dict[str, Any] = json.loads(explained_json(self.explained))
        return document


@dataclass(frozen=True, slots=True)
class Verified:
    """What was proved by computing: every check with its outcome and evidence."""

    report: Report

    @property
    def proved(self) -> bool:
        """Whether all that this machine can prove is proved: exit code 0 of `firstlight verify`."""
        from firstlight.verify.verdict import exit_code

        return exit_code(self.report) == 0

    @property
    def blocked(self) -> bool:
        """Whether a check failed or could not be run."""
        return not self.proved

    @property
    def results(self) -> tuple[Result, ...]:
        """Each check in order."""
        return self.report.results

    @property
    def primary(self) -> Result | None:
        """The first check that failed; None where none did."""
        from firstlight.verify.check import CheckOutcome

        return next((result for result in self.results if result.outcome is CheckOutcome.FAILED), None)

    def to_dict(self) -> dict[str, Any]:
        """The document of `firstlight verify --json`."""
        from firstlight.report.verify_json import verify_document

        return {**verify_document(self.report)}


@dataclass(frozen=True, slots=True)
class ClaimJudged:
    """A claimed time or rate held against the silicon."""

    claim: Claim
    judgement: ClaimJudgement

    @property
    def can_be_true(self) -> bool | None:
        """True, False, or None where it cannot be judged."""
        return self.judgement.can_be_true

    def to_dict(self) -> dict[str, Any]:
        """The document of `firstlight bench check-claim --json`."""
        from firstlight.report.bench_claim_text import claim_document

        return {**claim_document(self.claim, self.judgement)}


def look(machine: str = "", *, python: str = "", pretend: Iterable[str] = ()) -> Looked:
    """Look at this machine, or at a saved one: a facts file, a recorded folder or 'example:h100-driver-570'.

    `python` names the interpreter whose environment is judged; `pretend` changes single facts: ("driver=570.133.20",).
    """
    from firstlight.facts.look import Look, Names, look_at

    asked = Look(machine, _words(pretend), python, names=Names.PSEUDONYMS if machine else Names.REAL)
    return Looked(look_at(asked), asked)


def diagnose(looked: Looked | None = None, *, wants: Iterable[str] = (), goal: str = "infer") -> Diagnosed:
    """Judge a machine, by default this one, for what is wanted on it, e.g. ("torch==2.9.0+cu130",), and a goal.

    Goals: infer, train, build-extensions, kernels.
    """
    return _diagnosed(looked or look(), _wanted(wants, goal, ""))


def plan(looked: Looked | None = None, *, wants: Iterable[str] = (), goal: str = "infer", option: str = "") -> Planned:
    """The steps of one option: the best, or the one with this id or place ("2"). Nothing is done.

    It is the plan that `firstlight plan` prints: same steps, same digest.
    """
    from firstlight.cli.planning import Ranking, plan_of

    wanted = _wanted(wants, goal, option)
    found = _diagnosed(looked or look(), wanted)
    if not found.options and not option:
        return Planned(found, None)
    return Planned(found, plan_of(found.looked.asked, Ranking(found.question, found.ranked), wanted))


def explain(text: str) -> Told:
    """What an error text or a log says: its causes, commands that prove them, ways out."""
    from firstlight.diagnosis.explain import explain_text

    return Told(explain_text(text))


def verify(*, only: Iterable[str] = (), skip: Iterable[str] = (), python: str = "") -> Verified:
    """Prove that torch and CUDA compute here: child processes with time limits. Takes a minute or two.

    `only` and `skip` name checks as `firstlight verify --list` does; `python` the interpreter that is proved.
    """
    import io

    from firstlight.cli.verify import prove
    from firstlight.verify.checks import CHECKS
    from firstlight.verify.runner import chosen

    names, left_out = _words(only), _words(skip)
    checks = chosen(CHECKS, names)
    chosen(CHECKS, left_out)  # refuses a name that is none
    given = {"python": python, "so_files": (), "skip": ",".join(left_out), "only": ",".join(names), "require_file": ""}
    return Verified(prove(tuple(check.name for check in checks), (), {**given, "identify": False}, io.StringIO()))


def check_claim(case: str, shape: str, *, gpu: str, dtype: str = "fp16", **claimed: float | str) -> ClaimJudged:
    """Whether a claimed figure can be true: check_claim("gemm", "8192x8192x8192", gpu="H100", tflops=1075).

    `claimed` has at least one of ms, tflops, gbps; `link` for the case link. Figures as text keep their digits.
    """
    from firstlight.bench.claim import judge_claim
    from firstlight.bench.claim_input import Told as Typed
    from firstlight.bench.claim_input import claim_of
    from firstlight.errors import BadInput
    from firstlight.tables import load

    accepted = ("ms", "tflops", "gbps", "link")
    for name in claimed:
        if name not in accepted:
            raise BadInput(f"check_claim: {name} is not a figure; accepted: {', '.join(accepted)}.")
    typed = {name: str(value) for name, value in claimed.items()}
    claim = claim_of(Typed(case, shape, dtype, gpu, **typed), load())
    return ClaimJudged(claim, judge_claim(claim))


def _wanted(wants: Iterable[str], goal: str, option: str) -> Wanted:
    from firstlight.cli.planning import Wanted
    from firstlight.diagnosis.finding import Goal
    from firstlight.errors import BadInput
    from firstlight.plan.request import Request
    from firstlight.plan.want import parse_wants
    from firstlight.tables import load

    goals = [each.value for each in Goal]
    if goal not in goals:
        raise BadInput(f"goal is {goal!r}; accepted: {', '.join(goals)}.")
    return Wanted(Request(parse_wants(_words(wants)), Goal(goal)), option, (), (), load())


def _diagnosed(looked: Looked, wanted: Wanted) -> Diagnosed:
    from firstlight.cli.download_rate import at_the_rate_here
    from firstlight.cli.planning import question_of
    from firstlight.diagnosis.judge import judge
    from firstlight.diagnosis.rules import RULES
    from firstlight.plan.options import rank_options

    question = question_of(looked.facts, wanted)
    diagnosis = judge(question, RULES)
    ranked = rank_options(question, diagnosis, at_the_rate_here(wanted.request, looked.asked))
    return Diagnosed(looked, question, diagnosis, ranked)


def _words(given: Iterable[str]) -> tuple[str, ...]:
    """Several words; a single text is one word, not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)
