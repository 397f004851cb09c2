"""Whether the user's own binaries hold code for the GPUs that are here; no child is needed to read them."""

from __future__ import annotations

from firstlight.elf.fatbin import Code, CodeKind, Fatbins, read_fatbins
from firstlight.facts.known import Known
from firstlight.verify.check import Answer, Case, Check, CheckOutcome, Evidence, Result
from firstlight.verify.judges import runs_here
from firstlight.versions import ComputeCapability


def judge_so_files(check: Check, answer: Answer, case: Case, done: dict[str, Answer]) -> Result:
    """Every file of --so against every GPU here."""
    devices = tuple(
        dict.fromkeys(gpu.capability.value for gpu in case.facts.gpus.devices if isinstance(gpu.capability, Known))
    )
    faults: list[str] = []
    evidence: list[Evidence] = []
    said: list[str] = []
    for path in case.so_files:
        found = read_fatbins(case.machine, path)
        evidence.append(Evidence(path, " ".join(map(str, found.codes)) or found.complaint))
        if not found.modules:
            faults.append(f"{path}: {found.complaint}")
            continue
        if found.complaint:
            evidence.append(Evidence(path, found.complaint))
        for device in devices:
            verdict, fine = _verdict(found, device, case)
            (said if fine else faults).append(f"{path}: {verdict}")
    listed = "; ".join(f"{each.what} holds {each.value}" for each in evidence)
    if faults:
        return _result(check, CheckOutcome.FAILED, "; ".join(faults), evidence, do=_advice(devices))
    if not devices:
        return _result(check, CheckOutcome.NOT_HERE, f"no GPU here to compare it with; {listed}", evidence)
    return _result(check, CheckOutcome.OK, "; ".join(said), evidence)


def _result(
    check: Check, outcome: CheckOutcome, says: str, evidence: list[Evidence], *, do: tuple[str, ...] = ()
) -> Result:
    return Result(check.name, check.title, outcome, says, do=do, evidence=tuple(evidence))


def _verdict(found: Fatbins, device: ComputeCapability, case: Case) -> tuple[str, bool]:
    """What runs on a device, and whether all of the file does."""
    native = [code for code in found.codes if code.kind == CodeKind.MACHINE_CODE.value and runs(code, device, case)]
    without = [
        index for index, module in enumerate(found.modules) if not any(runs(code, device, case) for code in module)
    ]
    holds = " ".join(map(str, found.codes))
    if len(without) == len(found.modules):
        return f"it holds {holds}, nothing that runs on {device.sm} (error 209, no kernel image is available)", False
    # nvcc puts one module without kernels in front, made for the machine-code targets alone.
    if without and without != [0]:
        return f"{len(without)} of its {len(found.modules)} modules hold nothing that runs on {device.sm}", False
    if native:
        return f"machine code for {device.sm} ({', '.join(map(str, native))})", True
    return f"PTX that the driver compiles for {device.sm} at first use ({holds})", True


def runs(code: Code, device: ComputeCapability, case: Case) -> bool:
    """By the tables for plain machine code (8.0 does not run on 8.7), else by CUDA's general rule."""
    if code.kind == CodeKind.MACHINE_CODE.value and not code.suffix:
        known = runs_here(code.capability, device, case)
        if known is not None:
            return known
    return code.runs_on(device)


def _advice(devices: tuple[ComputeCapability, ...]) -> tuple[str, ...]:
    if not devices:
        return ("Name a file that nvcc made: a shared library, an executable or an object file.",)
    flags = " ".join(f"-gencode arch=compute_{d.major}{d.minor},code=sm_{d.major}{d.minor}" for d in devices)
    archs = ";".join(map(str, devices))
    return (f"Build it again with {flags} (torch extensions: TORCH_CUDA_ARCH_LIST='{archs}').",)
