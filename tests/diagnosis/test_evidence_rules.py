"""Evidence has to agree: counts of GPUs, owners of files, lines of logs, and the torch that is imported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.agreement import doubts
from firstlight.diagnosis.finding import Diagnosis, Question, Severity
from firstlight.diagnosis.gpu_count_rules import gpu_left_out
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.log_lines import not_explained
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.containers import ContainerKind, Provider, ProviderSeen
from firstlight.facts.kernel_log import XidEvent
from firstlight.facts.known import Known, Unknown
from firstlight.facts.owners import FileOwner
from firstlight.plan.option import Option
from firstlight.plan.options import rank_options
from firstlight.plan.request import Request
from firstlight.report.doctor_text import Length, WaysOut, doctor_text
from firstlight.report.layout import plain
from firstlight.tables import load
from firstlight.ways import kinds
from firstlight.ways.asks import words_asked
from tests.diagnosis.rule_case import MACHINES, facts_of

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
NO_TIME = Unknown("the line carries no date")


def judged(facts: Facts) -> Diagnosis:
    return judge(Question(facts, TABLES), RULES)


def options(facts: Facts) -> tuple[Option, ...]:
    question = Question(facts, TABLES)
    return rank_options(question, judge(question, RULES), Request()).options


def screen(facts: Facts) -> str:
    """The screen on one line, as wrapping does not matter."""
    return " ".join(plain(doctor_text(facts, judged(facts), Length.SCREEN, WaysOut())).split())


def with_log(facts: Facts, *messages: str, xids: tuple[XidEvent, ...] = ()) -> Facts:
    health = replace(facts.health, driver_messages=Known(messages, "dmesg"), xids=Known(xids, "dmesg"))
    return replace(facts, health=health)


def test_seven_of_eight_names_the_odd_one_and_what_the_log_says_of_it() -> None:
    [seen] = gpu_left_out(Question(facts_of("l40-seven-of-eight"), TABLES))
    assert seen.saw.startswith(
        "8 GPUs on the bus (/sys/bus/pci/devices), 7 bound to nvidia, 7 in NVML, 7 under /dev, 7 in CUDA; left out: "
        "0000:b3:00.0"
    )
    assert "fallen off the bus and is not responding to commands" in seen.saw
    assert len(seen.lines) == 2  # the GPU's own, and how many the driver could not start


def test_an_old_gpu_beside_the_open_module_gets_the_proprietary_one() -> None:
    first = options(facts_of("gtx1070-under-open-module"))[0]
    assert first.ways == (
        kinds.InstallDriver(580, kinds.Flavour.PROPRIETARY, ("nvidia-driver-580-server",)),
        kinds.Restart(),
    )
    assert first.after == ()


def test_an_old_gpu_beside_one_that_needs_the_open_module_is_for_a_person() -> None:
    facts = facts_of("gtx1070-under-open-module")
    blackwell = replace(facts.gpus.devices[0], capability=facts_of("rtx5090-source-build").gpus.devices[0].capability)
    [seen] = gpu_left_out(Question(replace(facts, gpus=replace(facts.gpus, devices=(blackwell,))), TABLES))
    assert [type(way) for way in seen.answers[0].ways] == [kinds.AskPerson]


@pytest.mark.parametrize(("visible", "fires"), [("all", True), ("0,1,2", False), (None, False)])
def test_a_container_counts_only_where_it_was_given_all_gpus(visible: str | None, *, fires: bool) -> None:
    facts = facts_of("l40-seven-of-eight")
    devices = Known(visible, "NVIDIA_VISIBLE_DEVICES") if visible else Unknown("NVIDIA_VISIBLE_DEVICES is not set")
    inside = replace(facts.container, kind=Known(ContainerKind.DOCKER, "/.dockerenv"), visible_devices=devices)
    found = list(gpu_left_out(Question(replace(facts, container=inside), TABLES)))
    assert bool(found) is fires


def test_a_job_that_was_given_some_gpus_is_not_told_of_the_others_unless_the_log_names_them() -> None:
    facts = facts_of("l40-seven-of-eight")
    job = replace(facts, container=replace(facts.container, providers=(ProviderSeen(Provider.SLURM, "SLURM_JOB_ID"),)))
    masked = replace(facts, gpus=replace(facts.gpus, cuda_visible_devices=Known("0,1,2,3,4,5,6", "a variable")))
    for given in (job, masked):
        assert judged(given).primary == "gpu-left-out"
        assert judged(with_log(given)).primary == ""


def test_cuda_that_counts_fewer_than_nvml_without_a_mask_is_a_finding() -> None:
    facts = facts_of("one-of-two-masked")
    assert judged(facts).primary == ""
    unmasked = replace(facts, gpus=replace(facts.gpus, cuda_visible_devices=Unknown("not set")))
    assert judged(unmasked).primary == "gpu-left-out"
    assert "NVML lists 2 GPUs, CUDA counts 1" in screen(unmasked)


def test_a_gpu_that_nvml_does_not_list_is_not_said_to_answer() -> None:
    event = XidEvent("Xid", 79, "0000:b3:00", "GPU has fallen off the bus.", NO_TIME)
    facts = with_log(facts_of("l40-seven-of-eight"), xids=(event,))
    found = judged(facts).of("xid-seen")
    assert found is not None
    assert found.caused_by == "gpu-left-out"
    assert "0000:b3:00" in found.means
    assert "The GPU answers" not in found.means
    listed = judged(facts_of("rtx5080-xids")).of("xid-seen")
    assert listed is not None
    assert listed.means.startswith("The GPU answers NVML now")


def test_the_error_quoted_is_the_one_of_this_machine() -> None:
    for machine, code in (("rtx5080-xids", "xid-seen"), ("after-suspend", "cuinit-fails")):
        found = judged(facts_of(machine)).of(code)
        assert found is not None
        assert "..." not in found.error
    cuinit = judged(facts_of("after-suspend")).of("cuinit-fails")
    assert cuinit is not None
    assert cuinit.error.endswith("Error 999: unknown error")


def test_an_image_with_libraries_of_its_own_is_not_started_anew() -> None:
    facts = facts_of("image-with-driver-packages")
    first, *rest = options(facts)
    assert first.ways[:2] == (kinds.RemovePackages(("libnvidia-compute-610",)), kinds.RefreshLoaderCache())
    assert first.after == ()
    assert not any(isinstance(way, kinds.StartContainer) for each in (first, *rest) for way in each.ways)


def test_the_same_container_without_an_owner_keeps_its_finding() -> None:
    facts = replace(facts_of("image-with-driver-packages"), library_owners=Known((), "dpkg"))
    assert judged(facts).primary == "driver-library-mismatch"


@pytest.mark.parametrize(
    ("machine", "way"),
    [
        ("user-site-hides-torch", kinds.RemoveDistributions),
        ("python-path-hides-torch", kinds.UnsetVariables),
        ("conda-before-venv", kinds.AskPerson),
    ],
)
def test_no_wheel_is_offered_for_a_torch_that_is_shadowed(machine: str, way: type) -> None:
    found = options(facts_of(machine))
    assert isinstance(found[0].ways[0], way)
    assert found[0].after == ()
    assert not any(isinstance(each, kinds.InstallWheels) for option in found for each in option.ways)


def test_what_is_found_of_a_shadowed_torch_is_a_symptom_and_makes_the_shadow_as_bad() -> None:
    diagnosis = judged(facts_of("python-path-hides-torch"))
    cause, symptom = diagnosis.of("torch-shadowed"), diagnosis.of("driver-too-old-for-wheel")
    assert cause is not None
    assert symptom is not None
    assert symptom.caused_by == "torch-shadowed"
    assert cause.severity is Severity.BLOCKS


def test_a_line_that_no_finding_explains_is_printed_and_takes_the_word_healthy_away() -> None:
    facts = facts_of("h200-healthy")
    assert screen(facts).count("healthy") == 1
    line = "nvAssertOkFailedNoLog: Assertion failed: Timeout occured [NV_ERR_TIMEOUT] (0x00000065)"
    troubled = with_log(facts, line)
    assert "healthy" not in screen(troubled)
    assert f"seen and not explained dmesg {line}" in screen(troubled)
    assert "the log has 1 line that nothing found here explains" in screen(troubled)


def test_an_xid_of_a_program_on_a_working_machine_is_not_explained() -> None:
    event = XidEvent("Xid", 31, "0000:18:00", "Ch 00000008", NO_TIME)
    facts = with_log(facts_of("h200-healthy"), xids=(event, event))
    [left] = not_explained(facts, judged(facts))
    assert (left.line.text, left.count) == ("Xid 31 at 0000:18:00: Ch 00000008", 2)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_a_log_is_quoted_by_a_finding_or_left_over(name: str) -> None:
    facts = facts_of(name)
    text = plain(doctor_text(facts, judged(facts), Length.ALL, WaysOut()))
    left = not_explained(facts, judged(facts))
    assert ("seen and not explained" in text) is bool(left)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"init_code": Unknown("not asked")}, "cuInit was not seen to work (not asked)"),
        ({"device_count": Unknown("not asked")}, "CUDA's devices were not counted (not asked)"),
    ],
)
def test_healthy_is_said_only_where_cuda_was_seen_to_work(change: dict[str, Unknown], reason: str) -> None:
    facts = facts_of("h200-healthy")
    less = replace(facts, libcuda=replace(facts.libcuda, **change))  # type: ignore[arg-type]
    assert judged(less).primary == ""
    assert [each.text for each in doubts(less, judged(less))] == [reason]
    assert "healthy" not in screen(less)


def test_a_gpu_that_only_cuda_sees_is_there() -> None:
    facts, unseen = facts_of("h200-healthy"), Unknown("no such file")
    hidden = replace(  # a sandbox without /sys and /proc of the host, given the driver for compute alone
        facts,
        gpus=replace(facts.gpus, pci=(), devices=()),
        driver=replace(facts.driver, kernel_version=unseen, nodes=()),
    )
    assert "no-nvidia-device" not in {each.code for each in judged(hidden).findings}
    assert "healthy: cuInit works" in screen(hidden)
    assert "no NVIDIA GPU was found" not in screen(hidden)


def test_nouveau_on_one_gpu_does_not_hide_that_the_others_work() -> None:
    facts = facts_of("l40-seven-of-eight")
    pci = tuple(
        replace(each, driver=Known("nouveau", "driver")) if isinstance(each.driver, Unknown) else each
        for each in facts.gpus.pci
    )
    diagnosis = judged(replace(facts, gpus=replace(facts.gpus, pci=pci)))
    assert diagnosis.of("nouveau-loaded") is None
    assert diagnosis.primary == "gpu-left-out"
    assert not diagnosis.blocked


def test_a_module_on_disk_that_is_older_than_the_libraries_is_not_cured_by_a_restart() -> None:
    facts = facts_of("ubuntu-half-upgraded")
    kernel = facts.driver.kernel_version
    assert isinstance(kernel, Known)
    assert any(isinstance(way, kinds.Restart) for each in options(facts) for way in each.ways)
    path = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.550.107.02"
    behind = replace(
        facts,
        driver=replace(facts.driver, module_on_disk=Known(kernel.value, "modinfo nvidia")),
        library_owners=Known((FileOwner(path, "libnvidia-compute-550", "dpkg"),), "dpkg"),
    )
    first, *rest = options(behind)
    assert first.ways == (kinds.InstallPackages(("libnvidia-compute-550",), version=f"{kernel.value}*"),)
    assert first.after == ()
    assert not any(isinstance(way, kinds.Restart) for each in (first, *rest) for way in each.ways)


V100_IGNORED = (
    "The NVIDIA GPU 0000:00:04.0 (PCI ID: 10de:20b0) installed in this system is not supported by open nvidia.ko "
    "because it does not include the required GPU System Processor (GSP)."
)
LEGACY = (
    "The NVIDIA GeForce GTX 1050 GPU installed in this system is supported through the NVIDIA 580.xx Legacy drivers. "
    "Please visit http://www.nvidia.com/object/unix.html for more information.  The 595.58.03 NVIDIA driver will "
    "ignore this GPU.  Continuing probe..."
)


@pytest.mark.parametrize("line", [V100_IGNORED, LEGACY])
def test_a_module_that_went_away_again_is_told_from_one_that_was_never_loaded(line: str) -> None:
    facts = facts_of("a100-no-driver")
    assert judged(facts).primary == "driver-not-loaded"
    told = with_log(facts, line, "None of the NVIDIA devices were initialized.")
    assert judged(told).primary == "gpu-does-not-start"
    driver = options(told)[0].ways[0]
    assert isinstance(driver, kinds.InstallDriver)
    assert (driver.branch, driver.flavour) == (580, kinds.Flavour.PROPRIETARY)
    assert not_explained(told, judged(told)) == ()


@pytest.mark.parametrize(("hypervisor", "word"), [("vmware", "virtual machine"), ("", "firmware")])
def test_a_gpu_without_its_memory_region_is_a_matter_of_address_space(hypervisor: str, word: str) -> None:
    place = facts_of("l40-seven-of-eight").place
    guest = Known(hypervisor, "flags") if hypervisor else Unknown("none")
    facts = replace(facts_of("l40-seven-of-eight"), place=replace(place, hypervisor=guest))
    line = "This PCI I/O region assigned to your NVIDIA device is invalid: BAR1 is 0M @ 0x0 (PCI:0000:b3:00.0)"
    [seen] = gpu_left_out(Question(with_log(facts, line), TABLES))
    [way] = seen.answers[0].ways
    assert isinstance(way, kinds.AskPerson)
    assert word in words_asked(way)


def test_libraries_of_another_version_in_the_log_do_not_make_the_gpu_one_that_does_not_start() -> None:
    line = "API mismatch: the client has the version 550.107.02, but this kernel module has the version 550.90.07."
    facts = with_log(facts_of("ubuntu-half-upgraded"), line)
    assert judged(facts).primary == "driver-library-mismatch"
    assert not_explained(facts, judged(facts)) == ()


def test_each_copy_is_named_with_the_folder_that_it_lies_in() -> None:
    """Two records in the user's folder: the second is not that of the system's."""
    facts = facts_of("user-site-hides-torch")
    environment = facts.environment
    assert environment is not None
    twice = environment.duplicates[0]
    mine, system = twice.folders
    more = replace(twice, versions=("2.2.0", *twice.versions), folders=(mine, mine, system))
    judged_one = replace(environment, duplicates=(more,))
    all_of_them = tuple(judged_one if each is environment else each for each in facts.python.environments)
    changed = replace(facts, python=replace(facts.python, environments=all_of_them))
    [finding] = [each for each in judged(changed).findings if each.code == "torch-shadowed"]
    assert f"torch 2.2.0 and 2.4.1+cpu in {mine}" in finding.saw[0]
    assert f"before torch 2.8.0+cu128 in {system}" in finding.saw[0]


def test_the_home_folder_of_a_container_is_left_as_it_is() -> None:
    facts = facts_of("user-site-hides-torch")
    inside = replace(facts, container=replace(facts.container, kind=Known(ContainerKind.APPTAINER, "a variable")))
    [only] = options(inside)
    assert only.ways == (kinds.SetVariables((kinds.Variable("PYTHONNOUSERSITE", "1"),)),)
    assert only.after == ()
