"""Read a requirements file: what it asks for, with the files that it names, its indexes, markers and hashes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.lint.dockerfile import Text
from firstlight.lint.installs import requirement_named
from firstlight.lint.model import Install, ProjectAsked, Target
from firstlight.lint.reading import Reading, marker_holds
from firstlight.versions import canonical

DEEPEST = 10  # files that name each other
_COMMENT = re.compile(r"(?:^|\s+)#.*$")
_INDEX = ("-i", "--index-url", "--pypi-url")
_LINKS = ("-f", "--find-links")
_WHEEL = re.compile(r"(?:.*/)?(?P<name>[A-Za-z0-9][\w.]*)-\d[^/]*\.whl")


class Listing:
    """What a requirements file and those that it names come to."""

    def __init__(self) -> None:
        self.requirements: list[ProjectAsked] = []
        self.constraints: dict[str, str] = {}
        self.index = ""
        self.extra: list[str] = []
        self.links: list[str] = []
        self.options: list[str] = []
        self.unread: list[str] = []

    def constrained(self) -> tuple[ProjectAsked, ...]:
        """The requirements; one without == takes the spec of the constraints file."""
        return tuple(
            each if each.exact or each.address else replace(each, spec=self.constraints.get(each.project, each.spec))
            for each in self.requirements
        )

    def install(self, reading: Reading) -> Install:
        """All of it as one install, since pip looks at all lines together."""
        return replace(
            reading.listed(*self.constrained()),
            index=self.index,
            extra_indexes=tuple(self.extra),
            find_links=tuple(self.links),
            files=tuple(self.unread),
            options=tuple(self.options),
        )


def read_requirements(reading: Reading) -> tuple[Target, ...]:
    """The file as one list of packages."""
    listing = Listing()
    add_file(listing, reading)
    return (reading.packages(listing.install(reading)),)


def add_file(listing: Listing, reading: Reading, *, depth: int = 0, python: str = "") -> None:
    """Add what a file asks for, and what the files ask for that it names with -r and -c."""
    for line in logical_lines(reading.text):
        add_line(listing, line, reading, depth=depth, python=python)


def add_line(listing: Listing, line: Text, reading: Reading, *, depth: int = 0, python: str = "") -> None:
    """Add one line: an option, or a requirement whose marker holds."""
    if not line.text.startswith("-"):
        if (found := requirement_of(line.text, reading.arch, python=python)) is not None:
            listing.requirements.append(replace(found, place=reading.place(line.line)))
        return
    for option, value in _options(line.text):
        if option in _INDEX:
            listing.index = value
        elif option == "--extra-index-url":
            listing.extra.append(value)
        elif option in _LINKS:
            listing.links.append(value)
        elif option in ("-r", "--requirement", "-c", "--constraint"):
            _add_named(listing, value, reading, depth=depth, python=python, how=option.lstrip("-")[0])
        elif option in ("-e", "--editable"):
            if (found := requirement_named(value)) is not None:
                listing.requirements.append(replace(found, place=reading.place(line.line)))
        else:
            listing.options.append(option)


def _add_named(listing: Listing, name: str, reading: Reading, *, depth: int, python: str, how: str) -> None:
    path = reading.path(name)
    text = reading.read(path) if depth < DEEPEST and "://" not in name and path != reading.file else None
    if text is None:
        listing.unread.append(name)
        return
    other = replace(reading, file=path, text=text)
    if how == "r":
        add_file(listing, other, depth=depth + 1, python=python)
        return
    constraints = Listing()
    add_file(constraints, other, depth=depth + 1, python=python)
    listing.constraints.update((each.project, each.spec) for each in constraints.requirements)
    listing.index = listing.index or constraints.index
    listing.extra += constraints.extra


def logical_lines(text: str) -> Iterator[Text]:
    """The lines that say something, comments off, continued ones joined, each with the line that it begins on."""
    begun, start = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start = start or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            begun += line[:-1] + " "
            continue
        whole = _COMMENT.sub("", begun + line).strip()
        if whole:
            yield Text(whole, start)
        begun, start = "", 0


def requirement_of(text: str, arch: str, *, python: str = "") -> ProjectAsked | None:
    """What a line of PEP 508 asks for; None where its marker leaves the machine out, or where it names a folder."""
    text = re.split(r"\s--?\w", text)[0].strip()  # --hash=sha256:..., --config-settings ...
    ends = r"\s;\s*" if "://" in text else r"\s*;\s*"  # an address may hold a semicolon
    wanted, marker = (*re.split(ends, text, maxsplit=1), "")[:2]
    if not marker_holds(marker, arch, python=python):
        return None
    wheel = _WHEEL.fullmatch(wanted) if "://" not in wanted else None
    if wheel is not None:
        return ProjectAsked(canonical(wheel["name"]), "", wanted)
    joined = re.sub(r"\s+", "", wanted)
    bracketed = re.fullmatch(r"([\w.-]+(?:\[[^\]]*\])?)\(([^)]*)\)", joined)  # torch (>=2.0), as old metadata writes it
    return requirement_named("".join(bracketed.groups()) if bracketed is not None else joined)


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Option and value of a line such as `--index-url https://... --pre`."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    while words:
        option, equals, value = words.pop(0).partition("=")
        if not option.startswith("--") and len(option) > 2 and option.startswith("-"):
            option, value, equals = option[:2], option[2:], "="  # -rbase.txt
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        yield option, value
