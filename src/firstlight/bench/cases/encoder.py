"""Transformer encoder inference: 6 layers of width 1024 with 16 heads, feed-forward width named."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from firstlight.bench import model_counts
from firstlight.bench.case import Cache, Case, Effort, Mode, Place
from firstlight.bench.cases import data
from firstlight.bench.cases.inference import MODEL_TOLERANCE, Inference, Run, prepare_inference
from firstlight.bench.cases.needs import bf16_needs
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, slots=True)
class EncoderRow:
    """Sizes of one row: layers 6, width 1024, heads 16, ff 2048, batch 8, seq 512."""

    layers: int
    width: int
    heads: int
    ff: int
    batch: int
    seq: int


LENGTHS = ((8, 128), (8, 512), (4, 1024), (2, 2048), (1, 4096))  # batch, seq
TORCH_FF, WIDE_FF = 2048, 4096  # torch's default, and four times the width as papers have it


def cases(place: Place) -> tuple[Case, ...]:
    """fp16 and bf16, eager and as a graph, at torch's default feed-forward width; fp16 eager at the wider one."""
    needs = {"fp16": "", "bf16": bf16_needs(place)}
    usual = (
        encoder_case(dtype, _row(TORCH_FF, size), run=run, effort=_effort(dtype, size, run), needs=needs[dtype])
        for dtype in ("fp16", "bf16")
        for run in (Run.EAGER, Run.GRAPH)
        for size in LENGTHS
    )
    wide = (encoder_case("fp16", _row(WIDE_FF, size), run=Run.EAGER, effort=Effort.RIGOROUS) for size in LENGTHS)
    return (*usual, *wide)


def _row(ff: int, size: tuple[int, int]) -> EncoderRow:
    return EncoderRow(6, 1024, 16, ff, *size)


def _effort(dtype: str, size: tuple[int, int], run: Run) -> Effort:
    if dtype == "fp16" and size == (8, 512):
        return Effort.QUICK
    if run is Run.GRAPH:  # worth a row where launches are most of the time
        return Effort.STANDARD if dtype == "fp16" and size == (8, 128) else Effort.RIGOROUS
    return Effort.STANDARD


def encoder_case(
    dtype: str, row: EncoderRow, *, run: Run, effort: Effort = Effort.STANDARD, needs: str = "", devices: str = "cuda"
) -> Case:
    """One row, e.g. encoder/fp16/l6-d1024-h16-ff2048/b8-s512/eager."""
    model = f"l{row.layers}-d{row.width}-h{row.heads}-ff{row.ff}"
    case_id = f"encoder/{dtype}/{model}/b{row.batch}-s{row.seq}/{run.value}"
    width = data.ELEMENT_BYTES[dtype]
    shape = model_counts.EncoderShape(row.layers, row.width, row.ff, row.batch, row.seq)
    io = 2 * row.batch * row.seq * row.width
    return Case(
        id=case_id,
        family="encoder",
        params=(
            ("layers", str(row.layers)),
            ("width", str(row.width)),
            ("heads", str(row.heads)),
            ("ff", str(row.ff)),
            ("batch", str(row.batch)),
            ("seq", str(row.seq)),
            ("run", run.value),
            ("items", str(row.batch)),
            ("item", "sequence"),
        ),
        dtype=dtype,
        work=model_counts.encoder(shape, element_bytes=width),
        peak=dtype,
        prepare=partial(
            prepare_inference,
            Inference(case_id, dtype, run, partial(build_encoder, row), (row.batch, row.seq, row.width)),
        ),
        set_bytes=width * (parameters(row) + io),
        tolerance=MODEL_TOLERANCE[dtype],
        cache=Cache.WARM,
        mode=Mode.HOST,
        least_effort=effort,
        devices=(devices,),
        needs=needs,
        flags=run.flags,
    )


def parameters(row: EncoderRow) -> int:
    """All numbers of the model: matrices, biases and norms; 50.4 M for the usual row."""
    matrices = 4 * row.width**2 + 2 * row.width * row.ff
    biases = 3 * row.width + row.width + row.ff + row.width
    return row.layers * (matrices + biases + 4 * row.width)


def build_encoder(row: EncoderRow, dtype: str, random: torch.Generator) -> nn.Module:
    """The model on the device of the random source."""
    from firstlight.bench.models.encoder import EncoderSize, build

    size = EncoderSize(row.layers, row.width, row.heads, row.ff)
    return build(size, dtype=data.torch_dtype(dtype), device=str(random.device), random=random)
