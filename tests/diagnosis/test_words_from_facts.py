"""What a finding says of this machine is made from its facts, on every machine: no usual case in its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firstlight.diagnosis.finding import Finding, Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.tables import load
from firstlight.ways.kinds import InstallDriver
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.platforms.cases import all_cases, judged

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))


def _all_found(code: str) -> Iterator[tuple[Facts, Finding]]:
    """Every machine on which a finding stands."""
    for name in NAMES:
        facts = facts_of(name)
        found = judge(Question(facts, TABLES, Goal.INFER), RULES).of(code)
        if found is not None:
            yield facts, found
    for case in all_cases():
        for make in (case.make, case.near_miss):
            seen = judged(make)
            found = seen.diagnosis.of(code)
            if found is not None:
                yield seen.facts, found


def test_a_missing_library_is_the_one_of_the_error() -> None:
    seen = [*_all_found("missing-library")]
    assert seen
    for facts, found in seen:
        assert isinstance(facts.torch_libraries, Known)
        missing = facts.torch_libraries.value.missing
        assert any(each.name in found.error or (each.damaged and "too short" in found.error) for each in missing)


def test_an_extension_is_the_one_of_the_error() -> None:
    seen = [*_all_found("extension-lacks-symbols")]
    assert seen
    for facts, found in seen:
        assert isinstance(facts.extensions.files, Known)
        files = facts.extensions.files.value
        assert any(
            each.path in found.error or any(one in found.error for one in each.lacks_libraries) for each in files
        )


def test_musl_quotes_a_torch_only_where_one_is_installed() -> None:
    seen = [*_all_found("musl-has-no-cuda")]
    assert seen
    for facts, found in seen:
        assert ("Error relocating" in found.error) is isinstance(facts.torch, Known)
        assert not isinstance(facts.torch, Known) or facts.torch.value.folder in found.error


def test_older_libraries_are_not_called_an_upgrade_of_the_libraries() -> None:
    older = 0
    for facts, found in _all_found("driver-library-mismatch"):
        kernel, library = facts.driver.kernel_version, facts.driver.nvml_library_version
        if isinstance(kernel, Known) and isinstance(library, Known) and library.value < kernel.value:
            older += 1
            assert "An upgrade replaced the libraries" not in found.means
    assert older


def test_the_branch_that_is_told_of_is_the_one_that_is_installed() -> None:
    for facts, found in _all_found("driver-branch-ended"):
        for way in (way for each in found.answers for way in each.ways if isinstance(way, InstallDriver)):
            assert f"Branch {way.branch} " in found.means, facts.place
            life = TABLES.branch_life(way.branch)
            assert life is not None
            assert life.supported_until >= facts.collected_at[:7]


@pytest.mark.parametrize("code", ["driver-not-loaded", "driver-too-old-for-wheel"])
def test_packages_that_nobody_knows_are_not_documented(code: str) -> None:
    for _, found in _all_found(code):
        for each in found.answers:
            if any(isinstance(way, InstallDriver) and not way.packages for way in each.ways):
                assert each.proof is not None
                assert each.proof.value == "guessed", each
