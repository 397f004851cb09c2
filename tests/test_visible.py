"""Nothing of others moves a cursor, colours, hides or reorders: it is spelled out, once, whoever prints."""

from __future__ import annotations

import io
import json
import sys

import pytest

from firstlight.cli.printing import Guarded, guarded_streams, raw
from firstlight.visible import one_line, visible

HOSTILE = (
    "\x1b[2J", "\x1b]8;;http://evil.invalid\x07click\x1b]8;;\x07", "\x1b]52;c;cm0gLXJmIH4K\x07", "\x9b31m", "\x90q",
    "\x85",
    "good\rbad", "x\b\b\b", "\u202etxt.exe", "\u2066\u2069", "\u200b", "\ufeff", "\u2060", "\xad", "\x00", "\x7f",
    "\u2028",
    "\u3164", "\u115f", "\udcff",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_a_control_is_spelled_out(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize(
    "text", ["Grüße, Ægir", "├── libtorch.so", "日本語", "a\u00a0b", "two\nlines\tand a tab", "√2 ≤ 3"]
)
def test_letters_lines_and_what_we_draw_stay(text: str) -> None:
    assert visible(text) == text


def test_a_line_end_in_a_title_forges_no_line() -> None:
    assert one_line("torch\nfirstlight: all good") == "torch\\nfirstlight: all good"


def test_inside_a_document_it_still_means_the_same() -> None:
    text = json.dumps({"name": "a\u202eb\x9bc"}, ensure_ascii=False)
    assert json.loads(visible(text)) == {"name": "a\u202eb\x9bc"}


def test_both_streams_are_guarded_whoever_writes_and_are_given_back() -> None:
    before = sys.stdout, sys.stderr
    out, err = io.StringIO(), io.StringIO()
    sys.stdout, sys.stderr = out, err
    try:
        with guarded_streams([]):
            print("\x1b[2J https://user:secret@host/")
            sys.stderr.writelines(["\u202e", "GPU-8f1c2d3e"])
            assert raw(sys.stdout) is out
            assert not hasattr(sys.stdout, "buffer")
        assert sys.stdout is out
        with guarded_streams(["facts", "--identify"]):
            print("GPU-8f1c2d3e https://user:secret@host/")
    finally:
        sys.stdout, sys.stderr = before
    assert out.getvalue() == "\\x1b[2J https://<redacted>@host/\nGPU-8f1c2d3e https://<redacted>@host/\n"
    assert err.getvalue() == "\\u202eGPU-<redacted>"


def test_a_letter_that_the_terminal_lacks_is_spelled_out() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    before, sys.stdout = sys.stdout, stream
    try:
        with guarded_streams([]):
            print("Grüße")
            sys.stdout.flush()
    finally:
        sys.stdout = before
    assert stream.buffer.getvalue() == b"Gr\\xfc\\xdfe\n"


def test_bytes_are_guarded_as_text_is() -> None:
    stream = io.StringIO()
    Guarded(stream).write(b"token=ghp_0123456789abcdefghijABCDEFGHIJ012345\x1b[2J\n")
    assert stream.getvalue() == "token=<redacted>\\x1b[2J\n"
