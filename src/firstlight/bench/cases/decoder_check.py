"""Is the decoder right? The same model in fp32, widened one layer at a time, so that 13 GB of weights never double.

Products of the reference may use TF32: 10 bits of fraction against bf16's 7, and a 7B prefill takes 0.1 s instead of 1.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from firstlight.bench.cases import data
from firstlight.bench.cases.settings import Products, Settings, apply_settings
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor

    from firstlight.bench.models.decoder import Decoder

GRADIENT_ROWS = 64  # of the last layer's last matrix


@dataclass(frozen=True, slots=True)
class Session:
    """A model with what it works on; targets or cache are empty where the stage has none."""

    model: Decoder
    tokens: Tensor
    targets: Tensor
    cache: Tensor  # [layers, 2, batch, kv heads, seq, head_dim]
    turns: Tensor


@dataclass(frozen=True, slots=True)
class TrainingReference:
    """The loss before a step and rows of one gradient."""

    loss: Tensor
    gradient: Tensor
    rows: Tensor

    def error(self, session: Session, loss: Tensor) -> float:
        """The worse of loss and gradient; infinite when the first layer got no gradient."""
        first: Any = session.model.layers[0]
        gradient = first.qkv.weight.grad
        reached = 0.0 if gradient is None else float(gradient.double().norm().item())
        if not (math.isfinite(reached) and reached > 0):
            return math.inf
        last: Any = session.model.layers[-1]
        return max(
            data.relative_error(loss, self.loss),
            data.relative_error(last.down.weight.grad[self.rows], self.gradient),
        )


def inference_error(session: Session, scores: Tensor) -> float:
    """The worse of the scores and of the last layer's keys, against fp32."""
    import torch

    apply_settings(Settings(_wide_products(session)))
    with torch.no_grad():
        wanted, key = _wide_forward(session)
    kept = session.cache[-1, 0][:, :, -key.shape[2] :]
    return max(data.relative_error(scores, wanted), data.relative_error(kept, key))


def _wide_forward(session: Session) -> tuple[Tensor, Tensor]:
    import torch

    from firstlight.bench.models.decoder import Mask, attend

    wide = _wide_type(session)
    model, turns = session.model, session.turns.to(wide)[:, -session.tokens.shape[1] :]
    new = session.tokens.shape[1]
    x = model.embedding(session.tokens).to(wide)
    key = x
    for layer, kept in zip(model.layers, session.cache, strict=True):
        step: Any = copy.deepcopy(layer).to(wide)
        query, key, value = step.split(x, turns)
        if new == kept.shape[3]:
            x = step.finish(x, attend(query, key, value, mask=Mask.CAUSAL))
        else:
            keys = torch.cat((kept[0][:, :, :-new].to(wide), key), dim=2)
            values = torch.cat((kept[1][:, :, :-new].to(wide), value), dim=2)
            x = step.finish(x, attend(query, keys, values, mask=Mask.NONE))
    return _wide_scores(session, x[:, -1:]), key


def _wide_scores(session: Session, x: Tensor) -> Tensor:
    from torch.nn.functional import linear, rms_norm

    from firstlight.bench.models.decoder import EPSILON

    model = session.model
    return linear(rms_norm(x, (x.shape[-1],), model.norm.to(x.dtype), EPSILON), model.head.weight.to(x.dtype))


def training_reference(session: Session) -> TrainingReference:
    """Loss by a forward pass in fp32; the gradient of the last layer alone, which needs no more than that layer."""
    import torch
    from torch.nn.functional import cross_entropy

    from firstlight.bench.models.decoder import Mask, attend

    apply_settings(Settings(_wide_products(session)))
    wide = _wide_type(session)
    turns = session.turns.to(wide)
    with torch.no_grad():
        x = session.model.embedding(session.tokens).to(wide)
    last: Any = None
    for number, layer in enumerate(session.model.layers):
        last = copy.deepcopy(layer).to(wide)
        with torch.set_grad_enabled(mode=number == len(session.model.layers) - 1):
            query, key, value = last.split(x, turns)
            x = last.finish(x, attend(query, key, value, mask=Mask.CAUSAL))
    loss = cross_entropy(_wide_scores(session, x).flatten(0, 1), session.targets.flatten())
    [gradient] = torch.autograd.grad(loss, [last.down.weight])
    rows = torch.linspace(0, gradient.shape[0] - 1, min(GRADIENT_ROWS, gradient.shape[0])).long().to(gradient.device)
    return TrainingReference(loss.detach(), gradient[rows], rows)


def _wide_type(session: Session) -> Any:
    import torch

    return torch.float64 if session.turns.dtype is torch.float32 else torch.float32


def _wide_products(session: Session) -> Products:
    import torch

    return Products.IEEE if session.turns.dtype is torch.float32 else Products.TF32
