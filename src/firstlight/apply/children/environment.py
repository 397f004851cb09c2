"""Child script: what is installed on this interpreter's search path, from files alone; no package is imported.

With folders as arguments, what lies in those.

Prints one JSON object. A distribution is whole where the files of its RECORD are; a name that begins with ~ is what pip
makes of a folder that it is about to remove. Runs on any Python 3.7 or newer.
"""

from __future__ import annotations

import csv
import functools
import json
import os
import re
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Images are stripped of these, and the package still runs.
SPARE_ENDS = (".pyc", ".pyo", ".pyi", ".a")
SPARE_FOLDERS = {"test", "tests", "__pycache__"}
# What a person or a tool may rewrite in place: only an empty file is one that was lost.
TEXT_ENDS = (".py", ".pth", ".txt", ".json", ".cfg", ".toml", ".sh")
LEADING = "-~.=%0123456789"  # pip: AdjacentTempDirectory.LEADING_CHARS
METADATA_LIMIT = 1 << 20
# Others strip and move files after RECORD was written, or keep none: Debian's cryptography has a third of its bytes.
OUR_INSTALLERS = ("pip", "uv")


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


@functools.lru_cache(maxsize=1)
def homes() -> tuple[str, ...]:
    """The folders that pip installs to; where a folder was named, that one."""
    if sys.argv[1:]:
        return tuple(os.path.abspath(each) for each in sys.argv[1:])
    paths = sysconfig.get_paths()
    return paths["purelib"], paths["platlib"]


def text_of(path: str, limit: int = -1) -> str | None:
    """The text of a regular file; None where it cannot be read."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read(limit)
    except OSError:
        return None


def name_and_version(path: str) -> tuple[str, str]:
    """From the metadata, and from the folder's name what the metadata lacks: ('torch', '2.9.0')."""
    text = None
    for each in ("METADATA", "PKG-INFO", ""):
        text = text or text_of(os.path.join(path, each) if each else path, METADATA_LIMIT)
    found = {"name": "", "version": ""}
    for line in (text or "").splitlines():
        if not line.strip():
            break
        key, _, value = line.partition(":")
        if key.lower() in found and not found[key.lower()]:
            found[key.lower()] = value.strip()
    stem = os.path.basename(path).rpartition(".")[0]
    name, dash, version = stem.partition("-") if path.endswith(".egg-info") else stem.rpartition("-")
    if not dash:
        name, version = stem, ""
    version = re.sub(r"-py\d.*", "", version)
    return normal(found["name"] or name.lstrip("~")), found["version"] or version


def record_of(path: str) -> dict[str, str] | None:
    """The files of a RECORD with their sizes as it has them; None where there is no RECORD."""
    text = text_of(os.path.join(path, "RECORD"))
    if text is None:
        return None
    site, found = os.path.dirname(path), {}
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error:
        return None
    for row in rows:
        if row and row[0]:
            found[os.path.normpath(os.path.join(site, row[0]))] = row[2] if len(row) > 2 else ""
    return found


def why_torn(path: str, files: dict[str, str] | None) -> str:
    """What is missing of a distribution; '' where it is whole, or another package manager answers for it."""
    installer = (text_of(os.path.join(path, "INSTALLER"), 100) or "").strip().lower()
    ours = installer in OUR_INSTALLERS or (not installer and os.path.dirname(path) in homes())
    if path.endswith(".egg-info") or not ours:
        return ""
    if files is None:
        return "it has no RECORD of its files"
    if not is_finished(path, files):
        return "its installer was cut off before it wrote its RECORD"
    lost = [said for said in (lack_of(each, size) for each, size in files.items() if counts(each, path)) if said]
    return f"{len(lost)} of its {len(files)} files: {lost[0]}" if lost else ""


def is_finished(path: str, files: dict[str, str]) -> bool:
    """Whether its RECORD is the installer's: pip and uv write programs, INSTALLER and REQUESTED, then RECORD anew.

    The RECORD that came in the wheel knows of none of these, and pip and uv take what has it for installed.
    """
    return os.path.join(path, "INSTALLER") in files


def counts(file: str, info: str) -> bool:
    """Whether a package without this file is torn."""
    if os.path.dirname(file) == info or file.startswith(info + os.sep):
        return False
    return not (file.endswith(SPARE_ENDS) or SPARE_FOLDERS & set(file.split(os.sep)))


def lack_of(file: str, size: str) -> str:
    try:
        found = os.stat(file)
    except OSError as error:
        return f"{file} ({(error.strerror or 'gone').lower()})"
    if size.isdigit() and found.st_size < int(size) and (not file.endswith(TEXT_ENDS) or found.st_size == 0):
        return f"{file} has {found.st_size} of {size} bytes"
    return ""


def names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def is_stash_of(stash: str, name: str) -> bool:
    """Whether pip moves `name` aside as `stash`: ~orch, ~-rch, ~~rch of torch, or ~-torch where all are taken."""
    rest = stash[1:]
    for cut in range(len(rest)):
        if rest[cut:] and (name == rest[cut:] or (len(name) == len(stash) and name.endswith(rest[cut:]))):
            return all(letter in LEADING for letter in rest[:cut])
    return False


class Survey:
    """What was found so far."""

    def __init__(self) -> None:
        self.distributions: list[dict[str, Any]] = []
        self.owned: dict[str, set[str]] = {}  # path -> names of the distributions that list it, folders included
        self.sites: list[str] = []
        self.stashed: dict[str, set[str]] = {}  # path -> the same, of metadata that was moved aside

    def look(self) -> None:
        real: set[str] = set()
        for each in sys.argv[1:] or filter(None, sys.path):  # "" is the folder of whoever asks, and of no pip of ours
            site = os.path.abspath(each)
            if os.path.isdir(site) and os.path.realpath(site) not in real:
                real.add(os.path.realpath(site))
                self.sites.append(site)
        for site in self.sites:
            for entry in names_in(site):
                if entry.endswith((".dist-info", ".egg-info")):
                    self.add(site, entry)

    def add(self, site: str, entry: str) -> None:
        path = os.path.join(site, entry)
        name, version = name_and_version(path)
        files = record_of(path)
        where = self.stashed if entry.startswith("~") else self.owned
        for file in (path, *(files or ())):
            where.setdefault(file, set()).add(name)
            each = os.path.dirname(file)
            while each.startswith(site + os.sep) and name not in where.setdefault(each, set()):
                where[each].add(name)
                each = os.path.dirname(each)
        if not entry.startswith("~") and name:
            self.distributions.append(
                {"name": name, "version": version, "path": path, "torn": why_torn(path, files),
                 "recorded": files is not None and is_finished(path, files),
                 "direct": os.path.exists(os.path.join(path, "direct_url.json")),
                 "requested": os.path.lexists(os.path.join(path, "REQUESTED"))}
            )  # fmt: skip

    def debris(self) -> Iterator[dict[str, Any]]:
        """Every name that begins with ~ beside a file of a distribution, and what it was before pip moved it."""
        known: dict[str, set[str]] = {site: set() for site in self.sites}
        for path in (*self.owned, *self.stashed):
            known.setdefault(os.path.dirname(path), set()).add(path)
        below = tuple(site + os.sep for site in self.sites)
        for folder, paths in sorted(known.items()):
            if folder not in self.sites and not folder.startswith(below):
                continue
            for name in names_in(folder):
                path = os.path.join(folder, name)
                if name.startswith("~") and path not in self.owned:
                    real = sorted({each for each in paths if is_stash_of(name, os.path.basename(each))} - {path})
                    owners = {
                        each for one in real for where in (self.owned, self.stashed) for each in where.get(one, ())
                    }
                    if name.endswith(".dist-info"):
                        owners = self.stashed.get(path, set()) & (owners or self.stashed.get(path, set()))
                    yield {"path": path, "real": real[0] if len(real) == 1 else "", "owners": sorted(owners)}

    def unowned(self) -> list[str]:
        """What lies where pip installs to, beside the files of packages, and is nobody's."""
        sites = [site for site in self.sites if site in homes()]
        below = tuple(site + os.sep for site in sites)
        listed = (*self.owned, *self.stashed)
        folders = {os.path.dirname(path) for path in listed if path.startswith(below)} | set(sites)
        found = []
        for folder in sorted(folders):
            found += [
                os.path.join(folder, name) for name in names_in(folder) if name[0] != "~" and name != "__pycache__"
            ]
        return [each for each in found if each not in self.owned and not each.endswith(SPARE_ENDS[:2])]


def main() -> None:
    seen = Survey()
    seen.look()
    found = {"distributions": seen.distributions, "debris": list(seen.debris()), "unowned": seen.unowned()}
    print(json.dumps(found), flush=True)
    os._exit(0)  # what others hang on the end of an interpreter is not waited for


if __name__ == "__main__":
    main()
