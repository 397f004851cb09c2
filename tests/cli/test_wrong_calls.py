"""Calls that a newcomer gets wrong: the first line says what was given, what is accepted and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.cli.main import run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--json",), "`firstlight doctor --json`"),
        (("--facts", "x"), "`firstlight doctor --facts`"),
        (("help",), "`firstlight --help`"),
        (("verify", "--list", "--json"), "--list prints lines of text"),
        (("bench", "--list", "--json"), "--list prints lines of text"),
        (("bench", "--estimate", "--json"), "--estimate prints lines of text"),
        (("profile", "--list", "--json"), "--list prints lines of text"),
        (("profile", "--show-tiers", "--json"), "--show-tiers prints lines of text"),
        (("profile", "gemmm"), "no case is called that; accepted: a family"),
        (("verify", "--so", "no-such.so"), "accepted: a library or program"),
        (("verify", "--so", "."), "it is a folder, not a file"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_it_is_bad_input_in_one_line(
    words: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(list(words)) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert (said.out, len(said.err.splitlines())) == ("", 1)
