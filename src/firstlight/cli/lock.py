"""`firstlight lock`: prove the machine, write what was proved, and have the package managers keep it."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.locking import DEFAULT, looked_at, places_here, real_names
from firstlight.cli.looking import look_options, look_patiently
from firstlight.diagnosis.finding import Goal
from firstlight.errors import BadInput, CouldNotAct, CouldNotLook
from firstlight.facts.known import Unknown
from firstlight.facts.look import Look

if TYPE_CHECKING:
    from firstlight.facts.collect import Facts
    from firstlight.lock.stack import Lock, LockedClass, Stack

_GOALS = click.Choice([goal.value for goal in Goal])
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@click.command(
    short_help="keep it: prove this machine, write firstlight.lock; --hold makes pip, uv, apt and conda refuse changes",
    epilog="Example: firstlight lock --checkout /opt/cutlass --hold",
)
@click.option("--out", default=DEFAULT, show_default=True, metavar="FILE",
              help="The lock; its classes of other machines stay as they are, to the byte.")  # fmt: skip
@click.option("--class", "class_name", default="", metavar="NAME",
              help="What this kind of machine is called; default: e.g. sm90-x86_64-r580.")  # fmt: skip
@click.option("--evidence", default="", metavar="FILE",
              help="What `verify --json` printed on this machine, instead of running it again.")  # fmt: skip
@click.option("--bench", default="", metavar="FILE", help="A run of bench, whose id is kept with the class.")
@click.option("--checkout", "checkouts", multiple=True, metavar="DIR",
              help="A git work tree whose commit is kept. May be repeated.")  # fmt: skip
@click.option("--goal", type=_GOALS, default=None,
              help="What the machine is for; default: build-extensions where nvcc is, else infer.")  # fmt: skip
@click.option("--hold", is_flag=True, help="Also make pip, uv, apt and conda refuse to change the stack.")
@click.option("--dry-run", is_flag=True, help="With --hold: show what would be done; change nothing.")
@click.option("--yes", is_flag=True, help="With --hold: do it without asking, for automation.")
@click.option("--json", "as_json", is_flag=True, help="Print what was locked (schema firstlight.lock/1).")
@look_options
@click.pass_context
def command(ctx: click.Context, /, look: Look, **given: Any) -> None:
    """Run `verify`, and write what was proved to a file that `firstlight check` compares machines with.

    The file has one class for each kind of machine, sorted, one fact a line, without names of hosts, users or devices.
    With --facts another machine is locked, marked as not verified. With --hold a lock that still fits is kept as it is;
    the steps are shown, confirmed once and written to the journal; `firstlight undo` takes them back. Exit code 0:
    locked; 1: verify failed, or a step did; 2: usage and bad input; 4: the machine could not be looked at.
    """
    _check_options(look, given)
    before = _before(given["out"])
    facts = look_patiently(real_names(look))
    stack, locked = _as_locked(before, look, facts, given)
    if locked is None:
        locked = _proved(look, facts, stack, given)
        if not given["dry_run"]:
            _write(given["out"], before, locked)
        if not (given["hold"] and given["as_json"]):  # one document, at the end
            _told(locked, given)
    if given["hold"]:
        from firstlight.cli.lock_hold import hold

        hold(ctx, locked, look, facts, given)


def _check_options(look: Look, given: dict[str, Any]) -> None:
    """Refuse what cannot go together before minutes are spent."""
    if given["class_name"] and not _NAME.fullmatch(given["class_name"]):
        raise BadInput(
            f"--class {given['class_name'][:80]!a}: accepted are letters, digits, '.', '_' and '-', at most 64 of them."
        )
    if look.facts_file:
        for option in ("evidence", "hold"):
            if given[option]:
                why = "proves" if option == "evidence" else "changes"
                raise BadInput(f"--{option} {why} this machine; it cannot be combined with --facts {look.facts_file}")
    if look.overrides and not look.facts_file:
        raise BadInput("--set pretends a fact, and a lock says what was proved. Lock a saved machine: --facts FILE")
    if not given["hold"]:
        for option in ("yes", "dry_run"):
            if given[option]:
                raise BadInput(f"--{option.replace('_', '-')} is about --hold, which was not given. Add --hold.")
    for folder in given["checkouts"]:
        if not os.path.exists(os.path.join(folder, ".git")):
            raise BadInput(f"--checkout {folder}: no git work tree is there; accepted is a folder with .git in it")
    folder = os.path.dirname(os.path.abspath(given["out"]))
    if os.path.isdir(given["out"]) or not os.access(folder, os.W_OK):
        raise BadInput(f"--out {given['out']}: cannot be written; accepted: a file in a folder that you can write to")


def _before(path: str) -> Lock | None:
    """The lock that is there already; what is no lock is not overwritten."""
    from firstlight.lock.reading import read_lock

    return read_lock(path) if os.path.lexists(path) else None


def _as_locked(
    before: Lock | None, look: Look, facts: Facts, given: dict[str, Any]
) -> tuple[Stack, LockedClass | None]:
    """The stack as it is, and with --hold the class that it is locked as already."""
    from firstlight.lock.classes import class_for
    from firstlight.lock.drift import drifts
    from firstlight.lock.looking import kind_of, stack_of
    from firstlight.lock.stack import Part

    named = before.named(given["class_name"]) if before is not None and given["class_name"] else None
    kind = kind_of(facts)
    found = named or (class_for(before, kind) if before is not None and not given["class_name"] else None)
    looked = looked_at(look, facts)
    kept = () if found is None else (each.name for each in found.held if each.part is Part.CHECKOUTS)
    trees = (*map(os.path.abspath, given["checkouts"]), *map(looked.places.real, kept))
    stack = stack_of(looked_at(look, facts, checkouts=tuple(dict.fromkeys(trees))))
    if not given["hold"] or found is None or drifts(found, stack):
        return stack, None
    click.echo(f"{given['out']}: class {found.name} is as locked; it was not proved again", err=given["as_json"])
    return stack, found


def _proved(look: Look, facts: Facts, stack: Stack, given: dict[str, Any]) -> LockedClass:
    """The class to write, after verify or what it said before; a machine where it fails is not locked."""
    from firstlight.diagnosis.finding import Question
    from firstlight.diagnosis.rules import RULES
    from firstlight.lock.consequences import findings_to_keep
    from firstlight.lock.stack import LockedClass, Part
    from firstlight.tables import load

    if not look.facts_file and isinstance(facts.torch, Unknown):
        raise CouldNotLook(
            f"no torch was found to lock ({facts.torch.reason}). Name its environment: --python PATH. One that only "
            "a .pth file or PYTHONPATH brings in is not part of one."
        )
    verify = "" if look.facts_file else _proof(look, facts, given)
    builds = stack.at(Part.TOOLKIT, "nvcc") or stack.at(Part.TOOLKIT, "extensions")
    goal = Goal(given["goal"]) if given["goal"] else Goal.BUILD_EXTENSIONS if builds is not None else Goal.INFER
    return LockedClass(
        name=given["class_name"] or stack.kind.usual_name,
        kind=stack.kind,
        goal=goal,
        verified=bool(verify),
        verify=verify,
        bench=_bench_id(given["bench"]),
        held=stack.held,
        findings=findings_to_keep(Question(facts, load(), goal), RULES, places=places_here(look, facts)),
    )


def _proof(look: Look, facts: Facts, given: dict[str, Any]) -> str:
    from firstlight.lock.evidence import ProvedCheck, digest_of_proof

    if given["evidence"]:
        return _proof_of_file(given["evidence"], facts)
    from firstlight.cli.verify import prove
    from firstlight.report.verify_text import Detail, verify_text
    from firstlight.verify.checks import CHECKS
    from firstlight.verify.verdict import exit_code

    click.echo("firstlight: proving this machine first, which takes about a minute", err=True)
    asked = {"python": look.python, "so_files": (), "skip": "", "only": "", "require_file": "", "identify": True}
    report = prove(tuple(check.name for check in CHECKS), (), asked)
    if exit_code(report):
        click.echo(verify_text(report, Detail.LINE), nl=False, err=True)
        raise CouldNotAct(
            "verify failed, and what is not proved is not locked; nothing was written. `firstlight doctor` says why."
        )
    return digest_of_proof(ProvedCheck(each.check, each.outcome.value) for each in report.results)


def _proof_of_file(path: str, facts: Facts) -> str:
    """The digest of a proof that was made before, if it is whole, good, and of the machine as it is now."""
    from firstlight.facts.look import under_pseudonyms
    from firstlight.lock.evidence import ProvedCheck, digest_of_proof
    from firstlight.opening import open_given
    from firstlight.report.summary import machine_summary
    from firstlight.report.verify_reading import proof_of
    from firstlight.verify.checks import CHECKS

    try:
        with open_given(path) as file:
            text = file.read(64 << 20).decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"--evidence {path}: {(error.strerror or 'cannot be read').lower()}") from None
    proof, _ = proof_of(text, path)
    summaries = [machine_summary(facts), machine_summary(under_pseudonyms(facts))]
    if (proof.machine, proof.place) not in summaries:
        there, here = f"{proof.machine}; {proof.place}", "; ".join(summaries[0])
        raise BadInput(
            f"--evidence {path}: it proves another machine or state ({there}); here is {here}. Leave it out."
        )
    done = {each.check for each in proof.results}
    if missing := [check.name for check in CHECKS if check.name not in done]:
        raise BadInput(
            f"--evidence {path}: it is not a whole proof: {', '.join(missing[:4])} left out. Run `firstlight verify`."
        )
    if proof.exit_code:
        raise CouldNotAct(f"--evidence {path}: verify failed there, and what is not proved is not locked.")
    return digest_of_proof(ProvedCheck(each.check, each.outcome) for each in proof.results)


def _bench_id(path: str) -> str:
    if not path:
        return ""
    from firstlight.bench.results import read_run

    return read_run(path).run.id


def _write(path: str, before: Lock | None, locked: LockedClass) -> None:
    """The lock in the place of the old one at once, so that a kill leaves either."""
    from firstlight.lock.writing import with_class

    text = with_class(before, locked)
    part = f"{path}.part"
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(part, path)
    except OSError as error:
        raise BadInput(f"--out {path}: {error.strerror}; the lock was not written") from error


def _told(locked: LockedClass, given: dict[str, Any]) -> None:
    if given["as_json"]:
        from firstlight.report.lock_json import lock_document

        click.echo(json.dumps(lock_document(locked, file=given["out"]), indent=1))
        return
    from firstlight.report.lock_text import locked_text

    click.echo(locked_text(locked, file=given["out"], writes=not given["dry_run"]), nl=False)
