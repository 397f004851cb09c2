"""Rules about what cuInit answers where no rule with a cause of its own speaks: it hangs, or gives a code."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.diagnosis.driver_answers import DRIVER_WAYS, installed
from firstlight.diagnosis.driver_packages import LTS_BRANCH
from firstlight.diagnosis.driver_start_rules import FABRIC_WAYS, start_fabric_manager
from firstlight.diagnosis.elsewhere_answers import machine_answers, restart_with_gpus
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.log_lines import message_lines, xid_lines
from firstlight.diagnosis.observed import has_nvidia_gpu, init_code, init_error, kernel_log
from firstlight.diagnosis.vgpu_rules import refused_without_licence
from firstlight.facts.gpus import ComputeMode
from firstlight.facts.known import Known, value_or
from firstlight.ways import kinds
from firstlight.ways.kinds import AskPerson, Why
from firstlight.ways.way import Chain, chain

_UNKNOWN, _NO_DEVICE, _SYSTEM_NOT_READY = 999, 100, 802  # of cuInit
_UNAVAILABLE, _OS_CALL, _NO_MPS = 46, 304, 805
_ALL_MODULES = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
_MASK = "CUDA_VISIBLE_DEVICES"
_COUNTED = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that "
    "might have already set an error? Error {}: {}"
)
_NO_ANSWER = "gave no answer within"  # how the facts word a call that hangs


def cuinit_hangs(question: Question) -> Iterator[Seen]:
    """cuInit does not come back: the driver waits for a GPU or its firmware."""
    facts = question.facts
    code = facts.libcuda.init_code
    if isinstance(code, Known) or _NO_ANSWER not in code.reason:
        return
    xids = xid_lines(facts)
    yield Seen(
        f"{code.reason}" + (f"; the kernel log has {xids[-1].text}" if xids else ""),
        lines=xids[-1:],
        answers=(chain(kinds.ResetGpu("")), chain(kinds.Restart()), *machine_answers(question, None)),
    )


def cuinit_fails(question: Question) -> Iterator[Seen]:
    """cuInit returned an error; where no more particular rule names the cause, this one names the code."""
    facts = question.facts
    code = init_code(facts)
    if code <= 0 or not has_nvidia_gpu(facts) or refused_without_licence(facts):
        return
    loaded = facts.libcuda.loaded_path
    library = f" of {loaded.value}" if isinstance(loaded, Known) else ""
    messages = message_lines(facts)
    logged = f"; the driver logged: {messages[-1].text}" if messages else ""
    row = question.tables.error(code)
    meaning = row.meaning if row is not None else ""
    yield Seen(
        f"cuInit{library} gives {init_error(question)}{logged}",
        answers=_after_init_error(question, code),
        means=f"Error {code}: {meaning} torch.cuda.is_available() is False." if meaning else "",
        error=_COUNTED.format(code, value_or(facts.libcuda.init_text, "" if row is None else row.text)).rstrip(": "),
        lines=messages[-1:],
    )


def _after_init_error(question: Question, code: int) -> tuple[Chain, ...]:
    facts, restarted = question.facts, chain(kinds.Restart())
    if any("not supported by open" in line for line in value_or(facts.health.driver_messages, ())):
        return _proprietary_module(question)
    if code == _UNKNOWN:  # after a suspend nvidia_uvm alone is often enough
        return (chain(kinds.ReloadModules(("nvidia_uvm",))), restarted)
    if code == _NO_DEVICE:
        return _no_device(question)
    if code == _UNAVAILABLE:
        return _let_in(question)
    if code == _OS_CALL:
        nodes = tuple(node.path for node in facts.driver.nodes if node.kind == "device")
        look = (("ls", "-l", *(nodes or ("/dev",))), kernel_log(facts))
        return (restarted, chain(AskPerson("look-at-nodes", Why.DECISION, look, cures=False, as_root=True)))
    if code == _SYSTEM_NOT_READY:
        return start_fabric_manager(question)
    if code == _NO_MPS:
        daemon = (("nvidia-cuda-mps-control", "-d"),)
        return (
            chain(AskPerson("start-mps", Why.DECISION, daemon)),
            chain(kinds.UnsetVariables(("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"))),
        )
    return (chain(kinds.ReloadModules(_ALL_MODULES)), restarted, *machine_answers(question, None))


def _proprietary_module(question: Question) -> tuple[Chain, ...]:
    driver = question.facts.driver.kernel_version
    branch = driver.value.branch if isinstance(driver, Known) else LTS_BRANCH
    return (chain(*installed(question, branch, kinds.Flavour.PROPRIETARY).ways),)


def _no_device(question: Question) -> tuple[Chain, ...]:
    facts = question.facts
    masked = isinstance(facts.gpus.cuda_visible_devices, Known)
    look = AskPerson("look-what-hides-gpus", Why.DECISION, (("nvidia-smi", "-L"),), cures=False)
    return (*((chain(kinds.UnsetVariables((_MASK,))),) if masked else ()), *restart_with_gpus(question), chain(look))


def _let_in(question: Question) -> tuple[Chain, ...]:
    """Error 46: another program holds a GPU whose mode lets one in at a time."""
    closed = [
        kinds.SetComputeMode(gpu.id.removeprefix("gpu-"))
        for gpu in question.facts.gpus.devices
        if isinstance(gpu.compute_mode, Known) and gpu.compute_mode.value is not ComputeMode.DEFAULT
    ]
    stop = AskPerson("stop-holder", Why.DECISION, (("nvidia-smi",),))
    return (*((chain(*closed),) if closed else ()), chain(stop))


CUINIT_RULES: tuple[Rule, ...] = (
    Rule(
        check=cuinit_hangs,
        severity=Severity.BLOCKS,
        depth=20,
        title="CUDA does not start: the driver never answers.",
        fires_when="A child process that calls cuInit does not come back from it within the time limit.",
        looks_at=("libcuda.init_code", "health.xids"),
        means="Every CUDA program hangs at its first call, torch.cuda.is_available() included, with no error text.",
        source="rwth-i6/returnn#1756, NVIDIA/open-gpu-kernel-modules#446",
        ways=(kinds.ResetGpu, kinds.Restart, kinds.OtherMachine, AskPerson),
    ),
    Rule(
        check=cuinit_fails,
        severity=Severity.BLOCKS,
        depth=30,
        title="The CUDA driver library does not start.",
        fires_when=(
            "There is an NVIDIA GPU and cuInit, called in a child process, returns another code than 0; not where a "
            "virtual GPU is refused because it has no licence."
        ),
        looks_at=("libcuda.init_code", "libcuda.loaded_path", "health.driver_messages", "gpus.devices", "gpus.pci"),
        means="No CUDA program starts, and torch.cuda.is_available() is False.",
        error=_COUNTED.format("...", "..."),
        source="cuda.h of the PyPI wheel nvidia-cuda-runtime 13.4.92; ggml-org/llama.cpp#7218",
        ways=(
            *DRIVER_WAYS,
            *FABRIC_WAYS,
            kinds.ReloadModules,
            kinds.SetComputeMode,
            kinds.StartContainer,
            kinds.UnsetVariables,
        ),
    ),
)
