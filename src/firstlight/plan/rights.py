"""Whether the user of a machine may become root."""

from __future__ import annotations

from firstlight.facts.ability import Sudo
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known

NO_ROOT = "it takes root, and this user has neither root nor sudo"


def may_become_root(facts: Facts) -> bool:
    """Whether root is in reach: already root, or sudo is there and the kernel does not refuse it."""
    if facts.ability.is_root:
        return True
    refused = facts.ability.no_new_privileges
    return facts.ability.sudo is not Sudo.ABSENT and not (isinstance(refused, Known) and refused.value)
