"""A plan parted: what firstlight does itself, what a person has to do, what is left out unless it is asked for."""

from __future__ import annotations

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.ways.step import Step, StepKind

ALL = "all"
# Of a repository that a person sets up only these need anything; wheels come from elsewhere.
_REPOSITORY = "set-up-repository"
_TAKES_FROM_IT = (StepKind.APT, StepKind.COMPAT)


@dataclass(frozen=True, slots=True)
class Parts:
    """The steps of a plan by who does them, each in the plan's order."""

    ours: tuple[Step, ...]
    persons: tuple[Step, ...]
    waiting: tuple[Step, ...]  # ours, once a person has done what they build on
    left_out: tuple[Step, ...]  # optional, and not asked for
    not_written: tuple[Step, ...] = ()  # of `persons`: edits that were tried and would have broken a file

    @property
    def unfinished(self) -> bool:
        """Whether something that was asked for still waits for a person."""
        return bool(self.waiting or self.not_written)


def parted(steps: tuple[Step, ...], asked: tuple[str, ...] = ()) -> Parts:
    """Part a plan; `asked` names optional steps by id, with or without its number, or is `all`."""
    _check(steps, asked)
    ours: list[Step] = []
    persons: list[Step] = []
    waiting: list[Step] = []
    left_out: list[Step] = []
    for step in steps:
        if step.kind in (StepKind.MANUAL, StepKind.LIBRARIES):  # of libraries that nobody read
            persons.append(step)
        elif step.optional and not _is_asked(step, asked):
            left_out.append(step)
        elif any(_waits_for(each, step) for each in persons):
            waiting.append(step)
        else:
            ours.append(step)
    return Parts(tuple(ours), tuple(persons), tuple(waiting), tuple(left_out))


def bare(identity: str) -> str:
    """A step's id without its number: set-up-repository of 01-set-up-repository."""
    number, _, rest = identity.partition("-")
    return rest if number.isdigit() else identity


def _waits_for(before: Step, step: Step) -> bool:
    """Whether a step needs what a person does before it: a module is not loaded while the firmware forbids it."""
    if bare(before.id) == _REPOSITORY:
        return step.kind in _TAKES_FROM_IT
    return before.awaited


def _is_asked(step: Step, asked: tuple[str, ...]) -> bool:
    """Settings are in a plan only where --tuning asked for them."""
    return step.kind is StepKind.TUNING or bool({ALL, step.id, bare(step.id)} & set(asked))


def _check(steps: tuple[Step, ...], asked: tuple[str, ...]) -> None:
    known = {name for step in steps if step.optional for name in (step.id, bare(step.id))}
    for name in asked:
        if name != ALL and name not in known:
            optional = ", ".join(bare(step.id) for step in steps if step.optional)
            if not optional:
                raise BadInput(f"--with {name[:80]!a}: this plan has no optional step. Leave --with out.")
            raise BadInput(f"--with {name[:80]!a}: no optional step is called that; accepted: {optional}, or {ALL}.")
