"""A look in a thread of its own gives what a plain look gives, also where no thread may be started."""

from __future__ import annotations

import threading

import pytest

from firstlight.cli.looking import Looking, look_patiently
from firstlight.errors import BadInput
from firstlight.facts.look import Look, look_at

EXAMPLE = Look("example:h100-driver-570")


def test_a_look_that_runs_beside_gives_the_same_facts_and_the_same_error() -> None:
    assert Looking(EXAMPLE).facts() == look_at(EXAMPLE) == look_patiently(EXAMPLE)
    with pytest.raises(BadInput, match="no such example"):
        Looking(Look("example:nothing")).facts()


def test_where_no_thread_may_start_it_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Looking(EXAMPLE).facts() == look_at(EXAMPLE)
