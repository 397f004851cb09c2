"""What makes up for a driver that is too old for a CUDA: compat, another torch, driver, image or machine, a build."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.compat_answers import COMPAT_WAYS, compat_answers
from firstlight.diagnosis.compat_choice import driver_runs, is_beyond, offered_cuda
from firstlight.diagnosis.driver_answers import DRIVER_WAYS, driver_answers
from firstlight.diagnosis.elsewhere_answers import image_answers, machine_answers
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import observed_cuda
from firstlight.diagnosis.source_answers import source_answers
from firstlight.diagnosis.toolkit_answers import TOOLKIT_WAYS, toolkits_of
from firstlight.diagnosis.wheel_answers import TORCH_WAYS, cuda_of_torch, torch_answers
from firstlight.facts.known import Known
from firstlight.facts.toolkits import Toolkit
from firstlight.versions import CudaVersion
from firstlight.ways.kinds import BuildFromSource, OtherMachine, UseImage
from firstlight.ways.way import Chain, Way

_FOR_A_CUDA: tuple[type[Way], ...] = (*COMPAT_WAYS, *DRIVER_WAYS, UseImage, OtherMachine)
FOR_A_TORCH: tuple[type[Way], ...] = (*_FOR_A_CUDA, *TORCH_WAYS, *TOOLKIT_WAYS, BuildFromSource)
FOR_A_TOOLKIT: tuple[type[Way], ...] = (*_FOR_A_CUDA, *TOOLKIT_WAYS)


def for_a_torch(question: Question, cuda: CudaVersion) -> tuple[Chain, ...]:
    """What lets a torch of this CUDA run, or puts one in its place that this driver runs."""
    compat, *others = _for_a_cuda(question, cuda)
    return (*compat, *torch_answers(question), *(one for each in others for one in each), *_built_here(question))


def for_a_toolkit(question: Question, cuda: CudaVersion) -> tuple[Chain, ...]:
    """What lets programs of this CUDA run, or a toolkit of one that this driver runs."""
    return (*older_toolkits(question), *(one for each in _for_a_cuda(question, cuda) for one in each))


def _for_a_cuda(question: Question, cuda: CudaVersion) -> tuple[tuple[Chain, ...], ...]:
    return (
        compat_answers(question, cuda),
        driver_answers(question, cuda),
        image_answers(question, cuda),
        machine_answers(question, cuda),
    )


def older_toolkits(question: Question) -> tuple[Chain, ...]:
    """Toolkits of the major that the driver runs: torch's own minor where torch has that major."""
    offered, wheel = offered_cuda(question), cuda_of_torch(question)
    if offered is None:
        return ()
    same = wheel is not None and wheel.major == offered.major
    return toolkits_of(question, wheel.release if wheel is not None and same else offered.release)


def _built_here(question: Question) -> Iterator[Chain]:
    """A build takes the CUDA of the toolkit in use; where that is too new as well, an older one comes first."""
    versions = [each.version.value for each in toolkits_in_use(question) if isinstance(each.version, Known)]
    too_new = any(runs_only_older(question, version) for version in versions)
    first = next((one.ways for one in older_toolkits(question) if not one.why_not), ()) if too_new else ()
    yield from (replace(one, ways=(*first, *one.ways)) for one in source_answers(question))


def runs_only_older(question: Question, cuda: CudaVersion) -> bool:
    """Whether this driver is known not to run a CUDA: by what its libcuda says, else by its version."""
    observed, driver = observed_cuda(question.facts), question.facts.driver.kernel_version
    if observed is not None:
        return is_beyond(question, cuda, observed)
    return isinstance(driver, Known) and not driver_runs(question, driver.value, cuda)


def toolkits_in_use(question: Question) -> tuple[Toolkit, ...]:
    """The toolkit that CUDA_HOME names; else the one torch's extension builder takes and the one of nvcc on PATH."""
    facts = question.facts.toolkits
    used = {facts.cpp_extension_home.value} if isinstance(facts.cpp_extension_home, Known) else set()
    named = isinstance(facts.cuda_home, Known)
    if not named and isinstance(facts.nvcc_on_path, Known) and isinstance(facts.nvcc_on_path.value.toolkit, Known):
        used.add(facts.nvcc_on_path.value.toolkit.value)
    return tuple(toolkit for toolkit in facts.toolkits if used & {toolkit.path, *toolkit.found_by})
