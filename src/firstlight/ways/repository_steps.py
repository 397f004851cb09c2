"""Package repositories as steps: NVIDIA's, RPM Fusion, EPEL, and Debian's own contrib and non-free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.tables.system_rows import Role
from firstlight.ways.at import At
from firstlight.ways.back import Argv, removed_file, shown, through
from firstlight.ways.building import NETWORK, NOT_MEASURED, as_root, blank, exists, slug, state_of, succeeds, written
from firstlight.ways.kinds import SetUpRepository
from firstlight.ways.managers import installed
from firstlight.ways.nvidia_repository import DEBIAN_NONFREE, NVIDIA, addresses_of, repository_of
from firstlight.ways.platform import Manager
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.ways.system_names import names_for
from firstlight.ways.words import title_of

_NONFREE_FILE = "/etc/apt/sources.list.d/firstlight-nonfree.sources"
_NONFREE = """\
# Written by firstlight; `firstlight undo` takes it back.
Types: deb
URIs: {address}
Suites: {suite}
Components: {components}
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
_WITH_KEY = "With its signing key. The CUDA images of NVIDIA have it set up already."


def repository_steps(way: SetUpRepository, at: At) -> Iterator[Step]:
    """The step that makes the package manager know a repository."""
    if way.name == DEBIAN_NONFREE:
        yield _debian_parts(way, at)
    elif way.name != NVIDIA:
        yield _release_packages(way, at)
    elif at.platform.manager is Manager.APT:
        yield _keyring(way, at)
    else:
        yield _repo_file(way, at)


def _step(way: SetUpRepository, at: At) -> Step:
    return replace(
        blank(at),
        id="set-up-repository" if way.name == NVIDIA else slug(f"set up {way.name}"),
        kind=StepKind.APT,
        title=title_of(way, at.platform),
        needs_root=True,
        seconds=NETWORK,
        bytes=NOT_MEASURED,
    )


def _keyring(way: SetUpRepository, at: At) -> Step:
    """apt learns of NVIDIA's repository by a package that brings its address and its key."""
    platform, address = at.platform, repository_of(at.platform)
    [keyring] = names_for(Role.REPOSITORY_KEY, platform, at.tables, of=NVIDIA)
    [package] = names_for(Role.REPOSITORY_KEY, platform, at.tables, of="installed")
    # In a folder that nobody else can write to: under /tmp another user could put a package of theirs there.
    folder = f"{state_of(at)}/keyring"
    target = f"{folder}/{keyring}"
    return replace(
        _step(way, at),
        commands=(
            ("install", "-d", "-m", "700", folder),
            ("curl", "-fsSL", "-o", target, f"{address}/{keyring}"),
            as_root(platform, "dpkg", "--install", target),
            as_root(platform, "apt-get", "update"),
            ("rm", "-r", folder),
        ),
        done_when=(Condition(CheckKind.APT_PACKAGE, package),),  # dpkg-query also shows what is half installed
        back=shown(as_root(platform, "dpkg", "--purge", package), as_root(platform, "apt-get", "update")),
        note=f"{_WITH_KEY} No checksum of {keyring} is known here: that it is NVIDIA's rests on the https connection.",
    )


def _repo_file(way: SetUpRepository, at: At) -> Step:
    """dnf, yum, tdnf and zypper read a file that NVIDIA has beside the packages."""
    platform, address = at.platform, repository_of(at.platform)
    name = address.rsplit("/", 2)[1]
    folder = "/etc/zypp/repos.d" if platform.manager is Manager.ZYPPER else "/etc/yum.repos.d"
    target = f"{folder}/cuda-{name}.repo"
    needs = names_for(Role.REPOSITORY_NEEDS, platform, at.tables)
    first: tuple[Argv, ...] = (as_root(platform, *installed(needs, platform)),) if needs else ()
    fetch = as_root(platform, "curl", "-fsSL", "-o", target, f"{address}/cuda-{name}.repo")
    again: tuple[Argv, ...] = ()
    if platform.manager is Manager.ZYPPER:
        again = (as_root(platform, "zypper", "--non-interactive", "--gpg-auto-import-keys", "refresh"),)
    return replace(
        _step(way, at),
        commands=(*first, fetch, *again),
        done_when=(exists(target),),
        back=(through(fetch, removed_file(target)),),
        note=_WITH_KEY,
    )


def _release_packages(way: SetUpRepository, at: At) -> Step:
    """RPM Fusion and EPEL are known by a package that brings their files and keys."""
    addresses = addresses_of(way.name, at.platform)
    names = tuple(each.rpartition("/")[2].rpartition("-release")[0] + "-release" for each in addresses)
    argv = as_root(at.platform, *installed(addresses, at.platform))
    return replace(
        _step(way, at),
        commands=(argv,),
        done_when=tuple(succeeds("rpm", "--query", each) for each in names),
        back=shown(as_root(at.platform, at.platform.manager.value, "remove", *names)),
        note="That the package is theirs rests on the https connection.",
    )


def _debian_parts(way: SetUpRepository, at: At) -> Step:
    """A file of our own beside the system's list, so that nothing of that is edited."""
    address, suite, components = addresses_of(way.name, at.platform)
    text = _NONFREE.format(address=address, suite=suite, components=components)
    change = FileChange(_NONFREE_FILE, at.extras.text_of(_NONFREE_FILE) or "", text)
    return replace(
        _step(way, at),
        kind=StepKind.FILE,
        commands=(as_root(at.platform, "apt-get", "update"),),
        files=(change,),
        done_when=(written(change),),
        note="Where the system's own list has them already, apt says so and takes either.",
    )
