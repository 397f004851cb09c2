"""What Nsight Compute counts in the Hopper kernels: names checked, rows kept whole, bars judged, a table made."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.counters.figures import (
    FIGURES,
    bars,
    figures,
    kernel_name,
    names_here,
    numbers,
    percent,
    read_table,
    table_lines,
    with_counts,
)
from benchmarks.counters.run import attention_l2_bytes, joined, main, prepared

from firstlight.profile.metrics import base_name
from tools.sm90_table import nsight_part

BASES = frozenset(base_name(name) for figure in FIGURES for way in figure.ways for name in way.names)
CASE = {
    "id": "128/tokens/fp16/8192x8192x8192/0.5", "what": "multiply", "kernel": "multiply", "kernels": ["multiply"],
    "predicted_l2_to_shared_bytes": 6_442_450_944, "predicted_hbm_bytes": 335_544_320,
}  # fmt: skip
TURNED = {**CASE, "id": "32/tokens/fp16/8192x8192x8192/0.1", "kernels": ["turn", "multiply"]}
COUNTED = {
    "gpu__time_duration.sum": ("ns", 850_000),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("%", 92.72),
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active": ("%", 0.0),
    "l1tex__m_xbar2l1tex_read_bytes.sum": ("byte", 6_443_095_189),
    "lts__t_sectors_srcunit_tex_op_read.sum": ("sector", 198_651_000),
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum": ("byte", 6_442_450_944),
    "dram__bytes.sum": ("byte", 402_653_184),
    "lts__t_sector_hit_rate.pct": ("%", 94.1),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": ("", 24_617),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": ("", 442_571),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": ("", 2_461_700),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum": ("", 4_425_710),
    "smsp__inst_executed_op_shared_ld.sum": ("inst", 1_500_000),
    "smsp__inst_executed_op_ldsm.sum": ("inst", 0),
    "smsp__inst_executed_op_local_ld.sum": ("inst", 0),
    "smsp__inst_executed_op_local_st.sum": ("inst", 0),
    "sm__cycles_active.sum": ("cycle", 190_000_000),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", 18.7),
    "sm__inst_issued.avg.pct_of_peak_sustained_active": ("%", 7.4),
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active": ("%", 0.1),
    "launch__registers_per_thread": ("register/thread", 168),
}


def page(*kernels: str, **changed: Any) -> str:
    """A raw page as the tool prints it, every launch with the same counts but for what is changed."""
    counts = {**COUNTED, **changed}
    names = ("ID", "Process Name", "Kernel Name", "Block Size", "Grid Size", *counts)
    units = ("", "", "", "", "", *(unit for unit, _ in counts.values()))
    rows = [
        (str(number), "python3", kernel, "(384, 1, 1)", "(132, 1, 1)", *(f"{value:,}" for _, value in counts.values()))
        for number, kernel in enumerate(kernels)
    ]  # fmt: skip
    lines = [",".join(f'"{cell}"' for cell in row) for row in (names, units, *rows)]
    return "\n".join(["==PROF== Connected to process 7", *lines])


def test_every_name_is_asked_for_once_where_the_chip_has_it_and_what_is_missing_is_said() -> None:
    names = names_here(BASES)
    assert names.missing == ()
    assert len(set(names.asked)) == len(names.asked)
    assert "dram__bytes.sum" in names.asked
    assert "dram__bytes_read.sum" not in names.asked  # the first way was open
    fewer = names_here(BASES - {"dram__bytes", "sm__inst_executed_pipe_xu", "sm__inst_issued"})
    assert {"dram__bytes_read.sum", "dram__bytes_write.sum"} <= set(fewer.asked)
    assert "smsp__issue_active.avg.pct_of_peak_sustained_active" in fewer.asked
    assert fewer.missing == ("mufu_pct (sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active)",)


def test_a_row_becomes_figures_in_bytes_and_seconds() -> None:
    table = read_table(page("multiply"))
    [row] = table.rows
    assert kernel_name(row) == "multiply"
    found = figures(row, table.units)
    assert found["time_s"] == pytest.approx(850e-6)
    assert (found["tensor_active_pct"], found["registers"], found["local_instructions"]) == (92.72, 168.0, 0.0)
    assert found["l2_to_sm_bytes"] == 6_443_095_189
    assert kernel_name({"Kernel Name": "multiply(MultiplyArgs)"}) == "multiply"


def test_what_was_not_counted_is_none_and_no_number() -> None:
    text = page("multiply", **{"dram__bytes.sum": ("byte", 1)}).replace('"1"', '"n/a"')
    table = read_table(text)
    assert "dram__bytes.sum" not in numbers(table.rows[0], table.units)
    row = with_counts(CASE, [figures(table.rows[0], table.units)])
    assert (row["dram_bytes"], row["dram_over_least"]) == (None, None)
    assert read_table("==ERROR== nothing").rows == ()
    assert read_table('"ID","Kernel Name"').rows == ()
    assert (percent(0, 0), percent(3, None), percent(1, 200)) == (0.0, None, 0.5)


def test_a_case_is_held_against_its_prediction_and_its_bars() -> None:
    table = read_table(page("multiply"))
    [row] = joined([CASE], table)
    assert row["l2_to_sm_over_predicted"] == {"xbar2l1tex": 1.0001, "srcunit_tex_op_read": 0.9867}
    assert (row["dram_over_least"], row["load_conflicts_pct"], row["store_conflicts_pct"]) == (1.2, 1.0, 10.0)
    assert {bar["bar"]: bar["met"] for bar in row["bars"]} == {
        "tensor pipe active": True, "bytes from L2 over prediction": True, "load conflicts of loads": True,
        "local memory": True,
    }  # fmt: skip
    assert not any("met" in line for line in table_lines([row]))


def test_bars_that_are_missed_or_not_known_are_told() -> None:
    worse = {
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": ("%", 74.9),
        "l1tex__m_xbar2l1tex_read_bytes.sum": ("byte", 7_200_000_000),
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": ("", 100_000),
        "smsp__inst_executed_op_local_st.sum": ("inst", 4),
    }
    table = read_table(page("multiply", **worse))
    [row] = joined([CASE], table)
    assert [bar["met"] for bar in row["bars"]] == [False] * 4
    assert sum("NOT met" in line for line in table_lines([row])) == 4
    unknown = bars({**row, "l2_to_sm_over_predicted": {}, "load_conflicts_pct": None, "local_instructions": None})
    assert [bar["met"] for bar in unknown] == [False, None, None, None]
    assert "tensor pipe active" not in {bar["bar"] for bar in bars({**row, "id": "64/tokens/fp16/8192x8192x8192/0.5"})}


def test_a_case_of_two_launches_takes_memory_from_both_and_the_rest_from_its_kernel() -> None:
    rows = joined([TURNED, CASE], read_table(page("turn", "multiply", "multiply")))
    assert [row["dram_bytes"] for row in rows] == [805_306_368, 402_653_184]
    assert rows[0]["l2_to_sm_bytes"] == 6_443_095_189
    with pytest.raises(ValueError, match=r"launches \['turn', 'multiply'\] were announced, \['multiply', 'turn'\]"):
        joined([TURNED], read_table(page("multiply", "turn")))
    assert joined([TURNED, CASE], read_table(page("turn", "multiply")))[-1]["id"] == TURNED["id"]  # cut off behind it


def test_the_cases_run_on_the_processor_and_say_what_they_predict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry", "--most", "2"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["what"] for row in rows] == ["multiply", "multiply", "attention", "attention"]
    assert all(row["predicted_l2_to_shared_bytes"] > 0 and row["predicted_hbm_bytes"] > 0 for row in rows)
    assert rows[0]["id"] == "128/tokens/fp16/256x256x256/0.5"


def test_an_attentions_tiles_are_counted_from_its_lists() -> None:
    from benchmarks.attention.work import Problem, Sizes, mask_of

    problem = Problem("causal", Sizes(2, 3, 3, 512, 64), "causal", 0.0)
    mask = mask_of(problem, "cpu")
    heads, blocks, entries = 6, 4, 10
    tile = 128 * 64 * 2
    assert attention_l2_bytes(problem, mask) == heads * (blocks * tile + entries * 2 * tile)
    assert len(list(prepared("attention", "cpu"))) == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--what", "sample"], "--what: sample is not known; accepted: multiply,attention"),
        (["--out", "x.json"], "--out FILE and --commit HASH are needed"),
    ],
)
def test_a_bad_call_says_what_is_accepted(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


STAND_IN = """\
#!{python}
import json, sys
from pathlib import Path
given, folder = sys.argv[1:], Path({folder!r})
if given == ["--version"]:
    print("Version 2025.3.1.0 (build 36398880)")
elif given[0] == "--query-metrics":
    print("\\n".join(f'"{{base}}","Counter"' for base in {bases!r}))
elif given[0] == "--import":
    print((folder / "page.csv").read_text())
else:
    options = dict(zip(given, given[1:]))
    names = options["--metrics"].split(",")
    log = Path(options["--log-file"])
    if {refuses!r} in names:
        log.write_text("==ERROR== Failed to find metric " + {refuses!r})
        sys.exit(1)
    if (folder / "forbidden").exists():
        log.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
        sys.exit(1)
    cases = json.loads((folder / "cases.json").read_text()) if options["--what"] == "multiply" else []
    Path(options["--child"]).write_text(json.dumps({{"gpu": "NVIDIA H200", "torch": "2.11.0", "cases": cases}}))
    Path(options["--export"]).write_text("a report")
"""


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, *, refuses: str = "") -> Path:
    """An ncu that counts what page.csv says; `refuses` is a metric it does not know."""
    tool = folder / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(
        STAND_IN.format(python=sys.executable, folder=str(folder), bases=sorted(BASES), refuses=refuses or "nothing")
    )
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (folder / "cases.json").write_text(json.dumps([CASE]))
    (folder / "page.csv").write_text(page("multiply"))
    return folder / "kernels-nsight-test.json"


@pytest.mark.parametrize("refuses", ["", "launch__registers_per_thread"])
def test_a_whole_run_keeps_the_rows_and_the_tables_tool_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refuses: str
) -> None:
    out = stand_in(tmp_path, monkeypatch, refuses=refuses)
    assert main(["--out", str(out), "--commit", "abc", "--what", "multiply"]) == 0
    found = json.loads(out.read_text())
    assert (found["schema"], found["gpu"], found["ncu"]) == ("firstlight.kernels-nsight/2", "NVIDIA H200", "2025.3.1.0")
    assert found["csv"]["multiply"]["rows"][0]["dram__bytes.sum"] == "402,653,184"
    assert "128/tokens/fp16/8192x8192x8192/0.5 | 92.7 % | 1.000 | 1.20" in capsys.readouterr().out
    assert main(["--out", str(out), "--commit", "abc", "--what", "attention"]) == 1  # nothing was counted of it
    assert json.loads(out.read_text())["trouble"]["attention"].startswith("no case has its launches among the 1")
    assert "| 128 | 0.5 | linear | 92.7 % | 1.000 | " in nsight_part(out)
    assert " | 24,617 | " in nsight_part(out)
    assert main(["--out", str(out), "--commit", "def", "--what", "attention"]) == 1
    assert json.loads(out.read_text())["cases"] == []  # other code: its rows are not kept


def test_counters_that_are_forbidden_are_told_and_nothing_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = stand_in(tmp_path, monkeypatch)
    (tmp_path / "forbidden").touch()
    assert main(["--out", str(out), "--commit", "abc"]) == 1
    found = json.loads(out.read_text())
    assert (found["cases"], found["attention"]) == ([], [])
    assert "ERR_NVGPUCTRPERM" in found["trouble"]["multiply"]
    assert "the driver refuses performance counters" in capsys.readouterr().out


def test_without_nsight_compute_the_answer_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        main(["--out", str(tmp_path / "x.json"), "--commit", "abc"])
    assert stop.value.code == 2
    assert "ncu is neither on PATH nor in CUDA_HOME" in capsys.readouterr().err
