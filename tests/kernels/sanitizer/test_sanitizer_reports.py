"""What compute-sanitizer prints is read whole, races are named by what orders them, an unnamed one is a fault."""

from __future__ import annotations

import pytest
from benchmarks.sanitizer import run as sanitizing
from benchmarks.sanitizer.orders import UNNAMED, grouped
from benchmarks.sanitizer.reports import Place, Race, read_output, read_place
from benchmarks.sanitizer.run import tool_row

from firstlight.profile.children import Ended
from tests.kernels.sanitizer.texts import CASE, CLEAN, ENDED, item_race, line_of

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
    whole = item_race().replace("not reached: turn/32/tokens/n70/scattered/cols101\n", "")
    row = tool_row("racecheck", whole, Ended(86, in_time=True))
    [group] = row["groups"]
    assert (group["order"], group["hazards"], group["reports"], group["cases"]) == ("item slot", 32, 2, (CASE,))
    assert (group["write"]["function"], group["other"]["function"]) == ("publish_item", "next_item")
    assert row["verdict"] == "clean: 1 cases, 1 races, each named"
    assert row["orders"][0]["barriers"] == ("known", "forgotten")
    assert (row["is_clean"], row["not_reached"]) == (True, [])


def test_a_case_that_was_not_reached_is_no_clean_case() -> None:
    row = tool_row("racecheck", item_race(), Ended(86, in_time=True))
    assert row["not_reached"] == ["turn/32/tokens/n70/scattered/cols101"]
    assert (row["is_clean"], row["verdict"]) == (False, "1 cases not reached")


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
    assert row["verdict"] == "1 UNNAMED races; 1 cases not reached"
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
        (("ptx.cuh", "void load_bytes("), ("gradient_tiles.cuh", "return columns[(i >> 2) * 4]"),
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
