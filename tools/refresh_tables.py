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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email.parser import Parser
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from firstlight.errors import CouldNotLook
from firstlight.tables import Tables, load
from firstlight.tables.row import Pin
from firstlight.tables.soname_rows import LibraryReleases

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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said: the body, and the whole size where the body is a part, e.g. 899815990; else 0."""

    body: bytes
    whole_size: int


class NotFound(CouldNotLook):
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


def fetch(url: str, headers: dict[str, str], *, sleep: Callable[[float], None] = time.sleep) -> Answer:
    """One GET; waits as told on 429 and 503, then asks again."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", **headers})
    for attempt in range(1, _TRIES + 1):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                part = answer.headers.get("Content-Range", "") if answer.status == 206 else ""
                return Answer(answer.read(), int(part.rpartition("/")[2]) if part else 0)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise NotFound(f"{urlsplit(url).path}: not on the index (404).") from error
            if error.code not in (429, 503) or attempt == _TRIES:
                raise CouldNotLook(
                    f"{urlsplit(url).path}: the index answered {error.code}; try again later."
                ) from error
            sleep(_wait_s(error.headers.get("Retry-After"), attempt))
        except OSError as error:  # URLError is one, and so is a time-out
            raise CouldNotLook(f"{urlsplit(url).path}: the index is out of reach ({error}).") from error
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
        body = fetch(page, {"Accept": accept}).body
    except NotFound:
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
        size = fetch(self._url, {"Range": "bytes=0-0"}).whole_size
        if not size:
            raise CouldNotLook(f"{urlsplit(self._url).path}: the index serves no ranges, and a wheel may be large.")
        return size

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
        body = fetch(self._url, {"Range": f"bytes={self._at}-{last}"}).body
        buffer[: len(body)] = body
        self._at += len(body)
        return len(body)


def read_member(url: str, suffix: str) -> bytes:
    """The first member of a remote wheel whose name ends so, e.g. '.dist-info/METADATA'."""
    try:
        with zipfile.ZipFile(io.BufferedReader(RangeFile(url), _RANGE_BYTES)) as wheel:
            for name in wheel.namelist():
                if name.endswith(suffix):
                    return wheel.read(name)
    except zipfile.BadZipFile as error:
        raise CouldNotLook(f"{urlsplit(url).path}: not a wheel ({error}).") from error
    raise CouldNotLook(f"{urlsplit(url).path}: no member ends in {suffix}.")


def read_metadata(file: IndexFile) -> str:
    """The METADATA of a wheel: its own file on the index where there is one, else out of the wheel by range."""
    if file.metadata_url:
        try:
            return fetch(file.metadata_url, {}).body.decode("utf-8")
        except NotFound:
            pass
    return read_member(file.url, ".dist-info/METADATA").decode("utf-8")


def requirements(metadata: str, machine: str, *, extra: str = "") -> dict[str, str]:
    """Requirement by project on Linux and this machine, e.g. {'torch': '==2.9.0'}; with those of one extra.

    Extras stand before the bounds: {'flashinfer-python': '[cu13]==0.7.2'}.
    """
    # Old torch wheels end METADATA lines in CRLF, which packaging's parser refuses.
    message = Parser().parsestr(metadata.replace("\r\n", "\n"), headersonly=True)
    environment = {
        "platform_system": "Linux",
        "sys_platform": "linux",
        "platform_machine": machine,
        "os_name": "posix",
        "extra": extra,
        "python_version": "3.12",
        "python_full_version": "3.12.0",
    }
    found: dict[str, str] = {}
    for line in message.get_all("Requires-Dist") or ():
        requirement = Requirement(line.strip())
        if requirement.marker is None or requirement.marker.evaluate(environment):
            extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
            found[canonicalize_name(requirement.name)] = f"{extras}{requirement.specifier}"
    return found


def known_versions(tables: Tables, project: str) -> set[Version]:
    """The releases of a project that the tables have rows for."""
    if project == "torch":
        return {Version(row.torch.text) for row in tables.torch_releases}
    if project == "cuda-toolkit":
        return {Version(row.release) for row in tables.toolkit_wheels}
    listed = {Version(row.version) for row in tables.companions if row.project == project}
    listed |= {Version(each) for row in _libraries(tables) if row.project == project for each in row.versions}
    return listed | {Version(row.version) for row in tables.newest_releases if row.project == project}


def _libraries(tables: Tables) -> tuple[LibraryReleases, ...]:
    return tuple(row for row in tables.rows("library_releases") if isinstance(row, LibraryReleases))


def watched_projects(tables: Tables) -> tuple[str, ...]:
    """Every project whose releases the tables follow."""
    companions = dict.fromkeys(row.project for row in tables.companions)
    newest = (row.project for row in tables.newest_releases)
    libraries = (row.project for row in _libraries(tables))
    return tuple(dict.fromkeys(("torch", "cuda-toolkit", *companions, *newest, *libraries)))


def known_pins(tables: Tables, project: str, *, version: Version, machine: str) -> dict[str, str]:
    """What the tables say a release requires; {} where they say nothing of this machine."""
    if project == "torch":
        release = tables.torch_release(str(version), machine)
        return {} if release is None else {pin.project: _bounds(pin) for pin in release.pins}
    if project == "cuda-toolkit":
        parts = (row.parts for row in tables.toolkit_wheels if Version(row.release) == version and machine == "x86_64")
        return {pin.project: _bounds(pin) for part in parts for pin in part}
    rows = (row for row in tables.companions if row.project == project and Version(row.version) == version)
    return {pin.project: _bounds(pin) for row in rows if machine == "x86_64" for pin in row.requires}


def _bounds(pin: Pin) -> str:
    """Extras and bounds of a pin, as `requirements` writes them."""
    return str(pin).removeprefix(pin.project)


def compare_project(tables: Tables, project: str, *, files: tuple[IndexFile, ...]) -> Iterator[Difference]:
    """What the index shows of a project and the tables do not have."""
    known = known_versions(tables, project)
    offered = {file.version for file in files if not file.yanked and not file.version.is_prerelease}
    if not offered:
        yield Difference(project, "no release on this index")
        return
    newest = max(known)
    for version in sorted(version for version in offered if version > newest):
        yield Difference(project, f"new release {version}{_told_requirements(project, version, files)}")
    if newest not in offered:
        yield Difference(project, f"{newest}, the newest in the tables, is yanked or gone")
        return
    for machine in ("x86_64", "aarch64"):
        pins = known_pins(tables, project, version=newest, machine=machine)
        wheel = _wheel_for(files, newest, machine=machine)
        if pins and wheel is not None:
            found = requirements(read_metadata(wheel), machine, extra="all" if project == "cuda-toolkit" else "")
            yield from _changed_pins(project, f"{newest} {machine}", pins=pins, found=found)


def _changed_pins(project: str, what: str, *, pins: dict[str, str], found: dict[str, str]) -> Iterator[Difference]:
    for name, spec in pins.items():
        if name not in found:
            yield Difference(project, f"{what}: no longer requires {name}{spec}")
        elif _differ(f"{name}{found[name]}", f"{name}{spec}"):
            yield Difference(project, f"{what}: requires {name}{found[name]}, the tables say {name}{spec}")


def _differ(one: str, other: str) -> bool:
    """Whether two requirements ask for other versions or other extras."""
    first, second = Requirement(one), Requirement(other)
    return first.specifier != second.specifier or first.extras != second.extras


def _wheel_for(files: tuple[IndexFile, ...], version: Version, *, machine: str) -> IndexFile | None:
    """A Linux wheel of a release for a machine, of CPython 3.12 where there is a choice, else one for any machine."""
    own = [file for file in files if file.version == version]
    fitting = [file for file in own if "linux" in file.platform and machine in file.platform]
    fitting = fitting or [file for file in own if file.platform == "any"]
    return min(fitting, key=lambda file: "-cp312-" not in file.filename, default=None)


def _told_requirements(project: str, version: Version, files: tuple[IndexFile, ...]) -> str:
    """'; requires torch==2.15.0, triton~=3.9.0' of a new release: what its row would say."""
    wheel = _wheel_for(files, version, machine="x86_64")
    if wheel is None or project not in ("torch", "torchvision", "torchaudio", "vllm", "xformers", "sglang"):
        return ""
    found = requirements(read_metadata(wheel), "x86_64")
    telling = [name for name in found if re.match(r"torch|triton|cuda|nvidia|xformers|flashinfer", name)]
    return f"; requires {', '.join(name + found[name] for name in telling) or 'no torch'}"


def main(argv: list[str] | None = None) -> int:
    """Print what was observed and the differences; 0 none, 1 some."""
    tables = load()
    parser = argparse.ArgumentParser(description="Compare the tables with a package index; change nothing.")
    parser.add_argument("project", nargs="*", help="default: every project the tables follow")
    parser.add_argument("--index-url", help="a simple index; default: the one pip uses")
    options = parser.parse_args(argv)
    unknown = sorted(set(options.project) - set(watched_projects(tables)))
    if unknown:
        parser.error(f"{unknown[0]} is not followed; accepted: {', '.join(watched_projects(tables))}")
    try:
        index = options.index_url or pip_index_url()
        differences = list(_observe(tables, options.project or watched_projects(tables), index=index))
    except CouldNotLook as error:
        print(f"refresh_tables: {error}", file=sys.stderr)
        return error.exit_code
    print(f"\n{len(differences)} differences" if len(differences) != 1 else "\n1 difference")
    for difference in differences:
        print(f"  {difference.project}: {difference.text}")
    return 1 if differences else 0


def _observe(tables: Tables, projects: Iterable[str], *, index: str) -> Iterator[Difference]:
    print(f"tables of {tables.newest_date()}")
    for project in projects:
        files = project_files(index, project)
        offered = [file.version for file in files if not file.yanked and not file.version.is_prerelease]
        seen = f"{len(set(offered))} releases, newest {max(offered)}" if offered else "nothing"
        differences = tuple(compare_project(tables, project, files=files))
        verdict = f"{len(differences)} different" if differences else "same"
        print(f"  {project:<24}{seen:<36}tables {max(known_versions(tables, project))!s:<14}{verdict}", flush=True)
        yield from differences


if __name__ == "__main__":
    sys.exit(main())
