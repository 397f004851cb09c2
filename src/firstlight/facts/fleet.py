"""What fleets of GPU machines have beyond a GPU and its driver: slices, fabrics, licences, keys, services."""

from __future__ import annotations

from firstlight.facts.boot_trust import BootTrust, probe_boot_trust
from firstlight.facts.confidential import ConfidentialFacts, probe_confidential
from firstlight.facts.driver import DriverFacts
from firstlight.facts.early_image import EarlyImage, probe_early_image
from firstlight.facts.fabric import FabricFacts, probe_fabric
from firstlight.facts.gpus import GpuFacts
from firstlight.facts.gsp import GspFacts, probe_gsp
from firstlight.facts.health import HealthFacts
from firstlight.facts.known import Fact
from firstlight.facts.mps import MpsFacts, probe_mps
from firstlight.facts.nvml import NvmlAnswer
from firstlight.facts.peers import PeerFacts, probe_peers
from firstlight.facts.vgpu import VgpuFacts, probe_vgpu
from firstlight.frozen import dataclass
from firstlight.machine import Machine


@dataclass(frozen=True, slots=True)
class RetiredPages:
    """Pages of one GPU's memory that are out of use, by cause; GPUs since Ampere remap rows instead."""

    gpu: str
    single_bit: Fact[int]
    double_bit: Fact[int]


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """Each group is Unknown where what it is about is not here."""

    vgpu: VgpuFacts
    fabric: FabricFacts
    boot: BootTrust
    early_image: EarlyImage
    retired_pages: tuple[RetiredPages, ...]
    confidential: ConfidentialFacts
    mps: MpsFacts
    gsp: GspFacts
    peers: PeerFacts


def probe_fleet(
    machine: Machine, nvml: NvmlAnswer, *, gpus: GpuFacts, driver: DriverFacts, health: HealthFacts
) -> FleetFacts:
    """All of it; a program is started only where a file or NVML said that it is needed."""
    return FleetFacts(
        vgpu=probe_vgpu(machine, nvml, gpus),
        fabric=probe_fabric(machine, nvml, gpus=gpus, health=health, driver=driver),
        boot=probe_boot_trust(machine, driver, health.secure_boot),
        early_image=probe_early_image(machine, driver),
        retired_pages=tuple(
            RetiredPages(gpu.id, said.number("retired_pages_single"), said.number("retired_pages_double"))
            for gpu, said in zip(gpus.devices, nvml.devices, strict=False)
        ),
        confidential=probe_confidential(machine, nvml),
        mps=probe_mps(machine, gpus),
        gsp=probe_gsp(machine, driver),
        peers=probe_peers(machine, gpus),
    )
