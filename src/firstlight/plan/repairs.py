"""What the repairs are called, and what each takes: root, waiting, a download."""

from __future__ import annotations

from firstlight.frozen import dataclass
from firstlight.plan.option import Reversible, Risk

_REBOOT = "how long a reboot takes here is not known"
_SIZE = "the size of what is fetched is not on record"


@dataclass(frozen=True, slots=True)
class Repair:
    """One remedy in words, e.g. start nvidia-fabricmanager, as root, on the host."""

    title: str
    needs_root: bool = False
    of_the_host: bool = False  # a container cannot do it
    waits: str = ""  # what takes a time that is not known
    fetches: str = ""  # why the size of what is fetched is not known
    follows: bool = False  # done besides, no way out by itself
    brings_torch: bool = False  # a torch that no index of the tables has: nothing that is solved goes with it
    reversible: Reversible = Reversible.YES
    risk: Risk = Risk.LOW


def _host(title: str, waits: str = "") -> Repair:
    """Done as root on the machine itself."""
    back = Reversible.PARTLY if waits else Reversible.YES
    return Repair(title, needs_root=True, of_the_host=True, waits=waits, reversible=back, risk=Risk.MEDIUM)


REPAIRS = {
    "reboot": _host("reboot", _REBOOT),
    "reload-driver": _host("unload the driver's modules and load them again"),
    "load-driver": _host("load the nvidia module"),
    "load-uvm": _host("load the nvidia-uvm module"),
    "create-device-nodes": _host("create the device nodes"),
    "hold-driver": Repair("hold the driver's packages at their version", needs_root=True, follows=True),
    "blacklist-nouveau": _host("keep nouveau from loading, then reboot", _REBOOT),
    "disable-hmm": _host("switch HMM off in nvidia-uvm, then reboot", _REBOOT),
    "enrol-module-key": _host("enrol the key that the module is signed with, then reboot", _REBOOT),
    "install-signed-module": _host("install a signed module"),
    "turn-off-secure-boot": _host("turn Secure Boot off"),
    "start-fabric-manager": _host("start the fabric manager of the driver's version"),
    "create-mig-slices": _host("create MIG slices"),
    "turn-off-mig": _host("turn MIG off"),
    "set-compute-mode": _host("set the compute mode back to default"),
    "reset-gpu": _host("reset the GPU"),
    "power-cycle": _host("power the machine off and on", _REBOOT),
    "find-why-no-gpu": Repair(
        "find out why the driver shows no GPU", needs_root=True, waits="how long that takes is not known"
    ),
    "cool-or-power": Repair("look at cooling and power", waits="how long that takes is not known"),
    "install-container-toolkit": _host("install the NVIDIA container toolkit"),
    "install-driver-library": Repair("install the driver's libcuda", needs_root=True, fetches=_SIZE, risk=Risk.MEDIUM),
    "register-library-folder": Repair("register libcuda's folder with ldconfig", needs_root=True, risk=Risk.MEDIUM),
    "reinstall-companion": Repair("install the releases of the packages that fit this torch", fetches=_SIZE),
    "reinstall-pinned-wheel": Repair("install the version that torch pins", fetches=_SIZE),
    "install-library-wheels": Repair("install the missing libraries from wheels and make them loadable", fetches=_SIZE),
    "install-jetson-wheel": Repair("install a torch wheel made for this Jetson", fetches=_SIZE, brings_torch=True),
    "install-build-tools": Repair("install a C++ compiler and ninja", needs_root=True, fetches=_SIZE, risk=Risk.MEDIUM),
    "use-older-compiler": Repair("use an older host compiler", fetches=_SIZE),
    "update-libstdcxx": Repair("update libstdc++ in the environment", fetches=_SIZE),
    "pin-in-project": Repair("name this torch in the project's files, so that `uv run` keeps it"),
    "export-container-env": Repair("hand the container's variables on to login shells"),
    "fix-gate": Repair("set the image's gate to what its wheels need"),
    "fix-build-flags": Repair("set TORCH_CUDA_ARCH_LIST for these GPUs"),
    "set-triton-ptxas": Repair("point TRITON_PTXAS_PATH at a newer ptxas"),
    "set-device-order": Repair("set CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    "make-environment": Repair("make a virtual environment"),
    "free-disk": Repair("free disk space", reversible=Reversible.NO),
    "raise-shm": Repair("start the container with more shared memory"),
    "limit-jobs": Repair("build with fewer jobs at a time"),
}
