"""`firstlight libs`: the whole chain of shared libraries at once, and what closes it; --fix does so."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput
from firstlight.libraries.analysis import Analysis, analyse
from firstlight.libraries.closing import Closing, close
from firstlight.libraries.other_arch import told_apart
from firstlight.libraries.target import ARCHES, Surroundings, find_target, surroundings
from firstlight.machine.interface import Machine
from firstlight.machine.live import LiveMachine
from firstlight.tables import load

if TYPE_CHECKING:
    from firstlight.report.libs_json import Fixed

_ONLY_WITH_FIX = ("yes", "dry_run", "find_links", "index_url")


@click.command(
    short_help="every shared library torch needs at once: where from, why that one, what is missing and who has it",
    epilog="Example: firstlight libs --fix --find-links wheels/",
)
@click.argument("target", default="torch")
@click.option("--fix", is_flag=True, help="Install what is missing, make it loadable, and prove it; asks first.")
@click.option("--yes", is_flag=True, help="With --fix: do it without asking, for automation.")
@click.option("--dry-run", is_flag=True, help="With --fix: show the steps; change nothing.")
@click.option("--find-links", metavar="DIR", default="", help="With --fix: take wheels from this folder alone.")
@click.option("--index-url", metavar="URL", default="", help="With --fix: take wheels from this index.")
@click.option("--facts", "facts_file", metavar="PATH", default="", help="A recorded machine instead of this one.")
@click.option("--python", metavar="PATH", default="", help="The environment of this interpreter.")
@click.option(
    "--arch", type=click.Choice(ARCHES), default=None, help="The processor whose files of a folder or wheel are read."
)
@click.option("--all", "whole", is_flag=True, help="Print the whole tree, with where each comes from and why.")
@click.option("--json", "as_json", is_flag=True, help="Print the result (schema firstlight.libs/1).")
@click.option(
    "--html", "html_file", metavar="FILE", default="", help="Write it to FILE as a page with the chain as a graph."
)
@click.pass_context
def command(ctx: click.Context, /, target: str, **given: Any) -> None:
    """Show where every shared library of TARGET comes from, what is missing, and which package has it.

    TARGET is torch (the default), a shared library, a wheel that is not installed yet, a folder, or an installed
    distribution. Nothing is loaded and, without --fix, nothing is changed: the files are read as the dynamic loader
    reads them. Exit code 0: the loader finds everything; 1: something is missing or does not fit, or a step failed;
    2: usage or bad input; 4: there is nothing to look at, or another firstlight is at work.
    """
    if not given["fix"]:
        _refuse_without_fix(given)
    if given["html_file"]:
        _check_html(given)
    recorded = given["facts_file"]
    if recorded and given["fix"]:
        raise BadInput(f"--fix changes this machine; it cannot be combined with --facts {recorded}.")
    around, analysis = look(target, python=given["python"], arch=given["arch"] or "", recorded=recorded)
    closing = close(around, analysis, load())
    if given["fix"]:
        from firstlight.cli.libs_fix import fix

        fix(ctx, around, analysis, given)
        return
    if given["html_file"]:
        _write_html(given["html_file"], analysis, closing, fix=_fix_command(target, given["python"]))
    if given["as_json"]:
        print_json(analysis, closing, ())
    else:
        from firstlight.report.libs_text import Detail, libs_text

        detail = Detail.WHOLE if given["whole"] else Detail.SHORT
        click.echo(libs_text(analysis, closing, detail, fix=_fix_command(target, given["python"])), nl=False)
    ctx.exit(0 if analysis.sound else 1)


def _check_html(given: dict[str, Any]) -> None:
    from firstlight.cli.html_file import html_can_be_written

    if given["fix"]:
        raise BadInput("--html shows what is there; it cannot be combined with --fix. Run it again afterwards.")
    html_can_be_written(given["html_file"])


def _write_html(path: str, analysis: Analysis, closing: Closing, *, fix: str) -> None:
    from firstlight.cli.html_file import write_html
    from firstlight.report.html.libs_page import libs_page
    from firstlight.report.libs_json import libs_document

    write_html(path, libs_page(analysis, closing, libs_document(analysis, closing, ()), fix=fix))


def _refuse_without_fix(given: dict[str, Any]) -> None:
    for name in _ONLY_WITH_FIX:
        if given[name]:
            raise BadInput(f"--{name.replace('_', '-')} works only with --fix; add --fix, or leave it out.")


def look(target: str, *, python: str, arch: str, recorded: str = "") -> tuple[Surroundings, Analysis]:
    """The chain of what was named, on this machine or a recorded one."""
    if recorded and python:
        raise BadInput(f"--python looks at this machine; it cannot be combined with --facts {recorded}.")
    if python:
        from firstlight.facts.look import check_python

        check_python(python)
    machine = _machine(recorded) if recorded else LiveMachine()
    around, found = find_target(surroundings(machine, python=python), target, arch=arch)
    return around, told_apart(analyse(around, found), load(), here=machine.host.arch)


def _machine(recorded: str) -> Machine:
    from firstlight.cli.plan_files import machine_looked_at
    from firstlight.facts.look import Look

    machine = machine_looked_at(Look(facts_file=recorded))
    if machine is None:
        from firstlight.facts.document import read_machine_or_facts

        read_machine_or_facts(recorded)  # what is no document of facts either has its own complaint
        raise BadInput(
            f"--facts {recorded}: this holds facts alone; accepted: a machine that `firstlight facts --record DIR` "
            "recorded."
        )
    return machine


def _fix_command(target: str, python: str) -> str:
    """The command line that puts right what was found, to be pasted."""
    words = ["firstlight", "libs", *([] if target == "torch" else [target]), "--fix"]
    return shlex.join([*words, *(["--python", python] if python else [])])


def print_json(analysis: Analysis, closing: Closing, fixed: tuple[Fixed, ...]) -> None:
    """Print the document."""
    from firstlight.report.libs_json import libs_document

    click.echo(json.dumps(libs_document(analysis, closing, fixed), indent=1))
