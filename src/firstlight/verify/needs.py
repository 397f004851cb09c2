"""Whether what a check cannot do without is here; if not, what came of the check and why."""

from __future__ import annotations

import os
from collections.abc import Callable

from firstlight.facts.known import Known
from firstlight.facts.toolkits import Part, Toolkit
from firstlight.verify.check import Answer, Case, Check, CheckOutcome, Need
from firstlight.verify.fresh import ssh_answers
from firstlight.versions import CudaVersion

Lacking = tuple[CheckOutcome, str]
Done = dict[str, Answer]


def lacking(check: Check, case: Case, done: Done) -> Lacking | None:
    """The first need that is not met, e.g. (NOT_HERE, 'no NVIDIA GPU'); None where the check can run."""
    for need in check.needs:
        found = _NEEDS[need](case, done)
        if found is not None:
            return found
    return None


def gpus_built_in(case: Case) -> int:
    """How many NVIDIA GPUs this machine has, whatever the driver says of them."""
    count = case.facts.gpus.count
    cards = sum(card.kind.value == "gpu" for card in case.facts.gpus.pci)
    return max(count.value if isinstance(count, Known) else 0, cards, len(case.facts.libcuda.devices))


def _torch(case: Case, done: Done) -> Lacking | None:
    answer = done.get("import")
    if answer is not None and answer.outcome is not CheckOutcome.OK:
        return CheckOutcome.SKIPPED, "torch cannot be imported: see `import`"
    return None


def _gpu(case: Case, done: Done) -> Lacking | None:
    return None if gpus_built_in(case) else (CheckOutcome.NOT_HERE, "no NVIDIA GPU")


def _working_gpu(case: Case, done: Done) -> Lacking | None:
    if gpus_built_in(case) == 0:
        return CheckOutcome.NOT_HERE, "no NVIDIA GPU"
    answer = done.get("gpus")
    if answer is not None and not answer.more.get("capabilities"):
        return CheckOutcome.SKIPPED, "torch computes on no GPU: see `gpus`"
    return None


def _second_gpu(case: Case, done: Done) -> Lacking | None:
    answer = done.get("gpus")
    count = len(answer.more.get("capabilities", [])) if answer is not None else gpus_built_in(case)
    return None if count > 1 else (CheckOutcome.NOT_HERE, f"{count} GPU: nothing to communicate with")


def _cxx(case: Case, done: Done) -> Lacking | None:
    compilers = case.facts.compilers
    usable = {tool.name for tool in compilers.compilers} & {"g++", "c++", "clang++"}
    chosen = any(each.variable == "CXX" for each in compilers.chosen)
    return None if usable or chosen else (CheckOutcome.NOT_HERE, "no C++ compiler (g++, c++ or clang++) on PATH")


def _toolkit(case: Case, done: Done) -> Lacking | None:
    torch = case.facts.torch
    if not isinstance(torch, Known) or not isinstance(torch.value.wheel_cuda, Known):
        return CheckOutcome.NOT_HERE, "torch is not built for CUDA"
    wanted = torch.value.wheel_cuda.value
    found = toolkit_taken(case)
    if found is None:
        return CheckOutcome.NOT_HERE, "no CUDA toolkit with nvcc"
    version = toolkit_version(found)
    if version is not None and version.major != wanted.major:
        return (
            CheckOutcome.SKIPPED,
            f"the toolkit at {found.path} is {version}, torch is built for CUDA {wanted}: torch refuses another major",
        )
    return None


def toolkit_taken(case: Case) -> Toolkit | None:
    """The toolkit that torch's builder takes, where it has nvcc."""
    home = case.facts.toolkits.cpp_extension_home
    with_nvcc = [each for each in case.facts.toolkits.toolkits if Part.NVCC in each.has]
    if isinstance(home, Known):
        return next((each for each in with_nvcc if os.path.realpath(home.value) == os.path.realpath(each.path)), None)
    return with_nvcc[0] if with_nvcc else None


def toolkit_version(toolkit: Toolkit) -> CudaVersion | None:
    """nvcc's version, else the toolkit's own."""
    for fact in (toolkit.nvcc_version, toolkit.version):
        if isinstance(fact, Known):
            return fact.value
    return None


def _files(case: Case, done: Done) -> Lacking | None:
    return None if case.so_files else (CheckOutcome.NOT_HERE, "no file was named with --so")


def _baseline(case: Case, done: Done) -> Lacking | None:
    answer = done.get("here")
    if answer is None:
        return CheckOutcome.SKIPPED, "the check `here`, which it is compared with, was not run"
    return None if answer.outcome is CheckOutcome.OK else (CheckOutcome.SKIPPED, "nothing to compare with: see `here`")


def _sshd(case: Case, done: Done) -> Lacking | None:
    why_not = ssh_answers()
    return (CheckOutcome.SKIPPED, why_not) if why_not else None


_NEEDS: dict[Need, Callable[[Case, Done], Lacking | None]] = {
    Need.TORCH: _torch,
    Need.GPU: _gpu,
    Need.WORKING_GPU: _working_gpu,
    Need.SECOND_GPU: _second_gpu,
    Need.CXX: _cxx,
    Need.TOOLKIT: _toolkit,
    Need.FILES: _files,
    Need.BASELINE: _baseline,
    Need.SSHD: _sshd,
}
