"""Lists of hosts in one text, which can be unfolded to the same hosts."""

from __future__ import annotations

import itertools
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from firstlight.fleet.folding import folded


def test_numbers_become_ranges() -> None:
    assert folded(["node01", "node02", "node07", "login"]) == "login,node[01-02,07]"
    assert folded(["gpu-9", "gpu-10"]) == "gpu-10,gpu-9"  # other widths are other names
    assert folded(["rack1-n1", "rack1-n2", "rack2-n1"]) == "rack1-n[1-2],rack2-n1"
    assert folded([]) == ""


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{0,3}", fullmatch=True), unique=True, max_size=20))
def test_every_host_is_in_the_text_once(names: list[str]) -> None:
    assert sorted(_unfolded(folded(names))) == sorted(names)


def _unfolded(text: str) -> list[str]:
    return list(itertools.chain.from_iterable(_one(part) for part in re.split(r",(?![^\[]*\])", text) if part))


def _one(part: str) -> list[str]:
    match = re.fullmatch(r"(.*)\[(.*)\](.*)", part)
    if match is None:
        return [part]
    before, ranges, after = match.groups()
    out = []
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        out += [f"{before}{n:0{len(first)}d}{after}" for n in range(int(first), int(last or first) + 1)]
    return out
