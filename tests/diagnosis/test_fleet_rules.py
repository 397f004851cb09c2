"""What the rules about fleets say, and what they must not say where the evidence does not carry it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Finding, Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.xid_answers import action_for
from firstlight.facts.boot_trust import Standing
from firstlight.facts.collect import Facts
from firstlight.facts.gpus import Virtualization
from firstlight.facts.health import FabricState
from firstlight.facts.kernel_log import XidEvent
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.facts.vgpu import LicenceState
from firstlight.tables import load
from firstlight.tables.xid_rows import LiesWith, XidAction
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from tests.diagnosis.rule_case import facts_of, ways_of

TABLES = load()


def _all(facts: Facts, goal: Goal = Goal.INFER) -> dict[str, Finding]:
    return {finding.code: finding for finding in judge(Question(facts, TABLES, goal), RULES).findings}


def _with_standing(standing: Standing, **boot: object) -> Facts:
    facts = facts_of("secure-boot-other-key")
    changed = replace(facts.fleet.boot, standing=Known(standing, "tests"), **boot)  # type: ignore[arg-type]
    return replace(facts, fleet=replace(facts.fleet, boot=changed))


def test_the_key_file_that_signed_the_module_is_enrolled() -> None:
    finding = _all(facts_of("secure-boot-other-key"))["module-key-not-enrolled"]
    assert ways_of(finding)[0] == (kinds.EnrolKey("/var/lib/shim-signed/mok/MOK.der"), kinds.Restart())
    assert "Canonical Ltd. Master Certificate Authority" in finding.saw[0]


def test_a_signed_module_is_let_in_by_its_key_before_another_one_is_installed() -> None:
    finding = _all(_with_standing(Standing.STRANGER, key_file=Unknown("permission denied")))["module-key-not-enrolled"]
    assert isinstance(ways_of(finding)[0][0], kinds.EnrolKey)
    unsigned = _all(_with_standing(Standing.UNSIGNED))["module-key-not-enrolled"]
    signed, gone = ways_of(unsigned)[0][:2]  # depmod prefers what dkms built
    assert (type(signed), type(gone)) == (kinds.InstallPackages, kinds.RemovePackages)


def test_a_module_without_a_signature_is_signed_before_a_key_is_enrolled() -> None:
    finding = _all(_with_standing(Standing.UNSIGNED))["module-key-not-enrolled"]
    enrolling = [ways for ways in ways_of(finding) if any(isinstance(way, kinds.EnrolKey) for way in ways)]
    assert enrolling
    for first, *_ in enrolling:
        assert isinstance(first, AskPerson)
        assert first.what == "build-and-sign"


def test_an_image_system_is_told_of_another_image_alone() -> None:
    facts = facts_of("b200-no-subnet-manager")
    talos = replace(facts, place=replace(facts.place, os_id=Known("talos", "/etc/os-release")))
    for ways in ways_of(_all(talos)["subnet-manager-missing"]):
        assert not any(isinstance(way, (kinds.InstallPackages, kinds.StartService)) for way in ways)


@pytest.mark.parametrize("standing", [Standing.IN_DB, Standing.IN_MOK, Standing.IN_KERNEL])
def test_secure_boot_is_not_blamed_for_a_module_that_it_lets_in(standing: Standing) -> None:
    found = _all(_with_standing(standing))
    assert "secure-boot-blocks-module" not in found
    assert "module-key-not-enrolled" not in found
    assert found["driver-not-loaded"].caused_by == ""


def test_secure_boot_is_not_blamed_where_shim_was_told_not_to_check() -> None:
    found = _all(_with_standing(Standing.STRANGER, validation_off=Known(value=True, seen_in="MokSBStateRT")))
    assert "module-key-not-enrolled" not in found
    assert "secure-boot-blocks-module" not in found


def test_a_key_that_waits_is_confirmed_and_not_enrolled_again() -> None:
    finding = _all(_with_standing(Standing.WAITING))["module-key-not-enrolled"]
    first = ways_of(finding)[0][0]
    assert isinstance(first, AskPerson)
    assert first.why is Why.FIRMWARE


def test_a_module_that_came_with_the_kernel_is_not_called_a_stranger() -> None:
    facts = facts_of("secure-boot-other-key")
    file = Known("/lib/modules/6.8.0-60-generic/kernel/nvidia-580/nvidia.ko", "tests")
    facts = replace(facts, driver=replace(facts.driver, module_file=file))
    assert "module-key-not-enrolled" not in _all(facts)


def test_what_an_old_recording_does_not_tell_keeps_the_old_finding() -> None:
    found = _all(facts_of("secure-boot"))
    assert "module-key-not-enrolled" not in found
    assert "secure-boot-blocks-module" in found


def test_a_gpu_that_joins_is_waited_for_and_nothing_is_installed() -> None:
    facts = facts_of("b200-joining")
    finding = _all(facts)["fabric-joining"]
    [(wait,)] = ways_of(finding)
    assert isinstance(wait, AskPerson)
    assert "fabric-manager-missing" not in _all(facts)


def test_a_manager_that_complains_while_gpus_join_may_be_started_anew() -> None:
    facts = facts_of("b200-joining")
    fabric = replace(facts.fleet.fabric, manager_log=Known(("failed to train NVLink",), "journalctl"))
    finding = _all(replace(facts, fleet=replace(facts.fleet, fabric=fabric)))["fabric-joining"]
    assert any(isinstance(way, kinds.StartService) for way in ways_of(finding)[1])


def test_a_manager_that_does_not_run_is_started_and_not_waited_for() -> None:
    facts = facts_of("b200-joining")
    stopped = replace(facts.fleet.fabric.manager.value, active="failed")  # type: ignore[union-attr]
    fabric = replace(facts.fleet.fabric, manager=Known(stopped, "systemctl"))
    found = _all(replace(facts, fleet=replace(facts.fleet, fabric=fabric)))
    assert "fabric-joining" not in found
    assert any(isinstance(way, kinds.StartService) for way in ways_of(found["fabric-manager-missing"])[0])


def test_hopper_is_not_told_of_a_subnet_manager() -> None:
    found = _all(facts_of("h100-no-fabric-manager"))
    assert "subnet-manager-missing" not in found
    assert "fabric-manager-missing" in found


def test_a_guest_without_switches_is_sent_to_its_host() -> None:
    facts = facts_of("h100-no-fabric-manager")
    pci = tuple(device for device in facts.gpus.pci if device.kind.value != "nvswitch")
    guest = replace(
        facts,
        gpus=replace(facts.gpus, pci=pci),
        place=replace(facts.place, hypervisor=Known("present", "/proc/cpuinfo")),
    )
    [first] = ways_of(_all(guest)["fabric-manager-missing"])[0]
    assert isinstance(first, AskPerson)
    assert first.why is Why.HYPERVISOR


def test_a_node_of_a_rack_is_not_told_to_install_a_manager() -> None:
    for finding in _all(facts_of("gb200-waits")).values():
        if not finding.caused_by:
            assert not any(isinstance(way, kinds.InstallPackages) for ways in ways_of(finding) for way in ways)


def test_imex_is_a_note_for_one_node_and_more_for_training() -> None:
    facts = facts_of("gb200-no-imex")
    assert _all(facts)["imex-missing"].severity.value == "note"
    assert _all(facts, Goal.TRAIN)["imex-missing"].severity.value == "degrades"


def test_802_of_gpus_that_are_not_set_ready_is_not_laid_at_the_fabric() -> None:
    found = _all(facts_of("h100-confidential"))
    assert set(found) == {"gpus-not-ready", "cuinit-fails"}
    [(way,)] = ways_of(found["gpus-not-ready"])
    assert isinstance(way, AskPerson)
    assert way.commands[0][-3:] == ("conf-compute", "-srs", "1")


def test_a_mask_with_the_id_of_another_slice_is_answered_by_one_that_is_here() -> None:
    finding = _all(facts_of("a100-mig-other-id"))["mig-device-unknown"]
    (way,), _ = ways_of(finding)
    assert way == kinds.SetVariables((kinds.Variable("CUDA_VISIBLE_DEVICES", "mig-0"),))


def test_slices_whose_ids_nobody_told_are_not_said_to_be_others() -> None:
    facts = facts_of("a100-mig-other-id")
    [gpu] = facts.gpus.devices
    untold = replace(gpu, mig_devices=tuple(replace(each, uuid=Unknown("no")) for each in gpu.mig_devices))
    facts = replace(facts, gpus=replace(facts.gpus, devices=(untold,)))
    assert "mig-device-unknown" not in _all(facts)


def test_a_guest_driver_on_a_plain_machine_is_not_called_a_vgpu_fault() -> None:
    """RmInitAdapter failed on bare metal, with gridd.conf left over: not the host's release."""
    facts = facts_of("vgpu-old-host")
    health = replace(facts.health, driver_messages=Known(("GPU 0000:06:10.0: RmInitAdapter failed!",), "dmesg"))
    bare = replace(facts, health=health, place=replace(facts.place, hypervisor=Known("none", "/proc/cpuinfo")))
    assert "vgpu-releases-differ" not in _all(bare)
    guest = replace(bare, place=replace(bare.place, hypervisor=Known("present", "/proc/cpuinfo")))
    assert "vgpu-releases-differ" in _all(guest)


def test_a_passed_through_gpu_is_not_asked_for_a_licence() -> None:
    facts = facts_of("h200-healthy")
    [gpu] = facts.gpus.devices
    passed = replace(gpu, virtualization=Known(Virtualization.PASSTHROUGH, "NVML"))
    assert "vgpu-unlicensed" not in _all(replace(facts, gpus=replace(facts.gpus, devices=(passed,))))


def test_nouveau_without_a_ban_is_the_plain_finding() -> None:
    assert "nouveau-in-early-image" not in _all(facts_of("nouveau-holds-gpu"))


def test_of_the_open_module_it_is_said_that_it_has_another_way_than_peermem() -> None:
    facts = override(facts_of("two-gpus-on-a-network"), ("driver.module_kind=open",))
    assert "dma-buf" in _all(facts)["peermem-not-loaded"].means
    assert "dma-buf" not in _all(facts_of("two-gpus-on-a-network"))["peermem-not-loaded"].means


def test_gsp_firmware_comes_again_by_the_packages_that_hold_it() -> None:
    bare = facts_of("gsp-no-firmware")
    ubuntu = replace(bare, ability=replace(bare.ability, package_managers=("apt-get",)))
    for packages, last in (
        (("nvidia-driver-550", "nvidia-firmware-550-550.144.03"), ("nvidia-firmware-550-550.144.03",)),
        (("nvidia-driver-550", "nvidia-utils-550"), ("nvidia-driver-550", "nvidia-utils-550")),
    ):
        facts = replace(ubuntu, driver=replace(ubuntu.driver, packages=Known(packages, "/var/lib/dpkg/status")))
        [again, _] = ways_of(_all(facts)["gsp-firmware-missing"])[0]
        assert isinstance(again, AskPerson)
        [command] = again.commands
        assert command[-len(last) - 2 :] == ("--reinstall", "--yes", *last)


def _gsp_silent(kind: str) -> Facts:
    facts = override(facts_of("h100-cuinit-hangs"), (f"driver.module_kind={kind}",))
    event = _event(119, "Timeout after 6s of waiting for RPC response from GPU0 GSP!")
    return replace(facts, health=replace(facts.health, xids=Known((event,), "dmesg")))


def test_gsp_is_turned_off_where_the_module_can_do_without_it() -> None:
    closed, opened = (_all(_gsp_silent(kind))["gsp-fails"] for kind in ("proprietary", "open"))
    assert isinstance(closed.answers[0].ways[0], kinds.SetModuleOption)
    assert not any(isinstance(way, kinds.SetModuleOption) for answer in opened.answers for way in answer.ways)


def test_a_gsp_that_was_silent_once_is_no_fault_of_a_machine_that_works() -> None:
    assert "gsp-fails" not in _all(_logged(_event(119)))


def test_a_licence_is_to_blame_for_46_alone_and_not_while_the_gpu_runs_at_full_speed() -> None:
    facts = facts_of("vgpu-unlicensed")
    refused = replace(facts, libcuda=replace(facts.libcuda, init_code=Known(46, "cuInit")))
    other = replace(facts, libcuda=replace(facts.libcuda, init_code=Known(999, "cuInit")))
    [licence] = facts.fleet.vgpu.licences
    free = replace(licence, state=Known(LicenceState.UNRESTRICTED, "NVML"))
    unhurt = replace(refused, fleet=replace(facts.fleet, vgpu=replace(facts.fleet.vgpu, licences=(free,))))
    blame = {"refused": refused, "other": other, "unhurt": unhurt}
    assert {name for name, each in blame.items() if "cuinit-fails" not in _all(each)} == {"refused"}
    assert _all(refused)["vgpu-unlicensed"].severity.value == "blocks"
    assert _all(facts)["vgpu-unlicensed"].severity.value == "degrades"


def _event(code: int, text: str = "text", pci: str = "0000:18:00") -> XidEvent:
    return XidEvent("Xid", code, pci, text, Unknown("no date"))


def _logged(*events: XidEvent) -> Facts:
    facts = facts_of("h200-healthy")
    return replace(facts, health=replace(facts.health, xids=Known(events, "dmesg")))


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (48, XidAction.RESET_GPU),
        (79, XidAction.RESTART_MACHINE),
        (94, XidAction.RESTART_PROGRAM),
        (119, XidAction.RESET_GPU),
        (74, XidAction.CHECK_LINKS),
        (54, XidAction.CHECK_POWER),
    ],
)
def test_an_xid_is_answered_as_the_catalogue_says(code: int, action: XidAction) -> None:
    assert action_for(Question(_logged(_event(code)), TABLES), _event(code)) is action


def test_what_the_driver_wrote_into_xid_154_comes_before_the_catalogue() -> None:
    told = _event(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    facts = _logged(_event(119), told)
    assert action_for(Question(facts, TABLES), _event(119)) is XidAction.RESTART_MACHINE
    elsewhere = _logged(_event(119), replace(told, pci="0000:2a:00"))
    assert action_for(Question(elsewhere, TABLES), _event(119)) is XidAction.RESET_GPU
    over = _event(154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)")
    assert action_for(Question(_logged(_event(119), over), TABLES), _event(119)) is XidAction.RESET_GPU


def test_a_gpu_that_fell_off_is_powered_off_and_on_rather_than_reset() -> None:
    finding = _all(_logged(_event(79)))["xid-seen"]
    [first] = ways_of(finding)[0]
    assert isinstance(first, AskPerson)
    assert first.why is Why.HARDWARE


def test_the_catalogue_has_every_xid_that_was_graded_before() -> None:
    for code in (46, 48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 140, 154, 171):
        row = TABLES.xid(code)
        assert row is not None
        assert row.lies_with is not LiesWith.PROGRAM
    assert TABLES.xid(13).lies_with is LiesWith.PROGRAM  # type: ignore[union-attr]
    assert TABLES.xid(9999) is None


def test_a_state_that_is_not_waiting_is_not_a_fabric_fault() -> None:
    facts = facts_of("b200-slow-links")
    states = {gpu.fabric_state.value for gpu in facts.health.gpus if isinstance(gpu.fabric_state, Known)}
    assert states == {FabricState.COMPLETED}
    assert not {"fabric-joining", "subnet-manager-missing"} & set(_all(facts))
