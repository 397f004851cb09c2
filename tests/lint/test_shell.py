"""The commands of a RUN, as far as they can be read without running them."""

from __future__ import annotations

import pytest

from firstlight.lint.dockerfile import Text
from firstlight.lint.shell import Simple, simple_commands


def _commands(text: str) -> tuple[Simple, ...]:
    return simple_commands((Text(text, 1),))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b && c; d || e | f & g", [("a", "b"), ("c",), ("d",), ("e",), ("f",), ("g",)]),
        ("pip install 'torch>=2.5,<3' \"numpy<2\"", [("pip", "install", "torch>=2.5,<3", "numpy<2")]),
        ("if [ -f x ]; then pip install y; fi", [("[", "-f", "x", "]"), ("pip", "install", "y")]),
        ("(cd /x && make)", [("cd", "/x"), ("make",)]),
        ("pip install $(cat list.txt) && echo ok", [("pip", "install", "$(cat list.txt)"), ("echo", "ok")]),
        ("sudo -E pip install x", [("pip", "install", "x")]),
        ("pip install x # not this", [("pip", "install", "x")]),
        ("pip install x#y", [("pip", "install", "x#y")]),
        ('echo "a && b; c"', [("echo", "a && b; c")]),
        ("echo 'open", [("echo", "open")]),
        ("", []),
    ],
)
def test_a_script_falls_apart_into_simple_commands(text: str, words: list[tuple[str, ...]]) -> None:
    assert [command.words for command in _commands(text)] == words


def test_what_is_assigned_before_a_command_is_kept_apart() -> None:
    (command,) = _commands('MAX_JOBS=4 TORCH_CUDA_ARCH_LIST="8.0 9.0" pip install flash-attn')
    assert command.assigned == (("MAX_JOBS", "4"), ("TORCH_CUDA_ARCH_LIST", "8.0 9.0"))
    assert command.program == "pip"


def test_where_a_command_writes_to_is_no_word_of_it() -> None:
    (command,) = _commands("echo /usr/local/cuda/compat >> /etc/ld.so.conf.d/cuda.conf 2>/dev/null")
    assert command.words == ("echo", "/usr/local/cuda/compat")
    assert command.writes == ("/etc/ld.so.conf.d/cuda.conf", "/dev/null")
