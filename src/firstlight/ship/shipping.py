"""The whole way of an image: into the cache, what is missing to the host, checked there, loaded, compared, proved."""

from __future__ import annotations

import enum
from collections.abc import Callable

from firstlight.errors import BadInput, CouldNotLook
from firstlight.fleet.target import Target
from firstlight.frozen import dataclass
from firstlight.ship.answers import Ran
from firstlight.ship.cache import Cached, cached, require_tools
from firstlight.ship.deciding import (
    Engine,
    Gpus,
    HostState,
    Missing,
    Needed,
    choose_engine,
    how_gpus,
    is_there,
    missing,
    require_processor,
    require_room,
    rooms_needed,
    too_long,
)
from firstlight.ship.host import Host
from firstlight.ship.image import Blob, Image
from firstlight.ship.naming import Name, Source
from firstlight.ship.own import own_blob
from firstlight.ship.questions import Place
from firstlight.ship.sending import Sending, send

Told = Callable[[str], None]
NO_GPU_WAY = (
    "the host has GPUs and nothing that hands them to a container: install nvidia-container-toolkit there, and for "
    "podman run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
)


class Proof(enum.Enum):
    """Whether `firstlight verify` is run in the image there."""

    WHERE_IT_CAN = "where it can"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be shipped, where to, and how."""

    source: Source
    name: Name
    target: Target
    folder: str
    config: str = ""
    engine: Engine | None = None
    proof: Proof = Proof.WHERE_IT_CAN
    rate_kib: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is known before anything is sent."""

    wish: Wish
    cached: Cached
    host: Host
    state: HostState
    engine: Engine
    missing: tuple[Missing, ...] = ()
    needs: tuple[Needed, ...] = ()
    is_there: bool = True

    @property
    def image(self) -> Image:
        return self.cached.image

    @property
    def left_bytes(self) -> int:
        return sum(each.left_bytes for each in self.missing)


@dataclass(frozen=True, slots=True)
class Proved:
    """What came of `firstlight verify` there; `ran` is None where it was not run, for the reason in `why`."""

    ran: Ran | None
    why: str = ""
    gpus: Gpus = Gpus.NONE
    brought_bytes: int = 0  # of a firstlight that was not in the image; 0 where it was


@dataclass(frozen=True, slots=True)
class Shipped:
    """An image that is on the host, and what it took."""

    prepared: Prepared
    wire_bytes: int
    again: tuple[Blob, ...]  # damaged there, and sent a second time
    proved: Proved

    @property
    def sent_bytes(self) -> int:
        return self.prepared.left_bytes + sum(blob.size_bytes for blob in self.again)

    @property
    def skipped_bytes(self) -> int:
        """What was there and whole: neither sent nor sent again."""
        have = {each.blob.digest: each.have_bytes for each in self.prepared.missing}
        whole = (blob for blob in self.prepared.image.blobs if blob not in self.again)
        return sum(have.get(blob.digest, blob.size_bytes) for blob in whole)

    @property
    def exit_code(self) -> int:
        """1 where verify failed, or where the GPUs that are there cannot be handed to it."""
        proved = self.proved
        failed = proved.ran.status != 0 if proved.ran is not None else proved.why == NO_GPU_WAY
        return 1 if failed else 0


def fetch(wish: Wish, told: Told) -> Cached:
    """The image in the cache of this machine; no host is asked."""
    require_tools()
    told("copying the image to the cache")
    ours = cached(wish.source)
    if wish.proof is Proof.ALWAYS and not (ours.firstlight or ours.python):
        raise BadInput(
            f"--verify: there is neither firstlight nor python3 in {wish.source.given}, and something has to run "
            "there. Install Python 3.10 or newer in the image, or leave --verify out."
        )
    return ours


def prepare(wish: Wish, ours: Cached, told: Told) -> Prepared:
    """Everything that can be known of the host and refused before anything is sent."""
    told("asking the host")
    host = Host(wish.target, Place(wish.folder, wish.name), wish.config)
    state = host.state(ours.image)
    engine = choose_engine(state, wish.engine)
    require_processor(state, ours.image)
    if wish.proof is Proof.ALWAYS:
        _require_proof(engine, how_gpus(state, engine))
    if is_there(state, engine, ours.image):
        return Prepared(wish, ours, host, state, engine)
    left = missing(state, ours.image)
    to_send = sum(each.left_bytes for each in left)
    needs = rooms_needed(state, engine, (to_send, ours.image.size_bytes, ours.unpacked_bytes))
    require_room(needs)
    return Prepared(wish, ours, host, state, engine, left, needs, is_there=False)


def ship(prepared: Prepared, told: Told) -> Shipped:
    """Send, check, load, compare, prove."""
    wire = 0
    again: tuple[Blob, ...] = ()
    if not prepared.is_there:
        wire = _send(prepared, prepared.missing, too_long(prepared.state, prepared.image), told)
        wire_again, again = _mended(prepared, told)
        wire += wire_again
        _load(prepared, told)
    return Shipped(prepared, wire, again, _proved(prepared, told))


def _send(prepared: Prepared, left: tuple[Missing, ...], bad: tuple[Blob, ...], told: Told) -> int:
    """The bytes on the wire; the blobs in `bad` are removed there first."""
    if not left:
        return 0
    told("making the folder there")
    prepared.host.prepare(bad)
    wish, total = prepared.wish, sum(each.blob.size_bytes for each in left)
    way = Sending(prepared.cached.blobs, wish.folder, wish.target, wish.config, wish.rate_kib)
    told(f"sending {total:,} bytes")
    return send(way, left, lambda so_far: told(f"sending: {so_far:,} of {total:,} bytes are there"))


def _mended(prepared: Prepared, told: Told) -> tuple[int, tuple[Blob, ...]]:
    """The bytes on the wire and the blobs that were sent again because they were damaged there."""
    told("checking every blob there")
    damaged = prepared.host.damaged(prepared.image.blobs)
    if not damaged:
        return 0, ()
    wire = _send(prepared, tuple(Missing(blob) for blob in damaged), damaged, told)
    told("checking every blob there again")
    if still := prepared.host.damaged(prepared.image.blobs):
        raise CouldNotLook(
            f"{len(still)} blobs are damaged there after they were sent twice, e.g. sha256:{still[0].digest[:12]}; "
            "look at the disk and the memory of that host (dmesg). Nothing was loaded."
        )
    return wire, damaged


def _load(prepared: Prepared, told: Told) -> None:
    """Have the engine take it, and compare what it has then with what we have."""
    engine, image = prepared.engine, prepared.image
    told(f"loading it with {engine.value} there")
    loaded = prepared.host.load(image, engine, prepared.cached.unpacked_bytes)
    if loaded.status != 0:
        said = loaded.said[-1] if loaded.said else "nothing"
        raise CouldNotLook(f"{engine.value} there did not take the image; it said: {said}")
    if loaded.id not in image.ids:
        raise CouldNotLook(
            f"the image that {engine.value} has there under that name is sha256:{loaded.id or 'nothing'}; ours is "
            f"sha256:{image.config.digest}. Do not use it; remove it there and send it again."
        )


def _require_proof(engine: Engine, gpus: Gpus) -> None:
    if engine is Engine.SKOPEO:
        raise CouldNotLook("--verify: skopeo starts no container; install podman or docker there. Nothing was sent.")
    if gpus is Gpus.NO_WAY:
        raise CouldNotLook(f"--verify: {NO_GPU_WAY}. Nothing was sent.")


def _proved(prepared: Prepared, told: Told) -> Proved:
    program, proof = prepared.cached.firstlight, prepared.wish.proof
    gpus = how_gpus(prepared.state, prepared.engine)
    if proof is Proof.NEVER:
        return Proved(None, "--no-verify was given", gpus)
    if not program and proof is not Proof.ALWAYS:
        more = "; --verify brings one" if prepared.cached.python else ""
        return Proved(None, f"there is no firstlight in the image{more}", gpus)
    if prepared.engine is Engine.SKOPEO:
        return Proved(None, "skopeo starts no container, and neither podman nor docker answers there", gpus)
    if gpus is Gpus.NO_WAY:
        return Proved(None, NO_GPU_WAY, gpus)
    brought = None
    try:
        brought = None if program else _brought(prepared, told)
        told("running firstlight verify in the image there")
        ran = prepared.host.verify(prepared.image, brought or program, (prepared.engine, gpus))
    except CouldNotLook as error:  # the image is there, and nothing is proved
        ran = Ran(-1, (str(error),))
    return Proved(ran, gpus=gpus, brought_bytes=0 if brought is None else brought.size_bytes)


def _brought(prepared: Prepared, told: Told) -> Blob:
    """firstlight beside the blobs there, checked by its sha256; sent where it does not lie there from before."""
    ours = own_blob(prepared.cached.blobs)
    if prepared.host.damaged((ours,)):
        _send(prepared, (Missing(ours),), (ours,), told)
        if prepared.host.damaged((ours,)):
            raise CouldNotLook("firstlight did not arrive there as it was sent; look at the disk of that host (dmesg)")
    return ours
