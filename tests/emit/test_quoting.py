"""Text from outside in every target language: the real reader of each gets back what was given, or it is refused."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.emit import quoting
from firstlight.emit.image_reference import image_reference
from firstlight.emit.rendering import _only_quoted, render
from firstlight.errors import BadInput

HOSTILE = (
    "two words",
    "it's",
    'a "quoted" one',
    "$(touch /tmp/owned)",
    "`touch /tmp/owned`",
    "${HOME}",
    "a\nb",
    "a\r\nb",
    "back\\slash",
    "trailing\\",
    "-rf",
    "",
    "!history",
    "a;b&c|d>e<f",
    "#not a comment",
    "{{ lookup('pipe', 'id') }}",
    "%n%s",
    "ünïcödé 日本語 \U0001f600",
    "line\u2028separator\x85next\x0bvertical",
    "\x1b[31mred",
    ": - & * !tag",
    "END-OF-FIRSTLIGHT-FILE",
)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("text", HOSTILE)
def test_a_shell_gives_back_what_was_given(shell: str, text: str) -> None:
    script = f"printf %s {quoting.sh(text)}"
    done = subprocess.run([shell, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == text


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, max_size=3))
def test_words_stay_apart_in_a_shell(words: list[str]) -> None:
    script = f"set -- {quoting.sh_words(words)}; printf '%s\\0' \"$@\""
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == (words or [""])


@pytest.mark.parametrize("text", HOSTILE)
def test_a_comment_is_one_line_for_every_reader(text: str) -> None:
    shown = quoting.comment(text)
    assert len(shown.splitlines()) <= 1
    assert shown.isprintable()


@given(TEXT)
def test_json_gives_back_what_was_given(text: str) -> None:
    assert json.loads(quoting.json_text(text)) == text
    assert quoting.json_text(text).isascii()


@given(TEXT)
def test_a_yaml_scalar_is_one_line_of_ascii_in_quotes_that_nothing_closes(text: str) -> None:
    shown = quoting.yaml_text(text)
    assert shown.isascii()
    assert shown.isprintable()
    inside = shown[1:-1]
    assert (shown[0], shown[-1]) == ('"', '"')
    assert '"' not in inside.replace("\\\\", "").replace('\\"', "")


@pytest.mark.parametrize("text", HOSTILE)
def test_yaml_gives_back_what_was_given(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(f"key: {quoting.yaml_text(text)}\n") == {"key": text}


def test_ansible_does_not_look_for_variables() -> None:
    assert quoting.ansible_text("{{ x }}") == '!unsafe "{{ x }}"'


@pytest.mark.parametrize("text", [each for each in HOSTILE if each.isprintable()])
def test_a_dockerfile_value_has_no_quote_and_no_variable_left_open(text: str) -> None:
    inside = quoting.dockerfile_text(text)[1:-1]
    plain = inside.replace("\\\\", "").replace('\\"', "").replace("\\$", "")
    assert not set(plain) & set('"$\\')


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x85b", "a\u2028b", "a\x1bb"])
def test_a_dockerfile_value_with_a_line_break_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="cannot hold"):
        quoting.dockerfile_text(text)


def test_devcontainer_variables_are_refused() -> None:
    with pytest.raises(BadInput, match="devcontainer"):
        quoting.devcontainer_text("${localEnv:HOME}")


@pytest.mark.parametrize(
    "text",
    ["", "a b", "a\nb", "a\n", "$x", "-x", "a;b", "ü", "a'b", 'a"b', "`a`", "a\\b", "a#b",
     "python:3.12../../../x", "a/../b",
     "/a", "a/", "a//b", "a:", "a:-x", "a:b:c", "a:b/c:d", "registry.io/Team/x", "a..b",
     "a___b", "a@sha256:12", "a@md5:" + "0" * 32, "a:" + "x" * 129, "x/" * 200 + "y", "host:port/a", "file:///etc/passwd"],
)  # fmt: skip
def test_what_names_no_image_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--base .*accepted is the name of an image"):
        image_reference(text, what="--base")


def test_the_image_that_is_empty_is_none() -> None:
    with pytest.raises(BadInput, match=r"--base scratch: it is empty"):
        image_reference("scratch", what="--base")
    assert image_reference("team/scratch:1", what="--base") == "team/scratch:1"


@pytest.mark.parametrize(
    "image",
    ["python", "python:3.12-slim-bookworm", "nvcr.io/nvidia/pytorch:25.10-py3", "localhost:5000/a__b/c-d--e.f:V1.0_x",
     "Registry.Example.com/team/torch:1", "docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04@sha256:" + "0" * 64,
     "a@sha256:" + "f" * 64, "[::1]:5000/a", "runpod/pytorch:2.8.0-py3.11-cuda12.8.1-cudnn-devel-ubuntu22.04"],
)  # fmt: skip
def test_the_name_of_an_image_stays_as_it_is(image: str) -> None:
    assert image_reference(image, what="--base") == image


@pytest.mark.parametrize(
    "text",
    ["", "workspace", "../x", "/a/../b", "//host/x", "/a\nb", "/a:b", "/a'b", '/a"b', "/$(id)", "/`id`", "/a\\b", "/a*",
     "/a;b", "/a,b", "/a#b", "/a\0b", "/a%b", "/{a}", "/a&b", "/" + "a" * 300, "/\udcff"],
)  # fmt: skip
def test_a_folder_that_could_mean_something_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        quoting.absolute_path(text, what="--volume")


@pytest.mark.parametrize(
    ("text", "kept"),
    [("/workspace/", "/workspace"), ("/./a/.", "/a"), ("/my disk//x", "/my disk/x"), ("/日本", "/日本")],
)
def test_a_folder_with_spaces_or_letters_of_the_world_is_taken(text: str, kept: str) -> None:
    assert quoting.absolute_path(text, what="--volume") == kept


@pytest.mark.parametrize("quote", [quoting.sh, quoting.comment, quoting.yaml_text, quoting.json_text])
@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_what_no_file_can_carry_is_refused(quote: object, text: str) -> None:
    assert callable(quote)
    with pytest.raises(BadInput, match=r"NUL|UTF-8"):
        quote(text)


def test_a_template_writes_nothing_that_nobody_quoted() -> None:
    assert render("shell.sh.j2", made_by="x", bin="/a b", wire="", wires=False).count("'/a b'") == 2
    with pytest.raises(AssertionError, match="not quoted for its language: 'plain'"):
        _only_quoted("plain")
