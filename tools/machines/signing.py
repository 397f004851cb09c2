"""Certificates, signature lists and signed modules by hand: the same bytes every time, and no key behind them."""

from __future__ import annotations

import struct

_X509 = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
_SIGNED_DATA = bytes.fromhex("2a864886f70d010702")
_COMMON_NAME = bytes.fromhex("550403")
_NO_DATE = b"\x17\x0d260101000000Z"


def der(tag: int, *parts: bytes) -> bytes:
    """One element of DER."""
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes((tag, len(body))) + body
    count = (len(body).bit_length() + 7) // 8
    return bytes((tag, 0x80 | count)) + len(body).to_bytes(count, "big") + body


def _name(common: str) -> bytes:
    return der(0x30, der(0x31, der(0x30, der(0x06, _COMMON_NAME), der(0x0C, common.encode()))))


def _serial(number: int) -> bytes:
    return der(0x02, number.to_bytes((number.bit_length() + 8) // 8, "big"))


def certificate(common: str, serial: int) -> bytes:
    """A certificate as far as it names somebody: issuer and subject are the same."""
    algorithm, key = der(0x30), der(0x30)
    dates = der(0x30, _NO_DATE, _NO_DATE)
    body = der(
        0x30, der(0xA0, der(0x02, b"\x02")), _serial(serial), algorithm, _name(common), dates, _name(common), key
    )
    return der(0x30, body, algorithm, der(0x03, b"\0"))


def efi_list(*certificates: bytes) -> bytes:
    """The EFI variable that holds these certificates, one list each: attributes, then EFI_SIGNATURE_LISTs."""
    lists = (
        _X509 + struct.pack("<III", 28 + 16 + len(each), 0, 16 + len(each)) + bytes(16) + each for each in certificates
    )
    return b"\x07\0\0\0" + b"".join(lists)


def signed(module: bytes, common: str, serial: int) -> bytes:
    """A module with the trailer that scripts/sign-file appends: PKCS#7, the header, the magic."""
    who = der(0x30, _name(common), _serial(serial))
    signer = der(0x30, der(0x02, b"\x01"), who, der(0x30), der(0x30), der(0x04, b"\0"))
    data = der(0x30, der(0x02, b"\x01"), der(0x31), der(0x30), der(0x31, signer))
    pkcs7 = der(0x30, der(0x06, _SIGNED_DATA), der(0xA0, data))
    header = bytes((0, 0, 2, 0, 0, 0, 0, 0)) + len(pkcs7).to_bytes(4, "big")
    return module + pkcs7 + header + b"~Module signature appended~\n"
