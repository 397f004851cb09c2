"""Commands that explain prints hold words of somebody's log, and are pasted: none of them may become a command."""

from __future__ import annotations

import shlex

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.signatures import filled_command

HOSTILE = ("a;id", "a$(id)", "a`id`", "a|id", "a&&id", "a\nid", "a>b", "a'b;id'c", 'a"b;id"c', "a #b", "a b")


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("line", ["ls {file}", "ls '{file}'", 'ls "{file}"', "ls /opt/{file}/lib"])
def test_a_value_stays_one_word(line: str, value: str) -> None:
    [first, *words] = shlex.split(filled_command(line, {"file": value}))
    assert (first, len(words)) == ("ls", 1)
    assert not set(words[0]) & set(";$`|&#\n'\"")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("libcudart.so.12", "libcudart.so.12"),
        ("cuda-drivers (>= 580)", "cuda-drivers"),
        ("2.9.0+cu130", "2.9.0+cu130"),
        (r"C:\cuda\bin\x.dll", r"C:\cuda\bin\x.dll"),
        ("'torch'", "torch"),
        ("-rf", "FILE"),
        ("", "FILE"),
    ],
)
def test_what_is_left_of_a_value(value: str, word: str) -> None:
    assert filled_command("ls {file}", {"file": value}) == f"ls {word}"


def test_bounds_stay_where_the_row_quotes_them() -> None:
    assert filled_command("pip install 'torch{wanted}'", {"wanted": ">=2.8,<3"}) == "pip install 'torch>=2.8,<3'"


def test_a_package_of_apt_comes_without_its_bounds() -> None:
    text = " cuda-drivers : Depends: nvidia-kernel-common-530 (>= 530.41.03) but it is not going to be installed"
    [found] = explain_text(text).explanations
    assert any(
        line == "apt-cache policy nvidia-kernel-common-530" for way in found.signature.ways_out for line in way.run
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "Jul  8 15:11:04 gpu slurmd[5421]: error: Waiting for gres.conf file /dev//nvidia0\n"
            "Jul  8 15:11:23 gpu slurmd[5421]: fatal: can't stat gres.conf file /dev//nvidia0: No such file\n",
            "/dev//nvidia0,",
        ),
        (
            "Bug: ggml_cuda_host_malloc: failed to allocate 1900,00 MiB of pinned memory: invalid argument\n"
            "llm_load_print_meta: n_embd_head_k    = 128\nllm_load_print_meta: n_embd_head_v    = 128\n",
            "(invalid argument)",
        ),
    ],
)
def test_the_next_record_is_not_glued_to_a_long_line(text: str, line: str) -> None:
    [found] = explain_text(text).explanations
    assert line in found.signature.cause
