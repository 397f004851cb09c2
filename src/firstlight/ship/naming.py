"""What an image is called: on the command line, to skopeo here, and to the engine there."""

from __future__ import annotations

import os
import re
import tarfile

from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.opening import open_regular

_ACCEPTED = (
    "a name in the storage of podman and buildah (team/train:3), docker-daemon:NAME, the folder of an OCI layout, or "
    "an archive that podman save or docker save wrote"
)
_DOMAIN = r"(?:localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+|[A-Za-z0-9-]+(?=:[0-9]))(?::[0-9]{1,5})?"
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?P<domain>{_DOMAIN}/)?(?P<path>{_PART}(?:/{_PART})*)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?"
)
_FOLDER = re.compile(r"/?[A-Za-z0-9_.][A-Za-z0-9_./+-]{0,900}")
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,254}")
_MOST = 255


@dataclass(frozen=True, slots=True)
class Name:
    """A name with its tag, e.g. Name("", "team/train", "3"); the domain ends with a slash."""

    domain: str
    path: str
    tag: str

    @property
    def given(self) -> str:
        """As docker has it: train:latest."""
        return f"{self.domain}{self.path}:{self.tag}"

    @property
    def qualified(self) -> str:
        """As podman files what was built by hand: localhost/train:latest."""
        return f"{self.domain or 'localhost/'}{self.path}:{self.tag}"

    @property
    def in_containerd(self) -> str:
        """As containerd files it: docker.io/library/train:latest."""
        if self.domain:
            return self.given
        return f"docker.io/{'' if '/' in self.path else 'library/'}{self.path}:{self.tag}"


@dataclass(frozen=True, slots=True)
class Source:
    """An image here: what skopeo is asked for, in order, and the name it has (None where it has none)."""

    given: str
    tried: tuple[str, ...]
    name: Name | None = None


def parse_name(given: str) -> Name:
    """The name of an image; what an engine could read as an option or a path out of its folder is refused."""
    match = _NAME.fullmatch(given) if len(given) <= _MOST and ".." not in given else None
    if match is None:
        raise BadInput(
            f"{_shown(given)} is not the name of an image; accepted: NAME[:TAG] in small letters, e.g. team/train:3"
        )
    return Name(match["domain"] or "", match["path"], match["tag"] or "latest")


def parse_folder(given: str) -> str:
    """A folder on the host: absolute, or from the user's home on."""
    if not _FOLDER.fullmatch(given) or ".." in given.split("/"):
        raise BadInput(
            f"--folder {_shown(given)}: accepted is a path of letters, digits and _ . / + - without .., e.g. "
            "/workspace/ship; without a slash in front it begins in the home there"
        )
    return given.rstrip("/")


def parse_image(given: str) -> Source:
    """The image that was named; a path where there is one, else a name."""
    if not given or given.startswith("-") or any(not letter.isprintable() for letter in given):
        raise BadInput(f"{_shown(given)} is not an image; accepted: {_ACCEPTED}")
    transport, colon, rest = given.partition(":")
    if colon and transport == "docker-daemon":
        name = parse_name(rest)
        return Source(given, (f"docker-daemon:{name.given}",), name)
    if colon and transport == "containers-storage":
        name = parse_name(rest)
        return Source(given, (f"containers-storage:{name.given}",), name)
    if colon and transport in ("oci", "oci-archive", "docker-archive"):
        path, ref = _path_and_ref(rest)
        return _at(path, given, ref)
    if given.startswith(("/", ".", "~")) or os.path.exists(given):
        return _at(given, given)
    name = parse_name(given)
    names = (name.given,) if name.domain else (name.qualified, name.in_containerd)
    return Source(given, tuple(f"containers-storage:{each}" for each in names), name)


def _path_and_ref(rest: str) -> tuple[str, str]:
    """PATH[:REF] of skopeo, where a layout or an archive holds several images."""
    path, colon, ref = rest.partition(":")
    if not colon or os.path.exists(rest):
        return rest, ""
    if not _REF.fullmatch(ref) or ".." in ref:
        raise BadInput(f"{_shown(ref)} is not a reference in {_shown(path)}; accepted: letters, digits and _ . : / -")
    return path, ref


def _at(path: str, given: str, ref: str = "") -> Source:
    """An OCI layout, or an archive of either kind, told apart by what is in it."""
    where = os.path.abspath(os.path.expanduser(path))
    behind = f":{ref}" if ref else ""
    if ":" in where or "," in where:
        raise BadInput(f"{_shown(given)}: skopeo cannot be given a path with a colon or a comma; move or link it")
    if os.path.isdir(where):
        if not os.path.isfile(os.path.join(where, "oci-layout")):
            raise BadInput(f"{_shown(given)} is a folder without a file oci-layout; accepted: {_ACCEPTED}")
        return Source(given, (f"oci:{where}{behind}",))
    return Source(given, (f"{_kind_of_archive(where, given)}:{where}{behind}",))


def _kind_of_archive(path: str, given: str) -> str:
    try:
        with open_regular(path) as file, tarfile.open(fileobj=file, mode="r:*") as archive:
            names = {os.path.normpath(each) for each in archive.getnames()}
    except OSError as error:
        raise BadInput(f"{_shown(given)}: {error.strerror or error}; accepted: {_ACCEPTED}") from None
    except (tarfile.TarError, EOFError):
        raise BadInput(f"{_shown(given)} is not the archive of an image; accepted: {_ACCEPTED}") from None
    if "manifest.json" in names:
        return "docker-archive"
    if "oci-layout" in names:
        return "oci-archive"
    raise BadInput(f"{_shown(given)} holds neither manifest.json nor oci-layout; accepted: {_ACCEPTED}")


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 80 else text[:77] + "...")
