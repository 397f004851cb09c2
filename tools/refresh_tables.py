"""Compare the tables with what a package index offers now; print the differences, change nothing.

    python tools/refresh_tables.py                       every watched project, on pip's own index
    python tools/refresh_tables.py torch vllm            two of them
    python tools/refresh_tables.py --index-url URL       another index

Exit: 0 the tables agree, 1 differences seen, 2 bad usage, 4 the index could not be reached.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.parser import Parser
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from firstlight.errors import CouldNotLook
from firstlight.tables import Tables, load

_TRIES = 5
_LONGEST_WAIT_S = 60.0
_RANGE_BYTES = 64 * 1024
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-\d[^-]*)?-[^-]+-[^-]+-(?P<platform>[^-]+)\.whl")


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of a project, e.g. torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl, with its address."""

    filename: str
    url: str
    version: Version
    platform: str
    metadata_url: str  # "" where the index says nothing of a .metadata file
    yanked: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing the index shows and the tables do not, e.g. torch: new release 2.16.0."""

    project: str
    text: str


class _NotFound(Exception):
    """The server answered 404."""


def pip_index_url() -> str:
    """The index pip would use here: its settings, else the default built into pip."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    ask = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    for argv in (("-m", "pip", "config", "get", "global.index-url"), ("-c", ask)):
        answer = subprocess.run((sys.executable, *argv), capture_output=True, text=True, timeout=60, check=False)
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.strip()
    raise CouldNotLook("pip names no index on this machine; give one with --index-url.")


def fetch(url: str, headers: dict[str, str], *, sleep: Callable[[float], None] = time.sleep) -> tuple[int, bytes]:
    """Status and body of one GET; waits as told on 429 and on a server's 503, then asks again."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers})
    for attempt in range(1, _TRIES + 1):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise _NotFound(url) from error
            if error.code not in (429, 503) or attempt == _TRIES:
                raise CouldNotLook(f"{urlsplit(url).path}: the index answered {error.code}; try again later.") from error
            sleep(_wait_s(error.headers.get("Retry-After"), attempt))
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            if attempt == _TRIES:
                raise CouldNotLook(f"{urlsplit(url).path}: the index is out of reach ({error}).") from error
            sleep(_wait_s(None, attempt))
    raise AssertionError(f"fetch fell out of {_TRIES} tries")


def _wait_s(retry_after: str | None, attempt: int) -> float:
    """Seconds to wait: the server's number where it gave one, else 1, 2, 4 ..."""
    told = float(retry_after) if retry_after is not None and retry_after.isdigit() else float(2 ** (attempt - 1))
    return min(told, _LONGEST_WAIT_S)


class _Links(HTMLParser):
    """Collects the links of a simple page with the two attributes that matter here."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append({name: value or "" for name, value in attrs})


def project_files(index: str, project: str) -> tuple[IndexFile, ...]:
    """Every wheel of a project, from the JSON or the HTML form of its simple page; () where the index has none."""
    page = f"{index.rstrip('/')}/{canonicalize_name(project)}/"
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
    try:
        _, body = fetch(page, {"Accept": accept})
    except _NotFound:
        return ()
    text = body.decode("utf-8", errors="replace")
    links = _json_links(text) if text.lstrip().startswith("{") else _html_links(text)
    return tuple(file for link in links if (file := _index_file(page, link)) is not None)


def _json_links(text: str) -> Iterator[dict[str, str]]:
    for file in json.loads(text)["files"]:
        link = {"href": file["url"]}
        if file.get("yanked"):
            link["data-yanked"] = "yes"
        if file.get("core-metadata") or file.get("dist-info-metadata"):
            link["data-core-metadata"] = "true"
        yield link


def _html_links(text: str) -> Iterator[dict[str, str]]:
    parser = _Links()
    parser.feed(text)
    yield from parser.found


def _index_file(page: str, link: dict[str, str]) -> IndexFile | None:
    url = urljoin(page, link.get("href", "")).split("#", 1)[0]
    filename = unquote(url.rsplit("/", 1)[-1])
    match = _WHEEL.fullmatch(filename)
    if match is None:
        return None
    try:
        version = Version(match["version"])
    except InvalidVersion:
        return None
    told = link.get("data-core-metadata") or link.get("data-dist-info-metadata") or "false"
    return IndexFile(
        filename=filename,
        url=url,
        version=version,
        platform=match["platform"],
        metadata_url="" if told == "false" else f"{url}.metadata",
        yanked="data-yanked" in link,
    )


class RangeFile(io.RawIOBase):
    """A file behind HTTP ranges, so that zipfile reads one member of a wheel of 900 MB in a few requests."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._at = 0
        self._size = self._ask_size()

    def _ask_size(self) -> int:
        request = urllib.request.Request(self._url, headers={"Range": "bytes=0-0", "Accept-Encoding": "identity"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            if answer.status != 206:
                raise CouldNotLook(f"{urlsplit(self._url).path}: the index serves no ranges, and the wheel may be large.")
            return int(answer.headers["Content-Range"].rsplit("/", 1)[1])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        last = min(self._at + len(buffer), self._size) - 1
        if last < self._at:
            return 0
        _, body = fetch(self._url, {"Range": f"bytes={self._at}-{last}"})
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


def read_member(url: str, suffix: str) -> bytes:
    """The first member of a remote wheel whose name ends so, e.g. '.dist-info/METADATA'."""
    with zipfile.ZipFile(io.BufferedReader(RangeFile(url), _RANGE_BYTES)) as wheel:
        for name in wheel.namelist():
            if name.endswith(suffix):
                return wheel.read(name)
    raise CouldNotLook(f"{urlsplit(url).path}: no member ends in {suffix}.")


def read_metadata(file: IndexFile) -> str:
    """The METADATA of a wheel: its own file on the index where there is one, else out of the wheel by range."""
    if file.metadata_url:
        try:
            return fetch(file.metadata_url, {})[1].decode("utf-8")
        except _NotFound:
            pass
    return read_member(file.url, ".dist-info/METADATA").decode("utf-8")


def requirements(metadata: str, machine: str) -> dict[str, str]:
    """Requirement by project on Linux and this machine, e.g. {'torch': '==2.9.0'}; extras left out."""
    # Old torch wheels end METADATA lines in CRLF, which packaging's parser refuses.
    message = Parser().parsestr(metadata.replace("\r\n", "\n"), headersonly=True)
    environment = {
        "platform_system": "Linux",
        "sys_platform": "linux",
        "platform_machine": machine,
        "os_name": "posix",
        "extra": "",
        "python_version": "3.12",
        "python_full_version": "3.12.0",
    }
    found = {}
    for line in message.get_all("Requires-Dist") or ():
        requirement = Requirement(line.strip())
        if requirement.marker is None or requirement.marker.evaluate(environment):
            found[canonicalize_name(requirement.name)] = str(requirement.specifier)
    return found
