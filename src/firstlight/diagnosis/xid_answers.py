"""What NVIDIA's catalogue says to do about an Xid, as ways."""

from __future__ import annotations

from firstlight.diagnosis.elsewhere_answers import machine_answers
from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import typed
from firstlight.diagnosis.services import FABRIC_MANAGER, start
from firstlight.facts.collect import Facts
from firstlight.facts.kernel_log import XidEvent
from firstlight.facts.known import value_or
from firstlight.tables.xid_rows import LiesWith, Xid, XidAction
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Service, Why
from firstlight.ways.way import Chain, chain

XID_WAYS = (kinds.ResetGpu, kinds.Restart, kinds.StartService, kinds.OtherMachine, AskPerson)
_RECOVERY = 154
# What the driver itself writes into the line of Xid 154, worst first.
_WRITTEN = (
    ("Node Reboot Required", XidAction.RESTART_MACHINE),
    ("Drain and Reset", XidAction.RESET_GPU),
    ("GPU Reset Required", XidAction.RESET_GPU),
)


def is_of_the_gpu(row: Xid | None) -> bool:
    """Whether an Xid asks for a look at GPU, link or machine; one that the catalogue has not is a program's."""
    return row is not None and row.lies_with is not LiesWith.PROGRAM


def gpu_at(facts: Facts, event: XidEvent) -> str:
    """The GPU that an event names, by number where NVML has it; all where it names an NVSwitch."""
    if event.family == "SXid":
        return ""
    at = (gpu.id for gpu in facts.gpus.devices if value_or(gpu.pci_address, "").startswith(event.pci))
    return next(at, f"{event.pci}.0").removeprefix("gpu-")


def action_for(question: Question, event: XidEvent) -> XidAction:
    """What to do: the driver's own word in an Xid 154 of the same GPU, else the catalogue's."""
    beside = [each for each in value_or(question.facts.health.xids, ()) if each.pci == event.pci]
    for each in beside:
        if each.code == _RECOVERY:
            for words, action in _WRITTEN:
                if words in each.text.rpartition(" to 0x")[2]:
                    return action
    row = question.tables.xid(event.code)
    if row is None:
        return XidAction.RESET_GPU
    if row.action is not XidAction.FOLLOW_OTHER:
        return row.action
    rows = [question.tables.xid(each.code) for each in beside if each.code != event.code]
    graver = [each.action for each in rows if each is not None and each.action is not XidAction.FOLLOW_OTHER]
    return XidAction.RESET_GPU if XidAction.RESET_GPU in graver or not graver else graver[0]


def xid_answers(question: Question, event: XidEvent, gpu: str) -> tuple[Chain, ...]:
    """The catalogue's first step for an Xid of a GPU (by number, "" for all), then another machine, then a test."""
    reset = chain(kinds.ResetGpu(gpu))
    first: dict[XidAction, tuple[Chain, ...]] = {
        XidAction.RESTART_MACHINE: (_cold(question),),
        XidAction.RESTART_GUEST: (chain(kinds.Restart()),),
        XidAction.RESTART_FABRIC: (chain(start(question, FABRIC_MANAGER, Service.RESTART)),),
        XidAction.CHECK_POWER: (chain(AskPerson("look-at-power-cables", Why.HARDWARE)),),
        XidAction.CHECK_LINKS: (reset, _links()),
        XidAction.UPDATE_SOFTWARE: (chain(AskPerson("update-driver-and-firmware", Why.DECISION)),),
    }
    return (*first.get(action_for(question, event), (reset,)), *machine_answers(question, None), _diagnosed())


def _cold(question: Question) -> Chain:
    report = (typed(question.facts, "nvidia-bug-report.sh"),)
    return chain(AskPerson("power-cycle-after-report", Why.HARDWARE, report, as_root=True))


def _links() -> Chain:
    look = (("nvidia-smi", "nvlink", "--status"), ("nvidia-smi", "nvlink", "-e"))
    return chain(AskPerson("see-which-nvlink", Why.HARDWARE, look, cures=False))


def _diagnosed() -> Chain:
    run = (("dcgmi", "diag", "-r", "3"),)
    return chain(AskPerson("test-gpu", Why.DECISION, run, cures=False))
