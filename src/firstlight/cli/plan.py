"""`firstlight plan`: the chosen option as exact commands and file changes; changes nothing."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from typing import Any

import click
from click.core import ParameterSource

from firstlight.cli.host_option import host_option, refuse_by_sh
from firstlight.cli.looking import look_options
from firstlight.cli.planning import Ranking, Wanted, facts_of, plan_of, plan_options, ranking_of, sized_by_indexes
from firstlight.cli.printing import tell
from firstlight.errors import BadInput
from firstlight.facts.look import Look
from firstlight.report.plan_text import Files
from firstlight.ways.platform import platform_of


class _Form(enum.Enum):
    TEXT = "text"
    JSON = "json"


@click.command(
    short_help="what to do: one option as exact commands and file changes; changes nothing",
    epilog='Example: firstlight plan --want "torch==2.9.0+cu130" --option 2',
)
@plan_options
@click.option("--options", "all_options", is_flag=True, help="Print every option, ranked, and those that cannot work.")
@click.option("--diff", "diff", is_flag=True, help="Print every file that is written or changed as a diff.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan (schema firstlight.plan/2).")
@look_options
@host_option
def command(look: Look, wanted: Wanted, **given: Any) -> None:
    """Look, rank the ways out, and print one of them as the exact commands and file changes.

    Nothing is changed. The same machine and the same request give the same plan and the same digest. Paths are those
    of this machine, so that commands can be pasted. Exit code 0: a plan, or nothing to do; 1: no option can work here.
    """
    if given["all_options"] and wanted.option:
        raise BadInput(
            f"--options and --option {wanted.option} were both given; --options lists all of them, --option takes one. "
            "Leave one out."
        )
    if given["all_options"] and given["diff"]:
        raise BadInput(
            "--options and --diff were both given; --options lists ways out, --diff prints the files of one. Leave "
            "--options out, and name the option with --option."
        )
    refuse_by_sh(look, "a plan")
    ranking = sized_by_indexes(ranking_of(facts_of(look), wanted, look), wanted, look)
    form = _Form.JSON if given["as_json"] else _Form.TEXT
    if given["all_options"]:
        _print_options(ranking, form=form)
    elif not ranking.ranked.options and not wanted.option:
        _print_nothing(ranking, form=form)
    else:
        files = Files.DIFF if given["diff"] else Files.FOLDED
        _print_plan(look, ranking, wanted, form=form, files=files)


def _given_words() -> Iterator[str]:
    """The options of this call as they were given, for a call that means the same machine."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        if option.name is None or ctx.get_parameter_source(option.name) is not ParameterSource.COMMANDLINE:
            continue
        value = ctx.params[option.name]
        for each in value if isinstance(value, tuple) else (value,):
            yield max(option.opts, key=len)
            if each is not True:
                yield str(each)


def _print_options(ranking: Ranking, *, form: _Form) -> None:
    if form is _Form.JSON:
        from firstlight.report.options_json import options_document

        click.echo(json.dumps(options_document(ranking.ranked), indent=1))
    else:
        from firstlight.report.options_text import options_text

        tell(options_text(ranking.ranked, platform_of(ranking.question.facts)))
    click.get_current_context().exit(0 if ranking.ranked.options else 1)


def _print_plan(look: Look, ranking: Ranking, wanted: Wanted, *, form: _Form, files: Files) -> None:
    plan = plan_of(look, ranking, wanted)
    if form is _Form.JSON:
        from firstlight.report.plan_json import plan_document

        click.echo(json.dumps(plan_document(ranking.question, plan, ranking.ranked), indent=1))
    else:
        from firstlight.report.plan_text import plan_text

        diff = ("firstlight", "plan", *(_given_words() if look.is_elsewhere else ()), "--diff")
        tell(plan_text(ranking.question, plan, ranking.ranked, files=files, diff=diff))


def _print_nothing(ranking: Ranking, *, form: _Form) -> None:
    if form is _Form.JSON:
        from firstlight.report.plan_json import no_plan_document

        click.echo(json.dumps(no_plan_document(ranking.question, ranking.ranked), indent=1))
    else:
        from firstlight.report.plan_text import no_plan_text

        click.echo(no_plan_text(ranking.question, ranking.ranked), nl=False)
    click.get_current_context().exit(1)
