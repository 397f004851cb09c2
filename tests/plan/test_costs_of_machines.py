"""What the options of every recorded machine cost, as committed: minutes with what they rest on, and no false 0."""

from __future__ import annotations

import json
from typing import Any

from firstlight.ways.kinds import Why
from tools.make_options import NAMES, stored_in

_FETCH = {
    "install-wheels", "close-libraries", "install-conda", "build-from-source", "install-packages", "install-driver",
    "fetch-compat", "use-image",
}  # fmt: skip
_BUILD_OR_WAIT = {"build-modules", "restart", "load-modules", "reload-modules", "reset-gpu", "make-environment"}


def test_minutes_are_known_with_a_basis_for_nine_of_ten_options_that_fetch() -> None:
    fetching = [option for option in _options() if _types(option) & _FETCH]
    known = [option for option in fetching if option["minutes"]["value"] is not None]
    assert len(fetching) > 50
    assert len(known) / len(fetching) >= 0.9, [each["id"] for each in fetching if each not in known]
    assert all(option["minutes"]["from"] and option["download_bytes"]["from"] for option in known)


def test_only_what_fetches_builds_and_waits_for_nothing_takes_no_minutes() -> None:
    for option in _options():
        if _types(option) & (_FETCH | _BUILD_OR_WAIT):
            assert option["minutes"]["value"] != 0, option["id"]
        if option["minutes"]["value"] == 0:
            assert option["minutes"]["from"] == "nothing is fetched, built or waited for"


def test_only_what_fetches_nothing_takes_no_bytes() -> None:
    for option in _options():
        size = option["download_bytes"]
        if _types(option) & _FETCH or any(_may_fetch(way) for way in option["ways"]):
            assert size["value"] != 0, option["id"]
        if size["value"] == 0 and "keep-in-project" not in _types(option):  # what a lock has besides is not counted
            assert size["from"] == "nothing is fetched", option["id"]


def _may_fetch(way: dict[str, Any]) -> bool:
    """What a person does without a command that tells: a driver from a portal, an image of the board's."""
    asked = way["type"] == "ask-person" and way["cures"] and not way["commands"]
    return asked and way["why"] not in {each.value for each in (Why.FIRMWARE, Why.HARDWARE, Why.COOLING, Why.PROGRAM)}


def _options() -> list[dict[str, Any]]:
    return [option for name in NAMES for option in json.loads(stored_in(name).read_text())["options"]]


def _types(option: dict[str, Any]) -> set[str]:
    return {way["type"] for way in option["ways"]}
