"""One operation between ranks as torch.distributed does it: its buffers, its call, and the check of its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from firstlight.bench.case import Place, Prepared
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.bench.collective.cases import Spec
from firstlight.bench.collective.operations import ELEMENT_BYTES
from firstlight.bench.collective.patterns import Pattern, Wrong
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

ROOT = 0  # of broadcast


class WrongResult(RuntimeError):
    """A result is not what it must be; every rank raises it with the same words."""


class Lost(RuntimeError):
    """Another rank did not answer, or not in time."""


class Party(Protocol):
    """The ranks, as one of them sees them."""

    rank: int
    count: int
    wrong: set[str]  # cases whose result all ranks know to be wrong

    def asking(self) -> AbstractContextManager[None]:
        """Around whatever waits for other ranks: an error in it is theirs."""

    def agree(self, own: object) -> list[Any]:
        """What every rank says, by rank; all of them must ask."""

    def wait(self) -> None:
        """Until what was queued is done; raises where that takes too long."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """What a rank brings and where its result comes; the same tensor where the operation is done in place."""

    brought: Tensor
    result: Tensor


def prepare(party: Party, spec: Spec, place: Place, _: int) -> Prepared:
    """The operation with its buffers; where one rank has no room, no rank goes on."""
    own: Buffers | None = None
    complaint = ""
    try:
        own = _buffers(spec, place, party)
    except (RuntimeError, MemoryError) as error:
        complaint = " ".join(str(error).split())[:200] or type(error).__name__
    for rank, said in enumerate(party.agree(complaint)):
        if said:
            raise Unavailable(f"rank {rank} has no room for it: {said}")
    assert own is not None, spec
    call = _asked(_call(spec, own, party), party)
    check = _Check(spec, own, party, call, place.device)
    return Prepared((call,), check.error, audit=check.audit)


def _buffers(spec: Spec, place: Place, party: Party) -> Buffers:
    import torch

    count = spec.size // ELEMENT_BYTES
    part = count // party.count if spec.operation.splits else count
    brings, gets = {
        "all_reduce": (count, 0),
        "all_gather": (part, count),
        "reduce_scatter": (count, part),
        "all_to_all": (count, count),
        "broadcast": (count, 0),
        "pair": (count, count),
    }[spec.operation.name]
    brought = torch.ones(brings, dtype=torch.float32, device=place.device)
    return Buffers(brought, torch.ones(gets, dtype=torch.float32, device=place.device) if gets else brought)


def _call(spec: Spec, own: Buffers, party: Party) -> Callable[[], object]:
    import torch.distributed as given

    dist: Any = given
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # the older name warns since 2.13
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    name = spec.operation.name
    if name == "all_reduce":
        return lambda: dist.all_reduce(own.result)
    if name == "all_gather":
        return lambda: gather(own.result, own.brought)
    if name == "reduce_scatter":
        return lambda: scatter(own.result, own.brought)
    if name == "all_to_all":
        return lambda: dist.all_to_all_single(own.result, own.brought)
    if name == "broadcast":
        return lambda: dist.broadcast(own.result, ROOT)
    assert name == "pair", name
    if party.rank not in spec.pair:
        return lambda: None
    peer = sum(spec.pair) - party.rank

    def both_ways() -> None:
        sent = dist.P2POp(dist.isend, own.brought, peer)
        received = dist.P2POp(dist.irecv, own.result, peer)
        for request in dist.batch_isend_irecv([sent, received]):
            request.wait()

    return both_ways


def _asked(call: Callable[[], object], party: Party) -> Callable[[], object]:
    def asked() -> None:
        with party.asking():
            call()

    return asked


class _Check:
    """Known data in, the call, every element of the result compared; another turn each time, so nothing is stale."""

    def __init__(self, spec: Spec, own: Buffers, party: Party, call: Callable[[], object], device: str) -> None:
        self._spec, self._own, self._party, self._call, self._device = spec, own, party, call, device
        self._turn = 0

    def error(self) -> float:
        """0 where every rank has the right result; raises with the rank and the element where one has not."""
        self._turn += 1
        own, spec, party = self._own, self._spec, self._party
        if own.result is not own.brought:
            own.result.fill_(math.nan)
        self._pattern((party.rank,), 0).fill(own.brought)
        self._call()
        party.wait()
        takes_part = not spec.pair or party.rank in spec.pair
        wrong = self._wrong() if takes_part else None
        said = [(rank, each) for rank, each in enumerate(party.agree(wrong)) if each is not None]
        if said:
            rank, first = said[0]
            party.wrong.add(spec.case_id)
            sent = f" of what rank {first.sender} sent" if first.sender >= 0 else ""
            more = {1: "", 2: "; another rank is wrong too"}.get(
                len(said), f"; {len(said) - 1} other ranks are wrong too"
            )
            raise WrongResult(
                f"rank {rank} got {first.found:.9g} at element {first.element}{sent}, where {first.right:.9g} is right"
                f"{more}"
            )
        return 0.0

    def audit(self, _: float) -> None:
        """After the times were taken the result must still be right."""
        self.error()

    def _wrong(self) -> Wrong | None:
        """The first wrong element of this rank's result."""
        own, party, name = self._own, self._party, self._spec.operation.name
        everybody = tuple(range(party.count))
        count = own.result.numel()
        if name == "all_reduce":
            return self._pattern(everybody, 0).wrong_in(own.result)
        if name == "reduce_scatter":
            return self._pattern(everybody, party.rank * count).wrong_in(own.result)
        if name == "broadcast":
            return self._sent_by(ROOT, 0, own.result)
        if name == "pair":
            return self._sent_by(sum(self._spec.pair) - party.rank, 0, own.result)
        part = count // party.count
        first = party.rank * part if name == "all_to_all" else 0
        found = (self._sent_by(rank, first, own.result[rank * part : (rank + 1) * part]) for rank in everybody)
        return next((wrong for wrong in found if wrong is not None), None)

    def _sent_by(self, rank: int, first: int, found: Tensor) -> Wrong | None:
        wrong = self._pattern((rank,), first).wrong_in(found)
        return None if wrong is None else replace(wrong, sender=rank)

    def _pattern(self, ranks: tuple[int, ...], first: int) -> Pattern:
        return Pattern(ranks, first=first, turn=self._turn, device=self._device)
