"""Dockerfiles are read as `docker build` reads them: lines, continuations, heredocs, ARG, ENV and stages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.errors import BadInput
from firstlight.lint.dockerfile import assignments, expand, parse_dockerfile
from firstlight.lint.images import Flavour
from firstlight.lint.model import Target
from firstlight.lint.stages import read_dockerfile


def _read(text: str, target: str = "", **arguments: str) -> Target:
    return read_dockerfile(text, "Dockerfile", target=target, given=tuple(arguments.items()))


def _commands(text: str) -> list[tuple[int, tuple[str, ...]]]:
    return [(ran.place.line, ran.words) for ran in _read(text).ran]


def test_a_command_in_a_continued_run_knows_its_own_line() -> None:
    text = "FROM a\nRUN apt-get update && \\\n    apt-get install -y git \\\n      curl && \\\n    pip install torch\n"
    assert _commands(text) == [
        (2, ("apt-get", "update")),
        (3, ("apt-get", "install", "-y", "git", "curl")),
        (5, ("pip", "install", "torch")),
    ]


def test_comments_and_blank_lines_inside_a_continued_run_do_not_end_it() -> None:
    text = "FROM a\nRUN pip install \\\n  # the framework\n\n  torch \\\n  numpy\nRUN pip check\n"
    assert _commands(text) == [(2, ("pip", "install", "torch", "numpy")), (7, ("pip", "check"))]


def test_flags_of_run_are_not_words_of_its_command() -> None:
    text = "FROM a\nRUN --mount=type=cache,target=/root/.cache/pip \\\n    --network=none \\\n    pip install torch\n"
    assert _commands(text) == [(4, ("pip", "install", "torch"))]


def test_a_heredoc_is_a_script_line_by_line() -> None:
    text = "FROM a\nRUN <<EOF\nset -e\npip install torch\n\nEOF\nRUN pip check\n"
    assert _commands(text) == [(4, ("pip", "install", "torch")), (7, ("pip", "check"))]


def test_a_heredoc_with_tabs_and_quotes_ends_at_its_word() -> None:
    text = "FROM a\nRUN bash <<-'END'\n\tpip install torch\n\tEND\nENV A=1\n"
    assert _commands(text) == [(3, ("pip", "install", "torch"))]
    assert _read(text).env["A"].place.line == 5


def test_a_heredoc_for_another_program_is_not_read_as_shell() -> None:
    text = 'FROM a\nRUN python3 <<EOF\nprint("pip install torch")\nEOF\nRUN pip check\n'
    assert _commands(text) == [(2, ("python3",)), (5, ("pip", "check"))]


def test_a_copied_heredoc_is_not_taken_for_instructions() -> None:
    text = "FROM a\nCOPY <<EOF /start.sh\nRUN nothing\nthis is no instruction\nEOF\nRUN pip check\n"
    assert _commands(text) == [(6, ("pip", "check"))]


def test_keywords_may_be_lower_case_and_followed_by_tabs() -> None:
    assert _commands("from\ta\nrun\tpip install torch\n") == [(2, ("pip", "install", "torch"))]


def test_the_escape_directive_changes_the_continuation() -> None:
    text = "# escape=`\nFROM a\nRUN pip install `\n    torch\n"
    assert _commands(text) == [(3, ("pip", "install", "torch"))]


def test_the_exec_form_is_one_command_and_a_shell_in_it_is_a_script() -> None:
    text = 'FROM a\nRUN ["pip", "install", "torch"]\nRUN ["/bin/bash", "-lc", "cd /x && pip check"]\n'
    assert _commands(text) == [(2, ("pip", "install", "torch")), (3, ("cd", "/x")), (3, ("pip", "check"))]


def test_args_before_from_name_the_base_and_build_arguments_override_them() -> None:
    text = "ARG CUDA=12.4.1\nARG OS=ubuntu22.04\nFROM nvidia/cuda:${CUDA}-devel-$OS\n"
    assert _read(text).image.name == "nvidia/cuda:12.4.1-devel-ubuntu22.04"
    assert _read(text, CUDA="13.0.2").image.name == "nvidia/cuda:13.0.2-devel-ubuntu22.04"


def test_an_outer_arg_is_seen_inside_a_stage_only_where_it_is_declared_again() -> None:
    text = "ARG V=2.5.1\nFROM a\nRUN pip install torch==$V\nARG V\nRUN pip install torch==$V\n"
    assert [words[-1] for _, words in _commands(text)] == ["torch==$V", "torch==2.5.1"]


def test_env_wins_over_arg_and_stays_in_stages_built_on_it() -> None:
    text = "FROM a AS one\nARG V=1\nENV V=2\nFROM one\nRUN pip install x==$V\n"
    assert _commands(text) == [(5, ("pip", "install", "x==2"))]


def test_an_arg_does_not_reach_the_next_stage() -> None:
    text = "FROM a AS one\nARG V=1\nFROM one\nRUN pip install x==$V\n"
    assert _commands(text) == [(4, ("pip", "install", "x==$V"))]


def test_the_last_stage_is_built_with_its_ancestors_and_those_it_copies_from_are_kept_apart() -> None:
    text = (
        "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04 AS build\nRUN make\nFROM python:3.12 AS base\nENV A=1\n"
        "FROM base AS final\nCOPY --from=build /wheels /wheels\nRUN pip check\nFROM busybox AS unused\n"
    )
    final = _read(text, "final")
    assert (final.name, final.image.name, final.place.line) == ("final", "python:3.12", 3)
    assert final.env["A"].value == "1"
    assert [stage.image.flavour for stage in final.copied_from] == [Flavour.DEVEL]
    assert _read(text).image.name == "busybox"


def test_stages_without_a_name_are_copied_from_by_number() -> None:
    text = "FROM a\nRUN make\nFROM b\nCOPY --from=0 /x /x\n"
    assert [stage.image.name for stage in _read(text).copied_from] == ["a"]


def test_a_stage_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadInput, match="no such stage; accepted: build, final"):
        _read("FROM a AS build\nFROM b AS final\n", "test")


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ('A=1 B="two words" C=three\\ words', [("A", "1"), ("B", "two words"), ("C", "three words")]),
        ("A one two", [("A", "one two")]),
        ("A=", [("A", "")]),
        ("PATH='/opt/x':$PATH", [("PATH", "/opt/x:$PATH")]),
    ],
)
def test_env_has_a_new_and_an_old_form(line: str, pairs: list[tuple[str, str]]) -> None:
    assert list(assignments(line)) == pairs


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}-$B", "1-$B"),
        ("${B:-two}", "two"),
        ("${A:-two}", "1"),
        ("${A:+set}${B:+set}", "set"),
        ("${B:-${A}}", "1"),
        (r"\$A", r"\$A"),
    ],
)
def test_variables_are_put_in_as_docker_does_and_unknown_ones_stay(text: str, value: str) -> None:
    assert expand(text, {"A": "1"}) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no FROM line"),
        ("# only a comment\n", "no FROM line"),
        ("FROM a\nPIP install torch\n", "Dockerfile:2: 'PIP' is not an instruction"),
        ("services:\n  web:\n", "Dockerfile:1: 'SERVICES:' is not an instruction"),
    ],
)
def test_what_is_no_dockerfile_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        parse_dockerfile(text, "Dockerfile")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="RUN FROM\n\\#<>\"'$({)}&;|=abc-[]EOF\t", max_size=120))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    for whole in (text, f"FROM a\nRUN {text}", f"FROM a\nENV {text}"):
        try:
            _read(whole)
        except BadInput:
            pass
