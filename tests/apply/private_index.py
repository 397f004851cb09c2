"""An index that wants a user and a password, as companies have them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

from tests.http_server import served

USER, PASSWORD = "alice", "Tr0ub4dor-and-3"
_BASIC = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"


class _Private(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.headers.get("Authorization") == _BASIC:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="wheels"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def private_index(wheels: Path, folder: Path) -> Iterator[str]:
    """The address of an index of these wheels, with the login in it."""
    for wheel in wheels.glob("*.whl"):
        project = folder / "simple" / wheel.name.partition("-")[0].replace("_", "-").lower()
        project.mkdir(parents=True, exist_ok=True)
        (project / wheel.name).write_bytes(wheel.read_bytes())
    with served(partial(_Private, directory=str(folder))) as port:
        yield f"http://{USER}:{PASSWORD}@127.0.0.1:{port}/simple"
