"""The signer of a module against the firmware's keys: keys of openssl, a real ELF file, the kernel's trailer."""

from __future__ import annotations

import lzma
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.boot_trust import BootTrust, Standing, probe_boot_trust
from firstlight.facts.der import BadDer, certificate, signer
from firstlight.facts.driver import DriverFacts, probe_driver
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.nvml import NvmlAnswer, Readings
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine
from tools.machines.elf_writer import ElfSpec, make_elf

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")

EFI = "sys/firmware/efi/efivars"
SHIM, FIRMWARE = "605dab50-e046-4300-abb6-3dd810dd8b23", "d719b2cb-3d3a-4596-a3bc-dad00e67656f"
X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
MAGIC = b"~Module signature appended~\n"
ON: Fact[bool] = Known(value=True, seen_in="SecureBoot")
NO_NVML = NvmlAnswer(
    Unknown("none"), Unknown("none"), Unknown("none"), Unknown("none"), Readings({}, "NVML", absent="none"), ()
)


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(("openssl", *words), cwd=folder, check=True, capture_output=True)


def _key(folder: Path, name: str, common: str) -> bytes:
    """A key and its certificate: NAME.key, NAME.pem; the certificate in DER."""
    _openssl(
        folder, "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "10",
        "-subj", f"/O=Tests/CN={common}/", "-keyout", f"{name}.key", "-out", f"{name}.pem",
    )  # fmt: skip
    _openssl(folder, "x509", "-in", f"{name}.pem", "-outform", "DER", "-out", f"{name}.der")
    return (folder / f"{name}.der").read_bytes()


def _signed(folder: Path, name: str, *more: str) -> bytes:
    """A module signed as scripts/sign-file of the kernel does it: CMS without certificates, then its trailer."""
    module = make_elf(ElfSpec(soname="nvidia.ko"))
    (folder / "module").write_bytes(module)
    _openssl(
        folder, "cms", "-sign", "-binary", "-noattr", "-nocerts", "-md", "sha256", "-outform", "DER", "-in", "module",
        "-signer", f"{name}.pem", "-inkey", f"{name}.key", "-out", "signature", *more,
    )  # fmt: skip
    signature = (folder / "signature").read_bytes()
    return module + signature + struct.pack(">BBBBBxxxI", 0, 0, 2, 0, 0, len(signature)) + MAGIC


def _efi(*certificates: bytes) -> bytes:
    lists = [X509 + struct.pack("<III", 44 + len(each), 0, 16 + len(each)) + bytes(16) + each for each in certificates]
    return b"\x07\0\0\0" + b"".join(lists)


class _Box:
    """A tree with a module on disk, and the driver facts of it."""

    def __init__(self, root: Path, module: bytes, name: str = "nvidia.ko") -> None:
        self.root = root
        self.machine = LiveMachine(root=str(root), environ={"PATH": "/nowhere"})
        self.put(f"lib/modules/{self.machine.host.kernel_release}/updates/dkms/{name}", module)

    def put(self, path: str, data: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    @property
    def driver(self) -> DriverFacts:
        found = probe_driver(self.machine, NO_NVML)
        return replace(found, kernel_version=Unknown("not loaded"))

    def look(self, secure: Fact[bool] = ON) -> BootTrust:
        return probe_boot_trust(self.machine, self.driver, secure)


def _standing(trust: BootTrust) -> Standing:
    assert isinstance(trust.standing, Known), trust.standing
    return trust.standing.value


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    _key(folder, "own", "box Secure Boot Module Signature key")
    _key(folder, "vendor", "Vendor Secure Boot CA")
    return folder


def _der(keys: Path, name: str) -> bytes:
    return (keys / f"{name}.der").read_bytes()


def test_a_key_that_is_in_no_list_is_a_stranger_and_its_file_is_named(tmp_path: Path, keys: Path) -> None:
    box = _Box(tmp_path, _signed(keys, "own"))
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    box.put(f"{EFI}/MokListRT-{SHIM}", _efi(_der(keys, "vendor")))
    box.put("var/lib/shim-signed/mok/MOK.der", _der(keys, "own"))
    box.put("var/lib/shim-signed/mok/other.der", _der(keys, "vendor"))
    trust = box.look()
    assert _standing(trust) is Standing.STRANGER
    assert trust.signer == Known("box Secure Boot Module Signature key", trust.signer.seen_in)  # type: ignore[union-attr]
    assert trust.key_file == Known("/var/lib/shim-signed/mok/MOK.der", "/var/lib/shim-signed/mok/MOK.der")
    assert isinstance(trust.mok, Known)
    assert trust.mok.value == ("Vendor Secure Boot CA",)


@pytest.mark.parametrize(
    ("variable", "standing"),
    [
        (f"MokListRT-{SHIM}", Standing.IN_MOK),
        (f"db-{FIRMWARE}", Standing.IN_DB),
        (f"MokNew-{SHIM}", Standing.WAITING),
    ],
)
def test_a_key_is_found_where_it_is(tmp_path: Path, keys: Path, variable: str, standing: Standing) -> None:
    box = _Box(tmp_path, _signed(keys, "own"))
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    box.put(f"{EFI}/{variable}", _efi(_der(keys, "vendor"), _der(keys, "own")))
    assert _standing(box.look()) is standing


def test_a_signer_named_by_the_id_of_its_key_is_found_too(tmp_path: Path, keys: Path) -> None:
    box = _Box(tmp_path, _signed(keys, "own", "-keyid"))
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    box.put(f"{EFI}/MokListRT-{SHIM}", _efi(_der(keys, "own")))
    trust = box.look()
    assert _standing(trust) is Standing.IN_MOK
    assert isinstance(trust.signer, Known)
    assert trust.signer.value == "box Secure Boot Module Signature key"


def test_a_key_with_the_same_name_and_another_serial_is_another_key(tmp_path: Path, keys: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    other = _key(again, "own", "box Secure Boot Module Signature key")
    box = _Box(tmp_path, _signed(keys, "own"))
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    box.put(f"{EFI}/MokListRT-{SHIM}", _efi(other))
    assert _standing(box.look()) is Standing.STRANGER


def test_a_key_of_the_kernel_is_known_where_root_can_see_it(tmp_path: Path, keys: Path) -> None:
    box = _Box(tmp_path, _signed(keys, "own"))
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    name = "box Secure Boot Module Signature key"
    box.put("proc/keys", f"0f3d2c1b I------ 1 perm 1f030000 0 0 asymmetri {name}: X509.rsa 1 []\n".encode())
    assert _standing(box.look()) is Standing.IN_KERNEL


def test_a_module_without_a_trailer_is_not_signed(tmp_path: Path, keys: Path) -> None:
    box = _Box(tmp_path, make_elf(ElfSpec(soname="nvidia.ko")))
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    assert _standing(box.look()) is Standing.UNSIGNED


def test_what_is_no_module_is_not_called_unsigned(tmp_path: Path) -> None:
    box = _Box(tmp_path, b"")
    assert isinstance(box.look().standing, Unknown)


@pytest.mark.parametrize("cut", [4, 40, 400])
def test_a_broken_signature_is_not_guessed_at(tmp_path: Path, keys: Path, cut: int) -> None:
    whole = _signed(keys, "own")
    box = _Box(tmp_path, whole[: -len(MAGIC) - 12 - cut] + whole[-len(MAGIC) - 12 :])
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    assert isinstance(box.look().standing, Unknown) or _standing(box.look()) is Standing.STRANGER


def test_every_cut_of_a_certificate_is_refused(keys: Path) -> None:
    whole = _der(keys, "own")
    for length in range(0, len(whole) - 1, 7):
        with pytest.raises(BadDer):
            certificate(whole[:length])
    with pytest.raises(BadDer):
        signer(whole)


def test_a_module_packed_with_xz_is_unpacked_in_a_child(keys: Path, tmp_path: Path) -> None:
    """The child opens the real path, so the module lies where the machine's root is the real one."""
    from firstlight.facts.boot_trust import _signer

    packed = tmp_path / "nvidia.ko.xz"
    packed.write_bytes(lzma.compress(_signed(keys, "own")))
    found = _signer(LiveMachine(), str(packed))
    assert isinstance(found, Known), found
    assert found.value is not None
    assert found.value.is_of(certificate(_der(keys, "own")))


@pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd here")
def test_a_module_packed_with_zstd_is_unpacked_too(keys: Path, tmp_path: Path) -> None:
    from firstlight.facts.boot_trust import _signer

    plain, packed = tmp_path / "nvidia.ko", tmp_path / "nvidia.ko.zst"
    plain.write_bytes(_signed(keys, "own"))
    subprocess.run(("zstd", "-q", str(plain), "-o", str(packed)), check=True)
    found = _signer(LiveMachine(), str(packed))
    assert isinstance(found, Known), found
    assert found.value is not None
    assert found.value.is_of(certificate(_der(keys, "own")))


def test_a_broken_archive_is_said_to_be_one(tmp_path: Path) -> None:
    from firstlight.facts.boot_trust import _signer

    packed = tmp_path / "nvidia.ko.xz"
    packed.write_bytes(b"\xfd7zXZ\0 no archive")
    found = _signer(LiveMachine(environ={"PATH": "/nowhere"}), str(packed))
    assert isinstance(found, Unknown)
    assert "LZMAError" in found.reason


def test_nothing_is_looked_at_without_secure_boot(tmp_path: Path, keys: Path) -> None:
    box = _Box(tmp_path, _signed(keys, "own"))
    assert isinstance(box.look(Known(value=False, seen_in="SecureBoot")).standing, Unknown)


def test_the_lists_that_mokutil_prints_stand_in_for_hidden_variables(tmp_path: Path, keys: Path) -> None:
    box = _Box(tmp_path, _signed(keys, "own"))
    box.put("bin/mokutil", b"#!/bin/sh\necho '2bb010e24d box Secure Boot Module Signature key'\n")
    (tmp_path / "bin/mokutil").chmod(0o755)
    box.machine = LiveMachine(root=str(tmp_path), environ={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert _standing(box.look()) is Standing.IN_MOK


def test_a_recording_says_the_same_and_an_old_one_claims_nothing(tmp_path: Path, keys: Path) -> None:
    box = _Box(tmp_path, _signed(keys, "own"))
    box.put(f"{EFI}/db-{FIRMWARE}", _efi(_der(keys, "vendor")))
    recording = RecordingMachine(box.machine)
    live = probe_boot_trust(recording, box.driver, ON)
    assert probe_boot_trust(RecordedMachine(recording.evidence), box.driver, ON) == live
    empty = RecordingMachine(LiveMachine(root=str(tmp_path / "none")))
    old = probe_boot_trust(RecordedMachine(empty.evidence), box.driver, ON)
    assert isinstance(old.standing, Unknown)
    assert isinstance(old.validation_off, Unknown)
