"""Claims that are twice a peak: the figure with sparsity, or both directions of a link added."""

from __future__ import annotations

import re

from firstlight.bench.peaks import Peaks, canonical, pcie_gbps
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.tables import Tables
from firstlight.versions import ComputeCapability

# Tensor cores skip two of four values where those are zeros from Ampere on, in every format but fp64, and datasheets
# print the doubled rate: developer.nvidia.com/blog/accelerating-inference-with-sparsity-using-ampere-and-tensorrt.
FIRST_WITH_SPARSITY = ComputeCapability.parse("8.0")
NEVER_SPARSE = ("fp64", "fp32")
# Of fp4 on these the row itself says that sources disagree, so that twice of it is no figure anybody printed.
UNSURE = (("fp4", ComputeCapability.parse("10.3")),)
CLOSE = 0.003  # datasheets round: 1979 is printed for twice 989.4
LINK_CLOSE = 0.02  # PCIe is sold by its raw rate, 128 GB/s for twice 63.0
NVLINK_EACH_WAY = {3: 300.0, 4: 450.0, 5: 900.0}  # GB/s of one GPU with all its links; twice of it is in gpu_peaks
_HINT = " Sparse figures are twice the dense ones; a dense product cannot use them."


@dataclass(frozen=True, slots=True)
class LinkPeak:
    """GB/s each way of a link, and who prints twice of it: 'H100 SXM, 900 GB/s: NVIDIA H100 ... datasheet'."""

    gbps: float
    printed: str = ""


def sparse_figure(tflops: float, dtype: str, peaks: Peaks) -> str:
    """' That is the figure with sparsity: ...' where a rate is twice the dense peak; a hint below that, else ''."""
    dense, capability = peaks.spec_tflops(dtype), peaks.capability
    if dense is None or capability is None or capability < FIRST_WITH_SPARSITY or dtype in NEVER_SPARSE:
        return ""
    if abs(tflops / (2 * dense) - 1) <= CLOSE and (canonical(dtype), capability) not in UNSURE:
        return (
            f" That is the figure with sparsity, twice the {dense:.4g} TFLOPS of dense products ({peaks.printed_in}). "
            "It holds where two of every four values are zeros."
        )
    if tflops <= 2 * dense:
        return _HINT
    for other, rate in peaks.spec:  # the largest figure of a datasheet is often quoted for every format
        if (other, capability) not in UNSURE and abs(tflops / (2 * rate) - 1) <= CLOSE:
            return f" That is the figure of {other} with sparsity ({peaks.printed_in}), not of dense {dtype} products."
    return ""


def both_directions(gbps: float, link: LinkPeak) -> str:
    """' That is both directions added: ...' where a rate is twice what a link carries each way; '' elsewhere."""
    if abs(gbps / (2 * link.gbps) - 1) > LINK_CLOSE:
        return ""
    source = f" ({link.printed})" if link.printed else ""
    return f" That is both directions added{source}: one way carries {link.gbps:.4g} GB/s."


def link_named(text: str, tables: Tables) -> LinkPeak:
    """A link as people write it: 'PCIe 5.0 x16' carries 63.0 GB/s each way, 'nvlink4' 450."""
    plain = re.sub(r"[\s_-]", "", text.lower())
    if match := re.fullmatch(r"(?:pcie)?(?:gen)?(\d)(?:\.0)?x(\d{1,2})", plain):
        rate = pcie_gbps(int(match[1]), int(match[2]))
        if rate is not None and int(match[2]) in (1, 2, 4, 8, 16):
            return LinkPeak(rate)
    if (match := re.fullmatch(r"nvlink(\d)", plain)) and int(match[1]) in NVLINK_EACH_WAY:
        return _nvlink(NVLINK_EACH_WAY[int(match[1])], tables)
    raise BadInput(f"--link {text!a}: accepted: pcie3x16 to pcie6x16 (also x1 to x8), nvlink3, nvlink4 or nvlink5")


def _nvlink(each_way: float, tables: Tables) -> LinkPeak:
    row = next((row for row in tables.gpu_peaks if row.nvlink_gbps == 2 * each_way), None)
    printed = "" if row is None else f"{row.name}, {row.nvlink_gbps:.4g} GB/s: {row.source.partition(';')[0]}"
    return LinkPeak(each_way, printed)
