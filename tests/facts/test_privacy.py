"""No host, user, address, UUID or token in any document without --identify: all of them are planted here."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.collect import collect
from firstlight.facts.document import pseudonyms_of, read_machine_or_facts, renamed, to_text, write_recording
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordingMachine

UUID = "5ebe9f4c-1a2b-3c4d-5e6f-0123456789ab"
OTHER_UUID = "deadbeef-1a2b-3c4d-5e6f-0123456789ab"
SECRETS = {
    "host": "calcium-seven",
    "user": "mcurie",
    "other user": "pcurie",
    "address": "10.11.12.13",
    "second address": "192.168.77.9",
    "gpu uuid": UUID,
    "other uuid": OTHER_UUID,
    "hub token": "hf_PlantedTokenPlantedToken",
    "index token": "PlantedIndexPassword",
    "proxy host": "proxy.planted.example",
    "index host": "packages.planted.example",
    "pod": "planted-pod-name",
    "mail": "marie@planted.example",
    "container id": "ab" * 32,
}
ENVIRONMENT = {
    "PATH": "/home/mcurie/bin:/usr/bin:/bin",
    "HOME": "/home/mcurie",
    "HF_TOKEN": SECRETS["hub token"],
    "HTTPS_PROXY": "http://mcurie:PlantedIndexPassword@proxy.planted.example:3128",
    "PIP_INDEX_URL": "https://mcurie:PlantedIndexPassword@packages.planted.example/simple",
    "UV_INDEX": "planted=https://packages.planted.example/simple",
    "CUDA_VISIBLE_DEVICES": f"GPU-{UUID},MIG-{OTHER_UUID}",
    "LD_LIBRARY_PATH": "/home/mcurie/lib:/home/pcurie/cuda/lib64",
    "PYTHONPATH": "/home/mcurie/code",
    "VIRTUAL_ENV": "/home/mcurie/venv",
    "RUNPOD_POD_ID": SECRETS["pod"],
    "SLURM_JOB_NODELIST": SECRETS["host"],
    "MASTER_ADDR": SECRETS["address"],
    "CUDA_HOME": "/home/pcurie/cuda",
    "CC": "/home/mcurie/bin/gcc --sysroot=//10.11.12.13/x",
    "NVIDIA_VISIBLE_DEVICES": f"GPU-{UUID}",
    "PIP_CONFIG_FILE": "/home/mcurie/pip.conf",
}
FILES = {
    "/etc/hostname": "calcium-seven\n",
    "/etc/pip.conf": "[global]\nindex-url = https://mcurie:PlantedIndexPassword@packages.planted.example/simple\n",
    "/home/mcurie/pip.conf": "[global]\nextra-index-url = https://10.11.12.13/simple\n",
    "/proc/1/environ": f"HF_TOKEN={SECRETS['hub token']}\0RUNPOD_POD_ID={SECRETS['pod']}\0CUDA_HOME=/home/mcurie/x\0",
    "/proc/1/cgroup": f"0::/docker/{SECRETS['container id']}\n",
    "/proc/self/cgroup": f"0::/docker/{SECRETS['container id']}\n",
    "/proc/self/mounts": "192.168.77.9:/export/mcurie /home/mcurie nfs4 rw,addr=192.168.77.9 0 0\n"
    "/dev/sda1 / ext4 rw 0 0\n",
    "/proc/mounts": "192.168.77.9:/export/mcurie /home/mcurie nfs4 rw,addr=192.168.77.9 0 0\n",
    "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  "
    "(mcurie@calcium-seven)  Tue\n",
    "/proc/driver/nvidia/gpus/0000:18:00.0/information": f"Model: \t NVIDIA H100\nGPU UUID: \t GPU-{UUID}\n"
    "Bus Location: \t 0000:18:00.0\n",
    "/sys/module/nvidia/version": "580.95.05\n",
    "/var/log/kern.log": "Nov 15 02:38:25 calcium-seven kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=77, name=mcurie, "
    "GPU has fallen off the bus\n",
    "/home/mcurie/venv/pyvenv.cfg": "home = /home/mcurie/.pyenv/versions/3.12.3/bin\nversion = 3.12.3\n",
    "/home/mcurie/venv/lib/python3.12/site-packages/torch/version.py": "__version__ = '2.9.0+cu130'\ncuda = '13.0'\n",
    "/home/mcurie/venv/lib/python3.12/site-packages/torch-2.9.0+cu130.dist-info/METADATA": "Name: torch\n"
    "Version: 2.9.0+cu130\nAuthor-email: marie@planted.example\n\n",
    "/home/mcurie/venv/lib/python3.12/site-packages/torch-2.9.0+cu130.dist-info/direct_url.json": '{"url": '
    '"https://mcurie:PlantedIndexPassword@packages.planted.example/torch.whl"}',
    "/home/mcurie/venv/lib/python3.12/site-packages/mcurie.pth": "import os; "
    "os.environ['X'] = 'hf_PlantedTokenPlantedToken'\n",
    "/home/mcurie/project/uv.lock": '[[package]]\nname = "torch"\nversion = "2.9.0"\n'
    'source = { registry = "https://packages.planted.example/simple" }\n',
    "/home/mcurie/bin/gcc": "#!/bin/sh\n"
    "echo 13.3.0 mcurie@calcium-seven hf_PlantedTokenPlantedToken >&2\necho 13.3.0\n",
    "/home/mcurie/bin/nvidia-smi": "#!/bin/sh\n"
    f"echo 0, NVIDIA H100, 9.0, 81559, 580.95.05, GPU-{UUID}, 00000000:18:00.0\n",
    "/home/mcurie/bin/dmesg": "#!/bin/sh\n"
    "echo 'calcium-seven kernel: NVRM: Xid (PCI:0000:18:00): 79, name=mcurie, 10.11.12.13'\n",
    "/etc/docker/daemon.json": '{"registry-mirrors": ["https://packages.planted.example"], "runtimes": {"nvidia": {}}}',
    "/etc/group": "sudo:x:27:mcurie,pcurie\n",
    "/proc/self/status": "Uid:\t1000\t1000\t1000\t1000\nGroups:\t27\nCpus_allowed_list:\t0-3\n",
}


@pytest.fixture
def planted(tmp_path: Path) -> LiveMachine:
    root = tmp_path / "root"
    for path, text in FILES.items():
        where = root / path.lstrip("/")
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(text)
        if "/bin/" in path:
            where.chmod(where.stat().st_mode | stat.S_IXUSR)
    host = replace(
        LiveMachine().host,
        hostname="calcium-seven",
        user="mcurie",
        home="/home/mcurie",
        cwd="/home/mcurie/project",
        uid=1000,
        kernel_release="6.8.0",
        arch="x86_64",
        python_executable="/home/mcurie/venv/bin/python3",
        python_prefix="/home/mcurie/venv",
        python_base_prefix="/home/mcurie/.pyenv/versions/3.12.3",
    )
    environ = {**ENVIRONMENT, "PATH": f"{root}/home/mcurie/bin:/home/mcurie/bin:/usr/bin:/bin"}
    return LiveMachine(root=str(root), environ=environ, host=host)


def _leaks(text: str) -> list[str]:
    return [name for name, secret in SECRETS.items() if secret in text]


def test_nothing_planted_reaches_the_document_or_the_recording(planted: LiveMachine, tmp_path: Path) -> None:
    recording = RecordingMachine(planted)
    facts = collect(recording)
    folder = str(tmp_path / "recording")
    path = write_recording(folder, recording.evidence, pseudonyms_of(facts, planted.host))
    document = to_text(renamed(facts, planted.host))
    assert "580.95.05" in document, "the planted machine was not looked at"
    assert "2.9.0+cu130" in document
    assert _leaks(document) == []
    assert _leaks(Path(path).read_text()) == []


def test_the_replayed_document_of_the_planted_machine_is_the_live_one(planted: LiveMachine, tmp_path: Path) -> None:
    recording = RecordingMachine(planted)
    facts = collect(recording)
    folder = str(tmp_path / "recording")
    write_recording(folder, recording.evidence, pseudonyms_of(facts, planted.host))
    assert json.loads(to_text(read_machine_or_facts(folder))) == json.loads(to_text(renamed(facts, planted.host)))


def test_the_command_line_keeps_secrets_of_its_environment_out(tmp_path: Path) -> None:
    home = tmp_path / "home" / "mcurie"
    home.mkdir(parents=True)
    environ = {**os.environ, **ENVIRONMENT, "PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": ""}
    argv = [sys.executable, "-m", "firstlight", "facts", "--json", "--record", str(tmp_path / "kept")]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    for text in (done.stdout, (tmp_path / "kept" / "machine.json").read_text()):
        assert _leaks(text) == []
        for name in ("hub token", "index token", "proxy host", "index host", "address", "gpu uuid", "pod"):
            assert SECRETS[name] not in text


def test_identify_keeps_the_real_names(tmp_path: Path) -> None:
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": f"GPU-{UUID}"}
    for option, present in (("--identify", True), ("--all", False)):
        done = subprocess.run(
            [sys.executable, "-m", "firstlight", "facts", "--json", option],
            env=environ, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert (UUID in done.stdout) == present
