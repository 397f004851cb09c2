"""Scaled dot-product attention by backend; a causal row counts what the mask leaves."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from firstlight.bench import attention_counts
from firstlight.bench.attention_counts import AttentionShape
from firstlight.bench.case import Cache, Case, Effort, Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.needs import bf16_needs, capability_needs
from firstlight.bench.cases.settings import Backend, Products, Settings, under
from firstlight.bench.cases.unavailable import Unavailable
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Attention:
    """One self-attention: its sizes, mask and backend."""

    case_id: str
    dtype: str
    shape: AttentionShape
    mask: str  # full or causal
    backend: Backend


SMALL = AttentionShape.square(8, 12, seq=128, head_dim=64)
MEDIUM = AttentionShape.square(8, 12, seq=512, head_dim=64)
LONG = AttentionShape.square(4, 32, seq=4096, head_dim=128)
SHAPES = (
    ("fp16", SMALL),
    ("fp16", MEDIUM),
    ("fp16", AttentionShape.square(8, 12, seq=2048, head_dim=64)),
    ("fp16", AttentionShape.square(4, 32, seq=1024, head_dim=128)),
    ("fp16", LONG),
    ("bf16", MEDIUM),
    ("bf16", AttentionShape.square(4, 32, seq=2048, head_dim=128)),
)
HUGE = AttentionShape.square(16, 96, seq=4096, head_dim=128)
FAST_BACKENDS = (Backend.FLASH, Backend.CUDNN)


def cases(place: Place) -> tuple[Case, ...]:
    """Seven shapes by backend, the large causal one, and the small one with its data in the cache."""
    return (*_seven(place), *_large(place), *_warm(place))


def _seven(place: Place) -> tuple[Case, ...]:
    by_backend = (
        attention_case(
            dtype,
            shape,
            "full",
            backend=backend,
            effort=_effort(backend, shape),
            needs=attention_needs(dtype, backend, place),
        )
        for backend in (*FAST_BACKENDS, Backend.MEM_EFFICIENT)
        for dtype, shape in SHAPES
    )
    # The math path writes every score: sensible for short sequences alone.
    plain = (
        attention_case("fp16", shape, "full", backend=Backend.MATH, effort=Effort.RIGOROUS) for shape in (SMALL, MEDIUM)
    )
    return (*by_backend, *plain)


def _effort(backend: Backend, shape: AttentionShape) -> Effort:
    """Standard has every shape with flash, and with cuDNN where sequences are long enough to tell the two apart."""
    if backend is Backend.MEM_EFFICIENT or (backend is Backend.CUDNN and shape.q_len < 1024):
        return Effort.RIGOROUS
    return Effort.QUICK if shape is LONG else Effort.STANDARD


def _large(place: Place) -> tuple[Case, ...]:
    return tuple(
        attention_case(
            "fp16",
            HUGE,
            mask,
            backend=backend,
            effort=Effort.QUICK if mask == "causal" else Effort.RIGOROUS,
            needs=attention_needs("fp16", backend, place),
        )
        for mask in ("causal", "full")
        for backend in FAST_BACKENDS
    )


def _warm(place: Place) -> tuple[Case, ...]:
    return tuple(
        attention_case(
            "fp16",
            SMALL,
            "full",
            backend=backend,
            cache=Cache.WARM,
            effort=_effort(backend, SMALL),
            needs=attention_needs("fp16", backend, place),
        )
        for backend in FAST_BACKENDS
    )


def attention_needs(dtype: str, backend: Backend, place: Place) -> str:
    """Flash and cuDNN attention need tensor cores of Ampere; bf16 does as well."""
    if backend in FAST_BACKENDS:
        return capability_needs(f"{backend.value} attention kernels", place, least=(8, 0))
    return bf16_needs(place) if dtype == "bf16" else ""


def attention_case(
    dtype: str,
    shape: AttentionShape,
    mask: str,
    *,
    backend: Backend,
    effort: Effort = Effort.STANDARD,
    needs: str = "",
    cache: Cache = Cache.COLD,
) -> Case:
    """One attention, e.g. sdpa/cudnn/fp16/b16-h96-s4096-d128/causal."""
    sizes = f"b{shape.batch}-h{shape.heads}-s{shape.q_len}-d{shape.qk_dim}"
    case_id = f"sdpa/{backend.value}/{dtype}/{sizes}/{mask}" + ("/warm" if cache is Cache.WARM else "")
    work = attention_counts.attention(shape, element_bytes=data.ELEMENT_BYTES[dtype], mask=mask)
    return Case(
        id=case_id,
        family="sdpa",
        params=(
            ("batch", str(shape.batch)),
            ("heads", str(shape.heads)),
            ("seq", str(shape.q_len)),
            ("head_dim", str(shape.qk_dim)),
            ("mask", mask),
            ("backend", backend.value),
            ("layout", "bhsd"),
        ),
        dtype=dtype,
        work=work,
        peak=dtype,
        prepare=partial(prepare_attention, Attention(case_id, dtype, shape, mask, backend)),
        set_bytes=work.bytes,
        tolerance=data.TOLERANCE[dtype],
        cache=cache,
        least_effort=effort,
        devices=("cuda",),
        needs=needs,
    )


def prepare_attention(case: Attention, place: Place, sets: int) -> Prepared:
    """Queries, keys and values of unit variance; raises Unavailable when torch has no such kernel here."""
    from torch.nn.functional import scaled_dot_product_attention

    shape = case.shape
    inputs: list[tuple[Tensor, Tensor, Tensor]] = []
    for part in range(sets):
        random = data.source(case.case_id, place, part=part)
        query = data.normal((shape.batch, shape.heads, shape.q_len, shape.qk_dim), case.dtype, random)
        key = data.normal((shape.batch, shape.kv_heads, shape.kv_len, shape.qk_dim), case.dtype, random)
        value = data.normal((shape.batch, shape.kv_heads, shape.kv_len, shape.v_dim), case.dtype, random)
        inputs.append((query, key, value))
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    settings = Settings(Products.IEEE, case.backend)
    causal = case.mask == "causal"
    calls = tuple(
        data.holding(under(settings, partial(scaled_dot_product_attention, *qkv, is_causal=causal)), box)
        for qkv, box in zip(inputs, boxes, strict=True)
    )
    _first_call(calls[0], case)

    def check() -> float:
        out = data.call_on_poison(calls[0], boxes[0], shape=inputs[0][0].shape, dtype=case.dtype, place=place)
        return attention_error(inputs[0], out, case=case, place=place)

    return Prepared(calls, check)


def _first_call(call: Any, case: Attention) -> None:
    try:
        call()
    except RuntimeError as error:  # torch has no class of its own for "this backend cannot do that"
        if "No available kernel" in str(error) or "No viable backend" in str(error):
            raise Unavailable(f"torch has no {case.backend.value} attention kernel for this case here") from None
        raise


def attention_error(qkv: tuple[Tensor, Tensor, Tensor], out: Tensor, *, case: Attention, place: Place) -> float:
    """Error of spread queries of a few heads against softmax(q k' / sqrt d) v in double precision."""
    import torch

    query, key, value = qkv
    queries, positions = data.spread(query.shape[2], place), torch.arange(key.shape[2], device=place.device)
    worst = 0.0
    for number in data.spread(case.shape.batch * case.shape.heads, place, count=4).tolist():
        batch, head = divmod(number, case.shape.heads)
        scores = query[batch, head, queries].double() @ key[batch, head].double().t() * case.shape.qk_dim**-0.5
        if case.mask == "causal":
            scores = scores.masked_fill(positions[None, :] > queries[:, None], float("-inf"))
        wanted = scores.softmax(dim=1) @ value[batch, head].double()
        worst = max(worst, data.relative_error(out[batch, head, queries], wanted))
    return worst
