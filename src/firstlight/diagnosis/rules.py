"""All rules, one tuple. A new rule is a function, a Rule in the tuple of its group, and a machine that shows it."""

from __future__ import annotations

from firstlight.diagnosis.build_rules import BUILD_RULES
from firstlight.diagnosis.companion_rules import COMPANION_RULES
from firstlight.diagnosis.compat_rules import COMPAT_RULES
from firstlight.diagnosis.driver_rules import DRIVER_RULES
from firstlight.diagnosis.finding import Rule
from firstlight.diagnosis.fleet_rules import FLEET_RULES
from firstlight.diagnosis.gpu_count_rules import GPU_COUNT_RULES
from firstlight.diagnosis.health_rules import HEALTH_RULES
from firstlight.diagnosis.image_library_rules import IMAGE_LIBRARY_RULES
from firstlight.diagnosis.library_rules import LIBRARY_RULES
from firstlight.diagnosis.place_rules import PLACE_RULES
from firstlight.diagnosis.platform_rules import PLATFORM_RULES
from firstlight.diagnosis.setting_rules import SETTING_RULES
from firstlight.diagnosis.torch_rules import TORCH_RULES
from firstlight.errors import BadInput
from firstlight.near import nearest

RULES: tuple[Rule, ...] = (
    *PLATFORM_RULES,
    *PLACE_RULES,
    *GPU_COUNT_RULES,
    *IMAGE_LIBRARY_RULES,
    *FLEET_RULES,
    *DRIVER_RULES,
    *COMPAT_RULES,
    *TORCH_RULES,
    *COMPANION_RULES,
    *LIBRARY_RULES,
    *BUILD_RULES,
    *HEALTH_RULES,
    *SETTING_RULES,
)


def rule_named(code: str) -> Rule:
    """The rule with a code, e.g. 'compat-stale'; raises BadInput naming the nearest ones."""
    for rule in RULES:
        if rule.code == code:
            return rule
    near = nearest(code, [rule.code for rule in RULES], 3)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise BadInput(f"{code[:60]!r} is not the code of a rule; `firstlight rules` lists all of them.{hint}")
