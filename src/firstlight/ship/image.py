"""An image as an OCI layout has it: blobs by digest. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

from firstlight.errors import BadInput
from firstlight.frozen import dataclass

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_HEX = re.compile(r"sha256:([0-9a-f]{64})")
_MOST_LAYERS = 1000
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Blob:
    """One blob: its sha256 in hex, its bytes, and what it is: manifest, config or layer."""

    digest: str
    size_bytes: int
    kind: str


@dataclass(frozen=True, slots=True)
class Image:
    """A manifest with its config and layers, and what the config says of it."""

    manifest: Blob
    config: Blob
    layers: tuple[Blob, ...]
    architecture: str = ""
    entrypoint: tuple[str, ...] = ()

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Each once: a layer may stand in an image twice."""
        return tuple({blob.digest: blob for blob in (self.manifest, self.config, *self.layers)}.values())

    @property
    def size_bytes(self) -> int:
        return sum(blob.size_bytes for blob in self.blobs)

    @property
    def ids(self) -> tuple[str, ...]:
        """What engines call it: by its config; docker with the store of containerd by its manifest."""
        return (self.config.digest, self.manifest.digest)

    def runs_on(self, machine: str) -> bool:
        """Whether it is for the processor that `uname -m` names; what either does not say is no reason against it."""
        there = _ARCHITECTURES.get(machine, "")
        return not there or not self.architecture or there == self.architecture


def hex_of(digest: Any) -> str:
    """The hex of sha256:...; BadInput for every other digest."""
    match = _HEX.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        raise BadInput(f"the image has a digest {ascii(digest)[:80]}; accepted: sha256:64 hex digits. Build it again.")
    return match.group(1)


def read_image(manifest: bytes, digest: str, config: bytes) -> Image:
    """The image of a manifest and its config."""
    document, settings = _object(manifest, "manifest"), _object(config, "config")
    layers = document.get("layers")
    if not isinstance(layers, list) or len(layers) > _MOST_LAYERS:
        raise BadInput(f"the image's manifest has no list of at most {_MOST_LAYERS} layers; build it again")
    inner = settings.get("config")
    entry = inner.get("Entrypoint") if isinstance(inner, dict) else None
    return Image(
        Blob(digest, len(manifest), "manifest"),
        _blob(document.get("config"), "config"),
        tuple(_blob(layer, "layer") for layer in layers),
        str(settings.get("architecture") or ""),
        tuple(str(word) for word in entry) if isinstance(entry, list) else (),
    )


def config_digest(manifest: bytes) -> str:
    """Where the config of a manifest lies."""
    return _blob(_object(manifest, "manifest").get("config"), "config").digest


def index_of(image: Image, ref: str, name_in_containerd: str) -> str:
    """index.json of a layout that holds this image alone, under a ref of ours."""
    annotations = {"org.opencontainers.image.ref.name": ref, "io.containerd.image.name": name_in_containerd}
    entry = {
        "mediaType": OCI_MANIFEST,
        "digest": f"sha256:{image.manifest.digest}",
        "size": image.manifest.size_bytes,
        "annotations": annotations,
    }
    return json.dumps({"schemaVersion": 2, "manifests": [entry]})


def docker_manifest_of(image: Image, name: str) -> str:
    """manifest.json as `docker save` writes it, over the same blobs: every docker loads that."""
    layers = [f"blobs/sha256/{layer.digest}" for layer in image.layers]
    return json.dumps([{"Config": f"blobs/sha256/{image.config.digest}", "RepoTags": [name], "Layers": layers}])


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise BadInput(f"the image's {what} is not a JSON object; build it again")
    return document


def _blob(entry: Any, kind: str) -> Blob:
    size = entry.get("size") if isinstance(entry, dict) else None
    if not isinstance(size, int) or size < 0:
        raise BadInput(f"the image's manifest has a {kind} without a size; build it again")
    if entry.get("urls"):
        raise BadInput(
            f"a {kind} of the image lies at {ascii(entry['urls'])[:80]} and not in it; build it without that"
        )
    return Blob(hex_of(entry.get("digest")), size, kind)
