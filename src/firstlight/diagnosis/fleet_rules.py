"""The rules about what fleets have, in one tuple."""

from __future__ import annotations

from firstlight.diagnosis.boot_rules import BOOT_RULES
from firstlight.diagnosis.fabric_rules import FABRIC_RULES
from firstlight.diagnosis.finding import Rule
from firstlight.diagnosis.gpu_service_rules import GPU_SERVICE_RULES
from firstlight.diagnosis.mig_rules import MIG_RULES
from firstlight.diagnosis.peer_rules import PEER_RULES
from firstlight.diagnosis.vgpu_rules import VGPU_RULES

FLEET_RULES: tuple[Rule, ...] = (*MIG_RULES, *VGPU_RULES, *BOOT_RULES, *FABRIC_RULES, *GPU_SERVICE_RULES, *PEER_RULES)
