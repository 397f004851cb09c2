"""What explain_choice and explain_attention name is what the call's own question chooses, on the rows of an H200.

The calls are made on the processor with tensors that nothing reads: the question that each asks is put to the models of
an H200, and a backend that computes nothing takes its place.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from firstlight.errors import UnsupportedInput
from firstlight.kernels import (
    BlockMask,
    BlockSparseMatrix,
    Pattern,
    attention,
    choose,
    explain_attention,
    explain_choice,
    gated_linear,
    linear,
    matmul,
    sampled_matmul,
)
from firstlight.kernels.block_attention import choose as attention_choose
from firstlight.kernels.choice.answer import Choice, same
from firstlight.kernels.choice.made import made_for
from firstlight.kernels.choice.models import Models
from firstlight.kernels.choose import Question, best_choice
from tests.kernels.choice.measured import H200, shipped_machine

NO_HURDLES = {"triton": "", "sm90": "", "dense": ""}
ACTIVATIONS = (None, None, "relu", "gelu", "silu", "gelu_tanh")
HIDDEN = same(Choice("reference", "computes nothing"))


@pytest.fixture(scope="module")
def models() -> Models:
    return Models(H200, shipped_machine(), made=made_for(H200.gpu))


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch, models: Models) -> Iterator[list[Choice]]:
    """What an H200 would have taken for each question, in the order in which they were asked."""
    found: list[Choice] = []

    def product(name: str, question: Question, asking: object) -> Any:
        found.append(best_choice(replace(question, device=0), NO_HURDLES, models).settled)
        return HIDDEN

    def attended(name: str, question: attention_choose.Question, asking: object) -> Any:
        answer = attention_choose.by_models(models, question._replace(device=0), NO_HURDLES)
        assert answer is not None
        found.append(answer.settled)
        return HIDDEN

    def nothing(*given: object, **named: object) -> None:
        return None

    def gradients(upstream: object, kept: Any, *given: object, **named: object) -> tuple[torch.Tensor, ...]:
        return kept.q, kept.k, kept.v

    idle = SimpleNamespace(multiply=nothing, sample=nothing, forward=nothing, backward=gradients)
    monkeypatch.setattr(choose, "answer", product)
    monkeypatch.setattr(attention_choose, "answer", attended)
    monkeypatch.setattr(choose, "_module", lambda backend: idle)
    monkeypatch.setattr(attention_choose, "module", lambda backend: idle)
    yield found
    attention_choose.forget_choices()


def a_matrix(draw: random.Random, block: int, rows: int, cols: int, dtype: torch.dtype) -> BlockSparseMatrix:
    height, width = -(-rows // block), -(-cols // block)
    each = max(1, round(width * draw.choice((0.05, 0.1, 0.2, 0.3, 0.5, 0.8))))
    pattern = Pattern(torch.arange(height + 1) * each, torch.arange(each).repeat(height), (rows, cols), block)
    return BlockSparseMatrix(torch.empty(height * each, block, block, dtype=dtype), pattern)


def a_size(draw: random.Random) -> int:
    return draw.choice((1, 1, 1, 1, 1, 0)) * 128 * draw.randint(4, 96) or draw.randint(500, 9000)


def test_a_product_takes_what_is_explained_with_bias_activation_c_and_gate(chosen: list[Choice]) -> None:
    draw, plain = random.Random(22), []
    for _ in range(120):
        block, dtype = draw.choice((16, 32, 64, 128)), draw.choice((torch.float16, torch.bfloat16))
        rows, cols, n = a_size(draw), a_size(draw), draw.choice((1, 64, 256, 512, 1000, 2944, 4096))
        w, activation = a_matrix(draw, block, rows, cols, dtype), draw.choice(ACTIVATIONS)
        w = w.T if draw.random() < 0.2 else w
        rows, cols = w.shape
        bias = torch.empty(rows, dtype=dtype) if draw.random() < 0.6 else None
        kind = draw.choice(("linear", "matmul", "gated"))
        given: dict[str, Any] = {"activation": activation, "bias": bias}
        if kind == "matmul":
            c = torch.empty(rows, n, dtype=dtype) if draw.random() < 0.5 else None
            matmul(w, torch.empty(cols, n, dtype=dtype), beta=0.0 if c is None else 1.0, c=c, **given)
            given |= {"layout": "columns", "c": c}
        elif kind == "linear":
            linear(torch.empty(n, cols, dtype=dtype), w, bias, activation=activation)
        else:
            gated_linear(torch.empty(n, cols, dtype=dtype), w, w, bias, activation=activation)
            given["gate"] = w
        taken = chosen[-1]
        explain_choice(w, n, **given)
        assert chosen[-1] == taken, (kind, w, n, given)
        explain_choice(w, n, layout=given.get("layout", "tokens"), activation=activation)
        plain.append(chosen[-1].backend == taken.backend)
    assert plain.count(False) >= 3, "no case in which a bias, c or gate makes another one the fastest"


def test_gradients_take_what_is_explained_by_direction(chosen: list[Choice]) -> None:
    draw = random.Random(23)
    for _ in range(40):
        block, dtype = draw.choice((16, 32, 64, 128)), torch.bfloat16
        rows, cols, n = a_size(draw), a_size(draw), draw.choice((64, 200, 256))
        w, activation = a_matrix(draw, block, rows, cols, dtype), draw.choice((None, "silu", "relu"))
        tokens = draw.random() < 0.5
        x = torch.empty((n, cols) if tokens else (cols, n), dtype=dtype, requires_grad=True)
        bias = torch.empty(rows, dtype=dtype)
        given: dict[str, Any] = {"layout": "tokens" if tokens else "columns", "activation": activation, "bias": True}
        w.values.requires_grad_()
        made = linear(x, w, bias, activation=activation) if tokens else matmul(w, x, bias=bias, activation=activation)
        torch.autograd.grad(made, (x, w.values), torch.empty_like(made))
        taken = chosen[-3:]
        for direction, one in zip(("forward", "dvalues", "dx"), taken, strict=True):
            explain_choice(w, x, direction=direction, **given)
            assert chosen[-1] == one, (direction, w, n, given)
        explain_choice(w.with_values(w.values.detach()), n, training=True, **given)
        assert chosen[-1] == taken[0]
    with torch.no_grad():  # nothing is recorded, so that the activation is fused
        linear(torch.empty(n, cols, dtype=dtype), w, activation="silu")
        taken = [chosen[-1]]
        explain_choice(w, n, activation="silu")
    assert chosen[-1] == taken[0]


def test_a_sampled_product_is_explained_as_the_gradient_of_values(chosen: list[Choice]) -> None:
    draw = random.Random(24)
    for _ in range(20):
        w, n = a_matrix(draw, 64, 128 * draw.randint(4, 40), 128 * draw.randint(4, 40), torch.float16), 512
        a, b = torch.empty(w.shape[0], n, dtype=w.dtype), torch.empty(w.shape[1], n, dtype=w.dtype)
        sampled_matmul(a, b.T, w)
        taken = chosen[-1]
        explain_choice(w, n, layout="columns", direction="dvalues")
        assert chosen[-1] == taken


def test_a_kept_copy_and_autocast_are_part_of_what_is_explained(chosen: list[Choice]) -> None:
    w = BlockSparseMatrix.random(512, 512, block=64, density=0.8, dtype=torch.float32)
    x = torch.zeros(256, 512)
    w.keep_dense()
    for dtype in (None, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            linear(x, w)
            taken = chosen[-1]
            explain_choice(w, 256)
        assert chosen[-1] == taken, dtype


def test_attention_takes_what_is_explained_whichever_of_q_k_v_wants_gradients(chosen: list[Choice]) -> None:
    draw, unlike = random.Random(25), 0
    for _ in range(60):
        length, heads, dim = 128 * draw.randint(2, 24), draw.choice((4, 8, 16)), draw.choice((64, 128))
        kv_heads = draw.choice((heads, heads // 4))
        q = torch.empty(1, heads, length, dim, dtype=torch.float16)
        k, v = (torch.empty(1, kv_heads, length, dim, dtype=torch.float16) for _ in range(2))
        kept = torch.rand(length // 128, length // 128) < draw.choice((0.1, 0.3, 0.6))
        kept |= torch.eye(length // 128, dtype=torch.bool)
        mask = draw.choice((
            None, BlockMask.window(length, left=draw.randint(64, length)),
            BlockMask.from_bool(kept, block_level=True, q_len=length, k_len=length),
        ))  # fmt: skip
        causal = draw.choice((False, True)) if mask is None else False
        for leaf in draw.choice(((), (q,), (k,), (v,))):
            leaf.requires_grad_()
        attention(q, k, v, mask, causal=causal)
        taken = chosen[-1]
        explain_attention(q, k, mask, v=v, causal=causal)
        assert chosen[-1] == taken
        explain_attention(q, k, mask, causal=causal)
        unlike += chosen[-1] != taken
        assert chosen[-1] == taken or v.requires_grad
    assert unlike


def test_the_example_of_the_docs_is_what_is_said(chosen: list[Choice]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "kernels" / "library.md").read_text(encoding="utf-8")
    width = 4096 // 128
    crow = torch.tensor([min(826, row * 10) for row in range(11008 // 128 + 1)])
    col = torch.cat([torch.arange(int(end - begin)) % width for begin, end in itertools.pairwise(crow)])
    w = BlockSparseMatrix(torch.empty(826, 128, 128, dtype=torch.bfloat16), Pattern(crow, col, (11008, 4096), 128))
    assert (w.nnz_blocks, w.shape) == (826, (11008, 4096))
    explain_choice(w, 2944, activation="silu", bias=True)
    assert f"\n{chosen[-1]!r}\n" in text


def test_what_no_call_has_is_refused() -> None:
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.5)
    with pytest.raises(UnsupportedInput, match="direction is 'backward'; accepted: forward, dx, dvalues"):
        explain_choice(w, 8, direction="backward")
    with pytest.raises(UnsupportedInput, match="c and gate are both given"):
        explain_choice(w, 8, c=True, gate=True)
