"""As much of DER as keys need: the certificates of a list, and who signed a piece of PKCS#7."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.frozen import dataclass

_SEQUENCE, _SET, _INTEGER, _OID = 0x30, 0x31, 0x02, 0x06
_VERSION, _EXTENSIONS, _KEY_ID = 0xA0, 0xA3, 0x80
_TEXTS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}
_COMMON_NAME = bytes.fromhex("550403")
_SUBJECT_KEY = bytes.fromhex("551d0e")
_NAME_LIMIT = 120


class BadDer(ValueError):
    """Bytes that are not the DER that was looked for."""


@dataclass(frozen=True, slots=True)
class Item:
    """One element: its tag, its whole encoding and what is inside."""

    tag: int
    whole: bytes
    inside: bytes


@dataclass(frozen=True, slots=True)
class KeyName:
    """What a key is known by: the issuer's name as it is encoded with a serial number, or the key's own id."""

    issuer: bytes
    serial: int
    key_id: bytes
    name: str  # the common name in it, "" where there is none

    def is_of(self, certificate: Certificate) -> bool:
        if self.key_id:
            return self.key_id == certificate.key_id
        if not self.issuer or not certificate.issuer:  # a program named one of them, without the rest
            return bool(self.name) and self.name == certificate.name
        return (self.issuer, self.serial) == (certificate.issuer, certificate.serial)


@dataclass(frozen=True, slots=True)
class Certificate:
    """An X.509 certificate by what tells it from others, e.g. CN `host Secure Boot Module Signature key`."""

    issuer: bytes
    serial: int
    key_id: bytes
    name: str  # common name of the subject


def items(data: bytes) -> Iterator[Item]:
    """The elements that stand one after the other in some bytes; raises BadDer where they do not fit."""
    at = 0
    while at < len(data):
        item = first(data[at:])
        yield item
        at += len(item.whole)


def first(data: bytes) -> Item:
    """The element that the bytes begin with."""
    if len(data) < 2:
        raise BadDer("an element is cut short")
    length, start = data[1], 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or len(data) < 2 + count:
            raise BadDer("a length is not that of DER")
        length, start = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if len(data) < start + length:
        raise BadDer("an element is longer than its bytes")
    return Item(data[0], data[: start + length], data[start : start + length])


def _of(item: Item, tag: int) -> list[Item]:
    if item.tag != tag:
        raise BadDer(f"expected tag {tag:#x}, found {item.tag:#x}")
    return list(items(item.inside))


def certificate(data: bytes) -> Certificate:
    """The certificate in DER; raises BadDer for anything else."""
    body = _of(_of(first(data), _SEQUENCE)[0], _SEQUENCE)
    if body and body[0].tag == _VERSION:
        body = body[1:]
    if len(body) < 5 or body[0].tag != _INTEGER:
        raise BadDer("no certificate")
    serial, _, issuer, _, subject = body[:5]
    extensions = next((each for each in body[5:] if each.tag == _EXTENSIONS), None)
    key_id = b"" if extensions is None else _key_id(extensions)
    return Certificate(issuer.whole, int.from_bytes(serial.inside, "big"), key_id, common_name(subject))


def _key_id(extensions: Item) -> bytes:
    for each in _of(first(extensions.inside), _SEQUENCE):
        parts = _of(each, _SEQUENCE)
        if len(parts) >= 2 and parts[0].tag == _OID and parts[0].inside == _SUBJECT_KEY:
            return first(parts[-1].inside).inside
    return b""


def common_name(name: Item) -> str:
    """The common name of a subject or an issuer, made printable; '' where there is none."""
    for group in _of(name, _SEQUENCE):
        for pair in _of(group, _SET):
            parts = _of(pair, _SEQUENCE)
            if len(parts) == 2 and parts[0].inside == _COMMON_NAME and parts[1].tag in _TEXTS:
                text = parts[1].inside.decode(_TEXTS[parts[1].tag], "replace")
                return "".join(letter for letter in text if letter.isprintable()).strip()[:_NAME_LIMIT]
    return ""


def signer(data: bytes) -> KeyName:
    """Who signed a PKCS#7 SignedData, the first of its signers; raises BadDer."""
    outer = _of(first(data), _SEQUENCE)
    if len(outer) < 2 or outer[0].tag != _OID:
        raise BadDer("no PKCS#7")
    fields = _of(first(outer[1].inside), _SEQUENCE)
    if not fields or fields[-1].tag != _SET:
        raise BadDer("no signers")
    signers = _of(fields[-1], _SET)
    parts = _of(signers[0], _SEQUENCE) if signers else []
    if len(parts) < 2:
        raise BadDer("no signer")
    who = parts[1]
    if who.tag == _KEY_ID:
        return KeyName(b"", 0, who.inside, "")
    issuer, serial = _of(who, _SEQUENCE)[:2]
    return KeyName(issuer.whole, int.from_bytes(serial.inside, "big"), b"", common_name(issuer))
