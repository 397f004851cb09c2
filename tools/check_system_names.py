"""Look the names of the table system_names up in the package lists of the archives that can be reached.

    python -m tools.check_system_names            what each archive says, and which rows it could be asked about
    python -m tools.check_system_names --write    the same into results/system-names.json

Debian's and Ubuntu's lists are read over plain http from their archives. A row of any other system is "not reached",
and says so in its own confidence and source.
"""

from __future__ import annotations

import argparse
import datetime
import json
import lzma
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from firstlight.tables import load
from firstlight.tables.system_rows import Family, RowKind, SystemName

RESULTS = Path(__file__).parents[1] / "results" / "system-names.json"
TIMEOUT_S = 120
# NVIDIA's and others' packages are in no archive that a distribution keeps.
OWN = ("", "debian-nonfree")
SLOT = re.compile(r"\\\{\w+\\\}")


@dataclass(frozen=True, slots=True)
class Archive:
    """The package lists of one release, e.g. Ubuntu 24.04: noble with its updates."""

    family: Family
    release: str
    address: str
    suites: tuple[str, ...]
    parts: tuple[str, ...]


UBUNTU, DEBIAN = "http://archive.ubuntu.com/ubuntu", "http://deb.debian.org/debian"
UBUNTU_PARTS = ("main", "restricted", "universe", "multiverse")
DEBIAN_PARTS = ("main", "contrib", "non-free", "non-free-firmware")
ARCHIVES = (
    Archive(Family.UBUNTU, "20.04", UBUNTU, ("focal", "focal-updates"), UBUNTU_PARTS),
    Archive(Family.UBUNTU, "22.04", UBUNTU, ("jammy", "jammy-updates"), UBUNTU_PARTS),
    Archive(Family.UBUNTU, "24.04", UBUNTU, ("noble", "noble-updates"), UBUNTU_PARTS),
    Archive(Family.UBUNTU, "26.04", UBUNTU, ("resolute", "resolute-updates"), UBUNTU_PARTS),
    Archive(Family.DEBIAN, "12", DEBIAN, ("bookworm",), DEBIAN_PARTS),
    Archive(Family.DEBIAN, "13", DEBIAN, ("trixie",), DEBIAN_PARTS),
)


@dataclass(frozen=True, slots=True)
class Checked:
    """What one archive says of one row: found, missing with the names that lack, or not reached."""

    row: str
    archive: str
    verdict: str
    lacks: tuple[str, ...] = ()


def package_names(archive: Archive) -> frozenset[str]:
    """The package names of a release, without transitional ones, which bring another package; raises OSError."""
    found: set[str] = set()
    for suite in archive.suites:
        for part in archive.parts:
            address = f"{archive.address}/dists/{suite}/{part}/binary-amd64/Packages.xz"
            with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
                text = lzma.decompress(answer.read()).decode("utf-8")
            stanzas = (each for each in text.split("\n\n") if "ransitional" not in _description(each))
            found.update(each.partition("\n")[0].removeprefix("Package: ") for each in stanzas if each.strip())
    return frozenset(found)


def _description(stanza: str) -> str:
    return next((line for line in stanza.splitlines() if line.startswith("Description: ")), "")


def names_of(row: SystemName) -> Iterator[re.Pattern[str]]:
    """The names of a row as patterns, one for each branch or number that the row says there is."""
    for name in row.names:
        for number in row.numbers or ("",):
            text = name.replace("{branch}", str(number)).replace("{number}", str(number)) if number else name
            yield re.compile(SLOT.sub(r"[0-9A-Za-z.+~-]+", re.escape(text)).replace(r"\*", ".*"))


def lacking(row: SystemName, names: frozenset[str]) -> tuple[str, ...]:
    """The names that the lists have no package for; of a row that says there is none, the ones that there are."""
    if not row.names:
        return (row.of,) if row.of in names else ()
    return tuple(
        pattern.pattern.replace("\\", "")
        for pattern in names_of(row)
        if not any(pattern.fullmatch(name) for name in names)
    )


def is_askable(row: SystemName) -> bool:
    """Whether a distribution's own archive is where the row's packages are."""
    return row.kind is RowKind.PACKAGES and row.from_repository in OWN


def is_for(row: SystemName, archive: Archive) -> bool:
    tables = load()
    of_release = tables.system_names(row.role, archive.family, release=archive.release, arch="x86_64")
    return is_askable(row) and row in of_release


def label(row: SystemName) -> str:
    which = " ".join(filter(None, (row.of, row.flavour, row.release_from and f"{row.release_from}-{row.release_to}")))
    return f"{row.role.value} of {row.family.value}{f' ({which})' if which else ''}: {' '.join(row.names) or 'none'}"


def check() -> tuple[Checked, ...]:
    """Every row that an archive can be asked about, archive by archive; the others once, as not reached."""
    rows, found, asked = load().system_name_rows, list[Checked](), set[SystemName]()
    for archive in ARCHIVES:
        fitting = [row for row in rows if is_for(row, archive)]
        where = f"{archive.family.value} {archive.release}"
        try:
            names = package_names(archive)
        except (OSError, urllib.error.URLError) as error:
            found += [Checked(label(row), where, f"not reached: {error}") for row in fitting]
            continue
        for row in fitting:
            asked.add(row)
            lacks = lacking(row, names)
            found.append(Checked(label(row), where, "missing" if lacks else "found", lacks))
    rest = [row for row in rows if row not in asked]
    return (*found, *(Checked(label(row), "", f"not reached; {row.confidence.value}: {row.source}") for row in rest))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    write = parser.parse_args().write
    results = check()
    for each in results:
        if each.archive:
            print(f"{each.verdict:9} {each.archive:13} {each.row}{f' (lacks {each.lacks})' if each.lacks else ''}")
    counts = {
        kind: sum(each.verdict.startswith(kind) for each in results) for kind in ("found", "missing", "not reached")
    }
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()))
    if write:
        document = {
            "what": "names of the table system_names looked up in the package lists of Debian and Ubuntu (amd64)",
            "date": datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat(),
            "counts": counts,
            "checked": [
                {"row": each.row, "archive": each.archive, "verdict": each.verdict, "lacks": list(each.lacks)}
                for each in results
            ],
        }
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if counts["missing"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
