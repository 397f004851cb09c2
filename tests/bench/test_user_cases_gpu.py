"""A user's kernels on a real GPU: a .cu file end to end, and the cheats that need streams and graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.bench.case import Effort
from firstlight.bench.patience import PATIENCE
from firstlight.bench.results import CaseResult, Verdict, read_run
from firstlight.cli import main
from tests.bench.test_runner import HASTY

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]
EXAMPLES = Path(__file__).parents[2] / "examples" / "user_kernels"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for effort in Effort:
        monkeypatch.setitem(PATIENCE, effort, HASTY)


def run(name: str, tmp_path: Path) -> tuple[int, tuple[CaseResult, ...]]:
    out = tmp_path / "run.json"
    code = main.run(["bench", str(EXAMPLES / name), "--effort", "quick", "--out", str(out)])
    return code, read_run(str(out)).cases


def test_a_cu_file_is_compiled_checked_timed_and_held_against_the_memory_bandwidth(tmp_path: Path) -> None:
    code, cases = run("axpy.cu", tmp_path)
    assert code == 0
    for case in cases:
        assert case.verdict is Verdict.OK, case.reason
        assert case.shown is not None
        assert case.shown.limit is not None
        assert case.shown.limit.bound.value == "memory"
        assert case.error_rel is not None
        assert case.error_rel < 1e-6


@pytest.mark.parametrize("file", ["my_kernels.py", "two_streams.py"])
def test_honest_python_cases_pass_every_guard(file: str, tmp_path: Path) -> None:
    code, cases = run(file, tmp_path)
    assert (code, {case.verdict for case in cases}) == (0, {Verdict.OK})


@pytest.mark.parametrize("file", ["cheats_gpu.py", "cheats.py"])
def test_every_planted_cheat_is_caught_by_the_guard_it_is_named_after(file: str, tmp_path: Path) -> None:
    code, cases = run(file, tmp_path)
    assert code == 1
    for case in cases:
        guard = case.id.split("/")[1]
        assert case.verdict is Verdict.FAILED, case.id
        assert guard.replace("-", " ") in case.reason.replace("-", " "), (case.id, case.reason)
