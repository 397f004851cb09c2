"""`firstlight plan`: the chosen option as exact commands and diffs; changes nothing."""

from __future__ import annotations

import enum
import json
from dataclasses import replace
from typing import Any

import click

from firstlight.cli.looking import look_options, look_patiently
from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wanted import with_wanted
from firstlight.errors import BadInput
from firstlight.facts.known import Fact, Known
from firstlight.facts.look import Look, Names
from firstlight.plan.options import rank_options
from firstlight.plan.request import NO_RATE, Ranked, Request
from firstlight.plan.want import Channel, Want, parse_wants
from firstlight.tables import Tables, load

_GOALS = click.Choice([goal.value for goal in Goal])
_CHANNELS = click.Choice([channel.value for channel in Channel])


class _Form(enum.Enum):
    TEXT = "text"
    JSON = "json"


@click.command(
    short_help="what to do: one option as exact commands and diffs; changes nothing",
    epilog='Example: firstlight plan --want "torch==2.9.0+cu130" --option 2',
)
@click.option(
    "--option", "option", metavar="ID|N", default="", help="Plan this option: its id, or its place (1: best)."
)
@click.option("--options", "all_options", is_flag=True, help="Print every option, ranked, and those that cannot work.")
@click.option("--want", "wants", metavar="SPEC", multiple=True,
              help='What is wanted, e.g. "torch==2.9.0+cu130" or "vllm"; repeated: all of it together.')  # fmt: skip
@click.option("--goal", type=_GOALS, default=Goal.INFER.value, show_default=True, help="What the machine is for.")
@click.option("--channel", type=_CHANNELS, default=Channel.STABLE.value, show_default=True, help="Where torch is from.")
@click.option(
    "--rate", type=float, default=None, metavar="MONEY", help="What an hour of this machine costs, e.g. 2.69."
)
@click.option("--tuning", "tuning", metavar="NAME=VALUE", multiple=True,
              help="Also write this runtime setting; 'all' for those that are suggested.")  # fmt: skip
@click.option("--checkout", "checkouts", metavar="PROJECT@TAG", multiple=True,
              help="Also fetch a source tree at its commit, e.g. cutlass@v4.2.1.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the plan (schema firstlight.plan/1).")
@look_options
def command(look: Look, option: str, **given: Any) -> None:
    """Look, rank the ways out, and print one of them as the exact commands and diffs that would be run.

    Nothing is changed. The same machine and the same request give the same plan and the same digest. Paths are those
    of this machine, so that commands can be pasted. Exit code 0: a plan, or nothing to do; 1: no option can work here.
    """
    tables = load()
    request = _request(given["wants"], given["goal"], channel=given["channel"], rate=given["rate"])
    extra = (given["tuning"], given["checkouts"])
    _check_extras(tables, *extra)
    question = _question(look, tables, request)
    ranked = rank_options(question, judge(question, RULES), request)
    form = _Form.JSON if given["as_json"] else _Form.TEXT
    if given["all_options"]:
        _print_options(ranked, form=form)
    else:
        _print_plan(look, question, ranked, option=option, extra=extra, form=form)


def _request(wants: tuple[str, ...], goal: str, *, channel: str, rate: float | None) -> Request:
    """The request as the planner takes it; a rate that is no price is refused."""
    price: Fact[float] = NO_RATE
    if rate is not None:
        if not 0 <= rate < 1_000_000:
            raise BadInput(f"--rate {rate}: accepted is the price of an hour, e.g. --rate 2.69.")
        price = Known(rate, "--rate")
    return Request(wants=parse_wants(wants), goal=Goal(goal), channel=Channel(channel), rate=price)


def _check_extras(tables: Tables, tuning: tuple[str, ...], checkouts: tuple[str, ...]) -> None:
    """Refuse a setting or a tree that is not known before the machine is looked at."""
    from firstlight.plan.checkouts import parse_checkout
    from firstlight.plan.tuning import parse_settings

    parse_settings(tuning, tables)
    for text in checkouts:
        parse_checkout(text, tables)


def _question(look: Look, tables: Tables, request: Request) -> Question:
    """The machine as it would be with the wanted torch; real names on a live one: its commands must work there."""
    facts = look_patiently(look if look.facts_file else replace(look, names=Names.REAL))
    torch = tuple(_exactly(want) for want in request.wants if want.project == "torch" and want.exact)
    wants = tuple(want.text for want in request.wants)
    return Question(with_wanted(facts, tables, torch), tables, request.goal, wants)


def _exactly(want: Want) -> str:
    return f"{want.project}=={want.exact}" + (f"+{want.local}" if want.local else "")


def _print_options(ranked: Ranked, *, form: _Form) -> None:
    if form is _Form.JSON:
        from firstlight.report.options_json import options_document

        click.echo(json.dumps(options_document(ranked), indent=1))
    else:
        from firstlight.report.options_text import options_text

        click.echo(options_text(ranked), nl=False)
    click.get_current_context().exit(0 if ranked.options else 1)


def _print_plan(
    look: Look,
    question: Question,
    ranked: Ranked,
    *,
    option: str,
    extra: tuple[tuple[str, ...], tuple[str, ...]],
    form: _Form,
) -> None:
    from firstlight.cli.plan_files import extras_of, machine_looked_at
    from firstlight.plan.checkouts import parse_checkout
    from firstlight.plan.plan import choose, plan_for
    from firstlight.plan.tuning import parse_settings

    if not ranked.options and not option:
        _print_nothing(question, ranked, form=form)
        return
    settings = parse_settings(extra[0], question.tables)
    trees = tuple(parse_checkout(text, question.tables) for text in extra[1])
    extras = extras_of(machine_looked_at(look), question, settings=settings, checkouts=trees)
    plan = plan_for(question, choose(ranked, option), extras=extras)
    if form is _Form.JSON:
        from firstlight.report.plan_json import plan_document

        click.echo(json.dumps(plan_document(question, plan, ranked), indent=1))
    else:
        from firstlight.report.plan_text import plan_text

        click.echo(plan_text(question, plan, ranked), nl=False)


def _print_nothing(question: Question, ranked: Ranked, *, form: _Form) -> None:
    if form is _Form.JSON:
        from firstlight.report.plan_json import no_plan_document

        click.echo(json.dumps(no_plan_document(question, ranked), indent=1))
    else:
        from firstlight.report.plan_text import no_plan_text

        click.echo(no_plan_text(question, ranked), nl=False)
    click.get_current_context().exit(1)
