"""An image that was shipped, or would be, as text and as the document of --json. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from firstlight.report.host_names import HostNames
from firstlight.report.layout import Painted, Part, Style, labelled
from firstlight.ship.deciding import Gpus
from firstlight.ship.image import Blob
from firstlight.ship.shipping import Prepared, Proved, Shipped

if TYPE_CHECKING:
    from firstlight.report.documents.acting import ShipDocument, ShippedProof

SCHEMA = "firstlight.ship/1"
_LAST_LINES = 12


def shipped_text(shipped: Shipped) -> Iterator[Part]:
    """What was done and what it took."""
    prepared = shipped.prepared
    yield from _head(prepared)
    if prepared.is_there:
        yield labelled(
            "there", [f"already, with the same digest: 0 bytes sent, {_bytes(prepared.image.size_bytes)} skipped"]
        )
    else:
        yield labelled("sent", [_amount(prepared, shipped)])
        yield labelled("skipped", [f"{_bytes(shipped.skipped_bytes)} that are there"])
        yield labelled("checked", [_checked(shipped)])
        yield labelled("loaded", [f"by {prepared.engine.value}; the digest there is ours"])
    yield from _proof(shipped.proved)


def dry_text(prepared: Prepared) -> Iterator[Part]:
    """What would be sent."""
    yield from _head(prepared)
    if prepared.is_there:
        yield labelled(
            "there", [f"already, with the same digest: nothing would be sent ({_bytes(prepared.image.size_bytes)})"]
        )
        return
    yield labelled("would send", [_amount(prepared, None)])
    for each in prepared.missing:
        blob, part = each.blob, f", {each.have_bytes:,} of them are there" if each.have_bytes else ""
        yield f"              {blob.kind:<8} sha256:{blob.digest[:12]}  {_bytes(blob.size_bytes)}{part}\n"
    yield labelled("would skip", [f"{_bytes(prepared.image.size_bytes - prepared.left_bytes)} that are there"])
    if not prepared.needs:
        yield labelled("room", ["not known: df there gave no figure"])
    for need in prepared.needs:
        yield labelled("room", [f"{need.mount}: {_bytes(need.needed_bytes)} needed, {need.free_bytes:,} free"])


def ship_document(prepared: Prepared, shipped: Shipped | None, names: HostNames) -> ShipDocument:
    """Schema firstlight.ship/1; `shipped` is None after --dry-run, `names` says what the host is called."""
    image, left = prepared.image, {each.blob.digest: each for each in prepared.missing}
    again = {blob.digest for blob in shipped.again} if shipped is not None else set()
    return {
        "schema": SCHEMA,
        "image": names.apply(prepared.wish.source.given),
        "host": names[prepared.wish.target.name],
        "name": prepared.wish.name.given,
        "folder": names.apply(prepared.wish.folder),
        "engine": prepared.engine.value,
        "dry_run": shipped is None,
        "there_already": prepared.is_there,
        "manifest_digest": f"sha256:{image.manifest.digest}",
        "config_digest": f"sha256:{image.config.digest}",
        "bytes_total": image.size_bytes,
        "bytes_unpacked": prepared.cached.unpacked_bytes,
        "bytes_to_send": prepared.left_bytes,
        "bytes_skipped": shipped.skipped_bytes if shipped is not None else image.size_bytes - prepared.left_bytes,
        "bytes_sent": shipped.sent_bytes if shipped is not None else 0,
        "bytes_on_wire": shipped.wire_bytes if shipped is not None else 0,
        "blobs": [
            {
                "digest": f"sha256:{blob.digest}",
                "kind": blob.kind,
                "bytes": blob.size_bytes,
                "bytes_there": left[blob.digest].have_bytes if blob.digest in left else blob.size_bytes,
                "sent_again": blob.digest in again,
            }
            for blob in image.blobs
        ],
        "room": [
            {"mount": names.apply(need.mount), "bytes_free": need.free_bytes, "bytes_needed": need.needed_bytes}
            for need in prepared.needs
        ],
        "verify": _proof_document(shipped.proved, names) if shipped is not None else None,
        "exit_code": shipped.exit_code if shipped is not None else 0,
    }


def _head(prepared: Prepared) -> Iterator[Part]:
    wish, image = prepared.wish, prepared.image
    yield f"{wish.name.given} on {wish.target.name} ({prepared.engine.value})\n"
    yield labelled("digest", [f"sha256:{image.config.digest}"])


def _amount(prepared: Prepared, shipped: Shipped | None) -> str:
    """61,060,466 bytes (61,068,086 on the wire) in 4 blobs of 4, 1 of them continued."""
    again = shipped.again if shipped is not None else ()
    sent = {each.blob.digest for each in prepared.missing} | {blob.digest for blob in again}
    begun = sum(1 for each in prepared.missing if each.have_bytes)
    count = _bytes(prepared.left_bytes if shipped is None else shipped.sent_bytes)
    wire = "" if shipped is None else f" ({shipped.wire_bytes:,} on the wire)"
    return f"{count}{wire} in {_blobs(len(sent))} of {len(prepared.image.blobs)}" + (
        f", {begun} of them continued" if begun else ""
    )


def _checked(shipped: Shipped) -> str:
    said = f"{_blobs(len(shipped.prepared.image.blobs))} there by sha256"
    if not shipped.again:
        return said
    return f"{said}; damaged and sent again: {', '.join(_short(blob) for blob in shipped.again)}"


def _proof(proved: Proved) -> Iterator[Part]:
    if proved.ran is None:
        yield labelled("verify", [f"not run: {proved.why}"])
        return
    good = proved.ran.status == 0
    yield f"{'verify':<12}"
    yield Painted("ok", Style.GOOD) if good else Painted("FAILED", Style.BAD)
    gpus = (
        "no GPU there: the processor's part alone" if proved.gpus is Gpus.NONE else f"with GPUs ({proved.gpus.value})"
    )
    brought = f"; firstlight was brought ({_bytes(proved.brought_bytes)})" if proved.brought_bytes else ""
    yield f", exit code {proved.ran.status}, {gpus}{brought}\n"
    for line in proved.ran.said[-_LAST_LINES:]:
        yield f"    {line}\n"


def _proof_document(proved: Proved, names: HostNames) -> ShippedProof:
    ran = proved.ran
    return {
        "ran": ran is not None,
        "why_not": names.apply(proved.why),
        "gpus": proved.gpus.value,
        "brought_bytes": proved.brought_bytes,
        "exit_code": ran.status if ran is not None else None,
        "said": [names.apply(line) for line in ran.said] if ran is not None else [],
    }


def _short(blob: Blob) -> str:
    return f"{blob.kind} sha256:{blob.digest[:12]}"


def _blobs(count: int) -> str:
    return "1 blob" if count == 1 else f"{count} blobs"


def _bytes(count: int) -> str:
    """2,341,556 bytes; with GB behind it where that is easier to read."""
    return f"{count:,} bytes" + (f" ({count / 1e9:.1f} GB)" if count >= 100_000_000 else "")
