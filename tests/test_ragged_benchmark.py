"""benchmarks/ragged where there is no GPU: what is asked, float64's answer, and that padding is taken away again."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch
from benchmarks.ragged.cases import CASES, Case, exact, padded, setting_of, unpadded, useful_tflop
from benchmarks.ragged.contenders import ours, ours_padded, torch_padded
from benchmarks.ragged.run import backward_alone, forward_alone, main
from benchmarks.rivals.cases import Answer
from benchmarks.rivals.runner import Refused
from torch.nn.attention import SDPBackend

SMALL = Case("small", (40, 1, 133, 7), heads=4, key_heads=2, backward=True, dtype=torch.float32)


def same(made: Answer, right: Answer) -> None:
    torch.testing.assert_close(made.out, right.out, atol=2e-5, rtol=2e-5)
    assert (made.gradients is None) == (right.gradients is None)
    for one, other in zip(made.gradients or (), right.gradients or (), strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-4)


def test_every_case_has_a_name_of_its_own_and_whole_groups() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    for case in CASES:
        assert case.heads % case.key_heads == 0
        assert min(case.lengths) > 0
    assert {case.backward for case in CASES} == {True, False}
    assert min(case.real_share for case in CASES) < 0.2
    assert max(case.real_share for case in CASES) == 1.0


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_everybody_gives_the_exact_answer(way: str) -> None:
    """The definition in float64, one sequence at a time, beside three ways that share nothing with it."""
    case = SMALL._replace(backward=way == "backward")
    setting = setting_of(case, "cpu")
    right = exact(case, setting)
    same(ours(case, setting, backend="reference").answer(), right)
    same(ours(case, setting, backend="reference", new=True).answer(), right)
    same(ours_padded(case, setting, backend="reference").answer(), right)
    same(torch_padded(case, setting, kernel=SDPBackend.MATH).answer(), right)


def test_padding_is_put_behind_each_sequence_and_taken_away() -> None:
    tokens = torch.arange(SMALL.tokens * 2).view(-1, 2, 1)
    batch = padded(SMALL, tokens)
    assert batch.shape == (4, 2, 133, 1)
    assert not batch[0, :, 40:].any()
    assert torch.equal(unpadded(SMALL, batch), tokens)


def test_work_is_counted_by_the_elements_that_are_seen() -> None:
    pairs = sum(int(torch.ones(length, length).tril().sum()) for length in SMALL.lengths)
    assert useful_tflop(SMALL) == pytest.approx(5 * 2 * 4 * pairs * 128 / 1e12)


def test_what_is_of_one_direction_takes_no_part_in_the_other() -> None:
    setting, forward = setting_of(SMALL, "cpu"), SMALL._replace(backward=False)
    assert isinstance(forward_alone(ours)(SMALL, setting), Refused)
    assert isinstance(backward_alone(ours)(forward, setting), Refused)


@pytest.mark.parametrize(
    ("given", "words"), [(["--only", "nothing"], "no case has 'nothing'"), ([], "no GPU that torch")]
)
def test_bad_arguments_are_said_in_a_line(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available() and not given:
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_the_list_needs_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list", "--only", "forward/even"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "forward/even/16 of 32768 tokens/h32-8/bfloat16 (100% of a padded batch)"
    assert printed[-1].startswith("contenders here: ours")


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is None, reason="needs flash-attn-4 (the extra `rivals`)")
def test_flash_attention_4_compiles_for_different_lengths() -> None:
    asked = [sys.executable, "-m", "benchmarks.ragged", "--compile", "--only", "short"]
    made = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr[-2000:]
    assert made.stdout.count("forward compiled") == 2
    assert made.stdout.count("backward compiled") == 1
