"""The cases of the family collective for some ranks: every operation at every size, and every pair of ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import combinations

from firstlight.bench.case import Cache, Case, Effort, LinkLimit, Place, Prepared
from firstlight.bench.collective.operations import (
    ELEMENT_BYTES,
    FAMILY,
    OPERATIONS,
    PAIR,
    Operation,
    bus_work,
    least_effort,
    real_size,
    size_text,
    sizes,
)
from firstlight.frozen import dataclass

CPU, CUDA = "cpu", "cuda"
PAIR_SIZES = (1 << 3, 1 << 15, 1 << 21, 1 << 30)  # every pair has these; there are 28 pairs of 8 ranks
NOT_STARTED = "a collective runs in the ranks that torchrun started"


@dataclass(frozen=True, slots=True)
class Ranks:
    """Who takes part: 8 ranks on GPUs of one node over NCCL, or 4 processes over gloo."""

    device: str  # cpu or cuda
    count: int
    nodes: int = 1

    @property
    def backend(self) -> str:
        return "gloo" if self.device == CPU else "nccl"

    @property
    def name(self) -> str:
        """As it stands in ids: 'cpu4', 'gpu8', 'gpu16-2nodes'."""
        kind = "cpu" if self.device == CPU else "gpu"
        return f"{kind}{self.count}" + (f"-{self.nodes}nodes" if self.nodes > 1 else "")


@dataclass(frozen=True, slots=True)
class Spec:
    """One operation at one size; `pair` are the two ranks that send to each other, () where all take part."""

    case_id: str
    operation: Operation
    size: int  # of the larger buffer, in bytes
    pair: tuple[int, ...] = ()


Preparing = Callable[[Spec, Place, int], Prepared]
LinkOf = Callable[[Spec], LinkLimit]
NO_LINK = LinkLimit("not known")


def no_link(_: Spec) -> LinkLimit:
    """Of a processor: what sockets on one machine carry is not known."""
    return NO_LINK


def not_started(spec: Spec, place: Place, sets: int) -> Prepared:
    """Stands where cases are only named: whoever measures brings ranks."""
    raise AssertionError(f"{spec.case_id}: {NOT_STARTED}, not in this process ({place.device}, {sets})")


def collective_cases(
    ranks: Ranks, *, most_bytes: int, prepare: Preparing = not_started, link_of: LinkOf = no_link
) -> tuple[Case, ...]:
    """Every case, in the order in which they run; one rank alone has each operation once, with what it needs."""
    if ranks.count < 2:
        return tuple(_alone(operation, ranks) for operation in (*OPERATIONS, PAIR))
    wanted = [size for size in sizes() if size <= most_bytes]
    specs = [_spec(operation, ranks, size) for operation in OPERATIONS for size in wanted]
    pairs = combinations(range(ranks.count), 2)
    specs += [_spec(PAIR, ranks, size, pair=pair) for pair in pairs for size in PAIR_SIZES if size <= most_bytes]
    return tuple(_case(spec, ranks, prepare, link_of) for spec in specs if spec.size)


def _spec(operation: Operation, ranks: Ranks, size: int, *, pair: tuple[int, ...] = ()) -> Spec:
    between = f"/{pair[0]}-{pair[1]}" if pair else ""
    case_id = f"{FAMILY}/{operation.name}/{ranks.name}{between}/{size_text(size)}"
    return Spec(case_id, operation, real_size(operation, ranks.count, size), pair)


def _case(spec: Spec, ranks: Ranks, prepare: Preparing, link_of: LinkOf) -> Case:
    link = link_of(spec)
    taking_part = 2 if spec.pair else ranks.count
    return Case(
        id=spec.case_id,
        family=FAMILY,
        params=(
            ("operation", spec.operation.name),
            ("backend", ranks.backend),
            ("ranks", str(ranks.count)),
            ("nodes", str(ranks.nodes)),
            *((("pair", f"{spec.pair[0]}-{spec.pair[1]}"),) if spec.pair else ()),
            ("size_bytes", str(spec.size)),
            ("link", link.name),
        ),
        dtype="fp32",
        work=bus_work(spec.operation, taking_part, spec.size),
        peak="link",
        prepare=partial(prepare, spec),
        # Of one rank on a GPU; processes share the machine's memory.
        set_bytes=2 * spec.size * (taking_part if ranks.device == CPU else 1),
        tolerance=0.0,
        cache=Cache.WARM,
        least_effort=least_effort(_named_size(spec), on_processor=ranks.device == CPU),
        devices=(ranks.device,),
        link=link,
    )


def _named_size(spec: Spec) -> int:
    """The power of two that the size was made from."""
    whole = -(-spec.size // ELEMENT_BYTES) * ELEMENT_BYTES
    return 1 << (whole - 1).bit_length()


def _alone(operation: Operation, ranks: Ranks) -> Case:
    """What one GPU is told: which operations there are, and that each needs two."""
    return Case(
        id=f"{FAMILY}/{operation.name}",
        family=FAMILY,
        params=(("operation", operation.name), ("backend", ranks.backend), ("ranks", str(ranks.count))),
        dtype="fp32",
        work=bus_work(operation, 2, 0),
        peak="link",
        prepare=partial(not_started, Spec(f"{FAMILY}/{operation.name}", operation, 0)),
        set_bytes=0,
        tolerance=0.0,
        cache=Cache.WARM,
        least_effort=Effort.QUICK,
        devices=(ranks.device,),
        needs=f"collectives and pairs need two GPUs or more; torch sees {ranks.count}",
    )
