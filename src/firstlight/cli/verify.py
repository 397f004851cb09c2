"""`firstlight verify`: prove in child processes that the stack computes, and say what was not proved."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click
from click.core import ParameterSource

from firstlight.cli.given import refuse_json

if TYPE_CHECKING:
    from firstlight.facts.collect import Facts
    from firstlight.verify.check import Case, Report
    from firstlight.verify.require_file import Requirement

REQUIREMENTS_ALONE = "require"  # as a name for --only: the list and no check


@click.command(
    short_help="prove it: every GPU, cuBLAS, cuDNN, attention, compile, extensions, fresh shells",
    epilog="Example: firstlight verify --require team.toml --junit verify.xml",
)
@click.option(
    "--only", default="", metavar="NAME,..", help="Run these checks alone, and require each to be proved; see --list."
)
@click.option("--skip", default="", metavar="NAME,..", help="Leave these checks out; they count as not proved.")
@click.option("--list", "lists", is_flag=True, help="Print the checks and stop.")
@click.option("--so", "so_files", metavar="FILE", multiple=True,
              help="A binary of yours: does it hold code for the GPUs here? May be repeated.")  # fmt: skip
@click.option(
    "--require",
    "require_file",
    metavar="FILE",
    default="",
    help="A team's list in TOML: versions, GPUs, driver, checkouts. With --only require: the list alone.",
)
@click.option("--evidence", is_flag=True, help="Print everything that was seen, and the command of each check.")
@click.option("--json", "as_json", is_flag=True, help="Print the result (schema firstlight.verify/1).")
@click.option("--junit", default="", metavar="FILE", help="Write the result as JUnit XML, for CI systems.")
@click.option("--python", default="", metavar="PATH", help="Prove the environment of this interpreter.")
@click.option("--identify", is_flag=True, help="Keep real names of users and hosts instead of pseudonyms.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Prove that torch and CUDA work here: each check is a process of its own with a time limit.

    What cannot be looked at is skipped or not here, with the reason, and never counts as proved. Nothing is installed
    or changed; caches go to a temporary folder, and the result is kept for `firstlight handover`. Exit code 0: all that
    this machine can prove is proved; 1: a check failed, a requirement is not met, or a check named with --only could
    not be run; 2: usage and bad input; 4: no Python interpreter to look at.
    """  # fmt: skip
    from firstlight.errors import BadInput
    from firstlight.verify.checks import CHECKS
    from firstlight.verify.runner import chosen

    if given["lists"]:
        refuse_json("--list", as_json=given["as_json"])
        from firstlight.report.verify_text import list_text

        click.echo(list_text(CHECKS), nl=False)
        return
    names = _names(given["only"])
    if click.get_current_context().get_parameter_source("only") is not ParameterSource.DEFAULT and not names:
        raise BadInput("--only is empty; accepted: names of checks, see --list. Leave --only out for all of them.")
    checks = chosen(CHECKS, tuple(name for name in names if name != REQUIREMENTS_ALONE))
    if names == (REQUIREMENTS_ALONE,):
        checks = ()
    chosen(CHECKS, _names(given["skip"]))  # refuses a name that is none
    for path in given["so_files"]:
        _require_file(path)
    requirements = _requirements(given["require_file"], names)
    if given["junit"]:
        from firstlight.bench.saving import JUNIT, writable

        writable(given["junit"], JUNIT, option="--junit")
    report = prove(tuple(check.name for check in checks), requirements, given)
    _print(report, given)
    from firstlight.verify.verdict import exit_code

    ctx.exit(exit_code(report))


def _require_file(path: str) -> None:
    from firstlight.errors import BadInput
    from firstlight.opening import open_regular

    try:
        open_regular(path).close()
    except OSError as error:
        raise BadInput(
            f"--so {path}: {error.strerror}; accepted: a library or program, e.g. build/kernels.so"
        ) from None


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _requirements(path: str, names: tuple[str, ...]) -> tuple[Requirement, ...]:
    from firstlight.errors import BadInput
    from firstlight.verify.require_file import read_require_file

    if not path:
        if REQUIREMENTS_ALONE in names:
            raise BadInput("--only require checks this machine against a list; name the list with --require FILE")
        return ()
    return read_require_file(path)


def prove(
    names: tuple[str, ...], requirements: tuple[Requirement, ...], given: dict[str, Any], watched: TextIO | None = None
) -> Report:
    """Look, run, hold against the list; names are replaced at the very end. `watched` is drawn on: stderr as a rule."""
    import time
    from dataclasses import replace

    from firstlight.cli.printing import raw
    from firstlight.cli.verify_progress import CheckProgress
    from firstlight.facts.document import pseudonyms_of
    from firstlight.facts.look import Look, Names, look_at
    from firstlight.facts.pseudonyms import rename_all
    from firstlight.machine.live import LiveMachine
    from firstlight.verify.checks import CHECKS
    from firstlight.verify.features import feature_table
    from firstlight.verify.needs import gpus_built_in
    from firstlight.verify.requirements import results_of_requirements
    from firstlight.verify.runner import remove_folder, run_checks, work_folder

    started, seen = time.monotonic(), CheckProgress(raw(watched or sys.stderr))
    facts = look_at(Look(python=given["python"], names=Names.REAL))
    case = _case(facts, tuple(given["so_files"]), work_folder())
    try:
        checks = tuple(check for check in CHECKS if check.name in names)
        results, answers = run_checks(checks, case, seen.ended, skip=_names(given["skip"]), running=seen.running)
        held = results_of_requirements(requirements, case, answers)
    finally:
        remove_folder(case.work)
    report = _report(facts, case.interpreter)
    report = replace(
        report,
        seconds=time.monotonic() - started,
        results=results,
        features=feature_table(answers["features"]) if "features" in answers else (),
        requirements=held,
        require_file=given["require_file"],
        asked=tuple(name for name in _names(given["only"]) if name != REQUIREMENTS_ALONE),
        has_gpu=gpus_built_in(case) > 0,
    )
    handed_on = rename_all(report, pseudonyms_of(facts, LiveMachine().host).apply)
    if len(names) == len(CHECKS) and not given["skip"]:
        _keep(handed_on)
    return report if given["identify"] else handed_on


def _keep(report: Report) -> None:
    """A whole proof stays with the machine, for `firstlight handover`."""
    from firstlight.cli.kept import keep
    from firstlight.report.verify_json import verify_document

    keep("verify", json.dumps(verify_document(report), indent=1))


def _case(facts: Facts, so_files: tuple[str, ...], work: str) -> Case:
    import os

    from firstlight.errors import CouldNotLook
    from firstlight.facts.known import Known
    from firstlight.machine.live import LiveMachine
    from firstlight.tables import load
    from firstlight.verify.check import Case

    environment = facts.environment
    if environment is None or not isinstance(environment.interpreter, Known):
        why = "no Python environment was found" if environment is None else f"{environment.prefix} has no interpreter"
        raise CouldNotLook(f"{why}; name one: firstlight verify --python PATH")
    files = tuple(os.path.abspath(path) for path in so_files)
    return Case(facts, load(), LiveMachine(), environment.interpreter.value, files, work)


def _report(facts: Facts, interpreter: str) -> Report:
    from firstlight.report.summary import machine_summary
    from firstlight.verify.check import Report

    what, where = machine_summary(facts)
    return Report(what, where, interpreter, facts.collected_at, 0.0, (), (), (), "", (), has_gpu=False)


def _print(report: Report, given: dict[str, Any]) -> None:
    if given["junit"]:
        from firstlight.bench.saving import save
        from firstlight.report.verify_junit import verify_junit

        save(given["junit"], verify_junit(report), option="--junit")
        click.echo(f"firstlight: wrote {given['junit']}", err=True)
    if given["as_json"]:
        from firstlight.report.verify_json import verify_document

        click.echo(json.dumps(verify_document(report), indent=1))
        return
    from firstlight.report.verify_text import Detail, verify_text

    click.echo(verify_text(report, Detail.ALL if given["evidence"] else Detail.LINE), nl=False)
