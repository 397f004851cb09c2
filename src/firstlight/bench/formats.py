"""Which GPUs have units for a number format, and what a format without a known rate can reach at most."""

from __future__ import annotations

from firstlight.bench.operator_counts import IN_BYTES
from firstlight.bench.peaks import PRECISIONS, Peaks, canonical
from firstlight.tables.feature_lookups import features
from firstlight.versions import ComputeCapability

# The rows of the feature table that say from which capability on a format has units.
_FEATURES = {"tf32": "tf32", "fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "fp4", "mxfp4": "fp4"}


def first_with_units(dtype: str) -> ComputeCapability | None:
    """The first capability with units for a format: 8.9 for fp8, 10.0 for nvfp4; None where no row says."""
    row = next((row for row in features() if row.feature == _FEATURES.get(dtype)), None)
    return None if row is None else row.least_capability


def why_no_units(dtype: str, peaks: Peaks) -> str:
    """The sentence on a GPU that is too old for a format (fp8 on an A100, mxfp8 on an H100); '' for any other."""
    first = first_with_units(dtype)
    if first is None or peaks.capability is None or peaks.capability >= first:
        return ""
    return (
        f"{peaks.name} (capability {peaks.capability}) has no units for {dtype}; capability {first} is the first that "
        f"has. A product that converts first is one of another dtype."
    )


def most_of_any_format(dtype: str, peaks: Peaks) -> float | None:
    """The highest dense rate the GPU has in any format, in TFLOPS: no format without a rate is faster.

    In every row of `gpu_rates` a wider format is at most as fast as a narrower one, and fp16 is as fast as bf16. So
    None where each format with a rate is wider: how much faster int8 is than the fp16 of a V100, no row says.
    """
    known = {name: rate for name in PRECISIONS if (rate := peaks.max_tflops(name)) is not None}
    bounding = [name for name in known if _bytes(name) < _bytes(dtype) or {name, dtype} == {"fp16", "bf16"}]
    return max(known.values()) if bounding else None


def _bytes(name: str) -> float:
    """The width of a format as it is multiplied: tf32 lies in 4 bytes, of which its units read 19 bits."""
    plain = canonical(name).partition("_")[0]
    return {"fp8": 1.0, "fp4": 0.5, "tf32": 2.375}.get(plain, IN_BYTES.get(plain, 8.0))
