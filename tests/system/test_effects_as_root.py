"""Ways that need root, carried out for real in mounts of their own: what was predicted is what is seen.

apt, dpkg, ldconfig and the files are the real ones. Modules, device nodes, dkms, services, nvidia-smi and the
container toolkit are stand-ins: small scripts on PATH that change what the real ones change.
"""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.facts.known import Known, Unknown
from firstlight.ways.kinds import (
    BuildModules,
    ChooseModules,
    ConfigureContainers,
    Flavour,
    InstallPackages,
    LoadModules,
    MakeDeviceNodes,
    MakeImexChannel,
    RefreshLoaderCache,
    RegisterFolder,
    ReloadModules,
    RemoveFiles,
    RemovePackages,
    SetModuleOption,
    StartService,
    TurnOffMig,
    Unwire,
    WiredBy,
)
from firstlight.ways.way import Way
from tests.apply.debs import Repository
from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts
from tests.system.apt_room import HOME, in_a_room
from tests.ways.for_real import Looked, carried_out, differences, look

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
]
DRIVER = "580.95.05"
KERNEL = os.uname().release
# A machine with a GPU and its driver in place of what is here; /etc and /usr/local are copies and empty folders.
_MACHINE = f"""
cp -a /etc {HOME}/etc && mount --bind {HOME}/etc /etc
mkdir {HOME}/dev && mount --rbind /dev {HOME}/dev && mount -t tmpfs t /dev && mkdir /dev/shm
ln -s /proc/self/fd /dev/fd
for each in null zero full random urandom tty; do
    touch /dev/$each && mount --bind {HOME}/dev/$each /dev/$each
done
for each in /usr/local /sys/module /lib/modules /var/cache/ldconfig /run; do mount -t tmpfs t $each; done
mkdir /lib/modules/{KERNEL} /usr/local/sbin /sys/module/nvidia && echo {DRIVER} > /sys/module/nvidia/version
"""
_STAND_INS = {
    "modprobe": """
mkdir -p /sys/module/$1/parameters /sys/module/$1/holders; echo 0 > /sys/module/$1/refcnt
hmm=N; ! grep -qs '^options nvidia_uvm uvm_disable_hmm=1' /etc/modprobe.d/*.conf || hmm=Y
[ $1 != nvidia_uvm ] || echo $hmm > /sys/module/nvidia_uvm/parameters/uvm_disable_hmm
""",
    "rmmod": 'for each in "$@"; do rm -r /sys/module/$each; done',
    "nvidia-modprobe": "mknod /dev/nvidiactl c 195 255; mknod /dev/nvidia0 c 195 0; mknod /dev/nvidia-uvm c 510 0",
    "dkms": """
[ "$1" != status ] || { echo "nvidia/580.105.08: added"; exit 0; }
mkdir -p /lib/modules/$3/updates/dkms && touch /lib/modules/$3/updates/dkms/nvidia.ko
""",
    "modinfo": "[ -e /lib/modules/$2/updates/dkms/$3.ko ]",
    "update-initramfs": "true",
    "nvidia-ctk": """
for each; do case "$each" in --output=*) echo "path: /usr/lib/libcuda.so.580.95.05" > "${each#--output=}" ;; esac; done
[ "$1" = runtime ] || exit 0
mkdir -p /etc/docker
echo '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}' > /etc/docker/daemon.json
""",
    "systemctl": """
case "$1" in is-active | is-enabled) [ -e /srv/on ]; exit ;; esac
touch /srv/on
case "$*" in *persistenced*) mkdir -p /run/nvidia-persistenced && touch /run/nvidia-persistenced/socket ;; esac
""",
    "grep": """
case "$*" in *imex*) echo 511 nvidia-caps-imex-channels ;; *) exec /usr/bin/grep "$@" ;; esac
""",
    "nvidia-smi": """
[ -e /srv/mig ] || echo Enabled > /srv/mig
case "$*" in
    *-mig*) echo Disabled > /srv/mig ;;
    --query-gpu=mig.mode.current* | *--query-gpu=mig.mode.current*) cat /srv/mig ;;
    --query-gpu=*) echo "0, NVIDIA A100, 8.0, 81920, 580.95.05, GPU-0, 00000000:00:05.0, $(cat /srv/mig), Disabled, 400, 1410, 1410, Enabled" ;;
esac
""",  # noqa: E501 one line of its table
}


def _in_a_machine(work: Callable[[], None]) -> None:
    """Run `work` where a driver is loaded, root may do what it likes, and nothing of it stays."""

    def furnished() -> None:
        subprocess.run(["sh", "-e", "-c", _MACHINE], check=True)
        for name, text in _STAND_INS.items():
            program = Path("/usr/local/sbin") / name
            program.write_text(f"#!/bin/sh\n{text.strip()}\n")
            program.chmod(0o755)
        work()

    modules = Path("/lib/modules")
    made = not modules.exists()  # as in most containers
    modules.mkdir(exist_ok=True)
    try:
        in_a_room(furnished)
    finally:
        if made:
            modules.rmdir()


ENVIRON = {
    "PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": f"{HOME}/home",
    "FIRSTLIGHT_STATE_DIR": f"{HOME}/state",
    "DEBIAN_FRONTEND": "noninteractive",
    "LD_LIBRARY_PATH": "",
}


def _predicted(way: Way, *more: Way, unlike: tuple[str, ...] = ()) -> list[str]:
    """The facts that were as predicted, once a way and those after it are carried out."""
    before: Looked = look(ENVIRON)
    for each in (way, *more):
        carried_out(each, look(ENVIRON), HOME, ENVIRON)
    held, wrong = differences(way, before.facts, look(ENVIRON).facts, unlike=unlike)
    assert wrong == [], wrong
    return held


def _registers_and_refreshes() -> None:
    own = Path("/usr/local/nvidia/lib64")
    build_libcuda(own, version=DRIVER, cuda=13000)
    held = _predicted(RegisterFolder(str(own), "/etc/ld.so.conf.d/nvidia-driver.conf"))
    assert {"libcuda.would_load.path", "libcuda.would_load.version", "libcuda.out_of_reach"} <= set(held), held


def _takes_a_compat_folder_out_of_ldconfig() -> None:
    own, compat = Path("/usr/local/nvidia/lib64"), Path("/usr/local/cuda-12.8/compat")
    build_libcuda(own, version=DRIVER, cuda=13000)
    build_libcuda(compat, version="570.86.10", cuda=12080, answer="803")
    for name, folder in (("00-cuda-compat", compat), ("nvidia-driver", own)):
        Path(f"/etc/ld.so.conf.d/{name}.conf").write_text(f"{folder}\n")
    subprocess.run(["ldconfig"], check=True)
    held = _predicted(Unwire((str(compat),), WiredBy.LOADER_CONF, "/etc/ld.so.conf.d/00-cuda-compat.conf"))
    assert {"libcuda.would_load.path", "libcuda.candidates", "libcuda.compat_conf_files"} <= set(held), held


def _makes_the_cache_anew() -> None:
    own, gone = Path("/usr/local/nvidia/lib64"), Path("/usr/local/old/lib64")
    for name, folder in (("00-old", gone), ("nvidia-driver", own)):
        build_libcuda(folder, version=DRIVER, cuda=13000)
        Path(f"/etc/ld.so.conf.d/{name}.conf").write_text(f"{folder}\n")
    subprocess.run(["ldconfig"], check=True)
    subprocess.run(["rm", "-r", str(gone)], check=True)
    held = _predicted(RefreshLoaderCache())
    assert {"libcuda.would_load.path", "libcuda.candidates.0.found_by"} <= set(held), held


def _moves_an_empty_library_aside() -> None:
    own, empty = Path("/usr/local/nvidia/lib64"), Path("/usr/local/empty")
    build_libcuda(own, version=DRIVER, cuda=13000)
    empty.mkdir()
    (empty / "libcuda.so.1").touch()
    ENVIRON["LD_LIBRARY_PATH"] = f"{empty}:{own}"
    held = _predicted(RemoveFiles((f"{empty}/libcuda.so.1",)))
    assert {"libcuda.would_load.path", "libcuda.candidates"} <= set(held), held


def _installs_and_removes_a_compat_package() -> None:
    repository = Repository(HOME / "apt")
    tree = repository.folder / "compat"
    build_libcuda(tree / "usr/local/cuda-13.0/compat", version="580.126.20", cuda=13000)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN/control").write_text(
        "Package: cuda-compat-13-0\nVersion: 580.126.20-1\nArchitecture: all\n"
        "Maintainer: tests <tests@example.invalid>\nDescription: stand-in\n"
    )
    deb = repository.packages / "cuda-compat-13-0_580.126.20-1_all.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(tree), str(deb)], check=True, capture_output=True)
    repository.add("other", "1.0", files={f"{HOME}/files/other": "x"})  # signs the index with both
    ENVIRON["APT_CONFIG"] = str(repository.config)
    subprocess.run(["apt-get", "update"], check=True, capture_output=True, env={**os.environ, **ENVIRON})
    installs = InstallPackages(("cuda-compat-13-0",), ("/usr/local/cuda-13.0/compat/libcuda.so.1",))
    # Which build the repository has today no table knows.
    held = _predicted(installs, unlike=("compat.0.version", "compat.0.library"))
    assert {"compat.0.folder", "compat.0.package"} <= set(held), held
    ENVIRON["LD_LIBRARY_PATH"] = "/usr/local/cuda-13.0/compat"
    held = _predicted(RemovePackages(("cuda-compat-13-0",)), unlike=("libcuda.ld_library_path",))
    assert {"compat", "libcuda.candidates"} <= set(held), held


def _loads_a_module_and_makes_nodes() -> None:
    held = _predicted(LoadModules(("nvidia_uvm",)), MakeDeviceNodes())
    assert "driver.uvm_loaded" in held, held
    assert any(path.startswith("driver.nodes") for path in held), held


def _turns_hmm_off() -> None:
    subprocess.run(["modprobe", "nvidia_uvm"], check=True, env=ENVIRON)
    option = SetModuleOption("nvidia_uvm", "uvm_disable_hmm=1", "/etc/modprobe.d/nvidia-uvm.conf")
    assert _predicted(option, ReloadModules(("nvidia_uvm",))) == ["driver.uvm_disable_hmm"]


def _builds_a_module() -> None:
    assert _predicted(BuildModules(KERNEL, "")) == ["driver.module_file"]


def _configures_docker() -> None:
    assert _predicted(ConfigureContainers("docker")) == ["container.runtime.nvidia_runtime"]


def _describes_the_gpus_anew() -> None:
    file = Path("/etc/cdi/nvidia.yaml")
    file.parent.mkdir()
    file.write_text("path: /usr/lib/libcuda.so.535.183.01\n")
    assert _predicted(ConfigureContainers("podman", str(file))) == ["container.runtime.cdi_driver"]


def _chooses_the_open_modules() -> None:
    file = Path("/etc/nvidia/kernel.conf")
    file.parent.mkdir(exist_ok=True)
    file.write_text("# which modules: those of the kernel\nMODULE_VARIANT=kernel\n")
    way = ChooseModules(Flavour.OPEN, str(file), "kernel-open", "kernel")
    held = _predicted(way, unlike=("driver.module_kind",))  # that of the module that is built and loaded after it
    assert held == ["place.boot.module_variant"], held


def _makes_an_imex_channel() -> None:
    """Channels are facts only where a GPU says that it is on a fabric: here the node itself is looked at."""
    carried_out(MakeImexChannel(), look(ENVIRON), HOME, ENVIRON)
    node = os.stat("/dev/nvidia-caps-imex-channels/channel0")
    assert (stat.S_ISCHR(node.st_mode), os.major(node.st_rdev), os.minor(node.st_rdev)) == (True, 511, 0)


def _moves_the_pipes_of_a_dead_mps_aside() -> None:
    folder = Path("/run/nvidia-mps")
    folder.mkdir()
    os.mkfifo(folder / "control")
    ENVIRON["CUDA_MPS_PIPE_DIRECTORY"] = str(folder)
    assert look(ENVIRON).facts.gpus.mps_control == Known(f"{folder}/control", f"{folder}/control")
    _predicted(RemoveFiles((str(folder),), as_root=True))
    assert isinstance(look(ENVIRON).facts.gpus.mps_control, Unknown)


def _starts_a_service() -> None:
    assert _predicted(StartService("nvidia-persistenced")) == ["health.persistence_daemon"]


def _turns_mig_off() -> None:
    held = _predicted(TurnOffMig("0"), unlike=("gpus.devices.0.mig_pending",))
    assert held == ["gpus.devices.0.mig_mode"], held


@pytest.mark.parametrize(
    "work",
    [
        _registers_and_refreshes,
        _takes_a_compat_folder_out_of_ldconfig,
        _makes_the_cache_anew,
        _moves_an_empty_library_aside,
        _installs_and_removes_a_compat_package,
        _loads_a_module_and_makes_nodes,
        _turns_hmm_off,
        _builds_a_module,
        _configures_docker,
        _describes_the_gpus_anew,
        _chooses_the_open_modules,
        _makes_an_imex_channel,
        _moves_the_pipes_of_a_dead_mps_aside,
        _starts_a_service,
        _turns_mig_off,
    ],
    ids=lambda work: work.__name__.strip("_"),
)
def test_what_was_predicted_is_what_is_seen(work: Callable[[], None]) -> None:
    _in_a_machine(work)
