"""benchmarks/rivals where there is no GPU: what is asked, float64's answer and the lists are right."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
import torch
from benchmarks.rivals.cases import CASES, SINK, WINDOW, Answer, Case, exact, lists_of, setting_of, useful_tflop
from benchmarks.rivals.contest import OURS, fastest, judged, said
from benchmarks.rivals.flash4 import HOPPER_BACKWARD_BLOCK, flash4
from benchmarks.rivals.ours import cudnn_dense
from benchmarks.rivals.run import main
from benchmarks.rivals.runner import Refused, Runner, by_autograd
from torch import Tensor
from torch.nn import functional

from firstlight.kernels import attention

LENGTH = WINDOW + 2 * SINK  # a window leaves keys out, and the sink brings some of them back
MASKS = {"full": 0.0, "causal": 0.0, "window": 0.0, "sink": 0.0, "lists": 0.4}


def small(mask: str, *, backward: bool = True) -> Case:
    return Case(mask, (1, 2, LENGTH), mask, MASKS[mask], backward=backward, dtype=torch.float32)


def test_every_case_has_a_name_of_its_own_and_fits_its_blocks() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    assert {case.mask for case in CASES} == set(MASKS)
    for case in CASES:
        assert case.shape[2] % case.block == 0, case.id
        assert (case.density > 0) == (case.mask == "lists"), case.id


@pytest.mark.parametrize("turned", ["by queries", "by keys"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_lists_hold_what_was_chosen_in_rising_order(share: float, turned: str) -> None:
    chosen = torch.rand(2, 3, 7, 9, generator=torch.Generator().manual_seed(5)) < share
    chosen = chosen.mT if turned == "by keys" else chosen
    counts, order = lists_of(chosen)
    assert counts.dtype == order.dtype == torch.int32
    assert counts.stride()[-1] == order.stride()[-1] == 1
    for place in torch.cartesian_prod(*(torch.arange(each) for each in chosen.shape[:-1])).tolist():
        held = order[tuple(place)][: int(counts[tuple(place)])].tolist()
        assert all(one < other for one, other in pairwise(held))
        assert held == chosen[tuple(place)].nonzero()[:, 0].tolist()


@pytest.mark.parametrize("mask", MASKS)
def test_the_exact_answer_is_that_of_our_reference_kernel(mask: str) -> None:
    """Two ways that share nothing: the words of the case in float64, and our mask on our reference kernel."""
    case = small(mask)
    setting = setting_of(case, "cpu")

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = attention(q, k, v, setting.mask, backend="reference")
        return out

    made, right = by_autograd(case, setting, attend).answer(), exact(case, setting)
    torch.testing.assert_close(made.out, right.out, atol=2e-5, rtol=2e-5)
    assert made.gradients is not None
    assert right.gradients is not None
    for one, other in zip(made.gradients, right.gradients, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_the_exact_answer_is_that_of_torch(mask: str) -> None:
    case = small(mask, backward=False)
    setting = setting_of(case, "cpu")
    q, k, v = (each.double() for each in setting[:3])
    right = functional.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")
    torch.testing.assert_close(exact(case, setting).out, right[0])


def test_work_is_counted_by_the_blocks_that_are_seen() -> None:
    case = small("lists", backward=False)
    setting = setting_of(case, "cpu")
    assert setting.chosen is not None
    blocks = int(setting.chosen.sum())
    assert useful_tflop(case, setting) == pytest.approx(2 * 2 * blocks * 128 * 128 * 128 / 1e12)
    assert useful_tflop(case._replace(backward=True), setting) == pytest.approx(2.5 * useful_tflop(case, setting))


def test_a_case_is_the_same_numbers_every_time() -> None:
    one, other = (setting_of(small("lists"), "cpu") for _ in range(2))
    assert one.chosen is not None
    assert other.chosen is not None
    assert torch.equal(one.chosen, other.chosen)
    assert all(torch.equal(left, right) for left, right in zip(one[:4], other[:4], strict=True))


def test_who_has_no_such_mask_says_so() -> None:
    case = small("window")
    assert isinstance(cudnn_dense(case, setting_of(case, "cpu")), Refused)
    for mask in ("lists", "sink"):  # FlashAttention-4 4.0.0b36 stops there: it is said before anything is compiled
        case = small(mask)
        assert isinstance(flash4(case, setting_of(case, "cpu"), deterministic=True), Refused)


def test_a_line_says_times_as_times_ours_and_who_takes_no_part() -> None:
    row = {"case": "backward/causal", "contenders": {
        OURS: {"burst_ms": 2.0, "sustained_ms": 4.0},
        "flash4": {"burst_ms": 1.8, "sustained_ms": 4.4},
        "cudnn lists": {"takes no part": "it takes lists of blocks alone"},
    }}  # fmt: skip
    line = said(row)
    assert "ours 2.000 / 4.000 ms" in line
    assert "flash4 takes 0.90 / 1.10 times ours" in line
    assert "cudnn lists: it takes lists of blocks alone" in line


def test_the_fastest_is_told_of_those_who_were_timed() -> None:
    contenders: dict[str, dict[str, Any]] = {
        OURS: {"burst_ms": 2.0, "sustained_ms": 4.0}, "flash4": {"burst_ms": 1.8, "sustained_ms": 4.4},
        "cudnn lists": {"takes no part": "it takes lists of blocks alone"},
    }  # fmt: skip
    assert fastest(contenders) == {"burst_ms": "flash4", "sustained_ms": OURS}
    assert fastest({"cudnn lists": contenders["cudnn lists"]}) == {}


def test_who_is_wrong_or_fails_gets_no_time() -> None:
    right, fit = Answer(torch.ones(2, 3), None), dict[str, Runner]()

    def fails() -> Runner:
        raise ValueError("head dim 128 alone\nand more")

    def gives(number: float) -> Runner:
        return Runner(list, lambda: Answer(torch.full((2, 3), number), None))

    assert "1.02" not in str(judged(lambda: gives(1.001), right, fit, "near", 1.2e-2))
    assert "it is wrong" in judged(lambda: gives(1.02), right, fit, "far", 1.2e-2)["takes no part"]
    assert "it is wrong" in judged(lambda: gives(torch.nan), right, fit, "nan", 1.2e-2)["takes no part"]
    assert judged(fails, right, fit, "fails", 1.2e-2) == {"takes no part": "ValueError: head dim 128 alone"}
    assert list(fit) == ["near"]
    with pytest.raises(ValueError, match="head dim 128 alone"):
        judged(fails, right, fit, OURS, 1.2e-2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--without", OURS], "'ours' cannot be left out"),
        (["--only", "nothing"], "no case has 'nothing'"),
        ([], "no GPU that torch"),
    ],
)
def test_bad_arguments_are_said_in_a_line(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available() and not given:
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_the_list_needs_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--list", "--only", "backward/lists"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[:-1] == [case.id for case in CASES if "backward/lists" in case.id]
    assert printed[-1].startswith("contenders here: ours")


@pytest.mark.skipif(importlib.util.find_spec("flash_attn") is None, reason="needs flash-attn-4 (the extra `rivals`)")
def test_flash_attention_4_compiles_for_every_mask() -> None:
    asked = [sys.executable, "-m", "benchmarks.rivals", "--compile"]
    made = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr[-2000:]
    said_of = [
        line.partition("/b")[0] + line[line.rindex(":") :].split(" compiled")[0] for line in made.stdout.splitlines()
    ]
    for case in CASES:
        way, _, rest = case.id.partition("/")
        if way == "forward" or case.block == HOPPER_BACKWARD_BLOCK:
            assert f"{way}/{rest.partition('/b')[0]}: {way}" in said_of
