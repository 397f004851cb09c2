"""`firstlight bench --only collective`: what ranks together do, in the options and the document of `bench`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput

if TYPE_CHECKING:
    from firstlight.bench.choice import Choice
    from firstlight.bench.collective.run import Together
    from firstlight.bench.results import RunResult
    from firstlight.bench.runner import BenchSetting, Request

FAMILY = "collective"
_OWN = ("max_size", "processes", "nodes", "rendezvous", "timeout")  # options that say nothing to other cases


def is_collective(only: tuple[str, ...], given: dict[str, Any]) -> bool:
    """Whether collectives are asked for; beside other cases they are refused, for they run in other processes."""
    asked = [pattern for pattern in only if pattern.partition("/")[0] == FAMILY]
    if asked and len(asked) < len(only):
        other = next(pattern for pattern in only if pattern not in asked)
        raise BadInput(
            f"--only {','.join(only)}: collectives run in processes of their own, one for each GPU; accepted: "
            f"--only {asked[0]} alone, and {other} in a run of its own"
        )
    if not asked and (unread := [name for name in _OWN if given.get(name)]):
        raise BadInput(f"--{unread[0].replace('_', '-')} does not apply to other cases; accepted: with --only {FAMILY}")
    return bool(asked)


def together_of(given: dict[str, Any]) -> Together:
    """What the options say about ranks."""
    from firstlight.bench.collective.operations import MOST_BYTES, size_given
    from firstlight.bench.collective.run import PROCESSES, STEP_LIMIT_S, Together

    nodes, rendezvous = given["nodes"] or 1, given["rendezvous"]
    if nodes > 1 and not rendezvous:
        raise BadInput(
            f"--nodes {nodes}: every node must know where to meet; accepted: --rendezvous HOST:PORT beside it, the "
            "same on all nodes, HOST being one of them. `firstlight emit slurm --bench` writes such a job."
        )
    if rendezvous and nodes == 1:
        raise BadInput("--rendezvous is where several nodes meet; accepted: with --nodes 2 or more")
    if rendezvous and not re.fullmatch(r"(?:[A-Za-z0-9][A-Za-z0-9._-]*|\[[0-9a-fA-F:.]+\]):\d{1,5}", rendezvous):
        raise BadInput(f"--rendezvous {rendezvous[:60]!a}: accepted: HOST:PORT, e.g. node01:29500 or [fd00::1]:29500")
    if given["processes"] and given["device"] != "cpu":
        raise BadInput("--processes is for --device cpu; GPUs have one process each (CUDA_VISIBLE_DEVICES chooses)")
    return Together(
        most_bytes=size_given(given["max_size"]) if given["max_size"] else MOST_BYTES,
        limit_s=float(given["timeout"] or STEP_LIMIT_S),
        processes=given["processes"] or PROCESSES,
        nodes=nodes,
        rendezvous=rendezvous,
    )


def device_of(ctx: click.Context, device: str) -> str:
    """all, unless a device was typed: the one GPU that other cases take by default is none of several."""
    from click.core import ParameterSource

    return "all" if ctx.get_parameter_source("device") is ParameterSource.DEFAULT else device


def print_collective_plan(choice: Choice, given: dict[str, Any]) -> None:
    """The ids of the cases."""
    from firstlight.bench.choice import chosen
    from firstlight.bench.collective.cases import CUDA, Ranks, collective_cases
    from firstlight.bench.collective.run import cases_here
    from firstlight.errors import CouldNotLook
    from firstlight.report.bench_plan_text import list_text

    if given["estimate"]:
        raise click.UsageError("--estimate is for other cases: how long ranks wait for each other is not known before.")
    together = together_of(given)
    try:
        cases = cases_here(given["device"], together)
    except CouldNotLook as error:
        click.echo(f"firstlight: {str(error).partition('. ')[0]}; the list is for 8 GPUs", err=True)
        cases = collective_cases(Ranks(CUDA, 8 * together.nodes, together.nodes), most_bytes=together.most_bytes)
    click.echo(list_text(chosen(cases, choice)), nl=False)


def refuse_early(given: dict[str, Any]) -> None:
    """Refuse what cannot be, and say what is not there, before anything is looked at."""
    from firstlight.bench.collective.run import devices_of

    together_of(given)
    devices_of(given["device"])


def run_together(request: Request, world: BenchSetting, given: dict[str, Any]) -> RunResult:
    """The run of the ranks; ends here, with a line, on a node that has no figures because rank 0 is on another."""
    from firstlight.bench.collective.run import Elsewhere, run_collective

    run = run_collective(request, world, together_of(given))
    if isinstance(run, Elsewhere):
        said = "this node took part; rank 0 is on another, and has the figures"
        click.echo(f"firstlight: {f'this node stopped: {run.trouble}' if run.trouble else said}", err=True)
        click.get_current_context().exit(1 if run.trouble else 0)
    return run
