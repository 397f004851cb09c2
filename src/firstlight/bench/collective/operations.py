"""What is measured between ranks, and what its bus bandwidth is, by the definition of nccl-tests.

Of every operation `size` is that of the larger of its two buffers, as in nccl-tests. With n ranks and t seconds:

    algbw = size / t                the rate at which a program sees its data done
    busbw = algbw x factor          what a link carries each way meanwhile, whatever n is

Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md, and the get bandwidth functions of src/*.cu, read at a0b82b2.
"""

from __future__ import annotations

from fractions import Fraction

from firstlight.bench.case import Effort
from firstlight.bench.operator_counts import Work
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

FAMILY = "collective"
ELEMENT_BYTES = 4  # fp32, as nccl-tests has it unless told otherwise
LEAST_BYTES, MOST_BYTES = 8, 1 << 30
_STANDARD_STEP = 3  # powers of two from one size to the next
_QUICK = (3, 15, 21, 30)  # 8 B, 32 KiB, 2 MiB, 1 GiB
# Sockets of one machine carry about 1 GB/s between four processes; a gigabyte in every operation would take minutes.
_MOST_ON_PROCESSOR = {Effort.QUICK: 21, Effort.STANDARD: 24, Effort.RIGOROUS: 30}
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: the factor from algbw to busbw is twice x (n-1)/n, or 1 where a link carries all of it once."""

    name: str
    formula: str  # of the factor, e.g. '2(n-1)/n'
    splits: bool  # whether the larger buffer is made of one part for each rank
    adds: bool  # whether what ranks bring is added up
    each_way: int = 1  # how often (n-1)/n of the data crosses a link in one direction

    def factor(self, ranks: int) -> Fraction:
        """busbw over algbw: 3/2 for all_reduce of 4 ranks, 7/8 for all_gather of 8, 1 for broadcast."""
        return Fraction(1) if self.formula == "1" else Fraction(self.each_way * (ranks - 1), ranks)


OPERATIONS = (
    Operation("all_reduce", "2(n-1)/n", splits=False, adds=True, each_way=2),
    Operation("all_gather", "(n-1)/n", splits=True, adds=False),
    Operation("reduce_scatter", "(n-1)/n", splits=True, adds=True),
    Operation("all_to_all", "(n-1)/n", splits=True, adds=False),
    Operation("broadcast", "1", splits=False, adds=False),
)
PAIR = Operation("pair", "1", splits=False, adds=False)  # both ways at once, counted once, as sendrecv_perf does


def bus_work(operation: Operation, ranks: int, size: int) -> Work:
    """The bytes that a link carries each way: 1572864 for all_reduce of 1 MiB with 4 ranks; their rate is busbw."""
    return Work(0, 0, round(size * operation.factor(ranks)), "none", f"nccl-busbw {operation.formula}")


def real_size(operation: Operation, ranks: int, size: int) -> int:
    """The size that can be had: parts of whole elements, so 1048572 of 1 MiB with 3 ranks; 0 where it is too small."""
    whole = ELEMENT_BYTES * (ranks if operation.splits else 1)
    return size // whole * whole


def sizes() -> tuple[int, ...]:
    """8 B to 1 GiB, every power of two."""
    return tuple(1 << power for power in range(LEAST_BYTES.bit_length() - 1, MOST_BYTES.bit_length()))


def least_effort(size: int, *, on_processor: bool) -> Effort:
    """The smallest effort that has a size: quick has four of them, standard every third, rigorous all."""
    power = size.bit_length() - 1
    above_quick = Effort.STANDARD if power % _STANDARD_STEP == 0 else Effort.RIGOROUS
    wanted = Effort.QUICK if power in _QUICK else above_quick
    if not on_processor:
        return wanted
    order = tuple(Effort)
    return next(each for each in order[order.index(wanted) :] if power <= _MOST_ON_PROCESSOR[each])


def size_text(size: int) -> str:
    """'8B', '32KiB', '1GiB': as it stands in an id."""
    unit, bytes_of = next((unit, many) for unit, many in _UNITS if size % many == 0)
    return f"{size // bytes_of}{unit}"


def size_given(text: str) -> int:
    """'64MiB', '64M', '1GiB' or '4096' as bytes; every unit is a power of 1024, as nccl-tests reads them."""
    import re

    match = re.fullmatch(r"(\d{1,12})\s*(?:([kmg])(?:i?b)?|b)?", text.strip().lower())
    if match is None:
        raise BadInput(f"--max-size {text[:40]!a}: accepted: a size from 8B to 1GiB, e.g. 32KiB, 16MiB or 1GiB")
    size = int(match[1]) << (10 * " kmg".index(match[2] or " "))
    if not LEAST_BYTES <= size <= MOST_BYTES:
        raise BadInput(f"--max-size {text[:40]!a}: accepted: from {LEAST_BYTES}B to {size_text(MOST_BYTES)}")
    return size
