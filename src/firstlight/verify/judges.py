"""From what a child said to a result, where facts and tables have a word in it. Pure."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from firstlight.facts.known import Known
from firstlight.facts.torch_libraries import TorchLibraries
from firstlight.tables.gpu_rows import Runs
from firstlight.verify.check import Answer, Case, Check, CheckOutcome, Evidence, Result
from firstlight.versions import ComputeCapability, CudaVersion

# Libraries whose swap changes what torch computes with; of others (libstdc++, libgomp) the system's copy is fine.
OURS = ("libcu", "libnccl", "libnv", "libtorch", "libc10", "libcaffe2", "libcusparse", "libshm")
_COMPARED = ("file", "version", "available", "libcuda")


def as_said(check: Check, answer: Answer) -> Result:
    """The child's own verdict, unchanged."""
    return Result(
        check=check.name,
        title=check.title,
        outcome=answer.outcome,
        says=answer.says,
        do=answer.do,
        evidence=answer.evidence,
        command=answer.command,
        seconds=answer.seconds,
        stderr=answer.stderr,
    )


def judge_libraries(check: Check, answer: Answer, case: Case, done: dict[str, Answer]) -> Result:
    """The libraries in the process against the ones the files ask for; a swap or a second copy is a failure."""
    result = as_said(check, answer)
    if answer.outcome is not CheckOutcome.OK:
        return result
    loaded = [str(path) for path in answer.more.get("libraries", [])]
    faults = [*_swapped(loaded, case), *_twice(loaded)]
    if faults:
        return replace(
            result,
            outcome=CheckOutcome.FAILED,
            says="; ".join(faults),
            do=("Take the folder out of LD_LIBRARY_PATH, or uninstall the second copy: firstlight doctor says which.",),
        )
    compared = len(_by_name(loaded).keys() & intended(case).keys())
    if compared == 0:
        says = f"{len(loaded)} libraries loaded; none of them could be compared: torch's own are not readable as files"
        return replace(result, outcome=CheckOutcome.SKIPPED, says=says)
    return replace(result, says=f"{answer.says}; {compared} of torch's own are the intended files, none twice")


def intended(case: Case) -> dict[str, str]:
    """The file each library name should lead to: what the loader takes without LD_LIBRARY_PATH."""
    libraries = case.facts.torch_libraries
    if not isinstance(libraries, Known):
        return {}
    found: TorchLibraries = libraries.value
    wanted = {each.name: each.path for each in found.loaded}
    wanted |= {each.name: each.instead_of for each in found.shadowed}
    wanted[os.path.basename(found.root)] = found.root
    return {name: os.path.realpath(path) for name, path in wanted.items() if name.startswith(OURS)}


def _by_name(loaded: list[str]) -> dict[str, list[str]]:
    """Files by the name they are asked for: libcublas.so.13 of libcublas.so.13.1.0.3 too."""
    found: dict[str, list[str]] = {}
    for path in loaded:
        parts = os.path.basename(path).split(".so")
        numbers = parts[1].lstrip(".").split(".") if len(parts) > 1 else []
        for end in range(len(numbers) + 1):
            name = ".".join([f"{parts[0]}.so", *(number for number in numbers[:end] if number)])
            if path not in found.setdefault(name, []):
                found[name].append(path)
    return found


def _swapped(loaded: list[str], case: Case) -> list[str]:
    named = _by_name(loaded)
    return [
        f"{name} is {named[name][0]}, not torch's {path}"
        for name, path in sorted(intended(case).items())
        if name in named and path not in [os.path.realpath(each) for each in named[name]]
    ]


def _twice(loaded: list[str]) -> list[str]:
    """Two files of one library in one process: their state is not shared."""
    found: dict[str, list[str]] = {}
    for path in loaded:
        name = os.path.basename(path).split(".so")[0]
        if name.startswith(OURS):
            found.setdefault(name, []).append(path)
    return [f"{name} is loaded twice: {' and '.join(paths)}" for name, paths in sorted(found.items()) if len(paths) > 1]


def judge_shell(check: Check, answer: Answer, case: Case, done: dict[str, Answer]) -> Result:
    """What a fresh shell sees against what this one sees."""
    result = as_said(check, answer)
    here = done["here"].more
    if check.shell == "ssh" and not answer.more and "Permission denied" in answer.stderr:
        says = "the ssh server does not let this user in without a password"
        return replace(result, outcome=CheckOutcome.SKIPPED, says=says, do=())
    if answer.outcome is not CheckOutcome.OK:
        return replace(result, do=answer.do or _shell_advice(answer.more, here))
    differs = [
        f"{_WORDS[name]} is {_shown(answer.more.get(name))} there, {_shown(here.get(name))} here"
        for name in _COMPARED
        if answer.more.get(name) != here.get(name)
    ]
    if differs:
        advice = _shell_advice(answer.more, here)
        return replace(result, outcome=CheckOutcome.FAILED, says="; ".join(differs), do=advice)
    count = f", {answer.more['gpus']} GPU(s) there and {here['gpus']} here" if _other_count(answer.more, here) else ""
    return replace(result, says=f"the same as here: {answer.says}{count}")


_WORDS = {"file": "torch", "version": "torch", "available": "a usable GPU", "libcuda": "libcuda"}


def _shown(value: Any) -> str:
    return {True: "seen", False: "not seen", "": "not loaded", None: "not known"}.get(value, str(value))


def _other_count(there: dict[str, Any], here: dict[str, Any]) -> bool:
    return there.get("gpus") != here.get("gpus")


def _shell_advice(there: dict[str, Any], here: dict[str, Any]) -> tuple[str, ...]:
    advice = []
    if there.get("ld_library_path", "") != here.get("ld_library_path", ""):
        advice.append(
            f"LD_LIBRARY_PATH is {there.get('ld_library_path') or 'empty'} there, "
            f"{here.get('ld_library_path') or 'empty'} here: set it where the program starts, not in a shell's file."
        )
    advice.append(
        "Start the program by `firstlight run -- CMD`, which decides at the start, or correct the start-up files of "
        "the shell."
    )
    return tuple(advice)


def judge_own_kernels(check: Check, answer: Answer, case: Case, done: dict[str, Answer]) -> Result:
    """Whether torch's own kernels ran as machine code or had to be compiled from PTX first."""
    result = as_said(check, answer)
    if answer.outcome is not CheckOutcome.OK:
        return result
    archs = [str(each) for each in answer.more.get("arch_list", [])]
    codes = [ComputeCapability.parse(each) for each in archs if each.startswith("sm_")]
    ways = []
    for index, (major, minor) in enumerate(answer.more.get("capabilities", [])):
        device = ComputeCapability(int(major), int(minor))
        runs = case.tables.any_runs_on(codes, device, torch_cuda=_wheel_cuda(case))
        way = {
            Runs.YES: f"machine code for {device.sm}",
            Runs.NO: f"PTX, compiled by the driver at first use: none of {' '.join(archs)} is for {device.sm}",
            Runs.NOT_KNOWN: f"code for {device.sm} by {' '.join(archs)} (the tables do not know how)",
        }[runs]
        ways.append(f"GPU {index}: {way}")
    evidence = tuple(Evidence("runs by", way) for way in ways)
    return replace(result, says=f"{answer.says}; {'; '.join(ways[:2])}", evidence=(*answer.evidence, *evidence))


def _wheel_cuda(case: Case) -> CudaVersion:
    torch = case.facts.torch
    if isinstance(torch, Known) and isinstance(torch.value.wheel_cuda, Known):
        return torch.value.wheel_cuda.value
    return CudaVersion(13, 0)


def runs_here(code: ComputeCapability, device: ComputeCapability, case: Case) -> bool | None:
    """Whether plain machine code runs on a device by the tables; None where they do not know."""
    answer = case.tables.runs_on(code, device, torch_cuda=_wheel_cuda(case))
    return None if answer is Runs.NOT_KNOWN else answer is Runs.YES
