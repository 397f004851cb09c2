"""Hold the ELF reader and the loader simulation against the real ones, on every ELF file of some folders.

    python -m tools.check_loader_agreement --out results/libs-agreement.json [--fuzz 1000000] [FOLDER ...]

Without folders: site-packages of this Python, /usr/lib, /usr/bin, /usr/sbin, /usr/libexec and /usr/local. For each file
of this machine's arch: names, winning paths and version gaps against `ldd` and against LD_DEBUG=libs; every field
against pyelftools. Then fuzzed inputs, in a process of their own whose peak memory is told. Exits with 1 when
anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from firstlight.elf.closure import Closure, closure, interpreter_of
from firstlight.elf.loader import FoundBy, LoaderSetup, whole_setup
from firstlight.elf.reader import (
    NeededVersions,
    abi_tag,
    build_id,
    defined_of,
    elf_of,
    image_at,
    needed_of,
    notes_of,
    read_elf,
    why_not_elf,
)
from firstlight.elf.version_gaps import version_gaps
from firstlight.machine.live import LiveMachine
from tools.fuzz_elf import fuzz_in_a_child

ENVIRON = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
FOLDERS = (sysconfig.get_paths()["platlib"], "/usr/lib", "/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/local")


@dataclass(frozen=True)
class Told:
    """What the real loader says: names with paths, names searched with the file tried last, missing versions."""

    pairs: frozenset[tuple[str, str]]
    searched: tuple[tuple[str, str], ...]
    gaps: frozenset[tuple[str, str]]  # version and requester
    complaint: str = ""


@dataclass
class Tally:
    """Counts of one sweep; `differences` holds one line each, at most a hundred."""

    files: int = 0
    loader_files: int = 0
    paths: int = 0
    missing: int = 0
    searches: int = 0
    version_gaps: int = 0
    fields: int = 0
    refused: int = 0
    pyelftools_gave_up: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def differs(self, line: str) -> None:
        if len(self.differences) < 100:
            self.differences.append(line)


def elf_files(folder: str) -> Iterator[str]:
    """Regular files below a folder that begin as ELF files do; links are not followed."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            if not os.path.islink(path) and os.path.isfile(path) and os.access(path, os.R_OK):
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path


def ask_ldd(path: str) -> Told:
    """What `ldd` prints of a file."""
    done = subprocess.run(["ldd", path], env=ENVIRON, capture_output=True, text=True, check=False, errors="replace")
    return Told(_pairs(done.stdout), (), _gaps(done.stderr + done.stdout), _complaint(done.stdout + done.stderr))


def ask_loader(path: str, loader: str) -> Told:
    """What the loader tells with LD_DEBUG=libs of its search."""
    environ = ENVIRON | {"LD_TRACE_LOADED_OBJECTS": "1", "LD_DEBUG": "libs"}
    done = subprocess.run([loader, path], env=environ, capture_output=True, text=True, check=False, errors="replace")
    searched: list[tuple[str, str]] = []
    for name, tried in re.findall(r"find library=(\S+) \[0\]; searching|trying file=(.+)$", done.stderr, re.MULTILINE):
        if name:
            searched.append((name, ""))
        else:
            searched[-1] = (searched[-1][0], tried)
    return Told(_pairs(done.stdout), tuple(searched), _gaps(done.stderr), _complaint(done.stderr))


def _pairs(printed: str) -> frozenset[tuple[str, str]]:
    lines = re.findall(r"^\t(\S+)(?: => (.+?))?(?: \(0x\w+\))?$", printed, re.MULTILINE)
    return frozenset(
        (name, path or name)
        for name, path in lines
        if not re.search(r"(^|/)ld-linux|vdso", name) and name != "statically"
    )


def _gaps(printed: str) -> frozenset[tuple[str, str]]:
    return frozenset(re.findall(r"(?<!weak )version `(\S+)' not found \(required by (.+?)\)", printed))


def _complaint(printed: str) -> str:
    found = re.search(
        r"(error while loading.*|not a dynamic executable|.*cannot .*|.*invalid .*)$", printed, re.MULTILINE
    )
    return found[0].strip() if found else ""


def pairs_of(found: Closure) -> frozenset[tuple[str, str]]:
    """Our answer in the form of ldd's."""
    loaded = {(item.name, item.found.path) for item in found.objects}
    return frozenset(loaded | {(item.name, "not found") for item in found.missing})


def compare_loading(path: str, *, setup: LoaderSetup, tally: Tally) -> None:
    """One file against ldd and against LD_DEBUG=libs."""
    machine = LiveMachine(environ=ENVIRON)
    found = closure(machine, path, setup=setup)
    assert found is not None, path
    ldd, loader = ask_ldd(path), ask_loader(path, interpreter_of(found.root))
    if not (ldd.pairs or loader.searched) and (ldd.complaint or loader.complaint):
        tally.refused += 1  # the loader will not have it: a program for another loader, debug symbols only
        return
    tally.loader_files += 1
    ours = pairs_of(found)
    for name, told in (("ldd", ldd), ("LD_DEBUG", loader)):
        theirs = told.pairs - {(name, "not found") for name in _optional(found)}
        if theirs != ours:
            tally.differs(f"{path}: {name} {sorted(theirs - ours)} against {sorted(ours - theirs)}")
    gaps = {(gap.version, gap.requester) for gap in version_gaps(machine, found) if not gap.weak}
    if gaps != ldd.gaps:
        tally.differs(f"{path}: versions {sorted(ldd.gaps)} against {sorted(gaps)}")
    _compare_search(path, found, searched=loader.searched, tally=tally)
    tally.paths += len(found.objects)
    tally.missing += len(found.missing)
    tally.version_gaps += len(gaps)


def _optional(found: Closure) -> set[str]:
    """Auxiliary libraries that are not there: searched and called missing when tracing, yet nothing fails for them."""
    loaded = {item.name for item in found.objects}
    files = (found.root, *(item.file for item in found.objects))
    return {name for file in files for name in file.auxiliary if name not in loaded}


def _compare_search(path: str, found: Closure, *, searched: tuple[tuple[str, str], ...], tally: Tally) -> None:
    by_search = [item for item in found.objects if item.found.rule is not FoundBy.PATH]
    ours = sorted(
        [
            *(item.name for item in by_search),
            *(name for item in found.objects for name in item.other_names if "/" not in name),
            *(item.name for item in found.missing if "/" not in item.name),
        ]
    )
    optional = _optional(found)
    theirs = sorted(name for name, _ in searched if name not in optional)
    if theirs != ours:
        tally.differs(f"{path}: searched {theirs} against {ours}")
    tried = set(searched)
    for item in by_search:
        if (item.name, item.found.path) not in tried:
            tally.differs(f"{path}: {item.name} is {item.found.path}, not what LD_DEBUG=libs tried last")
    tally.searches += len(searched)


def our_fields(path: str) -> dict[str, Any]:
    """Everything the reader reads, for comparison."""
    image = image_at(LiveMachine(environ={}), path)
    assert image is not None, path
    file, notes = elf_of(image), notes_of(image)
    return {
        "arch": file.arch,
        "needed": list(file.needed),
        "soname": file.soname,
        "rpath": ":".join(file.rpath),
        "runpath": ":".join(file.runpath),
        "interpreter": file.interpreter,
        "filters": list(file.filters),
        "auxiliary": list(file.auxiliary),
        "wanted": list(needed_of(image)),
        "defined": list(defined_of(image)),
        "build_id": build_id(notes),
        "abi_tag": abi_tag(notes),
    }


def pyelftools_fields(path: str) -> dict[str, Any]:
    """The same as pyelftools reads it."""
    seen: dict[str, Any] = {"needed": [], "soname": "", "rpath": "", "runpath": "", "interpreter": ""}
    seen |= {"filters": [], "auxiliary": [], "wanted": [], "defined": [], "build_id": "", "abi_tag": ""}
    with open(path, "rb") as file:
        elf: Any = ELFFile(file)
        arches = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
        seen["arch"] = arches.get(elf.header.e_machine, str(elf.header.e_machine))
        for segment in elf.iter_segments():
            if segment.header.p_type == "PT_INTERP":
                seen["interpreter"] = segment.get_interp_name()
            elif segment.header.p_type == "PT_DYNAMIC":
                _take_tags(segment, seen)
            elif segment.header.p_type == "PT_NOTE":
                for note in segment.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        seen["build_id"] = seen["build_id"] or note["n_desc"]
                    elif note["n_type"] == "NT_GNU_ABI_TAG" and not seen["abi_tag"]:
                        tag = note["n_desc"]
                        system = str(tag["abi_os"]).rpartition("_")[2].capitalize()
                        seen["abi_tag"] = f"{system} {tag['abi_major']}.{tag['abi_minor']}.{tag['abi_tiny']}"
        for section in elf.iter_sections():
            if section.header.sh_type == "SHT_GNU_verneed":
                seen["wanted"] = [_needed(need, list(versions)) for need, versions in section.iter_versions()]
            elif section.header.sh_type == "SHT_GNU_verdef":
                for definition, names in section.iter_versions():
                    if not definition.entry.vd_flags & 1:
                        seen["defined"].append(next(iter(names)).name)
    return seen


def _take_tags(segment: Any, seen: dict[str, Any]) -> None:
    for tag in segment.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED":
            seen["needed"].append(tag.needed)
        elif tag.entry.d_tag in (0x7FFFFFFD, "DT_AUXILIARY", 0x7FFFFFFF, "DT_FILTER"):
            kind = "auxiliary" if tag.entry.d_tag in (0x7FFFFFFD, "DT_AUXILIARY") else "filters"
            seen[kind].append(segment._get_stringtable().get_string(tag.entry.d_val))
        elif tag.entry.d_tag in ("DT_SONAME", "DT_RPATH", "DT_RUNPATH"):
            name = tag.entry.d_tag[3:].lower()
            seen[name] = getattr(tag, name)


def _needed(need: Any, versions: list[Any]) -> NeededVersions:
    weak = tuple(version.name for version in versions if version.entry.vna_flags & 2)
    return NeededVersions(need.name, tuple(version.name for version in versions), weak)


def compare_fields(path: str, tally: Tally) -> None:
    """One file against pyelftools."""
    ours = our_fields(path)
    try:
        theirs = pyelftools_fields(path)
    except (ELFError, UnicodeDecodeError):
        tally.pyelftools_gave_up.append(path)  # debug symbols alone: the dynamic section points at nothing
        return
    for name, value in theirs.items():
        tally.fields += 1
        if ours[name] != value:
            tally.differs(f"{path}: {name} is {ours[name]!r}, pyelftools says {value!r}")


def sweep(folders: tuple[str, ...]) -> Tally:
    """Every ELF file below the folders against all referees."""
    tally = Tally()
    machine = LiveMachine(environ=ENVIRON)
    setup = whole_setup(machine)
    for path in (path for folder in folders for path in elf_files(folder)):
        tally.files += 1
        file = read_elf(machine, path)
        assert file is not None, path
        if file.arch not in ("x86_64", "aarch64"):
            continue
        compare_fields(path, tally)
        if file.arch == machine.host.arch and not why_not_elf(machine, path):
            compare_loading(path, setup=setup, tally=tally)
    return tally


def _label(folder: str) -> str:
    """A folder as the results call it: site-packages by the torch in it, others by their path."""
    try:
        version = re.search(r"^__version__ = '(.+)'", Path(folder, "torch", "version.py").read_text(), re.MULTILINE)
    except OSError:
        return folder
    return f"site-packages with torch {version[1] if version else 'of an unknown version'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--fuzz", type=int, default=0, help="how many fuzzed inputs")
    parser.add_argument("--library-path", default="", help="LD_LIBRARY_PATH for both sides")
    options = parser.parse_args()
    if options.library_path:
        ENVIRON["LD_LIBRARY_PATH"] = options.library_path
    begun = time.perf_counter()
    tally = sweep(tuple(options.folders))
    software = f"glibc {platform.libc_ver()[1]}, Python {platform.python_version()}"
    document: dict[str, Any] = {
        "schema": "firstlight.agreement/1",
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, {software}",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "referees": ["ldd", "LD_DEBUG=libs", "pyelftools"],
        "library_path": options.library_path,
        "folders": [_label(folder) for folder in options.folders],
        "seconds": round(time.perf_counter() - begun, 1),
        **{name: value for name, value in vars(tally).items() if name != "differences"},
        "pyelftools_gave_up": [path.replace(FOLDERS[0], "site-packages") for path in tally.pyelftools_gave_up],
        "differences": [line.replace(FOLDERS[0], "site-packages") for line in tally.differences],
    }
    if options.fuzz:
        document["fuzz"] = fuzz_in_a_child(options.fuzz, seed=8)
    text = json.dumps(document, indent=1) + "\n"
    if options.out:
        options.out.write_text(text)
    print(text, end="")
    sys.exit(1 if tally.differences else 0)


if __name__ == "__main__":
    main()
