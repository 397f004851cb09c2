"""Calls of package managers to what they change: what is installed or removed, and from which files."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from firstlight.frozen import dataclass
from firstlight.guard.call import HOLE, Call, fields, known
from firstlight.guard.programs import is_pip
from firstlight.versions import canonical

if TYPE_CHECKING:
    from firstlight.guard.walk import Shell

_VALUED = {
    "-r", "--requirement", "-c", "--constraint", "--constraints", "-i", "--index-url", "--extra-index-url", "-f",
    "--find-links", "-t", "--target", "--prefix", "--root", "--src", "--python-version", "--platform", "--abi", "-b",
    "--build",
    "--implementation", "--only-binary", "--no-binary", "--cache-dir", "--log", "--proxy", "--retries", "--timeout",
    "-n",
    "--name", "-p", "--python", "--index", "--default-index", "--index-strategy", "--extra", "--group", "-C",
    "--config-settings", "--overrides", "--override", "--exclude-newer", "--torch-backend", "--channel", "--file",
    "-o", "--option",
    "--requirements", "--with-requirements", "--with", "--with-editable", "-e", "--editable", "--feature",
    "--manifest-path",
    "--resolution", "--prerelease", "--upgrade-package", "-P", "--progress-bar", "--report", "--upgrade-strategy",
    "--from",
    "--trusted-host", "--cert", "--client-cert", "--exists-action", "--global-option", "--repo", "--project",
    "--directory",
}  # fmt: skip
_INSTALLS = {
    "uv": ("pip install", "pip sync", "add", "sync", "run", "tool install", "tool run", "pip uninstall", "remove"),
    "conda": ("install", "create", "update", "upgrade", "remove", "uninstall", "env update", "env create"),
    "pixi": ("add", "install", "remove", "update", "upgrade", "global install"),
    "poetry": ("add", "install", "update", "remove"), "pdm": ("add", "install", "update", "remove", "sync"),
    "pipenv": ("install", "update", "uninstall", "sync"), "pipx": ("install", "inject", "run", "upgrade"),
    "rye": ("add", "sync", "remove", "install"), "hatch": ("run",), "easy_install": ("",), "uvx": ("",),
    "pip-sync": ("",),
    "apt": ("install", "upgrade", "full-upgrade", "dist-upgrade", "remove", "purge", "autoremove", "reinstall",
    "build-dep"),
    "dnf": ("install", "upgrade", "update", "remove", "erase", "autoremove", "reinstall", "downgrade", "swap",
    "localinstall"),
    "zypper": ("install", "in", "update", "up", "dup", "remove", "rm"), "apk": ("add", "del", "upgrade"),
    "pacman": ("-S", "-Sy", "-Syu", "-U", "-R", "-Rs", "-Rns"), "brew": ("install", "upgrade", "uninstall", "remove"),
    "snap": ("install", "remove", "refresh"), "dpkg": ("-i", "--install", "-r", "--remove", "-P", "--purge"),
    "rpm": ("-i", "-U", "-e", "-ivh", "-Uvh", "--install", "--upgrade", "--erase"), "apt-mark": ("unhold", "hold"),
    "npm": ("install", "i", "ci", "add", "update", "uninstall"), "yarn": ("add", "install", "remove", "upgrade"),
    "pnpm": ("add", "install", "i", "update", "remove"), "bun": ("add", "install", "remove"), "gem": ("install",),
    "cargo": ("install", "build", "run", "test", "add"), "go": ("install", "get", "build"),
}  # fmt: skip
_SAME = {
    "mamba": "conda",
    "micromamba": "conda",
    "apt-get": "apt",
    "aptitude": "apt",
    "yum": "dnf",
    "microdnf": "dnf",
    "tdnf": "dnf",
}
_REMOVES = {
    "uninstall",
    "remove",
    "rm",
    "purge",
    "autoremove",
    "erase",
    "del",
    "-r",
    "-P",
    "-e",
    "-R",
    "-Rs",
    "-Rns",
    "--remove",
    "--purge",
    "--erase",
    "unhold",
}
_WHEEL = re.compile(r"([A-Za-z0-9][\w.]*?)-(\d[\w.!+]*?)(?:-\d\w*)?-(?:py|cp|pp)[\w.]*-[\w.]+-[\w.]+\.whl")
_NAME = re.compile(r"([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(.*)", re.S)
_UPGRADES = {"upgrade", "full-upgrade", "dist-upgrade", "update", "autoremove", "dup", "up"}
_SYNCS = {
    ("uv", "sync"), ("uv", "run"), ("uv", "add"), ("poetry", "install"), ("poetry", "update"), ("pdm", "install"),
    ("pdm", "sync"), ("rye", "sync"),
}  # fmt: skip
OF_PYTHON = {"pip", "uv", "poetry", "pdm", "pipenv", "pipx", "rye", "easy_install", "uvx", "hatch"}
_MOST_FILES = 40


@dataclass(frozen=True, slots=True)
class Wanted:
    """One requirement of a call: name 'torch', spec '==2.8.0' ('' for any), url where it has one."""

    name: str  # canonical; a hole where it is not known
    spec: str = ""
    url: str = ""
    asked_by: str = ""  # the file of the project that asks for it; '' where the command does


@dataclass(frozen=True, slots=True)
class Change:
    """What a call of a package manager would change."""

    manager: str  # pip, uv, conda, apt, ...
    verb: str
    wants: tuple[Wanted, ...]
    removes: tuple[str, ...]
    constraints: tuple[str, ...]
    options: tuple[str, ...]
    unreadable: tuple[str, ...]  # files of requirements that cannot be read
    indexes: tuple[str, ...]
    everything: bool = False  # upgrades whatever there is


def change_of(call: Call, name: str, shell: Shell) -> Change | None:
    """What a call of a package manager changes; None where it only asks."""
    words = call.words[1:]
    family = "pip" if is_pip(name) else _SAME.get(name, name)
    if family != "pip" and family not in _INSTALLS:
        return None
    options, operands = _split(words, family)
    verb, operands = _verb(family, operands, options)
    if not verb or _asks_only(verb, family, words):
        return None
    reader = _Reader(shell, family, call.cwds)
    for variable in ("PIP_REQUIREMENT", "PIP_EDITABLE") if family == "pip" else ():
        for value in (*(value for name, value in call.sets if name == variable), *shell.variables.get(variable, ())):
            options += [("-r" if variable == "PIP_REQUIREMENT" else "-e", each) for each in fields(value)]
    return reader.change(verb, tuple(options), operands)


def _asks_only(verb: str, family: str, words: tuple[str, ...]) -> bool:
    if {"--dry-run", "--help", "-h", "--version", "--simulate", "--just-print", "--assume-no"} & set(words):
        return True
    return (family == "apt" and "-s" in words) or (verb == "download")


def _split(words: tuple[str, ...], family: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Options with their values, and operands in order."""
    options: list[tuple[str, str]] = []
    operands: list[str] = []
    at = 0
    flags = family in ("pacman", "dpkg", "rpm")
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-" or (flags and not operands):
            operands.append(word)
        elif "=" in word and word.startswith("--"):
            options.append((word.partition("=")[0], word.partition("=")[2]))
        elif word in _VALUED and not (
            word in ("-n", "-e", "-p", "-c", "-f", "-r", "-b", "-P", "-C", "-t") and family in ("apt", "dnf", "npm")
        ):
            options.append((word, words[at] if at < len(words) else ""))
            at += 1
        elif (
            len(word) > 2
            and word[:2] in ("-r", "-c", "-e", "-i")
            and not word.startswith("--")
            and family in ("pip", "uv")
        ):
            options.append((word[:2], word[2:]))
        else:
            options.append((word, ""))
    return options, operands


def _verb(family: str, operands: list[str], options: list[tuple[str, str]]) -> tuple[str, list[str]]:
    if family == "pip":
        for at, word in enumerate(operands):
            if not known(word):
                return "install", operands[at + 1 :] or [HOLE]
            return (word, operands[at + 1 :]) if word in ("install", "uninstall") else ("", [])
        return "", []
    verbs = _INSTALLS[family]
    for verb in sorted(verbs, key=len, reverse=True):
        parts = verb.split()
        if operands[: len(parts)] == parts:
            return verb or "install", operands[len(parts) :]
    if family == "pipenv" and not operands:
        return "", []
    if operands and not known(operands[0]):
        return "install", [HOLE]
    return "", []


class _Reader:
    """Reads the requirements of one call, through the files that it names."""

    def __init__(self, shell: Shell, family: str, cwds: tuple[str, ...]) -> None:
        self.shell, self.family, self.cwds = shell, family, cwds
        self.wants: list[Wanted] = []
        self.unreadable: list[str] = []
        self.constraints: list[str] = []
        self.indexes: list[str] = []
        self.seen: set[str] = set()

    def change(self, verb: str, options: tuple[tuple[str, str], ...], operands: list[str]) -> Change:
        removes = bool(set(verb.split()) & _REMOVES)
        for name, value in options:
            self._option(name, value, verb)
        names = [] if verb in ("run", "tool run", "pip sync", "") and self.family == "uv" else operands
        if (self.family == "uv" and verb == "pip sync") or self.family == "pip-sync":
            names = []
            for path in operands or ["requirements.txt"]:
                self.file(path)
        if not removes:
            self._projects(verb, options, operands)
        if self.family == "uvx" or verb == "tool run" or (self.family == "pipx" and verb == "run"):
            names = operands[:1]
        if verb == "run" and self.family in ("cargo", "hatch"):
            names = []
        found = () if removes else tuple(wanted for word in names for wanted in (self._wanted(word),) if wanted)
        if "-r" in dict(options) and removes:
            found = ()
        return Change(
            self.family, verb, (*found, *self.wants), tuple(_plain_name(word) for word in names) if removes else (),
            tuple(self.constraints), tuple(name for name, _ in options), tuple(self.unreadable), tuple(self.indexes),
            everything=(not names and bool(set(verb.split()) & _UPGRADES))
            or "--all" in dict(options),
        )  # fmt: skip

    def _option(self, name: str, value: str, verb: str) -> None:
        if name in ("-r", "--requirement", "--requirements", "--with-requirements") and self.family in OF_PYTHON:
            self.file(value)
        elif name in ("-c", "--constraint", "--constraints") and self.family in OF_PYTHON:
            self.constraints.append(value)
        elif name in ("-e", "--editable", "--with-editable") and self.family in OF_PYTHON:
            self.wants += [wanted for wanted in (self._wanted(value),) if wanted]
        elif name == "--with":
            self.wants += [wanted for part in value.split(",") if (wanted := self._wanted(part))]
        elif name in ("-i", "--index-url", "--extra-index-url", "--index", "--default-index", "--find-links", "-f"):
            self.indexes.append(value)
        elif name in ("-f", "--file") or (name == "--file" and self.family == "conda"):
            self.file(value)
        if name in ("-f", "--file") and self.family == "conda":
            self.file(value)
        if name in ("--from",) and self.family in ("uvx", "uv"):
            self.wants += [wanted for wanted in (self._wanted(value),) if wanted]

    def file(self, path: str, base: str = "") -> None:
        """The requirements of a file and of those that it names."""
        if "://" in path or not known(path):
            self.unreadable.append(path.replace(HOLE, "?"))
            return
        full = path if path.startswith("/") or not base else f"{base}/{path}"
        if full in self.seen or len(self.seen) > _MOST_FILES:
            return
        self.seen.add(full)
        text = self.shell.file(full, self.cwds)
        if text is None:
            self.unreadable.append(path)
            return
        folder = full.rsplit("/", 1)[0] if "/" in full else ""
        if full.endswith((".yml", ".yaml")):
            lines = [line.strip()[2:].strip("'\" ") for line in text.splitlines() if line.strip().startswith("- ")]
            self.wants += [wanted for line in lines if not line.endswith(":") and (wanted := self._wanted(line))]
            return
        for line in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
            self._line(line.split(" #")[0].strip(), folder)

    def _projects(self, verb: str, options: tuple[tuple[str, str], ...], operands: list[str]) -> None:
        """What the projects themselves ask for that are installed: pip install ., uv sync."""
        given = dict(options)
        extras = {value for name, value in options if name in ("--extra", "--group", "--with", "-E")}
        extras |= {"*"} if {"--all-extras", "--all-groups"} & set(given) else set()
        if self.family in ("pip", "uv") and verb in ("install", "pip install"):
            for word in (*operands, *(value for name, value in options if name in ("-e", "--editable"))):
                path, _, named = word.partition("[")
                if path.startswith((".", "/", "~")) or path.endswith("/"):
                    self._project(path, extras | set(re.findall(r"[\w.-]+", named)))
        elif (self.family, verb) in _SYNCS and not {"--no-sync", "--no-project", "--no-root"} & set(given):
            self._project(given.get("--project", given.get("--directory", ".")), extras | {"dev"})

    def _project(self, folder: str, extras: set[str]) -> None:
        from firstlight.guard.own_project import of_pyproject, of_setup_cfg  # most actions do not need it

        text = self.shell.file(f"{folder}/pyproject.toml", self.cwds) if known(folder) else None
        setup = self.shell.file(f"{folder}/setup.cfg", self.cwds) if known(folder) else None
        for name, rows in (
            ("pyproject.toml", of_pyproject(text, frozenset(extras)) if text is not None else ()),
            ("setup.cfg", of_setup_cfg(setup) if setup is not None else ()),
        ):
            wanted = (self._wanted(row) for row in rows)
            self.wants += [replace(each, asked_by=name) for each in wanted if each is not None]

    def _line(self, line: str, folder: str) -> None:
        if not line or line.startswith("#"):
            return
        if line.startswith("-"):
            words = fields(line.replace("=", " ", 1) if line.startswith("--") else line)
            name, value = words[0], words[1] if len(words) > 1 else ""
            if name[:2] == "-r" and len(name) > 2 and not name.startswith("--"):
                name, value = "-r", name[2:]
            if name in ("-r", "--requirement"):
                self.file(value, folder)
            elif name in ("-i", "--index-url", "--extra-index-url", "-f", "--find-links"):
                self.indexes.append(value)
            elif name in ("-e", "--editable") and (wanted := self._wanted(value)):
                self.wants.append(wanted)
            return
        if wanted := self._wanted(line.split(" --hash", maxsplit=1)[0]):
            self.wants.append(wanted)

    def _wanted(self, word: str) -> Wanted | None:
        """A requirement as it stands on a line: None for a folder, whose name is not known from its path."""
        text = word.strip().split(";")[0].strip()
        if not known(text):
            return Wanted(HOLE)
        if wheel := _WHEEL.fullmatch(text.split("#")[0].split("?")[0].rstrip("/").rsplit("/", 1)[-1]):
            return Wanted(canonical(wheel[1]), f"=={wheel[2]}", text)
        name, at, url = text.partition("@")
        if at and "://" in url and "://" not in name:
            return Wanted(canonical(name.split("[")[0].strip()), "", url.strip())
        if "://" in text or text.startswith("git+"):
            egg = text.partition("#egg=")[2] or text.split("#")[0].split("?")[0].rstrip("/").rsplit("/", 1)[-1]
            return Wanted(canonical(re.sub(r"(@.*|\.git.*|\.tar.*|\.zip|-\d.*)$", "", egg)), "", text)
        if text.startswith((".", "/", "~")) or "/" in text:
            return _archive(text)
        if self.family in ("conda", "pixi"):
            text = re.sub(r"(?<![=<>!~])=(?!=)", "==", text.rsplit("::", 1)[-1])
        found = _NAME.fullmatch(text)
        return Wanted(canonical(found[1]), found[2].strip("() ")) if found else Wanted(HOLE)


def _archive(text: str) -> Wanted | None:
    """A source archive says its name: torch for ./torch-2.8.0.tar.gz; a folder says it by its last part."""
    last = text.rstrip("/").rsplit("/", 1)[-1]
    if found := re.fullmatch(r"([A-Za-z][\w.]*)-(\d[\w.]*?)\.(?:tar\.\w+|zip)", last):
        return Wanted(canonical(found[1]), f"=={found[2]}", text)
    return Wanted(canonical(last), "", text) if re.fullmatch(r"[A-Za-z][\w.-]+", last) else None


def _plain_name(word: str) -> str:
    found = _NAME.fullmatch(word.rsplit("::", 1)[-1])
    return canonical(found[1]) if found and known(word) else HOLE
