"""Cases are drawn as they should be, and every kind of them is timed: here on the processor, by a clock that stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from firstlight.kernels import autotune
from firstlight.kernels.choice import measuring
from firstlight.kernels.choice.cases import BACKWARD, AttentionCase, ProductCase
from firstlight.kernels.choice.drawn import PRODUCT_WORK, Masked, drawn_attention, drawn_products
from firstlight.kernels.choice.measuring import Call, Stopwatch, attention_hurdle, attention_times, product_times

HERE = ("reference", "dense")


class Standing(Stopwatch):
    """Calls once and always says 1 us."""

    def __init__(self) -> None:
        pass

    def _us(self, call: Call) -> float:
        call()
        return 1.0


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "DEVICE", "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def test_the_same_seed_draws_the_same_cases_within_the_work_allowed() -> None:
    one, other = (list(drawn_products(300, seed=5, dtypes=("float16", "float32"))) for _ in range(2))
    assert one == other
    assert len(set(one)) == 300
    assert all(case.rows * case.cols * case.tokens <= PRODUCT_WORK for case in one)
    assert {case.block for case in one} == {16, 32, 64, 128}
    assert Counter(case.operation for case in one)["multiply"] > 100
    assert sum(case.activation != "none" for case in one) > 30
    assert any(case.tokens % 8 for case in one)


def test_attention_is_drawn_forward_and_backward_by_name_and_by_lists() -> None:
    drawn = list(drawn_attention(400, seed=5, dtypes=("bfloat16",)))
    assert {each.case.shape for each in drawn} == {"full", "upper_left", "lower_right", "listed"}
    assert {each.mask for each in drawn} >= {"plain", "random", "by_head", "window", "sink_window", "documents"}
    assert {each.case.operation for each in drawn} == {"forward", "backward"}
    assert all(each.case.heads % each.case.kv_heads == 0 for each in drawn)
    assert any(each.case.q_len == 1 for each in drawn)


SMALL = ProductCase("multiply", "tokens", 16, "float32", 96, 80, 12, 9)


@pytest.mark.parametrize(
    "changed",
    [
        {}, {"operation": "turned"}, {"operation": "sample"}, {"layout": "columns"},
        {"activation": "silu", "extras": 1}, {"operation": "sample", "layout": "columns"}, {"dtype": "tf32"},
        {"rows": 93, "tokens": 7},
    ],
)  # fmt: skip
def test_a_product_is_timed_with_its_copy_and_what_a_new_pattern_costs(
    processor: None, changed: dict[str, object]
) -> None:
    case = SMALL._replace(**changed)  # type: ignore[arg-type]
    found = product_times(case, Standing(), backends=HERE, seed=0)
    assert set(found) == {*HERE, *(f"new {name}" for name in HERE), *(() if case.operation == "sample" else ("copy",))}
    assert set(product_times(case, Standing(), backends=HERE, seed=1)) == {name for name in found if name[:4] != "new "}
    torch.backends.cuda.matmul.allow_tf32 = False


PASS = AttentionCase("forward", "listed", 64, "float32", 16, 1, 4, 2, 200, 200, 1, 0)


@pytest.mark.parametrize("kind", ["random", "by_head", "window", "sink_window", "documents", "plain"])
@pytest.mark.parametrize("operation", ["forward", "backward"])
def test_a_pass_of_attention_is_timed_and_its_mask_told(processor: None, kind: str, operation: str) -> None:
    asked = PASS._replace(operation=operation, shape="upper_left" if kind == "plain" else "listed")
    case, found = attention_times(Masked(asked, kind, 0.4), Standing(), backends=HERE, seed=3)
    assert set(HERE) <= set(found)
    assert any(name.startswith("new ") for name in found) == (operation != BACKWARD and kind != "plain")
    if kind != "plain":
        assert case.lists == (4 if kind == "by_head" else 1)
        assert 0 < case.kept <= case.lists * 16
        assert case.cut == int(kind not in ("random", "by_head"))


def test_what_a_backend_cannot_do_or_would_take_too_much_for_is_left_out() -> None:
    assert attention_hurdle(PASS._replace(head_dim=96), "sm90")
    assert attention_hurdle(PASS._replace(q_len=70_000, k_len=70_000), "dense")
    assert not attention_hurdle(PASS._replace(q_len=70_000, k_len=70_000, shape="full"), "dense")


def test_a_row_of_autotune_is_a_line(processor: None) -> None:
    row = autotune.measured(SMALL, Standing(), backends=HERE, seed=1)
    assert autotune.shown(replace(row, us=(("dense", 2.0), ("sm90", 1.0)))) == (
        "multiply block 16 96x80, 9 tokens, density 0.40: sm90 1.0 us, dense 2.0 us"
    )
    drawn = Masked(PASS._replace(shape="full"), "plain", 1.0)
    shown = autotune.shown(autotune.measured(drawn, Standing(), backends=HERE, seed=1))
    assert shown.startswith("attention forward block 64 200x200, full: ")
