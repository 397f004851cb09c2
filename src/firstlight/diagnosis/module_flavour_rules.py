"""A rule about machines whose GPUs do not all take the same kind of kernel module."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.driver_packages import closed_only_gpus, open_only_gpus, why_no_flavour
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container, listed
from firstlight.facts.known import Known
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import chain


def gpus_need_different_modules(question: Question) -> Iterator[Seen]:
    """A Blackwell GPU beside one of Volta or older: the open module drives the one, the proprietary the other."""
    facts = question.facts
    if container(facts) is not None or not why_no_flavour(question):
        return
    kind = facts.driver.module_kind
    loaded = f"; the {kind.value.value} module is loaded ({kind.seen_in})" if isinstance(kind, Known) else ""
    old = closed_only_gpus(question)
    apart = AskPerson("put-gpu-elsewhere", Why.HARDWARE)
    yield Seen(f"{listed(open_only_gpus(question))}; {listed(old)}{loaded}", answers=(chain(apart),))


MODULE_FLAVOUR_RULES: tuple[Rule, ...] = (
    Rule(
        check=gpus_need_different_modules,
        severity=Severity.DEGRADES,
        depth=25,
        title="No driver drives all GPUs of this machine: they take different kernel modules.",
        fires_when="A GPU that only the open module drives (Blackwell) and one that it does not drive (Volta and "
        "older) are in one machine.",
        looks_at=("gpus.devices", "gpus.pci", "driver.module_kind"),
        of_host=True,
        means="One kernel has one nvidia module: whichever is installed, the other kind of GPU stays unused.",
        error="NVRM: not supported by open nvidia.ko because it does not include the required GPU System Processor "
        "(GSP).",
        source="NVIDIA/open-gpu-kernel-modules#696, Start9Labs/start-technologies#3693",
        ways=(AskPerson,),
        explains=("gpu-left-out", "gpu-does-not-start"),
    ),
)
