"""What a package index says of the sizes of its files: asked before planning, because planning asks nothing."""

from __future__ import annotations

from firstlight.frozen import dataclass
from firstlight.ways.kinds import Package


@dataclass(frozen=True, slots=True)
class IndexSize:
    """The wheel of one release on an index, e.g. torch 2.9.0+cu126 of PyTorch's index: 826 MB."""

    project: str
    version: str  # "" = the newest, as it was asked for
    index: str  # "" = the default index
    bytes: int
    seen_in: str


@dataclass(frozen=True, slots=True)
class IndexSizes:
    """What was asked and answered."""

    found: tuple[IndexSize, ...] = ()

    def of(self, package: Package, index: str) -> IndexSize | None:
        wanted = (package.project, package.version, index)
        return next((each for each in self.found if (each.project, each.version, each.index) == wanted), None)


NOT_ASKED = IndexSizes()
