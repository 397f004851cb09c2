"""A plugin of pytest: what each file of tests takes of the processor, its children too, in seconds.

Into the file that FIRSTLIGHT_TEST_SECONDS names: see tools/run_tests.py.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

_SECONDS: defaultdict[str, float] = defaultdict(float)


def _spent() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = _spent()
    try:
        return (yield)
    finally:
        _SECONDS[item.nodeid.partition("::")[0]] += _spent() - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, object, object]:
    before = _spent()
    try:
        return (yield)
    finally:
        if isinstance(collector, pytest.Module):
            _SECONDS[collector.nodeid] += _spent() - before


def pytest_sessionfinish() -> None:
    seconds = {file: round(spent, 2) for file, spent in sorted(_SECONDS.items())}
    Path(os.environ["FIRSTLIGHT_TEST_SECONDS"]).write_text(json.dumps(seconds, indent=1) + "\n")
