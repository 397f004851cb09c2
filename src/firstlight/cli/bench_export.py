"""`firstlight bench export`: a run in the format that a CI system, a dashboard or another tool reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from firstlight.bench.results import RunResult
    from firstlight.bench.saving import Form
    from firstlight.report.exports import Format

# As report/exports.py has them; a test holds the two together. Listed here so that --help imports nothing.
FORMATS = ("pytest-benchmark", "github-action-benchmark", "openmetrics", "junit")
_EPILOG = "Example: firstlight bench export run.json --to junit --out bench.xml"


@click.command("export", epilog=_EPILOG, short_help="a run for CI and dashboards: pytest-benchmark, OpenMetrics, JUnit")
@click.argument("run_file", metavar="RUN")
@click.option("--to", "wanted", required=True, type=click.Choice(FORMATS), help="The format to write.")
@click.option("--out", default="", metavar="FILE", help="Write to FILE instead of printing.")
@click.option("--json", "as_json", is_flag=True,
              help="Print what was exported and left out as JSON (schema firstlight.export/1).")  # fmt: skip
def command(*, run_file: str, wanted: str, out: str, as_json: bool) -> None:
    """Write a result file of `firstlight bench` in the format of another tool.

    \b
    pytest-benchmark         the file that `pytest-benchmark compare` reads
    github-action-benchmark  for its tool customSmallerIsBetter: median times in us
    openmetrics              for Prometheus, or node_exporter's textfile collector
    junit                    what CI systems show; fails where bench would have failed

    Numbers of cases that failed, were disturbed or are impossible are left out; JUnit and OpenMetrics name the cases.
    Exit code 0: exported; 2: the file is not a run, cannot be written, or holds no case to export; for the first two
    formats also where no case has a figure.
    """
    import json

    from firstlight.bench.results import read_run
    from firstlight.bench.saving import save, writable
    from firstlight.report.exports import Format, export_document, exported

    run, target = read_run(run_file), Format(wanted)
    _require_figures(run, target, run_file=run_file)
    if out:
        writable(out, _form(target))
    text = exported(run, target)
    if out:
        save(out, text)
    click.echo(f"firstlight: {_told(run, out)}", err=True)
    if as_json:
        click.echo(json.dumps(export_document(run, target, text=text, out=out), indent=1))
    elif not out:
        click.echo(text, nl=False)


def _form(target: Format) -> Form:
    from firstlight.bench import saving
    from firstlight.report.exports import Format

    return {
        Format.PYTEST_BENCHMARK: saving.PYTEST_BENCHMARK,
        Format.GITHUB_ACTION_BENCHMARK: saving.ENTRIES,
        Format.OPENMETRICS: saving.METRICS,
        Format.JUNIT: saving.JUNIT,
    }[target]


def _require_figures(run: RunResult, target: Format, *, run_file: str) -> None:
    from firstlight.errors import BadInput
    from firstlight.report.exports import NEED_FIGURES
    from firstlight.report.exports_rows import counted, left_out, rows

    if not run.cases:
        raise BadInput(f"{run_file}: holds no case, so there is nothing to export. Give a run that measured something.")
    if target in NEED_FIGURES and not rows(run):
        found = counted(left_out(run))
        raise BadInput(
            f"{run_file}: holds no figure to export ({found}), and {target.value} takes one at least. "
            f"To see why: firstlight bench export {run_file} --to junit"
        )


def _told(run: RunResult, out: str) -> str:
    """'wrote bench.xml: 108 figures of 91 cases; without numbers: 6 skipped'."""
    from firstlight.report.exports_rows import counted, left_out, rows

    shown = rows(run)
    cases = len({(row.case.id, row.case.gpu) for row in shown})
    figures = f"{_many(len(shown), 'figure')} of {_many(cases, 'case')}"
    parts = [f"wrote {out}: {figures}" if out else figures]
    if left := counted(left_out(run)):
        parts.append(f"without numbers: {left}")
    if run.run.interrupted:
        parts.append("the run was broken off")
    return "; ".join(parts)


def _many(count: int, word: str) -> str:
    return f"1 {word}" if count == 1 else f"{count} {word}s"
