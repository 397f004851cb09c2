"""`firstlight build --status`, `--list` and `--clean`: the builds that are kept."""

from __future__ import annotations

import glob
import json
import time
from typing import Any

import click

from firstlight.build.keys import finished_wheel
from firstlight.build.places import KeptBuild, forget, kept_builds, size_of
from firstlight.build.progress import BuildStatus, read_status
from firstlight.build.standing import Ended, ended_of, standing_of
from firstlight.cli.acting import agreed
from firstlight.errors import BadInput, CouldNotAct
from firstlight.machine.live import LiveMachine
from firstlight.near import nearest
from firstlight.report.build_json import status_document
from firstlight.report.build_text import list_text, status_text
from firstlight.report.layout import gib

FOLLOW_S = 2.0


def answer(ctx: click.Context, target: str, given: dict[str, Any], form: str) -> None:
    """One of the three, as asked."""
    machine = LiveMachine()
    builds = kept_builds(machine)
    if given["clean"]:
        _clean(machine, _called(given["clean"], builds), yes=given["yes"])
    elif given["listing"]:
        if target:
            raise BadInput(
                f"--list prints every build; leave {target[:80]!a} out, or: firstlight build --status TARGET"
            )
        _list(builds, form)
    else:
        _status(ctx, _chosen(target, builds), form, follow=given["follow"])


def _called(name: str, builds: tuple[KeptBuild, ...]) -> KeptBuild:
    for each in builds:
        if each.source.id == name or each.source.source.target == name:
            return each
    names = [each.source.id for each in builds]
    near = nearest(name, names)
    hint = f" Did you mean {near[0]}?" if near else f" Kept are: {', '.join(names) or 'none'}."
    raise BadInput(f"{name!a}: no build of that id is kept here.{hint}")


def _chosen(target: str, builds: tuple[KeptBuild, ...]) -> KeptBuild | None:
    """The build asked for, else the one that was last at work."""
    if target:
        return _called(target, builds)
    with_status = [(status.written_at, each) for each in builds if (status := read_status(each.folder)) is not None]
    return max(with_status, key=lambda pair: pair[0])[1] if with_status else None


def _status(ctx: click.Context, build: KeptBuild | None, form: str, *, follow: bool) -> None:
    while True:
        status = read_status(build.folder) if build else None
        _tell(build, status, form)
        if not follow or status is None or not status.alive:
            ctx.exit(0 if status is not None else 1)
        time.sleep(FOLLOW_S)


def _tell(build: KeptBuild | None, status: BuildStatus | None, form: str) -> None:
    if form == "json":
        click.echo(json.dumps(status_document(build, status), indent=1))
    elif build is None or status is None:
        click.echo("No build has begun to configure or compile here. This shows what is kept:")
        click.echo("    firstlight build --list")
    else:
        ended = Ended("", (), 0.0, 0) if build.spec is None else ended_of(build.spec)
        click.echo(status_text(status, standing_of(build), ended), nl=False)


def _list(builds: tuple[KeptBuild, ...], form: str) -> None:
    statuses = {each.source.id: read_status(each.folder) for each in builds}
    if form == "text":
        click.echo(list_text(builds, statuses), nl=False)
        return
    rows = [
        {
            "id": each.source.id,
            "target": each.source.source.target,
            "folder": each.folder,
            "bytes": size_of(each.folder),
            **status_document(each, statuses[each.source.id]),
        }
        for each in builds
    ]
    click.echo(json.dumps({"schema": "firstlight.build/1", "builds": rows}, indent=1))


def _clean(machine: LiveMachine, build: KeptBuild, *, yes: bool) -> None:
    """Remove a build's folder: never a tree of the user, and never while it is at work."""
    status = read_status(build.folder)
    if status is not None and status.alive:
        raise CouldNotAct(f"{build.source.id} is at work (process {status.process}). Stop it first.")
    click.echo(f"{build.folder}: {gib(size_of(build.folder))} will be removed{what_goes_with(build)}.", err=True)
    if not agreed("remove it", yes=yes):
        raise CouldNotAct("nothing was removed.")
    forget(machine, build.source.id, build.folder)
    click.echo(f"{build.source.id} is removed.")


def what_goes_with(build: KeptBuild) -> str:
    """What of a folder somebody may want to have: the wheel, and the way back of an install below a prefix."""
    wheel = ", the wheel among them" if build.spec is not None and finished_wheel(build.spec) else ""
    ledgers = glob.glob(f"{glob.escape(build.folder)}/prefix/*/ledger.json")
    return wheel + (". `firstlight undo` cannot take it out of its --prefix afterwards" if ledgers else "")
