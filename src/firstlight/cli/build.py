"""`firstlight build TARGET`: from source, checked before it starts, kept when it is stopped, proved at its end."""

from __future__ import annotations

import enum
import json
import os
import sys
from typing import Any

import click

from firstlight.build.archs import AUTO, parse_archs
from firstlight.build.flags import parse_flag
from firstlight.build.libraries_needed import feature_called
from firstlight.build.request import BuildRequest, check_jobs, parse_target
from firstlight.cli.looking import look_options
from firstlight.cli.planning import price
from firstlight.cli.printing import tell
from firstlight.errors import BadInput
from firstlight.facts.known import Fact
from firstlight.facts.look import Look
from firstlight.frozen import dataclass

# Faults that are not the machine's: another --archs or another path is typed.
OF_WHAT_WAS_TYPED = ("arch-unknown-to-toolkit", "space-in-path")


class Form(enum.Enum):
    """How the result is printed."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class HowToBuild:
    """How a build is carried out, as the command line says."""

    look: Look
    yes: bool
    dry_run: bool
    form: Form
    rate: Fact[float]  # what an hour costs
    bring: bool = False  # what the project is built with, too


@click.command(
    short_help="from source: checked before it starts, survives being stopped, explains its failure, proves its result",
    epilog="Example: firstlight build flash-attn==2.8.3 --archs 9.0 --dry-run",
)
@click.argument("target", default="")
@click.option("--archs", default=AUTO, show_default=True, metavar="LIST",
              help="GPUs to compile for, e.g. 9.0a,12.0+PTX; auto: the GPUs of this machine.")  # fmt: skip
@click.option("--with", "features_on", default="", metavar="LIST", help="Features to have, e.g. cudnn,nccl.")
@click.option("--without", "features_off", default="", metavar="LIST", help="Features to leave out.")
@click.option("--flag", "flags", multiple=True, metavar="NAME=VALUE",
              help="A flag of the source's build; refused if nothing there reads it. May be repeated.")  # fmt: skip
@click.option(
    "--jobs", type=int, default=None, metavar="N", help="Files to compile at a time. Default: by memory and processors."
)
@click.option(
    "--patch", "patches", multiple=True, metavar="FILE", help="A unified diff to apply first. May be repeated."
)
@click.option("--build-dir", default="", metavar="DIR", help="Where the tree, the objects and the wheel go.")
@click.option("--prefix", default="", metavar="DIR", help="Install below this folder instead of into the environment.")
@click.option("--wheel-only", is_flag=True, help="Make the wheel and install nothing.")
@click.option("--no-deps", is_flag=True, help="Install the wheel alone; what it requires is named, not installed.")
@click.option("--target", "only", default="", metavar="NAME", help="Compile this target of the build alone.")
@click.option("--toolkit", default="", metavar="PATH", help="The CUDA toolkit to use.")
@click.option(
    "--max-minutes", type=click.IntRange(min=0), default=0, metavar="N", help="Stop compiling after N minutes."
)
@click.option("--source", default="", metavar="DIR", help="Build this source tree; nothing is fetched.")
@click.option(
    "--status",
    "status",
    is_flag=True,
    help="How far a build is: TARGET, or an id of --list. Default: the latest.",
)
@click.option("--follow", is_flag=True, help="With --status: keep reporting until the build ends.")
@click.option("--list", "listing", is_flag=True, help="List the builds that are kept, with their sizes.")
@click.option("--clean", default="", metavar="ID", help="Remove the folder of a build, after asking.")
@click.option("--bring", is_flag=True, help="First install the build tools of the project that are missing.")
@click.option("--yes", is_flag=True, help="Do it without asking, for automation.")
@click.option("--dry-run", is_flag=True, help="Look, check and show the plan; nothing is compiled.")
@click.option(
    "--rate", type=float, default=None, metavar="MONEY", help="What an hour of this machine costs, e.g. 2.69."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result (schema firstlight.build/1).")
@look_options
@click.pass_context
def command(ctx: click.Context, /, look: Look, target: str, **given: Any) -> None:
    """Build TARGET (torch==2.9.1, a folder, an sdist or git+URL@REF) from source and install the wheel.

    Everything that would stop the build later is checked first, and all faults are reported together. If it is stopped,
    the same command continues. Exit code 0: built, installed and proved; 1: a stage failed, or a fault stops it; 4:
    another build is at work; 130: interrupted, everything kept.
    """
    form = Form.JSON if given["as_json"] else Form.TEXT
    if given["listing"] or given["clean"] or given["status"]:
        from firstlight.cli import build_kept

        build_kept.answer(ctx, target, given, form.value)
        return
    if given["follow"]:
        raise BadInput("--follow goes with --status: firstlight build --status --follow")
    if not target:
        raise BadInput(
            "no TARGET: accepted is NAME==VERSION, a folder, an sdist or git+URL@REF. See `firstlight build --help`."
        )
    request = request_of(target, given)
    how = HowToBuild(look, given["yes"], given["dry_run"], form, price(given["rate"]), given["bring"])
    if look.facts_file and not how.dry_run:
        raise BadInput("--facts is another machine: it can be planned for, not built on. Add --dry-run.")
    _build(ctx, request, how)


def request_of(target: str, given: dict[str, Any]) -> BuildRequest:
    """What was asked for, refused before anything is looked at where it cannot be meant."""
    on, off = (tuple(filter(None, given[key].replace(" ", ",").split(","))) for key in ("features_on", "features_off"))
    for name in on:
        feature_called(name, "--with")
    for name in off:
        feature_called(name, "--without")
    if both := set(on) & set(off):
        raise BadInput(f"--with and --without both name {', '.join(sorted(both))}. Leave one out.")
    for path in given["patches"]:
        if not os.path.isfile(path):
            raise BadInput(f"--patch {path!a}: no such file. Name a unified diff.")
    if given["source"] and not os.path.isdir(given["source"]):
        raise BadInput(f"--source {given['source']!a}: no such folder. Name the folder of a tree that is here.")
    prefix = os.path.abspath(given["prefix"]) if given["prefix"] else ""
    return BuildRequest(
        target=parse_target(target), source=given["source"], archs=parse_archs(given["archs"]), features_on=on,
        features_off=off, flags=tuple(parse_flag(each) for each in given["flags"]), jobs=check_jobs(given["jobs"]),
        patches=tuple(given["patches"]), build_dir=given["build_dir"], prefix=prefix, only=given["only"],
        toolkit=given["toolkit"], max_minutes=given["max_minutes"], wheel_only=given["wheel_only"],
        no_deps=given["no_deps"],
    )  # fmt: skip


def _build(ctx: click.Context, request: BuildRequest, how: HowToBuild) -> None:
    from firstlight.apply.lock import is_held_by_starter
    from firstlight.build.fault import Weight
    from firstlight.build.preflight import preflight
    from firstlight.cli.acting import agreed
    from firstlight.cli.build_acting import MINE, carry_out_build, run_steps, steps_that_bring
    from firstlight.cli.build_preparing import Prepared, prepared
    from firstlight.machine.live import LiveMachine
    from firstlight.report.build_json import build_document, ended_document
    from firstlight.report.build_text import plan_text

    ready: Prepared = prepared(request, how)
    faults = (*preflight(ready.case), *ready.faults)
    bringing = steps_that_bring(faults) if how.bring or is_held_by_starter() else ()
    if bringing and not how.dry_run and agreed("install what it is built with", yes=how.yes):
        run_steps(LiveMachine(), bringing, MINE + ready.spec.id, f"bring what {ready.spec.name} is built with")
        ready = prepared(request, how)
        faults = (*preflight(ready.case), *ready.faults)
    stopped = any(each.weight is Weight.STOPS for each in faults)
    if how.form is Form.JSON and (how.dry_run or stopped):
        click.echo(
            json.dumps(
                build_document(ready.case, ready.spec, faults, "refused" if stopped else "planned", how.rate), indent=1
            )
        )
    else:
        shown = plan_text(ready.case, ready.spec, faults, ready.costs, how.rate)
        tell((shown,), sys.stderr if how.form is Form.JSON else None)
    if stopped:
        ctx.exit(2 if any(each.code in OF_WHAT_WAS_TYPED for each in faults) else 1)
    if how.dry_run:
        ctx.exit(0)
    ending, code = carry_out_build(ready.spec, how)
    if how.form is Form.JSON:
        document = build_document(ready.case, ready.spec, faults, ending, how.rate)
        click.echo(json.dumps({**document, **ended_document(ready.spec, how.rate)}, indent=1))
    ctx.exit(code)
