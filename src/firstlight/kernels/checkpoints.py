"""State dicts of other block-sparse formats as ours, and models that take a checkpoint's patterns.

Read: torch.sparse_bsr weights; torchao's former BlockSparseTensor weights (bsr_crow_indices, bsr_col_indices,
bsr_values, whole tensors or flattened keys); superblock's SupermaskLinear (weight, scores, scale, shift). Converted
means: for a layer `name`, the keys name.values, name.crow, name.col, name.shape of a BlockSparseLinear.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from firstlight.errors import BadInput, UnsupportedInput
from firstlight.kernels.checks import require_block
from firstlight.kernels.construct import from_mask, from_parts
from firstlight.kernels.convert import from_torch_bsr
from firstlight.kernels.matrix import BlockSparseMatrix
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.pruning import require_density
from firstlight.kernels.sparsify import SharedModules, replace_layer, why_irreplaceable, wiring_of

INNER = ("bsr_crow_indices", "bsr_col_indices", "bsr_values")
SEPARATORS = (".", ":", "_")  # between a weight's name and an inner tensor's in flattened checkpoints
# the places the class had over the years; a pickled checkpoint names one of them
FORMER_CLASSES = (
    "torchao.sparsity.blocksparse.BlockSparseTensor",
    "torchao.prototype.sparsity.superblock.blocksparse.BlockSparseTensor",
    "torchao.sparsity.prototype.superblock.blocksparse.BlockSparseTensor",
)


class FormerBlockSparseTensor(Tensor):
    """Stands in for torchao's class while a checkpoint that names it is read."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, *rest: Any) -> Any:
        raise UnsupportedInput(
            f"{func}: this weight is torchao's former block-sparse tensor and only holds data. Convert the state dict "
            f"with firstlight.kernels.checkpoints.converted first."
        )


def load_former(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A checkpoint with torchao's former block-sparse weights, read and converted; torchao need not be installed.

    Only tensors are unpickled (torch's weights_only loader with that one class allowed).
    """
    allowed: list[Any] = [(FormerBlockSparseTensor, name) for name in FORMER_CLASSES]
    with torch.serialization.safe_globals([*allowed, torch.Size, torch.device]):
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping):
        raise BadInput(f"{os.fspath(path)} holds a {type(state).__name__}; a state dict is accepted.")
    return converted(state)


def converted(
    state: Mapping[str, Any], *, block: int | None = None, shapes: Mapping[str, tuple[int, int]] | None = None
) -> dict[str, Any]:
    """The state dict with every block-sparse weight in our keys; everything else is passed on as it is.

    block: re-block to this size. shapes: of weights stored as flattened keys without their shape, by weight name;
    without it their block columns are taken as far as the last one used.
    """
    flattened = _flattened_names(state)
    out: dict[str, Any] = {}
    for key, item in state.items():
        if any(key in keys for keys in flattened.values()):
            continue
        matrix = _as_matrix(key, item, block)
        if matrix is None:
            out[key] = item
        else:
            out.update(layer_state(_layer_of(key), matrix))
    for name, keys in flattened.items():
        crow, col, values = (state[key] for key in keys)
        matrix = _from_inner(name, (crow, col, values), (shapes or {}).get(name), block)
        out.update(layer_state(_layer_of(name), matrix))
    return out


def from_superblock(
    state: Mapping[str, Tensor], *, density: float, block: int | None = None, skip: Iterable[str] = ()
) -> dict[str, Any]:
    """The state dict of superblock's SupermaskLinear layers with weight * scale + shift at the tiles it kept.

    density: 1 - the sparsity the model was trained with (the state dict does not hold it). The tile size is read off
    the shapes of weight and scores; block: re-block to this size.
    """
    require_density(density)
    skipped = set(skip)
    layers = [key.removesuffix(".scores") for key in state if key.endswith(".scores")]
    layers = [name for name in layers if state[f"{name}.weight"].dim() == 2 and name not in skipped]
    used = {f"{name}.{part}" for name in layers for part in ("weight", "scores", "scale", "shift")}
    out: dict[str, Any] = {key: item for key, item in state.items() if key not in used}
    for name in layers:
        weight, scores = state[f"{name}.weight"], state[f"{name}.scores"]
        one = weight.new_ones(1)
        effective = weight * state.get(f"{name}.scale", one) + state.get(f"{name}.shift", one * 0)
        matrix = from_mask(_supermask(scores, density), block=_tile(name, weight, scores), values=effective)
        out.update(layer_state(name, _reblocked(matrix, block)))
    return out


def layer_state(name: str, matrix: BlockSparseMatrix) -> dict[str, Tensor]:
    """The keys of a BlockSparseLinear called `name` for this weight."""
    prefix = f"{name}." if name else ""
    rows, cols = matrix.shape
    return {
        f"{prefix}values": matrix.values.detach(),
        f"{prefix}crow": matrix.pattern.crow,
        f"{prefix}col": matrix.pattern.col,
        f"{prefix}shape": torch.tensor([rows, cols, matrix.block]),
    }


@torch.no_grad()
def load_with_patterns(model: nn.Module, state: Mapping[str, Any], *, strict: bool = True) -> tuple[str, ...]:
    """Loads a state dict and takes its patterns: Linear layers become BlockSparseLinear where it holds values for them.

    Returns the names of the layers whose pattern was taken. A layer that is in the model under several names stays one
    layer. A Linear that sparsify_ could not replace either (a subclass, a shared or parametrized weight, hooks) is
    refused, before anything is changed. The parameters are new: make the optimizer afterwards.
    """
    wiring = wiring_of(model)
    taken = {name: layer for name in _names_with_blocks(state) if (layer := _takes_blocks(model, name)) is not None}
    made: dict[int, BlockSparseLinear] = {}  # by the id of the layer it stands for
    for name, layer in taken.items():
        if isinstance(layer, nn.Linear) and id(layer) not in made:
            made[id(layer)] = _layer_for(name, layer, state, wiring)
    for name, layer in taken.items():
        if isinstance(layer, BlockSparseLinear):
            layer.adopt_pattern(state, f"{name}." if name else "")
    for key, new in made.items():
        for name in wiring.names[key]:
            replace_layer(model, name, new)
    model.load_state_dict(dict(state), strict=strict)
    return tuple(taken)


def _names_with_blocks(state: Mapping[str, Any]) -> list[str]:
    """The layers whose values, crow, col and shape are all there, e.g. ["layers.0.up"]; "" is the model itself."""
    prefixes = [key.removesuffix("values") for key in state if key.split(".")[-1] == "values"]
    parts = ("crow", "col", "shape")
    return [prefix.rstrip(".") for prefix in prefixes if all(prefix + part in state for part in parts)]


def _takes_blocks(model: nn.Module, name: str) -> BlockSparseLinear | nn.Linear | None:
    try:
        layer = model.get_submodule(name)
    except AttributeError:
        return None  # load_state_dict names the unexpected keys
    return layer if isinstance(layer, (BlockSparseLinear, nn.Linear)) else None


def _layer_for(name: str, layer: nn.Linear, state: Mapping[str, Tensor], wiring: SharedModules) -> BlockSparseLinear:
    if why := why_irreplaceable(name, layer, wiring):
        raise UnsupportedInput(
            f"{name or 'the model'}: the checkpoint holds blocks for this layer, and it cannot become a "
            f"BlockSparseLinear: {why}. A plain torch.nn.Linear is accepted. Change the model, or put the dense weight "
            f"into the checkpoint (BlockSparseMatrix.to_dense)."
        )
    prefix = f"{name}."
    rows, cols, block = (int(item) for item in state[prefix + "shape"])
    if (rows, cols) != (layer.out_features, layer.in_features):
        raise UnsupportedInput(
            f"{name}: the checkpoint's weight is [{rows}, {cols}]; the model's layer is "
            f"[{layer.out_features}, {layer.in_features}]. Build the model in the checkpoint's shape."
        )
    require_block(block)
    none = torch.zeros(-(-rows // block), -(-cols // block), dtype=torch.bool, device=layer.weight.device)
    made = BlockSparseLinear.from_linear(layer, none, block=block)
    made.adopt_pattern(state, prefix)
    return made


def _as_matrix(key: str, item: Any, block: int | None) -> BlockSparseMatrix | None:
    if not isinstance(item, Tensor):
        return None
    if item.layout == torch.sparse_bsr:
        return from_torch_bsr(item.detach(), block=block)
    if all(isinstance(getattr(item, name, None), Tensor) for name in INNER):
        if isinstance(getattr(item, "scale", None), Tensor):
            raise UnsupportedInput(
                f"{key}: an int8 weight with scales (torchao's BlockSparseLayout); fp16, bf16, fp32 and fp64 are "
                f"accepted. Dequantize it in the torchao that wrote it, and save the dense weight."
            )
        rows, cols = item.shape[0], item.shape[1]
        crow, col, values = (getattr(item, name) for name in INNER)
        return _from_inner(key, (crow, col, values), (rows, cols), block)
    return None


def _from_inner(
    name: str, inner: tuple[Tensor, Tensor, Tensor], shape: tuple[int, int] | None, block: int | None
) -> BlockSparseMatrix:
    crow, col, values = inner
    if values.dim() != 3:
        raise UnsupportedInput(
            f"{name}: bsr_values has shape {list(values.shape)}; [stored blocks, block, block] is accepted."
        )
    if shape is None:
        last = int(col.max()) if col.numel() else 0
        shape = ((crow.shape[0] - 1) * values.shape[1], (last + 1) * values.shape[2])
    if values.shape[1] == values.shape[2] and block in (None, values.shape[1]):
        return from_parts(values, crow, col, shape)
    return from_torch_bsr(torch.sparse_bsr_tensor(crow, col, values, size=shape), block=block)


def _flattened_names(state: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for key in state:
        for separator in SEPARATORS:
            ending = separator + INNER[-1]
            keys = tuple(key.removesuffix(ending) + separator + name for name in INNER)
            if key.endswith(ending) and all(other in state for other in keys):
                found[key.removesuffix(ending)] = keys
    return found


def _layer_of(weight_name: str) -> str:
    return weight_name.removesuffix("weight").rstrip(".")


def _supermask(scores: Tensor, density: float) -> Tensor:
    """The tiles superblock computes with: scores from its percentile on, e.g. 11 of 100 at density 0.1; all of equals.

    As in torchao's supermask.py (percentile, SupermaskLinear): the sparsity is at most 1 - 1 / tiles, and the rank is
    rounded over tiles - 1 by way of per cents, which decides where the product ends in a half.
    """
    tiles = scores.numel()
    sparsity = round(1.0 - density, 12)  # 1 - 0.07 is 0.9299999999999999; they were given 0.93
    per_cent = min(sparsity, 1.0 - 1.0 / tiles) * 100
    rank = 1 + round(0.01 * per_cent * (tiles - 1))
    return scores >= scores.flatten().kthvalue(rank).values


def _tile(name: str, weight: Tensor, scores: Tensor) -> int:
    for tile in (16, 32, 64, 128):
        if tuple(scores.shape) == tuple(-(-side // tile) for side in weight.shape):
            return tile
    raise UnsupportedInput(
        f"{name}: weight {list(weight.shape)} and scores {list(scores.shape)} fit no tile of 16, 32, 64 or 128. "
        f"Pass the layer in skip=, or compute the masked weight and use BlockSparseMatrix.from_dense."
    )


def _reblocked(matrix: BlockSparseMatrix, block: int | None) -> BlockSparseMatrix:
    if block in (None, matrix.block):
        return matrix
    from firstlight.kernels.convert import reblock

    assert block is not None
    return reblock(matrix, block)
