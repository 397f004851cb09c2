"""Whether what `apply` is asked for was done before and still holds."""

from __future__ import annotations

from firstlight.apply.executor import is_done
from firstlight.apply.parts import Parts
from firstlight.apply.runs import Run
from firstlight.cli.acting import past_runs
from firstlight.cli.planning import Ranking
from firstlight.machine.live import LiveMachine


def edits_shells_alone(parts: Parts) -> bool:
    """Whether nothing else is left to do: a shell that is open does not see what was edited since it started."""
    changes = [change for step in parts.ours for change in step.files]
    alone = all(step.files and not step.commands for step in parts.ours)
    return alone and all(change.takes_out or change.variables for change in changes)


def is_offered(ranking: Ranking, option: str) -> bool:
    """Whether the option that is named can be chosen now; once it was done, it is not offered a second time."""
    ids = {each.id for each in (*ranking.ranked.options, *ranking.ranked.rejected)}
    return not option or option.isdecimal() or option in ids


def applied_before(machine: LiveMachine, option: str) -> tuple[Run, ...]:
    """The earlier run that did this option and still holds: what is left of it is for a person.

    The shell that runs this keeps a stale variable after the files that set it were mended.
    """
    did = [run for run in past_runs(machine) if run.done and not run.undone and run.option == option]
    return tuple(run for run in did[-1:] if is_done(run.steps))
