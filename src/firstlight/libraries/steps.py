"""A fix as steps of the kind that `apply` carries out: packages, then links, then what is left for a person."""

from __future__ import annotations

import posixpath
import re
from dataclasses import replace

from firstlight.errors import CouldNotAct
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.place import probe_place
from firstlight.facts.python_environments import EnvironmentKind
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import analyse
from firstlight.libraries.closing import ComesFrom, installed_in, site_to_change
from firstlight.libraries.fixing import Fix, Link, Pick, work_out
from firstlight.libraries.local_wheels import LocalWheel
from firstlight.libraries.target import PRELOAD_FILE, Surroundings, Target, find_target, surroundings
from firstlight.machine.interface import Machine
from firstlight.tables import Tables
from firstlight.ways.back import Argv, Back, shown
from firstlight.ways.building import NETWORK, a_person, exists, holds, slug, succeeds, written
from firstlight.ways.families import family_of, release_of
from firstlight.ways.offline import from_shelf
from firstlight.ways.shelf import Shelf
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.ways.system_names import renamed_libraries, shipped
from firstlight.ways.words import fitted, listed

BECAUSE = "missing-library"
_IS_ELF = "import sys; sys.exit(open(sys.argv[1], 'rb').read(4) != b'\\x7fELF')"
_LOGIN = (
    "The index gets its user and password through the environment; no command and no journal holds them. To continue, "
    "or to take it back, give them again: --index-url, or PIP_EXTRA_INDEX_URL (pip), UV_EXTRA_INDEX_URL (uv)."
)
_WRITING: Fact[float] = Known(1.0, "a bound: links are made, nothing is fetched")
_NOTHING: Fact[int] = Known(0, "nothing is fetched")


@dataclass(frozen=True, slots=True)
class Source:
    """Where wheels come from: a folder, an index, or what pip is set up with where there is neither."""

    index: str = ""  # without a password, which no command and no journal holds
    shelf: tuple[LocalWheel, ...] = ()
    listed: Shelf | None = None  # the same wheels with their digests: nothing else in the folder is reached
    asks_for_login: bool = False

    @property
    def options(self) -> Argv:
        """What pip and uv are told, e.g. ('--index-url', 'https://pypi.org/simple')."""
        return ("--index-url", self.index) if self.index else ()

    @property
    def note(self) -> str:
        return _LOGIN if self.asks_for_login else ""

    def brought(self, step: Step) -> Step:
        """An install with its packages taken from the folder, where there is one."""
        return step if self.listed is None else from_shelf(step, self.listed)


def steps_of(around: Surroundings, target: Target, fix: Fix, *, source: Source) -> tuple[Step, ...]:
    """The steps in order, numbered; () where nothing can be done from here."""
    made = _made(around, target, fix, source=source)
    return tuple(replace(step, id=f"{number:02d}-{step.id}") for number, step in enumerate(made, 1))


def _made(around: Surroundings, target: Target, fix: Fix, *, source: Source) -> list[Step]:
    site = site_to_change(around, target)
    fresh = tuple(pick for pick in fix.picks if not pick.again)
    torn = tuple(pick for pick in fix.picks if pick.again)
    steps: list[Step] = []
    if not fix.is_empty:
        check_environment(around)
    if fresh:
        steps.append(source.brought(_install(around, fresh, source=source, site=site)))
    if torn:
        steps.append(source.brought(_install_again(around, torn, source=source, site=site)))
    if fix.links:
        steps.append(_links(fix.links))
    if fix.preloads:
        steps.append(_preload(around, fix.preloads, site=site))
    if packages := tuple(dict.fromkeys(need.package for need in fix.left if need.way is ComesFrom.SYSTEM)):
        steps.append(_of_the_system(around.machine, packages))
    return steps


def closing_steps(machine: Machine, tables: Tables, *, python: str = "") -> tuple[Step, ...]:
    """What closes the chain of torch on this machine: `Extras.closing` of a plan whose option has CloseLibraries.

    Without a network nobody knows what the libraries that come in need in turn; where they miss something, the next
    look finds it.
    """
    around, target = find_target(surroundings(machine, python=python), "torch")
    return tuple(_made(around, target, work_out(around, analyse(around, target), tables), source=Source()))


def check_environment(around: Surroundings) -> None:
    """Refuse before anything is planned an environment that must not or cannot be changed."""
    if not around.environment:
        raise CouldNotAct("there is no Python environment to install into. Give --python PATH of one.")
    environment = around.environment[0]
    why = ""
    if environment.externally_managed:
        why = "is managed by the distribution (PEP 668)"
    elif environment.kind is EnvironmentKind.TOOL:
        why = "belongs to one program"
    elif environment.kind is EnvironmentKind.MISSING:
        why = "does not exist"
    elif isinstance(environment.writable, Known) and not environment.writable.value:
        why = "is not writable for this user"
    if why:
        raise CouldNotAct(
            f"{environment.prefix} {why}, so nothing is installed into it. Make a virtual environment with the torch "
            "you want (python3 -m venv DIR) and give --python DIR."
        )


def _tool(around: Surroundings) -> tuple[StepKind, Argv]:
    """uv for the environments it makes, which have no pip; else pip of the environment itself."""
    if around.environment[0].kind is EnvironmentKind.UV_VENV:
        return StepKind.UV, ("uv", "pip", "install", "--python", around.interpreter)
    return StepKind.PIP, (around.interpreter, "-m", "pip", "install")


def _blank(kind: StepKind, title: str) -> Step:
    return Step(
        id=slug(title), kind=kind, title=title, because=BECAUSE, commands=(), files=(), needs_root=False, done_when=(),
        back=(), seconds=_WRITING, bytes=_NOTHING,
    )  # fmt: skip


def _install(around: Surroundings, picks: tuple[Pick, ...], *, source: Source, site: str) -> Step:
    kind, tool = _tool(around)
    exact = tuple(f"{pick.project}=={pick.version}" for pick in picks)
    installed = tuple(re.sub(r"\[[^\]]*\]", "", each) for each in exact)  # cuda-toolkit of cuda-toolkit[cublas]
    files = tuple(f"{site}/{path}" for pick in picks for path in pick.paths)
    return replace(
        _blank(kind, f"install {exact[0]}"),
        title=listed("install", tuple(each.replace("==", " ") for each in exact)),
        commands=((*tool, *source.options, *exact),),
        done_when=(holds(around.interpreter, installed), *(exists(path) for path in files)),
        seconds=Unknown("depends on the disk") if source.listed else NETWORK,
        bytes=bytes_of(picks),
        back=_as_before(around, tuple(each.partition("==")[0] for each in installed)),
        note=" ".join(filter(None, (_why_besides(picks), source.note))),
    )


def _why_besides(picks: tuple[Pick, ...]) -> str:
    """Why packages come along that have none of the missing libraries."""
    asked = {pick.project.partition("[")[0]: pick.required_by.partition("[")[0] for pick in picks if pick.required_by}
    said = (f"{project} comes because {asker} requires it" for project, asker in asked.items())
    return f"{'; '.join(said)}." if asked else ""


def _as_before(around: Surroundings, projects: tuple[str, ...]) -> tuple[Back, ...]:
    """What was not there goes, and what was there in another version comes back."""
    kind, tool = _tool(around)
    had = installed_in(around)
    gone = ("uv", "pip", "uninstall", *tool[3:]) if kind is StepKind.UV else (*tool[:3], "uninstall", "--yes")
    fresh = tuple(each for each in projects if each not in had)
    replaced = tuple(f"{each}=={had[each]}" for each in projects if each in had)
    commands = ((*gone, *fresh) if fresh else (), (*tool, "--no-deps", *replaced) if replaced else ())
    return shown(*filter(None, commands))


def bytes_of(picks: tuple[Pick, ...]) -> Fact[int]:
    """What is fetched for all of them; Unknown where the size of one is not on record."""
    total, where = 0, ""
    for pick in picks:
        if isinstance(pick.bytes, Unknown):
            return Unknown(f"{pick.project}: {pick.bytes.reason}")
        total, where = total + pick.bytes.value, pick.bytes.seen_in
    return Known(total, where)


def _install_again(around: Surroundings, picks: tuple[Pick, ...], *, source: Source, site: str) -> Step:
    """The same version once more: its file is gone, as after the removal of a package with the same file."""
    kind, tool = _tool(around)
    again = "--reinstall" if kind is StepKind.UV else "--force-reinstall"
    exact = tuple(f"{pick.project}=={pick.version}" for pick in picks)
    files = tuple(f"{site}/{path}" for pick in picks for path in pick.paths)
    return replace(
        _blank(kind, f"install again {exact[0]}"),
        title=listed("install", tuple(each.replace("==", " ") for each in exact), " again"),
        commands=((*tool, again, "--no-deps", *source.options, *exact),),
        done_when=(
            holds(around.interpreter, exact),
            *(succeeds(around.interpreter, "-I", "-c", _IS_ELF, path) for path in files),
        ),
        seconds=NETWORK,
        bytes=bytes_of(picks),
        note=" ".join(filter(None, ("Files of it are gone or damaged.", source.note))),
    )


def _links(links: tuple[Link, ...]) -> Step:
    changes = tuple(FileChange(each.path, "", "", links_to=each.leads_to) for each in links)
    folders = ", ".join(dict.fromkeys(posixpath.dirname(each.path) for each in links))
    count = "1 library" if len(links) == 1 else f"{len(links)} libraries"
    return replace(
        _blank(StepKind.FILE, "link libraries"),
        title=fitted(f"link {count} into {folders}"),
        files=changes,
        done_when=tuple(written(change) for change in changes),
        note="torch does not search the folder that the wheel puts them in. After torch is installed again, run "
        "`firstlight libs` again: pip leaves links that it did not make.",
    )


def _preload(around: Surroundings, paths: tuple[str, ...], *, site: str) -> Step:
    """Opened at every start of this Python, each after what it needs: for one who asks and has no search path."""
    path = f"{site}/{PRELOAD_FILE}"
    before = around.machine.read(path) or ""
    lines = "".join(
        f"import os, ctypes; os.path.exists({each!r}) and ctypes.CDLL({each!r}, mode=ctypes.RTLD_GLOBAL)\n"
        for each in paths
    )
    gap = "" if before.endswith("\n") or not before else "\n"
    change = FileChange(path, before, f"{before}{gap}{lines}")
    return replace(
        _blank(StepKind.FILE, "open libraries beforehand"),
        title=fitted(f"open {len(paths)} of them at every start of this Python"),
        files=(change,),
        done_when=(written(change),),
        note="What asks for them has no search path of its own that a link could be put on.",
    )


def _of_the_system(machine: Machine, packages: tuple[str, ...]) -> Step:
    """By apt where it is here and we are root; else a person's, so that the rest does not fail for want of a password.

    The tables have Debian's names; another system than Debian and Ubuntu calls them otherwise, and a person finds how.
    """
    place = probe_place(machine)
    names = renamed_libraries(packages, family_of(place), release_of(place), shipped())
    if not names:
        return replace(
            _blank(StepKind.MANUAL, "install system packages"),
            title=listed("install what Debian calls", packages),
            needs_root=True,
            done_when=(a_person("the packages are installed"),),
            seconds=NETWORK,
            bytes=NETWORK,
            note="These are libraries of the system, not of a wheel; what this system calls them is not known here.",
        )
    is_root = machine.host.uid == 0
    has_apt = is_root and machine.stat("/usr/bin/apt-get") is not None
    root: Argv = () if is_root else ("sudo",)
    there = tuple(Condition(CheckKind.APT_PACKAGE, package) for package in names)
    return replace(
        _blank(StepKind.APT if has_apt else StepKind.MANUAL, "install system packages"),
        title=listed("install the system's own", names),
        commands=((*root, "apt-get", "install", "--yes", *names),),
        needs_root=True,
        done_when=there if has_apt else (a_person("the packages are installed"),),
        back=shown((*root, "apt-get", "remove", "--yes", *names)) if has_apt else (),
        seconds=NETWORK,
        bytes=NETWORK,
        note="These are libraries of the system, not of a wheel.",
    )
