"""No name, address, device id or secret stays in a document; versions and paths do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.facts.pseudonyms import Pseudonyms
from firstlight.machine import Host
from firstlight.machine.live import LiveMachine

UUID = "GPU-5ebe9f4c-1a2b-3c4d-5e6f-0123456789ab"
HOST: Host = replace(LiveMachine().host, hostname="calcium-7.lab.example.net", user="mcurie", home="/home/mcurie")
NAMES = Pseudonyms.of(HOST, [UUID])


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("/home/mcurie/venv/lib", "/home/user-a/venv/lib"),
        ("/home/pcurie/cuda", "/home/user-b/cuda"),
        ("mcurie", "user-a"),
        ("kernel: calcium-7 NVRM", "kernel: host-a NVRM"),
        ("calcium-7.lab.example.net", "host-a"),
        (UUID, "gpu-0"),
        (f"0,{UUID}", "0,gpu-0"),
        ("GPU-00000000-1111-2222-3333-444444444444", "gpu-other"),
        ("MIG-00000000-1111-2222-3333-444444444444", "mig-other"),
        ("id 00000000-1111-2222-3333-444444444444", "id <uuid>"),
        ("http://bob:secret@proxy.corp.example:3128", "http://<host>/"),
        ("https://token@pypi.corp.example/simple", "https://<host>/"),
        ("https://download.pytorch.org/whl/cu130", "https://download.pytorch.org/whl/cu130"),
        ("mail marie@lab.example.net now", "mail <address> now"),
        ("listening on 10.1.2.3:8080", "listening on <address>:8080"),
        ("nfs 192.168.7.9:/export", "nfs <address>:/export"),
        ("filer.lab:/export/x /data nfs4 rw,vers=4 0 0", "<host>:/ /data nfs4 rw,vers=4 0 0"),
        ("fe80::1ff:fe23:4567:890a up", "<address> up"),
        ("link/ether 02:42:ac:11:00:02", "link/ether <address>"),
        ("HF_TOKEN=hf_abcdefghijklmnop", "HF_TOKEN=<redacted>"),
        ("x hf_abcdefghijklmnop y", "x <redacted> y"),
        ("ghp_0123456789abcdefghij", "<redacted>"),
        ("password: hunter22", "password: <redacted>"),
        ("a" * 64, "<id>"),
        ("/var/home/zoe-miller/bin", "/var/home/user-b/bin"),
        ("/fsx/home/bob:/mnt/x/export/home/ann/bin", "/fsx/home/user-b:/mnt/x/export/home/user-b/bin"),
        ("CALCIUM-7 up", "host-a up"),
        ("MCurie", "user-a"),
        ("ip-10-20-30-40.ec2.internal", "<host>"),
        ("connect node17.rack2.cluster.local now", "connect <host> now"),
        ("Authorization: Bearer abcdefgh12345678", "Authorization: <redacted>"),
        ("curl -H 'x: Bearer abcdefgh12345678'", "curl -H 'x: Bearer <redacted>'"),
        ("DB_PASS=hunter2", "DB_PASS=<redacted>"),
        ("ASIAABCDEFGHIJKLMNOP", "<redacted>"),
        ("dckr_pat_abcdefghijk", "<redacted>"),
        ("kubepods-pod0a1b2c3d_1111_2222_3333_444444444444.slice", "kubepods-pod<uuid>.slice"),
        ("0::/job/0123456789abcdef0123456789abcdef", "0::/job/<id>"),
        ("//server/share /data cifs rw,username=bob 0 0", "<host>:/ /data cifs rw,username=<redacted> 0 0"),
        ("beegfs_nodev:server7 /scratch beegfs rw 0 0", "<host>:/ /scratch beegfs rw 0 0"),
    ],
)
def test_identities_and_secrets_are_replaced(given_text: str, expected: str) -> None:
    assert NAMES.apply(given_text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "9.10.2.21",
        "NCCL 2.28.3 (system); cuBLAS 13.1.0.3 (toolkit); cudart 13.0.96",
        "nvidia_cudnn_cu12-9.10.2.21.dist-info",
        "Requires-Dist: nvidia-cudnn-cu12==9.10.2.21",
        "Version: 9.10.2.21",
        "libnvidia-ml.so.580.159.04",
        "/usr/local/cuda-13.0/compat",
        "2.9.0+cu130",
        "/root/.venv/lib/python3.12/site-packages",
        "/home/ubuntu/cuda",
        "0000:1b:00.0",
        "NVIDIA H100 80GB HBM3",
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "brand=tesla,driver>=535,driver<536 cuda>=13.0",
        "127.0.0.1",
        "0fabc3ba44823f257e70ce397d989c8de5e362c1",
        "/dev/sda1 / ext4 rw 0 0",
        "tmpfs /dev/shm tmpfs rw 0 0",
        "overlay / overlay rw,lowerdir=/var/lib/docker 0 0",
        "torch/lib/libtorch_cuda.so",
        "pass",
        "user = 5",
        "cuda.h: No such file",
    ],
)
def test_versions_paths_and_device_addresses_stay(text: str) -> None:
    assert NAMES.apply(text) == text


def test_terminal_escapes_become_visible_text() -> None:
    assert NAMES.apply("evil\x1b[2Jname") == "evil\\x1b[2Jname"


def test_a_common_account_name_is_not_replaced_in_paths() -> None:
    names = Pseudonyms.of(replace(HOST, user="nvidia", hostname="cuda"), [])
    assert names.apply("/usr/local/cuda/nvidia") == "/usr/local/cuda/nvidia"


@given(st.text(max_size=200))
def test_applying_twice_changes_nothing_more(text: str) -> None:
    once = NAMES.apply(text)
    assert NAMES.apply(once) == once


def test_binary_evidence_keeps_its_length() -> None:
    data = b"\x7fELF/home/mcurie/lib\0/home/pcurie/lib\0calcium-7"
    masked = NAMES.apply_bytes(data)
    assert len(masked) == len(data)
    assert b"mcurie" not in masked
    assert b"pcurie" not in masked
    assert b"calcium" not in masked


def test_a_slice_that_is_here_is_numbered_and_another_is_not() -> None:
    here, gone = "MIG-1c1f7a52-0b1d-5a52-9d0e-6f0d3b0e1a01", "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
    names = Pseudonyms.of(HOST, [], [here])
    assert names.apply(f"{gone},{here}") == "mig-other,mig-0"
    again = Pseudonyms.of(HOST, [], ["mig-0"])
    assert again.apply("mig-other,mig-0") == "mig-other,mig-0"


@pytest.mark.parametrize(
    "name", ["db-d719b2cb-3d3a-4596-a3bc-dad00e67656f", "MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23"]
)
def test_the_fixed_ids_of_efi_variables_stay(name: str) -> None:
    assert NAMES.apply(f"/sys/firmware/efi/efivars/{name}") == f"/sys/firmware/efi/efivars/{name}"
