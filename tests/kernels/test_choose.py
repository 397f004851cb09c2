"""Which backend auto takes for a product: by fitted times, by the careful default, at first and from the third call."""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import pytest
import torch

from firstlight.errors import CouldNotLook, UnsupportedInput
from firstlight.kernels import BlockSparseMatrix, backends, choose, linear
from firstlight.kernels.autotune import autotune, plan, write_whole
from firstlight.kernels.backends import SM90, why_not_arch, why_not_built
from firstlight.kernels.choice.answer import Answer, Choice, answer
from firstlight.kernels.choice.cases import ProductCase
from firstlight.kernels.choice.models import Models
from firstlight.kernels.choose import (
    ASKING,
    Question,
    SlowerPath,
    backend_module,
    best_choice,
    explained,
    forget_choices,
)
from firstlight.kernels.launch import Request
from firstlight.kernels.product import Activation, Layout
from tests.kernels.choice.measured import H100, H200, UNKNOWN, shipped_machine

NO_HURDLES = {"triton": "", "sm90": ""}


def question(**changed: object) -> Question:
    told: dict[str, object] = {
        "operation": "multiply", "device": 0, "dtype": torch.float16, "shape": (8192, 8192), "block": 64,
        "entries": 1638, "n": 4096, "layout": Layout.TOKENS, "training": True,
    }  # fmt: skip
    return Question(**{**told, **changed})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(H200, shipped_machine())


def chosen(models: Models | str, **changed: object) -> Choice:
    return best_choice(question(**changed), NO_HURDLES, models).settled


def test_the_time_of_every_backend_the_rows_and_the_error_are_told(models: Models) -> None:
    choice = chosen(models)
    assert choice.backend in ("sm90", "triton")
    assert {word for word in ("sm90", "triton", "dense") if f"{word} " in choice.why} == {"sm90", "triton", "dense"}
    assert "rows measured on NVIDIA H200, half of which it meets within" in choice.why


def test_dense_is_taken_where_nearly_everything_is_stored_and_its_copy_is_kept(models: Models) -> None:
    assert chosen(models, entries=128 * 128, training=False).backend == "dense"
    assert chosen(models, entries=164).backend != "dense"


def test_the_dense_copy_counts_where_none_is_kept(models: Models) -> None:
    asked = {training: choose.offers_of(question(training=training), ("sm90",), models) for training in (True, False)}
    assert asked[True]["dense"].us > 1.05 * asked[False]["dense"].us
    assert asked[True]["sm90"] == asked[False]["sm90"]


def test_an_activation_and_the_direction_are_part_of_the_question(models: Models) -> None:
    cases = {question(activation=kind, turned=turned).case for kind in Activation for turned in (False, True)}
    assert len(cases) == 2 * len(Activation)
    times = [
        choose.offers_of(question(activation=kind), ("sm90",), models)["sm90"].us
        for kind in (Activation.NONE, Activation.SILU)
    ]
    assert times[0] < times[1]


def test_the_h100_and_its_kin_get_sm90_from_borrowed_rows_and_are_told_so(models: Models) -> None:
    borrowed = Models(H100, shipped_machine())
    taken = [chosen(borrowed, block=128, entries=entries) for entries in (410, 1024, 2048)]
    assert "sm90" in {choice.backend for choice in taken}
    assert all("borrowed rows of NVIDIA H200, scaled to NVIDIA H100 80GB HBM3" in choice.why for choice in taken)
    # a third less bandwidth and as many multiprocessors: never faster, and no slower than its memory
    for entries in (410, 4096):
        own = choose.offers_of(question(block=128, entries=entries), ("sm90", "triton"), models)
        others = choose.offers_of(question(block=128, entries=entries), ("sm90", "triton"), borrowed)
        assert all(1.0 <= others[name].us / own[name].us < 1.6 for name in own)


def test_hidden_rows_of_the_same_card_choose_alike(models: Models) -> None:
    hidden = Models(H200, shipped_machine(gpu="another card"))
    for entries in (164, 1638, 8192):
        assert chosen(hidden, entries=entries).backend == chosen(models, entries=entries).backend
    assert "borrowed rows of another card" in chosen(hidden).why


@pytest.mark.parametrize(("block", "limit"), [(128, 0.10), (64, 0.10), (32, 0.05), (16, 0.02)])
def test_a_gpu_without_measurements_gets_the_careful_default(block: int, limit: float) -> None:
    said = f"{UNKNOWN.gpu} was not measured; `firstlight kernels autotune` does it"
    places = (8192 // block) ** 2
    below, above = (chosen(said, block=block, entries=int(share * limit * places)) for share in (0.9, 1.2))
    assert (below.backend, above.backend) == ("triton", "dense")
    assert f"at most {limit:.3f}, the careful default: {said}" in below.why


def test_a_kernel_that_cannot_run_is_not_taken(models: Models) -> None:
    without = best_choice(question(), {"triton": "", "sm90": "no compiler"}, models).settled
    assert "sm90" not in without.why
    alone = best_choice(question(), {"triton": "triton is not installed", "sm90": ""}, models).settled
    assert alone.backend == "sm90"
    nothing = best_choice(question(), {"triton": "triton is not installed", "sm90": "no compiler"}, models)
    assert nothing.settled == Choice("dense", "triton is not installed")


def test_missing_compilers_cost_one_warning_on_a_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "card_of", lambda device: H200)
    monkeypatch.setattr(choose, "why_not", lambda name, device, dtype: "no NVRTC and no nvcc" if name == "sm90" else "")
    monkeypatch.setattr(choose, "arch_of", lambda device: SM90)
    forget_choices()
    with pytest.warns(SlowerPath, match="goes without the Hopper kernels: no NVRTC and no nvcc"):
        explained("auto", question())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explained("auto", question(n=17))
    forget_choices()


def test_the_processor_never_gets_a_gpu_kernel() -> None:
    for density, backend in ((0.02, "reference"), (0.9, "dense")):
        entries = int(density * 4096)
        assert explained("auto", question(device=-1, block=128, entries=entries)).backend == backend
    with pytest.raises(UnsupportedInput, match="it takes tensors on an H100 or H200"):
        explained("sm90", question(device=-1))


def test_sm90_needs_16_bits_hopper_and_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    capability = (8, 9)
    monkeypatch.setattr(backends, "capability_of", lambda device: capability)
    assert why_not_arch(SM90, 0, torch.float32) == "the Hopper kernels take float16 and bfloat16, not float32"
    assert "compute capability is 8.9, and the Hopper kernels run on 9.0" in why_not_arch(SM90, 0, torch.float16)
    capability = (10, 0)
    assert "compute capability is 10.0" in why_not_arch(SM90, 0, torch.bfloat16)
    capability = (9, 0)
    monkeypatch.setenv("FIRSTLIGHT_JIT", "no-such-compiler")
    why_not_built.cache_clear()
    with pytest.raises(UnsupportedInput, match="cannot run here: FIRSTLIGHT_JIT is 'no-such-compiler'"):
        explained("sm90", question())
    why_not_built.cache_clear()


def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnsupportedInput, match="backend is 'cuda'; accepted: auto, sm90, triton, dense, reference"):
        answer("cuda", question(device=-1), ASKING)


def asked(w: BlockSparseMatrix, n: int, backend: str = "auto") -> choose.Taken:
    request = Request(Layout.TOKENS, transposed=False, backend=backend)
    return backend_module("multiply", w.pattern, w.values, n, request=request)


def test_the_first_two_calls_of_a_pattern_take_what_is_cheaper_to_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Answer(Choice("dense", "the fastest"), Choice("reference", "nothing to prepare"))
    monkeypatch.setattr(choose, "answer", lambda name, question, asking: found)
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.5)
    taken = [asked(w, tokens) for tokens in (8, 9, 8, 9)]  # its lists serve any number of tokens
    assert [one.module.__name__.rsplit(".", 1)[1] for one in taken] == ["reference", "reference", "dense", "dense"]
    assert [one.is_settled for one in taken] == [False, False, True, True]


def test_a_call_that_is_not_settled_is_not_kept_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from firstlight.kernels.repeated import prepared_calls

    found = Answer(Choice("dense", "the fastest"), Choice("reference", "nothing to prepare"))
    monkeypatch.setattr(choose, "answer", lambda name, question, asking: found)
    w, x = BlockSparseMatrix.random(64, 64, block=16, density=0.5), torch.randn(8, 64)
    kept = []
    for _ in range(3):
        torch.testing.assert_close(linear(x, w), x @ w.to_dense().T, rtol=1e-4, atol=1e-4)
        kept.append(prepared_calls(w))
    assert kept == [0, 0, 1]


def test_choosing_again_is_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.5)
    first = asked(w, 8)

    def refuse(*given: object) -> None:
        raise AssertionError("chose anew")

    monkeypatch.setattr(choose, "answer", refuse)
    assert asked(w, 8) == first
    with pytest.raises(AssertionError, match="chose anew"):
        asked(w, 9)
    forget_choices()
    with pytest.raises(AssertionError, match="chose anew"):
        asked(w, 8)


def test_many_different_token_counts_do_not_pile_up() -> None:
    w = BlockSparseMatrix.random(32, 32, block=16, density=0.5)
    began = time.monotonic()
    for tokens in range(1, 1500, 1):
        asked(w, tokens)
    assert len(w.pattern.backends) <= 1024
    assert time.monotonic() - began < 30


def test_autotune_without_a_gpu_says_that_it_could_not_look() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(CouldNotLook, match="torch sees 0 devices"):
        autotune(budget_s=1)


def test_autotune_measures_attention_and_products_in_turn_and_no_shape_that_results_are_shown_on() -> None:
    cases = plan()
    assert [isinstance(case, ProductCase) for case in cases[:4]] == [True, False, True, False]
    shown = {(5120, 13824), (4096, 4096), (12288, 3072)}
    assert not shown & {(case.rows, case.cols) for case in cases if isinstance(case, ProductCase)}
    assert len({case.block for case in cases[:40:2] if isinstance(case, ProductCase)}) == 4


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "deep" / "file.json"
    write_whole(target, "old")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert [item.name for item in target.parent.iterdir()] == ["file.json"]


def test_auto_computes_the_right_product_on_either_side() -> None:
    for density in (0.02, 0.9):
        w = BlockSparseMatrix.random(512, 1024, block=128, density=density)
        x = torch.randn(4, 1024)
        torch.testing.assert_close(linear(x, w), x @ w.to_dense().T, rtol=1e-4, atol=1e-4)
