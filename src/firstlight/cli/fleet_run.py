"""`firstlight fleet apply`, `status` and `undo`: the same work on many hosts, kept as a run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.fleet_hosts import host_options, inventory_for, named_from, targets_of
from firstlight.cli.printing import tell
from firstlight.errors import BadInput
from firstlight.fleet.run import Engine, FleetRun, HostEnd, HostRun, Verb, again, batches, run_document
from firstlight.fleet.run_folder import MADE_BY, Damaged, Shelf, new_id, now, operator
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from firstlight.bench.slow_gpus import JudgedGpus
    from firstlight.fleet.run import HostOutcome
    from firstlight.fleet.target import Target
    from firstlight.fleet.tool import Tool
    from firstlight.report.host_names import HostNames

_BAD = (HostEnd.FAILED, HostEnd.UNREACHABLE, HostEnd.BUSY)


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be done once all of it is known to be possible: the hosts in batches, and what is brought to them."""

    order: tuple[tuple[Target, ...], ...]
    brought: Tool


def engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what is passed on to Ansible, and --retry."""
    for option in (
        click.option("--retry", is_flag=True, help="Continue the newest run, on the hosts that are not done alone."),
        click.option("--vault-password-file", metavar="FILE", default="",
                     help="The password of the inventory's vault, in a file."),
        click.option("--become-password-file", metavar="FILE", default="", help="Password for --become, in a file."),
        click.option("--become", is_flag=True, help="Work as root there, by sudo or what the inventory says."),
        click.option("--limit", metavar="PATTERN", default="",
                     help="Only these hosts of the inventory (a pattern of Ansible's)."),
    ):  # fmt: skip
        function = option(function)
    return function


def work_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--identify", is_flag=True, help="Keep real names of hosts in --json."),
        click.option("--json", "as_json", is_flag=True, help="Print the run (schema firstlight.fleet-run/1)."),
        click.option("--yes", is_flag=True, help="Do it without asking, for automation."),
        click.option("--max-fail", type=click.IntRange(0, 1000), default=0, show_default=True, metavar="N",
                     help="With --serial: begin no further batch when more hosts than this failed."),
        click.option("--serial", metavar="N,P%,...", default="", help="Hosts in batches, e.g. 1,10%,100%."),
        click.option("--forks", type=click.IntRange(1, 128), default=16, show_default=True, help="Hosts at a time."),
    ):  # fmt: skip
        function = option(function)
    return function


@click.command(
    "apply",
    short_help="do on every host what `firstlight apply` does; kept as a run",
    epilog="Example: firstlight fleet apply -i inventory.yml --serial 1,10%,100% -- --want torch==2.9.0+cu130",
)
@host_options
@engine_options
@work_options
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTIONS OF APPLY]")
@click.pass_context
def apply_command(ctx: click.Context, /, words: tuple[str, ...], **given: Any) -> None:
    """Run `firstlight apply --yes` on every host, by Ansible over ssh, and keep what became of each as a run.

    firstlight is brought along and has an environment of its own there. The work outlives the connection: the same
    command, or --retry, picks it up. `firstlight fleet plan` shows what would be done. Exit code 0: done on every host;
    1: a host failed; 4: a host could not be reached, or another operator is at work; 2: the call cannot be used; 130:
    interrupted, and what has begun on a host continues there.
    """
    from firstlight.cli.fleet_words import parse_words

    parse_words(words)
    do_on_hosts(ctx, Verb.APPLY, words, given)


def do_on_hosts(ctx: click.Context, verb: Verb, words: tuple[str, ...], given: dict[str, Any]) -> None:
    """Begin a run, or go on with the newest of the verb; ends the command with its exit code."""
    _refuse_read_only(ctx, verb.value)
    shelf = _shelf()
    if given["retry"]:
        _work(ctx, shelf, _run_to_retry(shelf, verb, words, given), given)
        return
    _name_damaged(shelf)
    run_id = new_id()
    try:
        _work(
            ctx,
            shelf,
            _run_to_do(shelf, FleetRun(run_id, verb, now(), operator(), words, (), Engine("")), given),
            given,
        )
    finally:
        shelf.forget_unbegun(run_id)


@click.command(
    "undo",
    short_help="take back on every host what the newest `fleet apply` did",
    epilog="Example: firstlight fleet undo --yes",
)
@click.option("--run", "run_id", metavar="ID", default="", help="This run of `fleet apply`, not the newest.")
@work_options
@click.pass_context
def undo_command(ctx: click.Context, /, **given: Any) -> None:
    """Run `firstlight undo --yes` on every host on which a run of `fleet apply` changed something.

    A host on which something was applied since is left as it is and named. Run it again to continue with the hosts that
    are not done. Exit codes as for `fleet apply`; 0 also where there is nothing to take back.
    """
    _refuse_read_only(ctx, "undo")
    shelf = _shelf()
    applied = shelf.read(given["run_id"]) if given["run_id"] else next(iter(_to_take_back(shelf)), None)
    if not given["run_id"]:
        _refuse_damaged(shelf, newer_than="" if applied is None else applied.id)
    if applied is not None and applied.verb is not Verb.APPLY:
        raise BadInput(f"--run {applied.id}: that is a run of {applied.verb.value}; accepted is one of `fleet apply`")
    if applied is not None:
        run = _undo_of(shelf, applied)
        try:
            _work(ctx, shelf, run, given)
        finally:
            shelf.forget_unbegun(run.id)
    elif (undone := next(shelf.runs(Verb.UNDO), None)) is not None:  # all is taken back: what did it is shown again
        _end(ctx, shelf, undone, given)
    elif given["as_json"]:
        nothing = FleetRun("", Verb.UNDO, now(), operator(), (), (), Engine(""))
        click.echo(json.dumps(run_document(replace(nothing, who="operator"), made_by=MADE_BY, folder=""), indent=1))
    else:
        click.echo("nothing to undo: no run of `firstlight fleet apply` changed a host")


@click.command(
    "status",
    short_help="what became of every host of a run",
    epilog="Example: firstlight fleet status --json",
)
@click.argument("run_id", metavar="[RUN]", default="", required=False)
@click.option("--list", "lists", is_flag=True, help="Print every run in one line, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print the run (schema firstlight.fleet-run/1).")
@click.option("--identify", is_flag=True, help="Keep real names of hosts in --json.")
@click.pass_context
def status_command(ctx: click.Context, /, run_id: str, **given: Any) -> None:
    """Print the newest run, or the one that is named, as its folder has it; no host is asked.

    Exit code 0: done on every host; 1: a host failed; 4: one was not reached or is not done; 3: of `fleet bench`, a GPU
    is slow; 2: there is no such run.
    """
    shelf = _shelf()
    if given["lists"]:
        from firstlight.report.fleet_run_text import run_line

        for each in shelf.every():
            click.echo(f"{each.id}  cannot be read: {each.reason}" if isinstance(each, Damaged) else run_line(each))
        return
    if not run_id and not shelf.ids():
        raise BadInput("there is no run yet; `firstlight fleet apply --hosts node01,node02` makes one")
    _end(ctx, shelf, shelf.read(run_id or shelf.ids()[0]), given)


def _refuse_read_only(ctx: click.Context, verb: str) -> None:
    if ctx.parent is not None and ctx.parent.params.get("read_only"):
        raise BadInput(f"`fleet {verb}` changes hosts, and --read-only was given; leave one out. Nothing was changed.")


def _shelf() -> Shelf:
    from firstlight.apply.place import state_folder
    from firstlight.machine.live import LiveMachine

    return Shelf(f"{state_folder(LiveMachine())}/fleet")


def _name_damaged(shelf: Shelf) -> None:
    """Say which runs are passed over; whether one of them is not finished cannot be known."""
    for each in shelf.every():
        if isinstance(each, Damaged):
            click.echo(f"firstlight: run {each.id} is passed over: {each.reason}", err=True)


def _refuse_damaged(shelf: Shelf, *, newer_than: str) -> None:
    """Stop where the newest run may be one that cannot be read: an older one is not what was meant."""
    for each in shelf.every():
        if isinstance(each, Damaged) and each.id > newer_than:
            raise BadInput(f"run {each.id} may be the newest, and it cannot be read: {each.reason}")


def _run_to_do(shelf: Shelf, begun: FleetRun, given: dict[str, Any]) -> FleetRun:
    """A new run; or the newest, where it is the same and was interrupted, so that no work is started twice."""
    from firstlight.fleet.inventory import selected

    targets = targets_of(given)
    inventory = inventory_for(given, targets, shelf.made(begun.id))
    config = os.path.abspath(given["ssh_config"]) if given["ssh_config"] else ""
    engine = Engine(inventory, config, _passed_on(given))
    names = tuple(target.name for target in selected(inventory, limit=given["limit"], vault=engine.vault))
    batches(names, given["serial"])  # refused before the first host
    run = replace(begun, hosts=tuple(map(HostRun, names)), engine=engine)
    before = next(shelf.runs(begun.verb), None)
    if before is None or not _is_the_same(before, run) or not _is_unfinished(before):
        return run
    shelf.forget_unbegun(run.id)
    click.echo(f"run {before.id} is not finished; it is resumed", err=True)
    return before


def _is_the_same(before: FleetRun, run: FleetRun) -> bool:
    hosts = {host.name for host in before.hosts} == {host.name for host in run.hosts}
    return hosts and before.words == run.words and before.engine.passed_on == run.engine.passed_on


def _is_unfinished(run: FleetRun) -> bool:
    return any(host.end in (HostEnd.AT_WORK, HostEnd.NOT_ASKED) for host in run.hosts)


def _passed_on(given: dict[str, Any]) -> tuple[str, ...]:
    files = ((f"--{name.replace('_', '-')}", given[name]) for name in ("become_password_file", "vault_password_file"))
    words = [word for option, path in files if path for word in (option, _readable(option, path))]
    return (*(("--become",) if given["become"] else ()), *words)


def _readable(option: str, path: str) -> str:
    if not os.access(path, os.R_OK):
        raise BadInput(f"{option} {path!a} cannot be read; accepted is a file that holds the password")
    return os.path.abspath(path)


def _run_to_retry(shelf: Shelf, verb: Verb, words: tuple[str, ...], given: dict[str, Any]) -> FleetRun:
    if words or named_from(given) or given["limit"]:
        raise BadInput(f"--retry resumes the newest run as it is; leave hosts, --limit and options of {verb.value} out")
    for name in ("ssh_config", "become", "become_password_file", "vault_password_file"):
        if given[name]:
            raise BadInput(
                f"--retry resumes the newest run as it is; leave --{name.replace('_', '-')} out, or begin another "
                "run with it"
            )
    run = next(shelf.runs(verb), None)
    _refuse_damaged(shelf, newer_than="" if run is None else run.id)
    if run is None:
        raise BadInput(f"there is no run to resume; `firstlight fleet {verb.value} --hosts node01,node02` makes one")
    return run


def _to_take_back(shelf: Shelf) -> list[FleetRun]:
    """Runs of apply that changed a host, newest first, without those that were taken back on all of them."""
    undone = {run.of for run in shelf.runs(Verb.UNDO) if not run.left}
    return [run for run in shelf.runs(Verb.APPLY) if run.id not in undone and any(host.made for host in run.hosts)]


def _undo_of(shelf: Shelf, applied: FleetRun) -> FleetRun:
    """The undo of a run that was begun before, or a new one."""
    before = next((run for run in shelf.runs(Verb.UNDO) if run.of == applied.id), None)
    if before is not None:
        return before
    hosts = tuple(HostRun(host.name, made=host.made) for host in applied.hosts if host.made)
    return FleetRun(new_id(), Verb.UNDO, now(), operator(), (), hosts, applied.engine, of=applied.id)


def _work(ctx: click.Context, shelf: Shelf, run: FleetRun, given: dict[str, Any]) -> None:
    """Ask once, then do the hosts that are left, in batches; an interrupt leaves what has begun to go on."""
    from firstlight.cli.acting import agreed, in_order
    from firstlight.fleet.tool import tool
    from firstlight.report.fleet_run_text import CHANGING, asked_text

    if not run.left:
        _end(ctx, shelf, run, given)
    click.echo(asked_text(run), nl=False, err=True)
    if run.verb in CHANGING and not agreed(f"{run.verb.value} on these hosts", yes=given["yes"]):
        ctx.exit(1)
    with in_order(), shelf.held(run):
        kept = [run]
        if run.id in shelf.ids():
            kept = [shelf.read(run.id)]  # as whoever held it before left it
        # Refused before anything is written: what became of a host stays known.
        order, brought = _order(kept[0], given), tool()
        kept[0] = replace(kept[0], hosts=tuple(again(host) if host in kept[0].left else host for host in kept[0].hosts))
        shelf.write(kept[0])
        shelf.keep_beside(kept[0], given.get("baselines", ()))
        try:
            _batches(shelf, kept, _Work(order, brought), given)
        except KeyboardInterrupt:
            click.echo(
                "firstlight: interrupted; no further host is asked, and what has begun continues there", err=True
            )
            _print(shelf, kept[0], given)
            ctx.exit(130)
    _end(ctx, shelf, kept[0], given)


def _order(run: FleetRun, given: dict[str, Any]) -> tuple[tuple[Target, ...], ...]:
    """The hosts that are left, in batches; BadInput where they cannot be asked as they were named."""
    from firstlight.fleet.inventory import selected

    names = tuple(host.name for host in run.left)
    targets = {target.name: target for target in selected(run.engine.inventory, vault=run.engine.vault)}
    if gone := [name for name in names if name not in targets]:
        raise BadInput(f"{gone[0]!a} is no longer in {run.engine.inventory}; put it back, or begin another run")
    return tuple(tuple(targets[name] for name in batch) for batch in batches(names, given["serial"]))


def _batches(shelf: Shelf, kept: list[FleetRun], work: _Work, given: dict[str, Any]) -> None:
    from firstlight.fleet.playing import Play, play

    names = {target.name for batch in work.order for target in batch}

    def told(outcome: HostOutcome) -> None:
        kept[0] = kept[0].with_host(outcome.host)
        shelf.keep(kept[0], outcome)
        shelf.write(kept[0])
        reason = f": {outcome.host.reason}" if outcome.host.reason else ""
        click.echo(f"{outcome.host.name}: {outcome.host.end.value}{reason}", err=True)

    for batch in work.order:
        failed = sum(host.end in _BAD for host in kept[0].hosts if host.name in names)
        if failed > given["max_fail"]:
            click.echo(
                f"firstlight: more than {given['max_fail']} failed (--max-fail); no further host is asked", err=True
            )
            return
        folder = shelf.folder(kept[0].id)
        play(Play(kept[0], batch, folder, work.brought, given["forks"]), told)


def _end(ctx: click.Context, shelf: Shelf, run: FleetRun, given: dict[str, Any]) -> None:
    from firstlight.cli.fleet_slow import code_of, judged_run

    judged = judged_run(run, shelf.folder(run.id))
    _print(shelf, run, given, judged)
    ctx.exit(code_of(run, judged))


def _print(shelf: Shelf, run: FleetRun, given: dict[str, Any], judged: JudgedGpus | None = None) -> None:
    from firstlight.cli.fleet_slow import code_of

    folder = shelf.folder(run.id)
    if given["as_json"]:
        from firstlight.report.fleet_gpus_json import gpus_document
        from firstlight.report.fleet_run_json import handed_on
        from firstlight.report.host_names import real_names

        document = {**run_document(run, made_by=MADE_BY, folder=folder), "exit_code": code_of(run, judged)}
        names = real_names(host.name for host in run.hosts) if given["identify"] else _names(run)
        shown = document if given["identify"] else handed_on(document, names, home=os.path.expanduser("~"))
        click.echo(json.dumps(shown if judged is None else {**shown, "gpus": gpus_document(judged, names)}, indent=1))
        return
    from firstlight.report.fleet_run_text import run_text

    tell(run_text(run, folder, judged))


def _names(run: FleetRun) -> HostNames:
    """What the hosts are called where the run is handed on, also those that ssh calls otherwise."""
    from firstlight.fleet.inventory import selected
    from firstlight.fleet.ssh import where_ssh_goes
    from firstlight.report.host_names import pseudonyms_for

    names = [host.name for host in run.hosts]
    try:
        targets = [each for each in selected(run.engine.inventory, vault=run.engine.vault) if each.name in names]
        reached = [where_ssh_goes(target, config=run.engine.ssh_config) for target in targets]
    except BadInput:  # an inventory that is gone: the names themselves, and every address, are left out all the same
        reached = []
    return pseudonyms_for(names, reached)
