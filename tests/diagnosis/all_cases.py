"""Every rule's case: the machine that shows it and the near-miss that does not."""

from __future__ import annotations

from tests.diagnosis.cases_building import CASES as BUILDING
from tests.diagnosis.cases_companions import CASES as COMPANIONS
from tests.diagnosis.cases_compat import CASES as COMPAT
from tests.diagnosis.cases_driver import CASES as DRIVER
from tests.diagnosis.cases_evidence import CASES as EVIDENCE
from tests.diagnosis.cases_fleet import CASES as FLEET
from tests.diagnosis.cases_libraries import CASES as LIBRARIES
from tests.diagnosis.cases_place import CASES as PLACE
from tests.diagnosis.cases_torch import CASES as TORCH
from tests.diagnosis.rule_case import RuleCase

CASES: tuple[RuleCase, ...] = (
    *PLACE,
    *EVIDENCE,
    *FLEET,
    *DRIVER,
    *COMPAT,
    *TORCH,
    *COMPANIONS,
    *LIBRARIES,
    *BUILDING,
)
