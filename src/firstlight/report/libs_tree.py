"""The chain of libraries as a tree: short, with the branches that lead to something missing, or whole."""

from __future__ import annotations

import posixpath

from firstlight.elf.closure import DLOPEN
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis, Loaded
from firstlight.report.layout import width

_STEP = "  "
_WHO = {DLOPEN: "opened by its path from Python, before the others", "LD_PRELOAD": "before everything else", "": ""}


@dataclass(frozen=True, slots=True)
class _Branch:
    """One line of the tree and what hangs below it."""

    name: str
    says: str
    is_fault: bool
    below: tuple[_Branch, ...]

    @property
    def leads_to_fault(self) -> bool:
        return self.is_fault or any(each.leads_to_fault for each in self.below)

    @property
    def size(self) -> int:
        return sum(1 + each.size for each in self.below)


def short_path(path: str, site: str) -> str:
    """A path as a reader wants it: torch/lib of /opt/venv/lib/python3.12/site-packages/torch/lib/../lib."""
    plain = posixpath.normpath(path)
    return plain[len(site) + 1 :] if site and plain.startswith(f"{site}/") else plain


def why_that_one(each: Loaded, site: str) -> str:
    """Where a library comes from and by which rule: 'torch/lib, by DT_RPATH $ORIGIN of libtorch_python.so'."""
    entry = f" {each.entry}" if each.owner or each.rule.value == "LD_LIBRARY_PATH" else ""
    owner = f" of {posixpath.basename(each.owner)}" if each.owner else ""
    return f"{short_path(posixpath.dirname(each.path), site)}, by {each.rule.value}{entry}{owner}"


def short_tree(analysis: Analysis) -> str:
    """The branches that lead to what is missing or wrong; what is found beside them is counted."""
    lines: list[str] = []
    for branch in _branches(analysis):
        if branch.leads_to_fault:
            _short(branch, lines, depth=0)
    return "".join(f"{line}\n" for line in lines)


def whole_tree(analysis: Analysis) -> str:
    """Every library under the first that asks for it, with where it is found and why."""
    lines: list[str] = []
    for branch in _branches(analysis):
        _whole(branch, lines, depth=0)
    return "".join(f"{line}\n" for line in lines)


def _short(branch: _Branch, lines: list[str], *, depth: int) -> None:
    lines.append(_line(branch.name, branch.says if branch.is_fault else "", depth))
    for each in branch.below:
        if each.leads_to_fault:
            _short(each, lines, depth=depth + 1)
    found = sum(1 + each.size for each in branch.below if not each.leads_to_fault)
    if found:
        lines.append(f"{_STEP * (depth + 2)}+ {found} found")


def _whole(branch: _Branch, lines: list[str], *, depth: int) -> None:
    lines.append(_line(branch.name, branch.says, depth))
    for each in branch.below:
        _whole(each, lines, depth=depth + 1)


def _line(name: str, says: str, depth: int) -> str:
    head = f"{_STEP * (depth + 1)}{name}"
    return f"{head:<{width() // 2 - 12}}  {says}" if says else head


def _branches(analysis: Analysis) -> list[_Branch]:
    """The files that are opened, each with what it asks for first below it."""
    below: dict[str, list[Loaded]] = {}
    for each in analysis.loaded:
        below.setdefault(each.requested_by[0] if each.requested_by else "", []).append(each)
    faults = {gap.library_path: f"lacks {gap.version}" for gap in analysis.gaps if not gap.weak}
    faults |= {each.path: "A STUB: every call of it fails" for each in analysis.stubs}
    site = analysis.target.site

    def branch(name: str, path: str, says: str, seen: frozenset[str]) -> _Branch:
        inside = seen | {path}
        found = [
            branch(each.name, each.path, why_that_one(each, site), inside)
            for each in below.get(path, ())
            if each.path not in inside
        ]
        gone = [
            _Branch(each.name, f"DAMAGED: {each.damaged}" if each.damaged else "MISSING", is_fault=True, below=())
            for each in analysis.missing
            if path in each.requested_by
        ]
        fault = faults.get(path, "")
        return _Branch(name, f"{fault}; {says}" if fault else says, bool(fault), (*gone, *found))

    opened = dict.fromkeys(path for opening in analysis.target.openings for path in opening)
    known = {*opened, *(each.path for each in analysis.loaded)}
    before = [key for key in below if key not in known]  # the interpreter, LD_PRELOAD, what Python opens by path
    return [
        *(
            branch(posixpath.basename(path), path, _WHO.get(path, short_path(path, site)), frozenset())
            for path in before
        ),
        *(branch(posixpath.basename(path), path, short_path(path, site), frozenset()) for path in opened),
    ]
