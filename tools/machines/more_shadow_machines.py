"""More machines where the torch that is imported is not the one that was installed for the work."""

from __future__ import annotations

from tools.machines import container_parts as inside
from tools.machines import shadow_parts as shadow
from tools.machines.parts import SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

RTX_3060 = GpuSpec("NVIDIA GeForce RTX 3060", "8.6", 5, 11.99, "0x2504")
RTX_3090 = GpuSpec("NVIDIA GeForce RTX 3090", "8.6", 5, 23.6, "0x2204")
RTX_5080 = GpuSpec("NVIDIA GeForce RTX 5080", "12.0", 5, 15.5, "0x2c02")
_CU113 = ("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86")
_OLD = ("sm_35", "sm_50", "sm_60", "sm_61", "sm_70")
_CENTRAL = "/cluster/apps/nss/python_gpu/3.7.4/lib64/python3.7/site-packages"


def shadow_user_site() -> Reconstruction:
    """An old torch in ~/.local that a newer one, installed for everybody, does not replace."""
    return _clover("shadow-user-site", "")


def shadow_user_site_near_miss() -> Reconstruction:
    """The same with PYTHONNOUSERSITE=1."""
    return _clover("shadow-user-site-near-miss", "1")


def _clover(name: str, no_user_site: str) -> Reconstruction:
    thread = ("cloveranon/Clover-Edition#128 (torch 1.1.0 imported from ~/.local/lib/python3.7/site-packages though a "
              "newer one was installed; python3.7 -m pip uninstall torch without sudo cures it)")  # fmt: skip
    machine = inside.start(name, f"Fedora 31, two torch, PYTHONNOUSERSITE='{no_user_site}'", "fedora-31",
                           source="supposed: Python 3.7.6 and GCC 9.2", kernel="5.4.20-200.fc31.x86_64",
                           user="user-a")  # fmt: skip
    shadow.host(machine, "470.57.02", RTX_3060, source=SUPPOSED, kind="proprietary")
    own = "/home/user-a/.local/lib/python3.7/site-packages"
    shadow.torch_in(machine, own, "1.1.0+cu90", python="3.7", source=thread, archs=_OLD)
    shadow.torch_in(machine, "/usr/local/lib64/python3.7/site-packages", "1.12.1+cu113", python="3.7", archs=_CU113,
                    source=f"{thread}; its version is supposed")  # fmt: skip
    if no_user_site:
        machine.env(PYTHONNOUSERSITE=no_user_site)
    return inside.cache(machine)


def shadow_conda_over_venv() -> Reconstruction:
    """A venv is active and conda's base came after it: `python` is conda's, with a torch for the CPU."""
    venv, base = "/home/user-a/app/.venv", "/home/user-a/miniconda3"
    return _both("shadow-conda-over-venv", f"{base}/bin:{base}/condabin:{venv}/bin")


def shadow_conda_over_venv_near_miss() -> Reconstruction:
    """The same with the venv activated last: its torch is imported, and it works."""
    venv, base = "/home/user-a/app/.venv", "/home/user-a/miniconda3"
    return _both("shadow-conda-over-venv-near-miss", f"{venv}/bin:{base}/bin:{base}/condabin")


def _both(name: str, first: str) -> Reconstruction:
    thread = ("astral-sh/uv#2028 and #2574 (an active conda base sets CONDA_PREFIX, a venv on top of it VIRTUAL_ENV; "
              "which python is first on PATH)")  # fmt: skip
    machine = inside.start(name, f"Ubuntu 24.04 desktop with a venv and conda's base, PATH starts with {first}",
                           "ubuntu-24.04", source=SUPPOSED, kernel="6.8.0-60-generic", user="user-a",
                           cwd="/home/user-a/app")  # fmt: skip
    shadow.host(machine, "570.133.20", RTX_5080, source=SUPPOSED)
    plain = machine.environ["PATH"]
    inside.conda(machine, "/home/user-a/miniconda3", "2.5.1+cpu", python="3.12", source=thread)
    inside.torch(machine, "2.8.0+cu128", prefix="/home/user-a/app/.venv", source=thread)
    machine.env(PATH=f"{first}:{plain}", CONDA_PREFIX="/home/user-a/miniconda3", CONDA_DEFAULT_ENV="base",
                CONDA_SHLVL="1")  # fmt: skip
    return inside.cache(machine)


def shadow_central_over_user() -> Reconstruction:
    """The cluster's torch is on PYTHONPATH; the user's own, which has code for the GPU, is never reached."""
    machine = _euler("shadow-central-over-user", "RTX 3090 node: central torch 1.5.1 before the user's 1.8.1")
    thread = ("pytorch/pytorch#56126 (python_gpu/3.7.4 has torch 1.5.1+cu101; pip install --user of any newer one: "
              "pip list names the central one, the import fails)")  # fmt: skip
    machine.env(PYTHONPATH=_CENTRAL, LOADEDMODULES="gcc/6.3.0:cuda/10.1.243:python_gpu/3.7.4")
    machine.sources["PYTHONPATH"] = f"{thread}; that it is by PYTHONPATH is supposed"
    return inside.cache(machine)


def shadow_central_over_user_near_miss() -> Reconstruction:
    """The same without the module's PYTHONPATH."""
    machine = _euler("shadow-central-over-user-near-miss", "Cluster node with RTX 3090: the user's torch 1.8.1 works")
    return inside.cache(machine)


def _euler(name: str, about: str) -> Reconstruction:
    thread = "pytorch/pytorch#56126 (python_gpu/3.7.4, torch 1.5.1+cu101, pip install --user)"
    kernel = "3.10.0-1160.15.2.el7.x86_64"
    machine = inside.start(name, about, "centos-7", source=SUPPOSED, kernel=kernel, user="user-a")
    shadow.host(machine, "470.57.02", RTX_3090, source=SUPPOSED, kind="proprietary")
    shadow.interpreter(machine, "/cluster/apps/python/3.7.4", "3.7", source=thread)
    shadow.torch_in(machine, _CENTRAL, "1.5.1+cu101", python="3.7", source=thread,
                    archs=("sm_37", "sm_50", "sm_60", "sm_61", "sm_70", "sm_75"))  # fmt: skip
    own = "/home/user-a/.local/lib/python3.7/site-packages"
    return shadow.torch_in(machine, own, "1.8.1+cu111", python="3.7", archs=_CU113,
                           source=f"{thread}; version supposed")  # fmt: skip


MACHINES = (shadow_user_site, shadow_conda_over_venv, shadow_central_over_user)
NEAR_MISSES = (shadow_user_site_near_miss, shadow_conda_over_venv_near_miss, shadow_central_over_user_near_miss)
