"""What steps are made from besides the way itself: the machine, the tables, texts of files, and why it is done."""

from __future__ import annotations

from firstlight.facts.collect import Facts
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.ways.arguments import Variable
from firstlight.ways.extras import Extras
from firstlight.ways.platform import Platform


@dataclass(frozen=True, slots=True)
class At:
    """One machine, to carry a way out on; `because` is the code of a finding or a want."""

    facts: Facts
    tables: Tables
    platform: Platform
    extras: Extras
    because: str
    for_builds: tuple[Variable, ...] = ()  # what ways before these set for builds, e.g. CUDA_HOME
    compiles: bool = False  # something is compiled by a way behind this one: no shell of a person's has to do it
    lists_fetched: bool = False  # the package manager's lists, by ways before these
    unwired: tuple[str, ...] = ()  # compat folders, by all their names, that steps before these took from every program
