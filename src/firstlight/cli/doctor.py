"""`firstlight doctor`: why does CUDA not work in torch here, and what can be done."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.download_rate import at_the_rate_here, parse_rate, rate_option
from firstlight.cli.gate import gate, gate_options, refuse_without_gate
from firstlight.cli.host_option import host_option, is_asked_by_sh, refuse_by_sh, rules_for
from firstlight.cli.looking import Looking, look_options
from firstlight.cli.printing import tell
from firstlight.diagnosis.finding import Diagnosis, Goal, Question
from firstlight.errors import BadInput
from firstlight.facts.look import Look, Names, under_pseudonyms
from firstlight.frozen import dataclass
from firstlight.tables import Tables, load
from firstlight.ways.step import Step, StepKind

if TYPE_CHECKING:
    from firstlight.cli.planning import Ranking, Wanted
    from firstlight.diagnosis.finding import Rule
    from firstlight.facts.collect import Facts
    from firstlight.report.steps_lines import Argv

_GOALS = click.Choice([goal.value for goal in Goal])


@click.command(
    short_help="why not: the one cause that keeps CUDA from working, and what to do",
    epilog='Example: firstlight doctor --want "torch==2.9.0+cu130"',
)
@click.option("--want", "wants", metavar="SPEC", multiple=True,
              help='Judge the machine for a package that is not installed yet, e.g. "torch==2.9.0+cu130". '
                   "May be repeated.")  # fmt: skip
@click.option("--goal", type=_GOALS, default=Goal.INFER.value, show_default=True, help="What the machine is for.")
@rate_option
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis (schema firstlight.diagnosis/2).")
@click.option(
    "--html", "html_file", metavar="FILE", default="", help="Write it to FILE as a page to look at and to send."
)
@click.option("--short", is_flag=True, help="Print one line, for prompts and scripts; the exit code is the same.")
@click.option("--all", "everything", is_flag=True, help="Print every finding and every option.")
@click.option("--explain-rule", metavar="CODE", default="", help="Say when a rule fires and why, and stop.")
@click.option("--why-not", metavar="CODE", default="", help="Say why a rule did not fire on this machine, and stop.")
@gate_options
@look_options
@host_option
def command(look: Look, *, wants: tuple[str, ...], goal: str, **given: Any) -> None:
    """Look at this machine, say what keeps PyTorch + CUDA from working and why, and what can be done.

    One finding is the primary cause; its symptoms are folded under it. The options stand below it, the first with its
    commands, which can be pasted. Exit code 0: nothing blocks; 1: something does.
    """
    if given["explain_rule"]:
        _explain(given)
        return
    if given["gate"]:
        click.get_current_context().exit(gate(look, goal=goal, wants=wants, given=given))
    refuse_without_gate(given)
    _refuse_beside_short(given)
    if given["html_file"]:
        from firstlight.cli.html_file import html_can_be_written

        html_can_be_written(given["html_file"])
    if given["download_rate"]:
        parse_rate(given["download_rate"])  # refused before the machine is looked at
    for_a_screen = not given["why_not"] and not given["as_json"]
    looking = Looking(_as_pasted(look) if for_a_screen else look)
    # The driver takes a third of a second to answer; the rules are imported meanwhile.
    from firstlight.diagnosis.judge import judge
    from firstlight.diagnosis.rules import rule_named

    asked = rule_named(given["why_not"]) if given["why_not"] else None
    tables = load()
    request = _Asked(look, wants, Goal(goal), tables, given["download_rate"])
    question = _question(request, looking.facts())
    for option, is_given in (("--json", given["as_json"]), ("--html", given["html_file"]), ("--why-not", asked)):
        if is_given:
            refuse_by_sh(look, option)
    diagnosis = judge(question, rules_for(look))
    if asked is not None:
        _say_why_not(asked, question.facts, diagnosis, as_json=given["as_json"])
        return
    if given["html_file"]:
        _write_html(given["html_file"], request, question)
    _print_answer(request, question, diagnosis, given)
    warning = tables.age_warning(datetime.datetime.now(datetime.timezone.utc).date())
    if warning and not given["short"]:
        click.echo(warning, err=True)
    click.get_current_context().exit(1 if diagnosis.blocked else 0)


def _print_answer(asked: _Asked, question: Question, diagnosis: Diagnosis, given: dict[str, Any]) -> None:
    if given["as_json"]:
        from firstlight.report.doctor_json import diagnosis_document

        ranked = _ranking(asked, question, diagnosis).ranked
        click.echo(json.dumps(diagnosis_document(question.facts, diagnosis, question, ranked), indent=1))
    elif given["short"]:
        from firstlight.report.doctor_short import doctor_short

        tell(doctor_short(question.facts, diagnosis))
    else:
        _print_screen(asked, question, diagnosis, everything=given["everything"])


def _refuse_beside_short(given: dict[str, Any]) -> None:
    others = (("as_json", "--json"), ("everything", "--all"), ("why_not", "--why-not"))
    for name, option in others:
        if given["short"] and given[name]:
            raise BadInput(f"--short and {option} were both given; --short prints one line. Leave one out.")


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which machine is judged, and for what."""

    look: Look
    wants: tuple[str, ...]
    goal: Goal
    tables: Tables
    download_rate: str

    def wanted(self) -> Wanted:
        """The request as `plan --option 1` has it: what doctor shows of the first option is that plan."""
        from firstlight.cli.planning import Wanted
        from firstlight.plan.request import Request
        from firstlight.plan.want import parse_wants

        request = Request(parse_wants(self.wants), self.goal, download_rate=parse_rate(self.download_rate))
        return Wanted(at_the_rate_here(request, self.look), "1", (), (), self.tables)

    def words(self) -> Argv:
        """What another verb is given to speak of the same machine and the same wants."""
        look = self.look
        goal = ("--goal", self.goal.value) if self.goal is not Goal.INFER else ()
        pairs = (("--host", look.host), ("--ssh-config", look.ssh_config), ("--facts", look.facts_file),
                 ("--python", look.python), ("--download-rate", self.download_rate))  # fmt: skip
        named = (word for name, value in pairs if value for word in (name, value))
        repeated = ((("--set", each) for each in look.overrides), (("--want", each) for each in self.wants))
        return (*named, *goal, *(word for several in repeated for pair in several for word in pair))


def _as_pasted(look: Look) -> Look:
    """Real names, because commands that are pasted must work here; a saved machine has the names it has."""
    return look if look.facts_file else replace(look, names=Names.REAL)


def _question(asked: _Asked, facts: Facts) -> Question:
    if not asked.wants:  # and the planner is not even imported
        return Question(facts, asked.tables, asked.goal)
    from firstlight.cli.planning import question_of

    return question_of(facts, asked.wanted())


def _ranking(asked: _Asked, question: Question, diagnosis: Diagnosis) -> Ranking:
    from firstlight.cli.planning import Ranking
    from firstlight.plan.options import rank_options

    return Ranking(question, rank_options(question, diagnosis, asked.wanted().request))


def _print_screen(asked: _Asked, question: Question, diagnosis: Diagnosis, *, everything: bool) -> None:
    from firstlight.report.doctor_text import Length, WaysOut, doctor_text
    from firstlight.report.layout import Painted, Style

    out = WaysOut()
    if is_asked_by_sh(asked.look):
        click.echo(
            f"{asked.look.host} has no Python 3.10 or newer: its sh was asked, and most rules were not", err=True
        )
    elif diagnosis.primary or asked.wants:  # a healthy machine needs none, and does not wait for them
        from firstlight.cli.planning import plan_of
        from firstlight.report.options_text import TOP, options_list

        ranking = _ranking(asked, question, diagnosis)
        options = ranking.ranked.options
        steps = plan_of(asked.look, ranking, asked.wanted()).steps if options else ()
        shown = options_list(ranking.ranked, steps, most=len(options) if everything else TOP)
        calls = _next(asked, steps, options=len(options), hides=len(diagnosis.findings) > 1 and not everything)
        out = WaysOut(tuple(shown), options[0].because if options else (), calls)
    if asked.look.host:
        tell([Painted(asked.look.host, Style.HEAD), "\n"])
    tell(doctor_text(question.facts, diagnosis, Length.ALL if everything else Length.SCREEN, out))


def _next(asked: _Asked, steps: tuple[Step, ...], *, options: int, hides: bool) -> tuple[Argv, ...]:
    """What is typed next: do the first option where a program here can, compare all of them, read everything."""
    if not options:
        return ()
    words = asked.words()
    here = not asked.look.is_elsewhere and not asked.look.overrides
    calls: list[Argv] = []
    if here and any(step.kind is not StepKind.MANUAL for step in steps):
        calls.append(("firstlight", "apply", *words))
    calls.append(("firstlight", "plan", *(("--options",) if options > 1 else ()), *words))
    return (*calls, ("firstlight", "doctor", "--all", *words)) if hides else tuple(calls)


def _explain(given: dict[str, Any]) -> None:
    if given["why_not"]:
        raise BadInput(
            "--explain-rule and --why-not were both given; one of them is accepted. Ask one after the other."
        )
    from firstlight.diagnosis.rules import rule_named

    rule = rule_named(given["explain_rule"])
    if given["as_json"]:
        from firstlight.report.rule_json import rule_document

        click.echo(json.dumps(rule_document(rule), indent=1))
    else:
        from firstlight.report.doctor_text import rule_text

        click.echo(rule_text(rule), nl=False)


def _say_why_not(rule: Rule, facts: Facts, diagnosis: Diagnosis, *, as_json: bool) -> None:
    if as_json:
        from firstlight.report.rule_json import why_not_document

        click.echo(json.dumps(why_not_document(rule, facts, diagnosis), indent=1))
    else:
        from firstlight.report.doctor_text import why_not_text

        tell(why_not_text(rule, facts, diagnosis))


def _write_html(path: str, asked: _Asked, question: Question) -> None:
    """A page is sent to others: it has pseudonyms, also where the screen has the real names."""
    from firstlight.cli.html_file import write_html
    from firstlight.diagnosis.judge import judge
    from firstlight.plan.plan import plan_for
    from firstlight.report.doctor_json import diagnosis_document
    from firstlight.report.html.doctor_page import doctor_page
    from firstlight.ways.extras import Extras

    host = asked.look.reached().host if asked.look.reached is not None else None
    facts = question.facts if asked.look.facts_file else under_pseudonyms(question.facts, host)
    shared = replace(question, facts=facts)
    diagnosis = judge(shared, rules_for(asked.look))
    ranked = _ranking(asked, shared, diagnosis).ranked
    options = ranked.options if diagnosis.primary or asked.wants else ()
    steps = plan_for(shared, options[0], extras=Extras()).steps if options else ()  # files here have real names
    document = diagnosis_document(facts, diagnosis, shared, ranked)
    write_html(path, doctor_page(facts, diagnosis, options, document, steps=steps))
