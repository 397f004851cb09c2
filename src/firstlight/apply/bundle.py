"""A folder of wheels for a machine without a network: what it holds, and whether it still holds it here."""

from __future__ import annotations

import hashlib
import json
import os

from firstlight.apply.shelf import described, opened, sha256_of, wheel_file
from firstlight.errors import BadFactsFile, BadInput
from firstlight.frozen import dataclass
from firstlight.records import decode, encode
from firstlight.secrets import without_login
from firstlight.ways.shelf import ListedWheel
from firstlight.ways.wheel_target import Target, missing, takes

SCHEMA = "firstlight.bundle/1"
MANIFEST = "bundle.json"
# What pip or uv could take for something to install, or follow to it.
_INSTALLABLE = (".whl", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zip", ".egg", ".html", ".htm")
_MANIFEST_LIMIT = 16 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file of a bundle, e.g. torch 2.9.0+cu128, 899776543 bytes, from PyTorch's index cu128."""

    file: str
    project: str
    version: str
    bytes: int
    sha256: str
    source: str  # the index it came from, without names and passwords; "" = pip's own


@dataclass(frozen=True, slots=True)
class Bundle:
    """Wheels of one option for one class of machines."""

    made_for: str  # H100, driver >= 550; or the file of facts
    target: Target
    option: str  # another-wheel:torch-2.9.0+cu128
    requirements: tuple[str, ...]  # exact pins, torch first
    plan_digest: str  # over requirements, index, machine and Python: two bundles of the same choice share it
    wheels: tuple[Wheel, ...]

    @property
    def bytes(self) -> int:
        return sum(wheel.bytes for wheel in self.wheels)


def plan_digest(requirements: tuple[str, ...], *, index: str, target: Target) -> str:
    """What was chosen as one number, e.g. 5f0c...; files and days do not change it."""
    chosen = {"requirements": list(requirements), "index": without_login(index), "target": encode(target)}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()


def manifest_text(bundle: Bundle) -> str:
    """bundle.json: the schema first, the wheels in the order of their names."""
    return json.dumps({"schema": SCHEMA, **encode(bundle)}, indent=1) + "\n"


def read_bundle(folder: str) -> Bundle:
    """The manifest of a folder; a folder that is no bundle is refused with what would be one."""
    path = os.path.join(folder, MANIFEST)
    try:
        os.stat(path)
    except OSError as error:
        lacks = f"has no wheel and no {MANIFEST}" if os.path.isdir(folder) else f"{error.strerror}".lower()
        raise BadInput(
            f"{folder}: {lacks}; accepted: a folder of wheels, or one that `firstlight bundle --out FOLDER` wrote "
            "to its end."
        ) from None
    try:
        with opened(path) as file:
            document = json.loads(file.read(_MANIFEST_LIMIT).decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadInput(f"{path} is not JSON: it is damaged. Make the bundle again.") from None
    if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
        raise BadInput(f"{path}: accepted is the schema {SCHEMA}. Make the bundle with this firstlight.")
    try:
        bundle = decode(Bundle, document, "bundle")
    except BadFactsFile as error:
        raise BadInput(f"{path}: {str(error).partition(';')[0]}. Make the bundle again.") from None
    for wheel in bundle.wheels:
        if os.path.basename(wheel.file) != wheel.file or not wheel.file.endswith(".whl"):
            raise BadInput(f"{path}: {wheel.file[:80]!a} is not the name of a wheel. Make the bundle again.")
    if len({wheel.file for wheel in bundle.wheels}) != len(bundle.wheels):
        raise BadInput(f"{path} names a file twice: it is damaged. Make the bundle again.")
    return bundle


def check_place(bundle: Bundle, here: Target) -> None:
    """Refuse a bundle for another processor, Python or a newer C library than those here."""
    made, given = bundle.target, here
    if made.machine != given.machine:
        what = f"is for {made.machine}; this machine is {given.machine}"
    elif made.python != given.python:
        what = f"is for Python {made.python}; the environment has Python {given.python}"
    elif _numbers(made.glibc) > _numbers(given.glibc):
        what = f"is for glibc {made.glibc} or newer; this machine has {given.glibc}"
    else:
        return
    raise BadInput(
        f"the bundle {what}. Accepted here is one for {given.words.removesuffix(' or newer')}: "
        f"firstlight bundle --platform {given.machine} --python {given.python} --glibc {given.glibc} ..."
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def check_files(bundle: Bundle, folder: str) -> tuple[ListedWheel, ...]:
    """The wheels of the manifest as they lie there; the first that is not the one that was bundled is refused."""
    listed = {wheel.file for wheel in bundle.wheels}
    for name in names_in(folder):
        if name not in listed and name.lower().endswith(_INSTALLABLE):
            raise BadInput(f"{folder}/{name} is not in {MANIFEST}: who put it there? Take it out, or make it again.")
    return tuple(_checked(wheel, folder) for wheel in bundle.wheels)


def names_in(folder: str) -> tuple[str, ...]:
    """What lies in a folder, sorted; one that cannot be read, or goes while it is, is refused."""
    try:
        return tuple(sorted(os.listdir(folder)))
    except OSError as error:
        raise BadInput(f"{folder}: {error.strerror}. Make it readable, or copy the bundle again.") from None


def _checked(wheel: Wheel, folder: str) -> ListedWheel:
    path = f"{folder}/{wheel.file}"
    if os.path.islink(path):
        raise BadInput(f"{path} is a link to another file. Copy the bundle again, with the files themselves.")
    with opened(path) as file:
        size, digest = os.fstat(file.fileno()).st_size, sha256_of(file)
        if (size, digest) != (wheel.bytes, wheel.sha256):
            raise BadInput(
                f"{path} is not the file that was bundled: {size} bytes with SHA-256 {digest[:16]}..., "
                f"accepted: {wheel.bytes} bytes with {wheel.sha256[:16]!a}... Copy it again."
            )
        found = described(path, file)
    if (found.project, found.version) != (wheel.project, wheel.version):
        raise BadInput(
            f"{path} is {found.project} {found.version}, and {MANIFEST} calls it {wheel.project[:60]!a} "
            f"{wheel.version[:60]!a}. Make the bundle again."
        )
    return ListedWheel(found, digest)


def what_lacks(
    folder: str, names: tuple[str, ...], *, requirements: tuple[str, ...], target: Target
) -> tuple[str, ...]:
    """What the wheels of a folder still need for the target, by their own metadata."""
    wheels = tuple(wheel_file(folder, name) for name in names if takes(target, name))
    return missing(requirements, wheels, target)
