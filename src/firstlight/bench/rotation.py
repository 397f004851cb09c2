"""How a case meets the L2 cache: how many buffer sets take turns, or whether the cache is flushed instead."""

from __future__ import annotations

import enum

from firstlight.bench.case import Cache, Case, Place

LARGE = 4  # a working set of this many L2 sizes leaves nothing behind that a next call could use
ROTATED = 3  # L2 sizes that all sets together should have
ENOUGH = 1.5  # with this many the least recently used lines are gone when their turn comes
MOST_SETS = 64
SHARE_OF_FREE = 0.25


class Cold(enum.Enum):
    """How the cache is kept cold."""

    AS_IS = "as is"  # warm by intent, or so large that it makes no difference
    ROTATED = "rotated"
    FLUSHED = "flushed"  # one call per sample, a buffer of twice the L2 is written before each


def cache_state(case: Case, place: Place) -> Cache:
    """What the result says of the cache: a cold case with a large working set is n/a; a processor's is warm."""
    if case.cache is not Cache.COLD:
        return case.cache
    if place.l2_bytes == 0:
        return Cache.WARM
    return Cache.LARGE if case.set_bytes >= LARGE * place.l2_bytes else Cache.COLD


def sets_wanted(case: Case, place: Place) -> int:
    """Buffer sets that take turns, e.g. 29 of 6.3 MB each against an L2 of 60 MB; 1 where that makes no difference."""
    if cache_state(case, place) is not Cache.COLD or case.set_bytes <= 0:
        return 1
    wanted = -(-ROTATED * place.l2_bytes // case.set_bytes)
    affordable = int(place.free_bytes * SHARE_OF_FREE) // case.set_bytes
    return max(1, min(wanted, MOST_SETS, affordable))


def how_cold(case: Case, place: Place, *, sets: int) -> Cold:
    """What to do with the sets that were prepared: too few of them for a cold cache means flushing."""
    if cache_state(case, place) is not Cache.COLD:
        return Cold.AS_IS
    return Cold.ROTATED if sets * case.set_bytes >= ENOUGH * place.l2_bytes else Cold.FLUSHED
