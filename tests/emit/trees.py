"""Recorded machines as file trees, and a root in which a real shell runs emitted gates against each of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.machine.recorded import RecordedMachine

SHELLS = ("dash", "bash")
_PROGRAMS = (*SHELLS, "sed", "grep", "timeout", "cat", "ln", "hostname", "true", "dirname")
_PATHS = re.compile(r"(?<![\w.\"])/(?:sys|proc|dev|etc|usr/lib/wsl)/[\w./-]*\w")
_FOLDERS = ("sys", "proc", "dev", "etc", "usr/lib/wsl")
WSL_SMI = "/usr/lib/wsl/lib/nvidia-smi"
_TEGRA = "/etc/nv_tegra_release"
# Every case in one shell, which may change root: the links of the root lead to the tree of that case.
_LOOP = """while read -r tree gate shell words; do
    ln -sfn "trees/$tree" /now
    "$shell" "/gates/$gate" $words > /said 2>&1 && said=in || said=out
    echo "$said"
    cat /said
    echo end-of-case
done < /cases"""


@dataclass(frozen=True)
class Smi:
    """An nvidia-smi that answers for each GPU, e.g. Smi(("NVIDIA L4",), ("8.9",), "580.95.05")."""

    names: tuple[str, ...]
    capabilities: tuple[str, ...]
    driver: str
    path: str = "/bin/nvidia-smi"

    @property
    def script(self) -> str:
        rows = {
            "name": self.names,
            "compute_cap": self.capabilities,
            "driver_version": (self.driver,) * len(self.names),
        }
        cases = [f"--query-gpu={field})\n{''.join(_echo(row) for row in told)};;\n" for field, told in rows.items()]
        return f'#!/bin/dash\ncase "$1" in\n--list-gpus) ;;\n{"".join(cases)}*) exit 2 ;;\nesac\n'


def _echo(text: str) -> str:
    return f"echo '{text}'\n"


@dataclass(frozen=True)
class Tree:
    """What a gate can see of a machine: its processor, its kernel, files by path, and its nvidia-smi."""

    arch: str
    kernel: str
    files: tuple[tuple[str, str], ...]
    smi: Smi | None

    def with_file(self, path: str, text: str) -> Tree:
        return replace(self, files=(*(each for each in self.files if each[0] != path), (path, text)))

    def with_driver(self, old: str, new: str) -> Tree:
        """The same machine under another driver."""
        smi = None if self.smi is None else replace(self.smi, driver=new)
        return replace(self, files=tuple((path, text.replace(old, new)) for path, text in self.files), smi=smi)

    def with_jetson_linux(self, release: str) -> Tree:
        """The same board under this Jetson Linux."""
        major, _, revision = release.partition(".")
        text = f"# R{major} (release), REVISION: {revision}, GCID: 1, BOARD: generic, EABI: aarch64, DATE: x\n"
        return self.with_file(_TEGRA, text)

    @property
    def is_board(self) -> bool:
        return any(path == _TEGRA for path, _ in self.files)


def tree_of(machine: RecordedMachine, facts: Facts, gate: str) -> Tree:
    """A recorded machine, as far as the text of a gate asks for it; a path that was not recorded is not there."""
    files = []
    for path in sorted(set(_PATHS.findall(gate)) - {WSL_SMI}):
        if (text := machine.read(path)) is not None:
            files.append((path, text))
        elif machine.stat(path) is not None:
            files.append((path, ""))
    kernel = machine.host.kernel_release if "uname -r" in gate else ""
    return Tree(machine.host.arch, kernel, tuple(files), _smi(facts))


def _smi(facts: Facts) -> Smi | None:
    """nvidia-smi says what NVML says, so it is there where NVML answered; in WSL it is in no PATH."""
    gpus, driver = facts.gpus.devices, facts.driver.kernel_version
    if not gpus:
        return None
    names = tuple(gpu.name.value if isinstance(gpu.name, Known) else "[N/A]" for gpu in gpus)
    shown = tuple(str(gpu.capability.value) if isinstance(gpu.capability, Known) else "[N/A]" for gpu in gpus)
    place = WSL_SMI if isinstance(facts.place.wsl_libraries, Known) else Smi.path
    return Smi(names, shown, str(driver.value) if isinstance(driver, Known) else "[N/A]", place)


@dataclass(frozen=True)
class Gate:
    """A file that was emitted, and the words it is called with, e.g. an entrypoint with `nvidia-smi --list-gpus`."""

    text: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asking:
    """A gate that is asked about a machine by a shell."""

    tree: Tree
    gate: Gate
    shell: str


class Root:
    """A root with a few real programs; every tree and every gate is written once, and all cases run in one go."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._trees, self._gates = folder, dict[Tree, str](), dict[str, str]()
        self._cases: dict[str, None] = {}
        self._found: dict[str, str] = {}
        for name in _FOLDERS:
            link = folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"/now/{name}")
        (folder / "bin").mkdir()
        (folder / "gates").mkdir()
        starts = folder / "opt/firstlight/compat/run"  # what an image starts a command with, where it has compat
        starts.parent.mkdir(parents=True)
        starts.write_text('#!/bin/dash\nexec "$@"\n')
        starts.chmod(0o755)
        for program in _PROGRAMS:
            path = shutil.which(program)
            assert path is not None, f"{program} is needed"
            shutil.copy(path, folder / "bin" / program)
            for library in _libraries(path):
                (folder / library[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, folder / library[1:])

    def add(self, asking: Asking) -> None:
        """A case to run; equal ones are run once."""
        self._cases[self._line(asking)] = None

    def run(self) -> None:
        """Every case, in one go."""
        (self.folder / "cases").write_text("".join(f"{line}\n" for line in self._cases))
        argv = [*_becoming_root(), "chroot", str(self.folder), "/bin/dash", "-c", _LOOP]
        env = {"PATH": "/now/bin:/bin:/usr/sbin:/usr/bin:/sbin"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        blocks = done.stdout.split("end-of-case\n")[:-1]
        self._found = dict(zip(self._cases, blocks, strict=True))

    def said(self, asking: Asking) -> tuple[str, str]:
        """Of a case that was run: in or out, and what was said."""
        verdict, _, said = self._found[self._line(asking)].partition("\n")
        return verdict, said

    def _line(self, asking: Asking) -> str:
        words = asking.gate.words
        return " ".join((self._tree(asking.tree), self._gate(asking.gate.text), asking.shell, *words))

    def _gate(self, text: str) -> str:
        text = re.sub(r"(?m)^#.*\n", "", text)  # for whom it was made: most gates are the same without
        if text not in self._gates:
            self._gates[text] = name = f"gate-{len(self._gates)}"
            (self.folder / "gates" / name).write_text(text)
        return self._gates[text]

    def _tree(self, tree: Tree) -> str:
        if tree in self._trees:
            return self._trees[tree]
        self._trees[tree] = name = f"tree-{len(self._trees)}"
        programs = {"/bin/uname": f"#!/bin/dash\n[ $1 = -m ] && echo {tree.arch} || echo '{tree.kernel}'\n"}
        if tree.smi is not None:
            programs[tree.smi.path] = tree.smi.script
        for path, text in (("/dev/null", ""), *tree.files, *programs.items()):
            file = self.folder / "trees" / name / path[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755 if path in programs else 0o644)
        return name


def _libraries(program: str) -> list[str]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def _becoming_root() -> tuple[str, ...]:
    return () if os.getuid() == 0 else ("unshare", "--map-root-user")


def may_change_root() -> bool:
    """Whether a process here may have another root."""
    argv = [*_becoming_root(), "chroot", "/", "true"]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0
