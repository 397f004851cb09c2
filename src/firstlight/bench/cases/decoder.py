"""A decoder language model of a 7B model's shape with random weights: prefill, decode, one training step.

Where 32 layers do not fit, the rows run a slice of 4 of the 32 and say so in their id; embedding and vocabulary stay
whole, so a slice's tokens per second must not be read as the model's.
"""

from __future__ import annotations

import enum
from functools import partial
from typing import TYPE_CHECKING, Any

from firstlight.bench import model_counts, operator_counts
from firstlight.bench.case import Case, Effort, Mode, Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.decoder_check import Session, inference_error, training_reference
from firstlight.bench.cases.inference import Run, captured
from firstlight.bench.cases.needs import bf16_needs
from firstlight.bench.cases.settings import Settings, under
from firstlight.bench.model_counts import DecoderShape
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LAYERS, SLICE = 32, 4
SEVEN_B = DecoderShape(layers=LAYERS, width=4096, heads=32, kv_heads=32, ff=11008, vocab=32000)
SEQ = 2048
ROOM_FOR_INFERENCE = 20_000_000_000  # 13.5 GB of weights, 1.1 GB of keys and values, activations
ROOM_FOR_TRAINING = 80_000_000_000  # 54 GB of weights, gradients and moments, about 16 GB of activations
TOLERANCE = {"bf16": 5e-2, "fp32": 1e-5}  # an H200 shows 2.0e-2 to 2.8e-2 after 32 layers of bf16
LEARNING_RATE = 1e-5


class Stage(enum.Enum):
    """What the model does in a row."""

    PREFILL = "prefill"
    DECODE = "decode"
    TRAIN = "train"


@dataclass(frozen=True, slots=True)
class DecoderRow:
    """One row: a stage of a model of this shape on `batch` sequences of `seq` tokens (decode: the new one included)."""

    shape: DecoderShape
    stage: Stage
    run: Run
    batch: int
    seq: int


def cases(place: Place) -> tuple[Case, ...]:
    """Prefill, decode eagerly and as a graph, a training step of the slice, and of the whole where it fits."""
    inference = _layers(LAYERS if place.free_bytes >= ROOM_FOR_INFERENCE else SLICE)
    needs = bf16_needs(place)
    rows = [
        (DecoderRow(inference, Stage.PREFILL, Run.EAGER, 1, SEQ), Effort.QUICK),
        (DecoderRow(inference, Stage.DECODE, Run.GRAPH, 1, SEQ), Effort.QUICK),
        (DecoderRow(inference, Stage.DECODE, Run.EAGER, 1, SEQ), Effort.STANDARD),
        (DecoderRow(_layers(SLICE), Stage.TRAIN, Run.EAGER, 1, SEQ), Effort.STANDARD),
    ]
    if place.free_bytes >= ROOM_FOR_TRAINING:
        rows.append((DecoderRow(_layers(LAYERS), Stage.TRAIN, Run.EAGER, 1, SEQ), Effort.RIGOROUS))
    return tuple(decoder_case("bf16", row, name=_name(row.shape), effort=effort, needs=needs) for row, effort in rows)


def _layers(layers: int) -> DecoderShape:
    full = SEVEN_B
    return DecoderShape(layers, full.width, full.heads, full.kv_heads, full.ff, full.vocab)


def _name(shape: DecoderShape) -> str:
    return f"7b-{LAYERS}-layers" if shape.layers == LAYERS else f"7b-{shape.layers}-of-{LAYERS}-layers"


def decoder_case(dtype: str, row: DecoderRow, *, name: str, effort: Effort = Effort.STANDARD, needs: str = "") -> Case:
    """One row, e.g. decoder/bf16/7b-32-layers/decode-b1-s2048/graph."""
    case_id = f"decoder/{dtype}/{name}/{row.stage.value}-b{row.batch}-s{row.seq}/{row.run.value}"
    return Case(
        id=case_id,
        family="decoder",
        params=_params(row),
        dtype=dtype,
        work=_work(row, data.ELEMENT_BYTES[dtype]),
        peak=dtype,
        prepare=partial(_PREPARE[row.stage], case_id, dtype, row),
        set_bytes=set_bytes(row, data.ELEMENT_BYTES[dtype]),
        tolerance=TOLERANCE[dtype],
        mode=Mode.HOST,
        least_effort=effort,
        needs=needs,
    )


def _params(row: DecoderRow) -> tuple[tuple[str, str], ...]:
    shape = row.shape
    tokens = row.batch if row.stage is Stage.DECODE else row.batch * row.seq
    sizes = (
        ("layers", str(shape.layers)),
        ("width", str(shape.width)),
        ("heads", str(shape.heads)),
        ("kv_heads", str(shape.kv_heads)),
        ("ff", str(shape.ff)),
        ("vocab", str(shape.vocab)),
    )
    optimizer = (("optimizer", "AdamW, moments in the dtype of the weights"),) if row.stage is Stage.TRAIN else ()
    return (
        ("stage", row.stage.value),
        *sizes,
        ("batch", str(row.batch)),
        ("seq", str(row.seq)),
        ("run", row.run.value),
        *optimizer,
        ("items", str(tokens)),
        ("item", "token"),
    )


def _work(row: DecoderRow, width: int) -> operator_counts.Work:
    if row.stage is Stage.PREFILL:
        return model_counts.decoder_prefill(row.shape, batch=row.batch, seq=row.seq, element_bytes=width)
    if row.stage is Stage.DECODE:
        return model_counts.decoder_decode(row.shape, batch=row.batch, context=row.seq - 1, element_bytes=width)
    return model_counts.train_step(row.shape, batch=row.batch, seq=row.seq, element_bytes=width)


def parameters(shape: DecoderShape) -> int:
    """All numbers of the model: matrices, embedding and norms; 6.738e9 for 32 layers."""
    return shape.matrix_weights + shape.vocab * shape.width + (2 * shape.layers + 1) * shape.width


def set_bytes(row: DecoderRow, width: int) -> int:
    """Weights, tokens, rotary table, and what the stage keeps: cache and scores, or gradients, moments and counters."""
    shape = row.shape
    weights = width * parameters(shape)
    turns = width * 2 * row.seq * shape.head_dim
    if row.stage is Stage.TRAIN:
        tensors = 2 + 1 + 6 * shape.layers
        return 4 * weights + turns + 2 * 8 * row.batch * row.seq + 4 * tensors + 4
    tokens = row.batch * (row.seq if row.stage is Stage.PREFILL else 1)
    cache = width * shape.kv_elements(row.batch * row.seq)
    return weights + turns + cache + 8 * tokens + width * row.batch * shape.vocab


def prepare_inference_stage(case_id: str, dtype: str, row: DecoderRow, place: Place, sets: int) -> Prepared:
    """Models with their caches; a decode row's cache is full of earlier tokens' random keys and values."""
    sessions = [_session(case_id, dtype, row, place, part=part) for part in range(sets)]
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    calls = []
    for session, box in zip(sessions, boxes, strict=True):
        step = session.model.prefill if row.stage is Stage.PREFILL else session.model.decode
        operation = partial(step, session.tokens, session.cache, session.turns)
        call = data.holding(under(Settings(), operation), box)
        calls.append(captured(call, place) if row.run is Run.GRAPH else call)
    calls[0]()

    def check() -> float:
        if row.stage is Stage.PREFILL:
            data.poison(sessions[0].cache)
        scores = data.call_on_poison(calls[0], boxes[0], shape=(), dtype=dtype, place=place)
        return inference_error(sessions[0], scores)

    return Prepared(tuple(calls), check, flags=("uncaptured",) if row.run is Run.GRAPH else ())


def prepare_training(case_id: str, dtype: str, row: DecoderRow, place: Place, sets: int) -> Prepared:
    """Model, batch and optimizer; a call is gradients to none, loss, backward, optimizer step."""
    import torch

    boxes: list[list[Any]] = [[] for _ in range(sets)]
    sessions, calls = [], []
    for part, box in enumerate(boxes):
        session = _session(case_id, dtype, row, place, part=part)
        optimizer = torch.optim.AdamW(session.model.parameters(), lr=LEARNING_RATE, fused=True)
        step = partial(_train, session, optimizer)
        sessions.append(session)
        calls.append(data.holding(under(Settings(), step), box))

    def check() -> float:
        reference = training_reference(sessions[0])
        calls[0]()
        return reference.error(sessions[0], boxes[0][0])

    return Prepared(tuple(calls), check, flags=("uncaptured",))


def _train(session: Session, optimizer: Any) -> Tensor:
    optimizer.zero_grad(set_to_none=True)
    loss = session.model.loss(session.tokens, session.targets, session.turns)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


def _session(case_id: str, dtype: str, row: DecoderRow, place: Place, *, part: int) -> Session:
    import torch

    from firstlight.bench.models.decoder import build, rotary_turns

    shape = row.shape
    random = data.source(case_id, place, part=part)
    kind = data.torch_dtype(dtype)
    model = build(shape, dtype=kind, device=place.device, random=random)
    model.requires_grad_(requires_grad=row.stage is Stage.TRAIN)
    count = 1 if row.stage is Stage.DECODE else row.seq
    tokens = _tokens(shape.vocab, (row.batch, count), random)
    turns = rotary_turns(row.seq, shape.head_dim, dtype=kind, device=place.device)
    nothing = torch.empty(0, device=place.device)
    if row.stage is Stage.TRAIN:
        return Session(model, tokens, _tokens(shape.vocab, (row.batch, count), random), nothing, turns)
    cache = data.normal((shape.layers, 2, row.batch, shape.kv_heads, row.seq, shape.head_dim), dtype, random)
    return Session(model, tokens, nothing, cache, turns)


def _tokens(vocab: int, size: tuple[int, int], random: torch.Generator) -> Tensor:
    import torch

    return torch.randint(vocab, size, generator=random, device=random.device)


_PREPARE = {
    Stage.PREFILL: prepare_inference_stage,
    Stage.DECODE: prepare_inference_stage,
    Stage.TRAIN: prepare_training,
}
