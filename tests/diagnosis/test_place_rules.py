"""What the rules about place and health say of real machines, and where they must keep quiet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question, Severity
from firstlight.diagnosis.judge import judge
from firstlight.facts.containers import Provider, ProviderSeen
from firstlight.facts.kernel_log import XidEvent
from firstlight.facts.known import Known, Unknown
from firstlight.facts.override import override
from firstlight.facts.resources import DiskSpace, Mount
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import (
    AskPerson,
    ChangeImage,
    ClearCache,
    ConfigureContainers,
    InstallPackages,
    ReadEnvironment,
    RemovePackages,
    ResetGpu,
    Scope,
    Service,
    SetComputeMode,
    SetUpRepository,
    SetVariables,
    StartContainer,
    StartService,
    TurnOffMig,
    UnsetVariables,
    Variable,
    Why,
)
from firstlight.ways.way import Proof
from tests.diagnosis.machine_rules import RULES, TABLES, asked_of, codes_on, finding_on
from tests.diagnosis.rule_case import facts_of, ways_of


def test_a_container_without_gpus_is_told_how_to_get_them() -> None:
    finding = finding_on(facts_of("docker-no-gpus"), "no-gpu-in-container")
    assert finding.saw == (
        "docker container (/.dockerenv); the host's driver is 570.133.20 (/sys/module/nvidia/version), its GPU at "
        "0000:18:00.0 (/sys/bus/pci/devices), but there is no /dev/nvidiactl and no /dev/nvidia0",
    )
    again, look = ways_of(finding)
    assert again == (StartContainer(("--gpus", "all"), gives_gpus=True),)
    assert finding.answers[0].proof is Proof.DOCUMENTED
    assert not asked_of(look).cures


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("podman", ("--device", "nvidia.com/gpu=all")),
        ("kubernetes", ('resources: {limits: {"nvidia.com/gpu": 1}}',)),
        ("apptainer", ("--nv",)),
        ("enroot", ("--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility")),
        ("incus", ()),
        ("other", ()),
    ],
)
def test_each_kind_of_container_has_its_own_way_to_gpus(kind: str, arguments: tuple[str, ...]) -> None:
    facts = override(facts_of("docker-no-gpus"), (f"container.kind={kind}",))
    first, *_ = ways_of(finding_on(facts, "no-gpu-in-container"))
    assert first == (StartContainer(arguments, gives_gpus=True),)


def test_a_container_whose_host_has_no_gpu_is_no_fault() -> None:
    facts = override(facts_of("gpu-less"), ("container.kind=docker",))
    assert codes_on(facts)[0] == "no-nvidia-device"
    assert "no-gpu-in-container" not in codes_on(facts)


def test_an_old_driver_below_a_container_without_gpus_is_not_the_first_cause() -> None:
    facts = override(facts_of("docker-no-gpus"), ("torch.wheel_cuda=13.0",))
    diagnosis = judge(Question(facts, TABLES), RULES)
    assert diagnosis.primary == "no-gpu-in-container"
    assert diagnosis.of("driver-too-old-for-wheel") is not None


def test_a_gate_of_12_8_before_a_cu130_wheel_is_named_beside_the_old_driver() -> None:
    facts = facts_of("runpod-gate-12-8")
    diagnosis = judge(Question(facts, TABLES), RULES)
    assert diagnosis.primary == "driver-too-old-for-wheel"
    finding = finding_on(facts, "container-gate-differs")
    assert finding.saw == (
        "the image's gate is cuda>=12.8 (NVIDIA_REQUIRE_CUDA); torch 2.9.1+cu130 inside it is built with CUDA 13.0",
    )
    bare, older, *_ = ways_of(finding)
    assert bare == (ChangeImage('ENV NVIDIA_REQUIRE_CUDA="cuda>=13.0"', gate="cuda>=13.0"),)
    assert "A bare cuda>=13.0 shuts out data-centre hosts" in finding.means
    library, gate = older
    assert isinstance(library, ChangeImage)
    assert isinstance(gate, ChangeImage)
    assert library.line.endswith("cuda-compat-13-0")
    for branch in (535, 550, 565, 570, 575):
        assert f"brand=tesla,driver>={branch},driver<{branch + 1}" in gate.line


def test_a_gate_of_the_wheels_major_is_right_whatever_the_minor() -> None:
    facts = override(facts_of("runpod-gate-12-8"), ("torch.wheel_cuda=12.9",))
    assert "container-gate-differs" not in codes_on(facts)


def test_a_lucky_host_does_not_make_the_gate_right() -> None:
    facts = override(facts_of("runpod-gate-12-8"), ("driver_cuda=13.0", "driver=580.95.05"))
    assert judge(Question(facts, TABLES), RULES).primary == "container-gate-differs"


def test_a_docker_host_with_a_cdi_file_or_an_nvidia_runtime_can_hand_out_gpus() -> None:
    facts = facts_of("docker-host-no-toolkit")
    assert finding_on(facts, "container-runtime-missing").saw == (
        "Docker listens at /var/run/docker.sock; no nvidia-ctk on PATH, no CDI file",
    )
    assert ways_of(finding_on(facts, "container-runtime-missing")) == [
        (
            SetUpRepository(),
            InstallPackages(("nvidia-container-toolkit",)),
            ConfigureContainers("docker"),
            StartService("docker", Service.RESTART),
        )
    ]
    assert "container-runtime-missing" not in codes_on(override(facts, ("container.runtime.nvidia_runtime=true",)))
    assert "container-runtime-missing" not in codes_on(
        override(facts, ("container.runtime.cdi_specs=/etc/cdi/n.yaml",))
    )


def test_an_ssh_shell_names_what_it_lacks_without_its_values() -> None:
    finding = finding_on(facts_of("runpod-ssh"), "shell-lacks-container-env")
    assert finding.saw == ("HF_HOME: set for the container (/proc/1/environ), not in this shell",)
    shell, program = ways_of(finding)
    assert shell == (ReadEnvironment("/etc/rp_environment", ("HF_HOME",)),)
    assert "LD_LIBRARY_PATH" not in str(program)  # CUDA starts without it


def test_the_library_path_of_the_container_is_for_single_programs_and_where_cuda_does_not_start() -> None:
    finding = finding_on(override(facts_of("runpod-ssh"), ("cuinit=100",)), "shell-lacks-container-env")
    assert finding.saw[0].startswith("LD_LIBRARY_PATH and HF_HOME: ")
    shell, once = ways_of(finding)
    assert shell == (ReadEnvironment("/etc/rp_environment", ("HF_HOME",)),)
    [(*_, line)] = asked_of(once).commands
    assert line.startswith("grep -zE '^(LD_LIBRARY_PATH|HF_HOME)=' /proc/1/environ | xargs -0 ")


def test_elsewhere_than_at_runpod_the_variables_are_read_from_pid_1() -> None:
    facts = facts_of("runpod-ssh")
    bare = replace(facts, container=replace(facts.container, providers=()))
    shell, _ = ways_of(finding_on(bare, "shell-lacks-container-env"))
    assert shell == (ReadEnvironment("/proc/1/environ", ("HF_HOME",)),)


def test_a_mask_is_unset_first_and_a_slurm_job_asks_slurm() -> None:
    facts = facts_of("devices-masked")
    unset, named = ways_of(finding_on(facts, "devices-masked"))
    assert unset == (UnsetVariables(("CUDA_VISIBLE_DEVICES",)),)
    assert named == (SetVariables((Variable("CUDA_VISIBLE_DEVICES", "0,1"),)),)
    slurm = (ProviderSeen(Provider.SLURM, "SLURM_JOB_ID"),)
    job = replace(facts, container=replace(facts.container, providers=slurm))
    first, *rest = ways_of(finding_on(job, "devices-masked"))
    assert asked_of(first).commands == (("srun", "--gres=gpu:1", "COMMAND"),)
    assert rest == [unset, named]


@pytest.mark.parametrize(
    ("mask", "hides"),
    [
        ("", True),
        ("-1", True),
        ("2", True),
        ("7,0", True),
        ("none", True),
        ("0", False),
        ("1,9", False),
        ("0,-1", False),
    ],
)
def test_the_first_entry_of_a_mask_decides(mask: str, hides: bool) -> None:  # noqa: FBT001 a table of cases
    facts = override(facts_of("devices-masked"), (f"gpus.cuda_visible_devices={mask}",))
    assert ("devices-masked" in codes_on(facts)) is hides
    not_called = override(facts, ("cuinit=unknown",))
    assert ("devices-masked" in codes_on(not_called)) is hides


def test_a_mask_by_name_is_believed_until_cuinit_finds_no_device() -> None:
    facts = override(facts_of("devices-masked"), ("gpus.cuda_visible_devices=GPU-0000",))
    assert "devices-masked" in codes_on(facts)
    assert "devices-masked" not in codes_on(override(facts, ("cuinit=802",)))


def test_a_mask_that_leaves_a_gpu_is_nobodys_business() -> None:
    facts = override(facts_of("h200-healthy"), ("gpus.cuda_visible_devices=9",))
    assert codes_on(facts) == [], "CUDA was seen to list a device"


def test_mig_without_slices_is_cut_or_turned_off() -> None:
    finding = finding_on(facts_of("a100-mig-empty"), "mig-without-slices")
    assert finding.saw == ("gpu-0 NVIDIA A100-SXM4-40GB: MIG is on, and no slice was seen (NVML)",)
    off, cut = ways_of(finding)
    assert off == (TurnOffMig("0"),)
    assert asked_of(cut).why is Why.DECISION
    assert asked_of(cut).commands[0] == ("nvidia-smi", "mig", "-i", "0", "-lgip")


def test_a_slice_is_a_note_with_its_size() -> None:
    diagnosis = judge(Question(facts_of("h100-mig-slice"), TABLES), RULES)
    assert [finding.code for finding in diagnosis.findings] == ["mig-slice"]
    assert diagnosis.findings[0].saw == ("gpu-0 NVIDIA H100 PCIe is cut into 1g.10gb with 9.8 GiB (NVML)",)
    assert diagnosis.primary == ""


def test_a_prohibited_gpu_blocks_although_cuinit_works() -> None:
    facts = facts_of("gpu-prohibited")
    assert facts.libcuda.init_code == Known(0, "cuInit")
    assert judge(Question(facts, TABLES), RULES).primary == "gpu-prohibited"
    assert ways_of(finding_on(facts, "gpu-prohibited")) == [(SetComputeMode("0"),)]


def test_mixed_gpus_name_the_order_and_every_architecture() -> None:
    finding = finding_on(facts_of("mixed-gpus"), "mixed-gpus")
    assert finding.severity is Severity.NOTE
    every = SetVariables((Variable("TORCH_CUDA_ARCH_LIST", "8.6;8.9;12.0"),), Scope.BUILD)
    assert ways_of(finding) == [(SetVariables((Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),)), every)]
    ordered = override(facts_of("mixed-gpus"), ("gpus.cuda_device_order=PCI_BUS_ID",))
    assert ways_of(finding_on(ordered, "mixed-gpus")) == [(every,)]


def test_a_linux_libcuda_in_wsl_is_purged_by_its_packages() -> None:
    finding = finding_on(facts_of("wsl2-linux-libcuda"), "wsl-libcuda-shadowed")
    assert finding.saw == (
        "the loader takes /usr/lib/x86_64-linux-gnu/libcuda.so.535.309.01 (ld.so.cache: /etc/ld.so.cache), not "
        "/usr/lib/wsl/lib/libcuda.so.1; cuInit gives 100 CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)",
    )
    purged, once = ways_of(finding)
    assert purged == (RemovePackages(("libnvidia-compute-535", "nvidia-driver-535"), purge=True),)
    assert once == (SetVariables((Variable("LD_LIBRARY_PATH", "/usr/lib/wsl/lib"),), Scope.PROGRAM),)


def test_the_kernel_drivers_rules_leave_wsl_alone() -> None:
    codes = codes_on(facts_of("wsl2-linux-libcuda"))
    assert not {"driver-not-loaded", "device-nodes-missing", "uvm-not-loaded", "driver-branch-ended"} & set(codes)


def test_a_lost_gpu_is_matched_with_its_xid() -> None:
    diagnosis = judge(Question(facts_of("gpu-fell-off"), TABLES), RULES)
    assert diagnosis.primary == "gpu-lost"
    finding = finding_on(facts_of("gpu-fell-off"), "gpu-lost")
    assert finding.saw == (
        "gpu-2: NVML says 15, the GPU is lost; the kernel log has Xid 79 at 0000:1a:00 (GPU has fallen off the bus.)",
    )
    log = diagnosis.of("xid-seen")
    assert log is not None
    assert log.caused_by == "gpu-lost"


def test_an_old_xid_79_of_a_gpu_that_answers_is_only_a_logged_fault() -> None:
    facts = override(facts_of("gpu-fell-off"), ("gpus.devices.2.nvml_code=0", "cuinit=0"))
    assert judge(Question(facts, TABLES), RULES).primary == "xid-seen"


def test_pending_rows_are_reset_and_failed_ones_replaced() -> None:
    facts = facts_of("a100-faulty-memory")
    finding = finding_on(facts, "gpu-memory-faulty")
    assert finding.saw == ("gpu-2: a row remapping is pending after 12 rows with uncorrectable errors (NVML)",)
    assert ways_of(finding)[0] == (ResetGpu("2"),)
    failed = override(facts, ("health.gpus.2.row_remap_failure=true",))
    assert words_asked(asked_of(ways_of(finding_on(failed, "gpu-memory-faulty"))[0])) == "have GPU 2 replaced by NVIDIA"


def test_rows_that_were_remapped_long_ago_are_no_fault() -> None:
    facts = override(facts_of("h200-healthy"), ("health.gpus.0.rows_remapped_uncorrectable=3",))
    assert codes_on(override(facts, ("health.gpus.0.ecc_uncorrected_aggregate=7",))) == []
    now = override(facts, ("health.gpus.0.ecc_uncorrected_volatile=1",))
    assert codes_on(now) == ["gpu-memory-faulty"]


def test_repeated_xids_are_told_once_with_their_number() -> None:
    finding = finding_on(facts_of("a100-faulty-memory"), "xid-seen")
    assert finding.saw[0] == (
        "Xid 48 at 0000:1a:00, once, at 2026-09-05T15:17:00: DBE (double bit error) in FBPA 9 (dmesg). "
        "A memory error that ECC cannot correct."
    )
    assert finding.saw[2].startswith("Xid 94 at 0000:1a:00, 2 times, last at 2026-09-05T15:37:00:")


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_the_faults_of_a_program_are_not_laid_at_the_gpu(code: int) -> None:
    facts = facts_of("h200-healthy")
    event = XidEvent("Xid", code, "0000:18:00", "text", Unknown("no date"))
    logged = replace(facts, health=replace(facts.health, xids=Known((event,), "dmesg")))
    assert codes_on(logged) == []
    switch = replace(event, family="SXid")
    assert codes_on(replace(facts, health=replace(facts.health, xids=Known((switch,), "dmesg")))) == ["xid-seen"]


def test_heat_is_a_fault_and_a_power_cap_is_not() -> None:
    assert finding_on(facts_of("h100-overheated"), "gpu-throttled").saw == (
        "gpu-0 is held back by hardware-slowdown and hardware-thermal at 91 C, 975 of 1980 MHz (NVML)",
    )
    for reason in ("idle", "software-power-cap", "application-clocks", "idle,software-power-cap"):
        facts = override(facts_of("h100-overheated"), (f"health.gpus.0.throttle={reason}",))
        assert "gpu-throttled" not in codes_on(facts)


def test_a_nearly_full_disk_is_told_once_for_each_mount() -> None:
    finding = finding_on(facts_of("small-pod"), "disk-nearly-full")
    assert finding.saw == ("1.2 GiB of 20 GiB are free at /",)
    [(cleared, moved, asked)] = ways_of(finding)
    assert cleared == ClearCache("pip")
    caches = (Variable("HF_HOME", "/workspace/huggingface"), Variable("PIP_CACHE_DIR", "/workspace/pip"))
    assert moved == SetVariables(caches)
    assert isinstance(asked, AskPerson)
    assert asked.why is Why.DECISION


def test_full_places_that_store_nothing_do_not_count() -> None:
    facts = facts_of("h200-healthy")
    full = [
        DiskSpace("/dev/shm", 1 << 26, 0, Known(Mount("/dev/shm", "tmpfs", "not local", read_only=False), "test")),
        DiskSpace("/usr", 1 << 30, 0, Known(Mount("/usr", "ext4", "/dev/sda1", read_only=True), "test")),
    ]
    assert codes_on(replace(facts, resources=replace(facts.resources, disks=tuple(full)))) == []


@pytest.mark.parametrize(("goal", "severity"), [(Goal.INFER, Severity.NOTE), (Goal.TRAIN, Severity.DEGRADES)])
def test_small_shared_memory_matters_for_training(goal: Goal, severity: Severity) -> None:
    finding = finding_on(facts_of("small-pod"), "shm-too-small", goal)
    assert finding.severity is severity
    assert finding.saw == ("64 MiB of shared memory at /dev/shm",)
    assert ways_of(finding)[0] == (StartContainer(("--shm-size=8g",)),)
