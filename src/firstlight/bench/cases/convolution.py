"""Convolutions, dense and depthwise, with dtype and memory layout named; padding is half the kernel, no bias."""

from __future__ import annotations

import enum
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from firstlight.bench import operator_counts
from firstlight.bench.case import Case, Effort, Place, Prepared
from firstlight.bench.cases import data
from firstlight.bench.cases.needs import tf32_needs
from firstlight.bench.cases.settings import Search, settings_for, under
from firstlight.bench.operator_counts import ConvShape
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from torch import Tensor


class Layout(enum.Enum):
    """How images lie in memory."""

    NCHW = "nchw"
    NHWC = "nhwc"  # torch's channels_last


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution with its dtype and layout."""

    case_id: str
    dtype: str
    layout: Layout
    shape: ConvShape
    search: Search = Search.HEURISTIC


DENSE = (
    ConvShape(32, 3, 64, 224, 224, kernel=3, padding=1),
    ConvShape(32, 64, 128, 112, 112, kernel=3, padding=1),
    ConvShape(32, 128, 256, 56, 56, kernel=3, padding=1),
    ConvShape(32, 256, 512, 28, 28, kernel=3, padding=1),
    ConvShape(8, 3, 64, 512, 512, kernel=7, padding=3),
)
DEPTHWISE = tuple(
    ConvShape(32, channels, channels, size, size, kernel=3, padding=1, groups=channels)
    for channels, size in ((64, 112), (256, 56), (512, 28))
)
IN_QUICK = DENSE[1], DEPTHWISE[1]


def cases(place: Place) -> tuple[Case, ...]:
    """Five shapes in fp32, tf32 and fp16; three depthwise ones in fp32 and fp16; two again with cuDNN's search."""
    kinds = (("tf32", Layout.NCHW), ("fp16", Layout.NHWC), ("fp32", Layout.NCHW))
    dense = (
        convolution_case(
            dtype, layout, shape, effort=_effort(dtype, shape), needs=tf32_needs(place) if dtype == "tf32" else ""
        )
        for dtype, layout in kinds
        for shape in DENSE
    )
    depthwise = (
        convolution_case(dtype, layout, shape, effort=_effort(dtype, shape))
        for dtype, layout in (("fp16", Layout.NHWC), ("fp32", Layout.NCHW))
        for shape in DEPTHWISE
    )
    searched = (
        convolution_case("fp16", Layout.NHWC, shape, effort=Effort.RIGOROUS, search=Search.TIMED) for shape in IN_QUICK
    )
    return (*dense, *depthwise, *searched)


def _effort(dtype: str, shape: ConvShape) -> Effort:
    """Standard has each shape once, in the precision that torch uses for fp32 images by default."""
    if dtype == "fp16":
        return Effort.QUICK if shape in IN_QUICK else Effort.RIGOROUS
    return Effort.RIGOROUS if dtype == "fp32" and shape.groups == 1 else Effort.STANDARD


def convolution_case(
    dtype: str,
    layout: Layout,
    shape: ConvShape,
    *,
    effort: Effort = Effort.STANDARD,
    needs: str = "",
    devices: str = "cuda",
    search: Search = Search.HEURISTIC,
) -> Case:
    """One convolution, e.g. conv2d/fp16/nhwc/b32-64to128-112x112-k3; /searched where cuDNN times its algorithms."""
    family = "conv2d" if shape.groups == 1 else "depthwise"
    channels = f"{shape.channels_in}to{shape.channels_out}" if shape.groups == 1 else f"c{shape.channels_in}"
    case_id = f"{family}/{dtype}/{layout.value}/b{shape.batch}-{channels}-{shape.height}x{shape.width}-k{shape.kernel}"
    case_id += "/searched" if search is Search.TIMED else ""
    width = data.ELEMENT_BYTES[dtype]
    work = operator_counts.conv2d(shape, element_bytes=width)
    return Case(
        id=case_id,
        family=family,
        params=(*_params(layout, shape, work), ("algorithm", search.value)),
        dtype=dtype,
        work=work,
        peak=dtype,
        prepare=partial(prepare_convolution, Convolution(case_id, dtype, layout, shape, search)),
        set_bytes=work.bytes,
        tolerance=data.TOLERANCE[dtype],
        least_effort=effort,
        devices=(devices,),
        needs=needs,
        # Winograd and FFT kernels do less than the direct count.
        flags=("algorithmic", "searched") if search is Search.TIMED else ("algorithmic",),
    )


def _params(layout: Layout, shape: ConvShape, work: operator_counts.Work) -> tuple[tuple[str, str], ...]:
    share = operator_counts.conv2d_inside_share(shape)
    return (
        ("batch", str(shape.batch)),
        ("channels_in", str(shape.channels_in)),
        ("channels_out", str(shape.channels_out)),
        ("height", str(shape.height)),
        ("width", str(shape.width)),
        ("kernel", str(shape.kernel)),
        ("stride", str(shape.stride)),
        ("padding", str(shape.padding)),
        ("groups", str(shape.groups)),
        ("layout", layout.value),
        ("bias", "none"),
        ("exact_flops", str(round(work.flops * share))),  # without the taps that fall on padding
    )


def prepare_convolution(case: Convolution, place: Place, sets: int) -> Prepared:
    """Images and weights in the layout named; a search of cuDNN happens on the first call."""
    import torch
    from torch.nn.functional import conv2d

    shape = case.shape
    taps = shape.channels_in // shape.groups * shape.kernel**2
    memory = torch.channels_last if case.layout is Layout.NHWC else torch.contiguous_format
    inputs: list[tuple[Tensor, Tensor]] = []
    for part in range(sets):
        random = data.source(case.case_id, place, part=part)
        images = data.normal((shape.batch, shape.channels_in, shape.height, shape.width), case.dtype, random)
        weights = data.normal(
            (shape.channels_out, shape.channels_in // shape.groups, shape.kernel, shape.kernel),
            case.dtype,
            random,
            std=taps**-0.5,
        )
        inputs.append((images.to(memory_format=memory), weights.to(memory_format=memory)))
    boxes: list[list[Any]] = [[] for _ in range(sets)]
    options = {"stride": shape.stride, "padding": shape.padding, "groups": shape.groups}
    settings = replace(settings_for(case.dtype), search=case.search)
    calls = tuple(
        data.holding(under(settings, partial(conv2d, images, weights, **options)), box)
        for (images, weights), box in zip(inputs, boxes, strict=True)
    )

    def check() -> float:
        out_shape = (shape.batch, shape.channels_out, shape.out_height, shape.out_width)
        out = data.call_on_poison(calls[0], boxes[0], shape=out_shape, dtype=case.dtype, place=place)
        return convolution_error(*inputs[0], out, shape=shape, place=place)

    return Prepared(calls, check)


def convolution_error(images: Tensor, weights: Tensor, out: Tensor, *, shape: ConvShape, place: Place) -> float:
    """Error of spread channels of the first and last image, against patches times weights in double precision."""
    from torch.nn.functional import unfold

    some = data.spread(shape.batch, place, count=2)
    channels = data.spread(shape.channels_out, place, count=8)
    worst = 0.0
    for image in some.tolist():
        picked = images[image : image + 1].double()
        if shape.groups > 1:  # depthwise: an output channel sees its own input channel alone
            picked = picked[0, channels].unsqueeze(1)
        patches = unfold(picked, shape.kernel, padding=shape.padding, stride=shape.stride)
        taps = weights[channels].double().flatten(1)
        wanted = (taps.unsqueeze(1) @ patches).squeeze(1) if shape.groups > 1 else (taps @ patches)[0]
        got = out[image, channels].flatten(1)
        worst = max(worst, data.relative_error(got, wanted))
    return worst
