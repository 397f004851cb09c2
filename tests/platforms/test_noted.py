"""Machines noted down with their answers before their writer read any of the code, and what each taught.

Of the sixteen, eleven were right at first, two wrong (a kernel replaced under a running system; a torch for a full
disk) and three in part (torchaudio and ROCm's Triton left behind; a path that the container itself is started with).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight.diagnosis.finding import Goal, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.wheel_answers import installed_as
from firstlight.diagnosis.wheel_choice import Wheel
from firstlight.facts.collect import Facts
from firstlight.facts.document import replay
from firstlight.facts.driver import kernel_to_start
from firstlight.facts.known import Known, Unknown, value_or
from firstlight.plan.option import Option
from firstlight.plan.options import rank_options
from firstlight.plan.request import Request
from firstlight.versions import CudaVersion, TorchVersion
from firstlight.ways import kinds
from firstlight.ways.driver_effects import after_driver
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import facts_of
from tests.platforms.cases import TABLES, Make, judged
from tests.platforms.test_platforms import _first_option, _screen
from tools.machines import noted_machines as noted
from tools.machines import wheels
from tools.machines.reconstruction import Reconstruction

APT = ("apt-get", "apt ")
Told = tuple[str, tuple[str, ...], tuple[str, ...]]
NOTED: dict[str, Told] = {  # the primary finding; words of the first option; what must not be said
    "noted-mixed-gtx1080ti-rtx3090": (
        "arch-not-in-wheel", ("/ml/.venv/bin/python3", "torch==2.9.1+cu126 torchvision==0.24.1+cu126"),
        ("too old", "cuda-compat", "driver 59", "cu132", *APT),
    ),
    "noted-pod-rtx5090-torch25": (
        "arch-not-in-wheel", ("torch==2.11.0+cu128", "torchvision==0.26.0+cu128", "torchaudio==2.11.0+cu128"),
        ("cuda-compat", "cu130", "nvidia-driver", "cu126"),
    ),
    "noted-arch-kernel-replaced": (
        "driver-not-loaded", ("restart into kernel 6.17.6-arch1-1", "systemctl reboot"),
        ("pacman", "dkms", "headers", "install driver", "modprobe", "pip install", *APT),
    ),
    "noted-fedora-secureboot-akmod": (
        "module-key-not-enrolled", ("mokutil --import /etc/pki/akmods/certs/public_key.der", "reboot"),
        ("/var/lib/dkms", "shim-signed", "pip install", *APT),
    ),
    "noted-tumbleweed-half-upgraded": (
        "driver-library-mismatch", ("rmmod", "modprobe nvidia"), ("compat", "pip install", "zypper", *APT),
    ),
    "noted-jetson-orin-nano-cpu": (
        "jetson-needs-own-wheel", ("pypi.jetson-ai-lab.io/jp6/cu126", "/env/bin/python3"),
        ("cu130", "2.15", "nvidia-driver", "dkms", "modprobe"),
    ),
    "noted-wsl2-linux-driver-inside": (
        "wsl-libcuda-shadowed", ("apt-get purge", "libnvidia-compute-550"),
        ("modprobe", "dkms", "reboot", "pip install", "not loaded"),
    ),
    "noted-rocky8-hpc-no-root": (
        "driver-too-old-for-wheel", ("cuda-compat",), ("sudo", "dnf ", "no network", "reboot"),
    ),
    "noted-conda-user-site-cpu": (
        "torch-shadowed", ("pythonuserbase=/home/user-a/.local", "uninstall --yes torch"),
        ("pip install", "nvidia-driver", *APT),
    ),
    "noted-uv-project-cpu-index": (
        "torch-cpu-only", ("uv add", "torch==2.9.1", "whl/cu130"), ("-m pip", "nvidia-driver", *APT),
    ),
    "noted-debian12-old-kernel": (
        "driver-not-loaded", ("linux-headers-6.1.0-28-amd64", "dkms autoinstall -k 6.1.0-28-amd64"),
        (".run", "pip install", "mokutil"),
    ),
    "noted-hgx-h100-other-fabric-manager": (
        "fabric-manager-differs", ("nvidia-fabricmanager-570=570.172.08", "systemctl restart nvidia-fabricmanager"),
        ("cuda-compat", "driver 580", "pip install"),
    ),
    "noted-pod-full-disk": (
        "torch-not-installed", ("/workspace/firstlight-venv", "tmpdir=/workspace", "torch==2.14.1+cu126"), ("cu132",),
    ),
    "noted-docker-l4-old-compat": (
        "compat-stale", ("take /usr/local/cuda/compat out of ld_library_path", "start the container without"),
        ("reboot", "pip install", "newer driver"),
    ),
    "noted-cudnn-of-the-system": (
        "cudnn-mix", ("apt-get remove", "libcudnn9"), ("healthy", "nvidia-driver", "export ld_library_path"),
    ),
    "noted-fedora-rocm-wheel": (
        "torch-for-other-vendor",
        ("uninstall --python /home/user-a/p/.venv/bin/python3 pytorch-triton-rocm", "torch==2.9.1+cu130"),
        ("dnf ", "install rocm", "nvidia-driver", "-m pip"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", noted.MACHINES, ids=lambda make: make.__name__)
def test_the_answer_is_the_one_that_was_noted(make: Make) -> None:
    seen = judged(make)
    code, words, never = NOTED[make().name]
    screen, first = _screen(seen).lower(), _first_option(seen).lower()
    assert seen.diagnosis.primary == code, screen
    assert [word for word in words if word not in first] == [], first
    assert [word for word in never if word in screen] == [], screen


def test_every_noted_machine_has_its_expectation() -> None:
    assert {make().name for make in noted.MACHINES} == {*NOTED}


def _options(facts: Facts) -> tuple[Option, ...]:
    question = Question(facts, TABLES, Goal.INFER)
    return rank_options(question, judge(question, RULES), Request()).options


def _types(option: Option) -> tuple[type, ...]:
    return tuple(map(type, option.ways))


def test_where_the_running_kernel_has_its_folder_its_module_is_built_or_installed() -> None:
    facts = judged(noted.arch_kernel_replaced).facts
    assert facts.driver.kernel_replaced == Known(value=True, seen_in="/lib/modules")
    driver = replace(facts.driver, kernel_replaced=Known(value=False, seen_in="/lib/modules/6.17.5-arch1-1"))
    first = _options(replace(facts, driver=driver))
    assert len(first) > 1
    assert not any(option.title.startswith("restart into kernel") for option in first)


@pytest.mark.parametrize(
    ("running", "there", "replaced"),
    [
        ("6.17.5-arch1-1", "6.17.6-arch1-1", True),
        ("6.8.0-59-generic", "6.8.0-60-generic", True),
        ("6.1.62", "6.8.0-59-generic", None),  # a kernel that the host starts this guest with
        ("6.17.5-zen1-1-zen", "6.17.6-arch1-1", None),
        ("6.8.0-60-generic", "6.8.0-59-generic", None),  # an older one is left: nothing was upgraded
        ("6.17.6-arch1-1", "6.17.6-arch1-1", False),
    ],
)
def test_a_replaced_kernel_is_one_of_the_same_kind(running: str, there: str, *, replaced: bool | None) -> None:
    machine = noted.arch_kernel_replaced().without("/lib/modules")
    machine.host = replace(machine.host, kernel_release=running)
    machine.file(f"/lib/modules/{there}/extramodules/nvidia.ko.zst", "", source="supposed")
    driver = replay(machine.document(), "").driver
    assert value_or(driver.kernel_replaced, None) is replaced
    assert kernel_to_start(driver, running) == (there if replaced else "")


def test_a_module_that_cannot_be_loaded_again_is_not_unloaded() -> None:
    """pacman -Syu with the module of before still loaded: rmmod would be the last that is seen of the GPU."""
    facts = judged(noted.tumbleweed_half_upgraded).facts
    assert any(kinds.ReloadModules in _types(option) for option in _options(facts))
    gone = replace(facts.driver, kernel_replaced=Known(value=True, seen_in="/lib/modules"))
    options = _options(replace(facts, driver=gone))
    assert _types(options[0]) == (kinds.Restart,)
    assert not any(kinds.ReloadModules in _types(option) for option in options)


@pytest.mark.parametrize("way", [kinds.LoadModules(("nvidia_uvm",)), kinds.ReloadModules(("nvidia_uvm", "nvidia"))])
def test_on_paper_nothing_is_loaded_for_a_kernel_that_is_gone_until_a_restart(way: Way) -> None:
    facts = judged(noted.tumbleweed_half_upgraded).facts
    gone = replace(facts, driver=replace(facts.driver, kernel_replaced=Known(value=True, seen_in="/lib/modules")))
    assert after_driver(way, gone, TABLES) == gone
    started = after_driver(kinds.Restart(), gone, TABLES)
    assert started is not None
    assert value_or(started.driver.kernel_replaced, default=True) is False
    assert after_driver(way, facts, TABLES) != facts


def test_no_module_is_built_for_a_kernel_that_is_gone() -> None:
    facts = judged(noted.debian12_old_kernel).facts
    gone = replace(facts.driver, kernel_replaced=Known(value=True, seen_in="/lib/modules"))
    options = _options(replace(facts, driver=gone))
    assert _types(options[0]) == (kinds.Restart,)
    assert options[0].title == "restart into kernel 6.1.0-40-amd64, which has the module"
    assert not any(kinds.BuildModules in _types(option) for option in options)


@pytest.mark.parametrize(("free", "first"), [(180, kinds.MakeEnvironment), (4, kinds.AskPerson)])
def test_a_first_torch_goes_to_the_volume_only_where_that_has_room(free: int, first: type) -> None:
    facts = judged(noted.pod_full_disk).facts
    disks = tuple(
        replace(each, free_bytes=free << 30) if each.path == "/workspace" else each for each in facts.resources.disks
    )
    options = _options(replace(facts, resources=replace(facts.resources, disks=disks)))
    assert _types(options[0])[0] is first


@pytest.mark.parametrize(("free", "fits"), [(9, True), (7, False)])
def test_what_wheels_take_once_unpacked_is_asked_of_the_disk(free: int, *, fits: bool) -> None:
    """2.98 GB are fetched; unpacked they are 5.1 GB, and pip keeps both until all of it is installed."""
    facts = judged(noted.pod_full_disk).facts
    disks = tuple(
        replace(each, free_bytes=free * 10**9) if each.path != "/workspace" else each for each in facts.resources.disks
    )
    resources = replace(facts.resources, disks=disks, persistent_volume=Unknown("none"))
    [option] = _options(replace(facts, resources=resources))
    assert (option.ways[0] == option.ways[-1]) is fits
    assert isinstance(option.cost.minutes, Known) is fits


def test_a_path_of_the_container_itself_is_told_from_one_of_a_start_up_file() -> None:
    facts = judged(noted.docker_l4_old_compat).facts
    assert facts.container.library_path == Known(("/usr/local/cuda/compat", "/usr/local/cuda/lib64"), "/proc/1/environ")
    assert "how this container is started" in _options(facts)[0].only_for
    own = replace(facts, container=replace(facts.container, library_path=Known((), "/proc/1/environ")))
    assert _options(own)[0].only_for == ""


@pytest.mark.parametrize(
    ("project", "torch", "release"),
    [
        ("torchaudio", "2.9.1", "2.9.1"),  # named by its wheel
        ("torchaudio", "2.11.0", "2.11.0"),  # that one names none
        ("torchaudio", "2.14.1", "2.11.0"),
        ("flash-attn", "2.9.1", ""),  # numbered alike, and a source: it says nothing of torch 2.9
        ("triton", "2.9.1", ""),
    ],
)
def test_a_wheel_without_a_pin_goes_with_its_own_torch_and_later_ones(project: str, torch: str, release: str) -> None:
    rows = TABLES.companions_for(project, TorchVersion.parse(torch))
    assert [row.version for row in rows] == ([release] if release else [])


@pytest.mark.parametrize(("cuda", "there"), [("13.0", True), ("13.2", False)])
def test_torchaudio_is_not_asked_of_an_index_that_never_had_it(cuda: str, *, there: bool) -> None:
    """Torch 2.11.0, with which the last torchaudio came, was not built for CUDA 13.2."""
    version = CudaVersion.parse(cuda)
    question = Question(judged(noted.pod_rtx5090_torch25).facts, TABLES, Goal.INFER)
    wheel = Wheel(TorchVersion.parse("2.14.1"), version, f"https://download.pytorch.org/whl/{version.tag}")
    [install] = installed_as(question, wheel)
    assert isinstance(install, kinds.InstallWheels)
    assert (install.package("torchaudio") is not None) is there


def _pod_with(project: str, version: str, *requires: str) -> Make:
    def make() -> Reconstruction:
        machine = noted.pod_rtx5090_torch25()
        site = "/usr/local/lib/python3.10/dist-packages"
        return wheels.distribution(machine, site, project, version, requires=requires, source="supposed")

    return make


def test_what_an_option_would_degrade_itself_is_answered_with_it() -> None:
    """The xformers of torch 2.5.1 beside torch 2.11.0, which no finding spoke of before."""
    first = judged(_pod_with("xformers", "0.0.28.post3", "torch==2.5.1")).ranked.options[0]
    packages = {each.project for way in first.ways if isinstance(way, kinds.InstallWheels) for each in way.packages}
    assert packages == {"torch", "torchvision", "torchaudio", "xformers"}
    assert (first.brings, first.because) == ((), ("arch-not-in-wheel",))


def test_what_nothing_answers_is_said_of_the_option() -> None:
    seen = judged(_pod_with("vllm", "0.6.6", "torch==2.5.1"))
    assert seen.ranked.options[0].brings == ("companion-wants-other-torch",)
    assert "found then, and not before: companion-wants-other-torch" in _screen(seen)


def test_what_was_found_before_is_not_brought() -> None:
    """The same vllm beside a torch that it was not for already."""
    seen = judged(_pod_with("vllm", "0.6.6", "torch==2.4.0"))
    assert "companion-wants-other-torch" in {each.code for each in seen.diagnosis.findings}
    assert seen.ranked.options[0].brings == ()


def test_turning_mig_off_leaves_open_how_many_gpus_cuda_counts() -> None:
    """One slice stood for all GPUs: on paper that is no GPU that was left out."""
    options = {each.title: each for each in _options(facts_of("mig-beside-whole"))}
    assert options["turn MIG off on GPU 0"].brings == ()
