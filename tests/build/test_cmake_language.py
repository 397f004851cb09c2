"""The CMake language, read and not run."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.build.cmake_language import Argument, Quoting, parse_cmake
from firstlight.build.cmake_reads import reads_of
from firstlight.build.reads import ReadKind


def test_comments_brackets_quotes_and_nesting_are_told_apart() -> None:
    text = """
# option(NOT_ONE "in a comment" ON)
#[[ option(NOR_THIS "in a bracket comment" ON) ]]
option(USE_A "says \\"on\\" \\
or off" ON) # option(NOR_THAT x ON)
if((USE_A AND NOT B) OR "${C}" STREQUAL [=[ ]] ]=])
endif()
"""
    found = parse_cmake(text, "CMakeLists.txt")
    assert found.stopped == ""
    assert [each.name for each in found.commands] == ["option", "if", "endif"]
    option, condition, _ = found.commands
    assert option.texts == ("USE_A", 'says "on" or off', "ON")
    assert option.line == 4
    assert condition.arguments[-1] == Argument(" ]] ", Quoting.BRACKET)
    assert [each.text for each in condition.arguments].count("(") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('set(A "open', "x:1: a quotation mark is not closed"),
        ("set(A\n", "x:1: a bracket is not closed"),
        ("set(A [[ open )", "x:1: [[ is not closed"),
        ("set(A 1)\n)\n", "x:2: a command is expected, not ')'"),
        ("set A", "x:1: set is not followed by a bracket"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line_and_what_came_before_is_kept(text: str, said: str) -> None:
    found = parse_cmake(text, "x")
    assert found.stopped == said
    assert len(found.commands) == int(text.startswith("set(A 1)"))


def test_every_way_to_declare_or_read_a_name_is_seen() -> None:
    text = """
option(USE_A "a" ON)
cmake_dependent_option(USE_B "b" ON "USE_A;NOT APPLE" OFF)
set(C_PATH "/x" CACHE PATH "where")
set(PLAIN 1)
if(DEFINED ENV{D_HOME})
  message("$ENV{E_HOME} ${F}")
endif()
if(G AND NOT CACHE{H} STREQUAL "on")
endif()
"""
    reads = [each for command in parse_cmake(text, "f").commands for each in reads_of(command, "f")]
    kinds = {each.name: each.kind for each in reads}
    assert kinds == {
        "USE_A": ReadKind.OPTION,
        "USE_B": ReadKind.DEPENDENT_OPTION,
        "C_PATH": ReadKind.CACHE,
        "D_HOME": ReadKind.CMAKE_ENVIRONMENT,
        "E_HOME": ReadKind.CMAKE_ENVIRONMENT,
        "F": ReadKind.VARIABLE,
        "G": ReadKind.VARIABLE,
        "H": ReadKind.VARIABLE,
        "on": ReadKind.VARIABLE,
    }
    assert [each.default for each in reads if each.name in ("USE_A", "C_PATH")] == ["ON", "/x"]


@settings(deadline=None, max_examples=150)
@given(st.text(alphabet='ab1 \n\t()"#[]=\\${}@;', max_size=80))
def test_any_text_ends_in_commands_or_a_place(text: str) -> None:
    found = parse_cmake(text, "x")
    assert found.stopped == "" or found.stopped.startswith("x:")


_WORDS = st.lists(st.text(alphabet='abcXY01 ;()#"\\$-', max_size=8), min_size=1, max_size=4)


@settings(deadline=None, max_examples=20)
@given(st.lists(_WORDS, min_size=1, max_size=4))
def test_quoted_arguments_are_those_that_cmake_itself_sees(calls: list[list[str]]) -> None:
    """cmake -P prints what it understood; semicolons are its list sign and are compared without."""
    plain = [[word.replace("$", "").replace(";", "") for word in words] for words in calls]
    escaped = [[word.replace("\\", "\\\\").replace('"', '\\"') for word in words] for words in plain]
    text = "".join('show("' + '" "'.join(words) + '")\n' for words in escaped)
    head = 'function(show)\nmath(EXPR last "${ARGC} - 1")\nforeach(at RANGE ${last})\nmessage("<${ARGV${at}}>")\n'
    script = head + 'endforeach()\nmessage("--")\nendfunction()\n' + text
    with tempfile.NamedTemporaryFile("w", suffix=".cmake") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(["cmake", "-P", file.name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (text, done.stderr)
    seen = [[each[1:-1] for each in block.split("\n") if each] for block in done.stderr.split("--\n") if block]
    ours = [list(command.texts) for command in parse_cmake(text, "x").commands]
    assert seen == ours


def test_a_template_is_read_past_what_will_be_filled_in(tmp_path: Path) -> None:
    found = parse_cmake('@PACKAGE_INIT@\noption(A "a" ON)\n', "x.cmake.in")
    assert found.stopped == ""
    assert found.commands[0].texts[0] == "A"
