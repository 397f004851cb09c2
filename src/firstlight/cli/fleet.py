"""`firstlight fleet`: the same answers for many hosts, and which of them is the odd one."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli import fleet_add, fleet_measure, fleet_plan, fleet_run
from firstlight.cli.fleet_hosts import host_words, reached_of
from firstlight.cli.printing import tell
from firstlight.errors import BadInput

if TYPE_CHECKING:
    from firstlight.fleet.judged import Fleet
    from firstlight.fleet.look import HostLook
    from firstlight.fleet.ssh import Reached
    from firstlight.lock.stack import Lock

_FROM = ("--hosts", "-i", "--slurm", "--facts")


@click.group(
    short_help="many hosts at once: one table, the odd ones first",
    epilog="Example: firstlight fleet doctor -i inventory.yml",
)
@click.option("--read-only", is_flag=True,
              help="Refuse apply, undo, verify and bench: for accounts and scripts that only look.")  # fmt: skip
def command(**given: Any) -> None:
    """The same verbs for many hosts, over ssh. doctor, plan and status change nothing; apply and undo do.

    verify and bench bring firstlight along and keep what they found.
    """


for _each in (
    fleet_plan.command,
    fleet_run.apply_command,
    fleet_run.status_command,
    fleet_run.undo_command,
    fleet_measure.verify_command,
    fleet_measure.bench_command,
    fleet_add.command,
):
    command.add_command(_each)


@command.command(
    "doctor",
    short_help="look at every host, judge it, and say which ones are odd",
    epilog="Example: firstlight fleet doctor --hosts node01,node02,root@pod:2222",
)
@click.option("-i", "--inventory", metavar="FILE", default="", help="An inventory of Ansible, or one host a line.")
@click.option("--vault-password-file", metavar="FILE", default="",
              help="The password of the inventory's vault, in a file.")  # fmt: skip
@click.option("--hosts", metavar="A,B,...", default="", help="Hosts by name: [USER@]HOST[:PORT] or of ssh_config.")
@click.option("--slurm", "partition", metavar="PARTITION", default="", help="The nodes of a partition (sinfo).")
@click.option("--facts", "folder", metavar="DIR", default="", help="Recorded machines in a folder, instead of hosts.")
@click.option("--lock", "lock_file", metavar="FILE", default="", help="Compare every host with its class in this lock.")
@click.option("--goal", type=click.Choice(["infer", "train", "build-extensions", "kernels"]), default="infer",
              show_default=True, help="What the machines are for.")  # fmt: skip
@click.option("--python", metavar="PATH", default="", help="Judge the environment of this interpreter on every host.")
@click.option("--ssh-config", metavar="FILE", default="", help="This ssh_config file instead of your own.")
@click.option("--forks", type=click.IntRange(1, 128), default=16, show_default=True, help="Hosts asked at a time.")
@click.option("--timeout", "limit_s", type=click.IntRange(1, 600), default=60, show_default=True, metavar="SECONDS",
              help="The time that a host is given to answer.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the document (schema firstlight.fleet/1).")
@click.option("--html", "html_file", metavar="FILE", default="", help="Write a page to look at and to send.")
@click.option("--junit", "junit_file", metavar="FILE", default="", help="Write JUnit XML: one test case a host.")
@click.option("--identify", is_flag=True, help="Keep real names of hosts in --json, --html and --junit.")
def doctor(**given: Any) -> None:
    """Look at every host and print one table: equal hosts in one row, the odd ones first with what they differ in.

    Hosts with the same GPUs and processor are a class; the largest group of equal ones in it is the usual one. With
    --lock the class of the lock takes its place. Exit code 0: all good; 1: something blocks somewhere; 4: a host could
    not be looked at; 3: a host differs from its class. Of several the first of 1, 4, 3.
    """
    if given["html_file"]:
        from firstlight.cli.html_file import html_can_be_written

        html_can_be_written(given["html_file"])
    if given["junit_file"]:
        from firstlight.bench.saving import JUNIT, writable

        writable(given["junit_file"], JUNIT, option="--junit")
    lock = _lock(given["lock_file"])
    reached = () if _source(given) == "--facts" else reached_of(given)
    looks = _over_ssh(reached, given) if reached else _recorded(given["folder"])
    fleet = _judged(looks, goal=given["goal"], lock=lock)
    _written(fleet, reached, given)
    click.get_current_context().exit(fleet.exit_code)


def _source(given: dict[str, Any]) -> str:
    """Where the hosts come from; exactly one is accepted."""
    values = (given["hosts"], given["inventory"], given["partition"], given["folder"])
    named = [name for name, value in zip(_FROM, values, strict=True) if value]
    if len(named) != 1:
        said = f"{' and '.join(named)} were given" if named else "no hosts were named"
        raise BadInput(f"{said}; give one of {', '.join(_FROM)}, e.g. firstlight fleet doctor --hosts node01,node02")
    return named[0]


def _over_ssh(reached: tuple[Reached, ...], given: dict[str, Any]) -> tuple[HostLook, ...]:
    from firstlight.cli.zipapp import zipapp_bytes
    from firstlight.fleet.look import Asking, look_at_all

    targets = tuple(each.target for each in reached)
    asking = Asking(zipapp_bytes(), given["ssh_config"], given["python"], given["limit_s"])
    return look_at_all(targets, asking, forks=given["forks"], told=_progress(len(targets)))


def _progress(total: int) -> Callable[[HostLook], None]:
    """Says on a terminal how far it is; into a pipe nothing."""
    done: list[str] = []

    def told(look: HostLook) -> None:
        done.append(look.name)
        if sys.stderr.isatty() and (len(done) == total or len(done) % max(1, total // 10) == 0):
            click.echo(f"{len(done)} of {total} hosts have answered or were given up", err=True)

    return told


def _recorded(folder: str) -> tuple[HostLook, ...]:
    """The recorded machines of a folder: DIR/NAME/machine.json or DIR/NAME.json; links are not followed."""
    from firstlight.fleet.recorded import recorded_hosts

    return recorded_hosts(folder)


def _lock(path: str) -> Lock | None:
    """The lock, refused before the first host is asked."""
    if not path:
        return None
    from firstlight.lock.reading import read_lock

    return read_lock(path)


def _judged(looks: tuple[HostLook, ...], *, goal: str, lock: Lock | None) -> Fleet:
    from firstlight.diagnosis.finding import Goal
    from firstlight.diagnosis.rules import RULES
    from firstlight.fleet.comparing import LockToHold, compared
    from firstlight.fleet.judged import HostState, judged_or_why_not
    from firstlight.fleet.look import Looked
    from firstlight.tables import load

    tables = load()
    judged = [
        judged_or_why_not(each, tables, RULES, goal=Goal(goal)) if isinstance(each, Looked) else each for each in looks
    ]
    states = [each for each in judged if isinstance(each, HostState)]
    missing = [each for each in judged if not isinstance(each, HostState)]
    return compared(states, missing, lock=LockToHold(lock, tables, RULES) if lock is not None else None)


def _written(fleet: Fleet, reached: tuple[Reached, ...], given: dict[str, Any]) -> None:
    from firstlight.report.fleet_json import fleet_document, fleet_junit
    from firstlight.report.host_names import pseudonyms_for, real_names

    hosts = [host for row in fleet.rows for host in row.hosts]
    names = real_names(hosts) if given["identify"] else pseudonyms_for(hosts, reached)
    if given["junit_file"]:
        from firstlight.bench.saving import save

        save(given["junit_file"], fleet_junit(fleet, names), option="--junit")
    if given["html_file"]:
        from firstlight.cli.html_file import write_html
        from firstlight.report.html.fleet_page import fleet_page

        write_html(given["html_file"], fleet_page(fleet, names, fleet_document(fleet, names)))
    if given["as_json"]:
        click.echo(json.dumps(fleet_document(fleet, names), indent=1))
    else:
        from firstlight.report.fleet_text import fleet_text

        tell(fleet_text(fleet, _next(fleet, reached, given)))


def _next(fleet: Fleet, reached: tuple[Reached, ...], given: dict[str, Any]) -> tuple[str, ...]:
    """What is typed next: doctor for the first host that is not as it should be, and for the same goal."""
    odd = next(
        (row for row in fleet.rows if row.state is not None and (row.state.diagnosis.blocked or row.is_odd)), None
    )
    if odd is None:
        return ()
    if given["folder"]:
        from firstlight.fleet.recorded import path_of

        machine: tuple[str, ...] = ("--facts", path_of(given["folder"], odd.hosts[0]))
    else:
        machine = host_words(next(each.target for each in reached if each.target.name == odd.hosts[0]), given)
    goal = ("--goal", given["goal"]) if given["goal"] != "infer" else ()
    return (shlex.join(("firstlight", "doctor", *machine, *goal)),)
