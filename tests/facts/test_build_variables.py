"""Variables that steer a build: those that are set are kept as they are, everything else is left alone."""

from __future__ import annotations

from firstlight.facts.build_variables import NAMES, BuildVariable, probe_build_variables
from firstlight.machine.live import LiveMachine


def _probe(**environ: str) -> tuple[BuildVariable, ...]:
    return probe_build_variables(LiveMachine(environ=environ))


def test_a_variable_that_is_set_is_kept_with_its_value() -> None:
    assert _probe(TORCH_CUDA_ARCH_LIST="9.0a;10.0", MAX_JOBS="4") == (
        BuildVariable("TORCH_CUDA_ARCH_LIST", "9.0a;10.0"),
        BuildVariable("MAX_JOBS", "4"),
    )


def test_nothing_set_is_an_empty_list() -> None:
    assert _probe() == ()


def test_blanks_are_not_a_value_and_do_not_surround_one() -> None:
    assert _probe(MAX_JOBS="  ", NVCC_APPEND_FLAGS="", CUDAARCHS=" 90 ") == (BuildVariable("CUDAARCHS", "90"),)


def test_variables_of_no_interest_and_secrets_are_not_read() -> None:
    assert _probe(HF_TOKEN="secret", PATH="/usr/bin", CFLAGS="-O3") == ()


def test_every_name_is_asked_for_once() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert {each.name for each in _probe(**dict.fromkeys(NAMES, "1"))} == set(NAMES)
