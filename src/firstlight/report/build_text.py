"""What `firstlight build` says: the plan with its faults, where a build stands, which builds there are."""

from __future__ import annotations

import shlex
import time

from firstlight.build.archs import what_ptx_buys
from firstlight.build.case import BuildCase
from firstlight.build.estimate import NO_RATE, compile_seconds
from firstlight.build.fault import Fault, Weight
from firstlight.build.flags import what_reads
from firstlight.build.keys import engines_shown
from firstlight.build.places import KeptBuild, size_of
from firstlight.build.progress import STILL_S, BuildStatus
from firstlight.build.spec import BuildSpec
from firstlight.build.standing import ENDED, Ended, Standing, standing_of
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.numerals import counted
from firstlight.report.apply_text import money
from firstlight.report.layout import gib, labelled
from firstlight.ways.compile_jobs import GIB

_LABEL = 13
_NAMED = 3
_MINUTE, _HOUR = 60, 3600


def plan_text(
    case: BuildCase, spec: BuildSpec, faults: tuple[Fault, ...], costs: tuple[str, ...], rate: Fact[float] = NO_RATE
) -> str:
    """The whole plan: what, for which GPUs, with which flags, how many jobs and why, the commands, the faults."""
    project, needs = case.project, case.needs
    what = f"{project.name} {project.version or '(its version is made while it is built)'}, {project.backend.value}"
    out = _line("BUILD", what) + _line("source", source_text(spec))
    out += _line("folder", f"{spec.folder} (build {spec.id}; kept until you clean it)")
    if isinstance(case.archs, Known):
        archs = ", ".join(map(str, case.archs.value))
        out += _line("archs", f"{archs} ({case.archs.seen_in}). {what_ptx_buys(case.archs.value)}")
        if case.toolkit is not None:
            out += _line(
                "toolkit",
                f"CUDA {spec.toolkit_version or 'of unknown release'} at {case.toolkit.path}; {spec.compiler}",
            )
    else:
        out += _line("archs", case.archs.reason)
    for each in case.judged:
        out += _line(f"flag {each.flag}", what_reads(each))
    for need in needs.by_kind:
        about = f"{counted(need.jobs, 'job')} at a time, up to {need.peak_bytes / GIB:.1f} GiB each ({need.basis})"
        out += _line(f"{need.kind.value}", f"{counted(need.units, 'source file')}, {about}")
    out += _line("memory", needs.bound_by) + _line("disk", f"{gib(needs.disk_bytes)}: {needs.disk_basis}")
    out += _line("time", estimate_text(compile_seconds(case), rate))
    for each_cost in costs:
        out += _line("costs", each_cost)
    out += commands_text(spec)
    return out + faults_text(faults)


def estimate_text(seconds: Fact[float], rate: Fact[float]) -> str:
    """About 50 min of compiling, 2.24 of money: what that rests on; a measured time of before stands beside it."""
    if isinstance(seconds, Unknown):
        return f"not known: {seconds.reason}"
    spent = f", cost {money(seconds.value, rate)}" if isinstance(rate, Known) else ""
    return f"about {duration(round(seconds.value))} of compiling{spent}, an estimate: {seconds.seen_in}"


def source_text(spec: BuildSpec) -> str:
    """The tree, its commit, and what differs from that."""
    if not spec.commit:
        return spec.tree
    at = f"{spec.tree} at {spec.commit[:12]}"
    if not spec.edits:
        return at
    files = "1 file differs" if len(spec.edits) == 1 else f"{len(spec.edits)} files differ"
    named = ", ".join(spec.edits[:_NAMED]) + (", ..." if len(spec.edits) > _NAMED else "")
    return f"{at}, dirty: {files} from that commit ({named})"


def commands_text(spec: BuildSpec) -> str:
    """The variables and commands, to be read; the stages run exactly these."""
    lines = [f"    export {each.name}={shlex.quote(each.value)}" for each in spec.settings]
    lines += [f"    {shlex.join(argv)}" for argv in engines_shown(spec)]
    return "commands\n" + "".join(f"{line}\n" for line in lines)


def faults_text(faults: tuple[Fault, ...]) -> str:
    """Every fault and note, each with what to do; commands alone on their line."""
    out = ""
    stopping = [each for each in faults if each.weight is Weight.STOPS]
    if stopping:
        out += (
            f"\n{len(stopping)} {'fault stops' if len(stopping) == 1 else 'faults stop'} this build before it begins:\n"
        )
    for each in faults:
        out += _line("FAULT" if each.weight is Weight.STOPS else "note", f"{each.code}: {each.saw}. {each.do}".rstrip())
        if each.command:
            out += f"    {each.command}\n"
    return out


def status_text(status: BuildStatus, standing: Standing, ended: Ended) -> str:
    """Where a build stands, in a few lines."""
    if not status.alive and standing in ENDED:
        return _line("BUILD", f"{status.id}, {standing.value}") + ended_text(ended) + _line("log", status.log)
    state = "running" if status.alive else "not running: the same command continues where it stopped"
    out = _line("BUILD", f"{status.id}, {status.stage.value}, {state}")
    if status.total:
        passed = max(1.0, status.written_at - status.begun_at)
        rate = f"{status.done / passed * _MINUTE:.1f} a minute in this run"
        out += _line("units", f"{status.done} of {status.total}, {rate}, {counted(status.jobs, 'job')}")
        left = "not known yet" if status.seconds_left < 0 else duration(status.seconds_left)
        out += _line("time left", f"{left} ({status.basis})")
    now = f"{status.memory_bytes / GIB:.1f} GiB in compilers now"
    worst = f"; worst unit {status.worst_bytes / GIB:.2f} GiB ({status.worst_unit})" if status.worst_unit else ""
    out += _line("memory", now + worst)
    if status.alive and status.still_for_s > STILL_S:
        running = ", ".join(status.running) or "no unit that can be named"
        out += _line("no progress", f"for {duration(int(status.still_for_s))}; running: {running}")
    return out + _line("log", status.log)


def ended_text(ended: Ended) -> str:
    """What a build that ended well has to show: the wheel, and each proof by what it saw."""
    out = _line("wheel", ended.wheel) if ended.wheel else ""
    return out + "".join(_line("proved", each) for each in ended.proofs)


def list_text(builds: tuple[KeptBuild, ...], statuses: dict[str, BuildStatus | None]) -> str:
    """One line for each build that is kept."""
    if not builds:
        return "No builds are kept here.\n"
    out = ""
    for each in builds:
        status = statuses.get(each.source.id)
        running = f"{status.stage.value} (running)" if status is not None and status.alive else ""
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(status.written_at)) if status else ""
        at = running or standing_of(each).value
        out += f"{each.source.id}  {each.source.source.target}  {at}  {gib(size_of(each.folder))}  {when}"
        out = f"{out.rstrip()}\n    {each.folder}\n"
    return out


def duration(seconds: int) -> str:
    """1 h 12 min, 4 min, 30 s."""
    if seconds >= _HOUR:
        return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"
    return f"{seconds // _MINUTE} min" if seconds >= 2 * _MINUTE else f"{seconds} s"


def _line(label: str, text: str) -> str:
    if len(label) >= _LABEL:
        return f"{label}\n" + labelled("", (text,), label_width=_LABEL)
    return labelled(label, (text,), label_width=_LABEL)
