"""Whole transcripts: a command line, all it prints, its exit code; `tools.generate transcripts` rewrites them."""

from __future__ import annotations

import pytest

from tools.make_transcripts import TRANSCRIPTS, played, stored


@pytest.mark.parametrize("name", sorted(TRANSCRIPTS))
def test_a_transcript_plays_as_written(name: str) -> None:
    assert played(name) == stored(name)
