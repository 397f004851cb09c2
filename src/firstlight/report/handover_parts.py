"""Facts, findings, a journal, a proof and runs of one machine joined: what each says of the others is decided here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstlight.apply.journal import Record
from firstlight.apply.runs import (
    BY_SETS_ALONE,
    RUN_DONE,
    RUN_UNDONE,
    STEP_BEGUN,
    STEP_DONE,
    STEP_FAILED,
    STEP_SKIPPED,
    Run,
    runs_of,
)
from firstlight.bench.compare import compare_runs
from firstlight.bench.judgement import Tone, judged
from firstlight.bench.results import RunResult
from firstlight.diagnosis.finding import Diagnosis, Severity
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.numerals import counted
from firstlight.plan.plan import Plan
from firstlight.report.facts_lines import text
from firstlight.report.facts_text import SECTIONS
from firstlight.report.handover import (
    Change,
    Colour,
    Fault,
    Handover,
    Missing,
    Proof,
    RunTaken,
    Said,
    Speed,
    StepTaken,
    StepToTake,
    WayOut,
)
from firstlight.report.handover_match import done_elsewhere
from firstlight.report.html.comparison import comparison_sentence
from firstlight.report.steps_lines import command_lines, commands_of, folded
from firstlight.report.summary import machine_summary
from firstlight.report.undo_text import back_lines, state_of
from firstlight.tables import Tables
from firstlight.ways.step import Step, StepKind

_TITLES = {rule.code: rule.title for rule in RULES}
_LAST_LINES = 3


@dataclass(frozen=True, slots=True)
class Looked:
    """A look at the machine, and what is wrong by it."""

    facts: Facts
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class Given:
    """What there is of one machine; a part that is not there is () and is named in `missing`."""

    now: Looked
    way_out: tuple[Plan, ...]  # for what is wrong now
    before: tuple[Looked, ...]
    journal: tuple[Record, ...]
    proof: tuple[Proof, ...]
    runs: tuple[RunResult, ...]
    missing: tuple[Missing, ...]
    again: str  # the command that made it
    rate: float  # what an hour of the machine costs, 0 where nobody said


def handover_of(given: Given, tables: Tables) -> Handover:
    """Everything that is known of the machine, joined."""
    facts = given.now.facts
    what, where = machine_summary(facts)
    done = tuple(_run_taken(run, given.journal) for run in runs_of(given.journal))
    speed = tuple(_speeds(given.runs, tables))
    elsewhere = tuple(done_elsewhere(given.journal, given.proof))
    since_proved = tuple(_since_proved(given))
    verdict, tone = _verdict(given, speed, since_proved, elsewhere)
    return Handover(
        verdict=verdict,
        tone=tone,
        machine=what,
        place=where,
        collected_at=facts.collected_at,
        what_it_is=tuple(Said(name, line) for name, say in SECTIONS for line in say(facts)),
        missing=given.missing,
        was_wrong=_was_wrong(given),
        is_wrong=_faults(given.now.diagnosis),
        way_out=tuple(_way_out(plan) for plan in given.way_out),
        done=done,
        cost=_cost(done, given.rate),
        proved=given.proof,
        speed=speed,
        changed=(*since_proved, *elsewhere, *_since_measured(given), *_since_before(given)),
        again=given.again,
    )


def _verdict(
    given: Given, speed: Sequence[Speed], since_proved: Sequence[Change], elsewhere: Sequence[Change]
) -> tuple[str, Colour]:
    """One sentence: the worst that is known comes first."""
    diagnosis, proofs = given.now.diagnosis, given.proof
    primary = diagnosis.of(diagnosis.primary)
    failed = proofs[0].of_outcome("failed") if proofs else ()
    if primary is not None and primary.severity is Severity.BLOCKS:
        return f"Not ready: {primary.title}", Colour.BAD
    if failed:
        names = ", ".join(each.check for each in failed)
        return f"Not ready: {counted(len(failed), 'check')} failed ({names}).", Colour.BAD
    if speed and speed[-1].tone == Tone.BAD.value:
        return f"Not ready: {speed[-1].verdict}", Colour.BAD
    if not proofs:
        found = "Nothing was found that blocks CUDA here" if has_gpu(given.now.facts) else "There is no NVIDIA GPU here"
        return f"{found}, and nothing has been proved yet.", Colour.WARN
    if since_proved:
        return "Proved, and changed since: prove it again before you rely on it.", Colour.WARN
    if elsewhere:
        return "Proved, but not with the Python that torch was installed for.", Colour.WARN
    proved = counted(len(proofs[0].of_outcome("ok")), "check")
    if not proofs[0].has_gpu:
        return f"The part for the processor is proved ({proved}); there is no GPU here.", Colour.WARN
    but = f", but: {primary.title[:1].lower()}{primary.title[1:]}" if primary is not None else "."
    return f"Ready: {proved} proved{but}", Colour.GOOD if primary is None else Colour.WARN


def has_gpu(facts: Facts) -> bool:
    """Whether an NVIDIA GPU is in the machine, whoever sees it."""
    return bool(facts.gpus.devices or facts.gpus.pci or facts.libcuda.devices) or isinstance(
        facts.gpus.tegra_chip, Known
    )


def _faults(diagnosis: Diagnosis) -> tuple[Fault, ...]:
    """The findings, the one that explains most first."""
    found = sorted(diagnosis.findings, key=lambda each: each.code != diagnosis.primary)
    return tuple(Fault(each.code, each.title, each.severity.value, each.saw, each.means) for each in found)


def _way_out(plan: Plan) -> WayOut:
    return WayOut(plan.option.title, tuple(map(_to_take, plan.steps)))


def _to_take(step: Step) -> StepToTake:
    by_you = step.kind is StepKind.MANUAL
    marks = tuple(word for word, holds in (("optional", step.optional), ("you do this", by_you)) if holds)
    typed = commands_of(step, 0)
    note = step.note if by_you and not typed else ""
    return StepToTake(step.title, marks, tuple(map(folded, step.files)), typed, note)


def _was_wrong(given: Given) -> tuple[Fault, ...]:
    """The findings of the earlier look; without one, what the steps of the journal were done for."""
    for looked in given.before:
        return _faults(looked.diagnosis)
    codes = dict.fromkeys(
        step.because for run in runs_of(given.journal) for step in run.steps if step.because in _TITLES
    )
    return tuple(Fault(code, _TITLES[code], "", (), "") for code in codes)


def _run_taken(run: Run, records: Sequence[Record]) -> RunTaken:
    mine = [record for record in records if record.about["run"] == run.number]
    steps = tuple(_step_taken(run, place, mine) for place in range(len(run.steps)))
    return RunTaken(run.number, run.at, state_of(run), run.title, sum(step.seconds for step in steps), steps)


def _step_taken(run: Run, place: int, records: Sequence[Record]) -> StepTaken:
    step = run.steps[place]
    mine = [record for record in records if record.about.get("step") == step.id]
    ended = next((each for each in reversed(mine) if each.event in (STEP_DONE, STEP_SKIPPED, STEP_FAILED)), None)
    begun = next((each.at for each in mine if each.event == STEP_BEGUN), ended.at if ended else "")
    saw, seconds, state = "", 0.0, "begun, not ended" if begun else "not begun"
    if ended is not None and ended.event == STEP_FAILED:
        state, saw = "failed", "\n".join(ended.about["tail"][-_LAST_LINES:])
    elif ended is not None:
        state = "done" if ended.event == STEP_DONE else "held already"
        saw, seconds = ended.about["saw"], float(ended.about["seconds"])
    if step.id in run.taken_back or (run.undone and step.id in run.begun):
        state = "taken back"
    return StepTaken(
        title=step.title,
        state=state,
        at=begun,
        seconds=seconds,
        because=_TITLES.get(step.because, step.because),
        saw=saw,
        commands=commands_of(step, 0),
        files=tuple(folded(change) for change in step.files),
        undo=back_lines(step),
        undo_commands="" if step.kind in BY_SETS_ALONE else "".join(command_lines(argv) for argv in step.undo),
    )


def _cost(done: Sequence[RunTaken], rate: float) -> str:
    money = sum(run.seconds for run in done) / 3600 * rate
    if not money:
        return ""
    return f"{f'{money:.2f}' if money >= 0.01 else 'less than 0.01'} at {rate:g} an hour"


def _speeds(runs: Sequence[RunResult], tables: Tables) -> Iterator[Speed]:
    for place, run in enumerate(runs):
        comparisons = tuple(compare_runs(base, run) for base in runs[:place])
        judgement = judged(run, tables, comparisons)
        yield Speed(
            run=run.run.id,
            started=run.run.started,
            verdict=judgement.sentence,
            tone=judgement.tone.value,
            look_at=tuple(Said(each.title, each.saw) for each in judgement.things),
            compared=tuple(comparison_sentence(each) for each in comparisons),
        )


def _since_proved(given: Given) -> Iterator[Change]:
    for proof in given.proof:
        since = f"it was proved, {proof.started_at}"
        what, where = machine_summary(given.now.facts)
        yield from _differing((("the GPU stack", proof.machine, what), ("where it runs", proof.place, where)), since)
        yield from _done_after(given.journal, proof.started_at, since)


def _since_measured(given: Given) -> Iterator[Change]:
    facts = given.now.facts
    torch = facts.torch.value if isinstance(facts.torch, Known) else None
    for run in given.runs[-1:]:
        since = f"it was measured, {run.run.started}"
        pairs = [("the system", run.host.os or "", text(facts.place.os_name))]
        pairs += [("driver", run.software.driver or "", text(facts.driver.kernel_version) if run.gpus else "")]
        if torch is not None:
            pairs.append(("torch", run.software.torch or "", text(torch.version)))
        yield from _differing([pair for pair in pairs if pair[1] and pair[2]], since)
        yield from _done_after(given.journal, run.run.started, since)


def _since_before(given: Given) -> Iterator[Change]:
    """What the two looks say differently, line by line, in the words of `firstlight facts`."""
    for looked in given.before:
        since = f"the look before, {looked.facts.collected_at}"
        for name, say in SECTIONS:
            old, new = list(say(_without_room(looked.facts))), list(say(_without_room(given.now.facts)))
            if old != new:
                gone = "\n".join(line for line in old if line not in new) or "nothing"
                come = "\n".join(line for line in new if line not in old) or "nothing"
                yield Change(name, gone, come, since)


def _without_room(facts: Facts) -> Facts:
    """The facts without what is free on disks, which is another figure in each look."""
    return replace(facts, resources=replace(facts.resources, disks=()))


def _differing(pairs: Sequence[tuple[str, str, str]], since: str) -> Iterator[Change]:
    yield from (Change(what, then, now, since) for what, then, now in pairs if then != now)


def _done_after(records: Sequence[Record], moment: str, since: str) -> Iterator[Change]:
    """Runs that were done or taken back after something was looked at: it may no longer hold."""
    for record in records:
        if record.event in (RUN_DONE, RUN_UNDONE) and record.at > moment:
            word = "done" if record.event == RUN_DONE else "taken back"
            yield Change(f"run {record.about['run']} of `firstlight apply`", "not yet", f"{word}, {record.at}", since)
