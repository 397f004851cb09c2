"""Rows about speed: what an SM does in one clock, and what a GPU model does by its datasheet."""

from firstlight.tables.row import Row, row_class
from firstlight.versions import ComputeCapability


@row_class(frozen=True, slots=True, kw_only=True)
class GpuRate(Row):
    """Dense FLOP (int8: OP) per clock and SM of a product line: hopper does 4096 in fp16, accumulated in fp32.

    None means the line has no such unit or the rate is not known. GeForce and professional cards share a capability
    but not a rate, so a row with `names` is for device names that match it; without, for the others.
    """

    line: str
    capabilities: tuple[ComputeCapability, ...]
    names: str = ""  # a regular expression, searched in the device name
    fp64: int | None = None
    fp64_tc: int | None = None
    fp32: int | None = None
    tf32: int | None = None
    fp16: int | None = None
    bf16: int | None = None
    fp8: int | None = None
    fp4: int | None = None
    int8: int | None = None
    fp16_acc16: int | None = None  # accumulated in fp16, where that is faster
    fp8_acc16: int | None = None


@row_class(frozen=True, slots=True, kw_only=True)
class GpuPeak(Row):
    """Dense datasheet peaks of a model in TFLOPS (int8: TOPS) and GB/s: H100 SXM does 989.4 in fp16 at 1830 MHz."""

    gpu: str  # h100-sxm
    name: str  # H100 SXM
    pattern: str  # a regular expression, searched in the device name
    example: str  # a device name that it finds
    capability: ComputeCapability
    line: str  # of the rates
    sms: int
    clock_mhz: int  # the clock the datasheet's tensor rows are for
    bandwidth_gbps: float
    vector_clock_mhz: int | None = None  # the clock of its fp64 and fp32 rows, where that is another
    max_clock_mhz: int | None = None  # the highest SM clock NVML reports
    fp64: float | None = None
    fp64_tc: float | None = None
    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None
    fp8: float | None = None
    fp4: float | None = None
    int8: float | None = None
    nvlink_gbps: float | None = None  # both directions together
    seen_bf16: float | None = None  # the best large product measured on healthy cards, random data
    seen_fp8: float | None = None


@row_class(frozen=True, slots=True, kw_only=True)
class NvlinkRate(Row):
    """What one NVLink carries in each direction: 25 GB/s in generation 4.0, which NVML calls version 6."""

    generation: str  # 4.0
    nvml_version: int  # NVML_NVLINK_VERSION_4_0
    each_way_gbps: float  # of one link
    switch_adds: bool  # whether switches of that generation can add up what GPUs send (NVLink SHARP)
