"""Up to which density a sparse kernel beats the same matrix stored dense: what tables of the benchmarks are made of.

`auto` does not go by these rows but by kernels/data/choice.json (benchmarks/choice_rows.py).
"""

from __future__ import annotations

from firstlight.frozen import dataclass

DENSE_AT = 0.5  # density of the matrix that dense_us is of; at 1 dense_full_us


@dataclass(frozen=True, slots=True)
class Row:
    """One measured product, e.g. block 64, float16, tokens layout, 8192 x 8192 with 4096 tokens."""

    operation: str
    block: int
    dtype: str
    layout: str
    rows: int
    cols: int
    tokens: int
    dense_us: float
    copy_us: float
    sparse_us: tuple[tuple[float, float], ...]
    backend: str = "triton"  # whose times sparse_us are
    dense_full_us: float = 0.0  # 0: not measured

    def dense_at(self, density: float) -> float:
        """Microseconds of dense where this share of its blocks is not zero; at its power limit a GPU feels that."""
        if not self.dense_full_us:
            return self.dense_us
        return self.dense_us + max(density / DENSE_AT - 1.0, 0.0) * (self.dense_full_us - self.dense_us)


def crossover(row: Row, *, training: bool) -> float:
    """Density at which the sparse kernel takes as long as dense, e.g. 0.43; never beyond the densities measured.

    When training, the dense copy is rebuilt after each change of the values, and its time counts on the dense side.
    """
    copy_us = row.copy_us if training else 0.0
    start, lead = 0.0, 0.0  # of the last density at which sparse was ahead, and by how much
    for density, time in sorted(row.sparse_us):
        ahead = row.dense_at(density) + copy_us - time
        if ahead < 0.0:
            return start + (density - start) * lead / (lead - ahead) if start else 0.0
        start, lead = density, ahead
    return start
