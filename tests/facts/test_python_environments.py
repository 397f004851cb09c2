"""Python environments are found and described without starting one; real interpreters are the referees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.distributions import list_distributions
from firstlight.facts.known import Known, Unknown
from firstlight.facts.python_environments import EnvironmentKind, PythonEnvironment, PythonFacts, probe_environments
from firstlight.machine import Host
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

HOST: Host = replace(
    LiveMachine().host, user="maria", home="/home/maria", cwd="/home/maria/app", python_prefix="", python_version=""
)
UV_CFG = "home = /usr/bin\nimplementation = CPython\nuv = 0.13.7\nversion_info = 3.12.3\n"


def _write(root: Path, path: str, text: str = "") -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def _interpreter(root: Path, path: str) -> None:
    _write(root, path, "#!/bin/sh\n").chmod(0o755)


def _venv(root: Path, prefix: str, cfg: str = UV_CFG, lib: str = "python3.12") -> str:
    _write(root, f"{prefix}/pyvenv.cfg", cfg)
    _interpreter(root, f"{prefix}/bin/python3")
    site = f"{prefix}/lib/{lib}/site-packages"
    (root / site.lstrip("/")).mkdir(parents=True)
    return site


def _record(root: Path, site: str, *names: str) -> None:
    for name in names:
        (root / site.lstrip("/") / name).mkdir(parents=True)


def _machine(root: Path, host: Host = HOST, **environ: str) -> LiveMachine:
    return LiveMachine(root=str(root), environ=environ, host=host)


def _only(facts: PythonFacts) -> PythonEnvironment:
    [environment] = facts.environments
    return environment


def test_the_active_uv_venv_is_described(tmp_path: Path) -> None:
    site = _venv(tmp_path, "/home/maria/app/.venv")
    _record(
        tmp_path, site, "torch-2.9.0+cu130.dist-info", "nvidia_cudnn_cu13-9.13.0.50.dist-info", "secret-1.dist-info"
    )
    facts = probe_environments(_machine(tmp_path, VIRTUAL_ENV="/home/maria/app/.venv"))
    found = _only(facts)
    assert found.kind is EnvironmentKind.UV_VENV
    assert found.found_by == ("VIRTUAL_ENV", "project .venv")
    assert found.python_version == Known("3.12.3", "/home/maria/app/.venv/pyvenv.cfg")
    assert found.interpreter == Known("/home/maria/app/.venv/bin/python3", "VIRTUAL_ENV")
    assert found.site_packages == (site,)
    assert found.writable == Known(value=True, seen_in=site)
    assert not found.externally_managed
    assert [(each.name, each.version) for each in found.distributions] == [
        ("nvidia-cudnn-cu13", "9.13.0.50"),
        ("torch", "2.9.0+cu130"),
    ]
    assert facts.selected == Known(0, "VIRTUAL_ENV")


def test_names_that_are_not_of_interest_and_broken_records_are_left_out(tmp_path: Path) -> None:
    _record(
        tmp_path,
        "/site",
        "Flash_Attn-2.8.3.dist-info",
        "torch-2.5.1-py3.11.egg-info",
        "torchvision-0.20.1.egg-info",
        "acme_secret-1.0.dist-info",
        "torch.egg-info",
        ".dist-info",
        "-info",
        "torch-.dist-info",
        "~orch-2.9.0+cpu.dist-info",  # what pip makes of a package while it removes it
        "~-torch-2.9.0+cpu.dist-info",
        "~vidia_cublas-13.1.0.3.dist-info",
    )
    found = list_distributions(_machine(tmp_path), "/site")
    assert [(each.name, each.version, each.record) for each in found] == [
        ("flash-attn", "2.8.3", "Flash_Attn-2.8.3.dist-info"),
        ("torch", "2.5.1", "torch-2.5.1-py3.11.egg-info"),
        ("torchvision", "0.20.1", "torchvision-0.20.1.egg-info"),
    ]


def test_a_machine_without_python_has_no_environment(tmp_path: Path) -> None:
    facts = probe_environments(_machine(tmp_path, PATH="/usr/bin:/bin"))
    assert facts.environments == ()
    assert facts.selected == Unknown("no Python environment was found")
    assert facts.python_home == Unknown("PYTHONHOME is not set")
    assert facts.python_path == ()


def test_a_virtual_env_variable_that_names_a_deleted_folder_is_reported_and_not_selected(tmp_path: Path) -> None:
    _interpreter(tmp_path, "/usr/local/bin/python3.11")
    (tmp_path / "usr/local/bin/python3").symlink_to("python3.11")
    facts = probe_environments(_machine(tmp_path, VIRTUAL_ENV="/home/maria/gone", PATH="/usr/local/bin"))
    gone, system = facts.environments
    assert gone.kind is EnvironmentKind.MISSING
    assert gone.python_version == Unknown("/home/maria/gone does not exist")
    assert gone.site_packages == ()
    assert isinstance(gone.writable, Unknown)
    assert system.kind is EnvironmentKind.SYSTEM
    assert facts.selected == Known(1, "python3 on PATH")


def test_a_venv_whose_base_python_was_removed_has_no_interpreter(tmp_path: Path) -> None:
    _venv(tmp_path, "/opt/venv")
    (tmp_path / "opt/venv/bin/python3").unlink()
    (tmp_path / "opt/venv/bin/python3").symlink_to("python3.12")
    found = _only(probe_environments(_machine(tmp_path, VIRTUAL_ENV="/opt/venv")))
    assert found.interpreter == Unknown("/opt/venv/bin/python3 does not exist or is a link to nowhere")
    assert found.python_version == Known("3.12.3", "/opt/venv/pyvenv.cfg")


@pytest.mark.parametrize("cfg", ["", "\x00\xff" * 400, "version = latest\nhome\n===\n", "version_info ="])
def test_an_absurd_pyvenv_cfg_leaves_the_folder_name_to_tell_the_version(tmp_path: Path, cfg: str) -> None:
    site = _venv(tmp_path, "/opt/venv", cfg=cfg)
    found = _only(probe_environments(_machine(tmp_path, VIRTUAL_ENV="/opt/venv")))
    assert found.kind is EnvironmentKind.VENV
    assert found.python_version == Known("3.12", "/opt/venv/lib/python3.12")
    assert found.site_packages == (site,)


def test_a_pyvenv_cfg_that_cannot_be_read_is_still_a_venv(tmp_path: Path) -> None:
    (tmp_path / "opt/venv/pyvenv.cfg").mkdir(parents=True)
    found = _only(probe_environments(_machine(tmp_path, VIRTUAL_ENV="/opt/venv")))
    assert found.kind is EnvironmentKind.VENV
    assert found.python_version == Unknown("/opt/venv/lib has no python3.* folder")


def test_a_venv_reached_by_two_names_is_one_environment(tmp_path: Path) -> None:
    _venv(tmp_path, "/data/venv")
    (tmp_path / "home/maria/app").mkdir(parents=True)
    os.symlink(tmp_path / "data/venv", tmp_path / "home/maria/app/.venv")
    facts = probe_environments(_machine(tmp_path, VIRTUAL_ENV="/data/venv"))
    assert _only(facts).found_by == ("VIRTUAL_ENV", "project .venv")


def test_debians_python_searches_user_site_then_local_then_dist_packages(tmp_path: Path) -> None:
    _interpreter(tmp_path, "/usr/bin/python3.11")
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    _write(tmp_path, "/usr/lib/python3.11/EXTERNALLY-MANAGED")
    folders = (
        "/home/maria/.local/lib/python3.11/site-packages",
        "/usr/local/lib/python3.11/dist-packages",
        "/usr/lib/python3/dist-packages",
    )
    for folder in folders:
        (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    found = _only(probe_environments(_machine(tmp_path, PATH="/usr/bin")))
    assert found.prefix == "/usr"
    assert found.kind is EnvironmentKind.SYSTEM
    assert found.externally_managed
    assert found.python_version == Known("3.11", "/usr/bin/python3.11")
    assert found.site_packages == folders
    without = _only(probe_environments(_machine(tmp_path, PATH="/usr/bin", PYTHONNOUSERSITE="1")))
    assert without.site_packages == folders[1:]


def test_packages_of_the_user_site_shadow_those_of_conda(tmp_path: Path) -> None:
    (tmp_path / "opt/conda/conda-meta").mkdir(parents=True)
    _interpreter(tmp_path, "/opt/conda/bin/python3.11")
    (tmp_path / "opt/conda/bin/python3").symlink_to("python3.11")
    conda, user = "/opt/conda/lib/python3.11/site-packages", "/home/maria/.local/lib/python3.11/site-packages"
    _record(tmp_path, conda, "numpy-1.26.4.dist-info", "torch-2.5.1.dist-info")
    _record(tmp_path, user, "numpy-2.1.0.dist-info")
    found = _only(probe_environments(_machine(tmp_path, CONDA_PREFIX="/opt/conda")))
    assert found.kind is EnvironmentKind.CONDA
    assert found.site_packages == (user, conda)
    [twice] = found.duplicates
    assert (twice.name, twice.versions, twice.folders) == ("numpy", ("2.1.0", "1.26.4"), (user, conda))


def test_two_records_of_torch_in_one_folder_are_a_duplicate(tmp_path: Path) -> None:
    site = _venv(tmp_path, "/opt/venv")
    _record(tmp_path, site, "torch-2.8.0.dist-info", "torch-2.9.0+cu130.dist-info", "triton-3.5.0.dist-info")
    [twice] = _only(probe_environments(_machine(tmp_path, VIRTUAL_ENV="/opt/venv"))).duplicates
    assert (twice.name, twice.versions) == ("torch", ("2.8.0", "2.9.0+cu130"))


def test_the_environment_that_holds_torch_is_selected_before_an_active_one_that_does_not(tmp_path: Path) -> None:
    _venv(tmp_path, "/opt/tools")
    _write(tmp_path, "/opt/tools/pipx_metadata.json", "{}")
    site = _venv(tmp_path, "/home/maria/app/.venv")
    machine = _machine(tmp_path, host=replace(HOST, python_prefix="/opt/tools"))
    facts = probe_environments(machine)
    assert [each.kind for each in facts.environments] == [EnvironmentKind.TOOL, EnvironmentKind.UV_VENV]
    assert facts.selected == Known(1, "project .venv")  # neither has torch, and nobody installs torch into a tool
    _write(tmp_path, f"{site}/torch.egg-link", "/home/maria/pytorch\n.")
    assert probe_environments(machine).selected == Known(1, "project .venv")
    _record(tmp_path, "/opt/tools/lib/python3.12/site-packages", "torch-2.9.0.dist-info")
    assert probe_environments(machine).selected == Known(0, "runs firstlight")


def test_without_torch_a_project_counts_before_a_system_python_that_refuses_packages(tmp_path: Path) -> None:
    _interpreter(tmp_path, "/usr/bin/python3.11")
    (tmp_path / "usr/bin/python3").symlink_to("python3.11")
    _venv(tmp_path, "/home/maria/app/.venv")
    machine = _machine(tmp_path, PATH="/usr/bin")
    assert probe_environments(machine).selected == Known(0, "python3 on PATH")
    _write(tmp_path, "/usr/lib/python3.11/EXTERNALLY-MANAGED")
    assert probe_environments(machine).selected == Known(1, "project .venv")


@pytest.mark.parametrize("given", ["/opt/other/bin/python3", "/opt/other", "../../../opt/other/bin/python3"])
def test_the_users_choice_is_selected_even_without_torch(tmp_path: Path, given: str) -> None:
    _venv(tmp_path, "/opt/other")
    site = _venv(tmp_path, "/opt/venv")
    _record(tmp_path, site, "torch-2.9.0.dist-info")
    facts = probe_environments(_machine(tmp_path, VIRTUAL_ENV="/opt/venv"), python=given)
    assert facts.selected == Known(0, "given")
    assert facts.environments[0].prefix == "/opt/other"


def test_an_environment_that_is_called_as_a_program_is_meant_before_the_program(tmp_path: Path) -> None:
    _interpreter(tmp_path, "/usr/bin/env")
    _venv(tmp_path, "/home/maria/app/env")
    facts = probe_environments(_machine(tmp_path, PATH="/usr/bin"), python="env")
    assert facts.environments[0].prefix == "/home/maria/app/env"


def test_a_choice_that_does_not_exist_is_missing_and_says_so(tmp_path: Path) -> None:
    facts = probe_environments(_machine(tmp_path), python="python3.99")
    assert facts.selected == Known(0, "given")
    assert _only(facts).kind is EnvironmentKind.MISSING


def test_a_pyenv_shim_leads_to_the_chosen_version(tmp_path: Path) -> None:
    _interpreter(tmp_path, "/home/maria/.pyenv/shims/python3")
    _write(tmp_path, "/home/maria/.pyenv/version", "3.11.7\n")
    _interpreter(tmp_path, "/home/maria/.pyenv/versions/3.11.7/bin/python3.11")
    (tmp_path / "home/maria/.pyenv/versions/3.11.7/bin/python3").symlink_to("python3.11")
    machine = _machine(tmp_path, PATH="/home/maria/.pyenv/shims")
    found = _only(probe_environments(machine))
    assert found.prefix == "/home/maria/.pyenv/versions/3.11.7"
    assert found.kind is EnvironmentKind.STANDALONE
    _write(tmp_path, "/home/maria/.pyenv/version", "system\n")
    assert _only(probe_environments(machine)).prefix == "/usr"


def test_project_environments_are_found_up_to_the_root_of_the_checkout_and_not_above(tmp_path: Path) -> None:
    (tmp_path / "home/maria/app/.git").mkdir(parents=True)
    (tmp_path / "home/maria/app/src/deep").mkdir(parents=True)
    (tmp_path / "home/maria/app/.pixi/envs/default/conda-meta").mkdir(parents=True)
    _venv(tmp_path, "/home/maria/app/src/venv")
    _venv(tmp_path, "/home/maria/.venv")
    facts = probe_environments(_machine(tmp_path, host=replace(HOST, cwd="/home/maria/app/src/deep")))
    assert [(each.prefix, each.kind) for each in facts.environments] == [
        ("/home/maria/app/src/venv", EnvironmentKind.UV_VENV),
        ("/home/maria/app/.pixi/envs/default", EnvironmentKind.PIXI),
    ]


def test_without_a_checkout_the_search_for_a_project_ends_at_the_home_folder(tmp_path: Path) -> None:
    _venv(tmp_path, "/home/maria/.venv")
    _venv(tmp_path, "/home/.venv")
    assert _only(probe_environments(_machine(tmp_path))).prefix == "/home/maria/.venv"


def test_start_up_hooks_are_named_with_what_they_mention_and_nothing_of_their_text(tmp_path: Path) -> None:
    site = _venv(tmp_path, "/opt/venv")
    _write(tmp_path, f"{site}/patch.pth", "import os; import TORCH_patch; os.environ['TOKEN']='hunter2'\n")
    _write(tmp_path, f"{site}/late.pth", "/opt/extra\nimport late_cuda, torch\n")
    _write(tmp_path, f"{site}/plain.pth", "/opt/cuda/python\n")
    _write(tmp_path, f"{site}/distutils-precedence.pth", "import os\n")
    _write(tmp_path, f"{site}/protobuf-3.1-nspkg.pth", "import sys, types\n")
    _write(tmp_path, f"{site}/__editable__.acme-1.0.pth", "import acme_torch\n")
    _write(tmp_path, f"{site}/broken.pth").unlink()
    os.mkfifo(f"{tmp_path}{site}/broken.pth")
    _write(tmp_path, "/opt/inject/sitecustomize.py", "print('hello')\n")
    recording = RecordingMachine(_machine(tmp_path, VIRTUAL_ENV="/opt/venv", PYTHONPATH="/opt/inject:"))
    facts = probe_environments(recording)
    assert [(each.path, each.mentions) for each in _only(facts).hooks] == [
        (f"{site}/late.pth", ("cuda", "torch")),
        (f"{site}/patch.pth", ("torch",)),
        ("/opt/inject/sitecustomize.py", ()),
    ]
    assert facts.python_path == ("/opt/inject", ".")
    assert "hunter2" not in str(recording.evidence)
    assert "acme" not in str(recording.evidence)


def test_lock_files_tell_the_torch_they_fix_and_no_address(tmp_path: Path) -> None:
    _write(
        tmp_path,
        "/home/maria/app/uv.lock",
        'version = 1\n\n[[package]]\nname = "app"\ndependencies = [{ name = "torch", version = "9.9" }]\n\n'
        '[[package]]\nname = "torch"\nversion = "2.9.0+cu130"\nsource = { registry = "https://pypi.corp/whl" }\n\n'
        '[[package]]\nname = "torchvision"\nversion = "0.24.0"\n',
    )
    _write(
        tmp_path,
        "/home/maria/app/pixi.lock",
        "- conda: https://conda.corp/linux-64/pytorch-2.5.1-cuda126_py312_h1_300.conda\n"
        "- pypi: https://pypi.corp/torch-2.9.0%2Bcu130-cp312-cp312-linux_x86_64.whl\n",
    )
    _write(tmp_path, "/home/maria/app/pyproject.toml", '[project]\ndependencies = ["torch>=2.8"]\n[tool.uv.sources]\n')
    _write(tmp_path, "/home/maria/pyproject.toml", '[project]\ndependencies = ["torch>=2.8"]\n')
    recording = RecordingMachine(_machine(tmp_path))
    facts = probe_environments(recording)
    assert [(each.path, each.torch) for each in facts.project_files] == [
        ("/home/maria/app/uv.lock", ("2.9.0+cu130",)),
        ("/home/maria/app/pixi.lock", ("2.5.1 cuda126_py312_h1_300", "2.9.0+cu130")),
        ("/home/maria/app/pyproject.toml", (">=2.8",)),
    ]
    assert "corp" not in str(recording.evidence)


def test_a_recorded_machine_gives_the_same_facts_and_they_survive_json(tmp_path: Path) -> None:
    site = _venv(tmp_path, "/opt/venv")
    _record(tmp_path, site, "torch-2.9.0+cu130.dist-info", "numpy-2.1.0.dist-info")
    _write(tmp_path, f"{site}/patch.pth", "import cuda_patch\n")
    _write(tmp_path, "/home/maria/app/uv.lock", 'name = "torch"\nversion = "2.9.0"\n')
    recording = RecordingMachine(_machine(tmp_path, VIRTUAL_ENV="/opt/venv", PYTHONHOME="/opt/home"))
    live = probe_environments(recording)
    assert probe_environments(RecordedMachine(recording.evidence)) == live
    assert decode(PythonFacts, json.loads(json.dumps(encode(live))), "facts") == live
    assert live.python_home == Known("/opt/home", "PYTHONHOME")


def _real_search_path(interpreter: str, environ: dict[str, str]) -> list[str]:
    code = "import json, os, sys; print(json.dumps([p for p in sys.path if os.path.isdir(p)]))"
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True, env=environ, cwd="/")
    found: list[str] = json.loads(done.stdout)
    return [path for path in found if path.endswith("-packages")]


@pytest.mark.parametrize("arguments", [(), ("--system-site-packages",)])
def test_the_site_folders_of_a_real_venv_are_those_its_interpreter_searches(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    prefix = str(tmp_path / "venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", *arguments, prefix], check=True)
    user = tmp_path / f"home/.local/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    user.mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home"), "VIRTUAL_ENV": prefix}
    host = replace(LiveMachine().host, home=environ["HOME"], cwd=str(tmp_path), python_prefix="")
    found = _only(probe_environments(LiveMachine(environ=environ, host=host)))
    assert list(found.site_packages) == _real_search_path(f"{prefix}/bin/python3", environ)
    assert found.python_version == Known(sys.version.split()[0], f"{prefix}/pyvenv.cfg")


@pytest.mark.parametrize("interpreter", ["/usr/bin/python3", f"{sys.base_prefix}/bin/python3"])
def test_the_site_folders_of_an_installed_python_are_those_it_searches(tmp_path: Path, interpreter: str) -> None:
    if not os.access(interpreter, os.X_OK):
        pytest.skip(f"there is no {interpreter} here")
    environ = {"HOME": str(tmp_path)}
    host = replace(LiveMachine().host, home=str(tmp_path), cwd=str(tmp_path), python_prefix="")
    found = _only(probe_environments(LiveMachine(environ=environ, host=host), python=interpreter))
    assert list(found.site_packages) == _real_search_path(interpreter, environ)
