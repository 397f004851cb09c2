"""Kernel modules, devices, services and the settings of GPUs as steps that `apply` runs on the machine itself."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from firstlight.facts.gpus import ComputeMode
from firstlight.facts.known import Known
from firstlight.ways import kinds
from firstlight.ways.arguments import CDI_FILE
from firstlight.ways.argv import CONTAINER_SETTINGS, IMEX_CHANNEL, commands, rebuild_early_image
from firstlight.ways.at import At
from firstlight.ways.back import Argv, Back, BackKind, removed_file, through
from firstlight.ways.building import NOT_MEASURED, blank, exists, once, prints, slug, succeeds, written
from firstlight.ways.in_use import loaded_after
from firstlight.ways.step import CheckKind, Condition, FileChange, Step, StepKind
from firstlight.ways.way import Way
from firstlight.ways.words import title_of

_NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
_OFF_THE_GPU = "Every program has to be off the GPU: nvidia-smi lists those that are on it."
_MODES = {ComputeMode.EXCLUSIVE_PROCESS: "EXCLUSIVE_PROCESS", ComputeMode.PROHIBITED: "PROHIBITED"}


def root_step(way: Way, at: At) -> Step:
    """A step of commands that root runs."""
    title = title_of(way, at.platform)
    return replace(
        blank(at),
        id=slug(title),
        kind=StepKind.COMMAND,
        title=title,
        commands=commands(way, at.platform),
        needs_root=True,
        seconds=NOT_MEASURED,
    )


def load_steps(way: kinds.LoadModules, at: At) -> Iterator[Step]:
    step = root_step(way, at)
    back = through(step.commands[0], Back(BackKind.UNLOAD_MODULES, tuple(reversed(way.modules))))
    yield replace(step, done_when=tuple(_loaded(each) for each in way.modules), back=(back,))


def _loaded(module: str) -> Condition:
    return exists(f"/sys/module/{module.replace('-', '_')}")


def reload_steps(way: kinds.ReloadModules, at: At) -> Iterator[Step]:
    yield replace(
        root_step(way, at),
        done_when=(
            once("the modules are loaded"),
            *(_loaded(each) for each in loaded_after(way.modules)),
            succeeds("nvidia-smi", "-L"),
        ),
        note=f"{_OFF_THE_GPU} The first command looks, and nothing is unloaded while one is.",
    )


def forbid_steps(way: kinds.ForbidModule, at: At) -> Iterator[Step]:
    path = f"/etc/modprobe.d/firstlight-no-{way.module}.conf"
    text = f"# Written by firstlight; `firstlight undo` takes it back.\nblacklist {way.module}\n"
    change = FileChange(path, at.extras.text_of(path) or "", f"{text}options {way.module} modeset=0\n")
    yield _with_early_image(way, change, written(change), at, note="It takes effect at the next start of the machine.")


def option_steps(way: kinds.SetModuleOption, at: At) -> Iterator[Step]:
    before = at.extras.text_of(way.file) or ""
    line = f"options {way.module} {way.option}"
    gap = "" if before.endswith("\n") or not before else "\n"
    change = FileChange(way.file, before, f"{before}{gap}{line}\n")
    done = Condition(CheckKind.FILE_HAS_LINE, way.file, line)
    note = f"{way.module} reads it the next time it is loaded: when you reload it, or at the next start of the machine."
    yield _with_early_image(way, change, done, at, note=note)


def _with_early_image(way: Way, change: FileChange, done: Condition, at: At, *, note: str) -> Step:
    """A file of /etc/modprobe.d, and the image that the kernel starts from, which has a copy of it."""
    rebuild = rebuild_early_image(at.platform)
    back = tuple(through(argv, Back(BackKind.EARLY_IMAGE, (_tool(argv),))) for argv in rebuild)
    if not rebuild:
        note += " How this system makes its early boot image is not known here: rebuild it yourself."
    return replace(
        root_step(way, at),
        kind=StepKind.FILE,
        commands=rebuild,
        files=(change,),
        done_when=(done,),
        back=back,
        note=note,
    )


def _tool(argv: Argv) -> str:
    return argv[1] if argv[0] == "sudo" else argv[0]


def cache_steps(way: kinds.RefreshLoaderCache, at: At) -> Iterator[Step]:
    yield replace(root_step(way, at), done_when=(once("ldconfig has read its files"),))


def node_steps(way: kinds.MakeDeviceNodes, at: At) -> Iterator[Step]:
    step = root_step(way, at)
    yield replace(
        step,
        done_when=tuple(map(exists, _NODES)),
        back=tuple(through(step.commands[0], removed_file(path)) for path in _NODES),
        note="Nodes of further GPUs stay when it is taken back; the next start of the machine makes them again anyway.",
    )


def service_steps(way: kinds.StartService, at: At) -> Iterator[Step]:
    step = root_step(way, at)
    active = succeeds("systemctl", "is-active", "--quiet", way.unit)
    if way.action is kinds.Service.RESTART:
        yield replace(step, done_when=(once(f"{way.unit} was started before"), active))
        return
    kinds_back = (BackKind.STOP_SERVICE, BackKind.DISABLE_SERVICE)
    yield replace(
        step,
        done_when=(active, succeeds("systemctl", "is-enabled", "--quiet", way.unit)),
        back=tuple(through(step.commands[0], Back(each, (way.unit,))) for each in kinds_back),
    )


def reset_steps(way: kinds.ResetGpu, at: At) -> Iterator[Step]:
    answers = succeeds("nvidia-smi", "-q", *(("-i", way.gpu) if way.gpu else ()))
    yield replace(root_step(way, at), done_when=(once("a reset leaves no trace"), answers), note=_OFF_THE_GPU)


def compute_mode_steps(way: kinds.SetComputeMode, at: At) -> Iterator[Step]:
    step = root_step(way, at)
    was = next((gpu.compute_mode for gpu in at.facts.gpus.devices if way.gpu in (gpu.id, _number(gpu.id))), None)
    mode = _MODES.get(was.value) if isinstance(was, Known) else None
    back = (through(step.commands[0], Back(BackKind.COMPUTE_MODE, (way.gpu, mode))),) if mode else ()
    yield replace(step, done_when=(_says(way.gpu, "compute_mode", "Default"),), back=back)


def _number(name: str) -> str:
    """0 of gpu-0."""
    return name.rpartition("-")[2]


def mig_steps(way: kinds.TurnOffMig, at: At) -> Iterator[Step]:
    step = root_step(way, at)
    yield replace(
        step,
        done_when=(_says(way.gpu, "mig.mode.current", "Disabled"),),
        back=(through(step.commands[0], Back(BackKind.MIG_ON, (way.gpu,))),),
        note=f"{_OFF_THE_GPU} Its MIG instances are lost.",
    )


def power_steps(way: kinds.SetPowerLimit, at: At) -> Iterator[Step]:
    step = root_step(way, at)
    was = next((gpu.power_limit_w for gpu in at.facts.gpus.devices if way.gpu in (gpu.id, _number(gpu.id))), None)
    before = (way.gpu, f"{was.value:g}") if isinstance(was, Known) else ()
    yield replace(
        step,
        done_when=(_says(way.gpu, "power.limit", f"{way.watts}.00 W"),),
        back=(through(step.commands[0], Back(BackKind.POWER_LIMIT, before)),) if before else (),
        note="It lasts until the driver is unloaded or the machine restarted. Leave one that was lowered on purpose.",
    )


def channel_steps(way: kinds.MakeImexChannel, at: At) -> Iterator[Step]:
    step = root_step(way, at)
    back = through(step.commands[0], removed_file(IMEX_CHANNEL))
    note = "It is gone after a restart of the machine."
    if back.sudo:
        note += f" Its folder, {posixpath.dirname(IMEX_CHANNEL)}, stays until then where it is taken back."
    yield replace(step, done_when=(exists(IMEX_CHANNEL),), back=(back,), note=note)


def _says(gpu: str, field: str, value: str) -> Condition:
    return prints(value, "nvidia-smi", "-i", gpu, f"--query-gpu={field}", "--format=csv,noheader")


def container_steps(way: kinds.ConfigureContainers, at: At) -> Iterator[Step]:
    if way.file:
        yield replace(
            root_step(way, at),
            kind=StepKind.FILE,  # undo puts back the one of before
            done_when=(once("it was written for another driver"), exists(way.file)),
        )
        return
    if way.engine == "podman":
        note = "Written again after every change of the driver: it names the driver's files."
        yield replace(root_step(way, at), done_when=(exists(CDI_FILE),), back=(removed_file(CDI_FILE),), note=note)
        return
    step, settings = root_step(way, at), CONTAINER_SETTINGS.get(way.engine, "")
    knows = succeeds("grep", "--quiet", "nvidia-container-runtime", settings or "/etc")
    again = through(step.commands[-1], Back(BackKind.RESTART_SERVICE, (way.engine,)))
    yield replace(
        step,
        kind=StepKind.FILE,  # undo puts the settings back before the service is restarted
        done_when=(knows,),
        back=(again,),
        note=f"Containers of {way.engine} that run are stopped by its restart, unless live-restore is set.",
    )
