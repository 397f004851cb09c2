"""A machine rebuilt from a report: files and answers of programs, each with the line it comes from."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firstlight.facts.collect import collect
from firstlight.machine import ChildAnswer, ChildScript, Completed, Disk, Host, Outcome, Stat
from firstlight.machine.evidence import to_document
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordingMachine
from tools.machines.elf_writer import ElfSpec, make_elf

HOST = Host(
    hostname="host-a",
    user="root",
    home="/root",
    cwd="/root",
    uid=0,
    kernel_release="6.8.0-60-generic",
    arch="x86_64",
    python_version="3.12.3",
    python_executable="/usr/bin/python3",
    python_prefix="/usr",
    python_base_prefix="/usr",
    now="2026-11-15T00:00:00Z",
)
# A tree is a hundred files that live for milliseconds: half of the time went to the disk.
_IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


@dataclass(slots=True)
class Reconstruction:
    """The machine being built. `add_*` methods return self, so that a machine reads as a list of what it has."""

    name: str
    about: str
    host: Host = HOST
    environ: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    commands: dict[str, Completed] = field(default_factory=dict)
    children: dict[str, ChildAnswer] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)  # path -> what stat says, e.g. "socket"
    disks: dict[str, Disk] = field(default_factory=dict)  # path -> space there; none are known otherwise
    owners: dict[str, tuple[int, int]] = field(default_factory=dict)  # path -> mode and owner, as `ls -ln` shows them

    def file(self, path: str, content: str | bytes, *, source: str) -> Reconstruction:
        self.files[path] = content.encode() if isinstance(content, str) else content
        self.sources[path] = source
        return self

    def elf(self, path: str, spec: ElfSpec, *, source: str) -> Reconstruction:
        return self.file(path, make_elf(replace(spec, arch=self.host.arch)), source=source)

    def link(self, path: str, target: str, *, source: str) -> Reconstruction:
        self.links[path] = target
        self.sources[path] = source
        return self

    def without(self, *paths: str) -> Reconstruction:
        """Take paths (or whole folders) away again, for a near-miss that lacks one thing."""
        for path in paths:
            for each in [key for key in (*self.files, *self.links) if key == path or key.startswith(path + "/")]:
                self.files.pop(each, None)
                self.links.pop(each, None)
        return self

    def env(self, **variables: str) -> Reconstruction:
        self.environ.update(variables)
        return self

    def command(self, line: str, stdout: str, *, status: int = 0, stderr: str = "") -> Reconstruction:
        argv = tuple(line.split(" "))
        self.commands[line] = Completed(argv, Outcome.EXITED, status, stdout, stderr)
        return self

    def every_call_of(self, program: str, stdout: str, *, status: int = 0, stderr: str = "") -> Reconstruction:
        """What a program says whatever it is asked, e.g. an nvidia-smi that finds no driver."""
        return self.command(program, stdout, status=status, stderr=stderr)

    def owned(self, path: str, *, mode: int, owner: int) -> Reconstruction:
        """A file or node that is there already, with the mode and the owner that are seen from here."""
        self.owners[path] = (mode, owner)
        return self

    def socket(self, path: str, *, source: str) -> Reconstruction:
        self.kinds[path] = "socket"
        return self.file(path, "", source=source)

    def space(self, path: str, *, total_gib: float, free_gib: float) -> Reconstruction:
        """The size of the file system at a path and what is free of it."""
        self.disks[path] = Disk(int(total_gib * 2**30), int(free_gib * 2**30))
        return self

    def child(self, name: str, answer: Mapping[str, Any]) -> Reconstruction:
        self.children[name] = ChildAnswer(dict(answer), "")
        return self

    def document(self) -> dict[str, Any]:
        """Look at the tree as at a live machine and keep the evidence; inode and owner are the report's, not ours."""
        with tempfile.TemporaryDirectory(dir=_IN_MEMORY) as folder:
            root = Path(folder).resolve()
            self._write(root)
            recording = RecordingMachine(_Rebuilt(self, str(root)))
            collect(recording)
            evidence = recording.evidence
        evidence.kind, evidence.about = "reconstructed", self.about
        evidence.recorded_by = "firstlight tools/machines"
        for path, seen in evidence.paths.items():
            if seen.says_something or seen.why_not:
                seen.source = self._source(path)
        return to_document(evidence, lambda text: text.replace(str(root), ""), lambda data: data)

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "machine.json").write_text(json.dumps(self.document(), indent=1) + "\n")

    def _source(self, path: str) -> str:
        below = sorted(key for key in self.sources if key == path or key.startswith(path.rstrip("/") + "/"))
        above = [key for key in self.sources if path.startswith(key + "/")]
        place = path if path in self.sources else next(iter(above or below), "")
        return self.sources.get(place, "supposed: a plain machine of this kind")

    def _write(self, root: Path) -> None:
        for path, content in self.files.items():
            where = root / path.lstrip("/")
            where.parent.mkdir(parents=True, exist_ok=True)
            where.write_bytes(content)
            if "/bin/" in path or path.endswith(".sh"):
                where.chmod(0o755)
        for path, target in self.links.items():
            where = root / path.lstrip("/")
            where.parent.mkdir(parents=True, exist_ok=True)
            where.symlink_to(f"{root}{target}" if target.startswith("/") else target)


class _Rebuilt(LiveMachine):
    """The tree as a machine: programs and children answer what the report says, nothing of this host shows."""

    def __init__(self, built: Reconstruction, root: str) -> None:
        super().__init__(root=root, environ=built.environ, host=built.host)
        self._built = built

    def stat(self, path: str) -> Stat | None:
        seen = super().stat(path)
        if seen is None:
            return None
        kind = "device" if path.startswith("/dev/") and seen.kind == "file" else seen.kind
        kind = self._built.kinds.get(path, kind)
        writable = self.host.uid == 0 or kind == "device" or path.startswith(self.host.home)
        size = seen.size if seen.kind == "file" else 4096
        plain = replace(seen, inode=1, uid=0, gid=0, kind=kind, writable=writable, size=size)
        if path not in self._built.owners:
            return plain
        # Root of a user namespace is nobody special towards a node that belongs to an id from outside.
        mode, owner = self._built.owners[path]
        writable = bool(mode & 0o002) or (owner == self.host.uid and bool(mode & 0o200))
        return replace(plain, mode=mode, uid=owner, gid=owner, writable=writable)

    def disk(self, path: str) -> Disk | None:
        return self._built.disks.get(path)

    def run(self, argv: tuple[str, ...], **_: Any) -> Completed:
        line = " ".join(argv)
        plain = " ".join((os.path.basename(argv[0]), *argv[1:]))
        said = self._built.commands
        done = said.get(line) or said.get(plain) or said.get(os.path.basename(argv[0]))
        return replace(done, argv=argv) if done is not None else Completed(argv, Outcome.NOT_FOUND, -1, "", "")

    def child(self, script: ChildScript, *_: str, **__: Any) -> ChildAnswer:
        said = self._built.children.get(script.name)
        return said or ChildAnswer({}, f"the report does not say what the {script.name} child would answer")
