"""`firstlight bench report`: a run to look at and to send, as one HTML file with the data inside."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from firstlight.bench.results import RunResult
    from firstlight.bench.slow_gpus import JudgedGpus
    from firstlight.report.host_names import HostNames
    from firstlight.report.html.bench_page import BenchReport
    from firstlight.report.html.fleet_bench_page import FleetBenchPage

SCHEMA = "firstlight.bench-report/1"
_EPILOG = "Example: firstlight bench report before.json after.json --out report.html"


@click.command("report", epilog=_EPILOG, short_help="runs to look at: one HTML file with charts and the data inside")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--out", default="", metavar="FILE",
              help="Where to write it; default: the last run's name with .html, here. -: stdout.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help=f"Print what the report says first (schema {SCHEMA}).")
@click.option("--identify", is_flag=True, help="Of the folder of a run of `fleet bench`: keep real names of hosts.")
def command(*, runs: tuple[str, ...], out: str, as_json: bool, identify: bool) -> None:
    """Write a report of the last RUN, compared with each one before it.

    RUN is a result file of `firstlight bench`, or a report made from one; or, alone, the folder of a run of `firstlight
    fleet bench`: which GPUs are slow, and one chart a host. The report is one file that needs no network: open it in a
    browser, print it, send it. `firstlight report --from FILE` takes the data out again.
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
    if any(os.path.isdir(path) for path in runs):
        _of_fleet(runs, where, as_json=as_json, identify=identify)
        return
    if identify:
        raise BadInput("--identify: only the folder of a run of `fleet bench` has hosts to name; leave it out")
    report = bench_report([run for path in runs for run in read_runs(path)], load())
    if where == "-":
        click.echo(report.text, nl=False)
        return
    save(where, report.text)
    click.echo(json.dumps(_document(report, where), indent=1) if as_json else _told(report, where), nl=as_json)


def _of_fleet(runs: tuple[str, ...], where: str, *, as_json: bool, identify: bool) -> None:
    """The page of a run of `fleet bench`, under pseudonyms unless names are asked for."""
    from firstlight.bench.saving import save
    from firstlight.errors import BadInput
    from firstlight.fleet.measurements import host_folders, is_run_folder, judged_folder
    from firstlight.report.host_names import pseudonyms_for, real_names
    from firstlight.report.html.fleet_bench_page import fleet_bench_page
    from firstlight.tables import load

    folder = next(path for path in runs if os.path.isdir(path)).rstrip("/")
    if len(runs) > 1:
        raise BadInput(
            f"{folder} is a folder; accepted are result files, or one folder of a run of `fleet bench` alone"
        )
    if not is_run_folder(folder):
        raise BadInput(
            f"{folder} is not the folder of a run of `fleet bench`; `firstlight fleet status` prints where it is"
        )
    hosts = host_folders(folder)
    judged = judged_folder(folder, load(), {host: host for host in hosts})
    if not judged.gpus:
        raise BadInput(f"{folder}: no GPU was measured there; `firstlight fleet status` says what became of its hosts")
    names = real_names(hosts) if identify else pseudonyms_for(hosts)
    page = fleet_bench_page(judged, names, made=_begun(folder))
    if where == "-":
        click.echo(page.text, nl=False)
        return
    save(where, page.text)
    if as_json:
        click.echo(json.dumps(_fleet_document(page, judged, names, where), indent=1))
        return
    from firstlight.report.layout import labelled

    size = len(page.text.encode("utf-8")) / 1000
    click.echo(f"{page.sentence}\n" + labelled("wrote", (f"{where} ({size:.0f} kB); open it in a browser",)), nl=False)


def _begun(folder: str) -> str:
    """When the run was begun: its id begins with that; "" where the folder was called otherwise."""
    import time

    try:
        begun = time.strptime(os.path.basename(folder)[:16], "%Y%m%dT%H%M%SZ")
    except ValueError:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", begun)


def _fleet_document(page: FleetBenchPage, judged: JudgedGpus, names: HostNames, where: str) -> dict[str, Any]:
    from firstlight import __version__
    from firstlight.report.fleet_gpus_text import low_sentence

    return {
        "schema": SCHEMA,
        "made_by": f"firstlight {__version__}",
        "file": where,
        "bytes": len(page.text.encode("utf-8")),
        "verdict": page.sentence,
        "tone": page.tone,
        "look_at": [
            {
                "title": f"{names[gpu.host]} {gpu.device} is slow",
                "saw": low_sentence(gpu),
                "means": "; ".join(f"{each.why.value}: {each.saw}" for each in gpu.causes),
                "speaks": "against",
            }
            for gpu in judged.slow
        ],
        "compared": [],
    }


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
        **report.judgement.to_dict(),
        "compared": list(report.compared),
    }


def _told(report: BenchReport, where: str) -> str:
    from firstlight.report.layout import labelled

    lines = [f"{report.judgement.sentence}\n"]
    lines += [labelled("look at", (f"{each.title}: {each.saw}",)) for each in report.judgement.things]
    lines += [labelled("compared", (sentence,)) for sentence in report.compared]
    size = len(report.text.encode("utf-8")) / 1000
    return "".join([*lines, labelled("wrote", (f"{where} ({size:.0f} kB); open it in a browser",))])
