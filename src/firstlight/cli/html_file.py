"""Writing a page to a file: known to be possible beforehand, whole or not at all, and said on stderr."""

from __future__ import annotations

import click


def html_can_be_written(path: str) -> None:
    """Refuse a path that could not be written later, before anything is looked at."""
    from firstlight.bench.saving import PAGE, writable

    writable(path, PAGE, option="--html")


def write_html(path: str, text: str) -> None:
    """Write the page and say where it is."""
    from firstlight.bench.saving import save

    data = text.encode("utf-8", "backslashreplace")  # a file's name that is no UTF-8 has halves of letters
    save(path, data.decode("utf-8"), option="--html")
    click.echo(f"firstlight: wrote {path} ({len(data) / 1000:.0f} kB); open it in a browser", err=True)
