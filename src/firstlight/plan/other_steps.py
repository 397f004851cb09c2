"""What a person does elsewhere, or what leaves this machine's user space: driver, machine, container, source build."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.observed import container, platform
from firstlight.facts.known import Known, Unknown
from firstlight.facts.place import Platform
from firstlight.plan.back import removed_folder, shown
from firstlight.plan.building import (
    NETWORK,
    NOT_MEASURED,
    Argv,
    a_person,
    as_root,
    blank,
    environment_to_change,
    exists,
    interpreter_of,
    is_requirement,
    packages_back,
    slug,
    split_requirement,
    succeeds,
)
from firstlight.plan.extras import Extras
from firstlight.plan.option import Option
from firstlight.plan.step import CheckKind, Condition, Step, StepKind
from firstlight.plan.wheel_steps import new_environment

_PACKAGE = re.compile(r"(?:nvidia-|cuda-drivers)[a-z0-9+.-]+")
_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/-]*:[\w][\w.-]*")
_TORCH = "https://github.com/pytorch/pytorch.git"
_RELEASE = 2  # the stage of a TorchVersion that is neither nightly nor a pre-release


def driver_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """The driver's package and a reboot; where the driver is not ours to change, a person does it."""
    del extras
    facts = question.facts
    packages = tuple(piece for piece in option.brings if _PACKAGE.fullmatch(piece))
    elsewhere = container(facts) is not None or platform(facts) in (Platform.WSL1, Platform.WSL2, Platform.JETSON)
    if elsewhere or not packages:
        yield _by_hand(option, done="`firstlight facts` shows the new driver")
        return
    manager: Argv = ("dnf", "install", "--assumeyes") if "dnf" in facts.ability.package_managers else ("apt-get",)
    install = manager if len(manager) > 1 else ("apt-get", "install", "--yes")
    remove = ("dnf", "remove", "--assumeyes") if len(manager) > 1 else ("apt-get", "remove", "--yes")
    for package in packages:
        yield replace(
            blank(option),
            id=slug(f"install {package}"),
            kind=StepKind.APT,
            title=f"install {package}",
            commands=(as_root(facts, *install, package),),
            needs_root=True,
            done_when=(Condition(CheckKind.APT_PACKAGE, package),),
            back=packages_back(as_root(facts, *remove, package)),
            seconds=NETWORK,
            bytes=Unknown("the size of the driver's packages is not on record"),
            note="Programs that use the GPU go on with the old driver until the reboot; new ones may fail in between.",
        )
    yield replace(
        blank(option),
        id="reboot",
        title="reboot, so that the new kernel module is loaded",
        commands=(as_root(facts, "systemctl", "reboot"),),
        needs_root=True,
        done_when=(a_person("/sys/module/nvidia/version shows the new driver"),),
        seconds=NOT_MEASURED,
        note="Compat libraries older than the new driver must not be wired then: run `firstlight doctor` after it.",
    )


def machine_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """Another machine, asked for by the exact filter; this one is left as it is."""
    del question, extras
    yield _by_hand(option, done="`firstlight doctor` on the new machine finds nothing that blocks")


def _by_hand(option: Option, *, done: str) -> Step:
    """The pieces of an option as commands where they are ones, for a person to run where they belong."""
    commands = tuple(argv for piece in option.brings if (argv := _command(piece)))
    packages = [piece for piece in option.brings if is_requirement(piece)]
    words = [piece for piece in option.brings if not _command(piece) and piece not in packages]
    if packages:
        words.append(f"There: {', '.join(packages)}{f' from {option.index}' if option.index else ''}")
    return replace(
        blank(option),
        id=slug(option.kind.value),
        title=option.title,
        commands=commands,
        needs_root=option.needs_root,
        done_when=(a_person(done),),
        seconds=NOT_MEASURED,
        bytes=NOT_MEASURED,
        note=" ".join(word if word.endswith(".") else f"{word}." for word in words),
    )


def _command(piece: str) -> Argv:
    """The words of a piece that is a command line, e.g. runpodctl pod create --min-cuda-version 13.0; () otherwise."""
    line = piece.partition("  # ")[0]
    if not re.match(r"(?:sudo |firstlight |runpodctl |vastai |docker |podman |sky |gcloud |aws |apt-get |dnf )", line):
        return ()
    return tuple(shlex.split(line))


def container_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """The image pulled and tried where Docker is in reach; else the image's name for whoever starts containers."""
    del extras
    images = [piece for piece in option.brings if _IMAGE.fullmatch(piece)]
    socket = question.facts.container.runtime.docker_socket
    if not images or not (isinstance(socket, Known) and socket.value) or container(question.facts) is not None:
        yield _by_hand(option, done="a container of that image runs torch on the GPU")
        return
    image = images[0]
    yield replace(
        blank(option),
        id="pull-image",
        title=f"pull {image}",
        kind=StepKind.MANUAL,
        commands=(("docker", "pull", image),),
        done_when=(succeeds("docker", "image", "inspect", image),),
        back=shown(("docker", "image", "rm", image)),
        seconds=NETWORK,
        bytes=option.cost.download_bytes,
    )
    yield replace(
        blank(option),
        id="try-image",
        title=f"see that {image} has the GPUs",
        commands=(("docker", "run", "--rm", "--gpus", "all", image, "nvidia-smi", "-L"),),
        done_when=(a_person("it lists the GPUs"),),
        seconds=NOT_MEASURED,
        note="NVIDIA_REQUIRE_CUDA of the image is checked here, and its compat library is put in where it is needed.",
    )


def source_steps(question: Question, option: Option, extras: Extras) -> Iterator[Step]:
    """torch's source at its tag and one build for the GPUs that are here."""
    facts = question.facts
    torch = next((piece for piece in option.brings if split_requirement(piece)[0] == "torch"), "")
    version = split_requirement(torch)[1].partition("+")[0] or _release_here(question)
    folder = f"{extras.state_for(facts)}/source/pytorch"
    environment = environment_to_change(question)
    python = f"{extras.home_for(facts)}/firstlight-venv/bin/python"
    if environment is None:
        yield new_environment(question, option, f"{extras.home_for(facts)}/firstlight-venv")
    else:
        python = interpreter_of(environment)
    branch = ("--branch", f"v{version}") if version else ()
    yield replace(
        blank(option),
        id="check-out-pytorch",
        kind=StepKind.GIT,
        title=f"check out PyTorch {f'v{version}' if version else 'at its main branch'} into {folder}",
        commands=(("git", "clone", "--recursive", "--depth", "1", *branch, _TORCH, folder),),
        done_when=(exists(f"{folder}/version.txt"),),
        back=(removed_folder(folder),),
        seconds=NETWORK,
        bytes=NOT_MEASURED,
        note="A tag names no commit for good; `git -C DIR rev-parse HEAD` tells which one it was.",
    )
    capabilities = sorted({gpu.capability.value for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)})
    archs = ";".join(str(each) for each in capabilities)
    settings = (f"TORCH_CUDA_ARCH_LIST={archs}",) if archs else ()
    yield replace(
        blank(option),
        id="build-pytorch",
        kind=StepKind.MANUAL,
        title="build and install it",
        commands=(
            (python, "-m", "pip", "install", "-r", f"{folder}/requirements.txt"),
            ("env", *settings, python, "-m", "pip", "install", "--no-build-isolation", "-v", folder),
        ),
        done_when=(succeeds(python, "-c", "import torch; assert torch.version.cuda"),),
        back=shown((python, "-m", "pip", "uninstall", "--yes", "torch")),
        seconds=NOT_MEASURED,
        bytes=NOT_MEASURED,
        note="Takes a CUDA toolkit that CUDA_HOME names, much memory (set MAX_JOBS) and, by most accounts, hours.",
    )


def _release_here(question: Question) -> str:
    """The torch that is judged, where it is a release: 2.9.0; '' for a nightly or none."""
    torch = question.facts.torch
    version = torch.value.version if isinstance(torch, Known) else None
    return version.value.public if isinstance(version, Known) and version.value.stage == _RELEASE else ""
