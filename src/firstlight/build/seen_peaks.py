"""What the units of a build took when it was at work before: the jobs of the next time rest on that."""

from __future__ import annotations

from firstlight.build.ninja_units import kinds_of, ninja_folder
from firstlight.build.progress import read_peaks
from firstlight.build.spec import BuildSpec
from firstlight.frozen import dataclass
from firstlight.tables.build_rows import UnitKind


@dataclass(frozen=True, slots=True)
class SeenPeak:
    """What units of a kind took when this build was at work before: 12 of 15 CUDA units, 3.4 GiB at most."""

    kind: UnitKind
    units: int
    of: int
    bytes: int

    @property
    def speaks_for_all(self) -> bool:
        """Units of a moment end before anybody looks, and are the small ones."""
        return self.units * 4 >= self.of * 3


def seen_peaks(spec: BuildSpec) -> tuple[SeenPeak, ...]:
    """What the units of a build took while it was at work before, by kind."""
    kinds = kinds_of(ninja_folder(spec))
    units = {each.unit: each for each in read_peaks(spec.folder) if each.unit in kinds}
    found = []
    for kind in UnitKind:
        of = [output for output, each in kinds.items() if each is kind]
        held = [units[each].bytes for each in of if each in units]
        if held:
            found.append(SeenPeak(kind, len(held), len(of), max(held)))
    return tuple(found)
