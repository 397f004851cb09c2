"""Write package_pins.json and wheel_sizes.json anew from a package index; or say what differs.

    python -m tools.refresh_pins                       both files, from pip's own index
    python -m tools.refresh_pins --check torchvision   compare one project's rows, write nothing
    python -m tools.refresh_pins --index-url URL       another index; it must have PyPI's JSON beside its simple pages

Exit: 0 written or the same, 1 --check saw differences, 2 bad usage, 4 the index could not be reached.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from urllib.parse import unquote, urljoin

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from firstlight.errors import CouldNotLook
from firstlight.tables import load
from firstlight.tables.document import encode_row
from tools.refresh_tables import RangeFile, fetch, pip_index_url, read_member

DATA = Path(__file__).parents[1] / "src" / "firstlight" / "tables" / "data"
MACHINES = ("x86_64", "aarch64")
# the first release of each whose wheels go with torch 2.4 or later
SINCE = {
    "torchvision": Version("0.19.0"),
    "torchaudio": Version("2.4.0"),
    "triton": Version("3.0.0"),
    "xformers": Version("0.0.27.post1"),
    "vllm": Version("0.6.0"),
    "flash-attn": Version("2.6.0"),
}
TORCH_SINCE = Version("2.4.0")
_NAMED = re.compile(
    r"torch|torchvision|torchaudio|triton|xformers|vllm|flash-attn|flashinfer-python|torchcodec|cuda-.*|nvidia-.*"
)
_PULLED = re.compile(r"triton|cuda-.*|nvidia-.*")  # what is large among what torch brings
_CUDART = re.compile(rb"libcudart(?:[.-][0-9a-f]{8})?\.so\.(\d+)")  # auditwheel puts a hash into the name
_FIRST_OF_SDIST = 512 * 1024  # PKG-INFO is among the first files
_FIRST_OF_LIBRARY = 4 << 20  # the names of needed libraries stand before the code
_AT_ONCE = 8
_ABOUT_PINS = (
    "What the releases around torch require, and for which machines, Pythons and CUDA major PyPI has wheels of them. "
    "Requirements are those that name one of these projects, flashinfer-python, torchcodec, cuda-* or nvidia-*, "
    "without extras. torch's own are in torch_releases. Written by tools/refresh_pins.py."
)
_ABOUT_SIZES = (
    "Sizes of files on PyPI, of the cp312 wheel where there are several, and what large wheels pip fetches with torch: "
    "the newest that its requirements admitted on that day. Written by tools/refresh_pins.py."
)


@dataclass(frozen=True, slots=True)
class File:
    """One file of a release as PyPI's JSON tells it, e.g. vllm-0.11.0-cp38-abi3-manylinux1_x86_64.whl."""

    name: str
    size: int
    requires_python: str
    uploaded: str

    @property
    def tags(self) -> tuple[str, str, str]:
        """cp312, cp312, manylinux_2_28_x86_64; empty for an sdist."""
        parts = self.name.removesuffix(".whl").split("-")
        return (parts[-3], parts[-2], parts[-1]) if self.name.endswith(".whl") else ("", "", "")

    def is_for(self, machine: str) -> bool:
        platform = self.tags[2]
        return platform == "any" or ("linux" in platform and "musl" not in platform and machine in platform)

    @property
    def python(self) -> str:
        """cp312, cp313t, cp38-abi3 or py3: which Pythons take it."""
        python, abi, _ = self.tags
        return f"{python}-abi3" if abi == "abi3" else abi if abi.endswith("t") else python


class Index:
    """An index, asked once for each page."""

    def __init__(self, simple: str) -> None:
        self._simple = simple.rstrip("/") + "/"
        self.releases = functools.cache(self._releases)
        self._urls = functools.cache(self._read_urls)
        self.metadata = functools.cache(self._metadata)
        self.cuda_major = functools.cache(self._cuda_major)

    def _releases(self, project: str) -> dict[Version, tuple[File, ...]]:
        """The releases that are neither early nor yanked, with their files."""
        page = json.loads(fetch(urljoin(self._simple, f"../pypi/{project}/json"), {}).body)
        found: dict[Version, tuple[File, ...]] = {}
        for text, files in page["releases"].items():
            version = Version(text)
            kept = tuple(
                File(each["filename"], each["size"], each["requires_python"] or "", each["upload_time"][:10])
                for each in files
                if not each["yanked"]
            )
            if kept and not version.is_prerelease:
                found[version] = kept
        return found

    def _read_urls(self, project: str) -> dict[str, str]:
        page = urljoin(self._simple, f"{project}/")
        text = fetch(page, {}).body.decode("utf-8", errors="replace")
        addresses = re.findall(r'(?:href=|"url":\s*)"([^"#]+)', text)
        return {unquote(address.rpartition("/")[2]): urljoin(page, address) for address in addresses}

    def _metadata(self, project: str, file: File) -> str:
        url = self._urls(project)[file.name]
        if file.name.endswith(".whl"):
            return read_member(url, ".dist-info/METADATA").decode("utf-8")
        body = fetch(url, {"Range": f"bytes=0-{_FIRST_OF_SDIST - 1}"}).body
        with tarfile.open(fileobj=io.BytesIO(body), mode="r|gz") as archive:
            for member in archive:
                if re.fullmatch(r"[^/]+/PKG-INFO", member.name) and (packed := archive.extractfile(member)):
                    return packed.read().decode("utf-8")
        raise CouldNotLook(f"{file.name}: no PKG-INFO among its first files.")

    def _cuda_major(self, project: str, file: File) -> int | None:
        """The libcudart that the wheel's own libraries name: 12 or 13; None where they name none."""
        with zipfile.ZipFile(io.BufferedReader(RangeFile(self._urls(project)[file.name]), 1 << 20)) as wheel:
            libraries = [each for each in wheel.infolist() if re.search(r"\.so(\.\d+)*$", each.filename)]
            for library in sorted(libraries, key=lambda each: each.compress_size):
                with wheel.open(library) as packed:
                    if found := _CUDART.search(packed.read(_FIRST_OF_LIBRARY)):
                        return int(found[1])
        return None

    def newest(self, project: str, spec: SpecifierSet) -> Version:
        """The release that pip would take; a part that is nowhere on the index is named."""
        fitting = [version for version in self.releases(project) if version in spec]
        if not fitting:
            raise CouldNotLook(f"{project}{spec}: the index has no such release.")
        return max(fitting)


def wheel_of(files: tuple[File, ...], machine: str) -> File | None:
    """The cp312 wheel for a machine where there is a choice, else one that Python 3.12 takes, else the last."""
    fitting = [file for file in files if file.tags[2] and file.is_for(machine)]
    order = {"cp312": 0, "py3": 2}
    return min(fitting, key=lambda file: order.get(file.python, 1 if "abi3" in file.python else 3), default=None)


def required(metadata: str, machine: str, *, extras: frozenset[str] = frozenset()) -> dict[str, Requirement]:
    """What METADATA requires on Linux, Python 3.12 and a machine, by project."""
    # Old torch wheels end METADATA lines in CRLF, which packaging's parser refuses.
    message = Parser().parsestr(metadata.replace("\r\n", "\n"), headersonly=True)
    surroundings = {
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "platform_machine": machine,
        "python_version": "3.12",
        "python_full_version": "3.12.0",
    }
    found: dict[str, Requirement] = {}
    for line in message.get_all("Requires-Dist") or ():
        each = Requirement(line.strip())
        if each.marker is None or any(each.marker.evaluate({**surroundings, "extra": e}) for e in ("", *extras)):
            found.setdefault(canonicalize_name(each.name), each)
    return found


def pin_rows(index: Index, project: str, *, today: str, only: Set[str] = frozenset()) -> Iterator[dict[str, object]]:
    """The rows of one project or of some versions of it, oldest first; none of releases without Linux files."""
    releases = [each for each in sorted(index.releases(project).items()) if each[0] >= SINCE[project]]
    releases = [each for each in releases if not only or str(each[0]) in only]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for row in pool.map(lambda each: _pin_row(index, project, version=each[0], files=each[1]), releases):
            if row:
                yield {**row, "date": today, "confidence": "measured"}


def _pin_row(index: Index, project: str, *, version: Version, files: tuple[File, ...]) -> dict[str, object]:
    wheels = {machine: file for machine in MACHINES if (file := wheel_of(files, machine)) is not None}
    sdist = next((file for file in files if not file.tags[2]), None)
    told = {machine: _named(index, project, file, machine) for machine, file in wheels.items()}
    if not told and sdist is not None:
        told = {machine: _named(index, project, sdist, machine) for machine in MACHINES}
    if not told:
        return {}
    shared = [pin for pin in next(iter(told.values())) if all(pin in pins for pins in told.values())]
    row: dict[str, object] = {"project": project, "version": str(version)}
    row["released"] = min(file.uploaded for file in files)
    row["requires_python"] = files[0].requires_python
    row |= {machine: _pythons(files, machine) for machine in MACHINES}
    links = project != "triton"  # it loads libcuda alone
    for machine in MACHINES:
        file = wheels.get(machine) if links else None
        row[f"cuda_major_{machine}"] = None if file is None else index.cuda_major(project, file)
    row |= {"sdist": sdist is not None, "requires": shared}
    for machine in MACHINES:
        row[f"requires_{machine}"] = [pin for pin in told.get(machine, ()) if pin not in shared]
    what = "METADATA and libraries of these PyPI wheels" if wheels else "PKG-INFO of this PyPI source archive"
    return {**row, "source": f"{what}, and PyPI's list of files"}


def _named(index: Index, project: str, file: File, machine: str) -> list[str]:
    found = required(index.metadata(project, file), machine)
    return [_pin(name, each) for name, each in found.items() if _NAMED.fullmatch(name) and name != project]


def _pin(name: str, requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{name}{extras}{requirement.specifier}"


def _pythons(files: tuple[File, ...], machine: str) -> list[str]:
    found = {file.python for file in files if file.tags[2] and file.is_for(machine)}
    return sorted(found, key=lambda tag: (re.sub(r"\d+.*", "", tag), int(re.sub(r"\D", "", tag.split("-")[0])), tag))


def pulled(index: Index, version: Version, machine: str) -> list[str]:
    """The large wheels that pip fetches with a torch, those below them included: nvidia-cublas==13.1.0.3."""
    chosen: dict[str, tuple[Version, frozenset[str]]] = {}
    while True:
        specs: dict[str, SpecifierSet] = {}
        extras: dict[str, frozenset[str]] = {}
        for project, (taken, wanted) in {"torch": (version, frozenset[str]()), **chosen}.items():
            file = wheel_of(index.releases(project)[taken], machine)
            if file is None:
                raise CouldNotLook(f"{project} {taken}: no wheel for {machine}.")
            for name, each in required(index.metadata(project, file), machine, extras=wanted).items():
                if _PULLED.fullmatch(name):
                    specs[name] = specs.get(name, SpecifierSet()) & each.specifier
                    extras[name] = extras.get(name, frozenset()) | each.extras
        before, chosen = chosen, {name: (index.newest(name, spec), extras[name]) for name, spec in specs.items()}
        if chosen == before:
            return sorted(f"{name}=={taken}" for name, (taken, _) in chosen.items())


def size_rows(index: Index, *, today: str) -> Iterator[dict[str, object]]:
    """torch with what it pulls, the packages around it, and every piece that is pulled."""
    pieces: set[tuple[str, str, str]] = set()
    for version, files in sorted(index.releases("torch").items()):
        for machine in MACHINES if version >= TORCH_SINCE else ():
            pulls = pulled(index, version, machine)
            pieces |= {(each.partition("==")[0], each.partition("==")[2], machine) for each in pulls}
            yield from _sized("torch", str(version), machine=machine, files=files, pulls=pulls, today=today)
    for project, since in SINCE.items():
        for version in index.releases(project):
            pieces |= {(project, str(version), machine) for machine in (*MACHINES, "source") if version >= since}
    for project, text, machine in sorted(pieces, key=lambda each: (each[0], Version(each[1]), each[2] == "aarch64")):
        files = index.releases(project)[Version(text)]
        if machine != "source" or not any(file.is_for(each) for file in files for each in MACHINES):
            yield from _sized(project, text, machine=machine, files=files, pulls=[], today=today)


def _sized(
    project: str, version: str, *, machine: str, files: tuple[File, ...], pulls: list[str], today: str
) -> Iterator[dict[str, object]]:
    file = wheel_of(files, machine) if machine != "source" else next((f for f in files if not f.tags[2]), None)
    if file is not None:
        row = {"project": project, "version": version, "machine": machine, "bytes": file.size, "pulls": pulls}
        yield {**row, "source": "PyPI's list of files", "date": today, "confidence": "measured"}


def written(subject: str, about: str, rows: list[dict[str, object]]) -> str:
    """The file as it is committed, a row to a line."""
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    return f'{{\n "subject": "{subject}",\n "about": {json.dumps(about)},\n "rows": [\n{lines}\n ]\n}}\n'


def differences(index: Index, projects: list[str]) -> Iterator[str]:
    """Rows that the index would give otherwise, by project and version; dates are not compared."""
    tables = load()
    for project in projects:
        rows = (encode_row(row) for row in tables.rows("package_pins"))
        have = {str(row["version"]): row for row in rows if row["project"] == project}
        for row in pin_rows(index, project, today=""):
            known = have.pop(str(row["version"]), None)
            if known is None:
                yield f"{project} {row['version']}: new release, requires {row['requires']}"
            elif changed := [name for name, value in row.items() if name != "date" and known[name] != value]:
                yield f"{project} {row['version']}: {', '.join(f'{n} is {row[n]}, was {known[n]}' for n in changed)}"
        yield from (f"{project} {version}: no longer on the index" for version in have)


def _notes(path: Path) -> dict[tuple[object, object], dict[str, object]]:
    """What somebody wrote beside a release, which no index tells."""
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    return {(row["project"], row["version"]): {"note": row["note"]} for row in rows if row.get("note")}


def main(argv: list[str] | None = None) -> int:
    """Write both files, or compare with --check."""
    parser = argparse.ArgumentParser(description="Write package_pins.json and wheel_sizes.json from a package index.")
    parser.add_argument("project", nargs="*", help="with --check: which; default: all")
    parser.add_argument("--check", action="store_true", help="compare and print, write nothing")
    parser.add_argument("--index-url", help="a simple index; default: the one pip uses")
    parser.add_argument("--folder", type=Path, default=DATA, help="where the files go")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.project) - set(SINCE)):
        parser.error(f"{unknown[0]} is not among them; accepted: {', '.join(SINCE)}")
    try:
        index = Index(options.index_url or pip_index_url())
        if options.check:
            found = list(differences(index, options.project or list(SINCE)))
            print("\n".join([*found, f"{len(found)} differences"]))
            return 1 if found else 0
        today = datetime.date.today().isoformat()
        notes = _notes(options.folder / "package_pins.json")
        pins = [
            row | notes.get((row["project"], row["version"]), {})
            for project in SINCE
            for row in pin_rows(index, project, today=today)
        ]
        sizes = list(size_rows(index, today=today))
    except CouldNotLook as error:
        print(f"refresh_pins: {error}", file=sys.stderr)
        return error.exit_code
    (options.folder / "package_pins.json").write_text(written("package_pins", _ABOUT_PINS, pins), encoding="utf-8")
    (options.folder / "wheel_sizes.json").write_text(written("wheel_sizes", _ABOUT_SIZES, sizes), encoding="utf-8")
    print(f"{len(pins)} rows of package_pins, {len(sizes)} of wheel_sizes, in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
