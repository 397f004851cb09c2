"""`--want`: what is taken, and what a refusal says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import BadInput
from firstlight.plan.want import PROJECTS, Want, parse_want, parse_wants


@pytest.mark.parametrize(
    ("text", "project", "specifier", "local"),
    [
        ("torch", "torch", "", ""),
        ("torch==2.9.0+cu130", "torch", "==2.9.0", "cu130"),
        ("  Torch == 2.9.0+CU130 ", "torch", "==2.9.0", "cu130"),
        ("torch>=2.8,<2.10", "torch", ">=2.8,<2.10", ""),
        ("torch == 2.9.*", "torch", "==2.9.*", ""),
        ("torch~=2.9.0", "torch", "~=2.9.0", ""),
        ("flash_attn >= 2.8", "flash-attn", ">=2.8", ""),
        ("Flash.Attn", "flash-attn", "", ""),
        ("torch==2.16.0.dev20261110+cu130", "torch", "==2.16.0.dev20261110", "cu130"),
        ("torch==2.9.0+rocm6.4", "torch", "==2.9.0", "rocm6.4"),
        ("python==3.15", "python", "==3.15", ""),
    ],
)
def test_a_want_is_a_project_its_bounds_and_its_build(text: str, project: str, specifier: str, local: str) -> None:
    assert parse_want(text) == Want(project, specifier, local, text.strip())


@pytest.mark.parametrize(
    "text", ["", " ", "==2.9.0", "torch[cuda]==2.9.0", "torch @ file:///x", "torch 2.9.0", "torch;x"]
)
def test_what_is_no_project_with_bounds_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput, match=r"accepted is a project .* e\.g\. --want \"torch==2\.9\.0\+cu130\""):
        parse_want(text)


@pytest.mark.parametrize(
    "text", ["torch=2.9", "torch==", "torch==abc", "torch>=2.9+cu130", "torch==2.9.0; x", "torch<<2"]
)
def test_a_bound_that_cannot_be_read_is_quoted_with_what_is_accepted(text: str) -> None:
    with pytest.raises(BadInput, match=r"is not a version bound .* accepted: ==2\.9\.0, >=2\.8,<2\.10"):
        parse_want(text)


def test_a_project_that_is_not_solved_is_refused_naming_those_that_are() -> None:
    with pytest.raises(
        BadInput,
        match="numpy is not a project that firstlight plans for; accepted: torch, torchvision",
    ):
        parse_want("numpy==2.0")


def test_an_exact_version_is_told_from_a_range() -> None:
    assert parse_want("torch==2.9.0+cu130").exact == "2.9.0"
    assert parse_want("torch===2.9.0").exact == "2.9.0"
    assert parse_want("torch==2.9.*").exact == ""
    assert parse_want("torch>=2.9").exact == ""
    assert parse_want("torch==2.9.0,>=2").exact == ""


def test_bounds_of_one_project_are_joined_and_two_builds_of_it_refused() -> None:
    [joined] = parse_wants(("torch>=2.8", "torch<2.10"))
    assert joined.specifier == ">=2.8,<2.10"
    [twice] = parse_wants(("torch==2.9.0+cu130", "torch==2.9.0"))
    assert (twice.specifier, twice.local) == ("==2.9.0", "cu130")
    with pytest.raises(BadInput, match="one environment holds one build of torch"):
        parse_wants(("torch==2.9.0+cu130", "torch==2.9.0+cu128"))


def test_a_long_or_odd_want_is_shortened_and_quoted_in_the_refusal() -> None:
    with pytest.raises(BadInput) as refused:
        parse_want("x" * 5000 + "\x1b[31m")
    assert len(str(refused.value)) < 400
    assert "\x1b" not in str(refused.value)


def _project_or_refusal(text: str) -> str:
    try:
        return parse_want(text).project
    except BadInput as error:
        return str(error)


@given(st.text(max_size=60))
def test_any_text_is_a_want_or_bad_input(text: str) -> None:
    answer = _project_or_refusal(text)
    assert answer in (*PROJECTS, "python") or answer.startswith("--want ")
