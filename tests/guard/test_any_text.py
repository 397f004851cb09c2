"""Any text gives allow or deny in time, and no spelling of a forbidden command turns deny into allow."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight.guard.limit import within_the_limit
from firstlight.guard.place import Place
from firstlight.guard.policy import Policy
from tests.guard.projects import decide, project

PIECES = st.sampled_from(
    [
        "pip", "install", "triton", "$(", ")", "`", '"', "'", ";", "|", "&&", "||", "\n", "<<EOF\n", "EOF\n",
        "{", "}", "$x", "x=", "if", "then", "fi", "case", "esac", "in", "for", "do", "done", "[[", "]]", "((",
        "))", "\\", "*", ">", "<(", "sh -c ", "eval ", "xargs ", "env ", "#", "~", "é", "\ufffc", "\x1f", "${",
        "!", "&", "function f", "()", "make ", "python -c ",
    ]
)  # fmt: skip
FORBIDDEN = st.sampled_from(
    [
        "pip install triton",
        "pip3 install -U triton",
        "python -m pip install triton",
        "uv pip install triton",
        "rm firstlight.lock",
    ]
)
Spelling = Callable[[str], str]
OF_WORDS: tuple[Spelling, ...] = (  # of plain words, which the quotes of another would no longer be
    lambda text: " ".join(f"'{word}'" for word in text.split()),
    lambda text: " ".join(f'"{word}"' for word in text.split()),
    lambda text: " ".join(word[0] + "\\" + word[1:] if word[1].isalpha() else word for word in text.split()),
    lambda text: " ".join(word[:1] + '""' + word[1:] for word in text.split()),
    lambda text: " ".join(word[:1] + "''" + word[1:] for word in text.split()),
    lambda text: " ".join("$'" + "".join(f"\\x{ord(letter):02x}" for letter in word) + "'" for word in text.split()),
    lambda text: text.replace(" ", "  \t "),
    lambda text: text.replace(" ", " \\\n "),
)
AROUND: tuple[Spelling, ...] = (
    lambda text: f"  {text}  # a comment",
    lambda text: f"true; {text}",
    lambda text: f"{{ {text}; }}",
    lambda text: f"({text})",
    lambda text: f"if true; then {text}; fi",
    lambda text: f"sh -c {shlex.quote(text)}",
    lambda text: f"bash -c {shlex.quote(shlex.join(['sh', '-c', text]))}",
    lambda text: f"eval {shlex.quote(text)}",
    lambda text: f"env A=1 {text}",
    lambda text: f'c={shlex.quote(text)}; eval "$c"',
    lambda text: f"f() {{ {text}; }}; f",
    lambda text: f"bash <<'E'\n{text}\nE",
    lambda text: f"echo {shlex.quote(text)} | sh",
    lambda text: f"x=$({text})",
    lambda text: f"true && {text} || true",
    lambda text: f"for i in 1; do {text}; done",
)
SPELLINGS = (*OF_WORDS, *AROUND)


@pytest.fixture(scope="module")
def where(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Place]:
    return project(tmp_path_factory.mktemp("any"))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.text(max_size=200), st.lists(PIECES, max_size=40).map(" ".join), st.lists(PIECES, max_size=40).map("".join)
    )
)
def test_any_text_gives_allow_or_deny_within_two_seconds(where: tuple[Policy, Place], text: str) -> None:
    before = time.process_time()
    with within_the_limit():
        decision = decide(text, where)
    assert isinstance(decision.allowed, bool)
    assert time.process_time() - before < 2


@settings(max_examples=150, deadline=None)
@given(FORBIDDEN, st.sampled_from(OF_WORDS), st.lists(st.sampled_from(AROUND), max_size=3))
def test_no_spelling_turns_deny_into_allow(
    where: tuple[Policy, Place], text: str, words: Spelling, around: list[Spelling]
) -> None:
    text = words(text)
    for spell in around:
        text = spell(text)
    assert not decide(text, where).allowed, text


@pytest.mark.parametrize("number", range(len(SPELLINGS)))
def test_each_spelling_alone_is_denied(number: int, where: tuple[Policy, Place]) -> None:
    for text in ("pip install triton", "python -m pip install triton", "rm firstlight.lock"):
        assert not decide(SPELLINGS[number](text), where).allowed


def test_the_spellings_mean_the_same_to_a_real_shell(tmp_path: Path) -> None:
    import subprocess

    for number, spell in enumerate(SPELLINGS):
        marker = tmp_path / f"made-{number}"
        done = subprocess.run(["bash", "-c", spell(f"touch {marker}")], capture_output=True)
        assert marker.exists(), (number, done.stderr)
