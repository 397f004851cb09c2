"""`firstlight profile`: Nsight Compute's counters of a case or a command, held against the least traffic and tiers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.given import refuse_json
from firstlight.errors import BadInput

if TYPE_CHECKING:
    from firstlight.profile.result import Profile
    from firstlight.profile.session import Wanted

NO_COUNTERS = 4
LAUNCHES_OF_A_COMMAND = 20
AFTER_DASHES = "firstlight.profile.command"


class WithCommand(click.Command):
    """Keeps what stands after `--` apart: click drops the dashes, and one word after them would look like a case."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta[AFTER_DASHES] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


@click.command(
    cls=WithCommand,
    short_help="see inside: Nsight Compute's counters, traffic over the least, tiers",
    epilog="Examples: firstlight profile gemm/fp16/8192x8192x8192; firstlight profile -- ./my_kernel --size 4096",
)
@click.argument("what", nargs=-1, metavar="CASE | -- CMD...")
@click.option(
    "--list",
    "lists",
    is_flag=True,
    help="Print the metrics, and what the names in older reports are called today; stop.",
)
@click.option("--show-tiers", is_flag=True, help="Print the shipped tiers with what was changed and why; stop.")
@click.option("--from", "report_file", default="", metavar="FILE", help="Read a .ncu-rep again instead of running.")
@click.option("--tiers", default="shipped", metavar="FILE", help="Tiers of your own (TOML, see --show-tiers).")
@click.option("--need", default="", metavar="TIER", help="Exit 1 unless this tier is reached, for CI.")
@click.option("--report", default="", metavar="FILE", help="Where the .ncu-rep goes. Default: profile-NAME.ncu-rep.")
@click.option("--device", default="cuda:0", show_default=True, help="For a case: cuda:0 (or another number) or cpu.")
@click.option("--kernel", default="", metavar="REGEX", help="Count only kernels whose name matches this.")
@click.option("--skip", default=0, type=click.IntRange(0), metavar="N", help="Leave out the first N launches.")
@click.option("--launches", default=None, type=click.IntRange(0), metavar="N",
              help="Count at most N launches; 0: all. Default: 20 of a command, all of a case.")  # fmt: skip
@click.option("--limit", "limit_s", default=0.0, type=click.FloatRange(0), metavar="S", help="End it after S seconds.")
@click.option(
    "--bytes", "least_bytes", default=None, type=click.IntRange(1), metavar="N", help="The least bytes that must move."
)
@click.option("--bound", type=click.Choice(["tensor", "vector", "memory"]), default=None,
              help="What limits the speed; known for a case, taken from the counters for a command.")  # fmt: skip
@click.option("--bench", default="", metavar="FILE", help="Take the share of the limit from this run of bench.")
@click.option("--no-bench", is_flag=True, help="Do not time the case without a profiler.")
@click.option("--json", "as_json", is_flag=True, help="Print the result (schema firstlight.profile/1).")
@click.option("--identify", is_flag=True, help="With --json: keep real names of users and hosts.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Look inside one case of the suite, or a command, with Nsight Compute.

    Clocks are left alone; the names of counters are checked with --query-metrics; the report is kept. Where counters
    are forbidden the reason is said and the torch profiler gives names and times (a command is then run twice). Exit
    code 0: counted; 1: a wrong result, a program that failed, or --need is not reached; 2: usage and bad input; 4: no
    counters, or nothing to look at.
    """
    if given["lists"] or given["show_tiers"]:
        refuse_json("--list" if given["lists"] else "--show-tiers", as_json=given["as_json"])
        _print_known(given)
        return
    wanted = _wanted(given)
    profile = _profile(given, wanted)
    _print(profile, given)
    ctx.exit(_exit_code(profile, given))


def _print_known(given: dict[str, Any]) -> None:
    from firstlight.profile.tiers import shipped_text
    from firstlight.report.profile_text import list_text

    click.echo(list_text() if given["lists"] else shipped_text(), nl=False)


def _wanted(given: dict[str, Any]) -> Wanted:
    """The options, checked before anything runs."""
    from firstlight.bench.saving import REPORT, writable
    from firstlight.profile.ncu import Launches
    from firstlight.profile.result import Pace
    from firstlight.profile.session import NO_BENCH, Wanted
    from firstlight.profile.tiers import read_tiers

    tiers = read_tiers(given["tiers"])
    names = [tier.name for tier in tiers.tiers]
    if given["need"] and given["need"] not in names:
        file = "the shipped tiers" if given["tiers"] == "shipped" else given["tiers"]
        raise BadInput(f"--need {given['need']!a}: no such tier in {file}; accepted: {', '.join(names)}")
    if given["bench"] and given["no_bench"]:
        raise BadInput("--bench FILE takes the time from a run, --no-bench leaves it out; give one of them")
    if given["report"]:
        if not given["report"].endswith(".ncu-rep"):
            raise BadInput(f"--report {given['report']!a}: Nsight Compute opens files that end in .ncu-rep; name one")
        writable(given["report"], REPORT, option="--report")
    return Wanted(
        tiers,
        report=given["report"],
        launches=Launches(given["kernel"], given["skip"], _most_launches(given)),
        limit_s=given["limit_s"],
        bench=NO_BENCH if given["no_bench"] else given["bench"],
        least_bytes=given["least_bytes"],
        bound=Pace(given["bound"]) if given["bound"] else Pace.UNKNOWN,
    )


def _profile(given: dict[str, Any], wanted: Wanted) -> Profile:
    from firstlight.machine.live import LiveMachine
    from firstlight.profile.session import profile_case, profile_command, profile_report

    what, machine = given["what"], LiveMachine()
    typed: tuple[str, ...] | None = click.get_current_context().meta.get(AFTER_DASHES)
    if given["report_file"]:
        if what or typed:
            raise BadInput(f"--from {given['report_file']} reads a report and runs nothing; name no case or command")
        return profile_report(machine, given["report_file"], wanted=wanted)
    if len(what) > 1 or (what and typed):
        raise BadInput(
            f"{' '.join((*what, *(typed or ())))!a} is neither one case nor a command after two dashes; accepted: "
            "firstlight profile CASE, or firstlight profile -- python train.py"
        )
    if typed:
        return profile_command(machine, typed, wanted=wanted, say=_say)
    if not what:
        raise BadInput(
            "nothing is named; accepted: a case (`firstlight bench --list` prints them), or two dashes and a command: "
            "firstlight profile -- python train.py"
        )
    return profile_case(machine, what[0], device=given["device"], wanted=wanted, say=_say)


def _most_launches(given: dict[str, Any]) -> int:
    """20 of a command, which may launch thousands; all of a case, whose least bytes are those of all."""
    if given["launches"] is not None:
        return int(given["launches"])
    return 0 if given["what"] else LAUNCHES_OF_A_COMMAND


def _say(line: str) -> None:
    click.echo(f"firstlight: {line}", err=True)


def _print(profile: Profile, given: dict[str, Any]) -> None:
    if given["as_json"]:
        from firstlight.report.profile_json import profile_document

        told = profile if given["identify"] else _without_names(profile)
        click.echo(json.dumps(profile_document(told), indent=1))
    else:
        from firstlight.report.profile_text import profile_text

        click.echo(profile_text(profile), nl=False)
    sys.stdout.flush()


def _without_names(profile: Profile) -> Profile:
    """The profile with pseudonyms, for a document that travels; what we wrote ourselves stays as it is."""
    from dataclasses import replace

    from firstlight.facts.pseudonyms import Pseudonyms, rename_all
    from firstlight.machine.live import LiveMachine

    renamed = rename_all(profile, Pseudonyms.of(LiveMachine().host, ()).apply)
    trouble = renamed.trouble
    if trouble is not None and profile.trouble is not None:
        trouble = replace(trouble, do=profile.trouble.do)
    return replace(renamed, changed=profile.changed, values=profile.values, trouble=trouble)


def _exit_code(profile: Profile, given: dict[str, Any]) -> int:
    from firstlight.profile.result import Met

    failed = profile.trouble is not None and profile.trouble.code == "program-failed"
    ran = [each for tier in profile.tiers for each in tier.conditions if each.text in ("ran", "correct")]
    if failed or profile.work.correct is False or any(each.met is Met.NO for each in ran):
        return 1
    if profile.trouble is not None:
        return NO_COUNTERS
    if given["need"]:
        names = [tier.name for tier in profile.tiers]
        reached = names.index(profile.reached) if profile.reached else -1
        return 0 if reached >= names.index(given["need"]) else 1
    return 0
