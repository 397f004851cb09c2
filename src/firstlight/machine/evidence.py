"""Evidence: every question asked of a machine with its answer, as one JSON document (schema firstlight.machine/1)."""

from __future__ import annotations

import base64
import binascii
import posixpath
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Any

from firstlight.errors import BadFactsFile
from firstlight.frozen import dataclass
from firstlight.machine.interface import ChildAnswer, Completed, Disk, Host, Outcome, Stat

SCHEMA = "firstlight.machine/1"
_INFLATED_LIMIT = 16 << 20  # of one piece
_ALL_INFLATED_LIMIT = 256 << 20  # of one recording: a host that is asked may answer with a bomb
_KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "CUTLASS_", "PYTHON", "LD_", "CONDA_")
_KEPT_VARIABLES = frozenset(
    (
        "PATH", "HOME", "XDG_CONFIG_HOME", "VIRTUAL_ENV", "PYENV_VERSION", "UV_TORCH_BACKEND", "UV_CONFIG_FILE",
        "UV_PROJECT_ENVIRONMENT", "PIP_CONFIG_FILE", "PIP_NO_INDEX", "NVHPC_ROOT", "CC", "CXX", "CUDAHOSTCXX",
        "NVCC_CCBIN", "TORCH_CUDA_ARCH_LIST", "TORCH_NVCC_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS",
        "CUDAFLAGS", "CUDAARCHS", "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL", "TRITON_PTXAS_PATH",
        "FORCE_CUDA", "USE_CUDA",
    )
)  # fmt: skip


@dataclass(slots=True)
class PathEvidence:
    """What was learned of one path. A field that was never asked for stays empty."""

    text: str | None = None
    pieces: dict[int, bytes] = field(default_factory=dict)
    matches: dict[str, list[str]] = field(default_factory=dict)
    names: list[str] | None = None
    stat: Stat | None = None
    real: str = ""
    disk: Disk | None = None
    why_not: str = ""
    source: str = ""  # reconstructed machines: the line of the report this comes from

    @property
    def says_something(self) -> bool:
        return bool(
            self.text is not None or self.pieces or self.matches or self.names or self.stat or self.disk or self.real
        )


@dataclass(slots=True)
class Evidence:
    """All that was asked of one machine."""

    host: Host
    kind: str = "recorded"  # or "reconstructed": rebuilt from a report's prose
    about: str = ""
    recorded_by: str = ""
    env: dict[str, str | None] = field(default_factory=dict)
    paths: dict[str, PathEvidence] = field(default_factory=dict)
    commands: dict[str, Completed] = field(default_factory=dict)
    children: dict[str, ChildAnswer] = field(default_factory=dict)

    def at(self, path: str) -> PathEvidence:
        """What is known of a path, to be added to; torch's search paths hold '..', a recording does not."""
        return self.paths.setdefault(plain(path), PathEvidence())

    def find(self, path: str) -> PathEvidence | None:
        return self.paths.get(plain(path))


def plain(path: str) -> str:
    """The path with '..' and doubled slashes worked out, without looking at links: the key of a recording."""
    return posixpath.normpath(path) if "/.." in path or "//" in path or "/./" in path else path


def _kept_value(name: str, value: str | None, rename: Callable[[str], str]) -> str | None:
    """The value of a variable where a probe uses it; of the others (pod ids, proxies, indexes) only that it is set."""
    if value is None:
        return None
    return rename(value) if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES) else ("set" if value else "")


def marks(token: str) -> tuple[str, str]:
    """The lines around evidence on a stream that others print to as well, as a login shell does."""
    return f"firstlight-{token}-begin", f"firstlight-{token}-end"


def command_key(argv: tuple[str, ...]) -> str:
    """How a command is filed, e.g. 'gcc -dumpfullversion'."""
    return " ".join(argv)


def to_document(
    evidence: Evidence, rename: Callable[[str], str], rename_bytes: Callable[[bytes], bytes]
) -> dict[str, Any]:
    """The JSON document; the two functions turn names of people and hosts into pseudonyms, in every string."""
    paths: dict[str, Any] = {}
    absent: list[str] = []
    for path, seen in sorted(evidence.paths.items()):
        if seen.says_something or seen.why_not not in ("", "no such file"):
            paths[rename(path)] = _path_document(seen, rename, rename_bytes)
        else:
            absent.append(rename(path))
    return {
        "schema": SCHEMA,
        "kind": evidence.kind,
        "about": evidence.about,
        "recorded_by": evidence.recorded_by,
        "host": _renamed(asdict(evidence.host), rename),
        "env": {name: _kept_value(name, value, rename) for name, value in sorted(evidence.env.items())},
        "paths": paths,
        "absent": sorted(set(absent)),
        "commands": {
            rename(key): {
                "outcome": done.outcome.value,
                "status": done.status,
                "stdout": rename(done.stdout),
                "stderr": rename(done.stderr),
            }
            for key, done in sorted(evidence.commands.items())
        },
        "children": {
            name: {"answer": _renamed(dict(said.answer), rename), "complaint": rename(said.complaint)}
            for name, said in sorted(evidence.children.items())
        },
    }


def _path_document(
    seen: PathEvidence, rename: Callable[[str], str], rename_bytes: Callable[[bytes], bytes]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if seen.text is not None:
        out["text"] = rename(seen.text)
    if seen.pieces:
        out["pieces"] = [[offset, _pack(rename_bytes(data))] for offset, data in sorted(joined(seen.pieces).items())]
    if seen.matches:
        out["matches"] = {key: [rename(item) for item in found] for key, found in sorted(seen.matches.items())}
    if seen.names is not None:
        out["names"] = [rename(name) for name in seen.names]
    if seen.stat is not None:
        out["stat"] = asdict(seen.stat)
    if seen.real:
        out["real"] = rename(seen.real)
    if seen.disk is not None:
        out["disk"] = asdict(seen.disk)
    if seen.why_not:
        out["why_not"] = seen.why_not
    if seen.source:
        out["source"] = seen.source
    return out


def joined(pieces: Mapping[int, bytes]) -> dict[int, bytes]:
    """Pieces with touching and overlapping ones merged."""
    out: dict[int, bytes] = {}
    last = -1
    for offset, data in sorted(pieces.items()):
        if last >= 0 and offset <= last + len(out[last]):
            end = last + len(out[last])
            out[last] += data[max(0, end - offset) :]
        else:
            out[offset], last = data, offset
    return out


def _renamed(value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, dict):
        return {key: _renamed(item, rename) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_renamed(item, rename) for item in value]
    return value


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def _unpack(text: str, where: str) -> bytes:
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text, validate=True), _INFLATED_LIMIT)
    except (binascii.Error, zlib.error, ValueError):
        raise BadFactsFile(f"{where}: expected base64 of zlib data; record the machine again") from None


def from_document(document: Any, where: str) -> Evidence:
    """Evidence from a parsed document; raises BadFactsFile naming the field that is wrong."""
    top = _Field(document, where)
    schema = top.text("schema")
    if schema != SCHEMA:
        raise BadFactsFile(f"{where}: schema is {schema[:60]!r}; this firstlight reads {SCHEMA!r}")
    host = top.inside("host")
    evidence = Evidence(
        host=Host(
            **{name: (host.number(name) if name == "uid" else host.text(name)) for name in Host.__dataclass_fields__}  # type: ignore[arg-type]
        ),
        kind=top.text("kind"),
        about=top.text("about"),
        recorded_by=top.text("recorded_by"),
    )
    env = top.inside("env")
    for name in env.names():
        evidence.env[name] = env.text_or_none(name)
    paths = top.inside("paths")
    inflated = 0
    for path in paths.names():
        _check_path(path, f"{where}: paths")
        evidence.paths[path] = _path_evidence(paths.inside(path))
        inflated += sum(len(data) for data in evidence.paths[path].pieces.values())
        if inflated > _ALL_INFLATED_LIMIT:
            raise BadFactsFile(f"{where}: paths: holds more than {_ALL_INFLATED_LIMIT >> 20} MiB of pieces of files")
    for path in top.texts("absent"):
        _check_path(path, f"{where}: absent")
        evidence.paths.setdefault(path, PathEvidence(why_not="no such file"))
    commands = top.inside("commands")
    for key in commands.names():
        evidence.commands[key] = _completed(key, commands.inside(key))
    children = top.inside("children")
    for name in children.names():
        said = children.inside(name)
        evidence.children[name] = ChildAnswer(said.inside("answer").mapping(), said.text("complaint"))
    return evidence


def _completed(key: str, found: _Field) -> Completed:
    outcome = found.text("outcome")
    if outcome not in {item.value for item in Outcome}:
        raise BadFactsFile(f"{found.where}.outcome: {outcome[:40]!r} is not one of {[item.value for item in Outcome]}")
    return Completed(
        tuple(key.split(" ")), Outcome(outcome), found.number("status"), found.text("stdout"), found.text("stderr")
    )


def _path_evidence(found: _Field) -> PathEvidence:
    seen = PathEvidence()
    present = set(found.names())
    if "text" in present:
        seen.text = found.text("text")
    if "pieces" in present:
        for index, piece in enumerate(found.sequence("pieces")):
            spot = f"{found.where}.pieces[{index}]"
            if not (isinstance(piece, list) and len(piece) == 2 and _is_count(piece[0]) and isinstance(piece[1], str)):
                raise BadFactsFile(f"{spot}: expected [offset, base64 text]")
            seen.pieces[piece[0]] = _unpack(piece[1], spot)
    if "matches" in present:
        matches = found.inside("matches")
        seen.matches = {key: list(matches.texts(key)) for key in matches.names()}
        for key, texts in seen.matches.items():
            if any(ord(character) > 0xFF for text in (key, *texts) for character in text):
                raise BadFactsFile(f"{found.where}.matches: holds characters that are not bytes")
    if "names" in present:
        seen.names = list(found.texts("names"))
        for name in seen.names:
            if "/" in name or name in ("", ".", "..") or "\0" in name:
                raise BadFactsFile(f"{found.where}.names: {name[:60]!r} is not a file name")
    if "stat" in present:
        stat = found.inside("stat")
        seen.stat = Stat(
            kind=stat.text("kind"),
            size=stat.number("size"),
            mode=stat.number("mode"),
            uid=stat.number("uid"),
            gid=stat.number("gid"),
            inode=stat.number("inode"),
            writable=stat.flag("writable"),
        )
    if "disk" in present:
        disk = found.inside("disk")
        seen.disk = Disk(disk.number("total_bytes"), disk.number("free_bytes"))
    if "real" in present:
        seen.real = found.text("real")
        _check_path(seen.real, f"{found.where}.real")
    seen.why_not = found.text("why_not") if "why_not" in present else ""
    seen.source = found.text("source") if "source" in present else ""
    return seen


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_path(path: str, where: str) -> None:
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise BadFactsFile(f"{where}: {path[:80]!r} is not an absolute path without '..'; nothing was read from it")


class _Field:
    """One JSON object with its place in the document, so that every complaint names the field."""

    def __init__(self, value: Any, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise BadFactsFile(f"{where}: expected an object, found {type(value).__name__}")
        self._value = value

    def names(self) -> list[str]:
        return list(self._value)

    def mapping(self) -> dict[str, object]:
        return self._value

    def inside(self, name: str) -> _Field:
        return _Field(self._value.get(name), f"{self.where}.{name}")

    def text(self, name: str) -> str:
        value = self._value.get(name)
        if not isinstance(value, str):
            raise BadFactsFile(f"{self.where}.{name}: expected text, found {type(value).__name__}")
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self._value.get(name) is None else self.text(name)

    def number(self, name: str) -> int:
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise BadFactsFile(f"{self.where}.{name}: expected a whole number, found {type(value).__name__}")
        return value

    def flag(self, name: str) -> bool:
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise BadFactsFile(f"{self.where}.{name}: expected true or false, found {type(value).__name__}")
        return value

    def sequence(self, name: str) -> list[Any]:
        value = self._value.get(name)
        if not isinstance(value, list):
            raise BadFactsFile(f"{self.where}.{name}: expected a list, found {type(value).__name__}")
        return value

    def texts(self, name: str) -> list[str]:
        values = self.sequence(name)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise BadFactsFile(f"{self.where}.{name}[{index}]: expected text, found {type(value).__name__}")
        return values
