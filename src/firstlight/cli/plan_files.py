"""What a plan has to know of a machine's files: their texts, read here and handed over as data; nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.apply.place import state_folder
from firstlight.facts.collect import Facts
from firstlight.facts.look import Look
from firstlight.machine.interface import Machine
from firstlight.machine.recorded import NOT_RECORDED
from firstlight.shells.kinds import START_FILES, is_start_file
from firstlight.ways.building import environment_to_change
from firstlight.ways.compat_steps import start_files
from firstlight.ways.diffs import FileText
from firstlight.ways.extras import Checkout, Extras, Setting, SystemPackage
from firstlight.ways.project_steps import project_of
from firstlight.ways.setting_steps import SETTING_FILES

_LIMIT = 1 << 20
_IN_HOME = (*START_FILES, ".config/fish/config.fish")
_IN_ETC = ("/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshenv", *SETTING_FILES)
# `. ~/.cuda_env` in a start-up file: what it reads in can set the variable as well.
_READS_IN = re.compile(
    r"""^[^#\n]*?(?:^|[\s;&|])(?:\.|source)[ \t]+["']?((?:~|\$HOME|\$\{HOME\}|/)[^\s"';&|*?)]+)""", re.M
)
_DPKG = "/var/lib/dpkg/status"
_INSTALLED = ("dpkg-query", "--show", "--showformat", "${db:Status-Status} ${binary:Package} ${Version}\\n")
_OURS = ("compat/wire.sh", "compat/run", "tuning.sh", "cuda-build.sh")  # under the state folder


def machine_looked_at(look: Look) -> Machine | None:
    """The machine whose facts were asked for: this one, a recording, or none for a document of facts alone."""
    from firstlight.machine.live import LiveMachine

    if look.reached is not None:
        return look.reached()
    if not look.facts_file:
        return LiveMachine()
    return _recorded(look.facts_file)


def _recorded(path: str) -> Machine | None:
    import os

    from firstlight.facts.document import EXAMPLE, RECORDING_NAME, parse_json, read_file
    from firstlight.machine.evidence import from_document
    from firstlight.machine.recorded import RecordedMachine

    if path.startswith(EXAMPLE):
        return None
    file = os.path.join(path, RECORDING_NAME) if os.path.isdir(path) else path
    document = parse_json(read_file(file), file)
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, str) or not schema.startswith("firstlight.machine/"):
        return None
    return RecordedMachine(from_document(document, file))


def extras_of(
    machine: Machine | None,
    facts: Facts,
    *,
    settings: tuple[Setting, ...] = (),
    checkouts: tuple[Checkout, ...] = (),
) -> Extras:
    """The texts of the files that steps may change here, and where firstlight keeps its own."""
    if machine is None:
        none = Extras(settings, checkouts)
        return replace(none, unread=tuple(f"{none.home_for(facts)}/{name}" for name in _IN_HOME))
    home = machine.host.home
    state = state_folder(machine, home=home)
    found, unread = [], []
    for path in dict.fromkeys(_paths(machine, facts, home=home, state=state)):
        text = _text(machine, path)
        if text is not None and len(text) < _LIMIT:
            found.append(FileText(path, text))
        elif text is None and is_start_file(path) and machine.why_not(path) == NOT_RECORDED:
            unread.append(path)
    # What is read in comes first: a start-up file is tried with what it reads in as that is by then.
    files = (*_read_in(machine, found, home=home), *found)
    packages = tuple(_packages(machine))
    return Extras(settings, checkouts, files, home, state, unread=tuple(unread), packages=packages)


def _packages(machine: Machine) -> Iterator[SystemPackage]:
    """What dpkg has installed; nothing where it is not there or does not answer."""
    if machine.stat(_DPKG) is None:
        return
    for line in machine.run(_INSTALLED).stdout.splitlines():
        status, name, version = f"{line}  ".split(" ")[:3]
        if status == "installed":
            yield SystemPackage(re.sub(":(amd64|arm64)$", "", name), version)


def _read_in(machine: Machine, files: list[FileText], *, home: str) -> Iterator[FileText]:
    """The files that start-up files of this home read in, one step deep."""
    seen = {file.path for file in files}
    for file in files:
        if not is_start_file(file.path) or not file.path.startswith(f"{home.rstrip('/')}/"):
            continue
        for named in _READS_IN.findall(file.text):
            path = re.sub(r"^(?:~|\$HOME|\$\{HOME\})", home.rstrip("/"), named)
            text = _text(machine, path) if path not in seen and path.startswith(f"{home.rstrip('/')}/") else None
            seen.add(path)
            if text is not None and len(text) < _LIMIT:
                yield FileText(path, text)


def _text(machine: Machine, path: str) -> str | None:
    """The text of a file; bytes that are not UTF-8 are kept as such, so that it can be written back as it was."""
    text = machine.read(path, limit=_LIMIT)
    if text is None or "\N{REPLACEMENT CHARACTER}" not in text:
        return text
    data = machine.read_bytes(path, size=_LIMIT)
    return text if data is None else data.decode("utf-8", "surrogateescape")


def _paths(machine: Machine, facts: Facts, *, home: str, state: str) -> Iterator[str]:
    yield from (f"{home.rstrip('/')}/{name}" for name in _IN_HOME)
    yield from _IN_ETC
    yield from (f"/etc/profile.d/{name}" for name in machine.list("/etc/profile.d", "*.sh"))
    fish = f"{home.rstrip('/')}/.config/fish/conf.d"
    yield from (f"{fish}/{name}" for name in machine.list(fish, "*.fish"))
    environment = environment_to_change(facts)
    if environment is not None:
        hooks = f"{environment.prefix}/etc/conda/activate.d"
        yield from (f"{hooks}/{name}" for name in machine.list(hooks, "*.sh"))
        project = project_of(facts, environment)
        if project is not None:
            yield project.file
    yield from facts.libcuda.compat_conf_files
    for folder in ("/etc/modprobe.d", "/etc/ld.so.conf.d"):
        yield from (f"{folder}/{name}" for name in machine.list(folder, "*.conf"))
    yield from (f"{state}/{name}" for name in _OURS)
    yield from start_files(facts)
