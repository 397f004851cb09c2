"""Wheels as steps: one set from its index, what goes first, what comes back, and a real pip that agrees."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.errors import BadInput
from firstlight.facts.known import Known, Unknown
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import InstallWheels, MakeEnvironment, Manner, Package, RemoveDistributions
from firstlight.ways.step import CheckKind, Condition, StepKind
from firstlight.ways.way import Reversible
from firstlight.ways.way_back import comes_back, index_of
from tests.diagnosis.rule_case import facts_of
from tests.plan.planning import write_index, write_wheel
from tests.ways.machines import TABLES, at, made

INDEX = "https://download.pytorch.org/whl/"
TORCH = Package("torch", "2.9.0+cu128")


def test_wheels_go_into_the_judged_environment_from_their_index_as_one_set() -> None:
    packages = (TORCH, Package("torchvision", "0.24.0+cu128"), Package("vllm", "0.12.0"))
    [step] = made(at("h100-driver-570"), InstallWheels(packages, f"{INDEX}cu128"))
    assert step.kind is StepKind.PIP
    first, second = step.commands
    assert first[4:] == ("torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "--index-url", f"{INDEX}cu128")
    assert second[4:] == ("vllm==0.12.0", "torch==2.9.0+cu128", "torchvision==0.24.0+cu128")
    assert step.done_when[0].expected.split("\n") == ["torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "vllm==0.12.0"]


def test_taking_wheels_back_names_what_was_there_and_where_it_came_from() -> None:
    [step] = made(at("h100-driver-570"), InstallWheels((TORCH, Package("flash-attn", "2.8.3")), f"{INDEX}cu128"))
    assert step.undo[0][3:] == ("uninstall", "--yes", "flash-attn")
    assert step.undo[1][3:] == ("install", "--no-deps", "torch==2.9.0+cu130", "--index-url", f"{INDEX}cu130")
    assert "triton==3.4.0" in step.undo[2], "what torch pins changes with it and comes back with it"
    pinned = ("--no-build-isolation", "--no-cache-dir", "flash-attn==2.8.3", "torch==2.9.0+cu128")
    assert step.commands[1][4:] == pinned


@pytest.mark.parametrize(("manner", "first"), [(Manner.COMPILED, "env"), (Manner.PLAIN, "python")])
def test_what_is_compiled_is_not_fetched_from_a_release_page(manner: Manner, first: str) -> None:
    old = facts_of("flash-attn-old-strings")
    version = next(each.version for each in old.companions if each.name == "flash-attn").partition("+")[0]
    wanted = version if manner is Manner.COMPILED else "2.8.3"
    [step] = made(at("flash-attn-old-strings"), InstallWheels((Package("flash-attn", wanted),), manner=manner))
    argv = step.commands[-1]
    assert first in argv[0]
    assert ("FLASH_ATTENTION_FORCE_BUILD=TRUE" in argv) is (manner is Manner.COMPILED)
    assert argv[-1] == f"flash-attn=={wanted}"


def test_another_build_of_the_same_number_goes_first_because_pip_takes_one_for_the_other() -> None:
    [step] = made(at("h100-driver-570"), InstallWheels((Package("torch", "2.9.0"),)))
    assert [argv[3:] for argv in step.commands] == [("uninstall", "--yes", "torch"), ("install", "torch==2.9.0")]


@pytest.mark.parametrize(
    ("channel", "known_by"),
    [
        ("nightly", "torch==*.dev*+cu130\ntorchvision==*.dev*\ntriton\nflash-attn"),
        ("test", "torch==*+cu130\ntorchvision\ntriton\nflash-attn"),
    ],
)
def test_an_early_build_without_a_number_is_a_pre_release_known_by_its_form(channel: str, known_by: str) -> None:
    packages = tuple(map(Package, ("torch", "torchvision", "triton", "flash-attn")))
    index = f"{INDEX}{channel}/cu130"
    [step] = made(at("h100-driver-570"), InstallWheels(packages, index, Manner.EARLY))
    assert step.commands[0][4:] == ("--upgrade", "--pre", "torch", "torchvision", "--index-url", index)
    assert step.done_when == (Condition(CheckKind.DISTRIBUTIONS, "/usr/bin/python3", known_by),)


def test_a_project_keeps_exact_versions_and_is_not_given_a_nightly_without_one() -> None:
    way = InstallWheels((Package("torch"),), f"{INDEX}nightly/cu130", Manner.EARLY)
    with pytest.raises(BadInput, match=r"torch: no version is given, and the uv project .* --want torch==VERSION"):
        made(at("uv-lock-would-undo"), way)


def test_packages_that_are_there_already_take_no_step_unless_a_file_of_them_is_gone() -> None:
    there = InstallWheels((Package("torch", "2.9.0+cu130"),), f"{INDEX}cu130")
    assert made(at("h100-driver-570"), there) == ()
    [again] = made(at("h100-driver-570"), replace(there, manner=Manner.AGAIN))
    assert again.commands[0][4:6] == ("--force-reinstall", "--no-deps")
    assert [each.kind for each in again.done_when] == [CheckKind.DISTRIBUTIONS, CheckKind.ONCE]


def test_an_environment_of_uv_has_no_pip_and_is_filled_by_uv() -> None:
    install, remove = made(
        at("h200-compat-first"), InstallWheels((TORCH,), f"{INDEX}cu128"), RemoveDistributions(("torch",))
    )
    assert install.kind is remove.kind is StepKind.UV
    assert install.commands[0][:5] == ("uv", "pip", "install", "--python", "/opt/torch/.venv/bin/python3")
    assert remove.commands == (("uv", "pip", "uninstall", "--python", "/opt/torch/.venv/bin/python3", "torch"),)


def test_a_system_python_that_its_distribution_manages_gets_a_new_environment() -> None:
    facts = facts_of("h100-driver-570")
    chosen = facts.python.environments[0]
    managed = replace(facts.python, environments=(replace(chosen, externally_managed=True),))
    where = at(replace(facts, python=managed), extras=Extras(home="/root"))
    environment, install = made(where, InstallWheels((TORCH,), f"{INDEX}cu128"))
    assert environment.kind is StepKind.VENV
    assert environment.commands == (("/usr/bin/python3", "-m", "venv", "/root/firstlight-venv"),)
    assert "PEP 668" in environment.note
    assert install.commands[0][0] == "/root/firstlight-venv/bin/python"
    assert install.undo == (("/root/firstlight-venv/bin/python", "-m", "pip", "uninstall", "--yes", "torch"),)
    [other] = made(where, MakeEnvironment(python="3.11"))
    assert other.commands == (("uv", "venv", "--seed", "--python", "3.11", "/root/firstlight-venv"),)


def test_both_copies_of_a_package_go_before_another_takes_their_place() -> None:
    [step] = made(at("duplicate-torch"), InstallWheels((Package("torch", "2.14.1+cu126"),), f"{INDEX}cu126"))
    assert [argv[3] for argv in step.commands] == ["uninstall", "uninstall", "install"]
    [gone] = made(at("duplicate-torch"), RemoveDistributions(("torch",), copies=2))
    assert len(gone.commands) == 2
    assert gone.done_when[0].kind is CheckKind.DISTRIBUTIONS_ABSENT


def test_a_nightly_and_its_triton_come_back_from_the_nightly_index_while_it_has_them() -> None:
    way, where = InstallWheels((Package("torch", "2.15.0+cu130"),), f"{INDEX}cu130"), at("gb10-triton-3-5")
    [step] = made(where, way)
    packages = ("torch==2.10.0.dev20251024+cu130", "pytorch-triton==3.5.0+git7416ffcb")
    assert [argv[3:] for argv in step.undo] == [
        ("install", "--no-deps", *packages, "--index-url", f"{INDEX}nightly/cu130")
    ]
    assert comes_back(way, where.facts, TABLES) is Reversible.PARTLY
    assert "is a nightly: PyTorch takes those off its index after some weeks" in step.note


def test_a_torch_whose_cuda_is_not_that_of_pypis_wheel_is_not_brought_back_by_pip() -> None:
    way, where = InstallWheels((Package("torch", "2.5.1+cu121"),), f"{INDEX}cu121"), at("centos-7")
    [step] = made(where, way)
    assert [argv[3:] for argv in step.undo] == [("uninstall", "--yes", "torch")]
    assert comes_back(way, where.facts, TABLES) is Reversible.PARTLY
    assert "does not come back: torch 2.5.1 is built with CUDA 11.8 here, and with 12.4 on PyPI." in step.note


def test_what_conda_brought_and_what_was_built_elsewhere_comes_from_no_index() -> None:
    facts = facts_of("h200-compat-stale")
    assert isinstance(facts.torch, Known)
    torch = replace(facts.torch.value, installer=Known("conda", "INSTALLER"))
    conda = replace(facts, torch=Known(torch, "test"))
    assert index_of(facts, TABLES, "torch", "2.11.0") == Known("", "no local part")
    by_conda = Unknown("conda brought torch 2.11.0, and pip has other builds of it")
    assert index_of(conda, TABLES, "torch", "2.11.0") == by_conda
    built = index_of(facts, TABLES, "torch", "2.10.0a0+b558c986e8.nv25.11")
    assert built == Unknown("torch 2.10.0a0+b558c986e8.nv25.11 is a build of its own, which no index is known to have")


def test_pypis_build_comes_back_after_another_build_of_its_number_is_gone() -> None:
    [step] = made(at("h200-compat-stale"), InstallWheels((Package("torch", "2.11.0+cu128"),), f"{INDEX}cu128"))
    assert step.undo[0][3:] == ("uninstall", "--yes", "torch"), "pip takes 2.11.0+cu128 for 2.11.0 and does nothing"
    assert step.undo[1][3:6] == ("install", "--no-deps", "torch==2.11.0")


def test_pip_really_installs_the_set_and_takes_it_back(tmp_path: Path) -> None:
    """The planned commands run by a real pip in a throw-away environment, against folders of little wheels."""
    old, new = tmp_path / "cu130", tmp_path / "cu128"
    before = write_wheel(tmp_path / "w", "torchvision", "0.24.0+cu130", requires=("torch==2.9.0",))
    write_index(old, (write_wheel(tmp_path / "w", "torch", "2.9.0+cu130"), before))
    vision = write_wheel(tmp_path / "w", "torchvision", "0.24.0+cu128", requires=("torch==2.9.0",))
    write_index(new, (write_wheel(tmp_path / "w", "torch", "2.9.0+cu128"), vision))
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(venv)], check=True)
    python = f"{venv}/bin/python"
    env = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")} | {
        "PIP_CONFIG_FILE": os.devnull
    }
    base = [python, "-m", "pip", "install", "--quiet", "--ignore-installed"]
    subprocess.run([*base, "torch==2.9.0+cu130", "--index-url", old.as_uri()], check=True, env=env)
    facts = facts_of("h100-driver-570")
    chosen = facts.python.environments[0]
    here = tuple(each for each in chosen.distributions if each.name in ("torch", "torchvision"))
    chosen = replace(chosen, interpreter=Known(python, "test"), prefix=str(venv), distributions=here)
    facts = replace(facts, python=replace(facts.python, environments=(chosen,)))
    [step] = made(at(facts), InstallWheels((TORCH, Package("torchvision", "0.24.0+cu128")), new.as_uri()))
    for argv in step.commands:
        subprocess.run(argv, check=True, env=env, capture_output=True)
    assert _version(python, "torch") == "2.9.0+cu128"
    assert _version(python, "torchvision") == "0.24.0+cu128"
    for argv in step.undo:
        back = [word.replace("https://download.pytorch.org/whl/cu130", old.as_uri()) for word in argv]
        subprocess.run(back, check=True, env=env, capture_output=True)
    assert _version(python, "torch") == "2.9.0+cu130"
    assert _version(python, "torchvision") == "0.24.0+cu130"


def _version(python: str, name: str) -> str:
    """What is installed in the environment itself, not what it sees of the one around it."""
    code = (
        "import importlib.metadata as m, sys;"
        f"print(*[d.version for d in m.distributions(path=[p for p in sys.path if p.startswith(sys.prefix)])"
        f" if d.name == {name!r}])"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()
