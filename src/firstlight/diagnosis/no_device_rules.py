"""A rule about machines without an NVIDIA GPU: mostly nothing is wrong with that, and sometimes one is missing."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.elsewhere_answers import machine_answers, restart_with_gpus
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container, has_nvidia_gpu, kernel_unseen, listed, platform
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.facts.place import Platform
from firstlight.ways import kinds
from firstlight.ways.guests import GuestKind, guest_of
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, chain

_BUS = "no NVIDIA GPU on the PCI bus (/sys/bus/pci/devices), no /dev/nvidia0, no driver"
_MISSING = "A driver was put here for a GPU, and there is none: no driver and no torch can change that."
_LIST = ("lspci", "-nn", "-d", "10de:")


def no_nvidia_device(question: Question) -> Iterator[Seen]:
    """A laptop or a build machine without an NVIDIA GPU; with a driver on it, a machine whose GPU is not there."""
    facts = question.facts
    if platform(facts) is Platform.WSL1:
        yield _in_wsl_1(facts)
        return
    if has_nvidia_gpu(facts) or isinstance(facts.driver.kernel_version, Known) or kernel_unseen(facts):
        return
    if container(facts) is None and (meant := _meant_by(facts)):
        yield Seen(
            f"{_BUS} loaded; {meant}",
            answers=(*_given_one(facts), *machine_answers(question, None)),
            means=_MISSING,
            severity=Severity.BLOCKS,
        )
        return
    yield Seen(_BUS, answers=(*restart_with_gpus(question), *machine_answers(question, None)))


def _meant_by(facts: Facts) -> str:
    """What shows that a GPU is meant to be here: a driver that was installed, with its libraries; '' for nothing."""
    loads = facts.libcuda.would_load
    if isinstance(loads, Unknown) or loads.value.is_stub or loads.value.is_compat:
        return ""
    packages = _driver_packages(facts)
    if packages:
        return f"{listed(packages[:2])} and {loads.value.path} are here"
    module = facts.driver.module_file
    return f"{module.value} and {loads.value.path} are here" if isinstance(module, Known) else ""


def _driver_packages(facts: Facts) -> tuple[str, ...]:
    return tuple(name for name in value_or(facts.driver.packages, ()) if "driver" in name or "dkms" in name)


def _given_one(facts: Facts) -> tuple[Chain, ...]:
    """A GPU handed to the virtual machine, or the one in this machine found again."""
    if guest_of(facts) in (GuestKind.BARE, GuestKind.MIG):
        return (chain(AskPerson("see-gpu-seated", Why.HARDWARE, (_LIST,))),)
    return (chain(AskPerson("have-gpu-attached", Why.HYPERVISOR, (_LIST,))),)


def _in_wsl_1(facts: Facts) -> Seen:
    turned = AskPerson(
        "turn-into-wsl-2", Why.WINDOWS, (("wsl", "--update"), ("wsl", "--set-version", "DISTRIBUTION", "2"))
    )
    packages = tuple(value_or(facts.driver.packages, ()))
    inside = f"; {listed(packages[:2])} inside cannot change that" if packages else ""
    removed = (kinds.RemovePackages(packages, purge=True),) if packages else ()
    meant = packages or isinstance(facts.libcuda.would_load, Known)
    return Seen(
        f"this is WSL 1 (kernel {facts.place.kernel_release}), which reaches no GPU{inside}",
        answers=(chain(turned, *removed),),
        means=_WITHOUT_GPU if meant else "",
        severity=Severity.BLOCKS if meant else None,
    )


_WITHOUT_GPU = "WSL 1 reaches no GPU, whatever driver is installed inside; WSL 2 uses Windows' own driver."

NO_DEVICE_RULES: tuple[Rule, ...] = (
    Rule(
        check=no_nvidia_device,
        severity=Severity.NOTE,
        depth=10,
        title="There is no NVIDIA GPU here.",
        fires_when=(
            "No NVIDIA GPU is on the PCI bus, in the chip or behind a device node, and no driver is loaded. It blocks "
            "where a driver is installed anyway."
        ),
        looks_at=(
            "gpus.pci",
            "gpus.devices",
            "gpus.tegra_chip",
            "driver.nodes",
            "driver.kernel_version",
            "driver.packages",
            "driver.module_file",
            "libcuda.would_load",
        ),
        means="Nothing is wrong with that; CUDA cannot run here, and torch works on the CPU.",
        error="Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a driver",
        source="the string in libc10_cuda.so of the PyPI wheel torch 2.15.0",
        ways=(AskPerson, kinds.RemovePackages, kinds.StartContainer, kinds.OtherMachine),
        when_wanted=Severity.BLOCKS,
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
)
