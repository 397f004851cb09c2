"""`firstlight check`: what has changed since the lock, what it leads to, and what to do."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.locking import DEFAULT, ahead, looked_at, real_names
from firstlight.cli.looking import Looking, look_options
from firstlight.cli.printing import tell
from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.look import Look
from firstlight.lock.reading import read_lock

if TYPE_CHECKING:
    from firstlight.facts.collect import Facts
    from firstlight.lock.ahead import Taken
    from firstlight.lock.stack import Lock, LockedClass
    from firstlight.report.check import Check, Deep


@click.command(
    short_help="what has changed since the lock, what it leads to, what to do; imports no torch",
    epilog="Example: firstlight check --lock firstlight.lock --junit check.xml",
)
@click.option("--lock", "lock_file", default=DEFAULT, show_default=True, metavar="FILE", help="The lock.")
@click.option("--class", "class_name", default="", metavar="NAME",
              help="Compare with this class; default: the one that fits.")  # fmt: skip
@click.option("--locked", "strict", is_flag=True, help="Harmless drifts count too: exit 3 for any of them.")
@click.option("--deep", is_flag=True, help="Also run verify's check `libraries`, which loads them for real.")
@click.option("--json", "as_json", is_flag=True, help="Print the result (schema firstlight.check/1).")
@click.option("--junit", default="", metavar="FILE", help="Write the result as JUnit XML, for CI systems.")
@look_options
@click.pass_context
def command(ctx: click.Context, /, look: Look, **given: Any) -> None:
    """Look at this machine and compare it with what was proved and locked; nothing is changed, no torch is imported.

    Each drift is shown with what the lock has, what is here and where that was seen, its consequence (blocks, abi,
    performance, harmless) by the rules of `firstlight doctor`, and what to do. Exit code 0: no drift, or harmless ones
    alone; 3: drift, or no class of the lock fits; 2: the lock cannot be used; 4: the machine could not be looked at.
    """
    if given["deep"] and look.facts_file:
        raise BadInput(f"--deep loads libraries on this machine; it cannot be combined with --facts {look.facts_file}")
    if given["junit"]:
        from firstlight.bench.saving import JUNIT, writable

        writable(given["junit"], JUNIT, option="--junit")
    lock = read_lock(given["lock_file"])
    looking = Looking(real_names(look))
    check = checked(lock, look, looking.facts, given)
    if given["junit"]:
        from firstlight.bench.saving import save
        from firstlight.report.check_junit import check_junit

        save(given["junit"], check_junit(check), option="--junit")
    _print(check, lock, look, given)
    ctx.exit(check.exit_code)


def _print(check: Check, lock: Lock, look: Look, given: dict[str, Any]) -> None:
    if given["as_json"]:
        from firstlight import __version__
        from firstlight.records import encode
        from firstlight.report.check import SCHEMA

        head = {"schema": SCHEMA, "made_by": f"firstlight {__version__}"}
        click.echo(json.dumps({**head, **encode(check)}, indent=1))
    elif check.class_name:
        from firstlight.report.check_text import check_text

        tell(check_text(check, of=_named(look)))
    else:
        click.echo(_none_fits(lock, check, look), err=True)


def _named(look: Look) -> tuple[str, ...]:
    """The options that name another machine than this one; () for this one."""
    sets = tuple(word for each in look.overrides for word in ("--set", each))
    return ("--facts", look.facts_file, *sets) if look.facts_file else ()


def _none_fits(lock: Lock, check: Check, look: Look) -> str:
    from firstlight.lock.classes import has_classes

    lock_it = shlex.join(("firstlight", "lock", *_named(look)))

    return (
        f"firstlight: no class of {lock.path} fits this machine ({check.machine}). It has {has_classes(lock)}. "
        f"Lock this kind of machine too ({lock_it}), or name a class (--class NAME)."
    )


def checked(lock: Lock, look: Look, facts_of: Any, given: dict[str, Any]) -> Check:
    """The check of one machine; the rules are imported and files read while the driver answers."""
    from firstlight.diagnosis.rules import RULES  # noqa: F401 the slowest import, while the machine is looked at
    from firstlight.lock.classes import class_called, class_for
    from firstlight.lock.looking import kind_of
    from firstlight.report.check import nothing_fits, of_class

    locked = class_called(lock, given["class_name"]) if given["class_name"] else None
    taken = ahead(look)
    facts: Facts = facts_of()
    kind = kind_of(facts)
    locked = locked or class_for(lock, kind)
    if locked is None:
        return nothing_fits(lock.path, kind, strict=given["strict"])
    check = of_class(lock.path, locked, kind, strict=given["strict"])
    return _against(check, locked, look, facts, taken=taken, deep=_deep(look) if given["deep"] else ())


def _against(
    check: Check, locked: LockedClass, look: Look, facts: Facts, *, taken: Taken, deep: tuple[Deep, ...]
) -> Check:
    from firstlight.cli.locking import places_here
    from firstlight.diagnosis.finding import Question
    from firstlight.diagnosis.rules import RULES
    from firstlight.lock.consequences import judged
    from firstlight.lock.drift import drifts, not_compared
    from firstlight.lock.looking import stack_of
    from firstlight.lock.stack import Part
    from firstlight.report.check import DriftShown, because, counts, exit_code_of, shown
    from firstlight.tables import load

    if facts.environment is None and any(each.part is Part.PACKAGES for each in locked.held):
        raise CouldNotLook("no Python environment was found here, and the lock has one; name it: --python PATH")
    places, tables = places_here(look, facts), load()
    checkouts = tuple(places.real(each.name) for each in locked.held if each.part is Part.CHECKOUTS)
    here = stack_of(looked_at(look, facts, checkouts=checkouts, taken=taken))
    groups = drifts(locked, here)
    verdict = judged(groups, Question(facts, tables, locked.goal), RULES, locked=locked, places=places)
    told = tuple(
        DriftShown(
            shown(each.group.drift),
            tuple(map(shown, each.group.follows)),
            each.consequence.value,
            tuple(map(because, each.findings)),
            _to_do((each.group.drift,), facts, look),
        )
        for each in verdict.told
    )
    loud = tuple(each.group.drift for each in verdict.told if counts(each, strict=check.strict))
    return replace(
        check,
        exit_code=exit_code_of(verdict, strict=check.strict, deep=deep),
        drifts=told,
        besides=tuple(map(because, verdict.besides)),
        not_compared=not_compared(locked, here),
        to_do=_to_do(loud, facts, look),
        deep=deep,
    )


def _to_do(drifts: Any, facts: Facts, look: Look) -> Any:
    if not drifts:
        return ()
    from firstlight.cli.locking import places_here
    from firstlight.lock.orders import orders
    from firstlight.report.check import to_do
    from firstlight.tables import load

    return tuple(to_do(each) for each in orders(drifts, facts, load(), places=places_here(look, facts)))


def _deep(look: Look) -> tuple[Deep, ...]:
    from firstlight.cli.verify import prove
    from firstlight.report.check import Deep

    given = {"python": look.python, "so_files": (), "skip": "", "only": "libraries", "require_file": ""}
    report = prove(("libraries",), (), {**given, "identify": False})
    return tuple(Deep(each.outcome.value, each.says) for each in report.results if each.check == "libraries")
