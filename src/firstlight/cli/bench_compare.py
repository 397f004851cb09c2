"""`firstlight bench compare`: did anything become slower."""

from __future__ import annotations

import click

_EPILOG = "Example: firstlight bench compare before.json after.json --margin 5%"


@click.command("compare", epilog=_EPILOG, short_help="two runs: what became slower or faster, and what caused it")
@click.argument("base", metavar="BASE")
@click.argument("new", metavar="NEW")
@click.option("--margin", default="3%", show_default=True, help="Changes up to this size do not matter.")
@click.option("--again", default="", metavar="FILE",
              help="A second new run of the unclear or changed cases: changes must be confirmed by it.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Exit 1 also when a figure is unclear or was not compared.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema firstlight.compare/1).")
def command(*, base: str, new: str, margin: str, again: str, strict: bool, as_json: bool) -> None:
    """Compare two result files of `firstlight bench`.

    A change counts when it is above the margin and zero lies outside the 95 % interval over passes; verdicts hold for
    the whole suite, not for each case alone. Burst and sustained figures are never mixed, and a figure that is not
    steady gets no verdict. Exit code 0: no regression among the figures with a verdict; 1: slower, or a case of the
    new run is broken; 2: a file cannot be read; 3: the runs cannot be compared (another GPU, other data, another way
    of counting), or not one figure is clear.
    """
    import json

    from firstlight.bench.compare import Strictness, compare_runs, exit_code
    from firstlight.bench.results import read_run
    from firstlight.bench.second_look import with_second_look
    from firstlight.report.bench_compare_text import compare_document, compare_text

    share = _share(margin)
    first, second = read_run(base), read_run(new)
    comparison = compare_runs(first, second, margin=share)
    if again and not comparison.refused:
        comparison = with_second_look(comparison, compare_runs(first, read_run(again), margin=share))
    code = exit_code(comparison, Strictness.STRICT if strict else Strictness.LENIENT)
    if as_json:
        click.echo(json.dumps(compare_document(comparison, first, second, code), indent=1))
    else:
        repeat = ("firstlight", "bench", "compare", base, new)
        chosen = () if margin == "3%" else ("--margin", margin)
        repeat = (*repeat, *chosen, *(("--strict",) if strict else ()))
        click.echo(compare_text(comparison, first, second, code, again=repeat), nl=False)
    click.get_current_context().exit(code)


def _share(text: str) -> float:
    """0.03 from '3%', '3 %' or '0.03'."""
    import re

    from firstlight.errors import BadInput

    match = re.fullmatch(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*(%?)\s*", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share < 1:
        raise BadInput(f"--margin {text!a}: accepted: a share above 0 and below 100 %, e.g. 3% or 0.03")
    return share
