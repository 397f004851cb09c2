"""A call that was made before goes a short way, and whatever has changed since is noticed on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight.kernels import BlockSparseMatrix, CopiedInput, UnsupportedInput, linear, matmul, reference
from firstlight.kernels import pattern as pattern_room
from firstlight.kernels.choose import forget_choices
from firstlight.kernels.index import Index
from firstlight.kernels.pattern import Pattern
from firstlight.kernels.prepared import MOST_CALLS
from firstlight.kernels.repeated import again, prepared_calls
from tests.kernels.cases import scattered

Call = Callable[[Tensor, BlockSparseMatrix], Tensor]
ASKED = (None, "auto")  # of a plain linear


def matrix() -> BlockSparseMatrix:
    return BlockSparseMatrix.from_mask(scattered(3, 5), block=16, values=torch.randn(44, 77))


def warm(backend: str = "auto", **given: Any) -> tuple[BlockSparseMatrix, Tensor]:
    """A matrix and an operand whose linear has been called twice."""
    w, x = matrix(), torch.randn(6, 77)
    for _ in range(2):
        linear(x, w, backend=backend, **given)
    return w, x


def check(found: Tensor, x: Tensor, w: BlockSparseMatrix, bias: Tensor | None = None) -> None:
    torch.testing.assert_close(found, torch.nn.functional.linear(x, w.to_dense(), bias))


@pytest.mark.parametrize("backend", ["auto", "reference", "dense"])
def test_the_second_call_is_prepared_and_gives_the_same_bits(backend: str) -> None:
    w, x = matrix(), torch.randn(6, 77)
    assert prepared_calls(w) == 0
    assert again(w, x, None, None, (None, backend)) is None
    first = linear(x, w, backend=backend)
    assert prepared_calls(w) == 1
    second = again(w, x, None, None, (None, backend))
    assert second is not None
    assert torch.equal(first, second)
    assert second.data_ptr() != first.data_ptr()
    assert torch.equal(linear(x, w, backend=backend), first)
    assert prepared_calls(w) == 1


def test_matmul_with_everything_is_prepared_too() -> None:
    w, x, c, bias = matrix(), torch.randn(2, 77, 6), torch.randn(2, 44, 6), torch.randn(44)
    how: dict[str, Any] = {"alpha": 0.5, "beta": -2.0, "activation": "silu"}
    first = matmul(w, x, c=c, bias=bias, **how)
    second = again(w, x, bias, c, ("silu", "auto", 0.5, -2.0))
    assert second is not None
    assert torch.equal(first, second)
    other = matmul(w, x, c=c, bias=bias, **how | {"alpha": 3.0})
    plain = torch.nn.functional.silu(3.0 * (w.to_dense() @ x) - 2.0 * c + bias[:, None])
    torch.testing.assert_close(other, plain)
    torch.testing.assert_close(matmul(w.T, c[0]), w.to_dense().T @ c[0])


def test_a_matrix_and_its_transpose_do_not_take_each_other_s_calls() -> None:
    w = BlockSparseMatrix.random(64, 64, block=16, density=0.4)
    x = torch.randn(5, 64)
    for _ in range(2):
        torch.testing.assert_close(linear(x, w), x @ w.to_dense().T)
        torch.testing.assert_close(linear(x, w.T), x @ w.to_dense())


@pytest.mark.parametrize("backend", ["reference", "dense"])
def test_values_updated_in_place_or_replaced_are_seen(backend: str) -> None:
    w, x = warm(backend)
    with torch.no_grad():
        w.values.mul_(-3.0)
    check(linear(x, w, backend=backend), x, w)
    w.values.data = torch.randn_like(w.values)
    check(linear(x, w, backend=backend), x, w)
    other = w.with_values(torch.randn_like(w.values))
    check(linear(x, other, backend=backend), x, other)
    check(linear(x, w, backend=backend), x, w)


def test_an_operand_that_is_not_contiguous_or_not_aligned_is_copied_with_a_warning() -> None:
    w, x = warm()
    with pytest.warns(CopiedInput, match="x is copied on every call because it is not contiguous"):
        check(linear(x.mT.contiguous().mT, w), x, w)
    shifted = torch.empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
    with pytest.warns(CopiedInput, match="not at a multiple of 16 bytes"):
        check(linear(shifted, w), x, w)
    values = torch.empty(w.values.numel() + 1)[1:].view(w.values.shape).copy_(w.values)
    with pytest.warns(CopiedInput, match="values is copied"):
        check(linear(x, w.with_values(values)), x, w)


def test_another_shape_is_another_call() -> None:
    w, x = warm()
    check(linear(x[:4], w), x[:4], w)
    check(linear(x.view(2, 3, 77), w), x.view(2, 3, 77), w)
    check(linear(x[0], w), x[0], w)
    assert linear(x[:0], w).shape == (0, 44)
    with pytest.raises(UnsupportedInput, match="x has shape"):
        linear(torch.randn(6, 76), w)


def test_another_dtype_is_refused_as_on_the_first_call() -> None:
    w, x = warm()
    with pytest.raises(UnsupportedInput, match="w is float32 and x float64"):
        linear(x.double(), w)
    w.values.data = w.values.data.double()  # as module.double() does
    with pytest.raises(UnsupportedInput, match="w is float64 and x float32"):
        linear(x, w)
    check(linear(x.double(), w), x.double(), w)
    with pytest.raises(UnsupportedInput, match="one device is accepted"):
        linear(x.double().to("meta"), w)


@pytest.mark.parametrize("recording", [False, True])
def test_another_bias_is_read_and_a_wrong_one_refused(recording: object) -> None:
    w, x = matrix().requires_grad_(bool(recording)), torch.randn(6, 77)
    for _ in range(3):
        bias = torch.randn(44)
        check(linear(x, w, bias), x, w, bias)
    check(linear(x, w), x, w)
    with pytest.raises(UnsupportedInput, match=r"bias has shape \[77\]"):
        linear(x, w, torch.randn(77))
    with pytest.raises(UnsupportedInput, match="x is float32 and bias float64"):
        linear(x, w, torch.randn(44).double())
    with pytest.warns(CopiedInput, match="bias is copied"):
        check(linear(x, w, torch.stack([bias, bias], 1)[:, 0]), x, w, bias)


def test_an_index_changed_in_place_is_noticed() -> None:
    w, x = warm()
    before = linear(x, w)
    w.pattern.col.copy_((w.pattern.col + 1) % 4)  # the last block column is ragged: leave it
    assert again(w, x, None, None, ASKED) is None
    after = linear(x, w)
    assert not torch.equal(before, after)
    check(after, x, w)


def test_gradients_asked_for_later_are_recorded() -> None:
    w, x = warm(activation="gelu")
    assert linear(x, w, activation="gelu").grad_fn is None
    for activation in (None, "relu", "gelu"):
        y, bias = x.clone().requires_grad_(), torch.randn(44, requires_grad=True)
        w.values.grad = None
        w.requires_grad_()
        dense = w.to_dense().detach().requires_grad_()
        for _ in range(2):  # the second one is prepared
            out = linear(y, w, bias, activation=activation)
            y.grad = bias.grad = w.values.grad = None
            torch.autograd.backward(out.square().sum())
        plain: Any = {None: lambda z: z, "relu": torch.relu, "gelu": torch.nn.functional.gelu}[activation]
        z, b = x.clone().requires_grad_(), bias.detach().clone().requires_grad_()
        torch.autograd.backward(plain(torch.nn.functional.linear(z, dense, b)).square().sum())
        assert dense.grad is not None
        torch.testing.assert_close(y.grad, z.grad)
        torch.testing.assert_close(bias.grad, b.grad)
        assert w.values.grad is not None
        stored = w.with_values(torch.ones_like(w.values)).detach().to_dense()
        torch.testing.assert_close(w.with_values(w.values.grad).detach().to_dense(), dense.grad * stored)


def test_a_recorded_call_is_prepared_and_the_next_one_without_gradients_records_nothing() -> None:
    w, x = matrix().requires_grad_(), torch.randn(6, 77)
    linear(x, w)
    done = again(w, x, None, None, ASKED)
    assert done is not None
    assert done.requires_grad
    with torch.no_grad():
        assert again(w, x, None, None, ASKED) is None  # that way was not gone yet
        assert not linear(x, w).requires_grad
        assert again(w, x, None, None, ASKED) is not None
    assert linear(x, w).requires_grad
    y = x.clone().requires_grad_()
    assert linear(y, w.detach()).requires_grad
    assert not linear(x, w.detach()).requires_grad


def test_inference_mode_gives_inference_tensors_and_back() -> None:
    w, x = warm()
    with torch.inference_mode():
        found = linear(x, w)
        assert found.is_inference()
        check(found, x, w)
        with torch.inference_mode(mode=False):
            assert not linear(x, w).is_inference()
        inside = torch.randn(6, 77)
        check(linear(inside, w), inside, w)
    assert not linear(x, w).is_inference()
    w.requires_grad_()
    assert linear(x, w).requires_grad


def test_an_index_made_in_inference_mode_keeps_no_call() -> None:
    with torch.inference_mode():
        crow, col = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
        w = BlockSparseMatrix(torch.randn(2, 16, 16), Pattern(crow, col, (32, 32), 16))
        x = torch.randn(6, 32)
        for _ in range(2):
            check(linear(x, w, backend="reference"), x, w)
        assert prepared_calls(w) == 0  # such tensors do not count their changes
        col.copy_(torch.tensor([1, 0]))
        check(linear(x, w, backend="reference"), x, w)


def test_autocast_casts_after_calls_without_it() -> None:
    w, x = warm()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert again(w, x, None, None, ASKED) is None
        assert linear(x, w).dtype == torch.bfloat16
        assert linear(x, w).dtype == torch.bfloat16
    assert linear(x, w).dtype == torch.float32


def test_modes_subclasses_transforms_and_tangents_go_the_long_way() -> None:
    from torch.autograd import forward_ad
    from torch.utils.flop_counter import FlopCounterMode

    class Named(Tensor):
        pass

    w, x = warm()
    with FlopCounterMode(display=False):
        assert again(w, x, None, None, ASKED) is None
        check(linear(x, w), x, w)
    assert again(w, x.as_subclass(Named), None, None, ASKED) is None
    mapped = torch.func.vmap(lambda row: linear(row, w))(x)
    check(mapped, x, w)
    with forward_ad.dual_level(), pytest.raises(UnsupportedInput, match="forward-mode"):
        linear(forward_ad.make_dual(x, x), w)  # type: ignore[no-untyped-call]


def test_torch_compile_after_a_prepared_call_gives_the_same() -> None:
    w, x = warm()
    compiled = torch.compile(lambda y: linear(y, w), backend="eager", fullgraph=True)
    check(compiled(x), x, w)
    check(linear(x, w), x, w)


def test_what_cannot_be_a_key_or_is_unknown_is_refused_with_the_usual_words() -> None:
    w, x = warm()
    with pytest.raises(UnsupportedInput, match="activation is 'tanh'"):
        linear(x, w, activation="tanh")
    with pytest.raises(UnsupportedInput, match=r"activation is \['relu'\]"):
        linear(x, w, activation=["relu"])  # type: ignore[arg-type]
    with pytest.raises(UnsupportedInput, match="backend is 'cuda'"):
        linear(x, w, backend="cuda")


def test_new_measurements_make_the_next_call_choose_anew() -> None:
    w, x = warm()
    assert again(w, x, None, None, ASKED) is not None
    forget_choices()
    assert again(w, x, None, None, ASKED) is None
    check(linear(x, w), x, w)
    assert again(w, x, None, None, ASKED) is not None


def test_the_number_of_kept_calls_is_bounded() -> None:
    w = matrix()
    for tokens in range(1, MOST_CALLS):
        linear(torch.randn(tokens, 77), w, backend="dense")
    assert 0 < len(w.pattern.calls) <= MOST_CALLS
    assert prepared_calls(w) <= MOST_CALLS


def test_a_pattern_goes_when_nobody_holds_it_any_more() -> None:
    import weakref

    w, x = warm()
    linear(x, w.requires_grad_()).sum().backward()  # type: ignore[no-untyped-call]
    gone = weakref.ref(w.pattern)
    del w
    assert gone() is None  # no cycle: its memory does not wait for the garbage collector


def test_a_call_made_while_another_thread_notices_a_change_is_not_kept_with_the_old_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = BlockSparseMatrix.from_mask(torch.eye(4).bool(), block=16, values=torch.randn(64, 64))
    x = torch.randn(64, 3)
    matmul(w.T, x, backend="reference")  # so that there is an old index
    w.pattern.col.copy_(torch.tensor([1, 2, 3, 0], dtype=torch.int32))
    inside, go, done = threading.Event(), threading.Event(), threading.Event()
    make_index, multiply = Index, reference.multiply

    def index_made_late(*given: Any, **named: Any) -> Any:
        monkeypatch.setattr(pattern_room, "Index", make_index)
        inside.set()
        go.wait(5)  # the first thread is in the midst of starting over
        return make_index(*given, **named)

    def multiply_waiting(*given: Any, **named: Any) -> None:
        if threading.current_thread() is second:
            go.set()  # its index is read: the first thread goes on and ends
            done.wait(5)
        multiply(*given, **named)

    def notice() -> None:
        matmul(w, x, backend="reference")
        done.set()

    monkeypatch.setattr(pattern_room, "Index", index_made_late)
    monkeypatch.setattr(reference, "multiply", multiply_waiting)
    first = threading.Thread(target=notice)
    second = threading.Thread(target=lambda: matmul(w.T, x, alpha=2.0, backend="reference"))
    first.start()
    inside.wait(5)
    second.start()
    for thread in (second, first):
        thread.join(20)
    for _ in range(2):
        torch.testing.assert_close(matmul(w.T, x, alpha=2.0, backend="reference"), 2.0 * (w.to_dense().T @ x))


def test_a_call_during_which_the_index_changes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    w = BlockSparseMatrix.from_mask(torch.eye(4).bool(), block=16, values=torch.randn(64, 64))
    x, multiply = torch.randn(64, 3), reference.multiply

    def changed_meanwhile(*given: Any, **named: Any) -> None:
        multiply(*given, **named)
        w.pattern.col.copy_(torch.tensor([1, 2, 3, 0], dtype=torch.int32))

    with monkeypatch.context() as patch:
        patch.setattr(reference, "multiply", changed_meanwhile)
        matmul(w.T, x, backend="reference")
    assert prepared_calls(w) == 0
    torch.testing.assert_close(matmul(w.T, x, backend="reference"), w.to_dense().T @ x)
