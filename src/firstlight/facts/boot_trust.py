"""Whom the kernel trusts under Secure Boot, and whether the NVIDIA module is signed by one of them."""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Iterator

from firstlight.facts.children import child_script
from firstlight.facts.der import BadDer, Certificate, KeyName, certificate, signer
from firstlight.facts.driver import DriverFacts
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_EFI = "/sys/firmware/efi/efivars"
_OF_FIRMWARE, _OF_SHIM = "d719b2cb-3d3a-4596-a3bc-dad00e67656f", "605dab50-e046-4300-abb6-3dd810dd8b23"
_DB = f"{_EFI}/db-{_OF_FIRMWARE}"
_MOK = f"{_EFI}/MokListRT-{_OF_SHIM}"
_MOK_NEW = f"{_EFI}/MokNew-{_OF_SHIM}"
_NO_VALIDATION = f"{_EFI}/MokSBStateRT-{_OF_SHIM}"
_ENFORCED = "/sys/module/module/parameters/sig_enforce"
_LOCKDOWN = "/sys/kernel/security/lockdown"
_KERNEL_KEYS = "/proc/keys"
_X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")  # EFI_CERT_X509_GUID as it is stored
_LIST_LIMIT = 256 << 10
_TAIL = 64 << 10
_MAGIC = b"~Module signature appended~\n"
_PKCS7 = 2
_UNPACKED_S = 20.0
# Folders in which systems keep the certificate of what modules built here are signed with, and its endings.
_KEY_FOLDERS = (
    "/var/lib/shim-signed/mok", "/var/lib/dkms", "/etc/pki/akmods/certs", "/usr/share/nvidia-pubkeys", "/root",
)  # fmt: skip
_KEY_ENDINGS = (".der", ".pub", ".crt", ".cer")


class Standing(enum.Enum):
    """How the module's signature stands with what the kernel trusts."""

    UNSIGNED = "not signed"
    IN_DB = "signed by a key of the firmware's db"
    IN_MOK = "signed by an enrolled machine owner's key (MOK)"
    IN_KERNEL = "signed by a key that the kernel has"
    WAITING = "signed by a key that waits to be enrolled at the next start"
    STRANGER = "signed by a key that is neither in db nor in the MOK list"


TRUSTED = (Standing.IN_DB, Standing.IN_MOK, Standing.IN_KERNEL)


@dataclass(frozen=True, slots=True)
class BootTrust:
    """The module's signer against the enrolled keys; looked at where Secure Boot is on and no module is loaded."""

    standing: Fact[Standing]
    signer: Fact[str]  # common name of the signer, e.g. `host-a Secure Boot Module Signature key`
    db: Fact[tuple[str, ...]]  # common names of the certificates in the firmware's db
    mok: Fact[tuple[str, ...]]
    key_file: Fact[str]  # the certificate on this machine that the module is signed with
    validation_off: Fact[bool]  # shim was told not to check: mokutil --disable-validation
    enforced: Fact[bool]  # whether the kernel refuses modules whose signature it does not know


def probe_boot_trust(machine: Machine, driver: DriverFacts, secure_boot: Fact[bool]) -> BootTrust:
    """The signer of nvidia.ko, whom this machine trusts, and whether they go together."""
    if not isinstance(secure_boot, Known) or not secure_boot.value:
        return _nothing(
            "not looked at: Secure Boot is not on" if isinstance(secure_boot, Known) else secure_boot.reason
        )
    if isinstance(driver.kernel_version, Known) or isinstance(driver.module_file, Unknown):
        return _nothing("not looked at: no module file waits to be loaded")
    who = _signer(machine, driver.module_file.value)
    db, mok = _certificates(machine, _DB), _certificates(machine, _MOK)
    if isinstance(db, Known) and not db.value:  # Secure Boot has keys in db: the variables are hidden from us
        db, mok = Unknown(f"{_DB} holds no certificate"), _enrolled_names(machine)
    return BootTrust(
        standing=_standing(machine, who, db, mok),
        signer=_name(who, (db, mok)),
        db=_names(db),
        mok=_names(mok),
        key_file=_key_file(machine, who),
        validation_off=_validation_off(machine),
        enforced=_enforced(machine),
    )


def _nothing(reason: str) -> BootTrust:
    none = Unknown(reason)
    return BootTrust(none, none, none, none, none, none, none)


def _signer(machine: Machine, path: str) -> Fact[KeyName | None]:
    """Who signed a module; None for one that is not signed."""
    tail = _tail(machine, path)
    if isinstance(tail, Unknown):
        return _by_modinfo(machine, tail)
    data = tail.value
    if not data.endswith(_MAGIC):
        return Known(None, path)
    header = data[-len(_MAGIC) - 12 : -len(_MAGIC)]
    kind, size = (header[2], int.from_bytes(header[8:], "big")) if len(header) == 12 else (0, 0)
    body = data[: -len(_MAGIC) - 12]
    if kind != _PKCS7 or not 0 < size <= len(body):
        return Unknown(f"{path}: its signature is not PKCS#7 of {size} bytes")
    try:
        return Known(signer(body[-size:]), path)
    except BadDer as error:
        return Unknown(f"{path}: its signature cannot be read ({error})")


def _tail(machine: Machine, path: str) -> Fact[bytes]:
    if path.endswith(".ko"):
        seen = machine.stat(path)
        size = 0 if seen is None else seen.size
        if machine.read_bytes(path, size=4) != b"\x7fELF":
            return Unknown(f"{path}: {machine.why_not(path) if seen is None else 'no ELF file'}")
        data = machine.read_bytes(path, offset=max(0, size - _TAIL), size=_TAIL)
        return Unknown(f"{path}: {machine.why_not(path)}") if data is None else Known(data, path)
    said = machine.child(child_script("module_tail"), path, str(_TAIL), timeout_s=_UNPACKED_S)
    text = said.answer.get("tail")
    if not said.ok or not isinstance(text, str) or not re.fullmatch(r"(?:[0-9a-f]{2})*", text):
        return Unknown(f"{path}: {said.complaint or said.answer.get('error', 'not unpacked')}")
    # An unpacker that is not there gives nothing: an empty module is no module.
    return Known(bytes.fromhex(text), path) if text else Unknown(f"{path}: nothing came out of it")


def _by_modinfo(machine: Machine, why: Unknown) -> Fact[KeyName | None]:
    """The signer as modinfo names it, for a file that this program cannot open or unpack."""
    done = machine.run(("modinfo", "nvidia"), keep=r"^(?:filename|signer|sig_id|sig_key):")
    if not done.ok or "filename:" not in done.stdout:
        return Unknown(f"{why.reason}; {done.complaint}" if not done.ok else why.reason)
    match = re.search(r"(?m)^signer:[ \t]*(\S.*)$", done.stdout)
    return Known(None if match is None else KeyName(b"", 0, b"", match.group(1).strip()[:120]), "modinfo nvidia")


def _enrolled_names(machine: Machine) -> Fact[tuple[Certificate, ...]]:
    """What mokutil lists, by name alone: `2bb010e24d Fedora Secure Boot CA`."""
    done = machine.run(("mokutil", "--list-enrolled", "--short"))
    if not done.ok:
        return Unknown(done.complaint)
    names = re.findall(r"(?m)^[0-9a-f]{10,} (\S.*)$", done.stdout)
    return Known(tuple(Certificate(b"", 0, b"", name.strip()[:120]) for name in names), "mokutil --list-enrolled")


def _certificates(machine: Machine, path: str) -> Fact[tuple[Certificate, ...]]:
    """The X.509 certificates of an EFI variable: four bytes of attributes, then signature lists."""
    data = machine.read_bytes(path, size=_LIST_LIMIT)
    if data is None:
        why = machine.why_not(path)
        return Known((), path) if why == "no such file" else Unknown(f"{path}: {why}")
    return Known(tuple(_parsed(data[4:])), path)


def _parsed(data: bytes) -> Iterator[Certificate]:
    at = 0
    while at + 28 <= len(data):
        kind = data[at : at + 16]
        size, header, each = struct.unpack_from("<III", data, at + 16)
        if size < 28 or at + size > len(data) or each <= 16:
            return
        if kind == _X509:
            for place in range(at + 28 + header, at + size - each + 1, each):
                try:
                    yield certificate(data[place + 16 : place + each])
                except BadDer:
                    continue  # one that cannot be read trusts nobody
        at += size


def _standing(
    machine: Machine,
    who: Fact[KeyName | None],
    db: Fact[tuple[Certificate, ...]],
    mok: Fact[tuple[Certificate, ...]],
) -> Fact[Standing]:
    if isinstance(who, Unknown):
        return who
    key = who.value
    if key is None:
        return Known(Standing.UNSIGNED, who.seen_in)
    waiting = _certificates(machine, _MOK_NEW)
    for keys, standing in ((mok, Standing.IN_MOK), (db, Standing.IN_DB)):
        if isinstance(keys, Known) and any(key.is_of(each) for each in keys.value):
            return Known(standing, keys.seen_in)
    if _is_kernels(machine, key):
        return Known(Standing.IN_KERNEL, _KERNEL_KEYS)
    if isinstance(waiting, Known) and any(key.is_of(each) for each in waiting.value):
        return Known(Standing.WAITING, waiting.seen_in)
    if isinstance(mok, Unknown):
        return mok
    return Known(Standing.STRANGER, f"{db.seen_in} and {mok.seen_in}" if isinstance(db, Known) else mok.seen_in)


def _is_kernels(machine: Machine, key: KeyName) -> bool:
    """Whether the kernel lists a key of that name, or with that id, among those it was built with; root sees them."""
    lines = (machine.read(_KERNEL_KEYS, limit=256 << 10) or "").splitlines()
    told = [line for line in lines if " asymmetri " in line]
    return any((key.name and f" {key.name}: " in line) or (key.key_id and key.key_id.hex() in line) for line in told)


def _name(who: Fact[KeyName | None], lists: tuple[Fact[tuple[Certificate, ...]], ...]) -> Fact[str]:
    if isinstance(who, Unknown):
        return who
    if who.value is None:
        return Unknown(f"{who.seen_in} is not signed")
    if who.value.name:
        return Known(who.value.name, who.seen_in)
    known = [each for keys in lists if isinstance(keys, Known) for each in keys.value if who.value.is_of(each)]
    return Known(known[0].name, who.seen_in) if known else Unknown(f"{who.seen_in} names its signer by a number alone")


def _names(keys: Fact[tuple[Certificate, ...]]) -> Fact[tuple[str, ...]]:
    return keys if isinstance(keys, Unknown) else Known(tuple(each.name for each in keys.value), keys.seen_in)


def _key_file(machine: Machine, who: Fact[KeyName | None]) -> Fact[str]:
    """The certificate among those that systems make for modules built here with which this one is signed."""
    if isinstance(who, Unknown) or who.value is None:
        return Unknown("the module has no signer that is known")
    reasons = []
    folders = [(folder, name) for folder in _KEY_FOLDERS for name in machine.list(folder, keep=_is_key)]
    for path in (f"{folder}/{name}" for folder, name in folders[:32]):
        data = machine.read_bytes(path, size=16 << 10)
        if data is None:
            reasons.append(f"{path}: {machine.why_not(path)}")
            continue
        try:
            if who.value.is_of(certificate(data)):
                return Known(path, path)
        except BadDer:
            reasons.append(f"{path}: no certificate in DER")
    return Unknown("; ".join(reasons) or f"no certificate in {', '.join(_KEY_FOLDERS)}")


def _is_key(name: str) -> bool:
    return name.lower().endswith(_KEY_ENDINGS)


def _validation_off(machine: Machine) -> Fact[bool]:
    data = machine.read_bytes(_NO_VALIDATION, size=16)
    if data is None:
        why = machine.why_not(_NO_VALIDATION)
        return Known(value=False, seen_in=_NO_VALIDATION) if why == "no such file" else Unknown(f"MokSBStateRT: {why}")
    return Known(data[4:5] == b"\x01", _NO_VALIDATION)


def _enforced(machine: Machine) -> Fact[bool]:
    """Y of sig_enforce, or a lockdown: one of them keeps modules out whose signature is not known."""
    setting, lockdown = machine.read(_ENFORCED, limit=16), machine.read(_LOCKDOWN, limit=128)
    if setting is not None and setting.strip() == "Y":
        return Known(value=True, seen_in=_ENFORCED)
    if lockdown is not None and "[" in lockdown:
        return Known("[none]" not in lockdown, _LOCKDOWN)
    if setting is None:
        return Unknown(f"{_ENFORCED}: {machine.why_not(_ENFORCED)}")
    return Unknown(f"{_ENFORCED} is {setting.strip()[:8]}, and {_LOCKDOWN}: {machine.why_not(_LOCKDOWN)}")
