"""`firstlight bench report`: a run to look at and to send, as one HTML file with the data inside."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from firstlight.bench.results import RunResult
    from firstlight.report.html.bench_page import BenchReport

SCHEMA = "firstlight.bench-report/1"
_EPILOG = "Example: firstlight bench report before.json after.json --out report.html"


@click.command("report", epilog=_EPILOG, short_help="runs to look at: one HTML file with charts and the data inside")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--out", default="", metavar="FILE",
              help="Where to write it; default: the last run's name with .html, here. -: stdout.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help=f"Print what the report says first (schema {SCHEMA}).")
def command(*, runs: tuple[str, ...], out: str, as_json: bool) -> None:
    """Write a report of the last RUN, compared with each one before it.

    RUN is a result file of `firstlight bench`, or a report made from one. The report is one file that needs no network:
    open it in a browser, print it, send it. `firstlight report --from FILE` takes the data out again.
    Exit code 0: written; 2: a file cannot be read or written.
    """
    from firstlight.bench.saving import PAGE, save, writable
    from firstlight.cli.written_over import refuse_as_output
    from firstlight.errors import BadInput
    from firstlight.report.html.bench_page import bench_report
    from firstlight.tables import load

    if as_json and out == "-":
        raise BadInput("--json and --out -: both print to stdout; name a file with --out.")
    where = out or _beside(runs[-1])
    if where != "-":
        refuse_as_output(where, [("", path) for path in runs])
        writable(where, PAGE)
    report = bench_report([run for path in runs for run in read_runs(path)], load())
    if where == "-":
        click.echo(report.text, nl=False)
        return
    save(where, report.text)
    click.echo(json.dumps(_document(report, where), indent=1) if as_json else _told(report, where), nl=as_json)


def read_runs(path: str) -> tuple[RunResult, ...]:
    """The runs of a result file, or of a report that was made from some."""
    from firstlight.bench.results import from_json, read_run

    if not path.lower().endswith((".html", ".htm")):
        return (read_run(path),)
    from firstlight.report.html.embedded import read_documents

    documents = read_documents(path)
    names = [path] if len(documents) == 1 else [f"{path}[{place}]" for place in range(len(documents))]
    return tuple(from_json(document, name) for document, name in zip(documents, names, strict=True))


def _beside(path: str) -> str:
    """'run.html' in the present folder for '/data/run.json'; a report is never written over by itself."""
    stem = os.path.splitext(os.path.basename(path))[0] or "bench"
    return f"{stem}-again.html" if path.lower().endswith((".html", ".htm")) else f"{stem}.html"


def _document(report: BenchReport, where: str) -> dict[str, Any]:
    from firstlight import __version__

    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "file": where,
        "bytes": len(report.text.encode("utf-8")),
        "verdict": report.judgement.sentence,
        "tone": report.judgement.tone.value,
        "look_at": [
            {"title": each.title, "saw": each.saw, "means": each.means, "speaks": each.weight.value}
            for each in report.judgement.things
        ],
        "compared": list(report.compared),
    }


def _told(report: BenchReport, where: str) -> str:
    from firstlight.report.layout import labelled

    lines = [f"{report.judgement.sentence}\n"]
    lines += [labelled("look at", (f"{each.title}: {each.saw}",)) for each in report.judgement.things]
    lines += [labelled("compared", (sentence,)) for sentence in report.compared]
    size = len(report.text.encode("utf-8")) / 1000
    return "".join([*lines, labelled("wrote", (f"{where} ({size:.0f} kB); open it in a browser",))])
