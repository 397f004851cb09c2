"""What each container engine leaves inside: marker files, the control group, mounts, pid 1, and who owns a library."""

from __future__ import annotations

from tools.machines.parts import SUPPOSED
from tools.machines.reconstruction import Reconstruction

_ID = "4f8c2a90b1d3"


def mounts(machine: Reconstruction, *lines: str, source: str = SUPPOSED) -> Reconstruction:
    """The mount table from lines such as 'overlay / overlay rw,relatime', in all the places where it is read."""
    table = "".join(f"{line} 0 0\n" for line in lines)
    for path in ("/proc/self/mounts", "/proc/mounts", "/proc/1/mounts"):
        machine.file(path, table, source=source)
    info = ""
    for number, line in enumerate(lines):
        device, place, kind, options = line.split(" ")
        info += f"{600 + number} 599 0:{60 + number} / {place} {options} - {kind} {device} {options}\n"
    return machine.file("/proc/self/mountinfo", info, source=source)


def bound(machine: Reconstruction, disk: str = "/dev/nvme0n1p2") -> tuple[str, ...]:
    """Mount lines for the driver's files that an engine hands in: each library and node by itself."""
    lines = ["tmpfs /proc/driver/nvidia tmpfs rw,nosuid,nodev,noexec,relatime"]
    for path in sorted(machine.files):
        name = path.rpartition("/")[2]
        if name.startswith(("libcuda.so.", "libnvidia-ml.so.")):
            lines.append(f"{disk} {path} ext4 ro,nosuid,nodev,relatime")
        elif path.startswith("/dev/nvidia"):
            lines.append(f"devtmpfs {path} devtmpfs ro,nosuid,noexec,relatime")
    return tuple(lines)


def pid_1(machine: Reconstruction, **variables: str) -> Reconstruction:
    """The environment that the container was started with, which its processes have too."""
    text = "".join(f"{name}={value}\0" for name, value in variables.items())
    return machine.file("/proc/1/environ", text, source=SUPPOSED)


def docker(machine: Reconstruction, *handed_in: str, source: str, **variables: str) -> Reconstruction:
    machine.file("/.dockerenv", "", source=source)
    machine.file("/proc/1/cgroup", "0::/\n", source=SUPPOSED)
    root = "overlay / overlay rw,relatime,lowerdir=/var/lib/docker/overlay2/l/A:/var/lib/docker/overlay2/l/B"
    mounts(
        machine,
        root,
        "proc /proc proc rw,nosuid,nodev,noexec,relatime",
        "tmpfs /dev tmpfs rw,nosuid,size=65536k",
        "shm /dev/shm tmpfs rw,nosuid,nodev,noexec,relatime,size=65536k",
        *handed_in,
    )
    pid_1(machine, PATH=machine.environ["PATH"], **variables)
    return machine.env(**variables)


def podman(
    machine: Reconstruction,
    *handed_in: str,
    source: str,
    rootless: int,
    version: str = "5.4.2",
    label: str = "unconfined",
    ids: str = "",
    **variables: str,
) -> Reconstruction:
    """`rootless` is the 0 or 1 of /run/.containerenv; `label` is the SELinux context of the process."""
    machine.file(
        "/run/.containerenv",
        f'engine="podman-{version}"\nname="job"\nid="{_ID}"\nimage="localhost/job:latest"\nrootless={rootless}\n',
        source=source,
    )
    machine.file("/proc/1/cgroup", "0::/\n", source=SUPPOSED)
    machine.file("/proc/self/attr/current", label, source=source)
    ids = ids or (
        "         0       1000          1\n         1     100000      65536\n"
        if rootless
        else "         0          0 4294967295\n"
    )
    machine.file("/proc/self/uid_map", ids, source=SUPPOSED)
    machine.file("/proc/self/gid_map", ids, source=SUPPOSED)
    context = label.replace(":system_r:container_t:", ":object_r:container_file_t:")
    options = f"rw,context={context},relatime" if "container_t" in label else "rw,relatime"
    store = "/home/user-a/.local/share/containers/storage" if rootless else "/var/lib/containers/storage"
    mounts(
        machine,
        f"overlay / overlay {options},lowerdir={store}/overlay/l/A",
        "proc /proc proc rw,nosuid,nodev,noexec,relatime",
        "tmpfs /dev tmpfs rw,nosuid,size=65536k",
        *handed_in,
    )
    pid_1(machine, container="podman", PATH=machine.environ["PATH"], **variables)
    return machine.env(container="podman", **variables)


def kubernetes(machine: Reconstruction, *handed_in: str, source: str, **variables: str) -> Reconstruction:
    """A pod under containerd, with its service account."""
    pod = "kubepods-besteffort-pod1f0c.slice/cri-containerd-4f8c.scope"
    machine.file("/proc/1/cgroup", f"0::/kubepods.slice/kubepods-besteffort.slice/{pod}\n", source=source)
    for name, text in (("namespace", "default"), ("token", "-"), ("ca.crt", "-")):
        machine.file(f"/var/run/secrets/kubernetes.io/serviceaccount/{name}", text, source=SUPPOSED)
    machine.file("/etc/resolv.conf", "search default.svc.cluster.local svc.cluster.local\n", source=SUPPOSED)
    root = "overlay / overlay rw,relatime,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/1/fs"
    mounts(
        machine,
        root,
        "proc /proc proc rw,nosuid,nodev,noexec,relatime",
        "tmpfs /dev tmpfs rw,nosuid,size=65536k",
        "tmpfs /run/secrets/kubernetes.io/serviceaccount tmpfs ro,relatime",
        *handed_in,
    )
    service = {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_PORT": "tcp://10.43.0.1:443", **variables}
    pid_1(machine, PATH=machine.environ["PATH"], **service)
    return machine.env(**service)


def apptainer(
    machine: Reconstruction, *handed_in: str, source: str, image: str, old: int = 0, **variables: str
) -> Reconstruction:
    """`old` is 1 for Singularity before it was called Apptainer; the host's /dev is there in any case."""
    for name in ("runscript", "labels.json", "actions/exec", "env/91-environment.sh"):
        machine.file(f"/.singularity.d/{name}", "", source=source)
    names = ("SINGULARITY",) if old else ("APPTAINER", "SINGULARITY")
    for name in names:
        machine.env(**{f"{name}_CONTAINER": image, f"{name}_NAME": image.rpartition("/")[2]})
    if not old:
        machine.env(APPTAINER_COMMAND="exec")
    home = machine.host.home
    mounts(
        machine,
        "overlay / overlay ro,nosuid,nodev,relatime,lowerdir=/var/lib/apptainer/mnt/session/overlay-lowerdir",
        "devtmpfs /dev devtmpfs rw,nosuid,size=131072k",
        "proc /proc proc rw,nosuid,nodev,noexec,relatime",
        f"nfs:/home {home} nfs rw,nosuid,nodev,relatime",
        *handed_in,
    )
    return machine.env(**variables)


def enroot(machine: Reconstruction, *handed_in: str, source: str, **variables: str) -> Reconstruction:
    """A pyxis container in a Slurm job: the host's /dev, its own root, and enroot's lock."""
    machine.file("/.lock", "", source=SUPPOSED)
    mounts(
        machine,
        "overlay / overlay rw,nosuid,nodev,relatime,lowerdir=/run/enroot/user-1000/overlay",
        "tmpfs /.lock tmpfs rw,nosuid,nodev,relatime",
        "devtmpfs /dev devtmpfs rw,nosuid,size=131072k",
        "proc /proc proc rw,nosuid,nodev,noexec,relatime",
        *handed_in,
        source=source,
    )
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    return machine.env(SLURM_JOB_ID="1479307", SLURM_JOB_PARTITION="gpu", **variables)


def lxc(
    machine: Reconstruction, *handed_in: str, source: str, manager: str, root: str, privileged: int = 0
) -> Reconstruction:
    """A system container; manager is lxc, lxd, incus or proxmox, root the mount of its own disk."""
    machine.file("/run/systemd/container", "lxc\n", source=source)
    machine.file("/proc/1/environ", "container=lxc\0container_ttys=\0", source=source)
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    machine.file("/proc/1/comm", "systemd\n", source=SUPPOSED)
    ids = "0 0 4294967295" if privileged else "0 100000 65536"
    machine.file("/proc/self/uid_map", f"{ids}\n", source=SUPPOSED)
    machine.file("/proc/self/gid_map", f"{ids}\n", source=SUPPOSED)
    for name in {"lxd": ("lxd",), "incus": ("incus",)}.get(manager, ()):
        machine.socket(f"/dev/{name}/sock", source=source)
    if manager == "proxmox":
        machine.file("/etc/network/interfaces", "auto lo\n# --- BEGIN PVE ---\n", source=SUPPOSED)
        machine.file(
            "/etc/resolv.conf", "# --- BEGIN PVE ---\nnameserver 192.168.1.1\n# --- END PVE ---\n", source=SUPPOSED
        )
    return mounts(
        machine,
        root,
        "none /dev tmpfs rw,relatime,size=492k,mode=755",
        "proc /proc proc rw,nosuid,nodev,noexec,relatime",
        "lxcfs /proc/cpuinfo fuse.lxcfs rw,nosuid,nodev,relatime",
        "lxcfs /proc/meminfo fuse.lxcfs rw,nosuid,nodev,relatime",
        *handed_in,
        source=source,
    )


def nspawn(machine: Reconstruction, *handed_in: str, source: str) -> Reconstruction:
    """A container booted by systemd-nspawn; its /sys has no module folder unless one is bound."""
    machine.file("/run/systemd/container", "systemd-nspawn\n", source=source)
    machine.file("/run/host/container-manager", "systemd-nspawn\n", source=source)
    machine.file(
        "/proc/1/environ", "container=systemd-nspawn\0container_uuid=0\0NOTIFY_SOCKET=/run/host/notify\0", source=source
    )
    machine.file("/proc/1/cgroup", "0::/init.scope\n", source=SUPPOSED)
    machine.file("/proc/1/comm", "systemd\n", source=SUPPOSED)
    return mounts(
        machine,
        "/dev/sda2 / ext4 rw,relatime",
        "tmpfs /dev tmpfs rw,nosuid,size=4096k,mode=755",
        "tmpfs /sys tmpfs ro,nosuid,nodev,noexec,relatime,mode=555",
        "tmpfs /run/host tmpfs ro,nosuid,nodev,mode=755",
        "proc /proc proc rw,nosuid,nodev,noexec,relatime",
        *handed_in,
        source=source,
    )


def dpkg_owns(machine: Reconstruction, package: str, version: str, *paths: str, source: str) -> Reconstruction:
    """A package of Debian's or Ubuntu's that holds these files."""
    machine.file(f"/var/lib/dpkg/info/{package}:amd64.list", "".join(f"{path}\n" for path in paths), source=source)
    status = machine.files.get("/var/lib/dpkg/status", b"").decode()
    stanza = f"Package: {package}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
    machine.file("/var/lib/dpkg/status", status + stanza, source=source)
    for path in paths:
        machine.command(f"dpkg -S {path}", f"{package}:amd64: {path}\n")
    return machine


def dpkg_knows_not(machine: Reconstruction, *paths: str) -> Reconstruction:
    machine.file(
        "/var/lib/dpkg/status", "Package: libc6\nStatus: install ok installed\nVersion: 2\n\n", source=SUPPOSED
    )
    for path in paths:
        machine.command(f"dpkg -S {path}", "", status=1, stderr=f"dpkg-query: no path found matching pattern {path}\n")
    return machine


def rpm_owns(machine: Reconstruction, package: str, *paths: str, source: str) -> Reconstruction:
    """A package such as nvidia-driver-cuda-libs-3:520.61.05-1.el8.x86_64 that holds these files."""
    machine.file("/var/lib/rpm/rpmdb.sqlite", f"SQLite format 3\0{package}\0", source=source)
    for path in paths:
        machine.command(f"rpm -qf {path}", f"{package}\n")
    return machine


def rpm_knows_not(machine: Reconstruction, *paths: str) -> Reconstruction:
    machine.file("/var/lib/rpm/rpmdb.sqlite", "SQLite format 3\0glibc-2.28-1.x86_64\0", source=SUPPOSED)
    for path in paths:
        machine.command(f"rpm -qf {path}", f"file {path} is not owned by any package\n", status=1)
    return machine
