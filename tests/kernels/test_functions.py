"""matmul, linear and sampled_matmul: what they accept, what they refuse, and which way a call goes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from firstlight.kernels import (
    BlockSparseMatrix,
    CopiedInput,
    UnsupportedInput,
    checks,
    explain_choice,
    gated_linear,
    linear,
    matmul,
    sampled_matmul,
)
from firstlight.kernels.eager import is_traced
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.ops import OPERATORS
from tests.kernels.cases import scattered


def matrix(dtype: torch.dtype = torch.float32) -> BlockSparseMatrix:
    return BlockSparseMatrix.from_mask(scattered(3, 5), block=16, values=torch.randn(44, 77).to(dtype))


def test_linear_is_the_linear_of_the_dense_weight_in_every_number_of_dimensions() -> None:
    w, bias = matrix(), torch.randn(44)
    for shape in ((77,), (6, 77), (2, 3, 77), (2, 2, 2, 77)):
        x = torch.randn(shape)
        torch.testing.assert_close(linear(x, w, bias), functional.linear(x, w.to_dense(), bias))


def test_matmul_takes_a_batch_alpha_beta_c_and_bias() -> None:
    w = matrix()
    for shape in ((77, 6), (4, 77, 6), (2, 3, 77, 1)):
        x, c, bias = torch.randn(shape), torch.randn(*shape[:-2], 44, shape[-1]), torch.randn(44)
        found = matmul(w, x, alpha=0.5, beta=-2.0, c=c, bias=bias, activation="silu")
        plain = functional.silu(0.5 * (w.to_dense() @ x) - 2.0 * c + bias[:, None])
        torch.testing.assert_close(found, plain)
        torch.testing.assert_close(w @ x, w.to_dense() @ x)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh", "silu"])
def test_activations_are_torchs_own(name: str) -> None:
    w, x = matrix(), torch.randn(9, 77)
    plain: dict[str, Callable[[Tensor], Tensor]] = {
        "relu": functional.relu,
        "gelu": functional.gelu,
        "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
        "silu": functional.silu,
    }
    torch.testing.assert_close(linear(x, w, activation=name), plain[name](x @ w.to_dense().T))


def test_no_tokens_give_no_output() -> None:
    assert linear(torch.randn(0, 77), matrix()).shape == (0, 44)
    assert matmul(matrix(), torch.randn(77, 0)).shape == (44, 0)
    assert matmul(matrix(), torch.randn(0, 77, 3)).shape == (0, 44, 3)


def test_sampled_matmul_keeps_the_pattern_and_the_direction() -> None:
    w = matrix()
    a, b = torch.randn(44, 9), torch.randn(77, 9)
    stored = w.with_values(torch.ones_like(w.values)).to_dense()
    found = sampled_matmul(a, b.mT, w, alpha=2.0)
    assert found.pattern is w.pattern
    torch.testing.assert_close(found.to_dense(), 2 * (a @ b.mT) * stored)
    turned = sampled_matmul(b, a.mT, w.T)
    assert turned.is_transposed
    torch.testing.assert_close(turned.to_dense(), (b @ a.mT) * stored.mT)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda w: linear(torch.randn(3, 76), w), r"x has shape \[3, 76\]; \[..., 77\] is accepted"),
        (lambda w: linear(torch.randn(3, 77).double(), w), "w is float32 and x float64; one dtype is accepted"),
        (lambda w: linear(torch.randn(3, 77), w, torch.randn(77)), r"bias has shape \[77\]; \[44\] is accepted"),
        (lambda w: linear(torch.randn(3, 77), w, activation="tanh"), "activation is 'tanh'; accepted: none, relu"),
        (lambda w: linear(torch.randn(3, 77), w, backend="cuda"), "backend is 'cuda'; accepted: auto, sm90"),
        (lambda w: linear(torch.randn(3, 77), w, backend="sm90"), "takes tensors on an H100 or H200"),
        (lambda w: linear(torch.randn(3, 77), w, backend="triton"), "given tensors on the processor"),
        (lambda w: matmul(w, torch.randn(77)), r"x has shape \[77\]; \[..., 77, n\] is accepted"),
        (lambda w: matmul(w, torch.randn(77, 3), beta=1.0), r"pass c of shape \[44, 3\]"),
        (lambda w: matmul(w, torch.randn(77, 3), c=torch.randn(3, 44)), r"c has shape \[3, 44\]"),
        (lambda w: matmul(w, torch.randn(77, 3), out=torch.randn(44, 4)), "out has shape"),
        (lambda w: sampled_matmul(torch.randn(44, 3), torch.randn(77, 3), w), r"\[44, n\] and \[n, 77\] are accepted"),
        (lambda w: matmul(w.requires_grad_(), torch.randn(77, 3), out=torch.randn(44, 3)), "without gradients only"),
    ],
)
def test_a_bad_call_says_what_was_given_and_what_is_accepted(call: object, said: str) -> None:
    assert callable(call)
    with pytest.raises(UnsupportedInput, match=said):
        call(matrix())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_it_does_for_torchs_linear(dtype: torch.dtype) -> None:
    w, x = matrix().requires_grad_(), torch.randn(5, 77, requires_grad=True)
    bias = torch.randn(44, requires_grad=True)
    with torch.autocast("cpu", dtype=dtype):
        found = linear(x, w, bias, activation="gelu")
        assert found.dtype == functional.linear(x, w.to_dense().detach()).dtype == dtype
        assert matmul(w, x.mT.contiguous()).dtype == dtype
        assert linear(x.double(), w.to(dtype=torch.float64)).dtype == torch.float64
    torch.autograd.backward(found.float().sum())
    assert w.values.grad is not None
    assert w.values.grad.dtype == torch.float32
    assert x.grad is not None
    assert bias.grad is not None


def test_an_ordinary_eager_call_does_not_go_through_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("went through an operator")

    monkeypatch.setattr(type(OPERATORS), "multiply", refuse)
    w, x = matrix(), torch.randn(4, 77)
    linear(x, w)
    torch.autograd.backward(linear(x, w.requires_grad_()).sum())
    with torch.inference_mode():
        linear(x, w)


def test_fake_tensors_and_dispatch_modes_see_the_operator() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    w, x = matrix(), torch.randn(4, 77)
    with FlopCounterMode(display=False):
        assert is_traced(x)
        torch.testing.assert_close(linear(x, w), x @ w.to_dense().T)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        out = linear(mode.from_tensor(x), w)
    assert out.shape == (4, 44)


def test_torch_func_differentiates_and_maps() -> None:
    w, x = matrix(torch.float64), torch.randn(4, 77, dtype=torch.float64)
    found = torch.func.grad(lambda y: linear(y, w, activation="silu").sum())(x)
    y = x.clone().requires_grad_()
    torch.autograd.backward(linear(y, w, activation="silu").sum())
    torch.testing.assert_close(found, y.grad)
    jacobian = torch.func.jacrev(lambda y: linear(y, w, activation="relu"))(x[0])
    torch.testing.assert_close(jacobian, w.to_dense() * (x[0] @ w.to_dense().T > 0)[:, None])
    torch.testing.assert_close(torch.func.vmap(lambda y: linear(y, w))(x), linear(x, w))
    torch.testing.assert_close(
        torch.func.vmap(lambda y: matmul(w, y[:, None]), in_dims=1)(x.mT), linear(x, w)[..., None]
    )
    with pytest.raises(UnsupportedInput, match="Use a loop"):
        torch.func.vmap(lambda v: linear(x, w.with_values(v)))(w.values.expand(2, -1, -1, -1))


def test_forward_mode_derivatives_are_refused_and_not_dropped() -> None:
    import torch.autograd.forward_ad as forward

    w, x = matrix(), torch.randn(4, 77)
    with forward.dual_level():
        dual = forward.make_dual(x, torch.ones_like(x))  # type: ignore[no-untyped-call]
        with pytest.raises(UnsupportedInput, match="forward-mode derivative"):
            linear(dual, w)
        torch.testing.assert_close(linear(x, w), x @ w.to_dense().T)
    with pytest.raises(UnsupportedInput, match="reverse mode is accepted"):
        torch.func.jvp(lambda y: linear(y, w), (x,), (x,))


def test_explain_choice_names_the_backend_and_the_reason() -> None:
    w = BlockSparseMatrix.random(256, 256, block=128, density=1.0)
    assert explain_choice(w, 16).backend == "dense"
    assert "density 1.000 is above 0.15" in explain_choice(w, 16).why
    assert explain_choice(w, 16, backend="reference").why == "it was asked for"


def test_an_operand_that_is_no_block_sparse_matrix_is_named() -> None:
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.5)
    x = torch.randn(64, 64)
    with pytest.raises(UnsupportedInput, match=r"w is a Tensor; .* matmul takes \(w, x\), linear \(x, w\)"):
        matmul(x, w)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedInput, match="w is a Tensor"):
        linear(w, x)  # type: ignore[arg-type]


def test_values_changed_through_data_while_training_are_seen_by_the_dense_backend() -> None:
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.5).requires_grad_()
    x = torch.randn(8, 64)
    linear(x, w, backend="dense")
    w.values.data.copy_(torch.randn_like(w.values))
    assert torch.allclose(linear(x, w, backend="dense"), linear(x, w, backend="reference"), atol=1e-4)


NO_TENSORS: list[Any] = [np.zeros((4, 64), np.float32), [[0.0] * 64], None, 3, "x"]


@pytest.mark.parametrize("given", NO_TENSORS, ids=lambda given: type(given).__name__)
def test_what_is_no_tensor_is_named_with_what_is_accepted(given: Any) -> None:
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.5)
    x = torch.randn(4, 64)
    calls: dict[str, Callable[[], object]] = {
        "x": lambda: linear(given, w),
        "x of matmul": lambda: matmul(w, given),
        "x of @": lambda: w @ given,
        "x of gated_linear": lambda: gated_linear(given, w, w),
        "x of a layer": lambda: BlockSparseLinear(w)(given),
        "a": lambda: sampled_matmul(given, x, w),
        "b": lambda: sampled_matmul(x.T, given, w),
        "values": lambda: w.with_values(given),
        "values of a matrix": lambda: BlockSparseMatrix(given, w.pattern),
        "mask": lambda: BlockSparseMatrix.from_mask(given, block=16, values=torch.randn(64, 64)),
    }
    if given is not None:
        calls |= {
            "bias": lambda: linear(x, w, given),
            "bias of matmul": lambda: matmul(w, x.T, bias=given),
            "c": lambda: matmul(w, x.T, beta=1.0, c=given),
            "out": lambda: matmul(w, x.T, out=given),
        }
    kind = "None" if given is None else f"a {type(given).__name__}"
    for name, call in calls.items():
        with pytest.raises(UnsupportedInput, match=f"^{name.split()[0]} is {kind}; a tensor is accepted"):
            call()
    for ask in (lambda: sampled_matmul(x.T, x, given), lambda: explain_choice(given, 32)):
        with pytest.raises(UnsupportedInput, match=rf"^w is {kind}; a BlockSparseMatrix is accepted"):
            ask()


def test_a_choice_is_explained_of_a_matrix_and_not_of_a_tensor() -> None:
    with pytest.raises(UnsupportedInput, match="w is a Tensor; a BlockSparseMatrix is accepted"):
        explain_choice(torch.randn(64, 64), 32)  # type: ignore[arg-type]


def test_a_plain_sampled_product_of_contiguous_tensors_warns_of_nothing() -> None:
    w = BlockSparseMatrix.from_dense(torch.randn(64, 96), block=32)
    wide = torch.randn(64, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = sampled_matmul(torch.randn(64, 16), torch.randn(16, 96), w)
    assert made.shape == w.shape
    checks._WARNED.clear()
    with pytest.warns(CopiedInput, match=r"^a is copied"):
        sampled_matmul(wide[:, ::2], torch.randn(96, 16).T, w)
