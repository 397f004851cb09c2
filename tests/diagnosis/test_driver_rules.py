"""What the driver's rules say of real machines, and where they must keep quiet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question, Severity
from firstlight.diagnosis.judge import judge
from firstlight.facts.gpus import PciKind
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.facts.place import Platform
from firstlight.versions import CudaVersion
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import (
    BuildFromSource,
    BuildModules,
    EnrolKey,
    FetchCompat,
    Flavour,
    ForbidModule,
    HoldPackages,
    InstallDriver,
    InstallPackages,
    InstallWheels,
    LoadModules,
    OtherMachine,
    ReloadModules,
    RemovePackages,
    Restart,
    Service,
    SetModuleOption,
    SetUpRepository,
    SetVariables,
    StartContainer,
    StartService,
    Unwire,
    Why,
    WireCompat,
    WiredBy,
)
from firstlight.ways.platform import platform_of
from firstlight.ways.traits import by_person
from firstlight.ways.way import Proof
from tests.diagnosis import cases_place
from tests.diagnosis.cases_driver import CASES
from tests.diagnosis.forgetful import forgotten
from tests.diagnosis.machine_rules import RULES, TABLES, asked_of, codes_on, finding_on
from tests.diagnosis.rule_case import MACHINES, facts_of, ways_of
from tests.diagnosis.unknown_facts import nothing_known, one_less_known

ALL_MACHINES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))


def test_a_cu130_wheel_on_driver_570_is_blocked_and_compat_is_the_first_way_out() -> None:
    finding = finding_on(facts_of("h100-driver-570"), "driver-too-old-for-wheel")
    assert finding.severity is Severity.BLOCKS
    assert finding.saw == (
        "driver 570.133.20 (/sys/module/nvidia/version) offers CUDA 12.8; "
        "torch 2.9.0+cu130 needs 580.65.06 or newer, or a compat library",
    )
    assert (
        finding.means == "torch imports, but torch.cuda.is_available() is False. Its message says: found version 12080."
    )
    package, archive, conda, *_ = ways_of(finding)
    assert package == (
        SetUpRepository(),
        InstallPackages(("cuda-compat-13-0",), brings=("/usr/local/cuda-13.0/compat/libcuda.so.1",)),
        WireCompat("/usr/local/cuda-13.0/compat", CudaVersion(13, 0), (535, 550, 565, 570, 575)),
    )
    assert isinstance(archive[0], FetchCompat)
    assert conda[1] == WireCompat(
        "~/.local/state/firstlight/conda-compat-13.2/cuda-compat", CudaVersion(13, 2), (535, 570)
    )
    assert finding.answers[0].proof is Proof.DOCUMENTED
    [other] = [way for ways in ways_of(finding) for way in ways if isinstance(way, OtherMachine)]
    assert other.min_driver == 580
    assert other.command == (
        *("runpodctl", "pod", "create", "--gpu-id", "NVIDIA H100 80GB HBM3"),
        *("--min-cuda-version", "13.0"),
    )
    refused = {one.title: one.why_not for one in finding.answers if one.why_not}
    assert refused["driver >= 580"] == "a container cannot change the driver of the host below it"


def test_torch_is_built_with_a_toolkit_that_the_driver_runs() -> None:
    built = [ways for ways in ways_of(finding_on(facts_of("h100-driver-570"), "driver-too-old-for-wheel"))
             if isinstance(ways[-1], BuildFromSource)]  # fmt: skip
    [(*toolkit, _)] = built
    [home] = [way.variables[0] for way in toolkit if isinstance(way, SetVariables)]
    assert home.name == "CUDA_HOME"
    assert home.value.endswith("cuda-12.8")


def test_the_toolkit_that_cuda_home_names_is_the_one_in_use() -> None:
    facts = facts_of("h100-driver-550-cu128")
    assert "driver-too-old-for-toolkit" in codes_on(facts)
    named = override(facts, ("toolkits.cuda_home=/opt/cuda-12", "toolkits.cpp_extension_home=/opt/cuda-12"))
    assert "driver-too-old-for-toolkit" not in codes_on(named), "nvcc 13 on PATH is not what builds"


def test_driver_550_is_served_by_compat_13_0_and_not_told_to_take_580_95_05() -> None:
    finding = finding_on(facts_of("h100-driver-550-cu130"), "driver-too-old-for-wheel")
    assert InstallPackages(("cuda-compat-13-0",), ("/usr/local/cuda-13.0/compat/libcuda.so.1",)) in ways_of(finding)[0]
    assert not any("580.95.05" in line for line in finding.saw)
    assert "found version 12040" in finding.means


def test_a_13_2_wheel_on_driver_550_gets_the_newest_package_that_lists_550() -> None:
    facts = override(facts_of("h100-driver-550-cu130"), ("torch.wheel_cuda=13.2",))
    first, *_ = ways_of(finding_on(facts, "driver-too-old-for-wheel"))
    assert [way.packages for way in first if isinstance(way, InstallPackages)] == [("cuda-compat-13-1",)]


def test_a_geforce_card_is_never_told_to_use_compat() -> None:
    finding = finding_on(facts_of("runpod-gate-12-8"), "driver-too-old-for-wheel")
    assert not any("compat" in line for line in finding.saw)
    assert not any(isinstance(way, (WireCompat, FetchCompat)) for ways in ways_of(finding) for way in ways)
    [why] = [one.why_not for one in finding.answers if one.title == "a forward-compat library"]
    assert "NVIDIA GeForce RTX 4090 (NVML brand 5, GEFORCE) may not use it: cuInit gives 804" in why


def test_without_root_compat_comes_as_an_archive_and_a_driver_not_at_all() -> None:
    facts = override(
        facts_of("h100-driver-570"), ("ability.is_root=false", "container.kind=none", "ability.sudo=no sudo")
    )
    finding = finding_on(facts, "driver-too-old-for-wheel")
    assert isinstance(ways_of(finding)[0][0], FetchCompat)
    refused = {one.title: one.why_not for one in finding.answers if one.why_not}
    for title in ("cuda-compat-13-0 from NVIDIA's repository", "driver >= 580"):
        assert refused[title] == "it takes root, and this user has neither root nor sudo"


def test_before_cuda_11_a_driver_runs_no_later_release_than_its_own() -> None:
    """torch for CUDA 10.2 needs 440.33: no minor-version compatibility on driver 418, whose CUDA is 10.1."""
    old = ("driver.kernel_version=418.226.00", "driver_cuda=10.1", "torch.wheel_cuda=10.2")
    finding = finding_on(override(facts_of("h100-driver-570"), old), "driver-too-old-for-wheel")
    assert "needs 440.33 or newer" in finding.saw[0]
    [other] = [way for ways in ways_of(finding) for way in ways if isinstance(way, OtherMachine)]
    assert (other.min_driver, other.cuda) == (440, CudaVersion(10, 2))
    not_looked = override(facts_of("h100-driver-570"), (*old, "cuinit=unknown", "driver_cuda=unknown"))
    assert "driver-too-old-for-wheel" in codes_on(not_looked)
    fits = ("driver.kernel_version=440.33.01", "driver_cuda=10.2", "torch.wheel_cuda=10.2")
    assert not {"driver-too-old-for-wheel", "minor-version-limits"} & set(
        codes_on(override(facts_of("h100-driver-570"), fits))
    )


def test_who_cannot_change_the_driver_is_told_the_floor_of_torchs_own_cuda() -> None:
    old = (
        "driver.kernel_version=418.226.00",
        "driver_cuda=10.1",
        "torch.wheel_cuda=11.3",
        "torch.version=1.10.0+cu113",
    )
    finding = finding_on(override(facts_of("h100-driver-570"), old), "driver-too-old-for-wheel")
    assert "needs 450.80.02 or newer" in finding.saw[0]
    assert "driver >= 450" in {one.title for one in finding.answers if one.why_not}
    assert not any(isinstance(way, InstallWheels) for ways in ways_of(finding) for way in ways), "cu102 needs 440.33"


def test_a_compat_library_that_works_silences_the_driver_rule() -> None:
    assert "driver-too-old-for-wheel" not in codes_on(facts_of("h100-driver-570-compat"))


def test_without_a_look_at_libcuda_the_version_decides() -> None:
    facts = override(facts_of("h100-driver-570"), ("cuinit=unknown", "driver_cuda=unknown"))
    finding = finding_on(facts, "driver-too-old-for-wheel")
    assert finding.saw[0].startswith("driver 570.133.20 (/sys/module/nvidia/version) offers CUDA 12.8;")
    assert "driver-too-old-for-wheel" not in codes_on(override(facts, ("driver=580.65.06",)))


def test_the_first_580_driver_is_new_enough_for_cuda_13() -> None:
    facts = override(facts_of("h100-driver-570"), ("driver=580.65.06",))
    assert "driver-too-old-for-wheel" not in codes_on(facts)


def test_a_jetsons_driver_580_00_counts_as_branch_580() -> None:
    facts = override(facts_of("h100-driver-570"), ("cuinit=unknown", "driver=580.00"))
    assert "driver-too-old-for-wheel" in codes_on(facts)
    jetson = replace(facts, place=replace(facts.place, platform=Known(Platform.JETSON, "test")))
    assert "driver-too-old-for-wheel" not in codes_on(jetson)


def test_cu128_on_driver_550_is_a_note_and_nothing_else() -> None:
    diagnosis = judge(Question(facts_of("h100-driver-550-cu128"), TABLES), RULES)
    assert {finding.severity for finding in diagnosis.findings} == {Severity.NOTE}
    note = diagnosis.of("minor-version-limits")
    assert note is not None
    assert note.saw == (
        "driver 550.163.01 (/sys/module/nvidia/version) offers CUDA 12.4; "
        "torch 2.8.0+cu128 was built with 12.8, of the same major",
    )


@pytest.mark.parametrize(
    ("goal", "severity"),
    [(Goal.INFER, Severity.NOTE), (Goal.BUILD_EXTENSIONS, Severity.DEGRADES), (Goal.KERNELS, Severity.BLOCKS)],
)
def test_nvcc_13_on_driver_550_is_as_bad_as_the_goal_makes_it(goal: Goal, severity: Severity) -> None:
    finding = finding_on(facts_of("h100-driver-550-cu128"), "driver-too-old-for-toolkit", goal)
    assert finding.severity is severity
    homes = [way.variables for ways in ways_of(finding) for way in ways if isinstance(way, SetVariables)]
    assert homes[0][0].name == "CUDA_HOME"
    assert homes[0][0].value.endswith("/cuda-12.8")
    assert not any(isinstance(way, InstallWheels) for ways in ways_of(finding) for way in ways), "no nvcc 12 wheels"


@pytest.mark.parametrize("name", ["h200-healthy", "l4-vgpu", "wsl2-healthy"])
def test_a_healthy_machine_is_left_alone(name: str) -> None:
    assert codes_on(facts_of(name)) == []


def test_a_driver_whose_nvidia_smi_banner_changed_gives_a_note_at_most() -> None:
    facts = facts_of("b200-driver-610")
    assert facts.gpus.count == Known(2, "nvidia-smi")
    diagnosis = judge(Question(facts, TABLES), RULES)
    assert [finding.code for finding in diagnosis.findings] == ["driver-branch-ended"]
    assert diagnosis.primary == ""
    assert diagnosis.findings[0].saw == (
        "driver 610.43.02 (/sys/module/nvidia/version): NVIDIA supported branch 610 (new feature) until 2026-08",
    )


def test_a_branch_is_over_only_after_its_last_month() -> None:
    facts = replace(facts_of("b200-driver-610"), collected_at="2026-08-31T23:00:00Z")
    assert "driver-branch-ended" not in codes_on(facts)


def test_a_branch_of_unknown_life_says_nothing() -> None:
    assert "driver-branch-ended" not in codes_on(override(facts_of("b200-driver-610"), ("driver=615.71.09",)))


def test_a_preloaded_shim_is_found_by_its_own_lie() -> None:
    facts = facts_of("h100-spoofed-version")
    finding = finding_on(facts, "version-spoofed")
    assert finding.saw == (
        "/usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20 is of driver 570.133.20, which has CUDA 12.8, but answers "
        "13.0 (cuDriverGetVersion); LD_PRELOAD has /workspace/libfake_driver.so",
    )
    assert ways_of(finding) == [(Unwire(("/workspace/libfake_driver.so",), WiredBy.PRELOAD),)]
    without = override(facts, ("driver_cuda=12.8",))
    assert "driver-too-old-for-wheel" in codes_on(without)


def test_the_half_upgraded_driver_is_told_to_reboot_and_a_container_comes_anew_after_its_host() -> None:
    facts = facts_of("ubuntu-half-upgraded")
    finding = finding_on(facts, "driver-library-mismatch")
    assert finding.saw == (
        "kernel module 550.90.07 (/sys/module/nvidia/version), NVML library 550.107.02 "
        "(/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.107.02); nvmlInit gives 18",
    )
    assert ways_of(finding) == [
        (Restart(),),
        (ReloadModules(("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")),),
        (HoldPackages(("nvidia-driver-550",)), Restart()),
    ]
    inside = override(facts, ("container.kind=docker",))
    anew = StartContainer(("--gpus", "all"), gives_gpus=True)
    assert ways_of(finding_on(inside, "driver-library-mismatch")) == [
        (ReloadModules(("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")), anew),
        (Restart(), anew),
    ]


def test_versions_that_differ_are_no_fault_while_nvml_works() -> None:
    facts = override(facts_of("ubuntu-half-upgraded"), ("driver.nvml_code=0", "cuinit=0"))
    assert "driver-library-mismatch" not in codes_on(facts)
    silent = override(facts_of("ubuntu-half-upgraded"), ("driver.nvml_code=unknown",))
    assert "driver-library-mismatch" in codes_on(silent), "cuInit gave 803 and the versions differ"


def test_an_a100_without_a_module_for_its_kernel_gets_headers_and_dkms() -> None:
    finding = finding_on(facts_of("a100-no-driver"), "driver-not-loaded")
    assert finding.saw == (
        "NVIDIA GPU at 0000:00:04.0 (device 0x20b0) in /sys/bus/pci/devices; no nvidia module in /sys/module; "
        "no nvidia.ko in the usual folders of /lib/modules/6.8.0-1030-gcp",
    )
    built, driver, *_ = ways_of(finding)
    assert built == (
        BuildModules("6.8.0-1030-gcp", "linux-headers-6.8.0-1030-gcp"),
        LoadModules(("nvidia", "nvidia_uvm")),
    )
    assert driver == (InstallDriver(580, Flavour.OPEN, ("nvidia-driver-580-server-open",)), Restart())


def test_a_gpu_set_aside_for_a_virtual_machine_is_told_apart() -> None:
    facts = override(facts_of("a100-no-driver"), ("gpus.pci.0.driver=vfio-pci",))
    [ways] = ways_of(finding_on(facts, "driver-not-loaded"))
    assert words_asked(asked_of(ways)) == "give 0000:00:04.0 back from the virtual machines (vfio-pci)"
    assert asked_of(ways).why is Why.DECISION


def test_nouveau_is_the_cause_and_the_missing_driver_its_symptom() -> None:
    diagnosis = judge(Question(facts_of("nouveau-holds-gpu"), TABLES), RULES)
    assert diagnosis.primary == "nouveau-loaded"
    assert {finding.caused_by for finding in diagnosis.findings[1:]} == {"nouveau-loaded"}


def test_the_successor_of_nouveau_is_known_too() -> None:
    facts = override(facts_of("nouveau-holds-gpu"), ("gpus.pci.0.driver=NovaCore",))
    assert ways_of(finding_on(facts, "nouveau-loaded")) == [
        (ForbidModule("nouveau"), ForbidModule("nova_core"), ForbidModule("nova_drm"), Restart())
    ]


def test_what_belongs_to_the_host_is_by_a_person_in_a_container() -> None:
    held = override(facts_of("nouveau-holds-gpu"), ("container.kind=docker",))
    uvm = override(facts_of("l20-hmm"), ("container.kind=docker",))
    fabric = override(facts_of("h200-other-fabric-manager"), ("container.kind=docker",))
    for facts, code in (
        (held, "nouveau-loaded"),
        (uvm, "hmm-breaks-cuinit"),
        (uvm, "cuinit-fails"),
        (fabric, "fabric-manager-differs"),
    ):
        for way in ways_of(finding_on(facts, code))[0]:
            assert by_person(way, platform_of(facts)) == Why.HOST.value, way


def test_secure_boot_is_not_blamed_once_the_module_has_spoken() -> None:
    facts = facts_of("secure-boot")
    spoken = replace(facts, health=replace(facts.health, driver_messages=Known(("RmInitAdapter failed!",), "dmesg")))
    assert "secure-boot-blocks-module" not in codes_on(spoken)
    assert "driver-not-loaded" in codes_on(spoken)


def test_secure_boot_is_answered_by_a_signed_module_a_key_and_the_firmware() -> None:
    signed, key, firmware = ways_of(finding_on(facts_of("secure-boot"), "secure-boot-blocks-module"))
    assert signed == (
        InstallPackages(
            (
                "linux-modules-nvidia-580-server-open-6.8.0-60-generic",
                "linux-modules-nvidia-580-server-open-generic-6.8",
            )
        ),
        RemovePackages(("nvidia-dkms-*",), alone=True),  # updates/dkms comes before what the system signed
        LoadModules(("nvidia", "nvidia_uvm")),
    )
    assert key == (EnrolKey("/var/lib/shim-signed/mok/MOK.der"), Restart())
    assert asked_of(firmware).why is Why.FIRMWARE


def test_a_5090_under_the_proprietary_module_is_told_by_its_pci_id_and_the_driver_s_word() -> None:
    facts = facts_of("blackwell-proprietary")
    finding = finding_on(facts, "blackwell-needs-open-module")
    assert finding.saw == (
        "the proprietary module 570.144 is loaded (/proc/driver/nvidia/version); 0000:01:00.0 is a Blackwell GPU "
        "(device 0x2b85, /sys/bus/pci/devices); it said: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85) "
        "installed in this system requires use of the NVIDIA open kernel modules; GPU 0000:01:00.0: "
        "RmInitAdapter failed! (0x22:0x56:884)",
    )
    package, installer = ways_of(finding)
    assert package == (InstallDriver(570, Flavour.OPEN, ("nvidia-driver-570-server-open",)), Restart())
    file = "NVIDIA-Linux-x86_64-570.144.run"
    assert asked_of(installer).commands == (
        ("curl", "-fLO", f"https://download.nvidia.com/XFree86/Linux-x86_64/570.144/{file}"),
        ("sh", file, "-m=kernel-open"),
    )
    assert asked_of(installer).fetches == file
    silent = replace(facts, health=replace(facts.health, driver_messages=Unknown("not permitted")))
    assert "blackwell-needs-open-module" in codes_on(silent)
    hopper = override(silent, ("gpus.pci.0.device_id=0x2330",))
    assert "blackwell-needs-open-module" not in codes_on(hopper)


def test_the_drivers_own_word_is_enough_for_the_open_module() -> None:
    facts = override(facts_of("blackwell-proprietary"), ("gpus.pci.0.device_id=0x3182",))
    message = "installed in this system requires use of the NVIDIA open kernel modules."
    told = replace(facts, health=replace(facts.health, driver_messages=Known((message,), "dmesg")))
    assert message.rstrip(".") in finding_on(told, "blackwell-needs-open-module").saw[0]


def test_a_pascal_card_under_the_open_module_is_sent_to_the_proprietary_one() -> None:
    facts = override(facts_of("after-suspend"), ("cuinit=100",))
    message = "installed in this system is not supported by open"
    told = replace(facts, health=replace(facts.health, driver_messages=Known((message,), "dmesg")))
    [(driver, restart)] = ways_of(finding_on(told, "cuinit-fails"))
    assert isinstance(driver, InstallDriver)
    assert driver.flavour is Flavour.PROPRIETARY
    assert not any(name.endswith("-open") for name in driver.packages)
    assert restart == Restart()


def test_nodes_that_may_not_be_opened_are_told_apart_from_absent_ones() -> None:
    facts = facts_of("nodes-missing")
    assert finding_on(facts, "device-nodes-missing").saw == (
        "driver 570.133.20 (/sys/module/nvidia/version) is loaded; "
        "there is no /dev/nvidiactl, /dev/nvidia0 and /dev/nvidia-uvm",
    )
    other = facts_of("after-suspend")
    nodes = tuple(replace(node, openable=False) for node in other.driver.nodes)
    closed = replace(other, driver=replace(other.driver, nodes=nodes))
    assert "user 1000 may not open /dev/nvidiactl" in finding_on(closed, "device-nodes-missing").saw[0]


def test_error_802_without_a_fabric_manager_names_the_package_of_the_drivers_version() -> None:
    finding = finding_on(facts_of("h100-no-fabric-manager"), "fabric-manager-missing")
    assert finding.saw == (
        "cuInit gives 802 CUDA_ERROR_SYSTEM_NOT_READY (system not yet initialized); "
        "fabric state of 8 GPUs: not started (NVML); no /usr/bin/nv-fabricmanager",
    )
    assert ways_of(finding)[0] == (
        SetUpRepository(),
        InstallPackages(("nvidia-fabricmanager-570",), version="570.133.20*"),
        StartService("nvidia-fabricmanager"),
    )
    inside = override(facts_of("h100-no-fabric-manager"), ("container.kind=docker",))
    assert "report error 802" in words_asked(asked_of(ways_of(finding_on(inside, "fabric-manager-missing"))[0]))


def test_a_fabric_manager_of_another_version_is_replaced_by_the_drivers() -> None:
    first, kept = ways_of(finding_on(facts_of("h200-other-fabric-manager"), "fabric-manager-differs"))
    assert first == (
        SetUpRepository(),
        InstallPackages(("nvidia-fabricmanager-580",), version="580.126.09*"),
        StartService("nvidia-fabricmanager", Service.RESTART),
    )
    assert kept == (*first, HoldPackages(("nvidia-fabricmanager-580",)))


def test_another_fabric_manager_is_no_fault_where_there_is_no_nvswitch() -> None:
    facts = override(facts_of("h200-healthy"), ("health.fabric_manager_version=590.48.01", "cuinit=999"))
    assert "fabric-manager-differs" not in codes_on(facts)
    assert not any(device.kind is PciKind.NVSWITCH for device in facts.gpus.pci)


def test_error_3_is_laid_at_hmm_only_while_nvml_works() -> None:
    facts = facts_of("l20-hmm")
    assert (
        finding_on(facts, "hmm-breaks-cuinit")
        .saw[0]
        .startswith(
            "cuInit gives 3 CUDA_ERROR_NOT_INITIALIZED (initialization error) under driver 580.95.05 and kernel "
            "6.12.0-55.37.1.el10_0.x86_64, while NVML sees 1 GPU; HMM is on"
        )
    )
    assert "hmm-breaks-cuinit" not in codes_on(override(facts, ("driver.nvml_code=9",)))
    option = SetModuleOption("nvidia_uvm", "uvm_disable_hmm=1", "/etc/modprobe.d/nvidia-uvm.conf")
    assert ways_of(finding_on(facts, "hmm-breaks-cuinit")) == [
        (option, ReloadModules(("nvidia_uvm",))),
        (option, Restart()),
    ]


def test_a_hung_cuinit_is_told_from_one_that_was_never_called() -> None:
    assert finding_on(facts_of("h100-cuinit-hangs"), "cuinit-hangs").saw == ("cuInit gave no answer within 8 s",)
    facts = override(facts_of("h100-cuinit-hangs"), ("cuinit=unknown",))
    assert "cuinit-hangs" not in codes_on(facts)


def test_every_error_of_cuinit_is_named_with_its_meaning() -> None:
    for row in TABLES.error_codes:
        if row.api.value == "cuda" and row.code > 0:
            facts = override(facts_of("after-suspend"), (f"cuinit={row.code}",))
            finding = finding_on(facts, "cuinit-fails")
            assert f"gives {row.code} " in finding.saw[0]
            assert ways_of(finding)


def test_no_gpu_is_a_note_until_something_is_wanted() -> None:
    facts = facts_of("gpu-less")
    assert finding_on(facts, "no-nvidia-device").severity is Severity.NOTE
    wanted = judge(Question(facts, TABLES, wants=("torch==2.9.0+cu130",)), RULES)
    assert wanted.primary == "no-nvidia-device"


def test_wsl_1_is_told_to_become_wsl_2() -> None:
    facts = override(facts_of("wsl2-healthy"), ("place.platform=wsl1", "place.kernel_release=4.4.0-19041-Microsoft"))
    finding = finding_on(facts, "no-nvidia-device")
    assert finding.saw == ("this is WSL 1 (kernel 4.4.0-19041-Microsoft), which reaches no GPU",)
    assert asked_of(ways_of(finding)[0]).commands == (
        ("wsl", "--update"),
        ("wsl", "--set-version", "DISTRIBUTION", "2"),
    )


@pytest.mark.parametrize("name", sorted({case.machine for case in (*CASES, *cases_place.CASES)}))
def test_no_rule_raises_where_one_fact_is_not_known(name: str) -> None:
    for path, facts in one_less_known(facts_of(name)):
        for rule in RULES:
            seen = tuple(rule.check(Question(facts, TABLES)))
            assert all(each.saw for each in seen), (rule.code, path)


def test_what_nobody_saw_blocks_nothing() -> None:
    for name in ALL_MACHINES:
        diagnosis = judge(Question(forgotten(facts_of(name)), TABLES), RULES)
        assert diagnosis.primary in ("", "disk-nearly-full"), name  # what is free of a disk is a number, not a fact
        assert codes_on(nothing_known(facts_of(name))) == ["no-nvidia-device"], name


def test_every_case_names_its_own_code_in_one_finding() -> None:
    for case in CASES:
        diagnosis = judge(Question(case.facts(), TABLES, case.goal), RULES)
        finding = diagnosis.of(case.code)
        assert finding is not None
        assert finding.saw
        assert all(saw.isprintable() for saw in finding.saw)
        assert isinstance(case.facts().libcuda.init_code, (Known, Unknown))
