"""What the loader reads as steps: folders out of a path and out of ldconfig's files, one made known, links, files."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.shells.assignments import without_line
from firstlight.shells.kinds import dialect_of
from firstlight.shells.library_path import without_folders
from firstlight.ways.at import At
from firstlight.ways.back import Back, BackKind, moved_back, through
from firstlight.ways.building import (
    MOVE,
    as_root,
    blank,
    copy_beside,
    expanded,
    home_of,
    is_of_the_system,
    slug,
    written,
)
from firstlight.ways.kinds import LinkFile, RegisterFolder, RemoveFiles, Unwire, WiredBy
from firstlight.ways.loader_conf import without_conf_folders
from firstlight.ways.shell_edits import Edit, cleaning_steps, edit_steps, this_shell
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.ways.way import Way
from firstlight.ways.words import fitted, title_of


def unwire_steps(way: Unwire, at: At) -> Iterator[Step]:
    """The files that lead the loader there, or where to look for them, and the shells that are open."""
    if way.by is WiredBy.LOADER_CONF:
        yield _without_conf_line(way, at)
        return
    variable = way.by.value
    folders = tuple(dict.fromkeys(name for folder in way.folders for name in names_of(at.facts, folder)))
    libcuda = at.facts.libcuda
    path = libcuda.ld_preload if way.by is WiredBy.PRELOAD else libcuda.ld_library_path
    taken = tuple(each for each in path if each.rstrip("/") in folders)

    on_path = way.by is WiredBy.LIBRARY_PATH
    takes_out, variables = (folders, ()) if on_path else ((), (variable,))

    def edited(path_of: str, text: str) -> Edit:
        dialect = dialect_of(path_of, text)
        found = without_folders(text, folders, dialect=dialect, home=home_of(at), variable=variable)
        return Edit(found, takes_out, variables)

    steps = list(edit_steps(edited, at, title=title_of(way, at.platform)))
    if not steps:
        out = taken or way.folders
        change = FileChange("", "", "", takes_out=takes_out, variables=variables)
        steps += cleaning_steps((without_line(variable, out),), change, at, entry=out[0].rstrip("/"), variable=variable)
    if taken:
        kept = tuple(each for each in path if each and each not in taken)
        steps.append(this_shell(variable, path, kept, at))
    # What only a person can do comes last, so that nothing else waits for it.
    yield from sorted(steps, key=lambda step: step.kind is StepKind.MANUAL)


def names_of(facts: Facts, folder: str) -> tuple[str, ...]:
    """A folder under all its names: /usr/local/cuda/compat is a link to /usr/local/cuda-13.0/compat."""
    names = dict.fromkeys([folder.rstrip("/")])
    for library in facts.compat:
        known = (library.folder, *library.aliases)
        if folder.rstrip("/") in known:
            names.update(dict.fromkeys(known))
    return tuple(names)


def taken_from_all(way: Way, facts: Facts) -> tuple[str, ...]:
    """The folders, by all their names, that a way takes from every program; () where it takes none."""
    if not isinstance(way, Unwire) or way.by is WiredBy.CONTAINER_RUNTIME:
        return ()
    return tuple(name for folder in way.folders for name in names_of(facts, folder))


def _without_conf_line(way: Unwire, at: At) -> Step:
    """The folder's line out of an ldconfig file; a file that then names no folder goes, and so does one not read."""
    conf, text = way.conf, at.extras.text_of(way.conf)
    folders = tuple(dict.fromkeys(name for folder in way.folders for name in names_of(at.facts, folder)))
    kept = without_conf_folders(text or "", folders)
    left = any(line.strip() and not line.lstrip().startswith("#") for line in kept.split("\n"))
    change = FileChange(conf, text, kept if left else "", removes=not left) if text else None
    refresh, aside = as_root(at.platform, "ldconfig"), copy_beside(conf, at)
    again = through(refresh, Back(BackKind.RELOAD_LOADER))
    move = as_root(at.platform, *MOVE, conf, aside)
    return replace(
        blank(at),
        id="take-out-ldconfig-line",
        kind=StepKind.FILE,
        title=title_of(way, at.platform),
        commands=(refresh,) if change else (move, refresh),
        files=(change,) if change else (),
        needs_root=True,
        done_when=(written(change),) if change else (Condition(CheckKind.FILE_ABSENT, conf),),
        back=(again,) if change else (through(refresh, moved_back(aside, conf)), again),
        note="" if change else f"The text of {conf} was not read: look whether it names other folders too.",
    )


def register_steps(way: RegisterFolder, at: At) -> Iterator[Step]:
    """A line in a file of ldconfig's, and its cache made anew."""
    before = at.extras.text_of(way.conf) or ""
    gap = "" if before.endswith("\n") or not before else "\n"
    refresh = as_root(at.platform, "ldconfig")
    yield replace(
        blank(at),
        id=slug(f"register {way.folder}"),
        kind=StepKind.FILE,
        title=title_of(way, at.platform),
        commands=(refresh,),
        files=(FileChange(way.conf, before, f"{before}{gap}{way.folder}\n"),),
        needs_root=True,
        done_when=(Condition(CheckKind.FILE_HAS_LINE, way.conf, way.folder),),
        back=(through(refresh, Back(BackKind.RELOAD_LOADER)),),
    )


def link_steps(way: LinkFile, at: At) -> Iterator[Step]:
    """A link where nothing is yet."""
    path = expanded(way.path, at)
    change = FileChange(path, "", "", links_to=expanded(way.to, at))
    yield replace(
        blank(at),
        id=slug(f"link {posixpath.basename(path)}"),
        kind=StepKind.FILE,
        title=title_of(way, at.platform),
        files=(change,),
        needs_root=is_of_the_system(path),
        done_when=(written(change),),
    )


def aside_steps(way: RemoveFiles, at: At) -> Iterator[Step]:
    """Each file under a hidden name beside where it lay: ldconfig takes up every name that begins with lib."""
    for path in (expanded(each, at) for each in way.paths):
        folder, name = posixpath.split(path)
        aside, of_system = copy_beside(f"{folder}/.{name}", at), is_of_the_system(path)
        move = (*MOVE, path, aside)
        run = as_root(at.platform, *move) if of_system or way.as_root else move
        refresh = (as_root(at.platform, "ldconfig"),) if of_system else ()
        again = tuple(through(argv, Back(BackKind.RELOAD_LOADER)) for argv in refresh)
        yield replace(
            blank(at),
            id=slug(f"move aside {name}"),
            kind=StepKind.FILE,
            title=fitted(f"move {path} aside"),
            commands=(run, *refresh),
            needs_root=of_system or way.as_root,
            done_when=(Condition(CheckKind.FILE_ABSENT, path),),
            back=(through(run, moved_back(aside, path)), *again),
            note=f"It is kept as {aside}.",
        )
