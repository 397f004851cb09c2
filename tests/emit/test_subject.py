"""From a machine and a want to what is shipped: the packages, the compat library, and what is refused."""

from __future__ import annotations

import re

import pytest

from firstlight.emit.imagined import parse_machine
from firstlight.emit.packages import Part
from firstlight.emit.python_choice import best_first, default_python
from firstlight.emit.subject import Asked, Choices, subject_of
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.plan.option import Kind
from firstlight.plan.request import Request
from firstlight.tables import load
from firstlight.versions import DriverVersion, TorchVersion
from tests.emit.made_subjects import MACHINES, TABLES, for_machine, for_words


def test_words_become_a_machine_with_its_gpus_and_driver() -> None:
    facts = parse_machine("H100, L40S, driver >= 550")
    assert isinstance(facts.driver.kernel_version, Known)
    assert facts.driver.kernel_version.value.branch == 550
    assert [str(gpu.capability.value) for gpu in facts.gpus.devices if isinstance(gpu.capability, Known)] == [
        "9.0",
        "8.9",
    ]
    assert facts.environment is None


def test_a_branch_prints_as_it_was_given_and_is_older_than_all_of_its_releases() -> None:
    driver = parse_machine("H100, driver 570").driver.kernel_version
    assert isinstance(driver, Known)
    assert str(driver.value) == "570"
    assert DriverVersion.parse("565.99") < driver.value < DriverVersion.parse("570.26")


@pytest.mark.parametrize(
    "text", ["", "H100", "driver 550", "H999, driver 550", "H100, driver", "H100, driver 550, driver 570",
             "$(id), driver 550", "H100, driver >= 550; rm -rf /", "H100\ndriver 550", "x" * 500]
)  # fmt: skip
def test_words_that_are_no_machine_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadInput, match="accepted") as caught:
        parse_machine(text)
    assert "\n" not in str(caught.value)


def test_a_want_alone_gives_the_newest_torch_that_runs_there() -> None:
    subject = for_words("H100, driver >= 550")
    assert subject.plan.option.kind is Kind.WHEEL
    assert isinstance(subject.gates.wheel_cuda, Known)
    assert subject.gates.wheel_cuda.value.major == 12
    assert subject.compat == ()


def test_a_torch_that_the_driver_is_too_old_for_comes_with_nvidias_package() -> None:
    subject = for_words("H100, driver >= 550", "torch==2.9.0+cu130")
    assert subject.requirements == ("torch==2.9.0+cu130",)
    assert [(part.package, 550 in part.branches) for part in subject.compat] == [("cuda-compat-13-0", True)]


@pytest.mark.parametrize(
    ("text", "wants", "python"),
    [
        ("T4, driver >= 470", (), "3.13"),  # torch 2.6.0 of CUDA 11.8, whose last Python it is
        ("T4, driver >= 470", ("torch==1.13.1",), "3.11"),
        ("A100, driver >= 525", ("torch==2.2.2",), "3.11"),  # it has wheels for 3.12, and no torch.compile there
        ("H100, driver >= 550", ("torch==2.9.0",), "3.13"),  # the same of 3.14
        ("H100, driver >= 580", (), "3.14"),  # torch has 3.15, PyYAML has not
        ("GH200, driver >= 580", (), "3.14"),
        ("H100, driver >= 580", ("vllm==0.11.0",), "3.13"),  # it goes with torch 2.8.0
        ("H100, driver >= 580", ("python==3.15", "torch"), "3.15"),
    ],
)
def test_the_default_python_is_the_newest_that_all_works_in(text: str, wants: tuple[str, ...], python: str) -> None:
    made = for_words(text, *wants)
    assert made.target.python == python
    assert python in made.pythons


def test_of_a_package_that_is_not_on_record_no_newer_python_is_hoped_for() -> None:
    torch, tables = TorchVersion.parse("2.13.0"), load()
    alone = (Part("", ("torch==2.13.0",)),)
    beside = (Part("", ("torch==2.13.0", "sglang==0.5.20")),)
    assert default_python(torch, alone, machine="x86_64", tables=tables) == "3.14"
    assert default_python(torch, beside, machine="x86_64", tables=tables) == "3.12"
    unknown = TorchVersion.parse("9.9.9")
    assert default_python(unknown, alone, machine="x86_64", tables=tables) == "3.12"


def test_a_script_tries_older_pythons_from_the_newest_on_before_newer_ones() -> None:
    assert best_first(("3.10", "3.11", "3.12", "3.13", "3.13t", "3.14"), "3.12") == (
        "3.12", "3.11", "3.10", "3.13", "3.14",
    )  # fmt: skip


def test_a_geforce_may_not_use_compat_and_hears_what_is_left() -> None:
    with pytest.raises(BadInput, match="804") as caught:
        for_words("RTX 4090, driver 550", "torch==2.9.0+cu130")
    assert "--option another-wheel:torch-2.9.0" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wants", "option"),
    [
        ("H100, driver >= 300", (), ""),
        ("H100, driver >= 300", (), "driver-upgrade:580"),
        ("T4, driver >= 470", ("torch>=2.8",), "driver-upgrade:580"),
        ("RTX 4090, driver >= 550", ("torch==2.9.0+cu130",), "driver-upgrade:580"),
        ("RTX 4090, driver >= 550", ("torch==2.9.0+cu130",), "another-machine:any"),
    ],
)
def test_files_for_a_newer_driver_are_made_for_machines_that_have_it(
    text: str, wants: tuple[str, ...], option: str
) -> None:
    """No step of a file installs a driver: its gate would refuse the very machines that it says it is for."""
    with pytest.raises(BadInput, match="which no file brings") as refused:
        for_words(text, *wants, option=option)
    assert "driver-upgrade" not in str(refused.value).partition("Accepted:")[2]
    [named] = re.findall(r'already: --for "([^"]+)"', str(refused.value))
    made = for_words(named, *wants)
    driver = made.facts.driver.kernel_version
    assert isinstance(driver, Known)
    assert isinstance(made.gates.min_driver, Known)
    assert driver.value >= made.gates.min_driver.value


@pytest.mark.parametrize("option", ["", "driver-upgrade:580"])
def test_a_board_is_not_told_to_take_another_driver(option: str) -> None:
    with pytest.raises(BadInput, match="takes a later Jetson Linux, which no file brings") as refused:
        for_words("Jetson AGX Orin, driver >= 540", option=option)
    assert "Orin, driver" not in str(refused.value)


@pytest.mark.parametrize("name", ["gpu-less", "docker-no-gpus", "lxc-no-nodes", "podman-groups"])
def test_a_machine_that_needs_another_start_of_its_container_hears_so(name: str) -> None:
    with pytest.raises(BadInput, match="a container that is started in another way, which no file brings"):
        for_machine(name)


def test_packages_from_two_indexes_stay_apart() -> None:
    subject = for_machine("h200-no-torch", "torch==2.9.0+cu130", "triton")
    assert [part.index.rpartition("/")[2] for part in subject.parts] == ["cu130", ""]
    assert any(each.startswith("triton==") for each in subject.parts[1].requirements)


def test_what_is_installed_but_does_not_fit_together_is_left_out_with_why() -> None:
    subject = for_machine("h100-driver-570")
    assert subject.requirements == ("torch==2.9.0+cu130", "torchvision==0.24.0+cu130")
    assert [each.partition("==")[0] for each in subject.left_out] == ["torchaudio", "vllm", "xformers"]
    assert subject.compat[0].package == "cuda-compat-13-0"


def test_a_removal_is_no_part_of_what_is_shipped() -> None:
    subject = for_machine("h200-compat-first")
    assert subject.plan.option.kind is Kind.REMOVE
    assert subject.what == "the packages that are installed there"
    assert subject.compat == ()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h100-driver-550-cu130", "nightly"),
        ("rtx5090-source-build", "on no index"),
        ("orin-torch-pypi", "--for"),
        ("gpu-less", "--for"),
    ],
)
def test_what_no_file_can_bring_is_refused_with_what_to_say(name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        for_machine(name)


@pytest.mark.parametrize(
    "name",
    ["thor-missing-libraries", "h100-driver-550-cu130", "rtx5090-source-build", "flash-attn-cu12",
     "flash-attn-no-blackwell", "flash-attn-old-strings"],
)  # fmt: skip
def test_the_want_that_a_refusal_names_is_accepted(name: str) -> None:
    with pytest.raises(BadInput, match="Say which torch") as refused:
        for_machine(name)
    [want] = re.findall(r'--want "([^"]+)"', str(refused.value))
    assert for_machine(name, want).requirements[0].startswith("torch==")
    assert "Leave it out" not in str(refused.value)  # nobody asked for it


def test_where_no_torch_of_an_index_runs_no_want_is_named() -> None:
    """An Orin with CUDA 12: torch's own wheels have code for it from cu132 on, which its driver cannot run."""
    with pytest.raises(BadInput, match="No torch of an index runs there as it is") as refused:
        for_machine("orin-flash-attention")
    assert "--want" not in str(refused.value)


@pytest.mark.parametrize("want", ["torch", "torchvision", "vllm", "torch>=2.9"])
def test_no_file_brings_a_jetson_a_torch_that_its_driver_cannot_run(want: str) -> None:
    with pytest.raises(BadInput, match="--for") as refused:
        for_machine("orin-torch-pypi", want)
    assert "--option another-wheel" not in str(refused.value)


def test_a_package_that_is_compiled_is_refused_where_it_was_asked_for() -> None:
    with pytest.raises(BadInput, match="flash-attn"):
        for_words("H100, driver 580", "torch==2.9.0+cu130", "flash-attn")


def test_a_python_that_torch_has_no_wheel_for_is_refused() -> None:
    asked = Asked(Request(), python="3.7")
    with pytest.raises(BadInput, match="accepted: --python"):
        subject_of(parse_machine("H100, driver 580"), asked, made_for="x", tables=TABLES, choices=Choices())


def test_every_recorded_machine_gives_a_subject_or_one_line() -> None:
    given, refusals = 0, []
    for folder in sorted(MACHINES.iterdir()):
        try:
            subject = for_machine(folder.name)
        except BadInput as error:
            refusals.append(str(error))
            continue
        given += 1
        assert subject.requirements[0].startswith("torch=="), folder.name
        assert len(subject.plan.digest) == 64
    assert given >= 70
    assert not any("\n" in each for each in refusals)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("RTX 4070", "NVIDIA GeForce RTX 4070"),
        ("rtx 4070", "NVIDIA GeForce RTX 4070"),
        ("A100 PCIe", "NVIDIA A100 PCIe"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("A100", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_the_product_that_was_named_is_the_one_that_is_shown(said: str, shown: str) -> None:
    """One row of the tables stands for several products: naming another of them would be a false report."""
    (gpu,) = parse_machine(f"{said}, driver >= 570", TABLES).gpus.devices
    assert isinstance(gpu.name, Known)
    assert gpu.name.value == shown
