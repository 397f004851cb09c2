"""From options on a command line to a plan: what `plan` prints and `apply` does is made here, once."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable
from dataclasses import replace
from glob import escape
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.download_rate import at_the_rate_here, parse_rate, rate_option
from firstlight.cli.looking import look_patiently
from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wanted import with_wanted
from firstlight.errors import BadInput, CouldNotAct, CouldNotLook
from firstlight.facts.collect import Facts
from firstlight.facts.known import Fact, Known, Origin, Unknown
from firstlight.facts.look import Look, Names
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine
from firstlight.plan.option import Option
from firstlight.plan.options import rank_options
from firstlight.plan.plan import Plan, choose, plan_for
from firstlight.plan.request import NO_RATE, Ranked, Request
from firstlight.plan.want import Channel, Want, parse_wants
from firstlight.tables import Tables, load
from firstlight.ways.back import copy_of
from firstlight.ways.building import environment_to_change, interpreter_of
from firstlight.ways.extras import Checkout, Setting
from firstlight.ways.kinds import CloseLibraries
from firstlight.ways.step import Step

if TYPE_CHECKING:
    from firstlight.ways.shelf import Shelf

_GOALS = click.Choice([goal.value for goal in Goal])
_OPTIONS = ("option", "wants", "goal", "channel", "rate", "download_rate", "tuning", "checkouts")
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
    """Add --option, --want, --goal, --channel, --rate and others; the verb receives `wanted: Wanted`."""

    @functools.wraps(function)
    def with_wanted_(*context: Any, **given: Any) -> Any:
        own = {name: given.pop(name) for name in _OPTIONS}
        return function(*context, wanted=_wanted(own), **given)

    for option in (
        click.option("--checkout", "checkouts", metavar="PROJECT@TAG", multiple=True,
                     help="Also fetch a source tree at its commit, e.g. cutlass@v4.2.1."),
        click.option("--tuning", "tuning", metavar="NAME=VALUE", multiple=True,
                     help="Also write this runtime setting; 'all' for those that are suggested."),
        rate_option,
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
    from firstlight.ways.checkouts import parse_checkout
    from firstlight.ways.tuning import parse_settings

    tables = load()
    request = Request(
        # Another channel is another torch: without a want for one, the channel's own is meant.
        wants=parse_wants(own["wants"] if own["channel"] == Channel.STABLE.value else (*own["wants"], "torch")),
        goal=Goal(own["goal"]),
        channel=Channel(own["channel"]),
        rate=price(own["rate"]),
        download_rate=parse_rate(own["download_rate"]),
    )
    trees = tuple(parse_checkout(text, tables) for text in own["checkouts"])
    return Wanted(request, own["option"], parse_settings(own["tuning"], tables), trees, tables)


def price(rate: float | None) -> Fact[float]:
    """What --rate says an hour costs."""
    if rate is None:
        return NO_RATE
    if not 0 <= rate < 1_000_000:
        raise BadInput(f"--rate {rate}: accepted is the price of an hour, e.g. --rate 2.69.")
    return Known(rate, "--rate")


def facts_of(look: Look) -> Facts:
    """The facts to plan with; real names on a live machine: its commands must work there."""
    return look_patiently(look if look.facts_file else replace(look, names=Names.REAL))


def question_of(facts: Facts, wanted: Wanted) -> Question:
    """What is judged: the machine as it would be with a torch that is wanted by its exact version."""
    torch = tuple(_exactly(want) for want in wanted.request.wants if want.project == "torch" and want.exact)
    wants = tuple(want.text for want in wanted.request.wants)
    return Question(with_wanted(facts, wanted.tables, torch), wanted.tables, wanted.request.goal, wants)


def ranking_of(facts: Facts, wanted: Wanted, look: Look) -> Ranking:
    """Every way to get what is wanted on this machine, best first."""
    question = question_of(facts, wanted)
    return Ranking(question, rank_options(question, judge(question, RULES), at_the_rate_here(wanted.request, look)))


def sized_by_indexes(ranking: Ranking, wanted: Wanted, look: Look) -> Ranking:
    """The same with what the indexes say of sizes that no table has; a saved machine has no network of its own."""
    about = [way for option in ranking.ranked.options if _is_about(option) for way in option.ways]
    if look.is_elsewhere or not about:
        return ranking
    from firstlight.cli.index_lookup import index_sizes

    sizes = index_sizes(about, ranking.question.facts)
    if not sizes.found:
        return ranking
    request = replace(at_the_rate_here(wanted.request, look), sizes=sizes)
    return Ranking(ranking.question, rank_options(ranking.question, judge(ranking.question, RULES), request))


def _is_about(option: Option) -> bool:
    """Whether no table has the size of what an option fetches."""
    size = option.cost.download_bytes
    return isinstance(size, Unknown) or size.origin is Origin.ASSUMED


def _exactly(want: Want) -> str:
    return f"{want.project}=={want.exact}" + (f"+{want.local}" if want.local else "")


def plan_of(look: Look, ranking: Ranking, wanted: Wanted, *, shelf: Shelf | None = None) -> Plan:
    """The plan of the chosen option, with the texts of the files that it changes; `shelf`: install from there alone."""
    from firstlight.cli.plan_files import extras_of, machine_looked_at

    machine = machine_looked_at(look)
    extras = extras_of(machine, ranking.question.facts, settings=wanted.settings, checkouts=wanted.checkouts)
    environment, option = environment_to_change(ranking.question.facts), choose(ranking.ranked, wanted.option)
    if shelf is not None and environment is not None:
        from firstlight.cli.offline import with_installed

        shelf = with_installed(shelf, interpreter_of(environment))
    extras = replace(extras, shelf=shelf, closing=_closing(machine, option, wanted.tables, python=look.python))
    plan = plan_for(ranking.question, option, extras=extras)
    while taken := _taken(machine, plan):
        extras = replace(extras, taken=(*extras.taken, *taken))
        plan = plan_for(ranking.question, option, extras=extras)
    return plan


def _taken(machine: Machine | None, plan: Plan) -> tuple[str, ...]:
    """The names under which the plan would keep copies and where something lies already: an older copy, for one."""
    if machine is None:
        return ()
    copies = (path for step in plan.steps for back in step.back for path in copy_of(back))
    return tuple(path for path in copies if machine.list(posixpath.dirname(path), escape(posixpath.basename(path))))


def _closing(machine: Machine | None, option: Option, tables: Tables, *, python: str) -> tuple[Step, ...] | None:
    """What closes the chain of libraries, where the option does that; None where that cannot be worked out here."""
    if machine is None or not any(isinstance(way, CloseLibraries) for way in option.ways):
        return None
    from firstlight.libraries.steps import closing_steps

    try:
        return closing_steps(machine, tables, python=python)
    except (BadInput, CouldNotAct, CouldNotLook):  # `firstlight libs --fix`, which is shown then, says why not
        return None
