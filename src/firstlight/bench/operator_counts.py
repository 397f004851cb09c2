"""How much work a case is: floating-point operations and compulsory bytes, by formula.

One multiply-add is 2 FLOP. Bytes are each input read once and each output written once. `flops` is the work that was
asked for; `dense_flops` is what a careless count would say (a causal mask ignored), so that both can be shown.
"""

from __future__ import annotations

import math

from firstlight.frozen import dataclass

# Bytes per element as a kernel reads and writes them. Block-scaled formats carry their scales: mxfp8 one byte per 32
# elements, nvfp4 one per 16. Low-precision products are written as bf16, int8 products as int32.
IN_BYTES: dict[str, float] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16,
    "int8": 1,
}  # fmt: skip
OUT_BYTES: dict[str, float] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2, "int8": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Work:
    """What one call has to do, e.g. 1099511627776 FLOP and 402653184 bytes for an fp16 product of 8192 cubed."""

    flops: int
    dense_flops: int
    bytes: int
    flops_model: str
    bytes_model: str


def gemm(m: int, n: int, k: int, *, in_bytes: float, out_bytes: float, batch: int = 1) -> Work:
    """[m, k] times [k, n], `batch` times: 2mnk each, e.g. 1.0995e12 FLOP for 8192 cubed."""
    flops = 2 * m * n * k * batch
    traffic = batch * (in_bytes * (m * k + k * n) + out_bytes * m * n)
    return Work(flops, flops, math.ceil(traffic), "gemm-2mnk", "min-rw")


def linear(rows: int, inputs: int, outputs: int, *, element_bytes: float) -> Work:
    """A linear layer with bias on `rows` vectors; the bias is in the bytes, its additions are not counted."""
    flops = 2 * rows * inputs * outputs
    traffic = element_bytes * (rows * inputs + inputs * outputs + rows * outputs + outputs)
    return Work(flops, flops, math.ceil(traffic), "linear-2mkn", "min-rw")


@dataclass(frozen=True, slots=True)
class ConvShape:
    """A square 2-d convolution, e.g. ConvShape(32, 64, 128, 112, 112, kernel=3, padding=1)."""

    batch: int
    channels_in: int
    channels_out: int
    height: int
    width: int
    kernel: int
    stride: int = 1
    padding: int = 0
    groups: int = 1

    @property
    def out_height(self) -> int:
        return _out(self.height, self)

    @property
    def out_width(self) -> int:
        return _out(self.width, self)


def conv2d(shape: ConvShape, *, element_bytes: float) -> Work:
    """Direct-equivalent count, padding taps included as everyone counts them; depthwise is groups = channels_in.

    Winograd and FFT kernels do less than this and may pass 100 % of a limit for good reason.
    """
    taps = shape.channels_in // shape.groups * shape.kernel**2
    outputs = shape.batch * shape.channels_out * shape.out_height * shape.out_width
    flops = 2 * outputs * taps
    inputs = shape.batch * shape.channels_in * shape.height * shape.width
    traffic = element_bytes * (inputs + shape.channels_out * taps + outputs)
    return Work(flops, flops, math.ceil(traffic), "conv-direct", "min-rw")


def conv2d_inside_share(shape: ConvShape) -> float:
    """The share of the direct count whose taps lie inside the image, e.g. 0.9881 for 112x112, kernel 3, padding 1."""
    rows, columns = _taps_inside(shape.height, shape), _taps_inside(shape.width, shape)
    return rows * columns / (shape.out_height * shape.out_width * shape.kernel**2)


def _out(size: int, shape: ConvShape) -> int:
    return (size + 2 * shape.padding - shape.kernel) // shape.stride + 1


def _taps_inside(size: int, shape: ConvShape) -> int:
    return sum(
        0 <= place * shape.stride - shape.padding + tap < size
        for place in range(_out(size, shape))
        for tap in range(shape.kernel)
    )


def elementwise(elements: int, *, element_bytes: float, reads: int, writes: int = 1, flops_each: int = 1) -> Work:
    """One operation per element over `reads` inputs and `writes` outputs; an addition has reads=2."""
    flops = elements * flops_each
    traffic = element_bytes * elements * (reads + writes)
    return Work(flops, flops, math.ceil(traffic), f"elementwise-{flops_each}n", f"rw-{reads + writes}n")


def add(elements: int, *, element_bytes: float) -> Work:
    """c = a + b: three times the array, e.g. 1.61e9 bytes for 2**28 fp16 elements."""
    return elementwise(elements, element_bytes=element_bytes, reads=2)


def copy(elements: int, *, element_bytes: float) -> Work:
    """A copy inside device memory: read once and written once."""
    return elementwise(elements, element_bytes=element_bytes, reads=1, flops_each=0)


def fill(elements: int, *, element_bytes: float) -> Work:
    """A constant written over an array."""
    return elementwise(elements, element_bytes=element_bytes, reads=0, flops_each=0)


def triad(elements: int, *, element_bytes: float) -> Work:
    """a = b + s * c: three times the array, 2 FLOP per element."""
    return elementwise(elements, element_bytes=element_bytes, reads=2, flops_each=2)


def transfer(size: int) -> Work:
    """A copy over a link: the size counts once per direction."""
    return Work(0, 0, size, "none", "size-once")


def layernorm(rows: int, columns: int, *, element_bytes: float) -> Work:
    """About 8 operations per element; read once, written once, with scale and shift. Always bound by memory."""
    elements = rows * columns
    traffic = element_bytes * (2 * elements + 2 * columns)
    return Work(8 * elements, 8 * elements, math.ceil(traffic), "layernorm-8n", "min-rw")


def softmax(rows: int, columns: int, *, element_bytes: float) -> Work:
    """About 5 operations per element, exp counted as one; read once, written once."""
    elements = rows * columns
    return Work(5 * elements, 5 * elements, math.ceil(element_bytes * 2 * elements), "softmax-5n", "min-rw")
