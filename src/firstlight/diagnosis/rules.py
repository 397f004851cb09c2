"""All rules, one tuple. A new rule is a function, a Rule in the tuple of its group, and a machine that shows it."""

from __future__ import annotations

from firstlight.diagnosis.build_rules import BUILD_RULES
from firstlight.diagnosis.companion_rules import COMPANION_RULES
from firstlight.diagnosis.compat_rules import COMPAT_RULES
from firstlight.diagnosis.driver_rules import DRIVER_RULES
from firstlight.diagnosis.finding import Rule
from firstlight.diagnosis.health_rules import HEALTH_RULES
from firstlight.diagnosis.library_rules import LIBRARY_RULES
from firstlight.diagnosis.place_rules import PLACE_RULES
from firstlight.diagnosis.torch_rules import TORCH_RULES
from firstlight.errors import BadInput

RULES: tuple[Rule, ...] = (
    *PLACE_RULES,
    *DRIVER_RULES,
    *COMPAT_RULES,
    *TORCH_RULES,
    *COMPANION_RULES,
    *LIBRARY_RULES,
    *BUILD_RULES,
    *HEALTH_RULES,
)


def rule_named(code: str) -> Rule:
    """The rule with a code, e.g. 'compat-stale'; raises BadInput naming the nearest ones."""
    for rule in RULES:
        if rule.code == code:
            return rule
    import difflib

    near = difflib.get_close_matches(code, [rule.code for rule in RULES], n=3)
    hint = f"near it: {', '.join(near)}" if near else "docs/rules lists all of them"
    raise BadInput(f"{code[:60]!r} is not the code of a rule; {hint}")
