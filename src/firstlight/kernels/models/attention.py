"""One attention layer of a transformers model, by our kernels where they take it; else by torch, with the reason told.

attention_calls() says how often which way was taken and why. A layer that goes another way than ours for a reason that
a user may not know of warns once (SlowerPath).
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from firstlight.kernels.block_attention.functions import attention
from firstlight.kernels.block_attention.mask import BlockMask
from firstlight.kernels.choose import SlowerPath
from firstlight.kernels.models import plain

OURS = "firstlight"
ONE_QUERY = "one query: every key is read once whoever computes it"
NO_WORD = (ONE_QUERY,)  # what everybody meets who generates text needs no warning
_CALLS: Counter[str] = Counter()


class Way(NamedTuple):
    """Who computes a layer, e.g. Way('sdpa', 'dropout 0.1 in training'); '' of ours."""

    who: str  # firstlight, sdpa (torch's kernels, called by transformers' own function) or plain (every logit written)
    why: str = ""

    def __str__(self) -> str:
        return f"{self.who}: {self.why}" if self.why else self.who


class Layer(NamedTuple):
    """What a layer asks for besides its tensors."""

    mask: Tensor | BlockMask | None
    scale: float | Tensor | None
    dropout: float
    causal: bool  # where there is no mask
    rest: Mapping[str, Any]


def attention_calls() -> dict[str, int]:
    """How many layers were computed in which way since the start, e.g. {'firstlight': 24, 'sdpa: one query ...': 96}.

    Compiled code counts nothing.
    """
    return dict(_CALLS.most_common())


def forget_attention_calls() -> None:
    """Starts counting again."""
    _CALLS.clear()


def attend(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | BlockMask | None, *,
    dropout: float = 0.0, scaling: float | Tensor | None = None, is_causal: bool | None = None,
    backend: str = "auto", **rest: Any,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The layer's output [batch, queries, heads, head dim], and its weights where they were asked for."""
    said = getattr(module, "is_causal", True) if is_causal is None else is_causal
    causal = attention_mask is None and query.shape[2] > 1 and bool(said)
    layer = Layer(attention_mask, scaling, dropout, causal, rest)
    way = way_for(query, value, layer)
    if not is_compiling():
        _note(way)
    if way.who == OURS:
        return _ours(query, key, value, layer, backend), None
    if way.who == "plain":
        return _plain(query, key, value, layer)
    return _by_torch(module, query, key, value, layer)


def way_for(query: Tensor, value: Tensor, layer: Layer) -> Way:
    """Who computes the layer, and why not we."""
    rest = layer.rest
    found = _why_not_ours(query, value, layer)
    if rest.get("softcap") is not None:
        return Way("plain", f"a soft-cap of {rest['softcap']:g} on the logits")
    if rest.get("output_attentions"):
        return Way("plain", "the weights were asked for (output_attentions)")
    if found and rest.get("s_aux") is not None:
        return Way("plain", f"{found}, and sinks")
    return Way("sdpa", found) if found else Way(OURS)


def _why_not_ours(query: Tensor, value: Tensor, layer: Layer) -> str:
    if layer.dropout:
        return f"dropout {layer.dropout:g} of the weights, in training"
    if layer.rest.get("position_bias") is not None:
        return "a bias on the logits"
    if value.shape[3] != query.shape[3]:
        return f"values of {value.shape[3]} beside a head dim of {query.shape[3]}"
    if isinstance(layer.scale, Tensor):
        return "a scale that is a tensor"
    if query.shape[2] == 1 and not isinstance(layer.mask, BlockMask):
        return ONE_QUERY
    if isinstance(layer.mask, Tensor):
        return "a mask that is a tensor (of the caller, or made in compiled code)"
    return ""


def _note(way: Way) -> None:
    told = str(way)
    if told not in _CALLS and way.why and not way.why.startswith(NO_WORD):
        message = {
            "sdpa": "goes to torch's scaled_dot_product_attention",
            "plain": "is computed with all logits in memory",
        }
        warnings.warn(f"attn_implementation 'firstlight' {message[way.who]}: {way.why}.", SlowerPath, stacklevel=3)
    _CALLS[told] += 1


def _ours(query: Tensor, key: Tensor, value: Tensor, layer: Layer, backend: str) -> Tensor:
    mask, scale, sinks = layer.mask, layer.scale, layer.rest.get("s_aux")
    assert not isinstance(mask, Tensor), "a tensor goes another way"
    assert not isinstance(scale, Tensor), "a tensor goes another way"
    if sinks is None:
        made = attention(query, key, value, mask, causal=layer.causal, scale=scale, backend=backend)
    else:  # the sink takes its share of every row's weight
        out, lse = attention(
            query, key, value, mask, causal=layer.causal, scale=scale, backend=backend, return_lse=True
        )
        made = out * torch.sigmoid(lse - sinks.to(lse.dtype)[:, None])[..., None].to(out.dtype)
    return made.transpose(1, 2).contiguous()


def _plain(query: Tensor, key: Tensor, value: Tensor, layer: Layer) -> tuple[Tensor, Tensor]:
    seen = layer.mask.to_bool() if isinstance(layer.mask, BlockMask) else layer.mask
    if layer.causal:
        seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
    scale = query.shape[3] ** -0.5 if layer.scale is None else layer.scale
    rest = layer.rest
    extras = plain.Extras(layer.dropout, rest.get("softcap"), rest.get("s_aux"), rest.get("position_bias"))
    out, weights = plain.attended(query, key, value, seen, scale, extras)
    return out.transpose(1, 2).contiguous(), weights


def _by_torch(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, layer: Layer
) -> tuple[Tensor, Tensor | None]:
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    mask = layer.mask.to_bool() if isinstance(layer.mask, BlockMask) else layer.mask
    made: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
        module, query, key, value, mask, dropout=layer.dropout, scaling=layer.scale, is_causal=layer.causal,
        **layer.rest,
    )  # fmt: skip
    return made
