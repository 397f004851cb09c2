"""`firstlight doctor --gate`: one line and exit code 0 or 1 for a prolog, within two seconds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput
from firstlight.facts.look import Look, look_at

if TYPE_CHECKING:
    from firstlight.diagnosis.finding import Question
    from firstlight.facts.collect import Facts
    from firstlight.fleet.gate import Gate, Node
    from firstlight.lock.stack import Lock
    from firstlight.machine.interface import Machine

LIMIT_S = 2.0
_LOOK_S = 1.1  # of these: judging, the lock and the start of Python take the rest
_STOP_S = 1.7
_OTHERS = (
    ("as_json", "--json"),
    ("html_file", "--html"),
    ("why_not", "--why-not"),
    ("everything", "--all"),
    ("short", "--short"),
)


def gate_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --gate and what belongs to it."""
    for option in (
        click.option("--node-verdict", metavar="FILE", default="",
                     help="With --gate: what NVIDIA's health-validation printed, shown beside our answer."),
        click.option("--unknown", type=click.Choice(["bad", "good"]), default=None,
                     help="With --gate: what a node that could not be looked at counts as.  [default: bad]"),
        click.option("--lock", "lock_file", metavar="FILE", default="",
                     help="With --gate: also compare the node with its class in this lock."),
        click.option("--gate", is_flag=True,
                     help="For prologs: one line, exit code 0 or 1, at most 2 seconds, no Slurm command called."),
    ):  # fmt: skip
        function = option(function)
    return function


def refuse_without_gate(given: dict[str, Any]) -> None:
    """What belongs to --gate alone is not read as something else."""
    for name, option in (("lock_file", "--lock"), ("unknown", "--unknown"), ("node_verdict", "--node-verdict")):
        if given[name]:
            raise BadInput(f"{option} {given[name]} works only with --gate; add --gate, or leave {option} out.")


def gate(look: Look, *, goal: str, wants: tuple[str, ...], given: dict[str, Any]) -> int:
    """Print the line; the exit code."""
    began = time.monotonic()
    for name, option in _OTHERS:
        if given[name]:
            raise BadInput(f"--gate and {option} were both given; --gate prints one line. Leave one out.")
    if look.host:
        raise BadInput(f"--gate and --host {look.host} were both given; a gate runs on its node. Leave one out.")
    from firstlight.fleet.gate import Gate, Standing

    verdict = _node_verdict(given["node_verdict"])
    lock = _lock(given["lock_file"])
    policy = Standing(given["unknown"] or "bad")
    try:
        with nullcontext() if look.facts_file else _stopped_after(_STOP_S):  # a document does not hang
            said = _gate(look, lock, began=began, goal=goal, wants=wants)
    except _TooLateError:
        said = Gate(Standing.UNKNOWN, f"the node gave no answer within {LIMIT_S:g} s")
    code = said.exit_code(policy)
    counts = f" (counts as {policy.value})" if said.standing is Standing.UNKNOWN else ""
    click.echo(f"firstlight gate: {said.standing.value}{counts}: {said.why}{verdict}")
    return code


class _TooLateError(Exception):
    """The time is over."""


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """Raise _TooLateError in the main thread when the time is over, whatever it waits for."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLateError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _gate(look: Look, lock: Lock | None, *, began: float, goal: str, wants: tuple[str, ...]) -> Gate:
    from firstlight.diagnosis.finding import Goal, Question
    from firstlight.diagnosis.judge import judge
    from firstlight.diagnosis.rules import RULES
    from firstlight.fleet.gate import Standing, gate_of, held_against
    from firstlight.tables import load

    facts, machine = _looked(look, began + _LOOK_S)
    question = Question(facts, load(), Goal(goal), wants)
    alone = gate_of(facts, judge(question, RULES))
    if lock is None or alone.standing is Standing.BAD:
        return alone
    return held_against(lock, _node(lock, look, machine, question), RULES)


def _looked(look: Look, until: float) -> tuple[Facts, Machine | None]:
    """The facts under real names, and the machine that they are of; None for a document of facts."""
    from firstlight.facts.collect import collect
    from firstlight.facts.look import check_python
    from firstlight.facts.override import override
    from firstlight.machine.hurried import HurriedMachine

    if look.facts_file:
        return look_at(look), None
    if look.python:
        check_python(look.python)
    machine = HurriedMachine(until)
    facts = collect(machine, python=look.python)
    return override(facts, look.overrides), machine


def _node(lock: Lock, look: Look, machine: Machine | None, question: Question) -> Node:
    from firstlight.cli.locking import places_here
    from firstlight.fleet.gate import Digests, Node
    from firstlight.lock.classes import class_for
    from firstlight.lock.looking import Looked, kind_of, stack_of
    from firstlight.lock.settings import variables_of
    from firstlight.lock.stack import Part

    facts = question.facts
    places = places_here(look, facts)
    variables = variables_of(os.environ) if machine is not None else ()
    locked = class_for(lock, kind_of(facts))
    held = () if locked is None else locked.held
    checkouts = tuple(places.real(each.name) for each in held if each.part is Part.CHECKOUTS)
    digests = Digests.NONE if machine is None else Digests.LIVE
    return Node(stack_of(Looked(facts, machine, places, variables, checkouts)), places, question, digests)


def _lock(path: str) -> Lock | None:
    if not path:
        return None
    from firstlight.lock.reading import read_lock

    return read_lock(path)


def _node_verdict(path: str) -> str:
    if not path:
        return ""
    from firstlight.fleet.node_verdict import read_node_verdict

    return f"; NVIDIA health-validation: {read_node_verdict(path)}"
