"""Names of people, hosts, addresses, devices and secrets out of every string.

The same text always gives the same result, and applying it twice changes nothing more, so a document made from a
recording equals the one made live.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from firstlight.frozen import dataclass
from firstlight.machine import Host
from firstlight.secrets import GPU_ID, MASK, masked
from firstlight.visible import visible

T = TypeVar("T")

# Account names that tell nothing about who is behind them, or that occur as ordinary words in paths and package names.
_NOT_PERSONAL = {
    "root", "ubuntu", "debian", "user", "nvidia", "jetson", "admin", "runner", "jovyan", "nobody", "www-data", "daemon",
    "cuda", "torch", "python", "python3", "linux", "gpu", "conda", "pip", "uv", "lib", "bin", "usr", "local", "home",
    "localhost", "docker", "nccl", "triton", "ec2-user", "vscode", "app", "dev", "test", "data", "opt", "tmp", "share",
    "user-a", "user-b", "host-a", "none", "true", "false", "file", "folder", "null", "ld", "so", "compat",
}  # fmt: skip

_UUID = r"[0-9a-fA-F]{8}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{4}[-_][0-9a-fA-F]{12}"
# Fixed identifiers of EFI variables, the same on every machine: of the specification, of its key lists, of shim.
_OF_EFI = (
    "8be4df61-93ca-11d2-aa0d-00e098032b8c",
    "d719b2cb-3d3a-4596-a3bc-dad00e67656f",
    "605dab50-e046-4300-abb6-3dd810dd8b23",
)
# Addresses of documentation and indexes that everybody uses; any other host in a URL is masked.
_PUBLIC_HOSTS = (
    "pypi.org", "files.pythonhosted.org", "download.pytorch.org", "pypi.nvidia.com", "developer.download.nvidia.com",
    "docs.nvidia.com", "developer.nvidia.com", "pytorch.org", "github.com", "conda.anaconda.org", "www.nvidia.com",
    "pypi.jetson-ai-lab.io", "nvidia.com", "repo.anaconda.com", "astral.sh", "docs.pytorch.org",
)  # fmt: skip

_ACCOUNT = re.compile(r"(?i)\b((?:user|login)(?:name)?)(=)([^\s\"',;]{3,})")
# What clouds call a host after its address: ip-10-20-30-40.ec2.internal
_ADDRESS_NAME = re.compile(r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[\w.-]+)?")
_INTERNAL_NAME = re.compile(r"\b[\w-]+(?:\.[\w-]+)*\.(?:internal|local|lan|corp|intranet|cluster)(?![\w.-])")
_URL = re.compile(r"\b([a-zA-Z][a-zA-Z0-9+.-]*)://([^\s/\"'<>]+)((?:/[^\s\"'<>]*)?)")
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_LOGIN = re.compile(r"\b[\w.+-]+@(?=[\w-])[\w.-]+(?=:)")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
# Four dotted numbers are an address only where they cannot be a version (9.10.2.21 is one of cuDNN).
_IPV4 = re.compile(
    r"(?<![\w.\-+])(?<![=<>~!]=)(?<![Vv]ersion: )(?<!so\.)"
    r"(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?![\w.]*\d)(?!-)"
)
# What `firstlight facts` puts before a version: cuBLAS 13.1.0.3 (toolkit).
_LIBRARY_BEFORE = re.compile(
    r"(?i)\b(?:cu(?:blas(?:lt)?|dnn|dart|fft|rand|solver|sparse(?:lt)?|pti|tensor)|nccl|npp|nvjpeg|nvshmem) $"
)
_IPV6 = re.compile(
    r"(?<![\w:.])(?:(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|(?:[0-9a-fA-F]{1,4}:){1,6}(?::[0-9a-fA-F]{1,4}){1,6})(?![\w:])"
)
_CONTAINER_ID = re.compile(r"\b[0-9a-f]{64}\b")
_HOME = re.compile(r"((?:/[\w.-]+)*/(?:home|homes|Users))/([A-Za-z_][\w.@-]*)")
# A line of /proc/mounts: server:/export, //server/share, or what parallel file systems put there.
_FILE_SERVER = re.compile(
    r"(?m)^(?!/dev/)\S*[:/@]\S* (?=/\S* (?:nfs|cifs|smb|lustre|ceph|fuse|beegfs|weka|gpfs|9p|afs|glusterfs)\S* )"
)
# The id of a container or a job in a cgroup path; 40 digits alone are a commit and stay.
_CGROUP_ID = re.compile(r"(?<=[/-])[0-9a-f]{32}(?=[/.\s]|$)")
_HOME_BYTES = re.compile(rb"/home/([A-Za-z_][\w.-]*)")
_GPU_UUID = re.compile(rf"\b(GPU|MIG)-{_UUID}")
_ANY_UUID = re.compile(rf"(?:(?<=pod)|(?<![0-9A-Za-z])){_UUID}")
_VERSION_ALONE = re.compile(r"\s*\d+(?:\.\d+){3}\s*")


def is_personal(account: str) -> bool:
    """Whether the name of an account tells who is behind it: ann does, root and ubuntu do not."""
    return len(account) >= 2 and account.lower() not in _NOT_PERSONAL


@dataclass(frozen=True, slots=True)
class Pseudonyms:
    """What stands for whom: user-a, host-a, gpu-0."""

    literals: tuple[tuple[str, str], ...]
    gpus: tuple[str, ...]
    slices: tuple[str, ...] = ()  # MIG devices

    @classmethod
    def of(cls, host: Host, gpu_uuids: Iterable[str], slices: Iterable[str] = ()) -> Pseudonyms:
        """Pseudonyms for the people and devices of one machine; GPUs and slices are numbered in the order given."""
        literals: list[tuple[str, str]] = []
        names = [host.hostname, host.hostname.split(".")[0]]
        literals += [(name, "host-a") for name in names if len(name) >= 3 and name.lower() not in _NOT_PERSONAL]
        people = {host.user, host.home.rstrip("/").rpartition("/")[2]}
        literals += [(name, "user-a") for name in people if len(name) >= 2 and name.lower() not in _NOT_PERSONAL]
        unique = dict(sorted(literals, key=lambda pair: -len(pair[0])))
        return cls(tuple(unique.items()), tuple(gpu_uuids), tuple(slices))

    def apply(self, text: str) -> str:
        """The text with every name, address, device id and secret replaced, and control characters made visible."""
        if not text or text.isdigit():
            return text
        lowered = text.lower()
        for real, stand_in in self.literals:
            if real.lower() in lowered:
                text = re.sub(rf"(?i)(?<![A-Za-z0-9_]){re.escape(real)}(?![A-Za-z0-9_])", stand_in, text)
        if "/" in text:
            text = _HOME.sub(self._home, text)
        if "-" in text or "_" in text:
            text = self._without_uuids(text)
        if " /" in text:
            text = _FILE_SERVER.sub("<host>:/ ", text)
        if "://" in text:
            text = _URL.sub(_mask_url, text)
        if "." in text or "ip-" in text:
            text = _INTERNAL_NAME.sub("<host>", _ADDRESS_NAME.sub("<host>", text))
        if "@" in text:
            text = _LOGIN.sub("<address>", _EMAIL.sub("<address>", text))
        if ":" in text:
            text = _IPV6.sub("<address>", _MAC.sub("<address>", text))
        if text.count(".") >= 3 and not _VERSION_ALONE.fullmatch(text):
            text = _IPV4.sub(_mask_ipv4, text)
        text = masked(_ACCOUNT.sub(rf"\1\2{MASK}", text) if "=" in text else text)
        if len(text) >= 32:
            text = _CGROUP_ID.sub("<id>", _CONTAINER_ID.sub("<id>", text))
        return visible(text)

    def apply_bytes(self, data: bytes) -> bytes:
        """Binary evidence with account and host names overwritten by as many x, so that offsets stay."""
        for real, _ in self.literals:
            name = real.encode()
            data = re.sub(rb"(?i)" + re.escape(name), b"x" * len(name), data)
        return _HOME_BYTES.sub(_mask_home_bytes, data) if b"/home/" in data else data

    def _without_uuids(self, text: str) -> str:
        for index, uuid in enumerate(self.gpus):
            if uuid and uuid in text:
                text = text.replace(uuid, f"gpu-{index}")
        for index, uuid in enumerate(self.slices):
            if uuid and uuid in text:
                text = text.replace(uuid, f"mig-{index}")
        text = _GPU_UUID.sub(lambda match: f"{match.group(1).lower()}-other", text)
        text = GPU_ID.sub(self._part_of_uuid, text)
        return _ANY_UUID.sub(lambda match: match.group(0) if match.group(0).lower() in _OF_EFI else "<uuid>", text)

    def _part_of_uuid(self, match: re.Match[str]) -> str:
        """The GPU that an abbreviated id means; the same for a document made live and one made from a recording."""
        meant = [f"gpu-{index}" for index, uuid in enumerate(self.gpus) if uuid.lower().startswith(match[0].lower())]
        return meant[0] if len(meant) == 1 else f"{match.group(1).lower().rpartition('-')[2]}-other"

    @staticmethod
    def _home(match: re.Match[str]) -> str:
        folder, name = match.group(1), match.group(2)
        return match.group(0) if name.lower() in _NOT_PERSONAL else f"{folder}/user-b"


def _mask_home_bytes(match: re.Match[bytes]) -> bytes:
    name = match.group(1)
    return match.group(0) if name.decode("ascii").lower() in _NOT_PERSONAL else b"/home/" + b"x" * len(name)


def _mask_url(match: re.Match[str]) -> str:
    scheme, place, rest = match.groups()
    host = place.rpartition("@")[2].partition(":")[0].lower()
    if scheme.lower() == "file":
        return match.group(0)
    return f"{scheme}://{host}{rest}" if host in _PUBLIC_HOSTS else f"{scheme}://<host>/"


def _mask_ipv4(match: re.Match[str]) -> str:
    is_local = match.group(0) in ("127.0.0.1", "0.0.0.0")  # noqa: S104 not a bind
    is_version = _LIBRARY_BEFORE.search(match.string, 0, match.start())
    return match.group(0) if is_local or is_version else "<address>"


def rename_all(value: T, rename: Callable[[str], str]) -> T:
    """A fact dataclass with every string in it passed through `rename`."""
    renamed: T = _rename(value, rename)
    return renamed


def _rename(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, tuple):
        return tuple(_rename(item, rename) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: new
            for field in fields(value)
            if (new := _rename(old := getattr(value, field.name), rename)) is not old
        }
        return replace(value, **changed) if changed else value
    return value
