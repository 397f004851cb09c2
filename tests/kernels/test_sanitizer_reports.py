"""What compute-sanitizer prints is read whole, races are named by what orders them, an unnamed one is a fault."""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from benchmarks.sanitizer import run as sanitizing
from benchmarks.sanitizer.attention_cases import AttentionCase, GradientCase, mask_of, nan_in_new_memory
from benchmarks.sanitizer.cases import (
    THREAD_BLOCKS,
    WHAT,
    Case,
    ProductCase,
    SampleCase,
    _matrix,
    cases,
    run_case,
    use_lines_and_two_thread_blocks,
    with_lines,
)
from benchmarks.sanitizer.orders import ORDERS, UNNAMED, function_at, functions_of, grouped, order_of
from benchmarks.sanitizer.reports import Place, Race, read_output, read_place
from benchmarks.sanitizer.run import Ask, command_of, find_sanitizer, main, tool_row
from benchmarks.sanitizer.where import Where

from firstlight.kernels import sm90
from firstlight.kernels.block_attention import reference
from firstlight.kernels.block_attention.bits import NONE, PARTIAL
from firstlight.kernels.product import Layout
from firstlight.kernels.sm90 import attention, gradient, multiply_plan, sample_plan
from firstlight.kernels.sm90.compile import SOURCES, Variant
from firstlight.kernels.sm90.gate import find_disassembler
from firstlight.kernels.sm90.lists import WHOLE, portion_limit, steps_of
from firstlight.kernels.sm90.multiply_plan import tile_of, work_of
from firstlight.kernels.sm90.sample_plan import splits_of
from firstlight.kernels.sm90.variants import NARROW, SAMPLED
from firstlight.profile.children import Ended
from tests.kernels.sm90.emulator.build import needs_compiler
from tests.kernels.sm90.emulator.machine import STREAM, emulated_gpu

ENDED = Ended(0, in_time=True)
CLEAN = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
CASE = "multiply/16/tokens/n600/scattered"


@pytest.fixture(autouse=True)
def kernels_kept(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled is kept among the tests' own files."""
    assert pytestconfig.cache is not None
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(pytestconfig.cache.mkdir("sm90")))


def line_of(file: str, text: str) -> int:
    """Where a text stands in a kernel's source."""
    lines = (SOURCES / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def item_race() -> str:
    write, read = line_of("roles.cuh", "shared->items[place.slot] = item"), line_of("roles.cuh", "Item item = shared->")
    publish = "publish_item(Shared *, Place &, unsigned int &, const Item &, int)"
    return f"""\
========= COMPUTE-SANITIZER
about: {{"torch": "2.11.0+cu130", "gpu": "NVIDIA H200"}}
case begin: {CASE}
========= Error: Race reported between Write access at {publish}+0x1430 in roles.cuh:{write}
=========     and Read access at next_item(Shared *, const Place &)+0x770 in roles.cuh:{read} [8 hazards]
=========     and Read access at next_item(Shared *, const Place &)+0x780 in roles.cuh:{read} [24 hazards]
=========
case end: {CASE} | 1.25 s | ok
not reached: turn/32/tokens/n70/scattered/cols101
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


INVALID = """\
========= COMPUTE-SANITIZER
case begin: turn/32/tokens/n70/scattered/cols101
========= Invalid __global__ read of size 16 bytes
=========     at turn+0x160 in turn.cu:31
=========     by thread (96,0,0) in block (0,1,0)
=========     Access at 0x7f6510c00000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f6510a00000 of size 2,097,152 bytes
=========
case end: turn/32/tokens/n70/scattered/cols101 | 0.50 s | WRONG: RuntimeError: CUDA error: unspecified launch failure
========= Target application returned an error
========= ERROR SUMMARY: 1 error
"""


def test_a_race_is_read_with_both_places_its_hazards_and_the_case_it_came_in() -> None:
    [report] = read_output(item_race()).reports
    assert (report.case, report.kind, len(report.races)) == (CASE, "race, error", 2)
    first, second = report.races[1].first, report.races[1].second
    assert (first.access, first.offset, first.file) == ("Write", "0x1430", "roles.cuh")
    assert first.function == "publish_item(Shared *, Place &, unsigned int &, const Item &, int)"
    assert (second.access, second.where, report.races[1].hazards) == ("Read", f"roles.cuh:{second.line}", 24)
    assert report.text.count("\n") == 2


@pytest.mark.parametrize(
    ("text", "function", "file", "line", "offset"),
    [
        ("multiply+0x430", "multiply", "", 0, "0x430"),
        ("RAW()+0xf0 in raceGroupBasic.cu:40", "RAW()", "raceGroupBasic.cu", 40, "0xf0"),
        ("void a::b<(int)1>::c(T1)+0xa70 in /home/x/y.cuh:980", "void a::b<(int)1>::c(T1)", "y.cuh", 980, "0xa70"),
        ("0x278 in /home/x/task1.cu:113:MatMul(Matrix, Matrix)", "MatMul(Matrix, Matrix)", "task1.cu", 113, "0x278"),
        ("0x570 in void K::Impl::launch<A::B>(T1)", "void K::Impl::launch<A::B>(T1)", "", 0, "0x570"),
        ("somewhere", "somewhere", "", 0, ""),
    ],
)  # fmt: skip
def test_places_of_new_and_old_versions_are_read(text: str, function: str, file: str, line: int, offset: str) -> None:
    assert read_place(text, "Read") == Place("Read", function, offset, file, line)


def test_severities_and_single_hazards_of_other_versions_are_read() -> None:
    text = (
        "========= WARNING: Race reported between Read access at k()+0x1b0\n"
        "========= and Write access at k()+0x1d0 [1 hazard]\n=========\n"
        "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    )
    output = read_output(text)
    [race] = output.reports[0].races
    assert (race.severity, race.first.access, race.second.access, race.hazards) == ("warning", "Read", "Write", 1)
    assert output.counted == 1
    [group] = grouped([("c", race)])
    assert (group.write.access, group.other.access, group.order) == ("Write", "Read", UNNAMED)


def test_a_hazard_of_one_byte_keeps_its_address_and_is_grouped_like_the_others() -> None:
    write, read = (
        line_of("multiply_loads.cuh", "shared->present[place.slot] ="),
        line_of("multiply_products.cuh", "mine = at.shared->"),
    )
    text = (
        f"case begin: {CASE}\n"
        "========= ERROR: Potential RAW hazard detected at __shared__ 0x38490 in block (1,0,0) :\n"
        f"=========     Write Thread (288,0,0) at run_loader(MultiplyArgs &)+0x2f0 in multiply_loads.cuh:{write}\n"
        f"=========     Read Thread (33,0,0) at walk(const Item &)+0x9f0 in multiply_products.cuh:{read}\n"
        "=========     Current Value : 1, Incoming Value : 2\n=========\n"
        f"case end: {CASE} | 1.00 s | ok\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    )
    [report] = read_output(text).reports
    assert (report.kind, report.address, report.thread) == ("RAW hazard, error", "0x38490", "(1,0,0)")
    row = tool_row("racecheck", text, ENDED)
    assert [(group["order"], group["hazards"]) for group in row["groups"]] == [("present mask", 1)]
    assert row["is_clean"]


def test_an_invalid_access_keeps_its_kernel_its_line_its_thread_and_its_address() -> None:
    output = read_output(INVALID)
    [report] = output.reports
    assert report.kind == "Invalid __global__ read of size 16 bytes"
    assert report.places == (Place("Read", "turn", "0x160", "turn.cu", 31),)
    assert (report.thread, report.address) == ("by thread (96,0,0) in block (0,1,0)", "0x7f6510c00000")
    assert report.text.endswith("of size 2,097,152 bytes")
    row = tool_row("memcheck", INVALID, Ended(86, in_time=True))
    assert row["verdict"] == "1 errors; wrong numbers in 1 cases"
    assert not row["is_clean"]


def test_barrier_errors_and_reads_of_what_was_never_written_are_reports() -> None:
    text = (
        "========= Barrier error detected. Divergent thread(s) in warp.\n"
        "=========     at attention+0xb0 in attention.cu:20\n=========     by thread (0,0,0) in block (0,0,0)\n"
        "=========\n"
        "========= Uninitialized __global__ memory read of size 4 bytes\n"
        "=========     at void at::native::vectorized_elementwise_kernel<4>(int)+0x88\n"
        "=========     by thread (1,0,0) in block (0,0,0)\n=========     Address 0x7f0\n=========\n"
        f"case begin: {CASE}\ncase end: {CASE} | 1.00 s | ok\n========= ERROR SUMMARY: 2 errors\n"
    )
    row = tool_row("synccheck", text, ENDED)
    assert [report["kind"] for report in row["reports"]] == ["Barrier error detected. Divergent thread(s) in warp."]
    assert row["elsewhere"][0].startswith("Uninitialized __global__")  # torch's kernel: kept, and not our fault
    assert row["verdict"] == "1 errors"


def test_the_tools_own_trouble_is_no_clean_result() -> None:
    text = (
        f"case begin: {CASE}\n========= Warning: Detected overflow of tracked cuda::barrier structures. Results might "
        f"be incorrect. Try using --num-cuda-barriers to fix the issue\n=========\n"
        f"case end: {CASE} | 1.00 s | ok\n{CLEAN}\n"
    )
    row = tool_row("racecheck", text, ENDED)
    assert row["verdict"].startswith("the tool's own trouble: Warning: Detected overflow")
    assert tool_row("racecheck", text.replace("Detected overflow", "Some remark"), ENDED)["is_clean"]


def test_a_run_that_was_cut_off_keeps_its_cases_and_is_not_clean() -> None:
    text = f"case begin: {CASE}\ncase end: {CASE} | 1.00 s | ok\ncase begin: sample/16/tokens/n200\n"
    row = tool_row("racecheck", text, Ended(-9, in_time=False))
    assert [case["verdict"] for case in row["cases"]] == ["ok", "cut off"]
    assert (row["status"], row["verdict"]) == ("its time was up", "no summary: its time was up or it failed")
    assert tool_row("racecheck", CLEAN, ENDED)["verdict"] == "no case was run"


def test_a_race_of_the_item_slot_is_named_with_its_barriers_and_the_run_is_clean() -> None:
    row = tool_row("racecheck", item_race(), Ended(86, in_time=True))
    [group] = row["groups"]
    assert (group["order"], group["hazards"], group["reports"], group["cases"]) == ("item slot", 32, 2, (CASE,))
    assert (group["write"]["function"], group["other"]["function"]) == ("publish_item", "next_item")
    assert row["verdict"] == "clean: 1 cases, 1 races, each named"
    assert row["orders"][0]["barriers"] == ("known", "forgotten")
    assert row["not_reached"] == ["turn/32/tokens/n70/scattered/cols101"]


def test_a_race_that_no_row_has_is_unnamed_and_comes_first() -> None:
    line = line_of("multiply_products.cuh", "at.shared->present[at.place.slot] >> at.half")
    write = line_of("roles.cuh", "shared->items[place.slot] = item")
    text = item_race().replace("=========\ncase end", (
        "=========\n"
        f"========= Error: Race reported between Write access at publish_item(Shared *)+0x10 in roles.cuh:{write}\n"
        f"=========     and Read access at walk(const Item &)+0x20 in multiply_products.cuh:{line} [3 hazards]\n"
        "=========\ncase end"
    ))  # fmt: skip
    row = tool_row("racecheck", text, ENDED)
    assert row["groups"][0]["order"] == UNNAMED
    assert row["verdict"] == "1 UNNAMED races"
    assert any("** UNNAMED **: write in publish_item" in line for line in sanitizing.told("racecheck", row))


def test_two_writes_are_named_either_way_round() -> None:
    copy = Place("Write", "multiply", "0x1", "ptx.cuh", line_of("ptx.cuh", "cp.async.bulk.tensor.3d.shared"))
    store = Place("Write", "multiply", "0x2", "ptx.cuh", line_of("ptx.cuh", "stmatrix.sync.aligned.m8n8.x4.shared"))
    for first, second in ((copy, store), (store, copy)):
        [group] = grouped([("c", Race("error", first, second, 1))])
        assert group.order == "staging of results"


@pytest.mark.parametrize(
    ("write", "other", "named"),
    [
        (("gradient.cu", "shared->items[at.seat.slot] ="), ("gradient.cu", "Item item = shared->"), "item of a seat"),
        (("gradient.cu", "shared->marks[slot] ="), ("gradient.cu", "Mark mark = at.shared->"), "mark of a stage"),
        (("ptx.cuh", "stmatrix.sync.aligned.m8n8.x4.shared"), ("attention_ptx.cuh", "scores_first(float (&d)[32], u64"),
         "results in the place of F and G"),
        (("ptx.cuh", "stmatrix.sync.aligned.m8n8.x4.shared"), ("attention_ptx.cuh", "void store_half("),
         "staging of results"),
        (("attention_ptx.cuh", "void load_rows("), ("attention_ptx.cuh", "void store_half("),
         "results on their way out of a seat"),
        (("ptx.cuh", "void load_bytes("), ("gradient.cu", "return columns[(i >> 2) * 4]"),
         "blocks and sums of rows by plain bulk copy"),
        (("attention_queue.cuh", "counter.work = work"), ("attention_queue.cuh", "Work work = counter.work"),
         "item on its way from the queue"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)  # fmt: skip
def test_races_of_the_gradients_are_named_by_what_orders_them(
    write: tuple[str, str], other: tuple[str, str], named: str
) -> None:
    first, second = (
        Place(access, "gradient", "0x1", file, line_of(file, text))
        for access, (file, text) in (("Write", write), ("Read", other))
    )
    [group] = grouped([("gradient/d64/causal/300x300/keys2", Race("error", first, second, 1))])
    assert group.order == named


# ---------------------------------------------------------------------------------------------------------- the table


def source(name: str) -> str:
    return (SOURCES / name).read_text()


ALL_SOURCES = tuple(path.name for path in sorted(SOURCES.iterdir()) if path.suffix in (".cu", ".cuh"))


def test_every_function_and_barrier_of_the_table_is_in_the_sources() -> None:
    functions = {name for file in ALL_SOURCES for _, name in functions_of(file)}
    members = {
        word
        for file in ("roles.cuh", "attention.cu", "gradient.cu", "attention_queue.cuh")
        for struct in re.findall(r"struct (?:Shared|Counter) \{(.*?)\};", source(file), re.DOTALL)
        for word in re.findall(r"\w+", struct)
    }
    for order in ORDERS:
        assert not {*order.writes, *order.others} - functions, order.name
        assert not set(order.barriers) - members - functions - {"__syncthreads"}, order.name
        assert order_of(order.writes[0], order.others[0]) == order.name


def test_the_function_of_a_line_is_found_in_headers_templates_and_kernels() -> None:
    def at(file: str, text: str) -> str:
        return function_at(Place("", "", "", file, line_of(file, text)))

    assert at("multiply_loads.cuh", "shared->present[place.slot] = present") == "run_loader"
    assert at("multiply.cu", "run_consumer(args, shared, base, warpgroup)") == "multiply"
    assert at("ptx.cuh", "cp.async.bulk.wait_group.read") == "stores_read"
    assert function_at(Place("", "void x::walk<1>(int)", "0x1", "", 0)) == "walk<1>"


FILE_LINE = re.compile(r'//## File "([^"]+)", line (\d+)')
ACCESS = re.compile(r"\b(?:LDS|STS|LDSM|STSM|UBLKCP|UTMALDG|UTMASTG|ATOMS)\b")
NEVER = {"seem_used", "still_needed"}  # stores behind a branch that is never taken
SYNCED = {"turn"}  # one tile, __syncthreads between its writes and its reads: a race there would be one


@pytest.mark.parametrize(
    "case",
    [
        ProductCase(16, Layout.TOKENS, 600), ProductCase(64, Layout.COLUMNS, 40),
        SampleCase(128, Layout.TOKENS, 200), AttentionCase(64, 64, "causal", 300, 300),
        AttentionCase(128, 128, "causal", 300, 300), GradientCase(128, "causal", 300, 300),
        GradientCase(64, "causal", 300, 300, bf16=True),
    ],
    ids=lambda case: case.id,
)  # fmt: skip
def test_every_instruction_that_touches_shared_memory_is_in_a_function_of_the_table(case: Case, tmp_path: Path) -> None:
    """So a place that racecheck may name is one that somebody has thought about."""
    known = {name for order in ORDERS for name in (*order.writes, *order.others)} | NEVER | SYNCED
    found = {name for variant in case.variants for name in touching(variant, tmp_path)}
    assert found - known == set()
    assert len(found) >= 4


def touching(variant: Variant, folder: Path) -> set[str]:
    path = folder / "kernel.cubin"
    path.write_bytes(with_lines(variant).cubin)
    listing = subprocess.run([find_disassembler(), "-g", "-c", str(path)], capture_output=True, text=True, check=True)
    found, place = set(), Place("", "", "", "", 0)
    for line in listing.stdout.splitlines():
        if told := FILE_LINE.search(line):
            place = Place("", "", "", told.group(1).rpartition("/")[2], int(told.group(2)))
        elif ACCESS.search(line):
            found.add(function_at(place))
    return found


# ---------------------------------------------------------------------------------------------------------- the cases


def test_the_cases_are_of_all_blocks_layouts_tiles_heads_and_kinds_of_rows() -> None:
    products = [case for case in cases(("multiply",)) if isinstance(case, ProductCase)]
    for block in (16, 32, 64, 128):
        mine = [case for case in products if case.block == block]
        assert {case.layout for case in mine} == set(Layout)
        assert (
            {case.turned for case in mine}
            == {case.bf16 for case in mine}
            == {case.finish for case in mine}
            == {False, True}
        )
        assert {case.n <= NARROW.tokens for case in mine} == {False, True}
    attentions = [case for case in cases(("attention",)) if isinstance(case, AttentionCase)]
    assert {(case.block, case.head_dim) for case in attentions} == {(128, 128), (128, 64), (64, 128), (64, 64)}
    gradients = [case for case in cases(("gradient",)) if isinstance(case, GradientCase)]
    assert {(case.head_dim, case.bf16) for case in gradients} == set(itertools.product((128, 64), (False, True)))
    assert {(case.head_dim, case.with_lse) for case in gradients} == set(itertools.product((128, 64), (False, True)))
    assert {(case.head_dim, case.key_heads < 4) for case in gradients} == set(
        itertools.product((128, 64), (False, True))
    )
    assert len({case.id for case in cases(WHAT)}) == len(cases(WHAT))


def test_the_gradients_have_rows_and_columns_without_blocks_partial_ones_and_more_stages_than_the_rings() -> None:
    kinds = {case: mask_of(case).kinds for case in cases(("gradient",)) if isinstance(case, GradientCase)}
    assert any(bool((each == PARTIAL).any()) for each in kinds.values())
    assert any(bool((each == NONE).all(3).any()) and each.shape[1] > 1 for each in kinds.values())
    assert any(bool((each == NONE).all(2).any()) and each.shape[1] > 1 for each in kinds.values())
    assert any(case.q_len % 128 and case.k_len % 128 for case in kinds)
    for head_dim, stages in ((128, 3), (64, 6)):
        blocks = [int((each != NONE).sum()) for case, each in kinds.items() if case.head_dim == head_dim]
        assert max(blocks) * 2 > 2 * stages * THREAD_BLOCKS


def test_memory_that_a_kernel_leaves_out_holds_nan_and_only_there() -> None:
    with nan_in_new_memory():
        assert torch.empty(3, dtype=torch.float16).isnan().all()
        assert torch.empty_like(torch.zeros(2, 2)).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda dq, dk, dv: dq[0, 0, 0, 0].fill_(torch.nan), "NaN is left in dq"),
        (lambda dq, dk, dv: dk.mul_(1.01), "the error of dk is 0.01 of its norm"),
        (lambda dq, dk, dv: dv[0, 1, 5].fill_(1e-7), "dv is not 0 where nothing is seen"),
    ],
    ids=["NaN", "off", "not 0"],
)
def test_a_wrong_gradient_is_told(spoil: Callable[..., object], said: str) -> None:
    def backward(*given: Any, **named: Any) -> Any:
        found = reference.backward(*given, **named)
        spoil(*found)
        return found

    case = GradientCase(64, "empty columns", 200, 300)
    assert run_case(case, Where("cpu", sm90, cast(Any, SimpleNamespace(backward=backward)))) == said


def test_a_gradient_that_triton_would_compute_is_no_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.sanitizer.attention_cases.why_not", lambda *given: "blocks of 64")
    fault = run_case(GradientCase(64, "full", 64, 77), Where("cpu", sm90, reference))
    assert fault == "this is not the Hopper kernel's: blocks of 64"


def test_the_cases_that_are_to_be_cut_into_portions_are() -> None:
    for case in cases(("multiply",)):
        if isinstance(case, ProductCase) and case.pattern in ("one row", "uneven") and not case.turned:
            work = work_of(case.problem, _matrix(case).index, tile_of(case.problem, THREAD_BLOCKS), THREAD_BLOCKS)
            assert portion_limit(work) != WHOLE, case.id
    long = [case for case in cases(("sample",)) if isinstance(case, SampleCase) and case.n == 1024]
    for case in long:
        steps = steps_of(_matrix(case).index, width=SAMPLED.tokens // case.block, grouped=False)
        assert splits_of(steps.bound, case.n // 64, THREAD_BLOCKS) > 1, case.id
    assert long


def test_the_first_cases_run_on_the_processor_by_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry", "--most", "5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    ended = [line for line in lines if line.startswith("case end:")]
    assert len(ended) == 5
    assert all(line.endswith("| ok") for line in ended)
    assert {line.split()[2].partition("/")[0] for line in ended} == set(WHAT)


def test_a_wrong_number_is_told_and_fails_the_child(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.sanitizer.cases.ROUNDING", {torch.float16: -1.0})
    assert main(["--dry", "--most", "1", "--what", "turn"]) == 3
    assert "elements off, first [0, 0]" in capsys.readouterr().out


@needs_compiler
def test_cases_of_every_kind_run_the_kernels_themselves_in_the_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU of two multiprocessors, through the plans; the sanitizer alone is missing."""
    monkeypatch.setattr(attention, "_raw_stream", lambda device: STREAM)
    with emulated_gpu(tmp_path, multiprocessors=THREAD_BLOCKS) as gpu:
        attention._kernel.cache_clear()
        for name in WHAT:
            for case in cases((name,))[:: 11 if name == "multiply" else 4]:
                assert run_case(case, Where("cpu", sm90, attention)) == "", case.id
        assert {grid[0] for grid in gpu.grids} >= {THREAD_BLOCKS}
    attention._kernel.cache_clear()


def test_the_child_takes_kernels_with_line_numbers_and_two_thread_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: tuple[Any, ...] = (multiply_plan, sample_plan, attention, gradient)
    for module in modules:
        for name in ("built", "multiprocessors"):
            monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    use_lines_and_two_thread_blocks()
    assert [module.multiprocessors(0) for module in modules] == [THREAD_BLOCKS] * 4
    for module, name in ((attention, "attention"), (gradient, "gradient")):
        command = module.built(cases((name,))[0].variants[0]).command
        assert "-lineinfo" in command
        assert "FIRSTLIGHT_DEBUG" not in command


# -------------------------------------------------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tool", "memchek"], "--tool: memchek is not known; accepted: memcheck,racecheck,synccheck,initcheck"),
        (
            ["--what", "multiply,divide"],
            "--what: divide is not known; accepted: multiply,sample,turn,attention,gradient",
        ),
        ([], "--out FILE and --commit HASH are needed"),
        (["--judge", "/nonexistent"], "--judge /nonexistent: no result of this script"),
    ],
)
def test_a_bad_call_says_what_is_accepted(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_tool_is_found_on_the_path_then_in_cuda_home_then_under_usr_local(tmp_path: Path) -> None:
    assert find_sanitizer({"PATH": str(tmp_path)}, root=tmp_path) == ""
    old = executable(tmp_path / "usr/local/cuda-12.9/bin/compute-sanitizer", "")
    new = executable(tmp_path / "usr/local/cuda-13.0/compute-sanitizer/compute-sanitizer", "")
    assert find_sanitizer({"PATH": ""}, root=tmp_path) == str(new)
    assert find_sanitizer({"PATH": "", "CUDA_HOME": str(old.parents[1])}, root=tmp_path) == str(old)
    first = executable(tmp_path / "bin/compute-sanitizer", "")
    assert find_sanitizer({"PATH": str(first.parent)}, root=tmp_path) == str(first)


def test_without_the_tool_the_answer_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if find_sanitizer({"PATH": ""}):
        pytest.skip("this machine has one under /usr/local")
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        main(["--out", str(tmp_path / "x.json"), "--commit", "abc"])
    assert stop.value.code == 2
    assert "was not found on PATH, in CUDA_HOME" in capsys.readouterr().err


def test_only_our_kernels_are_slowed_but_initcheck_sees_all_writes() -> None:
    race = command_of("/x/compute-sanitizer", Ask("racecheck", ("multiply",), 5.0))
    assert [word for word in race if word.startswith("kne=")] == ["kne=multiply", "kne=turn"]
    assert "--num-cuda-barriers" in race
    assert "--report-api-errors" not in race
    assert not any("kernel-name" in word for word in command_of("x", Ask("initcheck", ("multiply",), 5.0)))
    memory = command_of("x", Ask("memcheck", ("attention",), 5.0))
    assert memory[memory.index("--report-api-errors") + 1] == "no"


STAND_IN = """\
#!{python}
import subprocess, sys
if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Compute Sanitizer\\nVersion 2025.3.1.0 (build 36398880) (public-release)")
    sys.exit(0)
tool = sys.argv[sys.argv.index("--tool") + 1]
child = sys.argv[sys.argv.index("-m") - 1:]
child[child.index("--child")] = "--dry"
print("========= COMPUTE-SANITIZER", flush=True)
status = subprocess.call(child)
if tool == "racecheck":
    print("========= Error: Race reported between Write access at turn+0x10 in turn.cu:43")
    print("=========     and Read access at turn+0x20 in turn.cu:53 [2 hazards]\\n=========")
    print("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)")
else:
    print("========= ERROR SUMMARY: 0 errors")
sys.exit(status or (86 if tool == "racecheck" else 0))
"""


def test_a_whole_run_is_written_down_and_an_unnamed_race_can_be_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stand-in speaks the tool's language and runs the child on the processor."""
    executable(tmp_path / "bin/compute-sanitizer", STAND_IN.format(python=sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{Path.cwd() / 'src'}:{Path.cwd()}")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    out = tmp_path / "result.json"
    common = ["--out", str(out), "--commit", "abc", "--what", "turn", "--most", "1", "--jobs", "0", "--budget-s", "500"]
    assert main([*common, "--tool", "memcheck,racecheck"]) == 1
    found = json.loads(out.read_text())
    assert (found["schema"], found["commit"]) == ("firstlight.kernels-sanitizer/1", "abc")
    assert found["sanitizer"] == "2025.3.1.0 (build 36398880)"
    assert found["tools"]["memcheck"]["verdict"] == "clean: 1 cases, no report"
    race = found["tools"]["racecheck"]
    assert race["groups"][0]["order"] == UNNAMED
    assert race["command"][:3] == ["compute-sanitizer", "--tool", "racecheck"]
    assert main(["--judge", str(out)]) == 1
    assert main([*common, "--tool", "memcheck"]) == 1  # racecheck's of the same commit stays
    assert json.loads(out.read_text())["tools"].keys() == {"memcheck", "racecheck"}
    race["output"] = [line for line in race["output"] if "Race" not in line and "and Read" not in line]
    out.write_text(json.dumps(found))
    assert main(["--judge", str(out)]) == 0
    assert "racecheck: clean: 1 cases, no report" in capsys.readouterr().out
