"""Packages of the system, of conda, and the driver as steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.known import Known
from firstlight.tables.system_rows import Role
from firstlight.ways import kinds
from firstlight.ways.argv import commands
from firstlight.ways.at import At
from firstlight.ways.back import Argv, Back, BackKind, shown, through
from firstlight.ways.building import (
    NETWORK,
    NOT_MEASURED,
    as_root,
    blank,
    exists,
    expanded,
    once,
    prints,
    slug,
    succeeds,
)
from firstlight.ways.managers import of_driver, versioned
from firstlight.ways.persons import asked
from firstlight.ways.platform import Manager
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from firstlight.ways.system_names import names_for, roles_of
from firstlight.ways.words import title_of

_NO_RPM = (
    'for each in "$@"; do found=$(rpm --query --all "$each") && [ -z "$found" ] || exit 1; done'  # of a pattern, too
)
_BY_UNDO = {
    Manager.APT: "`firstlight undo` brings back what was there, by name and version.",
    Manager.DNF: "Write down what is there first: `dnf history` names what goes.",
    Manager.YUM: "Write down what is there first: `yum history` names what goes.",
}
_BACK_BY = {
    Manager.DNF: BackKind.REMOVE_RPM,
    Manager.YUM: BackKind.REMOVE_YUM,
    Manager.TDNF: BackKind.REMOVE_TDNF,
    Manager.ZYPPER: BackKind.REMOVE_ZYPPER,
    Manager.PACMAN: BackKind.REMOVE_PACMAN,
}
_UNHOLD_BY = {
    Manager.APT: BackKind.UNHOLD,
    Manager.DNF: BackKind.UNLOCK_RPM,
    Manager.YUM: BackKind.UNLOCK_YUM,
    Manager.ZYPPER: BackKind.UNLOCK_ZYPPER,
}
_NO_PACMAN = 'for each in "$@"; do ! pacman --query "$each" >/dev/null 2>&1 || exit 1; done'
_OF_CONDA = 'set -- "$1"/conda-meta/"$2"-[0-9]*.json; [ -e "$1" ]'
_PURGED = "Their settings under /etc go with them; undo brings back the packages' own settings, not yours."
_NO_SOURCE = (
    'dkms status | grep -q ^nvidia || { echo "dkms has no source of the nvidia modules to build: '
    'the packages of the driver bring it."; exit 1; }'
)
_IN_BETWEEN = "Programs that use the GPU keep the old driver until the restart; new ones may fail in between."


def package_steps(way: kinds.InstallPackages | kinds.InstallDriver, at: At) -> Iterator[Step]:
    """One run of the package manager for all of them."""
    version = way.version
    brings = way.brings if isinstance(way, kinds.InstallPackages) else ()
    step, before = _of_packages(way.packages, at), _fabric_manager_before(way, at)
    yield replace(
        replace(step, back=shown(*commands(before, at.platform))) if before is not None else step,
        id=slug(f"install {way.packages[0]}"),
        title=title_of(way, at.platform),
        commands=(*_lists(at), *commands(way, at.platform)),
        done_when=(*_installed(way.packages, version, at), *(exists(expanded(path, at)) for path in brings)),
        seconds=NETWORK,
        bytes=NETWORK,
        note=_IN_BETWEEN if isinstance(way, kinds.InstallDriver) else "",
    )


def _lists(at: At) -> tuple[Argv, ...]:
    """apt's lists of packages, fetched: images are made without them, and apt then knows no package by its name."""
    empty = at.platform.in_container and at.platform.manager is Manager.APT and not at.lists_fetched
    return (as_root(at.platform, "apt-get", "update"),) if empty else ()


def _fabric_manager_before(way: kinds.InstallPackages | kinds.InstallDriver, at: At) -> kinds.InstallPackages | None:
    """The fabric manager that is here in another version: it gives way to the new one, and comes back by undo."""
    found = at.facts.health.fabric_manager_version
    rows = roles_of(way.packages[0], at.platform, at.tables)
    if not isinstance(found, Known) or not any(row.role is Role.FABRIC_MANAGER for row in rows):
        return None
    branch = found.value.branch
    names = names_for(Role.FABRIC_MANAGER, at.platform, at.tables, number=branch, branch=str(branch))
    return kinds.InstallPackages(names, version=of_driver(found.value)) if names else None


def _of_packages(packages: tuple[str, ...], at: At) -> Step:
    """Their removal is run by undo; apt's is for a reader, because undo knows what to bring back by itself."""
    [removal] = commands(kinds.RemovePackages(packages), at.platform)
    kind = _BACK_BY.get(at.platform.manager)
    back = shown(removal) if kind is None else (through(removal, Back(kind, packages)),)
    return replace(blank(at), kind=StepKind.APT, needs_root=True, back=back)


def _installed(packages: tuple[str, ...], version: str, at: At) -> Iterator[Condition]:
    manager = at.platform.manager
    for package in packages:
        if manager is Manager.PACMAN:
            yield succeeds("pacman", "--query", package)
        elif manager.is_rpm:
            # rpm itself knows no version with a star: what is left before it is enough to tell the branch.
            yield _of_rpm(package, version)
        else:
            yield Condition(CheckKind.APT_PACKAGE, package, version)


def _of_rpm(package: str, version: str) -> Condition:
    if not version:
        return succeeds("rpm", "--query", package)
    if not version.endswith("*"):
        return succeeds("rpm", "--query", f"{package}-{version}")
    ask = 'rpm --query --queryformat "%{VERSION}-%{RELEASE}\\n" "$1" | grep -q "^$2"'
    return succeeds("sh", "-c", ask, "sh", package, version.rstrip("*"))


def removal_steps(way: kinds.RemovePackages, at: At) -> Iterator[Step]:
    """The packages taken out, each by its name where dpkg was asked; undo brings the versions of before back."""
    names = tuple(dict.fromkeys(name for each in way.packages for name in _names(each, at)))
    named = replace(way, packages=names)
    unknown = [each for each in names if _is_pattern(each)]
    # A pattern would install whatever matches it, most of which was never there.
    before = tuple(_as_installed(each, at) for each in names if each not in unknown)
    yield replace(
        blank(at),
        id=slug(f"remove {way.packages[0]}"),
        kind=StepKind.APT,
        title=title_of(named, at.platform),
        commands=commands(named, at.platform),
        needs_root=True,
        done_when=_gone(way.packages, at),
        back=shown(*(commands(kinds.InstallPackages(before), at.platform) if before else ())),
        note=" ".join(filter(None, (_unknown_names(unknown, at), _PURGED if way.purge else ""))),
    )


def _gone(packages: tuple[str, ...], at: At) -> tuple[Condition, ...]:
    if at.platform.manager is Manager.PACMAN:
        return (succeeds("sh", "-c", _NO_PACMAN, "sh", *packages),)
    if at.platform.manager.is_rpm:
        return (succeeds("sh", "-c", _NO_RPM, "sh", *packages),)
    return tuple(Condition(CheckKind.APT_ABSENT, package) for package in packages)


def _unknown_names(patterns: list[str], at: At) -> str:
    if not patterns:
        return ""
    said = _BY_UNDO.get(at.platform.manager, "")
    return f"Which packages {', '.join(patterns)} means here is not known. {said}".rstrip()


def _names(package: str, at: At) -> tuple[str, ...]:
    """A pattern as the names of what is installed; itself where nobody asked dpkg, or where nothing is."""
    found = tuple(each.name for each in at.extras.packages_named(package)) if _is_pattern(package) else ()
    return found or (package,)


def _is_pattern(package: str) -> bool:
    return any(each in package for each in "*?[")


def _as_installed(package: str, at: At) -> str:
    """libcudnn9-cuda-13=9.23.0.50-1 where the version is known."""
    versions = [each.version for each in at.extras.packages_named(package)]
    return versioned(package, versions[0], at.platform) if len(versions) == 1 else package


def hold_steps(way: kinds.HoldPackages, at: At) -> Iterator[Step]:
    """The packages marked, so that an upgrade passes them over."""
    [argv] = commands(way, at.platform)
    manager = at.platform.manager
    lists = "zypper locks" if manager is Manager.ZYPPER else f"{manager.value} --quiet versionlock list"
    locked = (succeeds("sh", "-c", f'{lists} | grep -Fq -- "$1"', "sh", each) for each in way.packages)
    held = (prints(each, "apt-mark", "showhold") for each in way.packages)
    yield replace(
        blank(at),
        id=slug(f"hold {way.packages[0]}"),
        kind=StepKind.COMMAND,
        title=title_of(way, at.platform),
        commands=(argv,),
        needs_root=True,
        done_when=tuple(held if manager is Manager.APT else locked),
        back=(through(argv, Back(_UNHOLD_BY[manager], way.packages)),),
    )


def module_build_steps(way: kinds.BuildModules, at: At) -> Iterator[Step]:
    """The headers of the running kernel where they lack, then dkms or akmods."""
    build = commands(replace(way, headers=""), at.platform)
    if way.headers and at.platform.manager is Manager.NONE:
        yield asked(way, at, why=f"which package manager has {way.headers} is not known here")
        return
    if way.headers:
        yield from package_steps(kinds.InstallPackages((way.headers,), version=way.version), at)
    looks = (as_root(at.platform, "sh", "-c", _NO_SOURCE),) if way.by == "dkms" else ()
    yield replace(
        blank(at),
        id="build-modules",
        kind=StepKind.COMMAND,
        title=title_of(way, at.platform),
        commands=(*looks, *build),  # dkms autoinstall ends with 0 where it has nothing to build
        needs_root=True,
        done_when=(succeeds("modinfo", "-k", way.kernel, "nvidia"),),
        seconds=NOT_MEASURED,
        note="The modules that were built stay when it is taken back, and the next start of the machine may load them.",
    )


def conda_steps(way: kinds.InstallConda, at: At) -> Iterator[Step]:
    """A prefix of its own, so that no environment changes; or the judged environment where that is meant."""
    step = replace(
        blank(at),
        id=slug(f"install {way.package}"),
        title=title_of(way, at.platform),
        seconds=NETWORK,
        bytes=NETWORK,
        note="micromamba and mamba take the same arguments.",
    )
    if not way.prefix:
        environment = at.facts.environment
        prefix = environment.prefix if environment is not None else "base"
        name = way.package.partition("=")[0]
        # A package may be there and its file gone or too old: conda takes it for installed unless it is told.
        again = ("--force-reinstall",) if way.brings else ()
        brought = (
            (
                exists(f"{prefix}/{way.brings}"),
                once("conda takes the package for installed even when a file of it is gone"),
            )
            if way.brings
            else ()
        )
        yield replace(
            step,
            kind=StepKind.COMMAND,
            commands=(
                ("conda", "install", "--yes", *again, "--prefix", prefix, "--channel", way.channel, way.package),
            ),
            done_when=(succeeds("sh", "-c", _OF_CONDA, "sh", prefix, name), *brought),
            note="conda keeps what it changes: conda list --revisions shows the way back.",
        )
        return
    prefix = expanded(way.prefix, at)
    yield replace(
        step,
        kind=StepKind.ARCHIVE,
        commands=(("conda", "create", "--yes", "--prefix", prefix, "--channel", way.channel, way.package),),
        done_when=(exists(f"{prefix}/{way.brings}" if way.brings else f"{prefix}/conda-meta"),),
        back=(Back(BackKind.REMOVE_CONDA, (prefix,)),),
    )
