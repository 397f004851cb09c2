"""`firstlight guard`: may this run. Allow is 0 and deny is 2; a hook never ends in any other way."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput

if TYPE_CHECKING:
    from firstlight.guard.judge import Decision
    from firstlight.guard.place import Place
    from firstlight.guard.policy import Policy

_TOOLS = ("claude", "cursor", "codex")
_DENY = 2


class _Guard(click.Command):
    """Words after -- are a command, whatever they look like; `test` before it is our own word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["firstlight.words"] = tuple(args[at + 1 :]) if at < len(args) else None
        return super().parse_args(ctx, args[:at])


@click.command(
    cls=_Guard,
    short_help="may this run: one command or edit, judged by the team's policy; exit 0: allow, 2: deny",
    epilog="Example: firstlight guard --why --shell 'pip install triton'",
)
@click.argument("what", metavar="[test] [-- CMD...]", nargs=-1)
@click.option("--shell", "text", metavar="TEXT", default=None, help="Decide on shell text.")
@click.option("--edit", "path", metavar="PATH", default=None, help="Decide on an edit of a file.")
@click.option("--hook", "tool", type=click.Choice(_TOOLS), default=None,
              help="Read that tool's JSON on stdin, and answer in its form.")  # fmt: skip
@click.option("--files", is_flag=True, help="The words after -- are files that are about to be committed.")
@click.option("--policy", "policy_file", metavar="FILE", default="",
              help="The policy. Default: the nearest firstlight.toml, here or above.")  # fmt: skip
@click.option("--why", is_flag=True, help="Print how the command was read.")
@click.option("--all", "everything", is_flag=True, help="guard test: send every test action, not two of each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print the decision (schema firstlight.guard/1).")
@click.pass_context
def command(ctx: click.Context, /, what: tuple[str, ...], **given: Any) -> int:
    """Decide on one action by the policy in firstlight.toml. A seat belt, not a sandbox: see docs/guard.md.

    \b
    firstlight guard -- CMD...          one command
    firstlight guard --shell TEXT       shell text, followed through sh -c, env, xargs, make and the like
    firstlight guard --edit PATH        an edit of a file
    firstlight guard --hook claude      the JSON of a tool's hook on stdin; also cursor and codex
    firstlight guard test               send the test actions to every hook installed here, also with its parts broken

    Exit code 0: allow; 2: deny, with the reason, the line of the policy and what is open on stderr. Whatever goes wrong
    is deny too. `firstlight guard test` ends with 1 where a hook lets something through.
    """
    words = ctx.meta["firstlight.words"]
    if what == ("test",) and words is None:
        from firstlight.cli.guard_test import test_hooks

        return test_hooks(every="yes" if given["everything"] else "no", as_json="yes" if given["as_json"] else "no")
    if what:
        raise BadInput(f"{what[0][:60]!a}: write the command after --, e.g. firstlight guard -- pip install requests.")
    if given["tool"] is not None:
        return _hook(given["tool"], given["policy_file"])
    kinds = [each for each in (words, given["text"], given["path"]) if each is not None]
    if given["files"] and not words:
        raise BadInput("--files: write the files after --, e.g. firstlight guard --files -- requirements.txt.")
    if len(kinds) != 1 or words == ():
        raise BadInput("guard decides on one action; accepted: -- CMD..., --shell TEXT, --edit PATH or --hook TOOL.")
    policy, place = _policy(given["policy_file"], os.getcwd())
    if given["files"]:
        return _files(words or (), policy, place)
    kind = "words" if words is not None else "shell" if given["text"] is not None else "edit"
    decision = _decide(kind, words or (given["text"] if kind == "shell" else given["path"],), policy, place)
    shown = shlex.join(words) if kind == "words" else given["text"] if kind == "shell" else given["path"]
    return _tell(decision, policy, kind, shown, given)


def _tell(decision: Decision, policy: Policy, kind: str, shown: str, given: dict[str, Any]) -> int:
    from firstlight.report.guard_text import deny_text, why_text

    if given["why"]:
        click.echo(why_text(decision), nl=False, err=bool(given["as_json"]))
    if given["as_json"]:
        import json

        from firstlight.report.guard_json import guard_document

        click.echo(json.dumps(guard_document(decision, policy, kind=kind, text=shown), indent=1))
    if not decision.allowed:
        click.echo(deny_text(decision, policy), nl=False, err=True)
    return 0 if decision.allowed else _DENY


def _files(paths: tuple[str, ...], policy: Policy, place: Place) -> int:
    """Requirements and shell scripts as if they were installed and run: what pre-commit calls."""
    from dataclasses import replace

    from firstlight.guard.policy import CONSTRAINTS
    from firstlight.report.guard_text import deny_text

    code = 0
    for path in paths:
        name = os.path.basename(path)
        if name == "firstlight.toml":
            continue  # read above: a policy that is wrong ended there
        words: tuple[str, ...] = ("sh", path) if name.endswith(".sh") else ("pip", "install", "-r", path)
        if name.startswith("environment.y"):
            words = ("conda", "env", "update", "--file", path)
        elif name == "pyproject.toml":
            words = ("uv", "sync", "--all-extras", "--all-groups", "--project", os.path.dirname(path) or ".")
        if words[0] in ("pip", "uv"):
            words = (*words, "-c", os.path.join(place.root, CONSTRAINTS))  # whether pip would, is not the question
        decision = _decide("words", words, policy, replace(place, in_container=True))
        if not decision.allowed:
            click.echo(f"{path}:", err=True)
            click.echo(deny_text(decision, policy), nl=False, err=True)
            code = _DENY
    return code


def _policy(given: str, start: str) -> tuple[Policy, Place]:
    from firstlight.guard.place import Place, in_container, program_file
    from firstlight.guard.policy import NAME, find_policy, read_policy

    path = os.path.abspath(given) if given else find_policy(start)
    if not path:
        raise BadInput(
            f"no {NAME} in {start} or above: without a policy everything is denied. docs/guard.md has one to copy; "
            "one that bans nothing is written by: firstlight emit agents"
        )
    policy = read_policy(path)
    own = tuple(
        each for each in (program_file("firstlight", (start,), os.environ), os.path.realpath(sys.argv[0])) if each
    )
    return policy, Place(policy.root, os.path.abspath(start), dict(os.environ), in_container(os.environ), own)


def _decide(kind: str, texts: tuple[str, ...], policy: Policy, place: Place) -> Decision:
    from firstlight.guard.hooks import HookAction, decide_call
    from firstlight.guard.limit import within_the_limit

    with within_the_limit():
        return decide_call(HookAction(kind, texts), policy, place)


def _hook(tool: str, policy_file: str) -> int:
    """Read what a tool is about to do; all that is not a clear allow is deny."""
    from firstlight.errors import FirstlightError
    from firstlight.guard.hooks import LARGEST, answer_on_stdout, read_call
    from firstlight.guard.ways_out import is_way_out

    try:
        call = read_call(tool, sys.stdin.buffer.read(LARGEST + 1))
        if is_way_out(call.action.kind, call.action.texts):
            click.echo(answer_on_stdout(tool, ""), nl=False)
            return 0  # before the policy is read: it may be torn, and the parser missing
        start = call.cwd if os.path.isdir(call.cwd) else os.getcwd()
        policy, place = _policy(policy_file, start)
        decision = _decide(call.action.kind, call.action.texts, policy, place)
    except FirstlightError as error:
        reason = f"firstlight guard: denied: {error}\n"
    else:
        from firstlight.report.guard_text import deny_text

        reason = "" if decision.allowed else deny_text(decision, policy)
    click.echo(answer_on_stdout(tool, reason), nl=False)
    click.echo(reason, nl=False, err=True)
    return _DENY if reason else 0
