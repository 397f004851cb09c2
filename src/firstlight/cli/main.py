"""The `firstlight` command: verbs are imported when they are called, errors become one line and an exit code."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from typing import Any

import click

from firstlight import __version__
from firstlight.cli.given import refuse_nothing
from firstlight.cli.printing import guarded_streams
from firstlight.cli.streams import drop, keep_writable, nowhere_to_write
from firstlight.errors import FirstlightError

# verb -> (module under firstlight.cli, one line for the list of verbs)
VERBS = {
    "doctor": ("doctor", "why not: the one cause that keeps CUDA from working, and what to do"),
    "rules": ("rules", "what doctor can find: every rule, or one in full"),
    "explain": ("explain", "an error line or a log: its cause, a proof and the ways out"),
    "facts": ("facts", "look: what this machine is; changes nothing"),
    "plan": ("plan", "decide: every way out, ranked; the chosen one as exact commands; changes nothing"),
    "apply": ("apply", "act: show the plan, ask once, do it, prove it; can be killed, run twice and taken back"),
    "undo": ("undo", "take back what apply did, newest first"),
    "build": (
        "build",
        "build from source: checked before it starts, can be stopped and resumed, proves its result",
    ),
    "bundle": ("bundle", "the wheels for a machine without a network, in a folder"),
    "run": ("run", "run CMD with the libcuda that works on this machine, decided now"),
    "libs": (
        "libs",
        "every shared library torch needs: where from, what is missing, which package has it; --fix installs it",
    ),
    "verify": ("verify", "prove it: child processes compute, compile and load what torch needs"),
    "lock": ("lock", "keep: what was proved, written to firstlight.lock; --hold makes pip, uv, apt and conda keep it"),
    "check": ("check", "what has changed since the lock, what it leads to, and what to do"),
    "bench": ("bench", "measure: the benchmark suite, every number beside what the silicon can do"),
    "profile": (
        "profile",
        "see inside: Nsight Compute's counters of a case or a command, and what they reach",
    ),
    "kernels": ("kernels", "block-sparse products: which kernel runs here, and why"),
    "emit": ("emit", "the plan as files for other machines: bash, Dockerfile, Compose, k8s, RunPod, Slurm, Ansible"),
    "lint": ("lint", "your Dockerfile, requirements, manifests or job scripts: what in them will break on a machine"),
    "fleet": ("fleet", "many hosts over ssh: one table, the odd ones first"),
    "ship": ("ship", "an image to another machine over ssh: only the layers that are missing there"),
    "guard": ("guard", "may this run: one command or edit, judged by the team's policy; exit 0: allow, 2: deny"),
    "mcp": ("mcp", "the verbs that change nothing, as tools for a coding agent over stdio"),
    "handover": (
        "handover",
        "one page that goes with a machine: what it is, what was done, what is proved, how fast it is",
    ),
    "report": ("report", "take the data out of an HTML report again"),
    "tables": ("tables", "the knowledge behind every answer, with sources and dates"),
}
DEFAULT_VERB = "doctor"
_NOWHERE = (
    "the folder that this was started in is gone: it was removed, or made again meanwhile. Change to one that is "
    "there, e.g. cd ~."
)
_LASTING = ("bench", "profile", "kernels")  # verbs that hold memory of a GPU, which a cycle may keep
_USUAL_RATE = gc.get_threshold()
# A group without a verb, from click 8.2 on; before that click prints its help by itself.
_NO_ARGS: tuple[type[click.UsageError], ...] = tuple(
    found for found in (getattr(click.exceptions, "NoArgsIsHelpError", None),) if found is not None
)


class Verbs(click.Group):
    """A group whose verbs are imported on use, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        if cmd_name in _LASTING:
            gc.set_threshold(*_USUAL_RATE)
        module = importlib.import_module(f"firstlight.cli.{VERBS[cmd_name][0]}")
        return refuse_nothing(module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS:
            from firstlight.near import nearest

            near = nearest(args[0], VERBS)
            hint = f" Did you mean `firstlight {near[0]}`?" if near else ""
            if args[0] == "help":
                hint = " Did you mean `firstlight --help`, or that of a verb: `firstlight plan --help`?"
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
    # A verb makes thousands of small objects, keeps nearly all of them and ends: looking for cycles among them at the
    # usual rate, and three times over at the end, takes a twentieth of doctor's time and finds none worth it.
    gc.set_threshold(1_000_000)
    code = run(args)
    gc.freeze()
    sys.exit(code)


def run(args: list[str] | None = None) -> int:
    """The exit code of one command line."""
    given = sys.argv[1:] if args is None else args
    keep_writable()
    with guarded_streams(given):
        return _as_a_hook_needs_it(_heard(_run(args)), given)


def _heard(code: int) -> int:
    """The exit code; 4 where a result was written to a stdout that cannot take it."""
    if not nowhere_to_write():
        return code
    return _complain(
        f"the output could not be written: stdout is not open for writing (otherwise the exit code would be {code})", 4
    )


def _as_a_hook_needs_it(code: int, given: list[str]) -> int:
    """For a decision of `guard` every end but allow is deny: 1, 5 and 130 mean "go on" to the tools that call it."""
    return 2 if code != 0 and given[:1] == ["guard"] and given[1:2] != ["test"] else code


def _no_such_option(error: click.NoSuchOption) -> str:
    """click's sentence with names that are plausible; its own would offer --set for --jsn."""
    from firstlight.near import nearest

    params = error.ctx.command.params if error.ctx is not None else ()
    if error.ctx is not None and error.ctx.parent is None and _is_of_doctor(error.option_name):
        return f"{error.message} It belongs behind a verb: `firstlight {DEFAULT_VERB} {error.option_name}`."
    near = nearest(error.option_name, (name for each in params for name in each.opts if name.startswith("--")))
    return error.message + (f" Did you mean {near[0]}?" if near else "")


def _usage_message(error: click.UsageError) -> str:
    """click's sentence, and where it names nothing that is accepted, one that does."""
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error)
    group = error.ctx.command if error.ctx is not None else None
    if error.ctx is None or not isinstance(group, click.Group) or not error.message.startswith("No such command"):
        return error.format_message()
    from firstlight.near import nearest

    given, names = error.message.partition("'")[2].rpartition("'")[0], group.list_commands(error.ctx)
    near = nearest(given, names)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"{given[:60]!a} is not a subcommand of {error.ctx.info_name}; accepted: {', '.join(names)}.{hint}"


def _is_of_doctor(option: str) -> bool:
    command = cli.get_command(click.Context(cli), DEFAULT_VERB)
    return command is not None and any(option in each.opts for each in command.params)


def _run(args: list[str] | None) -> int:
    try:
        code = _called(args)
        sys.stdout.flush()
        return code
    except _NO_ARGS as error:  # the help as it is laid out, not in one line
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = f" See `{error.ctx.command_path} --help`." if error.ctx is not None else ""
        message = _usage_message(error)
        return _complain(message + ("" if message.endswith((".", "?")) else ".") + where, 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except FirstlightError as error:
        return _complain(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            return _complain(_NOWHERE, 2)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            return _our_bug(error)
        drop(sys.stdout.fileno())  # or Python fails again at its end
        return _complain(f"the output could not be written: {error.strerror}", 4)
    except Exception as error:  # noqa: BLE001 the one place: our bug, said as such
        return _our_bug(error)


def _is_nowhere() -> bool:
    """Whether the folder that we were started in was removed: no relative path leads anywhere from there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _called(args: list[str] | None) -> int:
    if "_FIRSTLIGHT_COMPLETE" in os.environ:
        from firstlight.cli.completing import complete_words_with_colons

        complete_words_with_colons()
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
