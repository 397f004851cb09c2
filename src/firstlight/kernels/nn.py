"""Linear layers with block-sparse weights, plain and gated, for training and inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import require_parts, require_pattern, require_shape
from firstlight.kernels.construct import from_mask
from firstlight.kernels.functions import linear, linear_traced
from firstlight.kernels.gated import gated_linear
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.ops import Parts
from firstlight.kernels.pattern import Pattern, rows_of_entries
from firstlight.kernels.product import Activation


class BlockSparseLinear(nn.Module):
    """activation(x @ W.T + bias) with W stored as blocks; in place of torch.nn.Linear.

    Parameters: values [stored blocks, block, block], bias. Buffers: crow, col, and shape [out_features, in_features,
    block] for the state dict. Loading one with another pattern is refused with a message (see adopt_pattern).
    """

    values: nn.Parameter
    bias: nn.Parameter | None
    crow: Tensor
    col: Tensor
    shape: Tensor
    distinct: bool  # no block is stored twice

    def __init__(
        self, matrix: BlockSparseMatrix, bias: Tensor | None = None, *,
        activation: str | Activation | None = None, backend: str = "auto",
    ) -> None:  # fmt: skip
        super().__init__()
        if matrix.is_transposed:
            matrix = matrix.canonicalize()
        self.out_features, self.in_features = matrix.shape
        self.block = matrix.block
        self.activation = activation.value if isinstance(activation, Activation) else activation
        self.backend = backend
        self.values = nn.Parameter(matrix.values.detach())
        self.register_buffer("crow", matrix.pattern.crow)
        self.register_buffer("col", matrix.pattern.col)
        self.register_buffer("shape", self._sizes_on(matrix.device))
        self.distinct = matrix.pattern.distinct
        self.bias = None if bias is None else nn.Parameter(bias.detach())
        self._kept: BlockSparseMatrix | None = BlockSparseMatrix(self.values, matrix.pattern)

    @classmethod
    def from_linear(
        cls, layer: nn.Linear, mask: Tensor, *, block: int, activation: str | None = None, backend: str = "auto"
    ) -> BlockSparseLinear:
        """A layer with the blocks of `layer`'s weight where mask [block rows, block columns] is True; copies them."""
        weight = layer.weight.detach()
        made = cls(
            from_mask(mask.to(weight.device), block=block, values=weight),
            None if layer.bias is None else layer.bias.detach().clone(),
            activation=activation,
            backend=backend,
        )
        made.values.requires_grad_(layer.weight.requires_grad)
        if made.bias is not None and layer.bias is not None:
            made.bias.requires_grad_(layer.bias.requires_grad)
        return made.train(layer.training)

    @property
    def matrix(self) -> BlockSparseMatrix:
        """The weight [out_features, in_features] over this layer's own parameters."""
        kept = self._kept
        if kept is None or kept.values is not self.values or kept.pattern.crow is not self.crow:
            kept = self._kept = BlockSparseMatrix(self.values, self._pattern())
        return kept

    def _pattern(self) -> Pattern:
        known = None if self._kept is None else self._kept.pattern
        if known is not None and known.crow is self.crow and known.col is self.col:
            return known  # the values alone are other ones
        shape = (self.out_features, self.in_features)
        return Pattern(self.crow, self.col, shape, self.block, distinct=self.distinct)

    @property
    def density(self) -> float:
        """Share of the blocks that is stored, e.g. 0.1."""
        return self.matrix.density

    def keep_dense(self) -> None:
        """Keeps a dense copy of the weight for inference: BlockSparseMatrix.keep_dense, after requires_grad_(False)."""
        self.matrix.keep_dense()

    def forget_dense(self) -> None:
        """Drops that copy."""
        self.matrix.forget_dense()

    @property
    def parts(self) -> Parts:
        """The pattern as torch.compile takes it."""
        return Parts(self.crow, self.col, self.out_features, self.in_features, self.block)

    def forward(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return linear_traced(
                x, self.values, self.parts, self.bias, activation=self.activation, backend=self.backend
            )
        return linear(x, self.matrix, self.bias, activation=self.activation, backend=self.backend)

    @torch.no_grad()
    def to_linear(self) -> nn.Linear:
        """A torch.nn.Linear with the same weight, zeros where no block is stored, without the fused activation."""
        made = nn.Linear(
            self.in_features, self.out_features, bias=self.bias is not None, dtype=self.values.dtype, device="meta"
        )
        made.weight = nn.Parameter(self.matrix.to_dense().detach())
        if self.bias is not None:
            made.bias = nn.Parameter(self.bias.detach().clone())
        return made.train(self.training)

    @torch.no_grad()
    def keep_(self, kept: Tensor) -> None:
        """Drops the stored blocks where `kept` [stored blocks] is False; values become a new Parameter.

        An optimizer goes on with the old one: call sparsify.prune_further_, which carries its state over.
        """
        if kept.shape != (self.values.shape[0],) or kept.dtype != torch.bool:
            raise UnsupportedInput(
                f"kept is {list(kept.shape)} {kept.dtype}; bool [{self.values.shape[0]}], one for each stored block, "
                f"is accepted."
            )
        kept = kept.to(self.values.device)
        before = torch.nn.functional.pad(kept.to(torch.int64).cumsum(0), (1, 0))
        new = nn.Parameter(self.values.detach()[kept].contiguous(), requires_grad=self.values.requires_grad)
        crow = before[self.crow.to(torch.int64)].to(self.crow.dtype)
        self.values, self.crow, self.col, self._kept = new, crow, self.col[kept].contiguous(), None

    @torch.no_grad()
    def adopt_pattern(self, state: Mapping[str, Tensor], prefix: str = "") -> None:
        """Takes the pattern of a saved state dict, so that load_state_dict fits; the values are zero until then."""
        shape = tuple(int(item) for item in state[prefix + "shape"])
        if shape != self._sizes:
            raise UnsupportedInput(self._other_shape(prefix, shape))
        self._require_pattern(state, prefix)
        device = self.values.device
        fresh = torch.zeros(state[prefix + "values"].shape, dtype=self.values.dtype, device=device)
        with torch.inference_mode(mode=False):  # tensors of its own: the state dict may be another model's
            crow, col = (
                state[prefix + key].to(device).clone(memory_format=torch.contiguous_format) for key in ("crow", "col")
            )
        self.values = nn.Parameter(fresh, requires_grad=self.values.requires_grad)
        self.crow, self.col, self.shape, self._kept = crow, col, self._sizes_on(device), None
        self.distinct = self._is_distinct(state[prefix + "crow"], state[prefix + "col"])

    def extra_repr(self) -> str:
        stored = self.values.shape[0]
        blocks = -(-self.out_features // self.block) * -(-self.in_features // self.block)
        text = (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"block={self.block}, blocks={stored} of {blocks}, density={stored / blocks:.3g}"
        )
        text += "" if self.activation is None else f", activation={self.activation}"
        return text + ("" if self.backend == "auto" else f", backend={self.backend}")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}  # a copy makes its own

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if "shape" not in self._buffers:  # pickled before it was a buffer
            self.register_buffer("shape", self._sizes_on(self.crow.device))
            self.distinct = self._is_distinct(self.crow, self.col)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        *_, errors = rest
        complaint = self._why_not(state_dict, prefix)
        if complaint:
            errors.append(complaint)
            return  # torch's own "size mismatch for values" would only hide the cause
        had_numbers = not self.crow.is_meta
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if not (had_numbers or self.crow.is_meta):  # assign=True put a pattern where there was none
            self.distinct = self._is_distinct(self.crow, self.col)

    def _why_not(self, state: Mapping[str, Tensor], prefix: str) -> str:
        name = prefix.rstrip(".") or "this layer"
        if prefix + "values" not in state and prefix + "weight" in state:
            return (
                f"{name}: the checkpoint holds a dense weight; values, crow and col are accepted. Convert it with "
                f"firstlight.kernels.checkpoints, or load it into the dense model and call sparsify_."
            )
        if any(prefix + key not in state for key in ("values", "crow", "col")):
            return ""  # torch names the missing keys
        if prefix + "shape" in state and not state[prefix + "shape"].is_meta:
            shape = tuple(int(item) for item in state[prefix + "shape"])
            if shape != self._sizes:
                return self._other_shape(prefix, shape)
        crow, col = state[prefix + "crow"], state[prefix + "col"]
        same = crow.shape == self.crow.shape and col.shape == self.col.shape
        if same and not (self.crow.is_meta or crow.is_meta):
            device = self.crow.device
            same = bool((crow.to(device) == self.crow).all()) and bool((col.to(device) == self.col).all())
        if same and not self.crow.is_meta:
            return ""
        if same:  # nothing to compare it with, so it is looked at by itself
            try:
                self._require_pattern(state, prefix)
            except UnsupportedInput as error:
                return str(error)
            return ""
        places = "" if col.shape[0] != self.col.shape[0] else ", at other places"
        return (
            f"{name}: the checkpoint has another pattern ({col.shape[0]} stored blocks; this layer has "
            f"{self.col.shape[0]}{places}). Its values belong to its own blocks. To take its "
            f"patterns: firstlight.kernels.checkpoints.load_with_patterns(model, state)."
        )

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.out_features, self.in_features, self.block

    def _sizes_on(self, device: torch.device) -> Tensor:
        with torch.inference_mode(mode=False):
            return torch.tensor(self._sizes, device=device)

    def _require_pattern(self, state: Mapping[str, Tensor], prefix: str) -> None:
        """Raises unless a state dict holds a pattern of this shape; unsorted columns and blocks twice are accepted."""
        values = state[prefix + "values"]
        crow, col = (state[prefix + key].to(values.device) for key in ("crow", "col"))
        rows, cols, block = self._sizes
        try:
            require_shape(values, "values", (None, block, block))
            require_parts(values, crow, col, (rows, cols))
            if not crow.is_meta:
                require_pattern(crow, col, -(-cols // block), allow_unsorted=True, allow_duplicates=True)
        except UnsupportedInput as error:
            raise UnsupportedInput(f"{prefix.rstrip('.') or 'this layer'}: {error}") from None

    def _is_distinct(self, crow: Tensor, col: Tensor) -> bool:
        if crow.is_meta:
            return False  # not known yet; True would be a promise
        places = rows_of_entries(crow, col).to(torch.int64) * -(-self.in_features // self.block) + col
        ordered = torch.sort(places).values
        return not bool((ordered[1:] == ordered[:-1]).any())

    def _other_shape(self, prefix: str, shape: tuple[int, ...]) -> str:
        name = prefix.rstrip(".") or "this layer"
        return (
            f"{name}: the checkpoint is for [out_features, in_features, block] = {list(shape)}; this layer has "
            f"{list(self._sizes)}. Build the layer in that shape."
        )


class GatedBlockSparseLinear(nn.Module):
    """activation(first(x)) * gate(x) in one call, the first half of a SwiGLU or GEGLU MLP.

    Submodules: first and gate, two BlockSparseLinear of one shape without activations; their patterns may differ.
    """

    def __init__(
        self, first: BlockSparseLinear, gate: BlockSparseLinear, *,
        activation: str | Activation | None = "silu", backend: str = "auto",
    ) -> None:  # fmt: skip
        super().__init__()
        for name, layer in (("first", first), ("gate", gate)):
            if layer.activation not in (None, Activation.NONE.value):
                raise UnsupportedInput(
                    f"{name} has the activation {layer.activation!r}; a layer without one is accepted. Give the "
                    f"activation to GatedBlockSparseLinear."
                )
        self.first, self.gate = first, gate
        self.activation = activation.value if isinstance(activation, Activation) else activation
        self.backend = backend

    def forward(self, x: Tensor) -> Tensor:
        first, gate, backend = self.first, self.gate, self.backend
        if torch.compiler.is_compiling():
            factor = linear_traced(x, gate.values, gate.parts, gate.bias, activation=None, backend=backend)
            return linear_traced(
                x, first.values, first.parts, first.bias, activation=self.activation, backend=backend, factor=factor
            )
        return gated_linear(
            x, first.matrix, gate.matrix, first.bias, gate.bias, activation=self.activation, backend=backend
        )

    def extra_repr(self) -> str:
        text = f"activation={self.activation}"
        return text + ("" if self.backend == "auto" else f", backend={self.backend}")
