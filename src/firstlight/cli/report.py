"""`firstlight report`: the data of an HTML report, taken out again."""

from __future__ import annotations

import json

import click

from firstlight.errors import BadInput
from firstlight.visible import one_line

# what earlier versions wrote -> what is written now, and the command that writes it
_FORMER = {"firstlight.diagnosis/1": ("firstlight.diagnosis/2", "firstlight doctor --html")}


@click.command(
    short_help="take the data out of an HTML report",
    epilog="Example: firstlight report --from bench.html --out bench.json",
)
@click.option(
    "--from", "source", metavar="FILE", required=True, help="A report: of bench report, doctor, libs or handover."
)
@click.option("--number", type=click.IntRange(min=1), default=None, metavar="N",
              help="Which document, where the report holds several; --list names them.")  # fmt: skip
@click.option("--list", "lists", is_flag=True, help="Say which documents are in it, and stop.")
@click.option("--out", default="", metavar="FILE", help="Write the document to FILE instead of printing it.")
@click.option("--json", "as_json", is_flag=True, help="Accepted for symmetry: a document is always JSON.")
def command(*, source: str, number: int | None, lists: bool, out: str, as_json: bool) -> None:
    """Print the JSON document that a report holds; it is the one that the report was made from.

    Exit code 0: printed; 2: the file is not a report of firstlight, or does not hold that document.
    """
    from firstlight.report.html.embedded import read_documents

    documents = read_documents(source)
    _refuse_former(documents, source)
    if lists:
        for place, document in enumerate(documents, 1):
            click.echo(f"{place}  {_title(document)}")
        return
    if number is None and len(documents) > 1:
        raise BadInput(
            f"{source}: {len(documents)} documents are in it; say which: --number 1 to {len(documents)} "
            "(--list names them)"
        )
    if (number or 1) > len(documents):
        raise BadInput(f"--number {number}: {source} holds {len(documents)}; accepted: 1 to {len(documents)}")
    text = json.dumps(documents[(number or 1) - 1], indent=1)
    if not out:
        click.echo(text)
        return
    from firstlight.bench.saving import DOCUMENT, save, writable

    writable(out, DOCUMENT)
    save(out, f"{text}\n")
    click.echo(f"firstlight: wrote {out}", err=True)


def _refuse_former(documents: tuple[dict[str, object], ...], source: str) -> None:
    """A document whose form has changed since is not handed on: who reads it next would miss what it asks for."""
    for document in documents:
        former = document.get("schema")
        if isinstance(former, str) and former in _FORMER:
            now, again = _FORMER[former]
            raise BadInput(
                f"{source}: it holds {former}; this firstlight reads {now}. Make the page again on that machine: "
                f"{again} FILE. The firstlight that wrote the page still reads it."
            )


def _title(document: dict[str, object]) -> str:
    """'firstlight.bench/1, run 20261115T061544Z-d5b507 of 2026-11-15T06:15:44Z'; escaped, it comes from a file."""
    run = document.get("run")
    if isinstance(run, dict):
        what = f"run {run.get('id')} of {run.get('started')}"
    else:
        what = f"of {document.get('collected_at') or document.get('made_by')}"
    shown = f"{document.get('schema')}, {what}"
    return one_line(shown)[:200]
