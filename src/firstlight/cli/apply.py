"""`firstlight apply`: show the plan, ask once, do it so that it can be killed, resumed and undone, then prove it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from firstlight.apply.account import State
from firstlight.apply.download_rate import keep_rate
from firstlight.apply.executor import held_already, is_done
from firstlight.apply.outcome import Applied, Ending
from firstlight.apply.parts import Parts, parted
from firstlight.cli.acting import (
    Answers,
    Watching,
    acting_on,
    agreed,
    agreed_to_stored,
    failure_of,
    journal_path,
    past_runs,
)
from firstlight.cli.applied_before import applied_before, edits_shells_alone, is_offered
from firstlight.cli.apply_shown import ApplyOptions, Form, echo, no_option, say_parts, show_plan
from firstlight.cli.looking import saved_machines
from firstlight.cli.planning import Wanted, facts_of, plan_of, plan_options, ranking_of, sized_by_indexes
from firstlight.cli.proving import variables_after
from firstlight.errors import AnotherIsActing, BadInput, CouldNotAct, FirstlightError, NotBegun
from firstlight.facts.look import Look
from firstlight.machine.live import LiveMachine
from firstlight.tables import load

if TYPE_CHECKING:
    from firstlight.apply.executor import Acting
    from firstlight.apply.runs import Run
    from firstlight.facts.collect import Facts
    from firstlight.verify.check import Report
    from firstlight.ways.shelf import Shelf
    from firstlight.ways.step import Step

RESUME = "`firstlight apply` continues where it stopped"
BACK = "`firstlight undo` takes back what was done; after that another option can be chosen"


@click.command(
    short_help="do it: show the plan, ask once, do and prove each step; can be killed, resumed and undone",
    epilog='Example: firstlight apply --want "torch==2.9.0+cu130" --rate 2.69',
)
@plan_options
@click.option("--yes", is_flag=True, help="Do it without asking, for automation.")
@click.option("--dry-run", is_flag=True, help="Show the plan and which steps are done already; change nothing.")
@click.option("--with", "optional", metavar="ID", multiple=True,
              help="Do this optional step too; 'all' for every one. May be repeated.")  # fmt: skip
@click.option("--no-verify", is_flag=True, help="Do not run `firstlight verify` after the steps.")
@click.option(
    "--offline", metavar="DIR", default="", help="Install from this folder of `firstlight bundle`, or of wheels."
)
@click.option(
    "--facts",
    "facts_file",
    metavar="PATH",
    default="",
    shell_complete=saved_machines,
    help="With --dry-run: a saved facts document, a recorded machine or example:NAME, instead of this machine.",
)
@click.option("--python", metavar="PATH", default="", help="Change the environment of this interpreter.")
@click.option("--json", "as_json", is_flag=True, help="Print the result (schema firstlight.apply/1).")
@click.pass_context
def command(ctx: click.Context, /, wanted: Wanted, **given: Any) -> None:
    """Show the chosen option as `plan` does, ask once, and do it.

    A step whose result is there already is skipped, and every step is checked after it was done. Everything is written
    to a journal first: after a kill, a reboot or a full disk the same command continues, and `firstlight undo` takes it
    back. Exit code 0: done, or nothing to do; 1: a step or verify failed, or only you can do what is left; 2: usage, or
    no terminal to ask; 4: another firstlight is at work; 130: interrupted.
    """
    how = ApplyOptions(
        yes=given["yes"],
        dry_run=given["dry_run"],
        proves=not given["no_verify"],
        optional=given["optional"],
        offline=given["offline"],
        form=Form.JSON if given["as_json"] else Form.TEXT,
        look=Look(given["facts_file"], python=given["python"]),
    )
    if how.look.is_elsewhere:
        _show_for_another(ctx, wanted, how)
    machine = LiveMachine()
    finished = finish_interrupted(ctx, machine, how)
    facts = facts_of(how.look)
    shelf = _shelf(how.offline, facts)
    wanted = _of_bundle(how.offline, wanted)
    ranking = ranking_of(facts, wanted, how.look)
    if not how.offline:
        ranking = sized_by_indexes(ranking, wanted, how.look)
    if not ranking.ranked.options and not wanted.option:
        no_option(ranking, how)
    if not is_offered(ranking, wanted.option) and (run := applied_before(machine, wanted.option)):
        done = Applied(
            Ending.NOTHING, run[0].option, run[0].title, run[0].digest, run[0].number, (), (), Parts((), (), (), ()),
            wanted.request.rate, journal=journal_path(machine),
        )  # fmt: skip
        _still_holds(ctx, done, how, run=run[0])
    plan = plan_of(how.look, ranking, wanted, shelf=shelf)
    parts = parted(plan.steps, how.optional)
    outcome = Applied(
        Ending.SHOWN, plan.option.id, plan.option.title, plan.digest, 0, tuple(run.number for run in finished), (),
        parts, wanted.request.rate, journal=journal_path(machine),
    )  # fmt: skip
    if edits_shells_alone(parts) and (run := applied_before(machine, plan.option.id)):
        _still_holds(ctx, outcome, how, run=run[0])
    show_plan(ranking, plan, how)
    steps = tuple(step for run in finished for step in run.steps)
    if is_done(parts.ours) and steps and how.proves:
        _prove(ctx, replace(outcome, ending=Ending.NOTHING), how, steps=steps)
    _decide(ctx, machine, outcome, how, facts=facts)


def _show_for_another(ctx: click.Context, wanted: Wanted, how: ApplyOptions) -> NoReturn:
    """What would be done on a machine that is only known from a file; what holds there already is not looked at."""
    given = f"--facts {how.look.facts_file}"
    if not how.dry_run:
        raise BadInput(f"{given}: apply changes this machine alone. Add --dry-run to see what it would do on that one.")
    if how.offline:
        raise BadInput(
            f"{given} and --offline were both given; accepted is one: a folder is installed from here alone."
        )
    ranking = ranking_of(facts_of(how.look), wanted, how.look)
    if not ranking.ranked.options and not wanted.option:
        no_option(ranking, how)
    plan = plan_of(how.look, ranking, wanted)
    parts = parted(plan.steps, how.optional)
    ending = Ending.SHOWN if parts.ours else Ending.BY_A_PERSON if parts.persons else Ending.NOTHING
    option, rate = plan.option, wanted.request.rate
    show_plan(ranking, plan, how)
    if parts.ours:
        say_parts(parts, how)
    outcome = Applied(ending, option.id, option.title, plan.digest, 0, (), (), parts, rate)
    _end(ctx, outcome, how, code=1 if ending is Ending.BY_A_PERSON else 0)


def _shelf(folder: str, facts: Facts) -> Shelf | None:
    """The wheels of --offline with their digests; a bundle for another machine, or a changed one, is refused."""
    if not folder:
        return None
    from firstlight.cli.offline import shelf_of

    return shelf_of(folder, facts)


def _of_bundle(folder: str, wanted: Wanted) -> Wanted:
    """What a bundle was made for, where nothing else is asked for."""
    if not folder or wanted.request.wants:
        return wanted
    from firstlight.cli.offline import bundle_in, wants_of
    from firstlight.plan.want import parse_wants

    bundle = bundle_in(folder)
    if bundle is None:
        return wanted
    return replace(wanted, request=replace(wanted.request, wants=parse_wants(wants_of(bundle))))


def _decide(ctx: click.Context, machine: LiveMachine, outcome: Applied, how: ApplyOptions, *, facts: Facts) -> None:
    """What becomes of the plan that was shown."""
    parts = outcome.parts
    if not parts.ours and parts.persons:
        _end(ctx, replace(outcome, ending=Ending.BY_A_PERSON), how, code=1)
    if is_done(parts.ours):
        _say_debris(facts)
        _end(ctx, replace(outcome, ending=Ending.NOTHING), how, code=1 if parts.unfinished else 0)
    _check_rights(parts)
    say_parts(parts, how)
    if how.dry_run:
        _end(ctx, outcome, how, code=0)
    if not agreed("apply it", yes=how.yes):
        _end(ctx, replace(outcome, ending=Ending.DECLINED), how, code=1)
    _act(ctx, machine, outcome, how)


def _say_debris(facts: Facts) -> None:
    """Where nothing is done, nothing is cleaned either; a person learns what lies there."""
    from firstlight.apply.debris import left_behind
    from firstlight.ways.building import interpreter_of

    sentence = left_behind(interpreter_of(facts.environment)) if facts.environment is not None else ""
    if sentence:
        click.echo(f"firstlight: {sentence}", err=True)


def _still_holds(ctx: click.Context, outcome: Applied, how: ApplyOptions, *, run: Run) -> NoReturn:
    told = tuple(step for step in outcome.parts.persons if variables_after((step,)))
    kept = replace(outcome, ending=Ending.NOTHING, run=run.number, parts=replace(outcome.parts, persons=told))
    _end(ctx, kept, how, code=0)


def _check_rights(parts: Parts) -> None:
    """Refuse before anything is done what would stop half-way for want of root."""
    from firstlight.apply.executor import lacks_rights

    for step in parts.ours:
        if lacks_rights(step):
            raise CouldNotAct(
                f"{step.title}: this needs root, and nothing was changed. Run the same command as root, or choose "
                "another option: `firstlight plan --options` shows which need none."
            )


def _act(ctx: click.Context, machine: LiveMachine, outcome: Applied, how: ApplyOptions) -> None:
    from firstlight.apply.edit_proof import with_tried_edits
    from firstlight.apply.session import Asked, act, interrupted
    from firstlight.plan.plan import digest_of

    outcome = replace(outcome, parts=with_tried_edits(outcome.parts))
    ours = outcome.parts.ours
    if not ours:
        _end(ctx, replace(outcome, ending=Ending.BY_A_PERSON), how, code=1)
    outcome = replace(outcome, digest=digest_of(ours))

    def work(acting: Acting) -> None:
        if interrupted(acting):  # another one was killed while this one was asking
            raise CouldNotAct("another apply was interrupted meanwhile. Run the same command again to finish it.")
        act(acting, Asked(ours, outcome.digest, outcome.option, outcome.title))

    done = _carried_out(ctx, machine, work, outcome=outcome, steps=ours, how=how)
    if not how.proves:
        _end(ctx, done, how, code=1 if done.parts.unfinished else 0)
    _prove(ctx, done, how, steps=ours)


def finish_interrupted(ctx: click.Context, machine: LiveMachine, how: ApplyOptions) -> tuple[Run, ...]:
    """Go on with what a kill left half done, after it was shown and agreed to; the run that was finished."""
    from firstlight.apply.session import finish, interrupted, interrupted_in, stored_commands
    from firstlight.plan.request import NO_RATE
    from firstlight.report.apply_text import interrupted_text

    for run in interrupted_in(past_runs(machine)):
        echo(interrupted_text(run), how)
        if how.dry_run:
            echo("--dry-run does not finish it\n\n", how)
            return ()
        if not agreed("finish it", yes=how.yes):
            raise CouldNotAct(f"run {run.number} was left unfinished. {RESUME}; {BACK}.")
        stored = stored_commands(run)
        if not agreed_to_stored(run, stored, verb="apply"):
            raise CouldNotAct(f"run {run.number} was left unfinished. {RESUME}; {BACK}.")
        outcome = Applied(
            Ending.DONE, run.option, run.title, run.digest, run.number, (), (), Parts((), (), (), ()), NO_RATE,
            journal=journal_path(machine),
        )  # fmt: skip

        def work(acting: Acting, stored: tuple[tuple[str, ...], ...] = stored) -> None:
            for each in interrupted(acting):
                finish(acting, each, agreed=stored)

        _carried_out(ctx, machine, work, outcome=outcome, steps=run.steps, how=how)
        echo(f"{'the undo of ' if run.undoing else ''}run {run.number} is finished\n\n", how)
        return () if run.undoing else (run,)
    return ()


def _carried_out(
    ctx: click.Context,
    machine: LiveMachine,
    work: Callable[[Acting], None],
    *,
    outcome: Applied,
    steps: tuple[Step, ...],
    how: ApplyOptions,
) -> Applied:
    """The outcome with what each step took; a failure or an interrupt is told and ends the call."""
    watcher = Watching(Answers.here(yes=how.yes))
    try:
        with acting_on(machine, watcher, logins=how.logins) as acting:
            work(acting)
    except (AnotherIsActing, NotBegun):
        raise
    except CouldNotAct as error:
        failed = replace(outcome, failure=(failure_of(error),))
        _stopped(ctx, _with_taken(failed, machine, watcher, steps=steps), how, error.exit_code)
    except KeyboardInterrupt:
        stopped = replace(outcome, ending=Ending.INTERRUPTED)
        _stopped(ctx, _with_taken(stopped, machine, watcher, steps=steps), how, 130)
    done = _with_taken(outcome, machine, watcher, steps=steps)
    keep_rate(machine, done.taken, load())
    return replace(done, ending=Ending.DONE if done.run else Ending.NOTHING)  # somebody may have done it meanwhile


def _with_taken(outcome: Applied, machine: LiveMachine, watcher: Watching, *, steps: tuple[Step, ...]) -> Applied:
    begun = [run.number for run in past_runs(machine) if run.digest == outcome.digest]
    return replace(outcome, taken=watcher.account.of(steps), run=begun[-1] if begun else 0)


def _stopped(ctx: click.Context, outcome: Applied, how: ApplyOptions, code: int) -> NoReturn:
    """Tell on stderr where it stopped and how to go on."""
    from firstlight.diagnosis.explain import explain_text
    from firstlight.report.apply_text import failure_text, taken_text

    whole = [each for each in outcome.taken if each.state in (State.DONE, State.HELD)]
    click.echo("".join(taken_text(each, outcome.rate) for each in whole), err=True, nl=False)
    for failure in outcome.failure:
        outcome = replace(outcome, ending=Ending.FAILED)
        explained = explain_text("\n".join(failure.tail))
        click.echo(failure_text(failure, explained, resume=RESUME, back=BACK), err=True, nl=False)
    if outcome.ending is Ending.INTERRUPTED:
        click.echo(f"firstlight: interrupted; the journal holds what was done. {RESUME}; {BACK}.", err=True)
    if how.form is Form.JSON:
        _print_json(outcome, ())
    ctx.exit(code)


def _prove(ctx: click.Context, outcome: Applied, how: ApplyOptions, *, steps: tuple[Step, ...]) -> NoReturn:
    """Tell what was done, then prove it; that verify failed is said apart from the steps, which did not."""
    from firstlight.cli.proving import proved
    from firstlight.report.apply_text import outcome_text
    from firstlight.report.verify_text import Detail, verify_text
    from firstlight.verify.check import CheckOutcome
    from firstlight.verify.verdict import exit_code, with_outcome

    echo(f"\n{outcome_text(outcome)}\nverify\n", how)
    try:
        report = proved(steps, persons=outcome.parts.persons, python=how.look.python)
    except FirstlightError as error:
        click.echo(f"firstlight: the steps are done, and verify could not be run: {error}", err=True)
        if how.form is Form.JSON:
            _print_json(outcome, ())
        ctx.exit(error.exit_code)
    echo(verify_text(report, Detail.LINE), how)
    if how.form is Form.JSON:
        _print_json(outcome, (report,))
    if exit_code(report):
        names = ", ".join(each.check for each in with_outcome(report, CheckOutcome.FAILED)) or "nothing was proved"
        click.echo(f"firstlight: the steps are done, and verify failed: {names}. {BACK}.", err=True)
    ctx.exit(exit_code(report) or (1 if outcome.parts.unfinished else 0))


def _end(ctx: click.Context, outcome: Applied, how: ApplyOptions, *, code: int) -> NoReturn:
    from firstlight.report.apply_text import outcome_text

    if how.form is Form.JSON:
        _print_json(outcome, ())
    else:
        click.echo(f"\n{outcome_text(outcome)}", nl=False)
    ctx.exit(code)


def _print_json(outcome: Applied, proofs: tuple[Report, ...]) -> None:
    from firstlight.report.apply_json import apply_document

    if not outcome.taken and outcome.journal:
        outcome = replace(outcome, held=held_already(outcome.parts.ours))
    click.echo(json.dumps(apply_document(outcome, proofs), indent=1))
