"""`firstlight plan`: the chosen option as exact commands and diffs; changes nothing."""

from __future__ import annotations

import enum
import json
from typing import Any

import click

from firstlight.cli.looking import look_options
from firstlight.cli.planning import Ranking, Wanted, facts_of, plan_of, plan_options, ranking_of
from firstlight.errors import BadInput
from firstlight.facts.look import Look


class _Form(enum.Enum):
    TEXT = "text"
    JSON = "json"


@click.command(
    short_help="what to do: one option as exact commands and diffs; changes nothing",
    epilog='Example: firstlight plan --want "torch==2.9.0+cu130" --option 2',
)
@plan_options
@click.option("--options", "all_options", is_flag=True, help="Print every option, ranked, and those that cannot work.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan (schema firstlight.plan/1).")
@look_options
def command(look: Look, wanted: Wanted, **given: Any) -> None:
    """Look, rank the ways out, and print one of them as the exact commands and diffs that would be run.

    Nothing is changed. The same machine and the same request give the same plan and the same digest. Paths are those
    of this machine, so that commands can be pasted. Exit code 0: a plan, or nothing to do; 1: no option can work here.
    """
    if given["all_options"] and wanted.option:
        raise BadInput(
            f"--options and --option {wanted.option} were both given; --options lists all of them, --option takes one. "
            "Leave one out."
        )
    ranking = ranking_of(facts_of(look), wanted)
    form = _Form.JSON if given["as_json"] else _Form.TEXT
    if given["all_options"]:
        _print_options(ranking, form=form)
    elif not ranking.ranked.options and not wanted.option:
        _print_nothing(ranking, form=form)
    else:
        _print_plan(look, ranking, wanted, form=form)


def _print_options(ranking: Ranking, *, form: _Form) -> None:
    if form is _Form.JSON:
        from firstlight.report.options_json import options_document

        click.echo(json.dumps(options_document(ranking.ranked), indent=1))
    else:
        from firstlight.report.options_text import options_text

        click.echo(options_text(ranking.ranked), nl=False)
    click.get_current_context().exit(0 if ranking.ranked.options else 1)


def _print_plan(look: Look, ranking: Ranking, wanted: Wanted, *, form: _Form) -> None:
    plan = plan_of(look, ranking, wanted)
    if form is _Form.JSON:
        from firstlight.report.plan_json import plan_document

        click.echo(json.dumps(plan_document(ranking.question, plan, ranking.ranked), indent=1))
    else:
        from firstlight.report.plan_text import plan_text

        click.echo(plan_text(ranking.question, plan, ranking.ranked), nl=False)


def _print_nothing(ranking: Ranking, *, form: _Form) -> None:
    if form is _Form.JSON:
        from firstlight.report.plan_json import no_plan_document

        click.echo(json.dumps(no_plan_document(ranking.question, ranking.ranked), indent=1))
    else:
        from firstlight.report.plan_text import no_plan_text

        click.echo(no_plan_text(ranking.question, ranking.ranked), nl=False)
    click.get_current_context().exit(1)
