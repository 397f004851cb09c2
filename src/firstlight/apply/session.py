"""One call of `apply` or `undo`: what was interrupted is finished first."""

from __future__ import annotations

from firstlight.apply.executor import Acting, begin, carry_out, is_done
from firstlight.apply.runs import Run, runs_of
from firstlight.apply.undo import undo
from firstlight.apply.undo_checks import require_agreed
from firstlight.frozen import dataclass
from firstlight.ways.back import Argv
from firstlight.ways.step import Step


@dataclass(frozen=True, slots=True)
class Asked:
    """A plan that was shown and agreed to."""

    steps: tuple[Step, ...]
    digest: str
    option: str
    title: str


def interrupted(acting: Acting) -> tuple[Run, ...]:
    """The run that a kill, a failure or a lost connection left half done, or half taken back; () when there is none."""
    return interrupted_in(runs_of(acting.journal.records))


def interrupted_in(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The same among runs that were read before."""
    return runs[-1:] if runs and (runs[-1].unfinished or runs[-1].undoing) else ()


def stored_commands(run: Run) -> tuple[Argv, ...]:
    """The command lines of a journal of 0.1 that going on with a run would run: somebody has to agree to each."""
    return run.stored_commands if run.undoing else run.stored_steps


def finish(acting: Acting, run: Run, *, agreed: tuple[Argv, ...] = ()) -> None:
    """Go on with an interrupted run in the direction it was going; `agreed` as for `undo`."""
    if run.undoing:
        undo(acting, run, agreed=agreed)
    else:
        require_agreed(run, run.stored_steps, agreed)
        carry_out(acting, run)


def act(acting: Acting, asked: Asked) -> tuple[Run, ...]:
    """Carry a plan out; () when every step already held and nothing was written."""
    if is_done(asked.steps):
        return ()
    run = begin(acting, asked.steps, digest=asked.digest, option=asked.option, title=asked.title)
    carry_out(acting, run)
    return (runs_of(acting.journal.records)[-1],)


def newest_to_undo(acting: Acting) -> tuple[Run, ...]:
    """The newest run that has not been taken back; () when there is none."""
    return to_undo_in(runs_of(acting.journal.records))[-1:]


def to_undo_in(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """The runs that have not been taken back, oldest first."""
    return tuple(run for run in runs if not run.undone)
