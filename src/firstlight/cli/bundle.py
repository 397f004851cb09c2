"""`firstlight bundle`: the wheels for a machine without a network, in a folder that can be carried there."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from firstlight.errors import BadInput, CouldNotAct
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.plan.wheel_target import Target, target_of
from firstlight.tables import Tables, load

if TYPE_CHECKING:
    from firstlight.apply.bundle_download import Chosen
    from firstlight.plan.sets import PackageSet

PYTHON, GLIBC = "3.12", "2.28"  # torch's wheels on PyPI are manylinux_2_28 since 2.7, as the tables have it


@dataclass(frozen=True, slots=True)
class _For:
    """Whom the bundle is for: facts to solve with, the name, and what the wheels must fit."""

    name: str
    facts: Facts
    target: Target


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
@click.option("--python", default="", metavar="X.Y", help=f"The Python there. Default: of the facts, else {PYTHON}.")
@click.option("--platform", "machine", default="", help="x86_64 or aarch64. Default: of the facts, else x86_64.")
@click.option("--glibc", default="", metavar="X.Y", help=f"The C library there. Default: of the facts, else {GLIBC}.")
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
    Nothing but the folder is changed; killed, the same command goes on.
    """
    from firstlight.apply.bundle_download import fill, refuse_folder

    tables = load()
    python, machine, glibc = (str(given[name]) for name in ("python", "machine", "glibc"))
    whom = _whom(class_text, facts_file, tables=tables, asked=(machine, python, glibc))
    packages = _solved(whom, wants, tables)
    links = tuple(os.path.abspath(each) for each in given["links"])
    chosen = _chosen(whom, packages, index=str(given["index"]), links=links)
    folder = os.path.abspath(out)
    refuse_folder(folder)
    _say_first(chosen, packages, tables=tables, folder=folder)
    if dry_run:
        return
    bundle = fill(folder, chosen, watch=lambda line: click.echo(f"  {line}", err=True))
    click.echo(
        f"{folder}: {len(bundle.wheels)} wheels, {_size(bundle.bytes)}, for {bundle.target.words}\n"
        f"there: firstlight apply --offline {folder}"
    )


def _whom(class_text: str, facts_file: str, *, tables: Tables, asked: tuple[str, str, str]) -> _For:
    """The machine of --for or --facts; --python, --platform and --glibc win over what the facts say."""
    if bool(class_text) == bool(facts_file):
        raise BadInput('give either --for "H100, driver >= 550" or --facts FILE: whom the bundle is for.')
    machine, python, glibc = asked
    if class_text:
        from firstlight.emit.imagined import parse_machine
        from firstlight.plan.machine_class import parse_machine_class

        target = target_of(machine or "x86_64", python or PYTHON, glibc or GLIBC)
        kind = parse_machine_class(class_text, tables)
        return _For(kind.text, parse_machine(class_text, tables, arch=target.machine), target)
    from firstlight.facts.look import Look, look_at

    facts = look_at(Look(facts_file=facts_file))
    there = target_there(facts, Target(machine, python, glibc))
    target = target_of(there.machine, there.python or PYTHON, there.glibc or GLIBC)
    place = replace(facts.place, arch=target.machine)
    return _For(f"the machine of {os.path.basename(facts_file.rstrip('/'))}", replace(facts, place=place), target)


def target_there(facts: Facts, asked: Target) -> Target:
    """What wheels must fit on a machine, by its facts where nothing else was asked; "" for what is not known."""
    environment, glibc = facts.environment, facts.runtime.glibc
    python = ""
    if environment is not None and isinstance(environment.python_version, Known):
        python = ".".join(environment.python_version.value.split(".")[:2])
    library = ".".join(glibc.value.split(".")[:2]) if isinstance(glibc, Known) else ""
    return Target(asked.machine or facts.place.arch, asked.python or python, asked.glibc or library)


def _solved(whom: _For, wants: tuple[str, ...], tables: Tables) -> PackageSet:
    """The set that holds every want and runs there; what is impossible is said with what comes nearest."""
    from firstlight.diagnosis.finding import Question
    from firstlight.plan.solve import solve
    from firstlight.plan.want import PYTHON as PYTHON_WANT
    from firstlight.plan.want import Channel, parse_want, parse_wants

    asked = parse_wants(wants)
    if any(want.project == PYTHON_WANT for want in asked):
        raise BadInput("--want python: say it with --python X.Y, which also picks the wheels.")
    asked = (*asked, parse_want(f"python=={whom.target.python}"))
    solution = solve(Question(whom.facts, tables), asked, channel=Channel.STABLE)
    if not solution.sets:
        near = ", ".join(pick.requirement for each in solution.nearest[:1] for pick in each.picks)
        raise BadInput(f"for {whom.name}: {solution.impossible}" + (f" The nearest that runs: {near}." if near else ""))
    packages = solution.sets[0]
    if built := [pick.requirement for pick in packages.picks if pick.from_source]:
        raise BadInput(f"{', '.join(built)}: no wheel fits, it is compiled on the machine itself. Leave it out.")
    return packages


def _chosen(whom: _For, packages: PackageSet, *, index: str, links: tuple[str, ...]) -> Chosen:
    """The packages by where they come from: PyTorch's index first, then pip's own."""
    from firstlight.apply.bundle_download import Chosen, Part, Source

    by_index: dict[str, list[str]] = {}
    for pick in packages.picks:
        by_index.setdefault("" if links else index or pick.index, []).append(pick.requirement)
    parts = tuple(Part(tuple(names), Source(each, links)) for each, names in by_index.items())
    option = f"another-wheel:{packages.torch.requirement.replace('==', '-')}"
    return Chosen(whom.name, option, whom.target, parts)


def _say_first(chosen: Chosen, packages: PackageSet, *, tables: Tables, folder: str) -> None:
    """What comes from where and how much it is; a disk that cannot hold it is refused before the first byte."""
    from firstlight.plan.sizes import download_bytes

    click.echo(f"for {chosen.made_for} ({chosen.target.words}):", err=True)
    for part in chosen.parts:
        click.echo(f"  {', '.join(part.requirements)} from {part.source.name or 'the index pip is set to'}", err=True)
    parent = folder
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    free, size = shutil.disk_usage(parent).free, download_bytes(packages, tables)
    if isinstance(size, Known):
        click.echo(f"  download: {_size(size.value)} ({size.seen_in}); {_size(free)} free in {parent}", err=True)
        if size.value > free:
            raise CouldNotAct(
                f"{parent} has {_size(free)} free; the wheels are {_size(size.value)}. Give another --out."
            )
    else:
        click.echo(f"  download: unknown ({size.reason}); {_size(free)} free in {parent}", err=True)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
