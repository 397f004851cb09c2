"""Variables in start-up files: commands that set one are taken out, lines are put in, and the shells agree."""

from __future__ import annotations

import pytest

from firstlight.shells.assignments import with_line, without_variables
from firstlight.shells.kinds import Dialect

MASK = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"export {MASK}=0\n", ""),
        (f"umask 022\n{MASK}=0\nexport {MASK}\necho hi\n", "umask 022\necho hi\n"),
        (f"export A=1 {MASK}=0 B=2\n", "export A=1 B=2\n"),
        (f"if [ -e /dev/nvidia0 ]; then\n  export {MASK}=0\nfi\n", "if [ -e /dev/nvidia0 ]; then\n  :\nfi\n"),
        (f"A=1; export {MASK}=0; B=2\n", "A=1; B=2\n"),
        (
            f"# export {MASK}=0\ncat <<EOF\nexport {MASK}=0\nEOF\n",
            f"# export {MASK}=0\ncat <<EOF\nexport {MASK}=0\nEOF\n",
        ),
        (f"{MASK}=0 python train.py\n", f"{MASK}=0 python train.py\n"),
        (f"unset {MASK}\n", f"unset {MASK}\n"),
        (f"export {MASK}_OLD=0\n", f"export {MASK}_OLD=0\n"),
    ],
)
def test_what_sets_the_variable_for_the_shell_goes_and_nothing_else(before: str, after: str) -> None:
    assert without_variables(before, (MASK,)).text == after


@pytest.mark.parametrize(
    ("dialect", "before", "after"),
    [
        (Dialect.FISH, f"set -gx {MASK} 0\nset -gx A 1\n", "set -gx A 1\n"),
        (Dialect.CSH, f"setenv {MASK} 0\nsetenv A 1\n", "setenv A 1\n"),
        (Dialect.ENVIRONMENT, f"PATH=/bin\n{MASK}=0\n", "PATH=/bin\n"),
    ],
)
def test_other_dialects_lose_it_too(dialect: Dialect, before: str, after: str) -> None:
    assert without_variables(before, (MASK,), dialect=dialect).text == after


def test_a_file_that_is_not_understood_is_left_to_a_person_with_its_lines() -> None:
    text = f"export {MASK}=0\necho 'open\n"
    found = without_variables(text, (MASK,))
    assert found.text == text
    assert [(line.number, line.text) for line in found.left] == [(1, f"export {MASK}=0")]


def test_a_line_is_put_behind_the_text_once_and_never_into_an_open_body() -> None:
    assert with_line("umask 022", "export A=1") == "umask 022\nexport A=1\n"
    assert with_line("umask 022\nexport A=1\n", "export A=1") == "umask 022\nexport A=1\n"
    assert with_line("if true; then\n", "export A=1") is None
    assert with_line("echo \\\n", "export A=1") is None
