"""A machine replayed from evidence, and the wrapper that gathers evidence from a live one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from firstlight.machine.evidence import Evidence, command_key, joined
from firstlight.machine.interface import (
    CHILD_TIMEOUT_S,
    COMMAND_TIMEOUT_S,
    TEXT_LIMIT,
    ChildAnswer,
    ChildScript,
    Completed,
    Digest,
    Disk,
    Host,
    Machine,
    Outcome,
    Stat,
    every_name,
    matching,
)

NOT_RECORDED = "not in this recording"


class RecordedMachine:
    """Answers every question from evidence; what was never asked is `not_asked`: 'not in this recording'."""

    def __init__(self, evidence: Evidence, *, not_asked: str = NOT_RECORDED) -> None:
        self._evidence, self._not_asked = evidence, not_asked
        for seen in evidence.paths.values():
            seen.pieces = joined(seen.pieces)

    @property
    def host(self) -> Host:
        return self._evidence.host

    @property
    def evidence(self) -> Evidence:
        """All that it answers from."""
        return self._evidence

    def env(self, name: str) -> str | None:
        return self._evidence.env.get(name)

    def read(self, path: str, *, limit: int = TEXT_LIMIT, until: str = "") -> str | None:
        seen = self._evidence.find(path)
        if seen is None or seen.text is None:
            return None
        text = seen.text if len(seen.text) <= limit else seen.text[:limit]
        return text.split(until, 1)[0] if until else text

    def read_bytes(self, path: str, *, offset: int = 0, size: int = TEXT_LIMIT) -> bytes | None:
        seen = self._evidence.find(path)
        if seen is None:
            return None
        for start, data in seen.pieces.items():
            if start <= offset <= start + len(data):
                return data[offset - start : offset - start + size]
        return None

    def search(self, path: str, pattern: bytes, *, limit: int = 8) -> tuple[bytes, ...] | None:
        seen = self._evidence.find(path)
        found = None if seen is None else seen.matches.get(pattern.decode("latin-1"))
        return None if found is None else tuple(item.encode("latin-1") for item in found[:limit])

    def digest(self, path: str, name: str, work: Digest) -> tuple[str, ...] | None:
        seen = self._evidence.find(path)
        found = None if seen is None else seen.matches.get(name)
        return None if found is None else tuple(found)

    def why_not(self, path: str) -> str:
        seen = self._evidence.find(path)
        return self._not_asked if seen is None else seen.why_not or self._not_asked

    def list(self, path: str, pattern: str = "*", *, keep: Callable[[str], bool] = every_name) -> tuple[str, ...]:
        seen = self._evidence.find(path)
        names = () if seen is None or seen.names is None else seen.names
        return tuple(sorted(filter(keep, matching(names, pattern))))

    def stat(self, path: str) -> Stat | None:
        seen = self._evidence.find(path)
        return None if seen is None else seen.stat

    def real_path(self, path: str) -> str:
        seen = self._evidence.find(path)
        return path if seen is None else seen.real or path

    def disk(self, path: str) -> Disk | None:
        seen = self._evidence.find(path)
        return None if seen is None else seen.disk

    def run(
        self,
        argv: tuple[str, ...],
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        keep: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        done = self._evidence.commands.get(command_key(argv))
        return Completed(argv, Outcome.NOT_RECORDED, -1, "", "") if done is None else done

    def child(
        self,
        script: ChildScript,
        *args: str,
        timeout_s: float = CHILD_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> ChildAnswer:
        said = self._evidence.children.get(script.name)
        return ChildAnswer({}, f"the {script.name} child: {self._not_asked}") if said is None else said


class RecordingMachine:
    """Passes every question on and keeps the answer in `evidence`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.evidence = Evidence(host=machine.host)

    @property
    def host(self) -> Host:
        return self._machine.host

    def env(self, name: str) -> str | None:
        value = self._machine.env(name)
        self.evidence.env[name] = value
        return value

    def read(self, path: str, *, limit: int = TEXT_LIMIT, until: str = "") -> str | None:
        text = self._machine.read(path, limit=limit, until=until)
        seen = self.evidence.at(path)
        if text is None:
            seen.why_not = self._machine.why_not(path)
        elif seen.text is None or len(text) > len(seen.text):
            seen.text = text
        return text

    def read_bytes(self, path: str, *, offset: int = 0, size: int = TEXT_LIMIT) -> bytes | None:
        data = self._machine.read_bytes(path, offset=offset, size=size)
        seen = self.evidence.at(path)
        if data is None:
            seen.why_not = self._machine.why_not(path)
        elif offset not in seen.pieces or len(data) > len(seen.pieces[offset]):
            seen.pieces[offset] = data
        return data

    def search(self, path: str, pattern: bytes, *, limit: int = 8) -> tuple[bytes, ...] | None:
        found = self._machine.search(path, pattern, limit=limit)
        seen = self.evidence.at(path)
        if found is None:
            seen.why_not = self._machine.why_not(path)
        else:
            seen.matches[pattern.decode("latin-1")] = [item.decode("latin-1") for item in found]
        return found

    def digest(self, path: str, name: str, work: Digest) -> tuple[str, ...] | None:
        found = self._machine.digest(path, name, work)
        if found is not None:
            self.evidence.at(path).matches[name] = list(found)
        return found

    def why_not(self, path: str) -> str:
        reason = self._machine.why_not(path)
        self.evidence.at(path).why_not = reason
        return reason

    def list(self, path: str, pattern: str = "*", *, keep: Callable[[str], bool] = every_name) -> tuple[str, ...]:
        names = self._machine.list(path, pattern, keep=keep)
        seen = self.evidence.at(path)
        if names:
            seen.names = sorted({*(seen.names or ()), *names})
        return names

    def stat(self, path: str) -> Stat | None:
        found = self._machine.stat(path)
        self.evidence.at(path).stat = found
        return found

    def real_path(self, path: str) -> str:
        real = self._machine.real_path(path)
        if real != path:
            self.evidence.at(path).real = real
        return real

    def disk(self, path: str) -> Disk | None:
        found = self._machine.disk(path)
        self.evidence.at(path).disk = found
        return found

    def run(
        self,
        argv: tuple[str, ...],
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        keep: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        done = self._machine.run(argv, timeout_s=timeout_s, keep=keep, env=env)
        self.evidence.commands[command_key(argv)] = done
        return done

    def child(
        self,
        script: ChildScript,
        *args: str,
        timeout_s: float = CHILD_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> ChildAnswer:
        said = self._machine.child(script, *args, timeout_s=timeout_s, env=env)
        self.evidence.children[script.name] = said
        return said
