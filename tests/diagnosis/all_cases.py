"""Every rule's case: the machine that shows it and the near-miss that does not."""

from __future__ import annotations

from tests.diagnosis import (
    cases_building,
    cases_companions,
    cases_compat,
    cases_driver,
    cases_libraries,
    cases_place,
    cases_torch,
)
from tests.diagnosis.rule_case import RuleCase

CASES: tuple[RuleCase, ...] = (
    *cases_place.CASES,
    *cases_driver.CASES,
    *cases_compat.CASES,
    *cases_torch.CASES,
    *cases_companions.CASES,
    *cases_libraries.CASES,
    *cases_building.CASES,
)
