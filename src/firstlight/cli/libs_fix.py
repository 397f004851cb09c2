"""`firstlight libs --fix`: show what closes the chain, ask once, do it as `apply` does, and load it for real."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from firstlight.apply.executor import is_done
from firstlight.apply.outcome import Ending
from firstlight.apply.parts import parted
from firstlight.apply.session import Asked, act, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.cli.acting import Watching, acting_on, agreed, failure_of, past_runs
from firstlight.cli.apply import finish_interrupted
from firstlight.cli.apply_shown import ApplyOptions, Form
from firstlight.cli.libs import look, print_json
from firstlight.cli.offline import shelf_for, with_installed
from firstlight.errors import AnotherIsActing, BadInput, CouldNotAct
from firstlight.facts.known import Fact, Known
from firstlight.facts.look import Look
from firstlight.frozen import dataclass
from firstlight.libraries.analysis import Analysis
from firstlight.libraries.closing import close, site_to_change
from firstlight.libraries.fixing import Fix, work_out
from firstlight.libraries.local_wheels import wheels_in
from firstlight.libraries.proof import prove
from firstlight.libraries.steps import Source, bytes_of, steps_of
from firstlight.libraries.target import Surroundings, TargetKind
from firstlight.machine.live import LiveMachine
from firstlight.plan.plan import digest_of
from firstlight.report.libs_fix_text import fix_text, fixed_text
from firstlight.report.libs_json import Fixed
from firstlight.report.libs_text import Detail, libs_text
from firstlight.secrets import has_login, without_login
from firstlight.tables import load
from firstlight.ways.step import Step
from firstlight.ways.wheel_target import Target as WheelTarget

if TYPE_CHECKING:
    from firstlight.apply.account import Taken

RESUME = "`firstlight libs --fix` again, once that is fixed"
BACK = "nothing: what was begun has been taken back"
_MOST_ROUNDS = 4
_NOTHING: Fact[int] = Known(0, "nothing is fetched")


@dataclass(frozen=True, slots=True)
class Asking:
    """One call of --fix, as the command line says."""

    target: str
    yes: bool
    dry_run: bool
    form: Form
    python: str
    arch: str
    source: Source
    logins: tuple[str, ...]  # the index with its user and password, for the environment of commands alone
    before: Analysis  # as it was when the call began

    def echo(self, text: str) -> None:
        """What a person reads; beside a JSON document it goes to stderr."""
        click.echo(text, nl=False, err=self.form is Form.JSON)


def fix(ctx: click.Context, around: Surroundings, analysis: Analysis, given: dict[str, Any]) -> None:
    """Close the chain, in as many rounds as the libraries that come in need; most need one."""
    _check(around, analysis)
    asking = Asking(
        target=ctx.params["target"],
        yes=given["yes"],
        dry_run=given["dry_run"],
        form=Form.JSON if given["as_json"] else Form.TEXT,
        python=given["python"],
        arch=given["arch"] or "",
        source=_source(given, around, arch=analysis.target.arch),
        logins=(given["index_url"],) if given["index_url"] else (),
        before=analysis,
    )
    machine = LiveMachine()
    how = ApplyOptions(
        yes=asking.yes, dry_run=asking.dry_run, proves=False, optional=(), offline="", form=asking.form,
        look=Look(python=asking.python), logins=asking.logins,
    )  # fmt: skip
    if finish_interrupted(ctx, machine, how):
        around, analysis = look(asking.target, python=asking.python, arch=asking.arch)
    done = Fixed(Ending.NOTHING, (), (), _NOTHING, (), ())
    for number in range(_MOST_ROUNDS):
        shelf = asking.source.shelf if asking.source.listed else None
        found = work_out(around, analysis, load(), shelf=shelf)
        if found.is_empty:
            break
        step = _round(ctx, asking, found, around=around, done=done, number=number)
        if step.runs == done.runs:
            break
        done = step
        around, analysis = look(asking.target, python=asking.python, arch=asking.arch)
    _finish(ctx, asking, done, around=around, analysis=analysis)


def _check(around: Surroundings, analysis: Analysis) -> None:
    """What cannot be fixed is refused before anything is planned."""
    target = analysis.target
    if target.kind is TargetKind.WHEEL:
        raise BadInput(
            f"--fix changes an environment, and {target.place} is not installed. Install it (pip install "
            f"{target.place}), then run `firstlight libs {target.project} --fix`."
        )
    if target.arch != around.machine.host.arch:
        raise BadInput(
            f"--fix loads what it installs, and {target.title} is for {target.arch} while this machine is "
            f"{around.machine.host.arch}. Leave --fix out to see what is missing, and run it there."
        )


def _source(given: dict[str, Any], around: Surroundings, *, arch: str) -> Source:
    folder, index = given["find_links"], given["index_url"]
    if index and "://" not in index:
        shown = index.rpartition("@")[2]  # what stands before it may be a password
        raise BadInput(f"--index-url {shown}: accepted is an address, e.g. https://pypi.org/simple.")
    if folder and index:
        raise BadInput(
            "--find-links and --index-url: wheels come from that folder alone, or from that index. Give one."
        )
    if not folder:
        return Source(without_login(index), asks_for_login=has_login(index))
    shelf = wheels_in(os.path.abspath(folder), arch=arch)
    python = ".".join(around.python_version.split(".")[:2])
    listed = shelf_for(folder, WheelTarget(arch, python, ""))
    return Source(shelf=shelf, listed=with_installed(listed, around.interpreter) if around.interpreter else listed)


def _round(ctx: click.Context, asking: Asking, found: Fix, *, around: Surroundings, done: Fixed, number: int) -> Fixed:
    """Show, ask and act once; a round that only links what the round before brought is not asked for again."""
    target = asking.before.target
    steps = steps_of(around, target, found, source=asking.source)
    parts = parted(steps)
    if not parts.ours:
        return done
    size = bytes_of(found.picks) if found.picks else _NOTHING
    if number == 0:
        asking.echo(libs_text(asking.before, close(around, asking.before, load()), Detail.FAULTS))
    asking.echo(f"\n{fix_text(found, steps, title=target.title)}")
    _check_room(around, size, site=site_to_change(around, target))
    if is_done(parts.ours):
        return done
    if asking.dry_run:
        _end(ctx, asking, replace(done, ending=Ending.SHOWN, download_bytes=size), code=0)
    if (number == 0 or found.picks) and not agreed("fix it", yes=asking.yes):
        _end(ctx, asking, replace(done, ending=Ending.DECLINED, download_bytes=size), code=1)
    run, taken = _act(ctx, asking, parts.ours, done=done)
    return replace(
        done,
        ending=Ending.DONE,
        runs=(*done.runs, *run),
        taken=(*done.taken, *taken),
        download_bytes=size if number == 0 else done.download_bytes,
    )


def _check_room(around: Surroundings, size: Fact[int], *, site: str) -> None:
    disk = around.machine.disk(site)
    if disk is not None and isinstance(size, Known) and disk.free_bytes < size.value:
        raise CouldNotAct(
            f"{size.value / 1e9:.2f} GB are to be installed and {disk.free_bytes / 1e9:.2f} GB are free at {site}. "
            "Free some room; nothing was changed."
        )


def _act(
    ctx: click.Context, asking: Asking, steps: tuple[Step, ...], *, done: Fixed
) -> tuple[tuple[int, ...], tuple[Taken, ...]]:
    """Carry the steps out; where one fails, the run is taken back at once and nothing is left half-installed."""
    machine, watcher, digest = LiveMachine(), Watching(), digest_of(steps)
    title = f"install the missing libraries of {asking.before.target.title}"
    try:
        with acting_on(machine, watcher, logins=asking.logins) as acting:
            if interrupted(acting):  # another one was killed while this one was asking
                raise CouldNotAct("another run was interrupted meanwhile. Run the same command again to finish it.")
            try:
                act(acting, Asked(steps, digest, f"libs:{asking.target}", title))
            except CouldNotAct as error:
                failed = replace(
                    done, ending=Ending.FAILED, failure=(failure_of(error),), taken=watcher.account.of(steps)
                )
                begun = [run for run in newest_to_undo(acting) if run.digest == digest and run.unfinished]
                for run in begun:
                    undo(acting, run)
                failed = replace(failed, taken_back=tuple(run.number for run in begun))
                _failed(ctx, asking, failed, code=error.exit_code)
    except AnotherIsActing:
        raise
    except KeyboardInterrupt:
        click.echo(f"firstlight: interrupted; the journal holds what was done. {RESUME}.", err=True)
        _end(ctx, asking, replace(done, ending=Ending.INTERRUPTED), code=130)
    begun = [run for run in past_runs(machine) if run.digest == digest]
    return tuple(run.number for run in begun[-1:]), watcher.account.of(steps)


def _failed(ctx: click.Context, asking: Asking, fixed: Fixed, *, code: int) -> NoReturn:
    from firstlight.diagnosis.explain import explain_text
    from firstlight.report.apply_text import failure_text

    for failure in fixed.failure:
        explained = explain_text("\n".join(failure.tail))
        click.echo(failure_text(failure, explained, resume=RESUME, back=BACK), err=True, nl=False)
    if asking.form is Form.JSON:
        _print(asking, fixed)
    ctx.exit(code)


def _finish(ctx: click.Context, asking: Asking, done: Fixed, *, around: Surroundings, analysis: Analysis) -> NoReturn:
    """Load it for real, whatever was done or left."""
    fixed = replace(done, left=tuple(each.name for each in analysis.missing))
    if not done.runs:
        if analysis.sound:
            _end(ctx, asking, fixed, code=0)
        asking.echo(f"{libs_text(analysis, close(around, analysis, load()), Detail.FAULTS)}\n")
        _end(ctx, asking, replace(fixed, ending=Ending.BY_A_PERSON), code=1)
    asking.echo("\n")
    fixed = replace(fixed, proofs=prove(around, analysis.target, asking.before))
    _end(ctx, asking, fixed, code=0 if all(proof.ok for proof in fixed.proofs) and not fixed.left else 1)


def _end(ctx: click.Context, asking: Asking, fixed: Fixed, *, code: int) -> NoReturn:
    if asking.form is Form.JSON:
        _print(asking, fixed)
    else:
        click.echo(fixed_text(fixed), nl=False)
    ctx.exit(code)


def _print(asking: Asking, fixed: Fixed) -> None:
    """The document tells of the chain as it is now."""
    around, analysis = look(asking.target, python=asking.python, arch=asking.arch)
    print_json(analysis, close(around, analysis, load()), (fixed,))
