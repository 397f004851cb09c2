"""Turning the linear layers of a model into block-sparse ones, and pruning those further while training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from firstlight.errors import UnsupportedInput
from firstlight.kernels.checks import require_block
from firstlight.kernels.nn import BlockSparseLinear
from firstlight.kernels.pruning import block_scores, keep_best, keep_random, require_density, stored_scores

Method = Callable[[str, Tensor, int, float], Tensor]
FEWEST_BLOCKS = 16  # a layer of fewer blocks is too small to gain anything
METHODS = ("magnitude", "random")


@dataclass(frozen=True, slots=True)
class Layer:
    """What happened to one layer, e.g. Layer('head', 'kept', 'it matches the skip pattern head', 1.0, 5120)."""

    name: str
    done: str  # "sparsified" or "kept"
    why: str
    density: float  # of the weight now
    parameters: int  # stored numbers of the weight now


@dataclass(frozen=True, slots=True)
class Report:
    """What sparsify_ did to each linear layer, in the model's order."""

    layers: tuple[Layer, ...]
    parameters_before: int
    parameters_after: int

    def __str__(self) -> str:
        width = max((len(layer.name) for layer in self.layers), default=0)
        lines = [
            f"{layer.name:<{width}}  {layer.done:<10}  density {layer.density:<6.3g}  {layer.why}"
            for layer in self.layers
        ]
        total = f"weights: {self.parameters_before:,} numbers before, {self.parameters_after:,} after"
        return "\n".join([*lines, total])


@dataclass(frozen=True, slots=True)
class SharedModules:
    """Under which names the modules of a model are found, and how many modules hold each parameter; by id."""

    names: Mapping[int, tuple[str, ...]]
    uses: Mapping[int, int]


@torch.no_grad()
def sparsify_(
    model: nn.Module, *, block: int, density: float, method: str | Method = "magnitude",
    skip: Iterable[str] = (), scope: str = "matrix", backend: str = "auto",
) -> Report:  # fmt: skip
    """Replaces torch.nn.Linear layers of `model`, in place, by BlockSparseLinear layers with the blocks worth keeping.

    method: "magnitude" (largest l1 norm), "random", or a function (name, weight, block, density) -> bool mask
    [block rows, block columns]. scope: "matrix" or "row" (see pruning.keep_best). skip: names or patterns such as
    "head" or "layers.0.*". Kept as they are, each with the reason in the report: layers that match skip, subclasses of
    Linear, shared layers, shared or parametrized weights, layers with hooks, and layers of fewer than 16 blocks.
    Make the optimizer after this call: the parameters are new.
    """
    require_block(block)
    require_density(density)
    chosen = _method(method, scope)
    patterns = _patterns(skip, model)
    wiring = wiring_of(model)
    layers: list[Layer] = []
    before = after = 0
    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear):
            continue
        weight = module.weight
        before += weight.numel()
        if why := _why_kept(model, module, patterns, wiring) or _too_small(weight, block):
            layers.append(Layer(name, "kept", why, 1.0, weight.numel()))
            after += weight.numel()
            continue
        mask = _checked(chosen(name, weight.detach(), block, density), weight, block)
        made = BlockSparseLinear.from_linear(module, mask, block=block, backend=backend)
        note = replace_layer(model, name, made)
        stored = made.values.shape[0]
        numbers = made.values.numel()
        layers.append(Layer(name, "sparsified", f"{stored} of {mask.numel()} blocks{note}", made.density, numbers))
        after += numbers
    return Report(tuple(layers), before, after)


@torch.no_grad()
def prune_further_(
    layer: BlockSparseLinear, *, density: float, optimizer: torch.optim.Optimizer | None = None, norm: str = "l1"
) -> int:
    """Drops the stored blocks with the smallest norm until the layer has this density; returns how many were dropped.

    The gradient and the optimizer's state for the values (momentum and the like) are carried over for the blocks that
    stay.
    """
    require_density(density)
    places = -(-layer.out_features // layer.block) * -(-layer.in_features // layer.block)
    stored = layer.values.shape[0]
    wanted = max(1, round(density * places))
    if wanted >= stored:
        return 0
    kept = keep_best(stored_scores(layer.values, norm=norm).view(1, -1), density=wanted / stored).view(-1)
    old = layer.values
    if optimizer is not None:
        _require_held(optimizer, old)
    layer.keep_(kept)
    layer.values.grad = None if old.grad is None else old.grad[kept]
    if optimizer is not None:
        _carry_over(optimizer, old, layer.values, kept)
    return stored - layer.values.shape[0]


def _require_held(optimizer: torch.optim.Optimizer, values: nn.Parameter) -> None:
    if not any(parameter is values for group in optimizer.param_groups for parameter in group["params"]):
        raise UnsupportedInput(
            "the optimizer does not hold the values of this layer; pass the one that was made with model.parameters()."
        )


def _carry_over(optimizer: torch.optim.Optimizer, old: nn.Parameter, new: nn.Parameter, kept: Tensor) -> None:
    for group in optimizer.param_groups:
        group["params"][:] = [new if parameter is old else parameter for parameter in group["params"]]
    state: dict[str, Any] = optimizer.state.pop(old, {})
    optimizer.state[new] = {name: _of_kept(item, old, kept) for name, item in state.items()}


def _of_kept(item: Any, values: Tensor, kept: Tensor) -> Any:
    """An item of an optimizer's state for the blocks that stay, e.g. Adafactor's row_var [stored blocks, block, 1]."""
    # factored statistics keep the block as their first dimension, and lose another one in some optimizers
    if isinstance(item, Tensor) and 1 < item.dim() <= values.dim() and item.shape[0] == values.shape[0]:
        return item[kept].contiguous()
    return item


def _method(method: str | Method, scope: str) -> Method:
    if callable(method):
        return method
    if method == "magnitude":
        return lambda name, weight, block, density: keep_best(
            block_scores(weight, block=block), density=density, scope=scope
        )
    if method == "random":
        return lambda name, weight, block, density: keep_random(_places(weight, block), density=density)
    raise UnsupportedInput(
        f"method is {method!r}; accepted: {', '.join(METHODS)}, or a function (name, weight, block, density) -> mask."
    )


def _places(weight: Tensor, block: int) -> tuple[int, int]:
    rows, cols = weight.shape
    return -(-rows // block), -(-cols // block)


def _checked(mask: Tensor, weight: Tensor, block: int) -> Tensor:
    places = _places(weight, block)
    if tuple(mask.shape) != places or mask.dtype != torch.bool:
        raise UnsupportedInput(
            f"method returned {list(mask.shape)} {mask.dtype}; bool {list(places)} is accepted for a weight of "
            f"{list(weight.shape)} at block {block}."
        )
    return mask


def wiring_of(model: nn.Module) -> SharedModules:
    """The names and shared parameters of a model as it is now."""
    names: dict[int, tuple[str, ...]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names[id(module)] = (*names.get(id(module), ()), name)
    uses: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    return SharedModules(names, uses)


def _patterns(skip: Iterable[str], model: nn.Module) -> tuple[str, ...]:
    """The skip patterns; one that no linear layer matches is refused, because it would be pruned without a word."""
    if isinstance(skip, str):
        raise UnsupportedInput(
            f"skip is the string {skip!r}; a list of names or patterns is accepted, e.g. [{skip!r}]."
        )
    patterns = tuple(skip)
    names = [name for name, module in model.named_modules(remove_duplicate=False) if isinstance(module, nn.Linear)]
    for pattern in patterns:
        if not any(name == pattern or fnmatchcase(name, pattern) for name in names):
            shown = ", ".join(names[:8])
            raise UnsupportedInput(
                f"skip has {pattern!r}, which no linear layer is called; there are {shown}. Use * for a part of a name."
            )
    return patterns


def _why_kept(model: nn.Module, module: nn.Linear, skip: tuple[str, ...], wiring: SharedModules) -> str:
    names = wiring.names[id(module)]
    for pattern in skip:
        if any(name == pattern or fnmatchcase(name, pattern) for name in names):
            return f"it matches the skip pattern {pattern}"
    if why := why_irreplaceable(names[0], module, wiring):
        return why
    # below a shared parent a layer has several names and one place
    places = {(id(model.get_submodule(path)), last) for path, _, last in (name.rpartition(".") for name in names)}
    return f"it is shared: {' and '.join(names)} are one layer" if len(places) > 1 else ""


def why_irreplaceable(name: str, module: nn.Linear, wiring: SharedModules) -> str:
    """Why a BlockSparseLinear cannot stand for this layer, e.g. "its weight is parametrized"; "" where it can."""
    if not name:
        return "it is the model itself, and cannot be replaced inside of it; use BlockSparseLinear.from_linear"
    if hasattr(module, "parametrizations"):
        return "its weight is parametrized"
    if type(module) is not nn.Linear:
        return f"it is a {type(module).__name__}, whose owner reads its weight"
    if "weight" not in module._parameters:
        return "its weight is computed by a hook (pruning or weight_norm of torch.nn.utils)"
    for part in ("weight", "bias"):
        if wiring.uses.get(id(module._parameters.get(part)), 0) > 1:
            return f"its {part} is shared with another module"
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return "it has hooks, which a new layer would lose"
    if module.weight.is_meta:
        return "its weight has no data yet (meta device)"
    return ""


def _too_small(weight: Tensor, block: int) -> str:
    rows, cols = _places(weight, block)
    if rows * cols < FEWEST_BLOCKS:
        return f"it has {rows * cols} blocks of {block}; fewer than {FEWEST_BLOCKS} gain nothing"
    return ""


def replace_layer(model: nn.Module, name: str, made: BlockSparseLinear) -> str:
    """Puts the layer into its parent; returns what else had to change."""
    path, _, last = name.rpartition(".")
    parent = model.get_submodule(path)
    parent.register_module(last, made)
    if not isinstance(parent, nn.TransformerEncoderLayer):
        return ""
    # the inference shortcuts of the layer and of the encoder around it read linear1.weight and linear2.weight; flags of
    # their own send them the usual way
    parent.activation_relu_or_gelu = 0
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder) and any(layer is parent for layer in encoder.layers):
            encoder.enable_nested_tensor = encoder.use_nested_tensor = False
    return "; its encoder layer's fused inference path is off"
