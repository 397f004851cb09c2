"""`firstlight bundle`: the wheels for a machine without a network, in a folder that can be carried there."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from firstlight.emit.python_choice import USUAL
from firstlight.errors import BadInput, CouldNotAct
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.tables import Tables, load
from firstlight.ways.wheel_target import Target, processor_called, target_of

if TYPE_CHECKING:
    from firstlight.apply.bundle_download import Chosen
    from firstlight.plan.sets import PackageSet
    from firstlight.plan.want import Want
    from firstlight.versions import CudaVersion

GLIBC = "2.28"  # torch's wheels on PyPI are manylinux_2_28 since 2.7, as the tables have it


@dataclass(frozen=True, slots=True)
class _For:
    """Whom the bundle is for: facts to solve with, the name, and what the wheels must fit."""

    name: str
    facts: Facts
    target: Target


@dataclass(frozen=True, slots=True)
class _Found:
    """The packages, the option they are of, and the compat library that the machines need beside them ('' = none)."""

    packages: PackageSet
    option: str
    compat: str = ""


@dataclass(frozen=True, slots=True)
class _Compat:
    """The option of a plan that brings a compat library: its id, the package and its CUDA."""

    option: str
    package: str
    cuda: CudaVersion


@click.command(
    short_help="the wheels for a machine without a network, in a folder",
    epilog='Example: firstlight bundle --want "torch==2.9.0" --for "H100, driver >= 550" --out h100-wheels',
)
@click.option("--want", "wants", metavar="SPEC", multiple=True,
              help='What is wanted there, e.g. "torch==2.9.0+cu128"; none: the newest torch that runs.')  # fmt: skip
@click.option("--for", "class_text", metavar="CLASS", default="",
              help='The machines it is for: GPUs and their oldest driver, e.g. "H100, driver >= 550".')  # fmt: skip
@click.option("--facts", "facts_file", metavar="PATH", default="",
              help="Instead of --for: the facts of that machine, from `firstlight facts --json` there.")  # fmt: skip
@click.option("--out", metavar="FOLDER", required=True, help="Where the wheels go: a new or empty folder, or a bundle.")
@click.option(
    "--python",
    default="",
    metavar="X.Y",
    help="The Python there. Default: that of the facts, else 3.12 or one that everything has wheels for.",
)
@click.option(
    "--platform",
    "machine",
    default="",
    help="x86_64 or aarch64. Default: that of the facts; aarch64 for GH200, GB200, GB10 and Jetson, else x86_64.",
)
@click.option(
    "--glibc", default="", metavar="X.Y", help=f"The C library there. Default: that of the facts, else {GLIBC}."
)
@click.option("--index-url", "index", default="", metavar="URL", help="Take everything from this index, e.g. a mirror.")
@click.option("--find-links", "links", multiple=True, metavar="FOLDER", help="Take wheels from folders; no index then.")
@click.option("--dry-run", is_flag=True, help="Say what would be downloaded and how much, and stop.")
def command(
    wants: tuple[str, ...],
    class_text: str,
    facts_file: str,
    out: str,
    dry_run: bool,  # noqa: FBT001 click's flag
    **given: str | tuple[str, ...],
) -> None:
    """Download with pip, into a folder, every wheel that machines of another class need, checked and listed.

    `firstlight apply --offline FOLDER` installs from it there, without a network. What is fetched is said first.
    Nothing but the folder is changed; if the download is stopped, the same command continues it.
    """
    from firstlight.apply.bundle_download import fill, refuse_folder

    tables = load()
    python, machine, glibc = (str(given[name]) for name in ("python", "machine", "glibc"))
    machine = processor_called(machine) if machine else ""
    whom = _whom(class_text, facts_file, tables=tables, asked=(machine, python, glibc))
    whom = whom if whom.target.python else _with_python(whom, wants, tables)
    index, links = str(given["index"]), tuple(os.path.abspath(each) for each in given["links"])
    _refuse_sources(index, links)
    found = _solved(whom, wants, tables)
    chosen = _chosen(whom, found, index=index, links=links)
    folder = os.path.abspath(out)
    refuse_folder(folder)
    _say_first(chosen, found, facts=whom.facts, tables=tables, folder=folder)
    if dry_run:
        return
    bundle = fill(folder, chosen, watch=lambda line: click.echo(f"  {line}", err=True))
    click.echo(
        f"{folder}: {len(bundle.wheels)} wheels, {_size(bundle.bytes)}, for {bundle.target.words}\n"
        f"there{f', once {found.compat} is installed' if found.compat else ''}: firstlight apply --offline {folder}"
    )


def _whom(class_text: str, facts_file: str, *, tables: Tables, asked: tuple[str, str, str]) -> _For:
    """The machine of --for or --facts; --python, --platform and --glibc win over what the facts say."""
    if bool(class_text) == bool(facts_file):
        raise BadInput('give either --for "H100, driver >= 550" or --facts FILE: the machines that the bundle is for.')
    machine, python, glibc = asked
    if class_text:
        from firstlight.emit.imagined import parse_machine
        from firstlight.plan.machine_class import arch_of, parse_machine_class

        kind = parse_machine_class(class_text, tables)
        target = _target(arch_of(kind, machine), python, glibc)
        facts = parse_machine(class_text, tables, arch=target.machine, glibc=target.glibc)
        return _For(kind.text, facts, target)
    from firstlight.facts.look import Look, look_at

    facts = look_at(Look(facts_file=facts_file))
    there = target_there(facts, Target(machine, python, glibc))
    target = _target(there.machine, there.python, there.glibc)
    facts = replace(
        facts,
        place=replace(facts.place, arch=target.machine),
        runtime=replace(facts.runtime, glibc=Known(target.glibc, "--glibc or --facts")),
    )
    return _For(f"the machine of {os.path.basename(facts_file.rstrip('/'))}", facts, target)


def _target(machine: str, python: str, glibc: str) -> Target:
    """A target that was asked for or looked up; python "" stays open: it goes by the packages."""
    return replace(target_of(machine, python or USUAL, glibc or GLIBC), python=python)


def _with_python(whom: _For, wants: tuple[str, ...], tables: Tables) -> _For:
    """3.12, which most machines without a network have, if all has wheels for it; else the newest that all has."""
    from firstlight.emit.python_choice import working_pythons
    from firstlight.emit.subject import Asked, Choices, subject_of
    from firstlight.plan.request import Request
    from firstlight.plan.want import parse_wants

    pythons: tuple[str, ...] = (USUAL,)
    try:
        asked = Asked(Request(parse_wants(wants)))
        made = subject_of(whom.facts, asked, made_for=whom.name, tables=tables, choices=Choices())
        pythons = working_pythons(made.gates.torch, made.parts, machine=whom.target.machine, tables=tables)
    except BadInput:
        pass  # said better by what is impossible below
    return replace(whom, target=replace(whom.target, python=USUAL if USUAL in pythons else pythons[0]))


def _refuse_sources(index: str, links: tuple[str, ...]) -> None:
    """Refuse what pip would only trip over after the first download, and a dry run never."""
    for folder in links:
        if not os.path.isdir(folder):
            raise BadInput(f"--find-links {folder}: there is no such folder; accepted: a folder with wheels in it.")
    if index and not os.path.isdir(index) and not re.match(r"(?:https?://[^\s/]|file:///)\S*$", index):
        shown = index.rpartition("@")[2][:80]  # what stands before it may be a password
        raise BadInput(
            f"--index-url {shown!a}: accepted: an address that begins with https://, http:// or file://, or a folder, "
            "e.g. https://pypi.org/simple."
        )


def target_there(facts: Facts, asked: Target) -> Target:
    """What wheels must fit on a machine, by its facts where nothing else was asked; "" for what is not known."""
    environment, glibc = facts.environment, facts.runtime.glibc
    python = ""
    if environment is not None and isinstance(environment.python_version, Known):
        python = ".".join(environment.python_version.value.split(".")[:2])
    library = ".".join(glibc.value.split(".")[:2]) if isinstance(glibc, Known) else ""
    return Target(asked.machine or facts.place.arch, asked.python or python, asked.glibc or library)


def _solved(whom: _For, wants: tuple[str, ...], tables: Tables) -> _Found:
    """The set that holds every want and runs there, if need be with a compat library; else what comes nearest."""
    from firstlight.diagnosis.finding import Question
    from firstlight.plan.solve import solve
    from firstlight.plan.want import PYTHON as PYTHON_WANT
    from firstlight.plan.want import Channel, parse_want, parse_wants

    asked = parse_wants(wants)
    if any(want.project == PYTHON_WANT for want in asked):
        raise BadInput("--want python: say it with --python X.Y, which also picks the wheels.")
    python = parse_want(f"python=={whom.target.python}")
    question = Question(whom.facts, tables)
    solution, option, compat = solve(question, (*asked, python), channel=Channel.STABLE), "", ""
    if not solution.sets and (part := _compat_for(whom, asked, tables)):
        option, compat = part[0].option, part[0].package
        solution = solve(question, (*asked, python), channel=Channel.STABLE, driver_cuda=part[0].cuda)
    if not solution.sets:
        near = ", ".join(pick.requirement for each in solution.nearest[:1] for pick in each.picks)
        raise BadInput(f"for {whom.name}: {solution.impossible}" + (f" The nearest that runs: {near}." if near else ""))
    packages = solution.sets[0]
    if built := [pick.requirement for pick in packages.picks if pick.from_source]:
        raise BadInput(f"{', '.join(built)}: no wheel fits, it is compiled on the machine itself. Leave it out.")
    return _Found(packages, option or f"another-wheel:{packages.torch.requirement.replace('==', '-')}", compat)


def _compat_for(whom: _For, asked: tuple[Want, ...], tables: Tables) -> tuple[_Compat, ...]:
    """The compat library with which the wants run there, as `emit` chooses it; () where none helps."""
    from firstlight.emit.subject import Asked, Choices, subject_of
    from firstlight.plan.request import Request

    emitted = Asked(Request(asked), python=whom.target.python)
    try:
        subject = subject_of(whom.facts, emitted, made_for=whom.name, tables=tables, choices=Choices())
    except BadInput:  # said better by what is impossible with the driver alone
        return ()
    option = subject.plan.option.id
    return tuple(_Compat(option, part.package, part.cuda) for part in subject.compat)


def _chosen(whom: _For, found: _Found, *, index: str, links: tuple[str, ...]) -> Chosen:
    """The packages by where they come from: PyTorch's index first, then pip's own."""
    from firstlight.apply.bundle_download import Chosen, Part, Source

    by_index: dict[str, list[str]] = {}
    for pick in found.packages.picks:
        by_index.setdefault("" if links else index or pick.index, []).append(pick.requirement)
    parts = tuple(Part(tuple(names), Source(each, links)) for each, names in by_index.items())
    return Chosen(whom.name, found.option, whom.target, parts)


def _say_first(chosen: Chosen, found: _Found, *, facts: Facts, tables: Tables, folder: str) -> None:
    """What comes from where and how much it is; a disk that cannot hold it is refused before the first byte."""
    click.echo(f"for {chosen.made_for} ({chosen.target.words}):", err=True)
    for part in chosen.parts:
        click.echo(f"  {', '.join(part.requirements)} from {part.source.name or 'the index pip is set to'}", err=True)
    if found.compat:
        click.echo(
            f"  their driver is too old by itself: they need {found.compat} first, which is not in the bundle.\n"
            "  `firstlight emit bash` (or dockerfile, slurm, ansible) with the same --for and --want brings it,\n"
            "  and so does `firstlight apply` there without --offline.",
            err=True,
        )
    parent = folder
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    free, size = shutil.disk_usage(parent).free, _bytes_of(found.packages, facts, tables)
    if isinstance(size, Known):
        click.echo(f"  download: {_size(size.value)} ({size.seen_in}); {_size(free)} free in {parent}", err=True)
        if size.value > free:
            raise CouldNotAct(
                f"{parent} has {_size(free)} free; the wheels are {_size(size.value)}. Give another --out."
            )
    else:
        click.echo(f"  download: unknown ({size.reason}); {_size(free)} free in {parent}", err=True)


def _bytes_of(packages: PackageSet, facts: Facts, tables: Tables) -> Fact[int]:
    """What is fetched for a set: all of it, whatever is installed there."""
    from firstlight.ways.costs import bytes_of
    from firstlight.ways.kinds import InstallWheels, Package

    bare = replace(facts, python=replace(facts.python, selected=Unknown("a bundle holds all that is needed")))
    wheels = tuple(Package(each.project, each.requirement.partition("==")[2]) for each in packages.picks)
    return bytes_of(InstallWheels(wheels, packages.torch.index), bare, tables)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
