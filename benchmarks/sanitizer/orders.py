"""Which barrier orders what racecheck may report in our kernels, and why it cannot see it.

racecheck follows bar.sync, __syncwarp and the mbarriers it knows of, thread by thread. A report between two places is
named when a row below has both: the accesses are then ordered by the barriers of that row, which the sources show. Any
other report is UNNAMED, and a fault until somebody has shown its order here. A place is the function of the source line
in which the access stands, so that rows outlive edits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.sanitizer.reports import Place, Race

from firstlight.frozen import dataclass
from firstlight.kernels.sm90.compile import SOURCES

UNNAMED = "UNNAMED"
_DEFINITION = re.compile(r"^[^/]*(?:__device__|__global__)(.*)$")
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
LOADED_BY_MATRIX = ("load_matrices", "load_matrices_turned")
STORED_BY_MATRIX = ("store_matrices", "store_matrices_turned")
TENSOR_COPIES = ("load_box_3d", "load_box_4d", "load_box_3d_for", "load_rows")
PRODUCTS = ("wgmma_shared", "wgmma_registers", "scores_first", "scores_more", "values_more")


@dataclass(frozen=True, slots=True)
class Order:
    """Two sides that touch the same shared memory: 'item slot', written in publish_item, read in next_item."""

    name: str
    writes: tuple[str, ...]  # functions
    others: tuple[str, ...]  # functions that read, or write again
    barriers: tuple[str, ...]  # members of a kernel's Shared, or functions that synchronise
    why: str


ORDERS: tuple[Order, ...] = (
    Order(
        "item slot",
        ("publish_item",),
        ("next_item", "first_row"),
        ("known", "forgotten"),
        "Read after write: lanes write the item's rows, __syncwarp, lane 0 writes the item, then arrives at "
        "known[slot]; every warp waits there first. Write after read: __syncwarp after the read, then lane 0 of each "
        "of the 11 warps arrives at forgotten[slot], and the queue waits for all of them before it writes the slot "
        "again.",
    ),
    Order(
        "present mask",
        ("run_loader",),
        ("walk", "find_stage", "run_loader"),
        ("full", "empty"),
        "Read after write: lane 0 writes the mask, then arrives at full[slot] with the bytes; a warpgroup reads it "
        "behind its wait. Write after read: release() is __syncwarp and an arrival of each of the 8 warps at "
        "empty[slot], for which the next loader of that slot waits; two loaders of one slot are ordered by both.",
    ),
    Order(
        "who was last",
        ("sum_of_portions",),
        ("sum_of_portions",),
        ("meet",),
        "Thread 0 writes is_last between two meetings of its warpgroup (bar.sync); the others read behind "
        "the second one, and the next write comes behind the first meeting of the next sum.",
    ),
    Order(
        "blocks and sums of rows by plain bulk copy",
        ("load_bytes",),
        (*LOADED_BY_MATRIX, "at", "load_bytes"),
        ("full", "empty"),
        "cp.async.bulk without a tensor map is taken for a write of the thread that issues it. Its bytes are complete "
        "when full[slot] turns (complete_tx), behind which ldmatrix reads, and Vector::at the sums that belong to a "
        "tile of queries; the slot is filled again after all 8 warps arrived at empty[slot], the latter behind a "
        "product issued after the read. racecheck does not follow complete_tx from one warp to another around a loop.",
    ),
    Order(
        "tiles by tensor copies",
        TENSOR_COPIES,
        (*LOADED_BY_MATRIX, *PRODUCTS, *TENSOR_COPIES, "multiply"),
        ("full", "empty"),
        "The same for copies by a tensor map (full and empty; seated and left for queries, addend for the addend's "
        "chunk): read behind the barrier that counts the bytes, filled again behind the one its readers arrive at. In "
        "a cluster the readers of both thread blocks arrive at both empty[slot], as each fills a part of both. The "
        "compiler counts an ldmatrix of the addend's chunk to the kernel's own lines now and then.",
    ),
    Order(
        "number for the other thread block of a cluster",
        ("tell",),
        ("next_number",),
        ("told", "taken"),
        "Read after write: the number's 4 bytes complete told[slot] in the thread block that reads it, behind its "
        "wait. Write after read: __syncwarp, then lane 0 arrives at taken[slot] in the thread block that writes, which "
        "waits there before it tells the next number for that slot.",
    ),
    Order(
        "staging of results",
        STORED_BY_MATRIX,
        ("store_box_3d", "store_box_3d_passing", "store_rows", "store_half", *TENSOR_COPIES),
        ("meet", "meet_two", "stores_read", "publish_shared", "seated", "left"),
        "Read after write: fence.proxy.async by every thread, then a meeting of the warpgroup, or of the warp where "
        "each has its own staging; then one thread starts the copy. Write after read: that thread waits until its "
        "copies have read (wait_group.read), then a meeting. The gradients' staging is the seat of F and G: written "
        "behind seated[seat], filled with the next ones after each warp waited for its copies and arrived at "
        "left[seat].",
    ),
    Order(
        "results in the place of F and G",
        STORED_BY_MATRIX,
        PRODUCTS,
        ("wgmma_wait", "meet"),
        "Write after read: every warp waits for all of its products (wgmma_wait<0>), then its warpgroup meets, and "
        "then results are written over the 64 rows of F and G that this warpgroup alone reads. The other way round, "
        "products of the next item in that seat, the copies of its F and G lie between.",
    ),
    Order(
        "results on their way out of a seat",
        TENSOR_COPIES,
        ("store_half",),
        ("stores_read", "left"),
        "Write after read: lane 0 of each of the 8 warps waits until its copies have read (wait_group.read), then "
        "arrives at left[seat], for which the loading thread waits before it fills the seat again.",
    ),
    Order(
        "mark of a tile",
        ("load_tile",),
        ("mark_at",),
        ("full", "empty"),
        "Read after write: the loading thread writes the mark, then arrives at full[slot] with the bytes. Write after "
        "read: each warp arrives at empty[slot] behind the wait for a product that it issued after its read.",
    ),
    Order(
        "mark of a stage",
        ("load_stage", "load_all"),
        ("walk", "add_all"),
        ("full", "empty", "made", "gone"),
        "The same for gradients: written before the arrival at full[slot], read behind the wait for it; lane 0 of a "
        "warp arrives at empty[slot] behind the wait for products that the warp issued after its read. In one pass "
        "there are 8 marks, and who adds reads one behind made[place]; it is written anew when its stage and the one "
        "behind it in that place, for which gone[place] is waited for, are long over.",
    ),
    Order(
        "item on its way from the queue",
        ("run_queue",),
        ("take_work", "load_all"),
        ("known", "taken"),
        "Read after write: the thread of the queue writes the item, then arrives at known. Write after read: the "
        "loading thread arrives at taken behind its read, and the queue waits for that before it takes the next.",
    ),
    Order(
        "item of a query block",
        ("seat_queries",),
        ("item_at",),
        ("seated", "left"),
        "Read after write: the loading thread writes the item, then arrives at seated[seat] with the bytes, or without "
        "for the last. Write after read: an arrival of each warp at left[seat], with blocks of 64 behind __syncwarp, "
        "with blocks of 128 behind products that it issued after its read.",
    ),
    Order(
        "item of a seat",
        ("seat_item",),
        ("consume",),
        ("seated", "left"),
        "The same for gradients: written before the arrival at seated[seat], read behind the wait for it. Write after "
        "read: the warpgroup meets behind the read, and lane 0 of each of the 8 warps arrives at left[seat] in its "
        "next item, for which the loading thread waits before it writes the seat's item again.",
    ),
    Order(
        "sums on their way",
        ("store_four",),
        ("store_bytes", "add_floats"),
        ("made", "gone", "publish_shared", "stores_read"),
        "Read after write: fence.proxy.async by every thread, __syncwarp, and lane 0 of each of the 8 warps arrives at "
        "made[place]; the thread that adds waits there. Write after read: it waits until the copy has read "
        "(wait_group.read), then arrives at gone[place], for which every warp waits before it writes that place.",
    ),
    Order(
        "differences of two warpgroups",
        STORED_BY_MATRIX,
        ("turned_first", "turned_more"),
        ("take_turn", "publish_shared", "wgmma_wait"),
        "Read after write: fence.proxy.async by every thread, then both warpgroups meet. Write after read: there are "
        "two places, and each waits for its products of a stage before it meets the other in the next.",
    ),
    Order(
        "start of the barriers",
        ("barrier_init", "start_barriers"),
        ("barrier_arrive", "barrier_arrive_in", "barrier_expect", "barrier_wait", "tell"),
        ("__syncthreads", "meet_cluster"),
        "Thread 0 makes the barriers, fences them, and __syncthreads follows before anybody uses one, or a meeting of "
        "the cluster where another thread block may use it.",
    ),
)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a group: its access and where it is, by function and by line."""

    access: str
    function: str
    where: str


@dataclass(frozen=True, slots=True)
class Group:
    """All races between the same two places: hazards in sum, the cases they came in, the order that has them."""

    write: Side
    other: Side
    severity: str
    hazards: int
    reports: int
    cases: tuple[str, ...]
    order: str  # name of an Order, or UNNAMED

    @property
    def is_named(self) -> bool:
        return self.order != UNNAMED


@functools.lru_cache(maxsize=32)
def functions_of(file: str, folder: Path = SOURCES) -> tuple[tuple[int, str], ...]:
    """First line and name of each function of a source, e.g. ((76, 'publish_item'), ...); () where there is no such."""
    path = folder / file
    if not path.is_file():
        return ()
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if definition := _DEFINITION.match(line):
            names = [name for name in _CALLED.findall(definition.group(1)) if not name.startswith("__")]
            if names:
                found.append((number, names[0]))
    return tuple(found)


def function_at(place: Place, folder: Path = SOURCES) -> str:
    """The function whose text holds the line; without a line the name that the tool gave, less its arguments."""
    before = [name for first, name in functions_of(place.file, folder) if first <= place.line] if place.file else []
    if before:
        return before[-1]
    return place.function.partition("(")[0].rpartition("::")[2].rpartition(" ")[2] or place.function


def order_of(write: str, other: str) -> str:
    """The name of the order that has both functions, else UNNAMED."""
    return next((order.name for order in ORDERS if write in order.writes and other in order.others), UNNAMED)


def grouped(races: Iterable[tuple[str, Race]], folder: Path = SOURCES) -> tuple[Group, ...]:
    """Races with their cases, by place of the write and of the other access; UNNAMED first, then by hazards."""
    found: dict[tuple[Side, Side], list[tuple[str, Race]]] = {}
    for case, race in races:
        write, other = (race.first, race.second) if race.first.access == "Write" else (race.second, race.first)
        key = (_side(write, folder), _side(other, folder))
        if other.access == "Write" and order_of(key[0].function, key[1].function) == UNNAMED:
            key = key[::-1]  # two writes: a row may know them the other way round
        found.setdefault(key, []).append((case, race))
    groups = [_group(*sides, members) for sides, members in found.items()]
    return tuple(sorted(groups, key=lambda group: (group.is_named, -group.hazards)))


def _side(place: Place, folder: Path) -> Side:
    return Side(place.access, function_at(place, folder), place.where)


def _group(write: Side, other: Side, members: Sequence[tuple[str, Race]]) -> Group:
    severity = "error" if any(race.severity == "error" for _, race in members) else members[0][1].severity
    return Group(
        write,
        other,
        severity,
        sum(race.hazards for _, race in members),
        len(members),
        tuple(dict.fromkeys(case for case, _ in members)),
        order_of(write.function, other.function),
    )
