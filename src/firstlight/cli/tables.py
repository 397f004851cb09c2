"""`firstlight tables`: print the knowledge with its sources."""

from __future__ import annotations

import click

_EPILOG = "Examples: firstlight tables compat; firstlight tables error_texts --sources"


@click.command("tables", epilog=_EPILOG)
@click.argument("subject", required=False, default="", metavar="[SUBJECT]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema firstlight.tables/1).")
@click.option("--sources", is_flag=True, help="Print each row with its full source, date and note.")
def command(*, subject: str, as_json: bool, sources: bool) -> None:
    """Print what firstlight knows about drivers, CUDA, GPUs and torch, each row with its source.

    SUBJECT is a group (cuda, compat, gpu, systems, jetson, compilers, torch, companions, libraries, errors, settings,
    costs, builds), one table by name, or `all`. Without it: the list of tables.
    """
    import datetime

    from firstlight.diagnosis.error_table import printed_subjects, tables_with_errors
    from firstlight.tables.subjects import subjects_called

    tables, today, subjects = tables_with_errors(), datetime.date.today(), printed_subjects()
    chosen = subjects if subject in ("", "all") else subjects_called(subject, subjects)
    if as_json:
        import json

        from firstlight.tables.document import list_document, rows_document

        document = (rows_document if subject else list_document)(tables, chosen, today=today)
        click.echo(json.dumps(document, indent=2))
        return
    from firstlight.report.tables_text import list_text, rows_text, sourced_text

    if not subject:
        click.echo(list_text(tables, chosen, today=today), nl=False)
    elif sources:
        click.echo(sourced_text(tables, chosen, width=_width()), nl=False)
    else:
        click.echo(rows_text(tables, chosen, width=_width(), today=today), nl=False)


def _width() -> int:
    """Columns to print in: the terminal's, at most 100; 100 into a pipe."""
    import shutil

    return max(60, min(100, shutil.get_terminal_size(fallback=(100, 24)).columns))
