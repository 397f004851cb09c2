"""From options on a command line to a plan: what `plan` prints and `apply` does is made here, once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from firstlight.cli.looking import look_patiently
from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wanted import with_wanted
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known
from firstlight.facts.look import Look, Names
from firstlight.frozen import dataclass
from firstlight.plan.building import environment_to_change, interpreter_of
from firstlight.plan.extras import Checkout, Setting
from firstlight.plan.options import rank_options
from firstlight.plan.plan import Plan, choose, plan_for
from firstlight.plan.request import NO_RATE, Ranked, Request
from firstlight.plan.shelf import Shelf
from firstlight.plan.want import Channel, Want, parse_wants
from firstlight.tables import Tables, load

_GOALS = click.Choice([goal.value for goal in Goal])
_OPTIONS = ("option", "wants", "goal", "channel", "rate", "tuning", "checkouts")
_CHANNELS = click.Choice([channel.value for channel in Channel])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a command line asks for: the request, the option chosen of the ranking, and what comes besides."""

    request: Request
    option: str  # an id or a place in the ranking; "" = the best
    settings: tuple[Setting, ...]
    checkouts: tuple[Checkout, ...]
    tables: Tables


@dataclass(frozen=True, slots=True)
class Ranking:
    """The machine as it would be with what is wanted, and the ways to get there."""

    question: Question
    ranked: Ranked


def plan_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --option, --want, --goal, --channel, --rate, --tuning and --checkout; the verb receives `wanted: Wanted`."""

    @functools.wraps(function)
    def with_wanted_(*context: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in _OPTIONS}
        return function(*context, wanted=_wanted(own), **given)

    for option in (
        click.option("--checkout", "checkouts", metavar="PROJECT@TAG", multiple=True,
                     help="Also fetch a source tree at its commit, e.g. cutlass@v4.2.1."),
        click.option("--tuning", "tuning", metavar="NAME=VALUE", multiple=True,
                     help="Also write this runtime setting; 'all' for those that are suggested."),
        click.option("--rate", type=float, default=None, metavar="MONEY",
                     help="What an hour of this machine costs, e.g. 2.69."),
        click.option("--channel", type=_CHANNELS, default=Channel.STABLE.value, show_default=True,
                     help="Where torch is from."),
        click.option("--goal", type=_GOALS, default=Goal.INFER.value, show_default=True,
                     help="What the machine is for."),
        click.option("--want", "wants", metavar="SPEC", multiple=True,
                     help='What is wanted, e.g. "torch==2.9.0+cu130" or "vllm"; repeated: all of it together.'),
        click.option("--option", "option", metavar="ID|N", default="",
                     help="Take this option: its id, or its place (1: best)."),
    ):  # fmt: skip
        with_wanted_ = option(with_wanted_)
    return with_wanted_


def _wanted(own: dict[str, Any]) -> Wanted:
    """Refuses what is not known before the machine is looked at."""
    from firstlight.plan.checkouts import parse_checkout
    from firstlight.plan.tuning import parse_settings

    tables = load()
    request = Request(
        # Another channel is another torch: without a want for one, the channel's own is meant.
        wants=parse_wants(own["wants"] if own["channel"] == Channel.STABLE.value else (*own["wants"], "torch")),
        goal=Goal(own["goal"]),
        channel=Channel(own["channel"]),
        rate=_price(own["rate"]),
    )
    trees = tuple(parse_checkout(text, tables) for text in own["checkouts"])
    return Wanted(request, own["option"], parse_settings(own["tuning"], tables), trees, tables)


def _price(rate: float | None) -> Fact[float]:
    if rate is None:
        return NO_RATE
    if not 0 <= rate < 1_000_000:
        raise BadInput(f"--rate {rate}: accepted is the price of an hour, e.g. --rate 2.69.")
    return Known(rate, "--rate")


def facts_of(look: Look) -> Facts:
    """The facts to plan with; real names on a live machine: its commands must work there."""
    return look_patiently(look if look.facts_file else replace(look, names=Names.REAL))


def ranking_of(facts: Facts, wanted: Wanted) -> Ranking:
    """Every way to get what is wanted on this machine, best first."""
    torch = tuple(_exactly(want) for want in wanted.request.wants if want.project == "torch" and want.exact)
    wants = tuple(want.text for want in wanted.request.wants)
    question = Question(with_wanted(facts, wanted.tables, torch), wanted.tables, wanted.request.goal, wants)
    return Ranking(question, rank_options(question, judge(question, RULES), wanted.request))


def _exactly(want: Want) -> str:
    return f"{want.project}=={want.exact}" + (f"+{want.local}" if want.local else "")


def plan_of(look: Look, ranking: Ranking, wanted: Wanted, *, shelf: Shelf | None = None) -> Plan:
    """The plan of the chosen option, with the texts of the files that it changes; `shelf`: install from there alone."""
    from firstlight.cli.plan_files import extras_of, machine_looked_at

    machine = machine_looked_at(look)
    extras = extras_of(machine, ranking.question, settings=wanted.settings, checkouts=wanted.checkouts)
    environment = environment_to_change(ranking.question)
    if shelf is not None and environment is not None:
        from firstlight.cli.offline import with_installed

        shelf = with_installed(shelf, interpreter_of(environment))
    return plan_for(ranking.question, choose(ranking.ranked, wanted.option), extras=replace(extras, shelf=shelf))
