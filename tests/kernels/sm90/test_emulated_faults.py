"""Faults planted into multiply.cu, each of which the emulator must notice: by a report, or by wrong numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.kernels.product import Epilogue, Layout, Second
from tests.kernels.products import Case
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.faults import NUMBERS, Change, Planted, assert_noticed
from tests.kernels.sm90.emulator.machine import emulated_gpu
from tests.kernels.sm90.emulator.products import case_of, multiplied, randn, random, wrong
from tests.kernels.sm90.emulator.run import EmulatedFault

pytestmark = needs_compiler
COLUMNS = Layout.COLUMNS
_LOADS, _PRODUCTS, _RESULTS, _CONSUMER = (
    f"multiply_{part}.cuh" for part in ("loads", "products", "results", "consumer")
)
_TAKE = "      late.take(args, d, bias);\n"
_FETCH = "    if (IS_GATED && c + 1 < CHUNKS) fetch_gate(args, at, c + 1);\n"
_WAITED = "      wait_addend(at, known);\n"
_RELEASE = "    at.release(at.held);\n    at.hold(left);\n"
_STORE = "      publish_shared();\n      meet_to_store(at);\n      if (is_storing(at)) {\n#pragma unroll\n"
_FIRST = "#if WITHOUT & WITHOUT_PRODUCTS\n"
_EMPTY = "barrier_init(shared_address(&shared->empty[i]), CONSUMER_WARPS * CLUSTER)"
PLANTED = (
    Planted(
        "a stage is released before the wait that its product is done at",
        (Change(_PRODUCTS, f"    wgmma_wait<1>();\n{_RELEASE}", f"{_RELEASE}    wgmma_wait<1>();\n"),),
        (NUMBERS,),
    ),
    Planted(
        "the bytes of the stored blocks are not announced",
        (Change(_LOADS, "__popc(present) * MEMBER_BYTES + tiles * X_BYTES", "tiles * X_BYTES"),),
        ("nothing can go on", "one more arrival", NUMBERS),
    ),
    Planted(
        "the loaders start with the wrong parity",
        (Change(_LOADS, "place = {which, 1}", "place = {which, 0}"),),
        ("parity 0, mbarrier at",),
    ),
    Planted(
        "staging is not published to the copy engine",
        (Change(_RESULTS, _STORE, _STORE.replace("      publish_shared();\n", "")),),
        (NUMBERS,),
    ),
    Planted(
        "a chunk is stored before all warps have staged it",
        (Change(_RESULTS, _STORE, _STORE.replace("      meet_to_store(at);\n", "")),),
        (NUMBERS,),
    ),
    Planted(
        "staging is not swizzled",
        (Change(_RESULTS, "line * 128 + ((chunk ^ (line & 7)) << 4)", "line * 128 + (chunk << 4)"),),
        (NUMBERS,),
    ),
    Planted(
        "staging is used again before it was read",
        (Change(_RESULTS, "    if (is_storing(at)) stores_read<STORE_CHUNKS - 1>();\n", ""),),
        (NUMBERS,),
        given="items",
    ),
    Planted(
        "an item of fewer stages than chunks leaves results unstored when the next ones are kept",
        (Change(_CONSUMER, "    late.store_all(args, at, known);  // an item of few stages\n", ""),),
        (NUMBERS,),
        given="items",
    ),
    Planted(
        "the thread block ends before its stores have read",
        (Change(_CONSUMER, "  if (is_storing(at)) stores_done();\n", ""),),
        (NUMBERS,),
    ),
    Planted(
        "what is added counts as there when one warp has announced its part; rooms of the others may be empty",
        (Change("roles.cuh", "ADDEND_ARRIVALS);", "1);"),),
        ("nothing can go on", "one more arrival", NUMBERS),
        runs=3,
        given="addend",
    ),
    Planted(
        "the next chunk's gate is fetched while another warp waits for this one's",
        (
            Change(_RESULTS, f"{_WAITED}    }} else {{", f"{_WAITED}{_FETCH}    }} else {{"),
            Change(_RESULTS, f"    }}\n{_FETCH}  }}\n", "    }\n  }\n"),
        ),
        ("nothing can go on",),
        given="gate",
    ),
    Planted(
        "all block rows of an item are stored at the first one's rows",
        (Change(_PRODUCTS, "shared->rows[slot][in_group / BLOCK]", "shared->rows[slot][0]"),),
        (NUMBERS,),
        block=64,
    ),
    Planted(
        "the queue is not made ready for the next launch",
        (Change("roles.cuh", "    queue[0] = 0;\n    queue[1] = 0;\n", ""),),
        (NUMBERS,),
        runs=2,
        given="items",
    ),
    Planted(
        "products begin without a fence",
        (Change(_PRODUCTS, f"  wgmma_fence();\n{_FIRST}", _FIRST),),
        ("wgmma_fence() is missing",),
    ),
    Planted(
        "accumulators are read before the last wait",
        (Change(_CONSUMER, f"      at.let_go();\n{_TAKE}", f"{_TAKE}      at.let_go();\n"),),
        (NUMBERS, "accumulators were written", "nothing can go on"),
        given="items",
    ),
    Planted(
        "the leading offset of X is off",
        (Change(_PRODUCTS, "(stage + A_BYTES, B_LEADING)", "(stage + A_BYTES, 4096)"),),
        (NUMBERS,),
        given="cluster",
    ),
    Planted(
        "the warpgroups ask for more registers than a launch gets",
        (Change("roles.cuh", "LOADER_REGISTERS) / 2;", "LOADER_REGISTERS) / 2 + 8;"),),
        ("take_registers: 72 registers a thread",),
    ),
    Planted(
        "a stage is empty after one arrival more than there are warps",
        (Change("roles.cuh", _EMPTY, _EMPTY.replace("WARPS * CLUSTER", "WARPS + 1")),),
        ("1 of 9 arrivals",),
    ),
    Planted(
        "the copy engine uses barriers that it was not told of",
        (Change("roles.cuh", "    barriers_ready();\n", ""),),
        ("barriers_ready() did not follow",),
    ),
    Planted(
        "registers are loaded anew while a product reads them",
        (Change(_PRODUCTS, "multiply_entry(odd, even);", "multiply_entry(even, even);"),),
        (NUMBERS,),
        block=32,
    ),
    Planted(
        "one warp releases a stage for its warpgroup, while another may still ask which blocks are in it",
        (
            Change("roles.cuh", _EMPTY, _EMPTY.replace("CONSUMER_WARPS * CLUSTER", "2")),
            Change(_PRODUCTS, "if (slot >= 0 && lane == 0)", "if (slot >= 0 && warp == 0 && lane == 0)"),
        ),
        ("different products", "nothing can go on", "one more arrival", NUMBERS),
        block=64,
    ),
    Planted(
        "a thread block of a cluster waits for its own warps alone before it loads for both",
        (
            Change("roles.cuh", _EMPTY, _EMPTY.replace(" * CLUSTER", "")),
            Change(_PRODUCTS, "lane < CLUSTER) barrier_arrive_in(shared_address(&shared->empty[slot]), lane);",
                   "lane == 0) barrier_arrive(shared_address(&shared->empty[slot]));"),
        ),
        (NUMBERS, "nothing can go on", "different products"),
        given="cluster",
    ),
    Planted(
        "a thread block of a cluster ends while the other one loads into it",
        (Change("multiply.cu", "  if (CLUSTER > 1) meet_cluster();  // until", "  // until"),),
        ("has ended", "ended before this load came", "nothing can go on"),
        runs=30,
        given="cluster",
    ),
    Planted(
        "a cluster starts before the barriers of both are made",
        (Change("roles.cuh", "if (CLUSTER > 1) meet_cluster();\n  else __syncthreads();", "__syncthreads();"),),
        ("there is no mbarrier", "barriers_ready() did not follow", "not there"),
        given="cluster",
    ),
    Planted(
        "the second thread block of a cluster is told a number before it has read the last one",
        (Change("roles.cuh", "    barrier_wait(shared_address(&shared->taken[place.slot]), place.parity);\n", ""),),
        (NUMBERS, "nothing can go on", "one more arrival"),
        block=64,
        given="items",
    ),
    Planted(
        "each thread block of a cluster loads its half of W for itself alone",
        (Change(_LOADS, ": rank * 64, member, 3);", ": rank * 64, member, 1);"),),
        ("nothing can go on", NUMBERS),
        given="cluster",
    ),
)  # fmt: skip


def case_for(block: int, given: str, layout: Layout) -> Case:
    """A product: one item; `cluster`: two thread blocks; `items`: several for both; `addend`: by column with one;

    `gate`: by token with one."""
    density, cols = {128: (1.0, 768), 64: (0.3, 1024), 32: (0.3, 256)}[block]
    rows, cols = (1024, 64) if given == "items" else (128, cols)
    gate = Epilogue(beta=1.0, addend=randn(512, rows, seed=5), second=Second.MULTIPLIED)
    if (given, layout) == ("gate", Layout.TOKENS):
        return case_of(random(rows, cols, block, density=density), 512, layout, gate)
    added = Epilogue(beta=0.5, addend=randn(rows, 512, seed=5)) if (given, layout) == ("addend", COLUMNS) else None
    return case_of(random(rows, cols, block, density=density), 512 if given else 256, layout, added)


def seen_by(planted: Planted) -> str:
    """How the product goes wrong under the gpu's seed; empty: it does not."""
    for layout in (COLUMNS, Layout.TOKENS):
        case = case_for(planted.block, planted.given, layout)
        try:
            out = [multiplied(case) for _ in range(planted.runs)][-1]
        except EmulatedFault as fault:
            return str(fault)
        if wrong(case, out):
            return NUMBERS
    return ""


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_it_is_noticed_that(tmp_path: Path, planted: Planted) -> None:
    assert_noticed(planted, tmp_path, seen_by)


@pytest.mark.parametrize(("block", "given"), sorted({(planted.block, planted.given) for planted in PLANTED}))
def test_without_a_fault_the_same_products_are_right(tmp_path: Path, block: int, given: str) -> None:
    with emulated_gpu(tmp_path, multiprocessors=2) as gpu:
        for seed in range(4):
            gpu.seed = 100 * seed
            assert seen_by(Planted("none", (), (), block, runs=2, given=given)) == ""
