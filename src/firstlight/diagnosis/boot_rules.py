"""Rules about what comes before the driver: the signer of its module against the enrolled keys, nouveau first."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.driver_module_answers import built_and_signed, module_let_in
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import container, listed, pci_gpus
from firstlight.facts.boot_trust import TRUSTED, Standing
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, chain

_REFUSED = (Standing.UNSIGNED, Standing.STRANGER, Standing.WAITING)


def lets_in(facts: Facts) -> bool:
    """Whether it is known that Secure Boot does not keep the module out: its key is enrolled, or nobody checks."""
    boot = facts.fleet.boot
    checked = value_or(boot.enforced, default=True) and not value_or(boot.validation_off, default=False)
    return not checked or value_or(boot.standing, None) in TRUSTED


def module_key_not_enrolled(question: Question) -> Iterator[Seen]:
    """The kernel takes only modules whose key it knows; whose key this one has was read from the file itself."""
    facts = question.facts
    boot, module = facts.fleet.boot, facts.driver.module_file
    if not pci_gpus(facts) or container(facts) or isinstance(facts.driver.kernel_version, Known):
        return
    if not isinstance(boot.standing, Known) or isinstance(module, Unknown) or lets_in(facts):
        return
    standing = boot.standing.value
    # What lies under kernel/ came with the kernel: its key is built in, which root alone can see.
    from_distribution = "/kernel/" in module.value and standing is Standing.STRANGER
    if standing not in _REFUSED or from_distribution:
        return
    whose = f" ({boot.signer.value})" if isinstance(boot.signer, Known) else ""
    yield Seen(
        f"Secure Boot is on; {module.value} is {standing.value}{whose}{_enrolled(facts)}",
        answers=_enrolment(question, standing),
        means=_MEANS[standing],
    )


_MEANS = {
    Standing.UNSIGNED: "The kernel takes only signed modules, so NVIDIA's is not loaded.",
    Standing.STRANGER: "The kernel refuses the module: the key that signed it was never enrolled in the firmware.",
    Standing.WAITING: "The key waits to be confirmed on the blue screen at the next start.",
}


def _enrolled(facts: Facts) -> str:
    mok = facts.fleet.boot.mok
    names = [name for name in value_or(mok, ()) if name]
    return f"; enrolled are {listed(names[:4])}" if names else "; no key of this machine is enrolled"


def _enrolment(question: Question, standing: Standing) -> tuple[Chain, ...]:
    key = question.facts.fleet.boot.key_file
    rest = module_let_in(question)
    if standing is Standing.WAITING:
        confirm = AskPerson("confirm-key", Why.FIRMWARE)
        return (chain(confirm, kinds.LoadModules(("nvidia", "nvidia_uvm"))), *rest)
    usual = [each for each in rest if any(isinstance(way, kinds.EnrolKey) for way in each.ways)]
    if standing is not Standing.STRANGER:
        return tuple(built_and_signed(question, each) if each in usual else each for each in rest)
    # It is built and signed: the key it has is enrolled first, and of several keys the one that it has.
    mine = [chain(kinds.EnrolKey(key.value), kinds.Restart())] if isinstance(key, Known) else usual
    return (*mine, *(each for each in rest if each not in usual))


def nouveau_in_early_image(question: Question) -> Iterator[Seen]:
    """A file forbids nouveau, but the image that the kernel starts from was made before and still loads it."""
    facts = question.facts
    image = facts.fleet.early_image
    held = [gpu.address for gpu in pci_gpus(facts) if value_or(gpu.driver, "").lower() == "nouveau"]
    files = value_or(image.forbidden_in, ())
    if not held or not files or not value_or(image.holds_nouveau, default=False):
        return
    if value_or(image.holds_the_ban, default=False) or not isinstance(image.holds_nouveau, Known):
        return
    yield Seen(
        f"{listed(held)} is bound to nouveau although {listed(files)} forbids it; the early boot image holds nouveau "
        f"and not that file ({image.holds_nouveau.seen_in})",
        answers=(chain(kinds.ForbidModule("nouveau"), kinds.Restart()),),
    )


BOOT_RULES: tuple[Rule, ...] = (
    Rule(
        check=nouveau_in_early_image,
        severity=Severity.BLOCKS,
        depth=20,
        title="The early boot image still loads nouveau, which is forbidden on disk.",
        fires_when="A GPU is bound to nouveau, a file of modprobe.d forbids it, and the early boot image of the "
        "running kernel has nouveau and not that file.",
        looks_at=(
            "gpus.pci",
            "fleet.early_image.forbidden_in",
            "fleet.early_image.holds_nouveau",
            "fleet.early_image.holds_the_ban",
        ),
        means="The image is read before the disk is: until it is rebuilt, every start gives the GPU to nouveau.",
        error="NVRM: GPU 0000:01:00.0 is already bound to nouveau.",
        source="negativo17/nvidia-driver#73; man 8 update-initramfs, man 8 dracut",
        ways=(kinds.ForbidModule, kinds.Restart),
        explains=(
            "nouveau-loaded",
            "driver-not-loaded",
            "secure-boot-blocks-module",
            "module-key-not-enrolled",
            "device-nodes-missing",
            "cuinit-fails",
            "libcuda-missing",
        ),
    ),
    Rule(
        check=module_key_not_enrolled,
        severity=Severity.BLOCKS,
        depth=20,
        title="Secure Boot refuses the NVIDIA kernel module: no enrolled key has signed it.",
        fires_when="Secure Boot is on and enforced, nvidia.ko is not loaded, and its signature names nobody among the "
        "firmware's db, the MOK list and the kernel's own keys; or it has none.",
        looks_at=(
            "fleet.boot.standing",
            "fleet.boot.signer",
            "fleet.boot.mok",
            "fleet.boot.enforced",
            "driver.module_file",
            "driver.kernel_version",
        ),
        of_host=True,
        settled_by=("driver.kernel_version",),
        means="The kernel takes only modules whose key it knows.",
        error="modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        source="docs.kernel.org/admin-guide/module-signing; UEFI specification, signature lists",
        ways=(
            kinds.BuildModules,
            kinds.EnrolKey,
            kinds.Restart,
            kinds.RemovePackages,
            kinds.InstallPackages,
            kinds.LoadModules,
            AskPerson,
        ),
        explains=("secure-boot-blocks-module", "driver-not-loaded", "cuinit-fails"),
    ),
)
