"""`firstlight fleet plan`: what `fleet apply` would do on every host, equal ones together; changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.fleet_hosts import host_options, host_words, reached_of
from firstlight.cli.printing import tell
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from firstlight.cli.fleet_words import Words
    from firstlight.cli.planning import Ranking
    from firstlight.facts.pseudonyms import Pseudonyms
    from firstlight.fleet.look import Looked
    from firstlight.plan.plan import Plan
    from firstlight.report.host_names import HostNames

SCHEMA = "firstlight.fleet-plan/1"


@dataclass(frozen=True, slots=True)
class _Planned:
    """A host with its plan; a plan is None where no option works, and `reason` says why there is no ranking at all."""

    name: str
    ranking: Ranking | None = None
    plan: Plan | None = None
    reason: str = ""
    names: Pseudonyms | None = None  # what its people and devices are called where it is handed on

    @property
    def key(self) -> tuple[str, ...]:
        if self.plan is None:
            return ("no plan", self.reason)
        steps = (f"{step.title} {step.commands}" for step in self.plan.steps)
        return (self.plan.option.id, self.plan.digest, *steps)


@click.command(
    "plan",
    short_help="what `fleet apply` would do on every host; changes nothing",
    epilog="Example: firstlight fleet plan --hosts node01,node02 -- --want torch==2.9.0+cu130",
)
@host_options
@click.option("--vault-password-file", metavar="FILE", default="",
              help="The password of the inventory's vault, in a file.")  # fmt: skip
@click.option("--forks", type=click.IntRange(1, 128), default=16, show_default=True, help="Hosts asked at a time.")
@click.option("--timeout", "limit_s", type=click.IntRange(1, 600), default=60, show_default=True, metavar="SECONDS",
              help="The time that a host is given to answer.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the plans (schema firstlight.fleet-plan/1).")
@click.option("--identify", is_flag=True, help="With --json: keep real names of hosts and people.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF APPLY]")
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...], **given: Any) -> None:
    """Look at every host over ssh and print the plan of each; hosts with the same plan are printed once.

    Nothing is changed and nothing is left on a host. Exit code 0: a plan, or nothing to do, for every host; 1: no
    option can work on one; 4: a host could not be looked at; 2: the call cannot be used.
    """
    from firstlight.cli.fleet_words import parse_words
    from firstlight.cli.zipapp import zipapp_bytes
    from firstlight.fleet.look import Asking, Looked, look_at_all

    asked = parse_words(words)
    asking = Asking(zipapp_bytes(), given["ssh_config"], asked.python, given["limit_s"])
    reached = reached_of(given)
    looks = look_at_all(tuple(each.target for each in reached), asking, forks=given["forks"])
    planned = [
        _planned_or_why_not(look, asked)
        if isinstance(look, Looked)
        else _Planned(look.name, reason=f"not looked at: {look.reason}")
        for look in looks
    ]
    groups: dict[tuple[str, ...], list[_Planned]] = {}
    for each in planned:
        groups.setdefault(each.key, []).append(each)
    if given["as_json"]:
        from firstlight.report.host_names import pseudonyms_for, real_names

        hosts = [each.name for each in planned]
        names = real_names(hosts) if given["identify"] else pseudonyms_for(hosts, reached)
        rows = [_row(group, names) for group in groups.values()]
        click.echo(json.dumps({"schema": SCHEMA, "rows": rows}, indent=1))
    else:
        targets = {each.target.name: each.target for each in reached}
        for group in groups.values():
            words = (*host_words(targets[group[0].name], given), *asked.for_plan)
            _tell(group, diff=("firstlight", "plan", *words, "--diff"))
    ctx.exit(4 if any(each.ranking is None for each in planned) else int(any(each.plan is None for each in planned)))


def _planned_or_why_not(looked: Looked, asked: Words) -> _Planned:
    from firstlight.fleet.look import UNFORESEEN, not_judged

    try:
        return _planned(looked, asked)
    except BadInput:  # of the words that were given: true of every host
        raise
    except UNFORESEEN as error:
        return _Planned(looked.name, reason=f"not looked at: {not_judged(looked.name, error).reason}")


def _planned(looked: Looked, asked: Words) -> _Planned:
    from firstlight.cli.planning import plan_of, ranking_of
    from firstlight.facts.document import pseudonyms_of
    from firstlight.facts.look import Look
    from firstlight.fleet.look import AskedBy

    if looked.asked_by is AskedBy.SH:
        return _Planned(looked.name, reason="a plan needs Python 3.10 or newer there")
    look = Look(host=looked.name, python=asked.python, reached=looked.machine)
    ranking = ranking_of(looked.facts(), asked.wanted, look)
    if not ranking.ranked.options and not asked.wanted.option:
        return _Planned(looked.name, ranking, reason="no option can work there")
    names = pseudonyms_of(ranking.question.facts, looked.evidence.host)
    return _Planned(looked.name, ranking, plan_of(look, ranking, asked.wanted), names=names)


def _tell(group: list[_Planned], *, diff: tuple[str, ...]) -> None:
    from firstlight.fleet.folding import folded
    from firstlight.numerals import counted
    from firstlight.report.layout import Painted, Style
    from firstlight.report.plan_text import no_plan_text, plan_text

    first = group[0]
    tell([Painted(f"{folded(each.name for each in group)} ({counted(len(group), 'host')})", Style.HEAD), "\n"])
    if first.ranking is None:
        tell([f"  {first.reason}\n"])
    elif first.plan is None:
        tell([no_plan_text(first.ranking.question, first.ranking.ranked)])
    else:
        tell(plan_text(first.ranking.question, first.plan, first.ranking.ranked, diff=diff))
    tell(["\n"])


def _row(group: list[_Planned], names: HostNames) -> dict[str, Any]:
    """A row of the document; digests are those of the plans as they would be done, under the real names."""
    from firstlight.report.plan_json import plan_document

    first = group[0]
    plan = None
    if first.plan is not None and first.ranking is not None:
        plan = plan_document(first.ranking.question, first.plan, first.ranking.ranked)
    return {
        "hosts": [names[each.name] for each in group],
        "reason": names.apply(first.reason),
        "plan": plan if first.names is None else names.of_machine(first.name, first.names, plan),
    }
