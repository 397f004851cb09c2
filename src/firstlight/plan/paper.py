"""The machine on paper: ways change its facts, and it is judged again before an option is shown. Pure."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Diagnosis, Finding, Question, Severity
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.frozen import dataclass
from firstlight.plan.compiling import answers_for_build, before_build, blocking, judged_for_build
from firstlight.ways.effects import after_all, open_after
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import AskPerson, OtherMachine, UseImage
from firstlight.ways.way import Chain, Proof, Way

MOST_JUDGEMENTS = 200  # for one request; what was not tried then is said
_AT_HOME = Extras(home="~")  # what a later way says of a path at home is read where the steps are made
_MOST_LACKING = 3  # things that a build lacks and that are brought one after the other
_PROOFS = tuple(Proof)
ELSEWHERE = (OtherMachine, UseImage)  # nothing that was found here is known of a place that is not this one


@dataclass(frozen=True, slots=True)
class Trial:
    """The machine after some ways, and what is found on it then."""

    ways: tuple[Way, ...]
    question: Question
    diagnosis: Diagnosis
    settled: frozenset[str]  # codes that a person takes care of: no fact can be foretold for those
    unsure: tuple[str, ...]  # what not known until it is done: paths of facts
    unready: tuple[str, ...] = ()  # what keeps the chain from compiling what it compiles, when it gets there

    @property
    def blocking(self) -> tuple[str, ...]:
        """The codes that still block, symptoms left aside, and those that a build of the chain fails for."""
        return tuple(dict.fromkeys((*self.blocking_here, *self.unready)))

    @property
    def blocking_here(self) -> tuple[str, ...]:
        """The codes that still block what the machine is for."""
        return tuple(each.code for each in self.standing if each.severity is Severity.BLOCKS)

    @property
    def standing(self) -> tuple[Finding, ...]:
        """The findings that are no symptom of another one."""
        return tuple(each for each in self.diagnosis.findings if not each.caused_by)

    def brought(self, before: Diagnosis) -> tuple[Finding, ...]:
        """What degrades the machine now and was not found before: an xformers that is for the torch of then."""
        known = {each.code for each in before.findings}
        return tuple(each for each in self.standing if each.severity is Severity.DEGRADES and each.code not in known)

    @property
    def undoes_itself(self) -> bool:
        """Whether one way takes back what another did, so that it never ends: two releases of one package."""
        facts = self.question.facts
        elsewhere = any(isinstance(way, ELSEWHERE) for way in self.ways)
        return not elsewhere and after_all(self.ways, facts, self.question.tables, _AT_HOME) != facts

    def has(self, code: str) -> bool:
        return self.diagnosis.of(code) is not None

    @property
    def primary(self) -> Finding | None:
        return self.diagnosis.of(self.diagnosis.primary) if self.diagnosis.primary else None


class Paper:
    """Tries chains of ways on one machine and remembers what came of each."""

    def __init__(self, question: Question, diagnosis: Diagnosis) -> None:
        self.start = Trial((), question, diagnosis, frozenset(), ())
        self.judgements = 0
        self.untried = 0  # chains for which no judgement was left
        self._known: dict[tuple[tuple[Way, ...], frozenset[str]], Trial] = {}
        self._builds: dict[tuple[Way, ...], Diagnosis] = {}

    def tried(self, before: Trial, ways: tuple[Way, ...], *, answers: str = "") -> Trial | None:
        """The machine after further ways, which answer the finding of a code; None where no judgement is left."""
        chain = (*before.ways, *ways)
        by_hand = {answers} if answers and _by_a_person(ways) else set()
        settled = before.settled | by_hand
        known = self._known.get((chain, settled))
        if known is not None:
            return known
        if self.judgements >= MOST_JUDGEMENTS:
            self.untried += 1
            return None
        self.judgements += 1
        trial = self._judged(before, chain, ways, settled=settled)
        self._known[chain, settled] = trial
        return trial

    def _judged(
        self, before: Trial, chain: tuple[Way, ...], ways: tuple[Way, ...], *, settled: frozenset[str]
    ) -> Trial:
        facts = after_all(ways, before.question.facts, before.question.tables, _AT_HOME)
        question = replace(before.question, facts=facts)
        if any(isinstance(way, ELSEWHERE) for way in chain):
            return Trial(chain, question, Diagnosis((), ""), settled, ("everything there",))
        diagnosis = _without(judge(question, RULES), settled)
        unready = tuple(each for each in self._unready(chain) if each not in settled)
        return Trial(chain, question, diagnosis, settled, open_after(self.start.question.facts, facts), unready)

    def _unready(self, chain: tuple[Way, ...]) -> tuple[str, ...]:
        first = before_build(chain)
        found = None if first is None else self._for_build((*first, chain[len(first)]))
        return () if found is None else blocking(found[1])

    def _for_build(self, ways: tuple[Way, ...]) -> tuple[Question, Diagnosis] | None:
        """The machine before the last way, which compiles, and what that lacks; None where no judgement is left."""
        facts = after_all(ways[:-1], self.start.question.facts, self.start.question.tables, _AT_HOME)
        question = replace(self.start.question, facts=facts)
        if ways not in self._builds:
            if self.judgements >= MOST_JUDGEMENTS:
                self.untried += 1
                return None
            self.judgements += 1
            self._builds[ways] = judged_for_build(question, ways[-1])
        return question, self._builds[ways]

    def made_ready(self, before: Trial, part: Chain) -> Chain:
        """A part that compiles something, with what that takes before it: a toolkit, a compiler."""
        first = before_build(part.ways)
        if first is None:
            return part
        build, ready, proofs = part.ways[len(first)], first, [part]
        for _ in range(_MOST_LACKING):
            found = self._for_build((*before.ways, *ready, build))
            if found is None or not blocking(found[1]):
                break
            lacks = set(blocking(found[1]))
            for answer in answers_for_build(found[1], found[0], build):
                longer = (*ready, *(way for way in answer.ways if way not in (*before.ways, *ready)))
                again = self._for_build((*before.ways, *longer, build))
                if again is not None and set(blocking(again[1])) < lacks:
                    ready, proofs = longer, [*proofs, answer]
                    break
            else:
                break
        weakest = max(proofs, key=lambda one: _PROOFS.index(one.proof or Proof.GUESSED))
        ways = (*ready, *part.ways[len(first) :])
        return replace(part, ways=ways, proof=weakest.proof, proof_by=weakest.proof_by)


def _by_a_person(ways: tuple[Way, ...]) -> bool:
    return any(isinstance(way, AskPerson) and way.cures for way in ways)


def _without(diagnosis: Diagnosis, settled: frozenset[str]) -> Diagnosis:
    """What is found besides what a person takes care of, and its symptoms."""
    if not settled:
        return diagnosis
    findings = tuple(each for each in diagnosis.findings if each.code not in settled and each.caused_by not in settled)
    standing = [each for each in findings if not each.caused_by and each.severity is not Severity.NOTE]
    return Diagnosis(findings, standing[0].code if standing else "")
