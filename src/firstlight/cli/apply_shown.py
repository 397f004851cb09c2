"""What a person sees of `apply` before anything is done; with --json it goes to stderr."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from firstlight.apply.parts import Parts
from firstlight.cli.planning import Ranking
from firstlight.cli.printing import tell
from firstlight.errors import CouldNotAct
from firstlight.facts.look import Look
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from firstlight.plan.plan import Plan


class Form(enum.Enum):
    """How the result is printed; with JSON the plan is shown on stderr."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """How a plan is carried out, as the command line says."""

    yes: bool
    dry_run: bool
    proves: bool
    optional: tuple[str, ...]
    offline: str
    form: Form
    look: Look
    logins: tuple[str, ...] = ()  # indexes with their user and password, for the environment of commands alone


def no_option(ranking: Ranking, how: ApplyOptions) -> NoReturn:
    from firstlight.report.plan_text import no_plan_text

    echo(no_plan_text(ranking.question, ranking.ranked), how)
    raise CouldNotAct("no option can work here, so there is nothing to apply. `firstlight plan --options` says why.")


def show_plan(ranking: Ranking, plan: Plan, how: ApplyOptions) -> None:
    from firstlight.report.plan_text import option_text, plan_text

    there = ("--facts", how.look.facts_file) if how.look.is_elsewhere else ()
    diff = ("firstlight", "plan", *there, "--diff")
    told = (
        plan_text(ranking.question, plan, ranking.ranked, diff=diff)
        if plan.steps
        else option_text(ranking.question, plan, ranking.ranked)  # that there is nothing to do is said at the end
    )
    tell(told, sys.stderr if how.form is Form.JSON else sys.stdout)


def echo(text: str, how: ApplyOptions) -> None:
    """What a person reads before deciding and after it was done."""
    click.echo(text, nl=False, err=how.form is Form.JSON)


def say_parts(parts: Parts, how: ApplyOptions) -> None:
    from firstlight.report.apply_text import parts_text

    echo(f"\n{parts_text(parts)}", how)
