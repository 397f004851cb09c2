"""What is asked of the planner, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.diagnosis.finding import Goal
from firstlight.facts.known import Fact, Unknown
from firstlight.frozen import dataclass
from firstlight.plan.option import Option
from firstlight.plan.want import Channel, Want
from firstlight.ways.costs import ASSUMED_SPEED
from firstlight.ways.index_sizes import NOT_ASKED, IndexSizes

if TYPE_CHECKING:
    from firstlight.plan.solve import Clash

NO_RATE = Unknown("no --rate was given")


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted and what an hour costs, e.g. torch==2.9.0+cu130 for inference at 2.69 an hour.

    download_rate: bytes per second: stated, measured by apply, or assumed. sizes: what an index said before planning.
    """

    wants: tuple[Want, ...] = ()
    goal: Goal = Goal.INFER
    channel: Channel = Channel.STABLE
    rate: Fact[float] = NO_RATE  # of the machine, per hour
    download_rate: Fact[float] = ASSUMED_SPEED
    sizes: IndexSizes = NOT_ASKED


@dataclass(frozen=True, slots=True)
class Ranked:
    """Every option, best first; those that cannot work, each with the reason; and the rule of the order."""

    options: tuple[Option, ...]  # feasible only
    rejected: tuple[Option, ...]
    rule: str
    refused: tuple[Clash, ...]  # wants that cannot be had together
    impossible: str = ""  # which part of the wants cannot be had here, in sentences; the options come near it
    untried: int = 0  # chains that were not tried on paper, because 200 judgements were spent
