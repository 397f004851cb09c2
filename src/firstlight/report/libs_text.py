"""What `libs` found, for a person: what is wrong first, then where everything comes from."""

from __future__ import annotations

import enum
import posixpath
from collections.abc import Iterator

from firstlight.elf.version_gaps import VersionGap
from firstlight.facts.known import Fact, Known
from firstlight.libraries.analysis import BASE, Analysis, Shadow
from firstlight.libraries.closing import Closing, ComesFrom, Loading, Need
from firstlight.libraries.target import TargetKind
from firstlight.numerals import counted
from firstlight.report.layout import labelled
from firstlight.report.libs_tree import short_path, short_tree, whole_tree
from firstlight.visible import visible

_LABEL = 11
_ASKERS = 3
_COPIES = 6


class Detail(enum.Enum):
    """How much is told of what is in order."""

    FAULTS = "faults"  # what is wrong alone, before a plan that puts it right
    SHORT = "short"
    WHOLE = "whole"


def libs_text(analysis: Analysis, closing: Closing, detail: Detail, *, fix: str = "firstlight libs --fix") -> str:
    """The whole answer; `fix` is the command line that puts it right."""
    return shown(_text(analysis, closing, detail, fix))


def _text(analysis: Analysis, closing: Closing, detail: Detail, fix: str) -> str:
    target = analysis.target
    out = labelled("", (f"{target.title}, {target.arch}, in {target.place}", _verdict(analysis)), label_width=0) + "\n"
    faults = "".join(
        labelled(label, lines, label_width=_LABEL)
        for label, lines in (
            ("missing", _all(_needs(closing, target.site, ComesFrom.INSTALL, ComesFrom.LINK, ComesFrom.REINSTALL))),
            ("brings", () if detail is Detail.FAULTS else tuple(_brought(closing))),
            ("driver", _all(_needs(closing, target.site, ComesFrom.DRIVER))),
            ("system", _all(_needs(closing, target.site, ComesFrom.SYSTEM))),
            ("unknown", _all(_needs(closing, target.site, ComesFrom.UNKNOWN))),
            ("comes", tuple(_comes_with(closing))),
            ("version", tuple(_gap(each) for each in analysis.gaps if not each.weak)),
            ("stub", tuple(_stubs(analysis))),
            ("two CUDAs", tuple(_majors(analysis))),
            ("exchanged", tuple(_shadow(each, target.site) for each in analysis.shadows if each.exchanged)),
            ("preload", tuple(_ignored(analysis))),
            ("skipped", _some(target.skipped)),
        )
        if lines
    )
    if detail is Detail.FAULTS:
        return out + faults
    out += f"{faults}\n" if faults else ""
    out += _trees(analysis, detail)
    out += labelled("found", tuple(_found(analysis)), label_width=_LABEL)
    out += labelled("copies", tuple(_copies(analysis, detail)), label_width=_LABEL)
    if analysis.not_judged:
        out += labelled("not judged", tuple(_not_judged(analysis, closing)), label_width=_LABEL)
    return out + _what_to_do(analysis, closing, fix)


def shown(text: str) -> str:
    """What a terminal may get: names come from files that somebody else made."""
    return visible(text)


def _verdict(analysis: Analysis) -> str:
    missing, fatal = len(analysis.missing), [gap for gap in analysis.gaps if not gap.weak]
    if missing:
        first = analysis.missing[0]
        error = f"{first.name}: cannot open shared object file: No such file or directory"
        if first.damaged:
            error = f"{first.damaged}: {first.fault}"
        are = "library is" if missing == 1 else "libraries are"
        what = "missing or damaged" if any(each.damaged for each in analysis.missing) else "missing"
        return f"BLOCKED: {missing} {are} {what}; loading ends with: {error}"
    if fatal:
        return f"BLOCKED: {_gap(fatal[0])}"
    if analysis.stubs:
        return f"BLOCKED: {analysis.stubs[0].name} is a stub of the toolkit, not the driver's library"
    return f"OK: all {len(analysis.loaded)} libraries are found"


def _all(lines: Iterator[str]) -> tuple[str, ...]:
    return tuple(lines)


def _needs(closing: Closing, site: str, *ways: ComesFrom) -> Iterator[str]:
    for need in closing.by(*ways):
        yield f"{need.missing.name}, needed by {_askers(need.missing.requested_by)}"
        yield f"  {_answer(need, site)}"


def _askers(paths: tuple[str, ...]) -> str:
    names = list(dict.fromkeys(posixpath.basename(path) for path in paths))
    more = f" and {len(names) - _ASKERS} more" if len(names) > _ASKERS else ""
    return ", ".join(names[:_ASKERS]) + more


def _answer(need: Need, site: str) -> str:
    if need.way is ComesFrom.DRIVER:
        return "it comes with the NVIDIA driver, never with a package: `firstlight doctor` says what is wrong with it"
    if need.way is ComesFrom.SYSTEM:
        return f"the package {need.package} has it ({need.reason})"
    if need.way is ComesFrom.UNKNOWN:
        return need.reason
    provided = need.provided[0]
    pinned = ", as torch pins it" if provided.from_pin else ""
    has = f"{provided.project} {provided.version} has it ({provided.requirement}{_comma(provided.bytes)}{pinned})"
    if need.way is ComesFrom.REINSTALL:
        return f"{provided.project} {provided.version} is installed, and its file is gone or damaged: install it again"
    if need.way is ComesFrom.LINK:
        has = f"{provided.project} {provided.version} is installed and has it"
    elif provided.installed:
        has += f"; installed is {provided.installed}, which has another version of it"
    if need.loading is Loading.LINK:
        folder = short_path(posixpath.dirname(need.link), site)
        return f"{has}, in {provided.folder}, which is not searched: a link in {folder}"
    if need.loading is Loading.PRELOAD:
        return (
            f"{has}, in {provided.folder}, which is not searched, and no folder takes a link: opened at Python's start"
        )
    return f"{has}, in {provided.folder}, which is searched"


def _comma(size: Fact[int]) -> str:
    return f", {amount(size)}" if isinstance(size, Known) else ""


def amount(size: Fact[int]) -> str:
    """33.1 MB, 0.44 GB, or that it is not known."""
    if not isinstance(size, Known):
        return "size unknown"
    if size.value < 1e5:
        return f"{size.value / 1e3:.1f} kB"
    return f"{size.value / 1e9:.2f} GB" if size.value >= 1e8 else f"{size.value / 1e6:.1f} MB"


def _brought(closing: Closing) -> Iterator[str]:
    for each in closing.brought if closing.by(ComesFrom.INSTALL) else ():
        now = f"; {each.installed} is installed" if each.installed else ""
        size = _comma(each.bytes) if isinstance(each.bytes, Known) and each.bytes.value >= 1e5 else ""
        yield f"{each.project} {each.version}{size}, required by {each.required_by}{now}"


def _comes_with(closing: Closing) -> Iterator[str]:
    needs = closing.by(ComesFrom.COMES_WITH)
    if needs:
        projects = dict.fromkeys(f"{need.provided[0].project} {need.provided[0].version}" for need in needs)
        yield f"{len(needs)} of the missing come with the wheel's own requirements: {', '.join(projects)}"


def _gap(gap: VersionGap) -> str:
    return (
        f"{gap.library_path}: version `{gap.version}' not found (required by {posixpath.basename(gap.requester)}): "
        "this machine's library is older than the one it was built with"
    )


def _not_judged(analysis: Analysis, closing: Closing) -> Iterator[str]:
    arch = analysis.target.arch
    if base := [name for name in analysis.not_judged if name in BASE]:
        yield f"{', '.join(base)}: of the system, and this machine is not {arch}"
    packages = {each.soname: f"{each.package} ({each.origin})" for each in closing.elsewhere}
    for name in (each for each in analysis.not_judged if each not in BASE):
        if name in packages:
            yield f"{name}: not a CUDA library; from the packages of the system there: {packages[name]}"
        else:
            yield f"{name}: in no package that the tables know; whether an {arch} system has it is not known here"


def _ignored(analysis: Analysis) -> Iterator[str]:
    """What the loader prints at every start, and what to do about it; it is no fault of the chain."""
    for each in analysis.ignored:
        why = each.fault or "cannot open shared object file"
        yield (
            f"{each.name} of LD_PRELOAD is not loaded ({why}): the loader warns and continues without it. Take it out "
            "of LD_PRELOAD or /etc/ld.so.preload, or put the file there"
        )


def _stubs(analysis: Analysis) -> Iterator[str]:
    for each in analysis.stubs:
        yield f"{each.name} is {each.path}, by {each.rule.value}: made to link against; take that folder off the path"


def _majors(analysis: Analysis) -> Iterator[str]:
    for each in analysis.majors:
        yield f"CUDA {each.major}: {', '.join(each.names)} for {_askers(each.requested_by)}"


def _shadow(each: Shadow, site: str) -> str:
    other = each.others[0]
    return (
        f"{each.name}: {short_path(each.path, site)} by {each.rule.value} ({each.entry}) instead of "
        f"{short_path(other.path, site)} by {other.rule.value}"
    )


def _some(lines: tuple[str, ...]) -> tuple[str, ...]:
    return lines if len(lines) <= _COPIES else (*lines[:_COPIES], f"and {len(lines) - _COPIES} more")


def _trees(analysis: Analysis, detail: Detail) -> str:
    if detail is Detail.WHOLE:
        return f"tree\n{whole_tree(analysis)}\n"
    tree = short_tree(analysis)
    return f"tree       (--all shows every branch)\n{tree}\n" if tree else ""


def _found(analysis: Analysis) -> Iterator[str]:
    """How many libraries come from which folder and why: '7 in torch/lib by DT_RPATH $ORIGIN'."""
    groups: dict[tuple[str, str], int] = {}
    for each in analysis.loaded:
        entry = f" {each.entry}" if each.owner else ""
        key = (short_path(posixpath.dirname(each.path), analysis.target.site), f"{each.rule.value}{entry}")
        groups[key] = groups.get(key, 0) + 1
    for (folder, rule), count in sorted(groups.items(), key=lambda item: -item[1]):
        yield f"{count:>3} in {folder} by {rule}"


def _copies(analysis: Analysis, detail: Detail) -> Iterator[str]:
    """Names with more than one file on the way, which is harmless where the package's own wins."""
    lines = [
        f"{each.name}: {short_path(each.path, analysis.target.site)} wins by {each.rule.value}; also "
        + ", ".join(f"{short_path(other.path, analysis.target.site)} ({other.rule.value})" for other in each.others[:2])
        for each in analysis.shadows
        if not each.exchanged
    ]
    yield from lines if detail is Detail.WHOLE else _some(tuple(lines))


def _what_to_do(analysis: Analysis, closing: Closing, fix: str) -> str:
    ours = closing.by(ComesFrom.INSTALL, ComesFrom.LINK, ComesFrom.REINSTALL)
    if not ours:
        return ""
    if analysis.target.kind is TargetKind.WHEEL:
        first = labelled("do", ("install the wheel, and then, with its Python:",), label_width=_LABEL)
        return f"\n{first}{'':<{_LABEL}}firstlight libs {analysis.target.project} --fix\n"
    packages = {need.provided[0].project for need in ours if need.way is not ComesFrom.LINK}
    packages |= {each.project for each in closing.brought} if packages else set()
    links = sum(need.loading is Loading.LINK for need in ours)
    parts = [f"{counted(len(packages), 'package')}, {amount(closing.download_bytes)} to download"] if packages else []
    parts += [counted(links, "link")] if links else []
    says = f"{', '.join(parts)}; it asks first, and `firstlight undo` takes it back"
    return f"\n{'do':<{_LABEL}}{fix}\n{labelled('', (says,), label_width=_LABEL)}"  # whole, to be pasted
