"""Machines where the torch that is imported is not the one that was installed for the work."""

from __future__ import annotations

from tools.machines import container_marks as marks
from tools.machines import container_parts as inside
from tools.machines import shadow_parts as shadow
from tools.machines.container_marks import bound
from tools.machines.parts import H100, SUPPOSED, GpuSpec
from tools.machines.reconstruction import Reconstruction

V100 = GpuSpec("Tesla V100-PCIE-16GB", "7.0", 2, 15.8, "0x1db4")
V100_SXM = GpuSpec("Tesla V100-SXM2-16GB", "7.0", 2, 15.8, "0x1db1")
_SHARED = "/shared/ucl/apps/pytorch/1.2.0/python3.7.4/cpu/lib/python3.7/site-packages"
_LIBS = "/.singularity.d/libs"


def shadow_module_path() -> Reconstruction:
    """A cluster's module put a CPU torch on PYTHONPATH, before the venv's own."""
    machine = _cluster("shadow-module-path", "Cluster node whose module pytorch/1.2.0/cpu shadows torch 1.13.1+cu117")
    thread = ("UCL-ARC/rcps-buildscripts#460 (module load python/3.7.4 pytorch/1.2.0/cpu; its site-packages is on the "
              "search path and also shadows pip)")  # fmt: skip
    machine.env(PYTHONPATH=_SHARED, LOADEDMODULES="python/3.7.4:pytorch/1.2.0/cpu")
    machine.sources["PYTHONPATH"] = thread
    return inside.cache(machine)


def shadow_module_path_near_miss() -> Reconstruction:
    """The same without the module: the venv's torch is imported, and it works."""
    machine = _cluster("shadow-module-path-near-miss", "The same node without the module: torch 1.13.1+cu117 works")
    machine.env(LOADEDMODULES="python/3.7.4")
    return inside.cache(machine)


def _cluster(name: str, about: str) -> Reconstruction:
    thread = "UCL-ARC/rcps-buildscripts#460 (/shared/ucl/apps/pytorch/1.2.0/python3.7.4/cpu, python/3.7.4)"
    kernel = "3.10.0-1160.53.1.el7.x86_64"
    machine = inside.start(name, about, "centos-7", source=SUPPOSED, kernel=kernel, user="user-a")
    shadow.host(machine, "515.65.01", V100, source=SUPPOSED, kind="proprietary")
    shadow.interpreter(machine, "/shared/ucl/apps/python/3.7.4/gnu-4.9.2", "3.7", source=thread)
    shadow.torch_in(machine, _SHARED, "1.2.0+cpu", python="3.7", source=thread)
    return inside.torch(machine, "1.13.1+cu117", python="3.7", prefix="/home/user-a/venv",
                        archs=("sm_37", "sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"))  # fmt: skip


def shadow_checkout() -> Reconstruction:
    """Python started in PyTorch's source folder, in a container with a good torch in its conda environment."""
    return _workspace("shadow-checkout", "/workspace/pytorch")


def shadow_checkout_near_miss() -> Reconstruction:
    """The same, one folder up."""
    return _workspace("shadow-checkout-near-miss", "/workspace")


def _workspace(name: str, cwd: str) -> Reconstruction:
    thread = ("pytorch/pytorch#4650 (root@...:/workspace/pytorch, No module named 'torch.version'; conda environment, "
              "p3.2xlarge, NVIDIA's image; versions of today supposed)")  # fmt: skip
    machine = inside.start(name, f"NVIDIA's image on EC2, current folder {cwd}", "ubuntu-22.04", source=SUPPOSED,
                           kernel="6.5.0-1022-aws", cwd=cwd)  # fmt: skip
    inside.given(machine, "550.54.15", V100_SXM, source=SUPPOSED)
    machine.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n", source=thread)
    for path in ("torch/__init__.py", "torch/_C/__init__.pyi", "setup.py"):
        machine.file(f"/workspace/pytorch/{path}", "", source=thread)
    machine.file("/workspace/pytorch/.git/HEAD", "ref: refs/heads/main\n", source=thread)
    prefix = "/opt/conda/envs/pytorch-py3.10"
    inside.conda(machine, prefix, "2.6.0+cu124", python="3.10", source=f"{thread}; pip freeze there names torch")
    machine.env(CONDA_PREFIX=prefix, CONDA_DEFAULT_ENV="pytorch-py3.10", CONDA_SHLVL="1")
    marks.docker(machine, *bound(machine), source=thread, NVIDIA_VISIBLE_DEVICES="all",
                 NVIDIA_DRIVER_CAPABILITIES="compute,utility")  # fmt: skip
    return inside.cache(machine)


def shadow_home_in_apptainer() -> Reconstruction:
    """Apptainer brings the home folder along, and with it an old torch of the user's own."""
    return _vllm_image("shadow-home-in-apptainer", "")


def shadow_home_in_apptainer_near_miss() -> Reconstruction:
    """The same with PYTHONNOUSERSITE=1."""
    return _vllm_image("shadow-home-in-apptainer-near-miss", "1")


def _vllm_image(name: str, no_user_site: str) -> Reconstruction:
    thread = ("princeton-ddss/blackfish#366 (Apptainer binds $HOME: ~/.local/lib/python3.12/site-packages shadows the "
              "vLLM image's own; --env PYTHONNOUSERSITE=1), apptainer/singularity#5592")  # fmt: skip
    machine = inside.start(name, f"vLLM image under Apptainer, PYTHONNOUSERSITE='{no_user_site}'", "ubuntu-22.04",
                           source=SUPPOSED, kernel="4.18.0-553.el8_10.x86_64", user="user-a")  # fmt: skip
    inside.given(machine, "570.172.08", H100, source=SUPPOSED, folder=_LIBS)
    inside.system_python(machine, "3.12", source=thread)
    shadow.torch_in(machine, "/usr/local/lib/python3.12/dist-packages", "2.8.0+cu128", python="3.12",
                    source=f"{thread}; version supposed")  # fmt: skip
    own = "/home/user-a/.local/lib/python3.12/site-packages"
    shadow.torch_in(machine, own, "2.6.0+cpu", python="3.12", source=f"{thread}; that it is torch is supposed")
    handed_in = (f"/dev/sda2 {_LIBS}/lib{each}.so.1 xfs ro,nosuid,nodev,relatime" for each in ("cuda", "nvidia-ml"))
    marks.apptainer(machine, *handed_in, image="/scratch/vllm.sif", source=thread, LD_LIBRARY_PATH=_LIBS)
    if no_user_site:
        machine.env(PYTHONNOUSERSITE=no_user_site)
    return inside.cache(machine)


MACHINES = (shadow_module_path, shadow_checkout, shadow_home_in_apptainer)
NEAR_MISSES = (shadow_module_path_near_miss, shadow_checkout_near_miss, shadow_home_in_apptainer_near_miss)
