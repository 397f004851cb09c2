"""Commands of conda are written for the program of its kind that a text shows."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.explain_conda import conda_of

CONFLICT = """LibMambaUnsatisfiableError: Encountered problems while solving:
  - package torchaudio-2.0.2-py310_cu117 requires pytorch-cuda 11.7.*, but none of the providers can be installed"""


@pytest.mark.parametrize(
    ("shown", "program"),
    [
        ("", "conda"),  # the exception is conda's own, whatever its name
        ("$ mamba env create -f environment.yml\n", "mamba"),
        ("/home/me/mambaforge/envs/new/lib/python3.10\n", "mamba"),
        ("$ micromamba create -f environment.yml\n", "micromamba"),
    ],
)
def test_the_commands_are_those_of_the_program_that_was_used(shown: str, program: str) -> None:
    found = explain_text(shown + CONFLICT).explanations[0].signature
    lines = [line for way in found.ways_out for line in way.run]
    assert lines
    assert all(line.startswith(f"{program} create ") for line in lines), lines
    assert found.prove.run[0].startswith(f"{program} list")


def test_a_word_that_only_holds_its_name_is_not_the_program() -> None:
    assert conda_of(b"pip install mamba-ssm; from mamba_ssm import Mamba") == "conda"
