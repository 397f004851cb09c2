"""`firstlight lint`: what of a Dockerfile or compose file will break on a machine."""

from __future__ import annotations

import json
import os
import sys

import click

from firstlight.diagnosis.finding import Question
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.document import EXAMPLE
from firstlight.facts.look import Look
from firstlight.lint.judge import Given, lint
from firstlight.opening import open_given
from firstlight.tables import Tables, load

SIZE_LIMIT = 4 << 20
LIVE = "live"


@click.command(
    short_help="a Dockerfile or compose file: what of it will break on a machine, line by line",
    epilog='Example: firstlight lint Dockerfile --for "H100, driver 550". Exit 0: nothing blocks; 1: something does.',
)
@click.argument("file", metavar="FILE")
@click.option("--for", "machine", metavar="MACHINE", default=LIVE, show_default="this machine",
              help='live, a facts file, a recorded machine, example:NAME, or words: "H100, driver 550".')  # fmt: skip
@click.option("--build-arg", "arguments", metavar="NAME=VALUE", multiple=True,
              help="A build argument, or a variable of a compose file. May be repeated.")  # fmt: skip
@click.option("--target", metavar="STAGE", default="", help="The stage that is built; without it the last one.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings (schema firstlight.lint/1).")
def command(*, file: str, machine: str, arguments: tuple[str, ...], target: str, as_json: bool) -> None:
    """Read FILE, your own Dockerfile or compose file, and say what will break on a machine. Nothing is built or run.

    A compose file's name ends in .yml or .yaml; anything else is read as a Dockerfile. - reads standard input.
    """
    given = Given(_shown(file), _read(file), target, tuple(_argument(each) for each in arguments))
    tables = load()
    question = Question(_facts(machine, tables), tables)
    report = lint(given, question, read=_beside)
    if as_json:
        from firstlight.report.lint_json import lint_document

        click.echo(json.dumps(lint_document(report, question), indent=1))
    else:
        from firstlight.report.lint_text import lint_text

        click.echo(lint_text(report, question), nl=False)
    click.get_current_context().exit(1 if report.blocked else 0)


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


def _read(path: str) -> str:
    """The text of the file to lint; - is standard input."""
    try:
        data = sys.stdin.buffer.read(SIZE_LIMIT + 1) if path == "-" else _bytes(path)
    except IsADirectoryError:
        raise BadInput(f"{path}: a folder; accepted: a file. Try {os.path.join(path, 'Dockerfile')}.") from None
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput(f"{path}: {why}; accepted: a Dockerfile or a compose file.") from None
    if len(data) > SIZE_LIMIT:
        raise BadInput(f"{path}: larger than {SIZE_LIMIT >> 20} MiB; accepted: a Dockerfile or a compose file.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}: not text (byte {error.start} is not UTF-8); accepted: a Dockerfile or a compose file."
        ) from None
    if "\0" in text:
        raise BadInput(f"{path}: not text (it holds a NUL byte); accepted: a Dockerfile or a compose file.")
    return text


def _bytes(path: str) -> bytes:
    with open_given(path) as file:
        return file.read(SIZE_LIMIT + 1)


def _beside(path: str) -> str | None:
    """A Dockerfile that a compose file builds; None where it is not there."""
    try:
        return _bytes(path).decode("utf-8", "replace")
    except OSError:
        return None


def _shown(path: str) -> str:
    name = "standard input" if path == "-" else path
    return name if name.isprintable() else ascii(name)
