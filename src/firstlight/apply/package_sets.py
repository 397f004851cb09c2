"""Which packages were there before a step, and the commands that bring exactly that set back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise

from firstlight.apply.apt_state import CONFIG_FILES, INSTALLED, NOT_INSTALLED, Package, answer, known_packages
from firstlight.apply.surroundings import is_from_list
from firstlight.frozen import dataclass
from firstlight.tables.torch_index import index_of_version
from firstlight.ways.back import BackKind
from firstlight.ways.step import Step
from firstlight.ways.user_site import MANAGED


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed between two sets of name==version."""

    added: tuple[str, ...]  # names that were not there before
    back: tuple[str, ...]  # name==version that was there before and is not now


def packages() -> list[str]:
    """name==version of every installed Debian package; what is not whole says so: a==1.0,config-files."""
    return sorted(f"{each.name}=={each.version}{_unless_installed(each)}" for each in known_packages()
                  if each.state != NOT_INSTALLED)  # fmt: skip


def _unless_installed(package: Package) -> str:
    return "" if package.state == INSTALLED else f",{package.state}"


def manual_packages() -> list[str]:
    """Names that apt does not remove by itself; CouldNotAct where apt gives no list."""
    return sorted(answer(("apt-mark", "showmanual"), "say which packages were asked for by hand").split())


def difference(before: list[str], after: list[str]) -> Difference:
    """What has to go and what has to come back; a name that is there twice counts with all its versions."""
    then, now = _versions(before), _versions(after)
    added = tuple(sorted(set(now) - set(then)))
    changed = [name for name in sorted(then) if now.get(name) != then[name]]
    return Difference(added, tuple(f"{name}=={version}" for name in changed for version in sorted(then[name])))


def one_of_each(gap: Difference, *, promised: frozenset[str], now: Iterable[str]) -> Difference:
    """The same with one copy of each name: pip installs no second one. The promised one, else the lowest number.

    Where that copy is there already, and no other, nothing is left to bring back.
    """
    there, back = list(now), list[str]()
    for name, versions in _versions(list(gap.back)).items():
        copies = sorted(f"{name}=={version}" for version in versions)
        chosen = next((each for each in copies if each in promised), copies[0])
        if len(copies) == 1 or [each for each in there if name_of(each) == name] != [chosen]:
            back.append(chosen)
    return Difference(gap.added, tuple(back))


def _versions(lines: list[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, _, version in (line.partition("==") for line in lines):
        found.setdefault(name, set()).add(version)
    return found


def name_of(pin: str) -> str:
    """torch of torch==2.9.0."""
    return pin.partition("==")[0]


def uv_of(step: Step) -> str:
    """The uv that the step ran; "" where it ran pip."""
    programs = (next((word for word in argv if word != "env" and "=" not in word), "") for argv in step.commands)
    return next((each for each in programs if os.path.basename(each) == "uv"), "")


def project_synced_by(step: Step) -> str:
    """The folder of the locked uv project that the step changes; "" where there is none, or it has no lock file."""
    return next((back.words[0] for back in step.back if back.kind is BackKind.SYNC_UV), "")


def sources_of(step: Step, gap: Difference) -> tuple[str, ...]:
    """Where versions of before can be had: the indexes the step used, and PyTorch's for its local versions."""
    offline = any("--no-index" in argv for argv in step.commands)
    found: list[tuple[str, ...]] = [("--no-index",)] if offline else []
    for argv in step.commands:
        for option, value in pairwise(argv):
            if option in ("--find-links", "--extra-index-url"):
                found.append((option, value))
            if option == "--index-url":
                found.append(("--extra-index-url", value))
    for each in gap.back:
        if (index := index_of_version(each)) and not offline:
            found.append(("--extra-index-url", index))
    return tuple(word for pair in dict.fromkeys(found) for word in pair)


def commands_for_distributions(
    gap: Difference, *, interpreter: str, uv: str, sources: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """Commands that turn an environment back: of uv where it has a name (its environments have no pip), else of pip.

    sources: where the versions of before can be had from.
    """
    commands: list[tuple[str, ...]] = []
    if uv:
        remove: tuple[str, ...] = (uv, "pip", "uninstall", "--python", interpreter)
        # uv takes a project from the first index that has it; pip looks at all of them.
        install: tuple[str, ...] = (
            uv, "pip", "install", "--python", interpreter, "--no-deps", "--reinstall",
            "--index-strategy", "unsafe-best-match",
        )  # fmt: skip
    else:
        pip = (interpreter, "-m", "pip", "--disable-pip-version-check")
        remove = (*pip, "uninstall", "--yes")
        install = (*pip, "install", "--no-deps", "--force-reinstall")
    if gap.added:
        commands.append((*remove, *gap.added))
    if gap.back:
        named = () if is_from_list(sources) else gap.back  # a list names them itself, each with its digest
        commands.append((*install, *sources, *named))
    return tuple(commands)


def commands_for_folder(
    gap: Difference, step: Step, *, interpreter: str, sources: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    """The same of one folder: by the Python that the step took it out with; copies elsewhere are not touched."""
    out = next((argv for argv in step.commands if "-m" in argv and "uninstall" in argv), ())
    if not out:  # uv's: it sees the environment itself alone
        return commands_for_distributions(gap, interpreter=interpreter, uv=uv_of(step), sources=sources)
    own = out[0] == "env"  # a user's own folder
    before, pip = out[: out.index("-m")], ("-m", "pip", "--disable-pip-version-check")
    flags = tuple(each for each in out if each == MANAGED)
    commands: list[tuple[str, ...]] = []
    if gap.added:
        commands.append((*before, *pip, "uninstall", "--yes", *flags, *gap.added))
    if gap.back:
        user = ("--user",) if own else ()
        commands.append(
            (*before, *pip, "install", *user, "--no-deps", "--ignore-installed", *flags, *sources, *gap.back)
        )
    return tuple(commands)


def commands_for_project(folder: str, uv: str, gap: Difference) -> tuple[tuple[str, ...], ...]:
    """The same of a project: its lock file says where each package comes from, which no index that we know may have."""
    if not gap.back:
        return ()
    again = (word for each in gap.back for word in ("--reinstall-package", name_of(each)))
    return ((uv, "sync", "--frozen", "--project", folder, *again),)


def commands_for_packages(gap: Difference, *, root: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Commands that turn the package set back; `root` comes before each, e.g. sudo.

    dpkg takes away what the step brought: it refuses where somebody else's package needs it, and apt would remove that
    too. Torn packages go first, because apt does nothing while there is one that no repository has; so do those whose
    removal was cut off, which apt takes for installed.
    """
    now = {each.name: each for each in known_packages()}
    half = {name for name, each in now.items() if each.is_half_done}
    torn = tuple(name for name in gap.added if name in now and now[name].torn)
    whole = tuple(name for name in gap.added if name not in torn)
    emptied = _names(each for each in gap.back if each.endswith(f",{CONFIG_FILES}"))
    back = tuple(each for each in gap.back if "," not in each)
    going = tuple(name for name in _names(back) if name in now and now[name].is_being_removed)
    again = ("--reinstall",) if half.intersection(_names(back)).difference(going) else ()
    forced = ("--force-remove-reinstreq", "--force-depends")
    exact = tuple(each.replace("==", "=", 1) for each in back)
    install = ("apt-get", "install", "--yes", "--allow-downgrades", "--no-install-recommends", *again)
    wanted = (
        (("dpkg", "--purge", *forced), torn),
        (("dpkg", "--remove", *forced), going),
        (install, exact),
        (("dpkg", "--purge"), whole),
        (("dpkg", "--remove"), emptied),
    )
    return tuple((*root, *argv, *names) for argv, names in wanted if names)


def _names(packages: Iterable[str]) -> tuple[str, ...]:
    return tuple(each.partition("==")[0] for each in packages)
