"""How packages would be fetched: proxies, private indexes, offline switches. Names of settings, never their values."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from firstlight.facts.known import Fact, Known, Unknown
from firstlight.facts.toolkits import plain_path
from firstlight.frozen import dataclass
from firstlight.machine import Machine

_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_PROXY", "PIP_TRUSTED_HOST")
_UV = (
    "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_OFFLINE",
    "UV_INSECURE_HOST",
)  # fmt: skip
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "UV_NATIVE_TLS")
# Variables asked for presence alone: a recording may keep "set" in place of their values.
PRESENCE_ONLY = (*_PROXIES, *(name.lower() for name in _PROXIES), *_PIP, *_UV, *_CERTIFICATES)

_PIP_KEYS = (
    rb"(?m)^[ \t]*(?:(?:extra[-_])?index[-_]url|no[-_]index|find[-_]links|trusted[-_]host|proxy|cert)(?=[ \t]*[=:])"
)
_UV_KEYS = (
    rb"(?m)^[ \t]*(?:\[\[(?:tool\.uv\.)?index\]\]|(?:extra-)?index-url(?=[ \t]*=)|(?:no-index|find-links|offline"
    rb"|allow-insecure-host|torch-backend)(?=[ \t]*=))"
)
_SOURCES = ("index-url", "extra-index-url", "default-index", "index", "find-links")
_TORCH_BACKEND = r"[a-z0-9.]{1,12}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting by name and place, e.g. index-url in /etc/pip.conf or PIP_INDEX_URL in the environment."""

    name: str
    where: str


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """What stands between this machine and a package index."""

    proxies: tuple[str, ...]  # names of the variables that are set
    package_settings: tuple[Setting, ...]  # what pip and uv are told about where packages come from
    certificates: tuple[str, ...]  # variables that name a certificate store: a proxy that opens TLS needs one
    uv_torch_backend: Fact[str]  # auto, cu130, cpu

    @property
    def other_sources(self) -> tuple[Setting, ...]:
        """The settings that name another index or a folder of wheels, e.g. index-url in /etc/pip.conf."""
        return tuple(each for each in self.package_settings if _kind(each.name) in _SOURCES)

    @property
    def offline(self) -> tuple[Setting, ...]:
        """The settings that switch indexes off, e.g. PIP_NO_INDEX."""
        return tuple(each for each in self.package_settings if _kind(each.name) in ("no-index", "offline"))


def probe_network(machine: Machine) -> NetworkFacts:
    """Which proxy, index and certificate settings exist; no address and no token is taken."""
    proxies = tuple(name for each in _PROXIES for name in (each, each.lower()) if machine.env(name))
    variables = tuple(Setting(name, "environment") for name in (*_PIP, *_UV) if machine.env(name))
    in_files = tuple(setting for path, keys in _files(machine) for setting in _settings(machine, path, keys))
    return NetworkFacts(
        proxies=proxies,
        package_settings=variables + in_files,
        certificates=tuple(name for name in _CERTIFICATES if machine.env(name)),
        uv_torch_backend=_torch_backend(machine),
    )


def _kind(name: str) -> str:
    """index-url for PIP_INDEX_URL, UV_INDEX_URL and index-url alike."""
    return name.removeprefix("PIP_").removeprefix("UV_").removeprefix("tool.uv.").lower().replace("_", "-")


def _torch_backend(machine: Machine) -> Fact[str]:
    value = machine.env("UV_TORCH_BACKEND")
    if not value:
        return Unknown("UV_TORCH_BACKEND is not set")
    if not re.fullmatch(_TORCH_BACKEND, value):
        return Unknown("UV_TORCH_BACKEND is set to something that is not a backend's name")
    return Known(value, seen_in="UV_TORCH_BACKEND")


def _files(machine: Machine) -> Iterator[tuple[str, bytes]]:
    """Every configuration file that pip or uv would read here, with the keys to look for."""
    home, cwd = machine.host.home, machine.host.cwd
    config = plain_path(machine.env("XDG_CONFIG_HOME") or "") or f"{home}/.config"
    pip = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf", f"{home}/.pip/pip.conf", f"{config}/pip/pip.conf"]
    for variable, rest in (("VIRTUAL_ENV", "/pip.conf"), ("CONDA_PREFIX", "/pip.conf"), ("PIP_CONFIG_FILE", "")):
        if path := plain_path(machine.env(variable) or ""):
            pip.append(f"{path}{rest}")
    for path in dict.fromkeys(pip):
        if path != "/dev/null":  # PIP_CONFIG_FILE=/dev/null switches the files off
            yield path, _PIP_KEYS
    uv = ["/etc/uv/uv.toml", f"{config}/uv/uv.toml"]
    if path := plain_path(machine.env("UV_CONFIG_FILE") or ""):
        uv.append(path)
    for path in dict.fromkeys((*uv, *_project_files(cwd))):
        yield path, _UV_KEYS


def _project_files(cwd: str) -> Iterator[str]:
    """uv.toml and pyproject.toml of the working folder and the folders above it, as uv looks for them."""
    folder = plain_path(cwd)
    for _ in range(8):
        if not folder or folder == "/":
            return
        yield f"{folder}/uv.toml"
        yield f"{folder}/pyproject.toml"
        folder = posixpath.dirname(folder)


def _settings(machine: Machine, path: str, keys: bytes) -> Iterator[Setting]:
    seen = machine.stat(path)
    if seen is None or seen.kind != "file":  # PIP_CONFIG_FILE=/dev/fd/63 is a pipe that someone else has to read
        return
    found = machine.search(path, keys, limit=40) or ()
    for name in dict.fromkeys(item.decode("ascii", "replace").strip().strip("[]") for item in found):
        yield Setting(name.replace("_", "-"), path)
