"""One conversation with one host through the system's ssh: bounded in time and size, nobody is asked anything."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from typing import IO

from firstlight.errors import BadInput, CouldNotLook
from firstlight.fleet.child import ends_with_us
from firstlight.fleet.reply import LOOK_S, REPLY_LIMIT
from firstlight.fleet.target import Target
from firstlight.frozen import dataclass

CONNECT_S = 10
_COMPLAINT_LIMIT = 64 << 10
_LAST_WORDS_S = 2.0
_NO_SSH = "there is no ssh here; install the client: openssh-client or openssh-clients"
# Keys of hosts are strict whatever a config says; nothing is forwarded, no master is left behind.
_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_S}",
    "ConnectionAttempts=1",
    "StrictHostKeyChecking=yes",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlMaster=no",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "RemoteCommand=none",
    "LogLevel=INFO",
)


@dataclass(frozen=True, slots=True)
class Said:
    """What came back of a host: what it printed, what ssh and the host complained of, the exit code of ssh."""

    printed: bytes
    complaint: str
    status: int


def require_config(config: str) -> None:
    """BadInput where --ssh-config names a file that cannot be read: ssh would say so once a host."""
    if config and not (os.path.isfile(config) and os.access(config, os.R_OK)):
        raise BadInput(f"--ssh-config {config!a}: cannot be read; accepted is a file as ssh_config(5) has it")


def ssh_argv(target: Target, *, config: str = "") -> tuple[str, ...]:
    """ssh with our options for one host; the command to run there comes behind it."""
    options = (word for option in _OPTIONS for word in ("-o", option))
    return ("ssh", "-T", *(("-F", config) if config else ()), *options, *target.words)


def strict_words(*, config: str = "") -> tuple[str, ...]:
    """The same options without a host, for a program that calls ssh itself."""
    options = (word for option in (*_OPTIONS, "ControlPath=none") for word in ("-o", option))
    return (*(("-F", config) if config else ()), *options)


@dataclass(frozen=True, slots=True)
class Reached:
    """Where ssh goes for a host, as ssh_config has it; of a host that ssh does not tell of, only the target."""

    target: Target
    host: str = ""
    port: str = ""
    user: str = ""
    key_alias: str = ""
    through: str = ""  # what ProxyJump or ProxyCommand says

    @property
    def where(self) -> str:
        """host:port, e.g. "10.0.0.7:2222"; the name itself where ssh does not say."""
        if not self.host:
            return self.target.name
        return f"{self.host}:{self.port}" + (f" through {self.through}" if self.through else "")

    @property
    def jumps(self) -> tuple[str, ...]:
        """Names of the machines on the way: words that stand behind an @ or have a dot in them, and all of a jump."""
        command = len(self.through.split()) > 1
        words = (word.rpartition("@") for word in self.through.replace(",", " ").split() if word[:1] not in "-/%'\"")
        hosts = (host.partition(":")[0].strip("[]") for _, at, host in words if not command or at or "." in host)
        return tuple(host for host in hosts if host)


def where_ssh_goes(target: Target, *, config: str = "") -> Reached:
    """What `ssh -G` says of a host; no connection is made."""
    argv = ("ssh", *(("-F", config) if config else ()), "-G", *target.words)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=CONNECT_S)
    except FileNotFoundError:
        raise CouldNotLook(_NO_SSH) from None
    except subprocess.TimeoutExpired:
        return Reached(target)
    said = dict(line.split(" ", 1) for line in done.stdout.decode("utf-8", "replace").splitlines() if " " in line)
    if done.returncode or "hostname" not in said:
        return Reached(target)
    through = said.get("proxyjump", "") or said.get("proxycommand", "")
    return Reached(
        target,
        host=said["hostname"],
        port=said.get("port", "22"),
        user=said.get("user", ""),
        key_alias=said.get("hostkeyalias", ""),
        through="" if through == "none" else through,
    )


def converse(argv: tuple[str, ...], given: bytes, *, ends_with: bytes, limit_s: float = LOOK_S) -> Said:
    """Send `given`, keep the connection until `ends_with` was printed, then end it; CouldNotLook at a limit.

    It ends with the thread that calls, also by Ctrl-C or kill -9 of ours: a thread that nobody waits for cannot end it.
    """
    if shutil.which(argv[0]) is None:
        raise CouldNotLook(_NO_SSH)
    try:
        process = subprocess.Popen(
            ends_with_us(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise CouldNotLook(f"ssh could not be started: {error.strerror}") from None
    talk = _Talk(process, given, ends_with)
    try:
        talk.until(time.monotonic() + limit_s)
        status = _ended(process)
    finally:
        _end(process)
    if talk.too_much:
        raise CouldNotLook(f"it printed more than {REPLY_LIMIT >> 20} MB; nothing of that was read")
    if talk.too_late:
        raise CouldNotLook(f"it gave no answer within {limit_s:g} s")
    return Said(bytes(talk.printed), bytes(talk.complaint).decode("utf-8", "replace"), status)


class _Talk:
    """The three pipes of one ssh, served side by side until the answer is whole."""

    def __init__(self, process: subprocess.Popen[bytes], given: bytes, ends_with: bytes) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._left, self._ends_with = memoryview(given), ends_with
        self.printed, self.complaint = bytearray(), bytearray()
        self.too_much = self.too_late = False

    def until(self, deadline: float) -> None:
        os.set_blocking(self._stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdin, selectors.EVENT_WRITE)
            selector.register(self._stdout, selectors.EVENT_READ)
            selector.register(self._stderr, selectors.EVENT_READ)
            while self._stdout in _streams(selector):
                left = deadline - time.monotonic()
                if left <= 0:
                    self.too_late = True
                    return
                for key, _ in selector.select(left):
                    self._serve(selector, key.fileobj)
                if self.too_much or self._ends_with in self.printed[-4096:]:
                    break
            else:
                self._hear_out(selector, min(deadline, time.monotonic() + _LAST_WORDS_S))
        for stream in (self._stdin, self._stdout):
            _closed(stream)

    def _hear_out(self, selector: selectors.BaseSelector, deadline: float) -> None:
        """Read what ssh still says after the host has hung up: that is the reason."""
        while self._stderr in _streams(selector) and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                self._serve(selector, key.fileobj)

    def _serve(self, selector: selectors.BaseSelector, stream: object) -> None:
        if stream is self._stdin:
            if not self._sent():
                selector.unregister(self._stdin)  # kept open: its end would mean that nobody waits
            return
        source = self._stdout if stream is self._stdout else self._stderr
        data = os.read(source.fileno(), 1 << 16)
        if not data:
            selector.unregister(source)
        elif source is self._stderr:
            self.complaint += data[: max(0, _COMPLAINT_LIMIT - len(self.complaint))]
        else:
            self.printed += data
            self.too_much = len(self.printed) > REPLY_LIMIT

    def _sent(self) -> bool:
        """Send a part; False when there is nothing left to send, or nobody to send it to."""
        try:
            self._left = self._left[os.write(self._stdin.fileno(), self._left[: 1 << 16]) :]
        except BlockingIOError:
            return True
        except OSError:  # the host hung up: what it said is read
            return False
        return bool(self._left)


def _streams(selector: selectors.BaseSelector) -> set[object]:
    return {key.fileobj for key in selector.get_map().values()}


def _closed(stream: IO[bytes]) -> None:
    try:
        stream.close()
    except OSError:
        pass


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            _closed(stream)
    process.wait()
