"""A set of packages that is being taken back, and what the journal knows of it."""

from __future__ import annotations

from firstlight.apply.executor import Acting
from firstlight.apply.journal import Record
from firstlight.apply.runs import Run
from firstlight.apply.set_records import SET_UNKNOWN, settled, starts
from firstlight.frozen import dataclass
from firstlight.ways.step import Step


@dataclass(frozen=True, slots=True)
class Taking:
    """A set that is being taken back."""

    acting: Acting
    run: Run
    step: Step
    saved: Record

    @property
    def target(self) -> str:
        return str(self.saved.about["target"])

    @property
    def before(self) -> list[str]:
        return list(self.saved.about["before"])

    @property
    def after(self) -> tuple[Record, ...]:
        """What the set was when the step's commands had ended; () where they were killed, or it was not seen."""
        return tuple(each for each in self._last if each.event != SET_UNKNOWN)

    @property
    def unseen(self) -> str:
        """Why it is not known what the step's commands left; "" where it is, or where they were killed."""
        return next((str(each.about["reason"]) for each in self._last if each.event == SET_UNKNOWN), "")

    @property
    def _last(self) -> tuple[Record, ...]:
        return settled(self.acting.journal, self.run.number, self.saved)

    @property
    def others_may_be_in_it(self) -> bool:
        """Whether somebody else had time to install something before the step ended: killed, unseen or resumed."""
        begun = [tuple(each.about["argv"]) for each in starts(self.acting.journal, self.run.number, self.step.id)]
        return not self.after or len(set(begun)) < len(begun)
