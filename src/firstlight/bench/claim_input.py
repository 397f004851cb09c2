"""A claim from what was typed: the case is counted, the GPU is looked up, numbers keep their rounding."""

from __future__ import annotations

from firstlight.bench.claim import Claim, number
from firstlight.bench.claim_shape import kind_named, work_of
from firstlight.bench.claim_twice import LinkPeak, link_named
from firstlight.bench.peaks import NO_PEAKS, Peaks, find_peaks, pcie_gbps, peaks_named
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.document import read_machine_or_facts
from firstlight.facts.gpus import Gpu
from firstlight.facts.known import Known, value_or
from firstlight.frozen import dataclass
from firstlight.tables import Tables

# Names of torch and of everyday speech; a block-scaled format keeps its own, because its scales are read too.
SPELLINGS = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32",
             "float64": "fp64", "double": "fp64", "fp4": "nvfp4", "e4m3": "fp8"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Told:
    """What was typed, '' where nothing was: case 'gemm', shape '8192', ms '4.71', gpu 'RTX 5090'."""

    case: str
    shape: str
    dtype: str = "fp16"
    gpu: str = ""
    facts_file: str = ""
    ms: str = ""
    tflops: str = ""
    gbps: str = ""
    link: str = ""
    saturates: str = ""


def claim_of(told: Told, tables: Tables) -> Claim:
    """The claim; what is missing or not understood is refused with what is accepted."""
    kind = kind_named(told.case)
    if not (told.ms or told.tflops or told.gbps):
        raise BadInput("a claim needs a number: give --ms, --tflops or --gbps")
    if told.link and kind.name != "link":
        raise BadInput(f"--link is for --case link, not for {kind.name}")
    if kind.name == "link" and told.tflops:
        raise BadInput("--tflops: a link does no arithmetic; give --gbps or --ms")
    dtype = SPELLINGS.get(told.dtype.lower(), told.dtype.lower())
    gpu = _gpu_of(told)
    peaks = _peaks(told, gpu, tables, needed=kind.name)
    link, name = _link(told, gpu, tables)
    return Claim(
        case=kind.name,
        shape=told.shape,
        dtype=dtype,
        work=work_of(kind, told.shape, dtype),
        held_against=kind.held_against or dtype,
        flags=kind.flags,
        peaks=peaks,
        ms=number(told.ms, "--ms") if told.ms else None,
        tflops=number(told.tflops, "--tflops") if told.tflops else None,
        gbps=number(told.gbps, "--gbps") if told.gbps else None,
        link=name,
        link_peak=link,
        saturates=told.saturates,
    )


def _gpu_of(told: Told) -> Gpu | None:
    if not told.facts_file:
        return None
    if told.gpu:
        raise BadInput("--gpu and --facts both name a GPU; give one of them")
    facts: Facts = read_machine_or_facts(told.facts_file)
    if not facts.gpus.devices:
        raise BadInput(f"--facts {told.facts_file}: no GPU was seen there; name one with --gpu")
    return facts.gpus.devices[0]


def _peaks(told: Told, gpu: Gpu | None, tables: Tables, *, needed: str) -> Peaks:
    if told.gpu:
        return peaks_named(tables, told.gpu)
    if gpu is None:
        if needed == "link":
            return NO_PEAKS
        raise BadInput("say which GPU the number is from: --gpu NAME (e.g. H100) or --facts PATH")
    name = value_or(gpu.name, "")
    model = tables.gpu_named(name)
    known = str(gpu.capability.value) if isinstance(gpu.capability, Known) else str(model.capability if model else "")
    clock = float(gpu.clock_sm_max_mhz.value) if isinstance(gpu.clock_sm_max_mhz, Known) else None
    peaks = find_peaks(tables, name, capability=known, clocks_mhz=(clock, None))
    if not peaks.spec:
        raise BadInput(f"--facts {told.facts_file}: no peaks are known for {name or 'its GPU'}; name a GPU with --gpu")
    return peaks


def _link(told: Told, gpu: Gpu | None, tables: Tables) -> tuple[LinkPeak | None, str]:
    """The link and its name: as told, else the PCIe link of the saved machine."""
    if told.link:
        return link_named(told.link, tables), told.link
    if gpu is None or not isinstance(gpu.pcie_generation_max, Known) or not isinstance(gpu.pcie_width_max, Known):
        return None, ""
    generation, width = gpu.pcie_generation_max.value, gpu.pcie_width_max.value
    rate = pcie_gbps(generation, width)
    return None if rate is None else LinkPeak(rate), f"PCIe {generation}.0 x{width}"
