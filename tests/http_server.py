"""Servers of HTTP on this machine, for as long as a test needs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Quiet(SimpleHTTPRequestHandler):
    """The files of a folder, without a line for each request: pytest shows the test, not the traffic."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def served(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[int]:
    """The port of 127.0.0.1 where these answers are given."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def served_folder(folder: Path) -> Iterator[str]:
    """The address of a folder."""
    with served(partial(Quiet, directory=str(folder))) as port:
        yield f"http://127.0.0.1:{port}"
