"""The `firstlight` command: verbs are imported when they are called, errors become one line and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from firstlight import __version__
from firstlight.cli.given import refuse_nothing
from firstlight.cli.printing import guarded_streams
from firstlight.cli.streams import drop, keep_writable
from firstlight.errors import FirstlightError

# verb -> (module under firstlight.cli, one line for the list of verbs)
VERBS = {
    "doctor": ("doctor", "why not: the one cause that keeps CUDA from working, and what to do"),
    "explain": ("explain", "an error line or a log: its cause, a proof and the ways out"),
    "facts": ("facts", "look: what this machine is; changes nothing"),
    "plan": ("plan", "decide: every way out, ranked; the chosen one as exact commands; changes nothing"),
    "apply": ("apply", "act: the plan, asked for once, done, proved; can be killed, run twice and taken back"),
    "undo": ("undo", "take back what apply did, newest first"),
    "bundle": ("bundle", "the wheels for a machine without a network, in a folder"),
    "run": ("run", "run CMD with the libcuda that works on this machine, decided now"),
    "libs": (
        "libs",
        "every shared library torch needs at once: where from, what is missing, who has it; --fix closes it",
    ),
    "verify": ("verify", "prove it: child processes compute, compile and load what torch needs"),
    "bench": ("bench", "measure: the suite, every number held against what the silicon can do"),
    "profile": (
        "profile",
        "see inside: Nsight Compute's counters of a case or a command, and what they reach",
    ),
    "kernels": ("kernels", "block-sparse products: which kernel runs here, and why"),
    "emit": ("emit", "the plan for machines that are not here yet: bash, Dockerfile, RunPod, Slurm, Ansible"),
    "lint": ("lint", "a Dockerfile or compose file: what of it will break on a machine, line by line"),
    "report": ("report", "take the data out of an HTML report again"),
    "tables": ("tables", "the knowledge behind every answer, with sources and dates"),
}
DEFAULT_VERB = "doctor"


class Verbs(click.Group):
    """A group whose verbs are imported on use, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"firstlight.cli.{VERBS[cmd_name][0]}")
        return refuse_nothing(module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS:
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f" Did you mean `firstlight {near[0]}`?" if near else ""
            ctx.fail(f"{args[0]!r} is not a verb; accepted: {', '.join(VERBS)}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, line) for verb, (_, line) in VERBS.items()])


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 click's signature
    if not wanted or ctx.resilient_parsing:
        return
    import datetime

    from firstlight.tables import load

    tables = load()
    click.echo(f"firstlight {__version__} (tables of {tables.newest_date()})")
    if warning := tables.age_warning(datetime.datetime.now(datetime.timezone.utc).date()):
        click.echo(warning)
    ctx.exit()


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=f"Without a verb: {DEFAULT_VERB}. Example: firstlight facts --json > machine.json",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
              help="Print the version and the date of the tables, and stop.")  # fmt: skip
@click.pass_context
def cli(ctx: click.Context) -> None:
    """GPU bring-up: what this machine is, what keeps PyTorch + CUDA from working, and what to do about it."""
    if ctx.invoked_subcommand is None:
        command = cli.get_command(ctx, DEFAULT_VERB)
        assert command is not None
        ctx.invoke(command)


def main(args: list[str] | None = None) -> None:
    """Run the command line; every way out goes through here."""
    sys.exit(run(args))


def run(args: list[str] | None = None) -> int:
    """The exit code of one command line."""
    keep_writable()
    with guarded_streams(sys.argv[1:] if args is None else args):
        return _run(args)


def _run(args: list[str] | None) -> int:
    try:
        code = _called(args)
        sys.stdout.flush()
        return code
    except click.UsageError as error:
        where = f" See `{error.ctx.command_path} --help`." if error.ctx is not None else ""
        message = error.format_message()
        return _complain(message + ("" if message.endswith((".", "?")) else ".") + where, 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except FirstlightError as error:
        return _complain(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            return _our_bug(error)
        drop(sys.stdout.fileno())  # or Python fails again at its end
        return _complain(f"the output could not be written: {error.strerror}", 4)
    except Exception as error:  # noqa: BLE001 the one place: our bug, said as such
        return _our_bug(error)


def _called(args: list[str] | None) -> int:
    try:
        code: Any = cli.main(args=args, prog_name="firstlight", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return code if isinstance(code, int) else 0


def _our_bug(error: Exception) -> int:
    if os.environ.get("FIRSTLIGHT_DEBUG"):
        raise error
    return _complain(_bug(error), 5)


def _complain(message: str, code: int) -> int:
    one_line = " ".join(message.split())
    print(f"firstlight: {one_line}", file=sys.stderr)  # noqa: T201
    return code


def _bug(error: Exception) -> str:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    spot = "" if frame is None else f" at {os.path.basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"
    return (
        f"a bug in firstlight{spot}: {type(error).__name__}: {error}. "
        "What was changed before it is in the journal (`firstlight undo --list`). FIRSTLIGHT_DEBUG=1 shows where; "
        "`firstlight facts --record DIR` makes it reproducible."
    )
