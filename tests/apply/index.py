"""PyTorch's index and PyPI in a folder of wheels, behind a proxy that answers for them: programs need no other setting.

The names and addresses are the real ones; the certificate is our own, which the programs are told to trust.
"""

from __future__ import annotations

import hashlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

TORCH, PYPI, FILES = "download.pytorch.org", "pypi.org", "files.example.invalid"


class Certificate(NamedTuple):
    """Files of a certificate: who vouches for it, itself, and its key."""

    authority: Path
    certificate: Path
    key: Path


class Index:
    """What the proxy serves: wheels with a local version come from PyTorch's index, the others from PyPI."""

    def __init__(self, wheels: Path, authority: Path, port: int) -> None:
        self.wheels, self.authority, self.port = wheels, authority, port
        self.asked: list[str] = []

    def environ(self) -> dict[str, str]:
        """What makes pip and uv go through the proxy and trust it."""
        proxy, trusted = f"http://127.0.0.1:{self.port}", str(self.authority)
        names = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY")
        return {
            **dict.fromkeys(names, proxy), "SSL_CERT_FILE": trusted, "PIP_CERT": trusted, "REQUESTS_CA_BUNDLE": trusted
        }  # fmt: skip

    def page(self, host: str, path: str) -> tuple[int, str, bytes]:
        """Status, type and bytes for an address."""
        self.asked.append(f"{host}{path}")
        name = path.rstrip("/").rpartition("/")[2]
        if host == FILES:
            file = self.wheels / name.replace("%2B", "+")
            return (200, "application/octet-stream", file.read_bytes()) if file.exists() else (404, "text/plain", b"")
        tag = path.split("/")[2] if host == TORCH else ""
        found = [each for each in sorted(self.wheels.glob("*.whl")) if _belongs(each, name, tag)]
        links = "".join(
            f'<a href="https://{FILES}/{each.name.replace("+", "%2B")}#sha256={_sha256(each)}">{each.name}</a><br/>'
            for each in found
        )
        return (200 if found else 404), "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode()


def _belongs(wheel: Path, project: str, tag: str) -> bool:
    name, version = wheel.name.split("-")[:2]
    return name.replace("_", "-") == project and version.partition("+")[2] == tag


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@contextmanager
def serving(wheels: Path, folder: Path) -> Iterator[Index]:
    """An index at work."""
    made = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    index = Index(wheels, made.authority, server.server_address[1])

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            self.send_response(200)
            self.end_headers()
            host = self.path.partition(":")[0]
            try:
                inside = context.wrap_socket(self.connection, server_side=True)
                type("Behind", (Behind,), {"host": host})(inside, self.client_address, self.server)
            except OSError:  # the client went away
                pass
            self.close_connection = True

        def log_message(self, *words: object) -> None:
            """Silent: pytest shows the test, not the traffic."""

    class Behind(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        host = ""

        def do_GET(self) -> None:
            status, kind, data = index.page(self.host, self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)

        do_HEAD = do_GET

        def log_message(self, *words: object) -> None:
            """Silent, as above."""

    server.RequestHandlerClass = Proxy
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()


def _certificate(folder: Path) -> Certificate:
    """A certificate for the names, and the authority that signed it."""
    made = Certificate(*(folder / name for name in ("authority.pem", "certificate.pem", "key.pem")))
    names = ",".join(f"DNS:{each}" for each in (TORCH, PYPI, FILES))
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    own = ["-subj", "/CN=authority", "-keyout", str(folder / "authority.key"), "-out", str(made.authority)]
    subprocess.run([*new, *own], check=True, capture_output=True)
    signed = ["-CA", str(made.authority), "-CAkey", str(folder / "authority.key"), "-subj", "/CN=tests"]
    about = ["-addext", f"subjectAltName={names}", "-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run([*new, *signed, *about, *files], check=True, capture_output=True)
    return made
