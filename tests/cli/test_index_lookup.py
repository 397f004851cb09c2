"""The sizes that a package index tells, asked of real servers on this machine: JSON, plain pages, silence and lies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest

from firstlight.cli import index_lookup
from firstlight.cli.index_lookup import index_sizes
from firstlight.facts.network import Setting
from firstlight.ways.index_sizes import IndexSize, IndexSizes
from firstlight.ways.kinds import InstallWheels, Package
from tests.diagnosis.rule_case import facts_of
from tests.http_server import served

FACTS = facts_of("h100-driver-570")  # x86_64, Python 3.12
OURS = "torch-2.9.0+cu126-cp312-cp312-manylinux_2_28_x86_64.whl"
OTHERS = (
    "torch-2.9.0+cu126-cp311-cp311-manylinux_2_28_x86_64.whl",
    "torch-2.9.0+cu126-cp312-cp312-manylinux_2_28_aarch64.whl",
    "torch-2.9.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl",
    "torch-2.9.0+cu126.tar.gz",
)
SIZE = 826_000_123


@contextmanager
def index(page: bytes, kind: str, *, wait_s: float = 0.0) -> Iterator[tuple[str, list[str]]]:
    """A server with one page for every project and a file of SIZE bytes behind every link."""
    asked: list[str] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"GET {self.path}")
            time.sleep(wait_s)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(page)

        def do_HEAD(self) -> None:
            asked.append(f"HEAD {self.path}")
            self.send_response(200)
            self.send_header("Content-Length", str(SIZE))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing: the test's own output is read."""

    with served(Answers) as port:
        yield f"http://127.0.0.1:{port}/whl/cu126", asked


def torch(address: str) -> InstallWheels:
    return InstallWheels((Package("torch", "2.9.0+cu126"),), address)


def links(*names: str) -> bytes:
    return "".join(f'<a href="/files/{name.replace("+", "%2B")}#sha256=0">{name}</a>' for name in names).encode()


def test_an_index_that_answers_in_json_is_asked_once() -> None:
    files = [{"filename": each, "url": f"../files/{each}", "size": SIZE + (each != OURS)} for each in (OURS, *OTHERS)]
    with index(json.dumps({"files": files}).encode(), "application/vnd.pypi.simple.v1+json") as (address, asked):
        found = index_sizes([torch(address)], FACTS)
    assert found == IndexSizes((IndexSize("torch", "2.9.0+cu126", address, SIZE, "as the index says"),))
    assert asked == ["GET /whl/cu126/torch/"]


def test_of_a_plain_page_the_wheel_for_this_python_and_processor_is_asked_for_its_length() -> None:
    with index(links(*OTHERS, OURS), "text/html") as (address, asked):
        [found] = index_sizes([torch(address)], FACTS).found
    assert found.bytes == SIZE
    assert asked == ["GET /whl/cu126/torch/", f"HEAD /files/{OURS.replace('+', '%2B')}"]


def test_an_index_without_the_wheel_says_nothing() -> None:
    with index(links(*OTHERS), "text/html") as (address, _):
        assert index_sizes([torch(address)], FACTS) == IndexSizes()


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (b'{"files": [{"url": 7}, 3, {"size": "many"}]}', "application/json"),
        (b'{"files": ', "application/json"),
        (b"[]", "application/json"),
        (f'<a href="file:///etc/{OURS}">'.encode(), "text/html"),
        (b"\xff\xfe<a href=", "text/html"),
    ],
)
def test_what_an_index_makes_up_is_no_size(page: bytes, kind: str) -> None:
    with index(page, kind) as (address, asked):
        assert index_sizes([torch(address)], FACTS) == IndexSizes()
    assert not [each for each in asked if each.startswith("HEAD")]


def test_an_index_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_lookup, "PATIENCE_S", 0.3)
    with index(links(OURS), "text/html", wait_s=2.0) as (address, _):
        begun = time.monotonic()
        assert index_sizes([torch(address)], FACTS) == IndexSizes()
        assert time.monotonic() - begun < 1.5


def test_nothing_is_asked_where_the_machine_is_told_to_stay_offline() -> None:
    offline = replace(FACTS.network, package_settings=(Setting("PIP_NO_INDEX", "environment"),))
    with index(links(OURS), "text/html") as (address, asked):
        assert index_sizes([torch(address)], replace(FACTS, network=offline)) == IndexSizes()
    assert asked == []


@pytest.mark.parametrize("address", ["file:///opt/simple", "/opt/simple", "https://user:secret@127.0.0.1:9/simple"])
def test_an_address_that_cannot_be_asked_says_nothing(address: str) -> None:
    assert index_sizes([torch(address)], FACTS) == IndexSizes()
