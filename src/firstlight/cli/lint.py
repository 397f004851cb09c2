"""`firstlight lint`: what of your own files will break on a machine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

import click

from firstlight.cli.lint_files import beside, files_given, known_of, read_given
from firstlight.diagnosis.finding import Question, Severity
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.document import EXAMPLE
from firstlight.facts.look import Look
from firstlight.lint.judge import Given, lint
from firstlight.lint.kinds import KINDS, kind_named
from firstlight.lint.rule import LintReport, without_repeated
from firstlight.tables import Tables, load

LIVE = "live"
FORMATS = ("text", "json", "sarif", "github")
_MANY = 20  # files from which on the count is shown while they are read


@click.command(
    short_help="your Dockerfile, requirements, manifests or job scripts: what in them will break on a machine",
    epilog='Example: firstlight lint Dockerfile --for "H100, driver 550". Exit 0: nothing blocks; 1: something does; '
    "2: bad input, or a file of a folder that could not be read.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--for", "machine", metavar="MACHINE", default=LIVE, show_default="this machine",
              help='live, a facts file, a recorded machine, example:NAME, or words: "H100, driver 550".')  # fmt: skip
@click.option("--kind", metavar="KIND", default="", help=(
    f"What the files are: {', '.join(KINDS)}. Default: by name and content."
))  # fmt: skip
@click.option("--skip-unknown", is_flag=True, help="Leave out files of another kind, as in a folder; for pre-commit.")
@click.option("--build-arg", "arguments", metavar="NAME=VALUE", multiple=True,
              help="A build argument, or a variable of a compose file. May be repeated.")  # fmt: skip
@click.option("--target", metavar="STAGE", default="", help="The stage that is built. Default: the last one.")
@click.option("--strict", is_flag=True, help="Exit 1 also where something degrades.")
@click.option("--format", "shape", metavar="FORMAT", default="", show_default="text",
              help="text, json, sarif (2.1.0) or github (comments at the lines of a pull request).")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format json (schema firstlight.lint/3).")
def command(
    *, files: tuple[str, ...], machine: str, kind: str, arguments: tuple[str, ...], target: str, **how: str | bool
) -> None:
    """Read your own files and say what in them will break on a machine. Nothing is built or run.

    FILE is a Dockerfile, a compose file, a Kubernetes manifest, devcontainer.json, a GitHub workflow, a Slurm or shell
    script, requirements.txt, pyproject.toml, uv.lock, environment.yml or pixi.toml; or a folder, in which all of these
    are read (shell scripts only with #SBATCH lines). - reads standard input.

    A comment `# firstlight: ignore[code] because ...` above a line silences a finding there; also on the line, but in a
    Dockerfile behind RUN alone.
    """
    shape = _shape(str(how["shape"]), "json" if how["as_json"] else "")
    wanted = kind_named(kind) if kind else None
    plain = Given("", "", target, tuple(_argument(each) for each in arguments), wanted)
    named = known_of(files, wanted) if how["skip_unknown"] else files
    paths = tuple(files_given(named, wanted))
    tables = load()
    question = Question(_facts(machine, tables), tables)
    reports = without_repeated([_report(path, plain, question, named=files) for path in _counted(paths)])
    click.echo(_told(reports, question, shape), nl=False)
    worst = (Severity.BLOCKS, Severity.DEGRADES) if how["strict"] else (Severity.BLOCKS,)
    unread = 2 if any(report.unread for report in reports) else 0
    click.get_current_context().exit(1 if any(report.has(*worst) for report in reports) else unread)


def _counted(paths: tuple[str, ...]) -> Iterator[str]:
    """The paths one by one; where they are many a terminal is told how far it is."""
    for number, path in enumerate(paths, 1):
        if len(paths) >= _MANY and sys.stderr.isatty():
            click.echo(f"\rreading {number} of {len(paths)}\033[K", err=True, nl=number == len(paths))
        yield path


def _report(path: str, plain: Given, question: Question, *, named: tuple[str, ...]) -> LintReport:
    """What a file comes to; one of a folder that cannot be read is said to be so."""
    try:
        one = read_given(path)
        return lint(replace(plain, file=one.shown, text=one.text), question, read=beside)
    except BadInput as error:
        if path in named:
            raise
        return LintReport(path, (), (str(error),))


def _shape(given: str, by_flag: str) -> str:
    """The format by --format, or by --json; both are accepted where they agree."""
    if by_flag and given in FORMATS and given != by_flag:
        raise BadInput(f"--json and --format {given}: two formats; --json is --format json. Give one.")
    if given not in ("", *FORMATS):
        raise BadInput(f"--format {given[:40]!a}: accepted: {', '.join(FORMATS)}; --json is --format json. Give one.")
    return given or by_flag or "text"


def _told(reports: Iterable[LintReport], question: Question, shape: str) -> str:
    """The reports in the format that is asked for."""
    if shape == "json":
        from firstlight.report.lint_json import lint_document

        return json.dumps(lint_document(reports, question), indent=1) + "\n"
    if shape == "sarif":
        from firstlight.report.lint_sarif import sarif_document

        return json.dumps(sarif_document(reports, question), indent=1) + "\n"
    if shape == "github":
        from firstlight.report.lint_github import github_text

        return github_text(reports)
    from firstlight.report.lint_text import lint_text

    return lint_text(reports, question)


def _argument(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise BadInput(f"--build-arg {text[:60]!a}: expected NAME=VALUE, e.g. --build-arg CUDA=12.8.1")
    return name, value


def _facts(machine: str, tables: Tables) -> Facts:
    """The machine by what was given: this one, a file of facts, or words."""
    from firstlight.cli.looking import look_patiently

    if machine == LIVE:
        return look_patiently(Look())
    if machine.startswith(EXAMPLE) or os.path.exists(machine):
        return look_patiently(Look(machine))
    if "/" in machine or machine.endswith(".json"):
        raise BadInput(f'--for {machine[:80]}: no such file; accepted: live, a facts file, or "H100, driver 550".')
    from firstlight.emit.imagined import parse_machine

    return parse_machine(machine, tables)
