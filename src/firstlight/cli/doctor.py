"""`firstlight doctor`: why does CUDA not work in torch here, and what can be done."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.looking import look_options, look_patiently
from firstlight.diagnosis.finding import Diagnosis, Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES, rule_named
from firstlight.diagnosis.wanted import with_wanted
from firstlight.errors import BadInput
from firstlight.facts.look import Look
from firstlight.tables import load

if TYPE_CHECKING:
    from firstlight.diagnosis.finding import Rule
    from firstlight.facts.collect import Facts
    from firstlight.plan.request import Ranked

_GOALS = click.Choice([goal.value for goal in Goal])


@click.command(
    short_help="why not: the one cause that keeps CUDA from working, and what to do",
    epilog='Example: firstlight doctor --want "torch==2.9.0+cu130"',
)
@click.option("--want", "wants", metavar="SPEC", multiple=True,
              help='Judge it for what is not installed yet, e.g. "torch==2.9.0+cu130". May be repeated.')  # fmt: skip
@click.option("--goal", type=_GOALS, default=Goal.INFER.value, show_default=True, help="What the machine is for.")
@click.option("--json", "as_json", is_flag=True, help="Print the diagnosis (schema firstlight.diagnosis/1).")
@click.option(
    "--html", "html_file", metavar="FILE", default="", help="Write it to FILE as a page to look at and to send."
)
@click.option("--all", "everything", is_flag=True, help="Print every finding in full.")
@click.option("--explain-rule", metavar="CODE", default="", help="Say when a rule fires and why, and stop.")
@click.option("--why-not", metavar="CODE", default="", help="Say why a rule did not fire on this machine, and stop.")
@look_options
def command(look: Look, *, wants: tuple[str, ...], goal: str, **given: Any) -> None:
    """Look at this machine, say what keeps PyTorch + CUDA from working and why, and what can be done.

    One finding is the primary cause; its symptoms are folded under it. Exit code 0: nothing blocks; 1: something does.
    """
    from firstlight.report.doctor_text import Length, doctor_text

    if given["explain_rule"]:
        _explain(given)
        return
    if given["html_file"]:
        from firstlight.cli.html_file import html_can_be_written

        html_can_be_written(given["html_file"])
    asked = rule_named(given["why_not"]) if given["why_not"] else None
    tables = load()
    facts = with_wanted(look_patiently(look), tables, _exact_torch(wants))
    question = Question(facts, tables, Goal(goal), wants)
    diagnosis = judge(question, RULES)
    if asked is not None:
        _say_why_not(asked, facts, diagnosis, as_json=given["as_json"])
        return
    if given["html_file"]:
        _write_html(given["html_file"], question, diagnosis)
    if given["as_json"]:
        from firstlight.report.doctor_json import diagnosis_document

        click.echo(json.dumps(diagnosis_document(facts, diagnosis, question, _ranked(question, diagnosis)), indent=1))
    else:
        options = ""
        if diagnosis.primary or wants:  # a healthy machine needs none, and does not wait for them
            from firstlight.report.options_text import top_options

            options = top_options(_ranked(question, diagnosis))
        length = Length.ALL if given["everything"] else Length.SCREEN
        click.echo(doctor_text(facts, diagnosis, length, options), nl=False)
    if warning := tables.age_warning(datetime.datetime.now(datetime.timezone.utc).date()):
        click.echo(warning, err=True)
    click.get_current_context().exit(1 if diagnosis.blocked else 0)


def _explain(given: dict[str, Any]) -> None:
    if given["why_not"]:
        raise BadInput(
            "--explain-rule and --why-not were both given; one of them is accepted. Ask one after the other."
        )
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

        click.echo(why_not_text(rule, facts, diagnosis), nl=False)


def _write_html(path: str, question: Question, diagnosis: Diagnosis) -> None:
    from firstlight.cli.html_file import write_html
    from firstlight.report.doctor_json import diagnosis_document
    from firstlight.report.html.doctor_page import doctor_page

    ranked = _ranked(question, diagnosis)
    options = ranked.options if diagnosis.primary or question.wants else ()
    document = diagnosis_document(question.facts, diagnosis, question, ranked)
    write_html(path, doctor_page(question.facts, diagnosis, options, document))


def _exact_torch(wants: tuple[str, ...]) -> tuple[str, ...]:
    """The wants that put a torch in the place of the installed one; all of them are checked."""
    if not wants:
        return ()
    from firstlight.plan.want import parse_wants

    return tuple(want.text for want in parse_wants(wants) if want.project == "torch" and want.exact)


def _ranked(question: Question, diagnosis: Diagnosis) -> Ranked:
    from firstlight.plan.options import Request, rank_options
    from firstlight.plan.want import parse_wants

    return rank_options(question, diagnosis, Request(parse_wants(question.wants), question.goal))
