"""Names that torch does not promise: each is there, does what it is taken for, and stands in one file alone."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from firstlight.kernels import torch_private

KERNELS = Path(torch_private.__file__).parent
_PRIVATE = re.compile(
    r"\btorch\.(?:\w+\.)*_(?!_)|from torch[\w.]* import _|\baten\._|_functorch\.|_current_level|_subclasses"
    r"|super\(torch\."
)


def test_no_other_file_of_the_kernels_names_what_torch_does_not_promise() -> None:
    for file in sorted(KERNELS.rglob("*.py")):
        if file.name != "torch_private.py":
            found = _PRIVATE.search(file.read_text(encoding="utf-8"))
            assert found is None, (
                f"{file.relative_to(KERNELS)} names {found and found[0]}: put it into torch_private.py"
            )


def test_the_questions_about_a_call_are_answered() -> None:
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch_private.functorch_level() is not None and torch_private.is_functorch_wrapped(x))
        with torch_private.without_functorch():
            seen.append(not torch_private.is_functorch_wrapped(torch.zeros(2) * 2))
        return x.sum()

    torch.func.grad(look)(torch.zeros(2))
    assert seen == [True, True]
    assert torch_private.functorch_level() is None
    assert not torch_private.autocast_anywhere()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch_private.autocast_anywhere()
    assert torch_private.dispatch_modes() == 0
    with FakeTensorMode():
        assert torch_private.dispatch_modes() == 1
        assert isinstance(torch.zeros(2), torch_private.FakeTensor)
    assert not torch_private.in_dual_level()
    with forward_ad.dual_level():
        assert torch_private.in_dual_level()


def test_a_jagged_tensor_says_where_its_lengths_are_and_is_known_under_torch_func() -> None:
    nested = torch.nested.nested_tensor_from_jagged(torch.zeros(5, 3, 2), torch.tensor([0, 1, 5]))
    assert torch_private.ragged_dimension(nested) == 1
    assert torch_private.ragged_dimension(nested.transpose(1, 2)) == 2
    seen: list[bool] = []

    def look(values: torch.Tensor) -> torch.Tensor:
        wrapped = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 5]))
        seen.extend(torch_private.hides_lengths(each) for each in (values, wrapped))
        return values.sum()

    torch.func.grad(look)(torch.zeros(5, 3, 2))
    assert seen == [False, True]


def test_a_tensor_is_indexed_with_a_number_under_vmap() -> None:
    squares, places = torch.arange(5) ** 2, torch.tensor([4, 0, 3])
    with torch_private.indexing_with_numbers():
        assert torch.vmap(lambda place: squares[place])(places).tolist() == [16, 0, 9]


def test_tensors_are_made_the_quick_way() -> None:
    quick = torch_private.quick_empty("cpu")
    assert quick is not None, "the fallback is three times as slow"
    made = quick((2, 3), (1, 2), torch.float16)
    assert (made.shape, made.stride(), made.dtype) == ((2, 3), (1, 2), torch.float16)
    assert torch_private.quick_empty("meta") is None


def test_attention_on_the_processor_gives_the_logarithms_of_the_sums() -> None:
    q, k, v = (torch.randn(1, 2, 5, 16) for _ in range(3))
    out, lse = torch_private.flash_attention_on_processor(q, k, v, None, is_causal=False, scale=0.25)
    scores = 0.25 * q @ k.mT
    torch.testing.assert_close(out, scores.softmax(-1) @ v)
    torch.testing.assert_close(lse.contiguous(), scores.logsumexp(-1))


def test_the_names_for_a_gpu_are_there() -> None:
    names = ("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention")
    assert all(hasattr(torch.ops.aten, name) for name in names)
    assert callable(torch.cuda._sleep)
    if torch.version.cuda:
        for name in ("_cuda_getDevice", "_cuda_getCurrentRawStream", "_cuda_isCurrentStreamCapturing"):
            assert hasattr(torch._C, name), name
