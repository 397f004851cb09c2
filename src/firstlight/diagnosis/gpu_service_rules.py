"""Rules about what stands between programs and a GPU that is there: confidential computing, MPS, GSP firmware."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.driver_module_answers import by_installer
from firstlight.diagnosis.elsewhere_answers import machine_answers
from firstlight.diagnosis.fabric_seen import not_set_ready
from firstlight.diagnosis.finding import LogLine, Question, Rule, Seen, Severity
from firstlight.diagnosis.log_lines import lines_about, lines_with, summing_up
from firstlight.diagnosis.observed import container, cuda_starts, gpu_label, init_error, listed, shown, typed
from firstlight.diagnosis.xid_answers import XID_WAYS, gpu_at, xid_answers
from firstlight.facts.collect import Facts
from firstlight.facts.driver import ModuleKind
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.versions import DriverVersion
from firstlight.ways import kinds
from firstlight.ways.guests import GuestKind, guest_of
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.managers import again
from firstlight.ways.platform import platform_of
from firstlight.ways.way import Chain, chain

_GSP_OPTIONS = "/etc/modprobe.d/nvidia-gsp.conf"
# Lines of the driver about its firmware; NVIDIA/open-gpu-kernel-modules#789 has all three.
_GSP_LINES = ("GSP firmware", "kgspWaitForGfwBootOk", "gpuWaitForGfwBootComplete")
_NO_START = "RmInitAdapter failed"
_NO_ANSWER = (119, 120)  # Xids


def gpus_not_ready(question: Question) -> Iterator[Seen]:
    """Under confidential computing a GPU takes no work before somebody says that it may."""
    facts, said = question.facts, question.facts.fleet.confidential
    if not not_set_ready(facts) or not isinstance(said.ready, Known):
        return
    error = f"; cuInit gives {init_error(question)}" if init_error(question) else ""
    ready = (typed(facts, "nvidia-smi", "conf-compute", "-srs", "1"),)
    here = AskPerson("attest-gpus", Why.DECISION, ready, as_root=True)
    host = AskPerson("have-gpus-attested", Why.HOST, ready, as_root=True)
    yield Seen(
        f"confidential computing is on, and the GPUs are not ready for work ({said.ready.seen_in}){error}",
        answers=(chain(host if container(facts) else here),),
    )


def mps_left_behind(question: Question) -> Iterator[Seen]:
    """Pipes of an MPS daemon that is gone: every CUDA program finds them and waits for nobody."""
    facts = question.facts
    pipe, running = facts.gpus.mps_control, facts.fleet.mps.running
    if cuda_starts(facts) or not isinstance(pipe, Known) or not isinstance(running, Known) or running.value:
        return
    folder = pipe.value.rpartition("/")[0]
    owner = facts.fleet.mps.owner_uid
    whose = f" of user {owner.value}" if isinstance(owner, Known) else ""
    error = f"; cuInit gives {init_error(question)}" if init_error(question) else ""
    theirs = not (isinstance(owner, Known) and owner.value == facts.ability.uid)
    unset = isinstance(facts.gpus.mps_pipe_directory, Known)
    yield Seen(
        f"{pipe.value}{whose} is there, and the daemon that {running.seen_in} names is gone{error}",
        answers=(
            chain(kinds.RemoveFiles((folder,), as_root=theirs), title="move the pipes of the dead MPS daemon aside"),
            *((chain(kinds.UnsetVariables(("CUDA_MPS_PIPE_DIRECTORY",))),) if unset else ()),
        ),
    )


def gsp_firmware_missing(question: Question) -> Iterator[Seen]:
    """The driver brings firmware for the GPU's own processor; without the files of its version no GPU starts."""
    facts = question.facts
    driver, files = facts.driver.kernel_version, facts.fleet.gsp.firmware
    if isinstance(driver, Unknown) or not isinstance(files, Known) or files.value or container(facts):
        return
    told = lines_with(facts, *_GSP_LINES)
    if cuda_starts(facts) or facts.gpus.devices or not told:
        return
    yield Seen(
        f"driver {shown(driver)} is loaded, and {files.seen_in} has no gsp*.bin; it said: {told[0].text}",
        answers=(chain(_with_its_firmware(facts, driver.value), kinds.Restart()),),
        lines=_of_the_start(facts),
    )


def _with_its_firmware(facts: Facts, driver: DriverVersion) -> AskPerson:
    """The packages that hold the firmware, else all of the driver, written anew; without any by NVIDIA's installer."""
    platform, packages = platform_of(facts), value_or(facts.driver.packages, ())
    command = again(tuple(name for name in packages if "firmware" in name) or packages, platform)
    if not packages and not platform.is_image_based:
        return by_installer(facts, driver, "install-driver-again", str(driver))
    if platform.is_image_based or not command:
        return AskPerson("install-driver-again", Why.IMAGE, of=(str(driver),))
    return AskPerson("install-driver-again", Why.DECISION, (typed(facts, *command),), as_root=True, of=(str(driver),))


def gsp_fails(question: Question) -> Iterator[Seen]:
    """The firmware is there, and the GPU's own processor does not start with it."""
    facts = question.facts
    told = lines_with(facts, *_GSP_LINES)
    files = facts.fleet.gsp.firmware
    missing = isinstance(files, Known) and not files.value
    if missing or cuda_starts(facts) or value_or(facts.fleet.gsp.setting, 18) == 0:
        return
    if facts.gpus.devices or not told:
        yield from _gsp_silent(question)
        return
    driver = facts.driver.kernel_version
    version = f"driver {shown(driver)}: " if isinstance(driver, Known) else ""
    yield Seen(
        f"{version}{'; '.join(line.text for line in told[:2])}",
        answers=_without_gsp(question),
        lines=_of_the_start(facts),
    )


def _gsp_silent(question: Question) -> Iterator[Seen]:
    """It did start, and then left the driver without an answer: Xid 119 and 120."""
    facts = question.facts
    silent = [event for event in value_or(facts.health.xids, ()) if event.code in _NO_ANSWER and event.family == "Xid"]
    if not silent or not facts.gpus.devices:
        return
    last, driver = silent[-1], facts.driver.kernel_version
    version = f"driver {shown(driver)}: " if isinstance(driver, Known) else ""
    error = f"; cuInit gives {init_error(question)}" if init_error(question) else ""
    off = () if container(facts) else _off(question)
    yield Seen(
        f"{version}Xid {last.code} at {last.pci}: {last.text.rstrip('.')}{error}",
        answers=(*off, *machine_answers(question, None)) if off else xid_answers(question, last, gpu_at(facts, last)),
        means="The driver waits for the GPU and gets no answer: most calls fail, and no CUDA program starts.",
        error=f"NVRM: Xid (PCI:{last.pci}): {last.code}, {last.text}",
        lines=lines_about(facts, last.pci),
    )


def _off(question: Question) -> tuple[Chain, ...]:
    """GSP turned off, which the proprietary module alone can do without."""
    kind = question.facts.driver.module_kind
    closed = isinstance(kind, Known) and kind.value is ModuleKind.PROPRIETARY
    off = kinds.SetModuleOption("nvidia", "NVreg_EnableGpuFirmware=0", _GSP_OPTIONS)
    return (chain(off, kinds.Restart()),) if closed else ()


def _of_the_start(facts: Facts) -> tuple[LogLine, ...]:
    """What the log has of a GPU whose firmware did not start: the firmware's lines, and those that follow from it."""
    return (*lines_with(facts, *_GSP_LINES, _NO_START), *summing_up(facts))


def _without_gsp(question: Question) -> tuple[Chain, ...]:
    """Cold, since firmware stays in the GPU over a restart; off altogether only where the closed module drives it."""
    cold = AskPerson("power-off-and-on", Why.HARDWARE)
    guest = guest_of(question.facts)  # of which a restart, or turning it off and on, leaves the GPU under power
    if guest in (GuestKind.PASSTHROUGH, GuestKind.VGPU):
        cold = AskPerson("shut-down-and-reset", Why.HYPERVISOR)
    elif guest is GuestKind.CLOUD:
        cold = AskPerson("stop-and-start", Why.PROVIDER)
    return (chain(cold), *_off(question), *machine_answers(question, None))


def pages_retired(question: Question) -> Iterator[Seen]:
    """Pages of memory out of use on GPUs before Ampere: the memory wears."""
    for each in question.facts.fleet.retired_pages:
        double, single = value_or(each.double_bit, 0), value_or(each.single_bit, 0)
        if double or single:
            number = each.gpu.removeprefix("gpu-")
            look = (("nvidia-smi", "-q", "-d", "PAGE_RETIREMENT", "-i", number),)
            causes = listed(
                f"{count} after {words}"
                for count, words in ((double, "double-bit errors"), (single, "many single-bit errors"))
                if count
            )
            yield Seen(
                f"{each.gpu}: {double + single} pages of memory are retired, {causes} (NVML)",
                answers=(chain(AskPerson("watch-pages", Why.DECISION, look, cures=False, of=(number,))),),
            )


def ecc_change_pending(question: Question) -> Iterator[Seen]:
    """A switch of ECC that waits for a restart: memory and speed are not yet as somebody set them."""
    facts = question.facts
    for gpu in facts.gpus.devices:
        now, later = gpu.ecc_mode, gpu.ecc_pending
        if isinstance(now, Known) and isinstance(later, Known) and now.value != later.value:
            word = "on" if later.value else "off"
            number = gpu.id.removeprefix("gpu-")
            host = chain(AskPerson("have-gpu-reset", Why.HOST, of=(number,)))
            yield Seen(
                f"{gpu_label(gpu)}: ECC will be {word} after a reset ({later.seen_in})",
                answers=(host,) if container(facts) else (chain(kinds.ResetGpu(number)), chain(kinds.Restart())),
            )


GPU_SERVICE_RULES: tuple[Rule, ...] = (
    Rule(
        check=gpus_not_ready,
        severity=Severity.BLOCKS,
        depth=20,
        title="The GPUs are in confidential computing mode and were not set ready.",
        fires_when="NVML says that confidential computing is on and that the GPUs do not accept client requests.",
        looks_at=("fleet.confidential.enabled", "fleet.confidential.ready"),
        means="Every CUDA program is refused until the GPUs are attested and set ready, again after every start.",
        error="Error 802: system not yet initialized",
        source="NVML, nvmlSystemGetConfComputeGpusReadyState; nvidia-smi conf-compute --help",
        ways=(AskPerson,),
        explains=("cuinit-fails", "fabric-manager-differs", "cuda-sees-no-device"),
    ),
    Rule(
        check=mps_left_behind,
        severity=Severity.BLOCKS,
        depth=30,
        title="An MPS daemon that is gone left its pipes behind.",
        fires_when="The MPS control pipe is there, the process that its pid file names is not that daemon, and CUDA "
        "does not start.",
        looks_at=("gpus.mps_control", "fleet.mps.running", "libcuda.init_code"),
        means="CUDA uses MPS wherever it finds its pipes, and no daemon answers there.",
        error="CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        source="docs.nvidia.com/deploy/mps",
        ways=(kinds.RemoveFiles, kinds.UnsetVariables),
        explains=("cuinit-fails", "cuinit-hangs"),
    ),
    Rule(
        check=gsp_firmware_missing,
        severity=Severity.BLOCKS,
        depth=20,
        title="The driver's firmware for the GPU (GSP) is not on this disk.",
        fires_when="The driver is loaded and complained of GSP firmware, no GPU is listed, and the folder of its "
        "version under /lib/firmware/nvidia has no gsp*.bin.",
        looks_at=("fleet.gsp.firmware", "driver.kernel_version", "health.driver_messages", "gpus.devices"),
        of_host=True,
        means="The GPU does not start: nvidia-smi says 'No devices were found'.",
        source="NVIDIA/open-gpu-kernel-modules#789",
        ways=(AskPerson, kinds.Restart),
        explains=("cuinit-fails", "device-nodes-missing", "cuda-sees-no-device", "gsp-fails", "gpu-does-not-start"),
    ),
    Rule(
        check=gsp_fails,
        severity=Severity.BLOCKS,
        depth=20,
        title="The GPU's own processor (GSP) does not start, or does not answer.",
        fires_when="The driver logged that GSP firmware did not start, and no GPU is listed; or a GPU is listed, CUDA "
        "does not start, and the log has Xid 119 or 120.",
        looks_at=("health.driver_messages", "health.xids", "fleet.gsp.firmware", "fleet.gsp.setting", "gpus.devices"),
        needs=("health.driver_messages",),
        means="The driver cannot use the GPU: nvidia-smi says 'No devices were found'.",
        source="NVIDIA/open-gpu-kernel-modules#789, awslabs/amazon-eks-ami#1523",
        ways=(kinds.SetModuleOption, *XID_WAYS),
        explains=(
            "cuinit-fails",
            "cuinit-hangs",
            "device-nodes-missing",
            "cuda-sees-no-device",
            "gpu-does-not-start",
            "xid-seen",
        ),
    ),
    Rule(
        check=ecc_change_pending,
        severity=Severity.NOTE,
        depth=70,
        title="A change of the ECC mode waits for a reset of the GPU.",
        fires_when="NVML's current and pending ECC modes of a GPU differ.",
        looks_at=("gpus.devices",),
        means=(
            "Until then memory errors are corrected, or not, as before; the size of its memory changes with the mode."
        ),
        source="NVML, nvmlDeviceGetEccMode: the pending mode is in force after the next reboot",
        ways=(kinds.ResetGpu, kinds.Restart, AskPerson),
    ),
    Rule(
        check=pages_retired,
        severity=Severity.NOTE,
        depth=70,
        title="A GPU has retired pages of its memory.",
        fires_when="NVML counts retired pages of a GPU.",
        looks_at=("fleet.retired_pages",),
        means="Retired pages do no harm; a GPU that keeps losing more should be replaced.",
        source="docs.nvidia.com/deploy/dynamic-page-retirement",
        ways=(AskPerson,),
    ),
)
