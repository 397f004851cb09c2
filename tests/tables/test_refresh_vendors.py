"""What NVIDIA's pages have and the tables lack, read from a server of our own that stands in for them."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests import http_server
from tools.refresh_vendors import main

GPUS = """<table><tr><td>9.0</td><td>NVIDIA GH200<br>NVIDIA H200<br>NVIDIA H100</td></tr>
<tr><td>13.0</td><td>NVIDIA R100<br>GeForce RTX 6090</td><td>Jetson T5000</td></tr></table><p>NVIDIA Developer</p>"""
IMAGES = {"results": [{"name": f"{v}-base-ubuntu22.04"} for v in ("13.2.0", "13.9.0", "13.9.1", "11.8.0")]}
JETPACKS = "<li>JetPack 7.1 <b>(Jetson Linux 38.4)</b></li><li>JetPack 9.9 : L4T R39.9.1</li>"


@contextmanager
def served(body: str) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http_server.served(Handler) as port:
        yield f"http://127.0.0.1:{port}/"


@pytest.mark.parametrize(
    ("page", "body", "lines"),
    [
        ("gpus", GPUS, ["gpus: 2 not in the tables", "  NVIDIA R100", "  GeForce RTX 6090"]),
        ("images", json.dumps(IMAGES), ["images: 1 not in the tables", "  nvidia/cuda:13.9.1"]),
        ("jetpacks", JETPACKS, ["jetpacks: 1 not in the tables", "  Jetson Linux 39.9.1, JetPack 9.9"]),
    ],
)
def test_what_a_page_has_and_the_tables_lack_is_named(
    page: str, body: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with served(body) as address:
        assert main([page, "--at", address]) == 1
    assert capsys.readouterr().out.splitlines() == lines


def test_a_page_with_nothing_new_is_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    with served("<td>NVIDIA H200</td>") as address:
        assert main(["gpus", "--at", address]) == 0
    assert capsys.readouterr().out == "gpus: all in the tables\n"


def test_a_page_out_of_reach_or_of_another_form_is_exit_4(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus", "--at", "http://127.0.0.1:9/"]) == 4
    with served("<html>") as address:
        assert main(["images", "--at", address]) == 4
    assert "not what was expected" in capsys.readouterr().err
