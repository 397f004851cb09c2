"""`firstlight bench my_kernels.py`, `firstlight bench axpy.cu`: cases of the user's own, timed and judged like ours."""

from __future__ import annotations

from typing import Any

import click

_EPILOG = "Example: firstlight bench my_kernels.py --effort quick --out mine.json"
_INHERITED = ("effort", "only", "lists", "device", "out", "style", "strict", "baseline", "estimate")


@click.command("FILE", epilog=_EPILOG, short_help="cases of your own, from a .py or .cu file")
@click.option("--effort", type=click.Choice(["quick", "standard", "rigorous"]), default="standard", show_default=True,
              help="How long each case is timed: as for the suite.")  # fmt: skip
@click.option("--only", default="", metavar="PATTERN,..", help="Starts of ids or patterns: user/axpy, *fp16*.")
@click.option("--list", "lists", is_flag=True, help="Print the ids of the cases and stop.")
@click.option("--device", default="cuda:0", show_default=True, help="cuda:0 (or another number), all, or cpu.")
@click.option("--out", default="", metavar="FILE", help="Write the result (schema firstlight.bench/1) to FILE.")
@click.option("--json", "style", flag_value="json", help="Print the result document.")
@click.option("--markdown", "style", flag_value="markdown", help="Print tables for a report.")
@click.option("--csv", "style", flag_value="csv", help="Print one line per figure.")
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse to measure on a shared GPU or a busy processor; with --baseline, unclear is a failure.",
)
@click.option("--baseline", default="", metavar="FILE", help="Compare with an earlier result; exit 1 when slower.")
@click.pass_context
def command(ctx: click.Context, /, **typed: Any) -> None:
    """Measure the cases of your own file with the stopwatch and the limits of the suite.

    The file is Python that defines CASES (docs/bench-cases.md has one to copy) and is run in this process: give it only
    files that you trust. A .cu file is described by the .py file of the same name beside it, and is compiled by nvcc
    for the GPU at hand. A case whose result is wrong, or whose time a guard does not trust, fails with the reason.
    Exit codes as for `firstlight bench`.
    """
    from firstlight.bench.case import Effort
    from firstlight.bench.choice import Choice, chosen
    from firstlight.bench.place import ASSUMED, device_names, import_torch
    from firstlight.bench.user_cases.build import user_suite
    from firstlight.bench.user_cases.load import description
    from firstlight.cli.bench import keep_what_is_read, measure

    given = _merged(ctx, typed)
    if given["estimate"]:
        raise click.UsageError(
            "--estimate is for the suite: how long your cases take is not known before they ran.", ctx
        )
    keep_what_is_read({**given, "file": str(ctx.info_name)})
    description(str(ctx.info_name))  # a file that is not there is to blame before a torch that is not
    import_torch()
    if not given["lists"]:
        device_names(given["device"])  # a device that is not there is said before a line of the file is run
    suite = user_suite(str(ctx.info_name))
    only = tuple(part.strip() for part in given["only"].split(",") if part.strip())
    choice = Choice(Effort(given["effort"]), only)
    if given["lists"]:
        for case in chosen(suite(ASSUMED), choice):
            click.echo(case.id)
        return
    ctx.exit(measure(choice, {**given, "suite": suite, "file": str(ctx.info_name), "no_compile": False}))


def _merged(ctx: click.Context, typed: dict[str, Any]) -> dict[str, Any]:
    """The options, whether they were typed before the file or behind it."""
    from click.core import ParameterSource

    before = ctx.parent.params if ctx.parent is not None else {}
    merged = {"estimate": False, **typed}
    for name in _INHERITED:
        if ctx.get_parameter_source(name) in (None, ParameterSource.DEFAULT) and name in before:
            merged[name] = before[name]
    return merged
