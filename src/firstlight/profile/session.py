"""One profile from end to end: Nsight Compute where its counters can be had, else the torch profiler, said as such."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from firstlight.bench.case import Cache
from firstlight.bench.place import CPU
from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.known import Unknown
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine
from firstlight.profile.children import Ended, case_argv, program_name, run_kept, run_shown, under_torch_argv
from firstlight.profile.ncu import Launches, Tool, ask_ncu, find_ncu, import_report, over_all, profile_argv
from firstlight.profile.result import Kernel, Limit, Pace, Profile, Source, Trouble, Value, Work
from firstlight.profile.subject import (
    find_subject,
    kind_by_counters,
    kind_of_case,
    limit_by_stopwatch,
    limit_from_file,
)
from firstlight.profile.tiers import Observed, Tiers, judge
from firstlight.profile.trouble import trouble_in

NO_BENCH = "none"
CASE_LIMIT_S = 300.0
_OWN_FAULT = ("program-failed", "timed-out", "no-kernels")  # running the program once more would change nothing
_OF_THE_PROGRAM = "The application returned an error code"  # Nsight Compute on a program that failed
_GET_NCU = (
    "install Nsight Compute: the package nsight-compute-<version> of the CUDA repository, or the whole toolkit",
    "it is there already? put its folder on PATH",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for: which launches, which tiers, where the report goes, what the user knows of the work."""

    tiers: Tiers
    report: str = ""  # "": a free name in the current folder
    launches: Launches = Launches()
    limit_s: float = 0.0  # 0: none for a command, CASE_LIMIT_S for a case
    bench: str = ""  # a run of bench; "": time it now; NO_BENCH: do not
    least_bytes: int | None = None
    bound: Pace = Pace.UNKNOWN


@dataclass(frozen=True, slots=True)
class _Looked:
    """What looking gave: kernels from one source, or the reason why none."""

    source: Source
    tool: str
    command: tuple[str, ...] = ()
    report: str = ""
    kernels: tuple[Kernel, ...] = ()
    bases: frozenset[str] | None = None
    trouble: Trouble | None = None
    ended: Ended | None = None
    answer: dict[str, Any] | None = None


Say = Callable[[str], None]
Start = Callable[[tuple[str, ...]], Ended]


def profile_case(machine: Machine, name: str, *, device: str, wanted: Wanted, say: Say) -> Profile:
    """The profile of one case of the suite, e.g. gemm/fp16/8192x8192x8192."""
    subject = find_subject(name, device)
    case, device = subject.case, subject.device
    kept_limit = limit_from_file(wanted.bench, case.id) if wanted.bench not in ("", NO_BENCH) else None
    with _Folder() as work:
        program = case_argv(case.id, device, answer=work / "answer.json", looker="counters")
        options = ("--profile-from-start", "off", "--cache-control", "none" if case.cache is Cache.WARM else "all")
        if device == CPU:
            looked = _Looked(Source.NOBODY, "")
        else:
            say(f"counting {case.id} on {subject.device_name} with Nsight Compute")
            looked = _count(
                machine,
                program,
                wanted=wanted,
                work=work,
                options=options,
                start=lambda argv: run_kept(argv, limit_s=wanted.limit_s or CASE_LIMIT_S, out=work / "child.out"),
            )
        if not looked.kernels:
            looked = _case_by_torch(looked, case.id, device=device, work=work, say=say)
        report = _keep(looked, wanted.report, case.id)  # first: an interrupt while timing must not cost it
        limit = kept_limit or _limit(case.id, device, wanted=wanted, work=work, say=say)
    answer = looked.answer or {}
    kind, kind_from = _said_or(wanted, kind_of_case(case, subject.peaks))
    correct, told = _correctness(answer)
    least = wanted.least_bytes or (None if wanted.launches.are_some else case.work.bytes)
    subject_work = Work(
        case.id,
        is_case=True,
        flops=case.work.flops,
        least_bytes=least,
        kind=kind,
        kind_from=kind_from,
        correct=correct,
        correct_from=told,
    )
    return _finished(looked, subject_work, wanted=wanted, limit=limit, device=subject.device_name, report=report)


def profile_command(machine: Machine, command: tuple[str, ...], *, wanted: Wanted, say: Say) -> Profile:
    """The profile of a command: every launch it makes, or those that were asked for."""
    if shutil.which(command[0]) is None:  # Nsight Compute would say so too, but of itself
        raise BadInput(f"{command[0]!a} cannot be started: no such program; accepted: a program, with its arguments.")

    def start(argv: tuple[str, ...]) -> Ended:
        say(f"counting `{shlex.join(command)}` with Nsight Compute; what it prints follows")
        return run_shown(argv, limit_s=wanted.limit_s)

    with _Folder() as work:
        looked = _count(
            machine,
            command,
            wanted=wanted,
            work=work,
            options=("--cache-control", "all"),
            start=start,
        )
        if not looked.kernels:
            looked = _command_by_torch(looked, command, wanted=wanted, work=work, say=say)
        report = _keep(looked, wanted.report, program_name(command))
    return _of_command(looked, shlex.join(command), wanted=wanted, report=report)


def profile_report(machine: Machine, path: str, *, wanted: Wanted) -> Profile:
    """The profile that an earlier report holds; nothing is run."""
    if not os.path.isfile(path):
        raise BadInput(f"--from {path}: no such file; accepted: a .ncu-rep that Nsight Compute wrote.")
    found = find_ncu(machine)
    if isinstance(found, Unknown):
        raise CouldNotLook(
            f"--from {path}: a report is read by Nsight Compute, and {found.reason}. "
            "Install it, or put its folder on PATH."
        )
    kernels, complaint = import_report(found.value, path)
    if not kernels:
        raise BadInput(f"--from {path}: Nsight Compute reads no kernels in it ({complaint}).")
    looked = _Looked(Source.NCU, f"ncu ({found.value})", (), path, kernels)
    return _of_command(looked, os.path.basename(path), wanted=wanted, report=path)


def _of_command(looked: _Looked, what: str, *, wanted: Wanted, report: str) -> Profile:
    values = over_all(looked.kernels, looked.bases) if looked.source is Source.NCU else ()
    kind, kind_from = _said_or(wanted, kind_by_counters(values))
    work = Work(
        what,
        is_case=False,
        least_bytes=wanted.least_bytes,
        kind=kind,
        kind_from=kind_from,
        correct_from="a report does not say" if looked.command == () and report else "a command is not checked by us",
    )
    limit = Limit(None, None, None, "a command is not timed by the stopwatch")
    return _finished(looked, work, wanted=wanted, limit=limit, device="", report=report)


def _said_or(wanted: Wanted, found: tuple[Pace, str]) -> tuple[Pace, str]:
    return found if wanted.bound is Pace.UNKNOWN else (wanted.bound, "said with --bound")


def _count(
    machine: Machine,
    program: tuple[str, ...],
    *,
    wanted: Wanted,
    work: Path,
    options: tuple[str, ...],
    start: Start,
) -> _Looked:
    """Run the program under Nsight Compute and read what it counted."""
    found = find_ncu(machine)
    if isinstance(found, Unknown):
        return _Looked(Source.NOBODY, "", trouble=Trouble("no-ncu", found.reason, _GET_NCU))
    tool = ask_ncu(found.value)
    if isinstance(tool, str):
        why = trouble_in(tool, machine) or Trouble("ncu-not-usable", tool)
        return _Looked(Source.NOBODY, f"ncu ({found.value})", trouble=why)
    report, log = work / "report.ncu-rep", work / "ncu.log"
    argv = profile_argv(tool, wanted.launches, report=str(report), log=str(log), options=options) + program
    ended = start(argv)
    kernels, complaint = import_report(tool.path, str(report)) if report.is_file() else ((), "no report was written")
    said = log.read_text("utf-8", "replace") if log.is_file() else ""
    trouble = None if kernels else _why_nothing(machine, ended, said=said + ended.printed, complaint=complaint)
    looked = _Looked(
        Source.NCU if kernels else Source.NOBODY, _named(tool), argv, str(report), kernels, tool.bases, trouble, ended
    )
    return _with_answer(looked, work)


def _why_nothing(machine: Machine, ended: Ended, *, said: str, complaint: str) -> Trouble:
    """The reason for an empty hand: the time, the counters, the program, in this order."""
    if not ended.in_time:
        do = "give it more with --limit, or count less: --launches 5, --kernel NAME"
        return Trouble("timed-out", "Nsight Compute had no end in time: it runs every kernel several times", (do,))
    own = [line for line in said.splitlines() if line.startswith("==")]  # what the program printed is no complaint
    known = trouble_in("\n".join(own), machine)
    if known is not None and (known.code != "no-kernels" or ended.status == 0):
        return known
    errors = [line for line in own if line.startswith("==ERROR==") and _OF_THE_PROGRAM not in line]
    if errors:
        return Trouble("no-report", f"Nsight Compute says: {errors[0][:300]}")
    if ended.status != 0:
        return Trouble("program-failed", f"the program ended with {ended.how}", ("run it without firstlight first",))
    return Trouble("no-report", complaint)


def _case_by_torch(before: _Looked, case_id: str, *, device: str, work: Path, say: Say) -> _Looked:
    answer = work / "answer.json"
    answer.unlink(missing_ok=True)
    if before.trouble is not None:
        say(f"no counters: {before.trouble.says}; taking times with the torch profiler instead")
    argv = case_argv(case_id, device, answer=answer, looker="torch")
    ended = run_kept(argv, limit_s=CASE_LIMIT_S, out=work / "child.out")
    return _torch_times(before, argv, ended=ended, work=work)


def _command_by_torch(before: _Looked, command: tuple[str, ...], *, wanted: Wanted, work: Path, say: Say) -> _Looked:
    assert before.trouble is not None
    if before.trouble.code in _OWN_FAULT:
        return before
    argv = under_torch_argv(command, work / "answer.json")
    if not argv:
        return before
    again = "running it" if before.ended is None else "running it once more,"
    say(f"no counters: {before.trouble.says}; {again} under the torch profiler")
    return _torch_times(before, argv, ended=run_shown(argv, limit_s=wanted.limit_s), work=work)


def _torch_times(before: _Looked, argv: tuple[str, ...], *, ended: Ended, work: Path) -> _Looked:
    from dataclasses import replace

    looked = _with_answer(before, work)
    answer = looked.answer or {}
    if problem := answer.get("problem", "" if ended.ok else f"the program ended with {ended.how}"):
        raise CouldNotLook(f"neither Nsight Compute nor the torch profiler could look: {problem}")
    kernels = tuple(
        Kernel(str(row["name"]), int(row["launches"]), float(row["time_s"]), on_gpu=bool(row["on_gpu"]))
        for row in answer.get("kernels", [])
    )
    return replace(looked, source=Source.TORCH, command=argv, kernels=kernels, ended=ended, report="")


def _with_answer(looked: _Looked, work: Path) -> _Looked:
    from dataclasses import replace

    try:
        answer = json.loads((work / "answer.json").read_text("utf-8"))
    except (OSError, ValueError):
        return looked
    return replace(looked, answer=answer)


def _limit(case_id: str, device: str, *, wanted: Wanted, work: Path, say: Say) -> Limit:
    if wanted.bench == NO_BENCH:
        return Limit(None, None, None, "left out by --no-bench")
    say("timing it without a profiler (firstlight bench --effort quick)")
    return limit_by_stopwatch(case_id, device, work)


def _correctness(answer: dict[str, Any]) -> tuple[bool | None, str]:
    error, tolerance = answer.get("error_rel"), answer.get("tolerance")
    if error is None or tolerance is None:
        return None, "the case did not come to its check"
    return error <= tolerance, f"error {error:.2g} of {tolerance:.2g} allowed"


def _finished(looked: _Looked, work: Work, *, wanted: Wanted, limit: Limit, device: str, report: str) -> Profile:
    """The profile with its tiers."""
    counted = looked.source is Source.NCU
    values = over_all(looked.kernels, looked.bases) if counted else ()
    profile = Profile(
        work, device, looked.source, looked.tool, looked.command, report, looked.kernels, values, limit,
        wanted.tiers.path, (), wanted.tiers.changed, _notes(looked, work, wanted), looked.trouble,
    )  # fmt: skip
    from dataclasses import replace

    return replace(profile, tiers=judge(wanted.tiers, work.kind, _seen(profile, looked)))


def _seen(profile: Profile, looked: _Looked) -> Observed:
    figures: dict[str, float | None] = {each.key: each.value for each in profile.values}
    figures["excess_traffic"] = profile.excess_traffic
    figures["limit_pct"] = profile.limit.pct
    ran = _ran(looked)
    facts = {"ran": ran, "correct": profile.work.correct, "report_kept": bool(profile.report)}
    why = {each.key: each.why_not for each in profile.values if each.value is None}
    why |= {"correct": profile.work.correct_from, "limit_pct": profile.limit.seen_in}
    why["ran"] = "not seen to its end" if ran is None else looked.ended.how if looked.ended and not ran else ""
    why["report_kept"] = profile.report or "no counters, no report"
    if figures["excess_traffic"] is None:
        why["excess_traffic"] = "the least bytes are not known; say them with --bytes" if profile.values else ""
    return Observed(figures, facts, why)


def _ran(looked: _Looked) -> bool | None:
    """Whether the program ended well; not known where Nsight Compute failed instead, whose exit status that is then."""
    if looked.ended is None or (looked.source is Source.NOBODY and looked.ended.ok):
        return None
    if looked.source is Source.NOBODY and looked.trouble is not None and looked.trouble.code != "program-failed":
        return None
    return looked.ended.ok


def _notes(looked: _Looked, work: Work, wanted: Wanted) -> tuple[str, ...]:
    notes = list(wanted.tiers.notes)
    moved = _sum_of(looked.kernels, "dram_bytes")
    if moved is not None and work.least_bytes and moved < work.least_bytes:
        notes.append(
            "less was moved than must be in the end: what was written last still lay in the L2 when the counting ended"
        )
    if work.is_case and wanted.launches.are_some and wanted.least_bytes is None:
        notes.append(
            "some launches were counted, and the least bytes of the case are those of all; --bytes says others"
        )
    if looked.source is Source.NCU and 0 < wanted.launches.count == len(looked.kernels):
        notes.append(f"counting ended at launch {wanted.launches.count}, as asked; --launches 0 counts all")
    if looked.ended is not None and not looked.ended.ok and looked.kernels:
        notes.append(f"the program ended with {looked.ended.how}")
    return tuple(notes)


def _sum_of(kernels: tuple[Kernel, ...], key: str) -> float | None:
    found: list[Value] = [each for kernel in kernels for each in kernel.values if each.key == key]
    known = [each.value for each in found if each.value is not None]
    return sum(known) if known and len(known) == len(found) else None


def _named(tool: Tool) -> str:
    return f"ncu {tool.version} ({tool.path})" if tool.version else f"ncu ({tool.path})"


def _keep(looked: _Looked, wanted: str, name: str) -> str:
    """Move the report to its place: the one asked for, else the first free name in the current folder."""
    if looked.source is not Source.NCU or not os.path.isfile(looked.report):
        return ""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:80] or "command"
    target, number = wanted or f"profile-{slug}.ncu-rep", 1
    while not wanted and os.path.exists(target):
        number += 1
        target = f"profile-{slug}-{number}.ncu-rep"
    try:
        shutil.move(looked.report, target)
    except OSError as error:
        raise BadInput(f"--report {target}: {(error.strerror or 'cannot be written').lower()}; not kept") from None
    return target


class _Folder:
    """A folder for one profile, gone afterwards."""

    def __enter__(self) -> Path:
        self._path = tempfile.mkdtemp(prefix="firstlight-profile-")
        return Path(self._path)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
