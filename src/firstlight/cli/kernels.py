"""`firstlight kernels`: which kernel path runs here and why; `kernels autotune` times every backend here."""

from __future__ import annotations

import importlib.util

import click

from firstlight.errors import CouldNotLook

_EPILOG = "Example: firstlight kernels autotune"


@click.group("kernels", invoke_without_command=True, epilog=_EPILOG, short_help="which kernel path runs here and why")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema firstlight.kernels/1).")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:  # noqa: FBT001 click's flag
    """Say which block-sparse kernel path runs on this machine, and why; nothing is measured.

    Exit code 0: a path runs (on the processor too); 4: torch is not installed, so there is nothing to ask.
    """
    if ctx.invoked_subcommand is not None:
        return
    _require_torch()
    from firstlight.kernels.here import kernels_here
    from firstlight.report.kernels_text import kernels_document, kernels_text

    here = kernels_here()
    if as_json:
        import json

        click.echo(json.dumps(kernels_document(here), indent=1))
    else:
        click.echo(kernels_text(here), nl=False)


@command.command(
    "autotune",
    epilog="Example: firstlight kernels autotune --budget 60 --dtype bfloat16",
    short_help="time every backend on this GPU, for auto to go by",
)
@click.option(
    "--budget", default=110.0, show_default=True, metavar="SECONDS", help="Stop after about this long; 1 or more."
)
@click.option("--device", default=0, show_default=True, metavar="N", help="Number of the GPU.")
@click.option("--dtype", type=click.Choice(["float16", "bfloat16", "float32"]), default="float16", show_default=True)
@click.option("--out", default="", metavar="FILE", help="Write here instead of the cache folder that auto reads.")
def autotune(budget: float, device: int, dtype: str, out: str) -> None:
    """Time every backend on this GPU for products and attention, over blocks, shapes, lengths and densities.

    The result is a file in the cache folder; backend="auto" goes by it from the next call on. Rows of earlier runs stay
    in it: of other types, and of cases that this run did not reach. Exit code 2: a budget below 1 second, or a file
    there that cannot be read back; 4: no GPU that a sparse kernel runs on.
    """
    _require_torch()
    from pathlib import Path

    from firstlight.bench.saving import DOCUMENT, writable
    from firstlight.kernels.autotune import autotune as measure
    from firstlight.report.kernels_text import tuned_text

    if out:
        writable(out, DOCUMENT)
    tuned = measure(
        budget_s=budget, dtype=dtype, device=device, path=Path(out) if out else None,
        say=lambda line: click.echo(line, err=True),
    )  # fmt: skip
    click.echo(tuned_text(tuned), nl=False)


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise CouldNotLook(
            "torch is not installed in this Python, so no kernel path runs here. "
            "`firstlight doctor` says which torch fits this machine."
        )
