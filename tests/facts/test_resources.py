"""Resources: what this process may use, which in a container is less than what the machine has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.known import Known, Unknown
from firstlight.facts.resources import Mount, ResourceFacts, probe_resources
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from firstlight.records import decode, encode

GIB = 1 << 30
MEMINFO = "MemTotal:       2113536000 kB\nMemFree:        1000000 kB\nMemAvailable:   2000000000 kB\n"
V2 = "cgroup /sys/fs/cgroup cgroup2 ro,nosuid,nodev,noexec,relatime,nsdelegate 0 0\n"
V1 = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
RUNPOD_MOUNTS = (
    "overlay / overlay rw,relatime,lowerdir=/var/lib/docker/x 0 0\n"
    "tmpfs /dev/shm tmpfs rw,size=65536k 0 0\n"
    "/dev/nvme1n1 /workspace xfs rw,relatime,prjquota 0 0\n"
    "/dev/nvme0n1p2 /etc/hosts ext4 rw,relatime 0 0\n" + V2
)


def put(root: Path, path: str, text: str = "") -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def machine_of(root: Path, *, cwd: str = "/workspace/run", arch: str = "x86_64") -> LiveMachine:
    return LiveMachine(root=str(root), environ={}, host=replace(LiveMachine().host, home="/root", cwd=cwd, arch=arch))


def runpod(root: Path) -> LiveMachine:
    for folder in ("workspace/run", "dev/shm", "root", "tmp"):
        (root / folder).mkdir(parents=True)
    put(root, "/proc/self/mounts", RUNPOD_MOUNTS)
    put(root, "/proc/self/cgroup", "0::/\n")
    put(root, "/proc/meminfo", MEMINFO)
    put(root, "/sys/fs/cgroup/memory.max", f"{188 * GIB}\n")
    put(root, "/sys/fs/cgroup/cpu.max", "1630000 100000\n")
    put(root, "/proc/self/status", "Cpus_allowed:\tff\nCpus_allowed_list:\t0-3,8-31\n")
    put(root, "/proc/cpuinfo", "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n")
    return machine_of(root)


def test_a_pod_may_use_its_limits_and_not_the_hosts_totals(tmp_path: Path) -> None:
    facts = probe_resources(runpod(tmp_path))
    assert facts.memory_total_bytes == Known(2113536000 << 10, seen_in="/proc/meminfo")
    assert facts.memory_available_bytes == Known(2000000000 << 10, seen_in="/proc/meminfo")
    assert facts.memory_limit_bytes == Known(188 * GIB, seen_in="/sys/fs/cgroup/memory.max")
    assert facts.memory_bytes == facts.memory_limit_bytes
    assert facts.processors_allowed == Known(28, seen_in="/proc/self/status")
    assert facts.processor_quota == Known(16.3, seen_in="/sys/fs/cgroup/cpu.max")
    assert facts.processors == facts.processor_quota
    assert facts.processor_model == Known("Intel(R) Xeon(R) Platinum 8480+", seen_in="/proc/cpuinfo")


def test_disks_are_told_per_place_with_the_mount_that_holds_them(tmp_path: Path) -> None:
    facts = probe_resources(runpod(tmp_path), site_packages=("/workspace/run/venv", "/gone"))
    mounts = {disk.path: disk.mount for disk in facts.disks}
    volume = Known(Mount("/workspace", "xfs", "/dev/nvme1n1", read_only=False), seen_in="/proc/self/mounts")
    assert mounts == {
        "/": Known(Mount("/", "overlay", "not local", read_only=False), seen_in="/proc/self/mounts"),
        "/tmp": Known(Mount("/", "overlay", "not local", read_only=False), seen_in="/proc/self/mounts"),
        "/workspace": volume,
        "/dev/shm": Known(Mount("/dev/shm", "tmpfs", "not local", read_only=False), seen_in="/proc/self/mounts"),
        "/root": Known(Mount("/", "overlay", "not local", read_only=False), seen_in="/proc/self/mounts"),
        "/workspace/run": volume,
    }
    assert all(disk.total_bytes >= disk.free_bytes > 0 for disk in facts.disks)
    assert facts.persistent_volume == Known("/workspace", seen_in="/proc/self/mounts (xfs)")
    assert isinstance(facts.shm_bytes, Known)


def test_of_two_mounts_at_one_point_the_later_counts(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    put(
        tmp_path,
        "/proc/self/mounts",
        "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /workspace ext4 rw 0 0\nx /workspace tmpfs rw\n",
    )
    mounts = {disk.path: disk.mount for disk in probe_resources(machine_of(tmp_path)).disks}
    assert mounts["/workspace"] == Known(
        Mount("/workspace", "tmpfs", "not local", read_only=False), "/proc/self/mounts"
    )


def test_a_folder_whose_name_only_starts_like_a_mount_is_not_on_it(tmp_path: Path) -> None:
    (tmp_path / "workspace2").mkdir()
    put(
        tmp_path,
        "/proc/self/mounts",
        "/dev/sda1 / ext4 rw 0 0\n/dev/sdb1 /work ext4 rw 0 0\n/dev/sdc1 /workspace xfs rw 0 0\n",
    )
    mounts = {disk.path: disk.mount for disk in probe_resources(machine_of(tmp_path, cwd="/workspace2")).disks}
    assert mounts["/workspace2"] == Known(Mount("/", "ext4", "/dev/sda1", read_only=False), "/proc/self/mounts")


def test_the_name_of_a_file_server_stays_out(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    put(tmp_path, "/proc/self/mounts", "filer7.corp.example:/vol/ada /workspace nfs4 ro,addr=10.1.2.3 0 0\n")
    facts = probe_resources(machine_of(tmp_path))
    assert "filer7" not in repr(facts)
    [workspace] = [disk for disk in facts.disks if disk.path == "/workspace"]
    assert workspace.mount == Known(Mount("/workspace", "nfs4", "not local", read_only=True), "/proc/self/mounts")
    assert isinstance(facts.persistent_volume, Unknown)


@pytest.mark.parametrize(
    ("line", "volume"),
    [
        ("/dev/sdb1 /data ext4 rw 0 0\n", "/data"),
        ("mfs#server:9421 /runpod-volume fuse rw 0 0\n", "/runpod-volume"),
        ("/dev/sdb1 /mnt/my\\040disk ext4 rw 0 0\n", "/mnt/my disk"),
        ("tmpfs /workspace tmpfs rw 0 0\n", ""),
        ("C:\\134 /mnt/c 9p rw 0 0\n", ""),
        ("/dev/sdb1 /workspace ext4 rw 0 0\noverlay /workspace overlay rw 0 0\n", ""),
        ("/dev/sdb1 /home ext4 rw 0 0\n", ""),
    ],
)
def test_a_volume_that_outlives_the_container_is_a_mount_of_its_own(tmp_path: Path, line: str, volume: str) -> None:
    put(tmp_path, "/proc/self/mounts", line)
    found = probe_resources(machine_of(tmp_path)).persistent_volume
    assert (found.value if isinstance(found, Known) else "") == volume


def test_under_cgroup_v1_the_smallest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/mounts", V1)
    put(tmp_path, "/proc/self/cgroup", "4:memory:/slurm/uid_1000/job_7\n3:cpu,cpuacct:/slurm/uid_1000\n")
    put(tmp_path, "/proc/meminfo", MEMINFO)
    memory = "/sys/fs/cgroup/memory/slurm/uid_1000"
    put(tmp_path, f"{memory}/job_7/memory.limit_in_bytes", "9223372036854771712\n")
    put(tmp_path, f"{memory}/memory.limit_in_bytes", f"{64 * GIB}\n")
    put(tmp_path, "/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{512 * GIB}\n")
    put(tmp_path, "/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/cpu.cfs_quota_us", "250000\n")
    put(tmp_path, "/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/cpu.cfs_period_us", "100000\n")
    facts = probe_resources(machine_of(tmp_path))
    assert facts.memory_limit_bytes == Known(64 * GIB, seen_in=f"{memory}/memory.limit_in_bytes")
    assert facts.processor_quota == Known(2.5, seen_in="/sys/fs/cgroup/cpu,cpuacct/slurm/uid_1000/cpu.cfs_quota_us")


def test_a_v1_container_whose_path_is_the_hosts_falls_back_to_the_root_of_the_mount(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/mounts", V1)
    put(tmp_path, "/proc/self/cgroup", "4:memory:/docker/0123abc\n")
    put(tmp_path, "/sys/fs/cgroup/memory/memory.limit_in_bytes", f"{32 * GIB}\n")
    facts = probe_resources(machine_of(tmp_path))
    assert facts.memory_limit_bytes == Known(32 * GIB, seen_in="/sys/fs/cgroup/memory/memory.limit_in_bytes")


def test_under_cgroup_v2_a_limit_of_a_parent_counts(tmp_path: Path) -> None:
    put(tmp_path, "/proc/self/mounts", V2)
    put(tmp_path, "/proc/self/cgroup", "0::/user.slice/user-1000.slice\n")
    put(tmp_path, "/sys/fs/cgroup/user.slice/user-1000.slice/memory.max", "max\n")
    put(tmp_path, "/sys/fs/cgroup/user.slice/memory.max", f"{16 * GIB}\n")
    put(tmp_path, "/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n")
    facts = probe_resources(machine_of(tmp_path))
    assert facts.memory_limit_bytes == Known(16 * GIB, seen_in="/sys/fs/cgroup/user.slice/memory.max")
    assert facts.processor_quota == Unknown("no cgroup limits processor time here")


@pytest.mark.parametrize("path", ["/../../outside", "/" + "a/" * 100, "", "\0"])
def test_a_control_group_path_out_of_this_world_is_the_root(tmp_path: Path, path: str) -> None:
    put(tmp_path, "/proc/self/mounts", V2)
    put(tmp_path, "/proc/self/cgroup", f"0::{path}\n")
    put(tmp_path, "/sys/fs/cgroup/memory.max", f"{8 * GIB}\n")
    facts = probe_resources(machine_of(tmp_path))
    assert facts.memory_limit_bytes == Known(8 * GIB, seen_in="/sys/fs/cgroup/memory.max")


@pytest.mark.parametrize("limit", ["", "0\n", "-1\n", "lots\n", "9" * 200 + "\n", "9223372036854771712\n"])
def test_a_limit_that_is_none_leaves_the_machines_memory(tmp_path: Path, limit: str) -> None:
    put(tmp_path, "/proc/self/mounts", V2)
    put(tmp_path, "/proc/self/cgroup", "0::/\n")
    put(tmp_path, "/proc/meminfo", MEMINFO)
    put(tmp_path, "/sys/fs/cgroup/memory.max", limit)
    facts = probe_resources(machine_of(tmp_path))
    assert facts.memory_limit_bytes == Unknown("no cgroup limits memory here")
    assert facts.memory_bytes == facts.memory_total_bytes


@pytest.mark.parametrize("limit", ["0 0\n", "100000 0\n", "max\n", "100000\n", "x y\n"])
def test_a_processor_quota_that_makes_no_sense_is_none(tmp_path: Path, limit: str) -> None:
    put(tmp_path, "/proc/self/mounts", V2)
    put(tmp_path, "/proc/self/cgroup", "0::/\n")
    put(tmp_path, "/sys/fs/cgroup/cpu.max", limit)
    assert isinstance(probe_resources(machine_of(tmp_path)).processor_quota, Unknown)


@pytest.mark.parametrize(
    ("ranges", "count"), [("0", 1), ("0-127", 128), ("0,2,4-7", 6), ("5-3", 0), ("-", 0), ("1,,2", 0)]
)
def test_allowed_processors_are_counted(tmp_path: Path, ranges: str, count: int) -> None:
    put(tmp_path, "/proc/self/status", f"Cpus_allowed_list:\t{ranges}\n")
    allowed = probe_resources(machine_of(tmp_path)).processors_allowed
    assert (allowed.value if isinstance(allowed, Known) else 0) == count


def test_an_arm_processor_is_named_by_its_numbers(tmp_path: Path) -> None:
    put(tmp_path, "/proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n")
    facts = probe_resources(machine_of(tmp_path, arch="aarch64"))
    assert facts.processor_model == Known("Arm implementer 0x41 part 0xd4f", seen_in="/proc/cpuinfo")


@pytest.mark.parametrize("text", ["", "CPU implementer\t: 0x41\n", "model name\t:\n", "\0" * 5000])
def test_a_processor_without_a_name_is_unknown(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/proc/cpuinfo", text)
    assert probe_resources(machine_of(tmp_path)).processor_model == Unknown("/proc/cpuinfo names no model")


@pytest.mark.parametrize("text", ["", "one two\n", "\0" * 500, "a b c d\n" * 3, "\\777 \\777 x rw\n"])
def test_absurd_mounts_do_no_harm(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/proc/self/mounts", text)
    facts = probe_resources(machine_of(tmp_path))
    assert [disk.mount for disk in facts.disks] == [Unknown("not in /proc/self/mounts")]


def test_a_bare_tree_gives_unknowns(tmp_path: Path) -> None:
    facts = probe_resources(machine_of(tmp_path))
    assert facts.memory_bytes == Unknown("/proc/meminfo: no such file")
    assert facts.processors == Unknown("/proc/self/status has no Cpus_allowed_list")
    assert facts.processor_model == Unknown("/proc/cpuinfo names no model")
    assert facts.shm_bytes == Unknown("no /dev/shm")


def test_this_machine_has_memory_processors_and_disk() -> None:
    facts = probe_resources(LiveMachine())
    assert isinstance(facts.memory_bytes, Known)
    assert isinstance(facts.processors, Known)
    assert facts.processors.value > 0
    assert facts.disks[0].path == "/"
    assert isinstance(facts.disks[0].mount, Known)


def test_the_answer_can_be_written_down_and_replayed(tmp_path: Path) -> None:
    recording = RecordingMachine(runpod(tmp_path))
    facts = probe_resources(recording)
    assert probe_resources(RecordedMachine(recording.evidence)) == facts
    assert decode(ResourceFacts, json.loads(json.dumps(encode(facts))), "resources") == facts
