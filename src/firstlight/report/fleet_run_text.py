"""A run over a fleet as text: equal hosts in one row, those that are not done first, and what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstlight.bench.slow_gpus import JudgedGpus
from firstlight.fleet.folding import folded
from firstlight.fleet.run import FleetRun, HostEnd, HostRun, Verb
from firstlight.numerals import counted
from firstlight.report.fleet_gpus_text import gpus_text
from firstlight.report.layout import Painted, Part, Style, width, wrapped

_STYLES = {
    HostEnd.FAILED: Style.BAD,
    HostEnd.BUSY: Style.WARN,
    HostEnd.UNREACHABLE: Style.BAD,
    HostEnd.AT_WORK: Style.WARN,
    HostEnd.NOT_ASKED: Style.WARN,
    HostEnd.DONE: Style.GOOD,
    HostEnd.NOTHING: Style.GOOD,
}
_WIDEST_HOST = 28
CHANGING = (Verb.APPLY, Verb.UNDO)


def run_line(run: FleetRun) -> str:
    """One line, e.g. "20261118T060000Z-3f2a9c  apply  6 hosts: 1 failed, 5 done"."""
    said = ", ".join(f"{count} {end.value}" for end in HostEnd if (count := run.count(end)))
    of = f" of {run.of}" if run.of else ""
    return f"{run.id}  {run.verb.value}{of}  {counted(len(run.hosts), 'host')}: {said}"


def asked_text(run: FleetRun) -> str:
    """What is about to be done, and where."""
    words = shlex.join(("firstlight", run.verb.value, *(("--yes",) if run.verb in CHANGING else ()), *run.words))
    names = folded(host.name for host in run.left)
    return f"on {counted(len(run.left), 'host')}: {names}\n  {words}\n"


def run_text(run: FleetRun, folder: str, judged: JudgedGpus | None = None) -> Iterator[Part]:
    """The table, where everything is kept, of bench which GPUs are slow, then what to type next."""
    yield f"{run_line(run)}\n"
    yield f"begun {run.at} by {run.who}; kept in {folder}\n\n"
    rows = list(_rows(run))
    widest = min(max(len(folded(names)) for names, _ in rows), _WIDEST_HOST) if rows else 0
    for names, host in rows:
        yield from _row(folded(names), host, widest, did="did: " if run.verb in CHANGING else "")
    if judged is not None:
        yield from gpus_text(judged)
    if run.left or judged is not None:
        yield Painted("\nnext", Style.HEAD)
        yield "\n"
    if run.left:
        again = f"undo --run {run.of}" if run.verb is Verb.UNDO else f"{run.verb.value} --retry"
        yield f"  firstlight fleet {again}\n"
    if judged is not None:
        yield f"  firstlight bench report {shlex.quote(folder)} --out fleet-bench.html\n"


def _rows(run: FleetRun) -> Iterator[tuple[list[str], HostRun]]:
    """Hosts of which the same is to be said, in the order of their ends."""
    groups: dict[tuple[HostEnd, str, str, tuple[str, ...]], list[HostRun]] = {}
    for host in run.hosts:
        groups.setdefault((host.end, host.reason, host.digest, host.steps), []).append(host)
    order = list(HostEnd)
    for key in sorted(groups, key=lambda key: order.index(key[0])):
        yield [host.name for host in groups[key]], groups[key][0]


def _row(names: str, host: HostRun, widest: int, *, did: str) -> Iterator[Part]:
    if len(names) > widest:
        yield "".join(f"{line}\n" for line in wrapped(names, width()))
        names = ""
    yield f"{names.ljust(widest)}  "
    yield Painted(host.end.value, _STYLES[host.end])
    yield "\n"
    below = [host.reason] if host.reason else []
    below += [f"plan {host.digest[:16]}"] if host.digest and host.end is HostEnd.DONE else []
    below += [f"{did}{step}" for step in host.steps]
    for line in below:
        yield "".join(f"    {each}\n" for each in wrapped(line, width() - 4))
