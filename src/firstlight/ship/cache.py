"""Images of ours as blobs in one folder of the cache, put there by skopeo; layers of several images lie there once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from firstlight.errors import BadInput, CouldNotLook
from firstlight.fleet.child import ends_with_us
from firstlight.frozen import dataclass
from firstlight.owned import our_folder
from firstlight.ship.image import Image, config_digest, hex_of, read_image
from firstlight.ship.layers import look_inside
from firstlight.ship.naming import Source

_REF = "image"
_STALE_S = 86_400.0
_MANIFEST_LIMIT = 4 << 20
INSTALL = {
    "skopeo": "apt-get install skopeo, dnf install skopeo",
    "rsync": "apt-get install rsync, dnf install rsync",
    "ssh": "apt-get install openssh-client, dnf install openssh-clients",
}


@dataclass(frozen=True, slots=True)
class Cached:
    """An image whose blobs lie whole in the cache, its bytes unpacked, and where firstlight and Python are in it."""

    image: Image
    blobs: Path
    unpacked_bytes: int
    firstlight: str = ""  # "": nowhere
    python: str = ""


def cache_folder() -> Path:
    """The folder of the images, e.g. ~/.cache/firstlight/ship."""
    base = os.environ.get("FIRSTLIGHT_CACHE_DIR") or ""
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(home, "firstlight")
    return Path(os.path.abspath(base)) / "ship"


def require_tools() -> None:
    """CouldNotLook with what to install where a tool is missing here."""
    missing = [name for name in INSTALL if shutil.which(name) is None]
    if missing:
        how = "; ".join(f"{name} ({INSTALL[name]})" for name in missing)
        raise CouldNotLook(f"missing on this machine: {how}. First install what is missing; nothing was sent.")


def cached(source: Source) -> Cached:
    """The image in the cache, copied there where it is not; a blob that is damaged there is copied again once."""
    try:
        with our_folder(str(cache_folder()), make=0o700) as opened:
            folder = Path(opened.path)
        (folder / "blobs/sha256").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"{cache_folder()}: images cannot be kept there ({error.strerror}); set FIRSTLIGHT_CACHE_DIR to a folder "
            "that you can write to"
        ) from None
    raw, skopeo_name = _asked(source)
    key = hashlib.sha256(raw).hexdigest()
    if (digest := _known(folder, key)) and (found := _whole(folder, digest)) is not None:
        return found
    digest = _copied(folder, skopeo_name)
    found = _whole(folder, digest)
    if found is None:  # what was damaged is gone now
        digest = _copied(folder, skopeo_name)
        found = _whole(folder, digest)
    if found is None:
        raise CouldNotLook(f"the copy of {source.given} in {folder} is damaged twice over; look at that disk (dmesg)")
    (folder / "known").mkdir(exist_ok=True)
    _replace(folder / "known" / key, digest)
    return found


def _asked(source: Source) -> tuple[bytes, str]:
    """The manifest as it is where the image lies, and the name under which skopeo found it."""
    said = ""
    for name in source.tried:
        done = _skopeo("inspect", "--raw", name)
        if done.returncode == 0:
            return done.stdout[:_MANIFEST_LIMIT], name
        said = _last(done.stderr)
    raise BadInput(f"{source.given} is not there: skopeo looked for {' and '.join(source.tried)} and said: {said}")


def _known(folder: Path, key: str) -> str:
    try:
        return hex_of(f"sha256:{(folder / 'known' / key).read_text(encoding='ascii').strip()}")
    except (OSError, ValueError, BadInput):
        return ""


def _whole(folder: Path, digest: str) -> Cached | None:
    """The image where every blob of it is whole; damaged blobs are removed."""
    blobs = folder / "blobs/sha256"
    try:
        manifest = (blobs / digest).read_bytes()
        if hashlib.sha256(manifest).hexdigest() != digest:
            raise ValueError("damaged")
        image = read_image(manifest, digest, (blobs / config_digest(manifest)).read_bytes())
    except (OSError, ValueError, BadInput):
        (blobs / digest).unlink(missing_ok=True)
        return None
    insides = [look_inside(folder, blob) for blob in image.blobs]
    for blob, inside in zip(image.blobs, insides, strict=True):
        if inside is None:
            (blobs / blob.digest).unlink(missing_ok=True)
    whole = [inside for inside in insides if inside is not None]
    if len(whole) < len(insides):
        return None
    program = next((inside.firstlight for inside in whole if inside.firstlight), "")
    python = next((inside.python for inside in whole if inside.python), "")
    return Cached(image, blobs, sum(inside.unpacked_bytes for inside in whole), program, python)


def _copied(folder: Path, name: str) -> str:
    """Copy it with skopeo; the digest of its manifest."""
    with _place_for_one(folder) as place:
        shared = ("--dest-shared-blob-dir", str(folder / "blobs"))
        words = ("--quiet", "--remove-signatures", "--format", "oci", *shared, name, f"oci:{place}:{_REF}")
        done = _skopeo("copy", *words)
        if done.returncode:
            raise CouldNotLook(f"skopeo could not copy {name} to {folder}: {_last(done.stderr)}")
        index = json.loads((place / "index.json").read_text(encoding="utf-8"))
    return hex_of(index["manifests"][0]["digest"])


@contextlib.contextmanager
def _place_for_one(folder: Path) -> Iterator[Path]:
    """A layout for one copy: skopeo writes its half-done blobs there. What a kill left a day ago goes first."""
    copies = folder / "copies"
    copies.mkdir(exist_ok=True)
    for old in copies.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _STALE_S:
                shutil.rmtree(old)
    place = Path(tempfile.mkdtemp(dir=copies))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _skopeo(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(ends_with_us(("skopeo", *words)), stdin=subprocess.DEVNULL, capture_output=True, check=False)


def _last(said: bytes) -> str:
    """The last line of skopeo's complaint, without the time and the level in front of it."""
    lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        return "nothing"
    _, found, message = lines[-1].partition('msg="')
    return (message.rstrip('"').replace('\\"', '"') if found else lines[-1])[:400]


def _replace(path: Path, text: str) -> None:
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_text(text, encoding="ascii")
    os.replace(part, path)
