"""Runs on a host, in its Python: installs firstlight there, starts work that outlives the connection, follows it.

The standard library of Python 3.10 alone. The one argument is the request, JSON in base64. What is printed stands
between the marks of the request's token. The exit code is 0: the answer is final; 75: at work, ask again; 77: it is
not installed yet.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
import zipfile
import zlib
from typing import Any

AT_WORK, NO_TOOL = 75, 77
KEPT = "{kept}"  # in the words: the folder of the job for documents
FOLDER = os.path.expanduser("~/.local/state/firstlight/fleet")
_KEPT = 20  # jobs that ended
_PRINTED_LIMIT, _JOURNAL_LIMIT, _LOG_LIMIT = 1 << 20, 1 << 19, 1 << 16
_DOCUMENTS_LIMIT = 5 << 20  # of all documents, packed: in base64 they fit into an answer
# Started in a session of its own: no hang-up of the connection reaches it. The lock is inherited, also by firstlight.
_RUNNER = """\
import os, subprocess, sys
lock, folder, times, argv = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:]
code = 0
while times and not code:
    times -= 1
    with open(folder + "/printed", "wb") as out, open(folder + "/log", "ab") as log:
        code = subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=log, pass_fds=(lock,))
with open(folder + "/code.part", "w") as file:
    file.write(str(code))
    file.flush()
    os.fsync(file.fileno())
os.replace(folder + "/code.part", folder + "/code")
"""


class Refused(Exception):
    """What keeps the work from beginning here, in words for a person."""


def main(request: dict[str, Any]) -> int:
    """The exit code; what is to be said is printed between the marks."""
    os.umask(0o077)
    try:
        answer, code = _answered(request)
    except Refused as error:
        answer, code = {"state": "refused", "reason": str(error)}, 0
    except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
        answer, code = {"state": "refused", "reason": f"{type(error).__name__}: {error}"}, 0
    print(f"firstlight-{request['token']}-begin\n{json.dumps(answer)}\nfirstlight-{request['token']}-end")
    return code


def _answered(request: dict[str, Any]) -> tuple[dict[str, Any], int]:
    os.makedirs(f"{FOLDER}/jobs", exist_ok=True)
    for path in (FOLDER, f"{FOLDER}/jobs"):
        _require_ours(path)
    job = f"{FOLDER}/jobs/{request['job']}"
    if request["do"] == "ask":
        ready = os.path.exists(f"{job}/about") or _is_whole(_tool(request))
        return {"state": "ready" if ready else "no tool"}, 0 if ready else NO_TOOL
    if not os.path.exists(f"{job}/about") and (other := _begun(request, job)):
        return other, 0
    return _followed(job, time.monotonic() + request["wait_s"])


def _require_ours(path: str) -> None:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise Refused(f"{path} is not a folder of this user alone; close it with chmod go-w, or move it away")


def _begun(request: dict[str, Any], job: str) -> dict[str, Any]:
    """Start the work; what stands in its way instead, {} where nothing does."""
    with open(f"{FOLDER}/jobs/.starting", "w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if os.path.exists(f"{job}/about"):
            return {}
        for name in _jobs():
            if _is_at_work(f"{FOLDER}/jobs/{name}"):
                about = _about(f"{FOLDER}/jobs/{name}")
                return {"state": "busy", "who": str(about.get("who", "")), "since": str(about.get("since", ""))}
        words = [f"{job}/kept" if word == KEPT else word for word in request["words"]]
        argv = [_installed(request), "-I", "-m", request["module"], *words]
        times = _to_take_back(argv[0], request["takes_back"]) if request["takes_back"] else 1
        if times == 0:
            return {"state": "taken back already"}
        _forget_old_ones()
        _start(job, argv, who=request["who"], times=times)
    return {}


def _start(job: str, argv: list[str], *, who: str, times: int) -> None:
    os.makedirs(job, exist_ok=True)
    with open(f"{job}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = {"who": who, "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        with open(f"{job}/about.part", "w", encoding="utf-8") as file:
            json.dump(about, file)
        os.replace(f"{job}/about.part", f"{job}/about")
        subprocess.Popen(
            [sys.executable, "-I", "-c", _RUNNER, str(lock.fileno()), job, str(times), *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
            cwd=os.path.expanduser("~"),
        )


def _followed(job: str, until: float) -> tuple[dict[str, Any], int]:
    while _is_at_work(job):
        if time.monotonic() > until:
            return {"state": "at work", **_about(job)}, AT_WORK
        time.sleep(0.1)
    code = _text(f"{job}/code", 16)
    printed = _text(f"{job}/printed", _PRINTED_LIMIT)
    told = {"printed": printed, "log": _end(f"{job}/log", _LOG_LIMIT), "journal": _journal(printed), **_about(job)}
    told["documents"], told["too_large"] = _documents(f"{job}/kept")
    if not code:
        return {"state": "died", **told}, 0
    return {"state": "ended", "code": int(code), **told}, 0


def _is_at_work(job: str) -> bool:
    """Whether somebody holds its lock: the kernel gives it back with the last process that has it."""
    try:
        with open(f"{job}/lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _jobs() -> list[str]:
    with os.scandir(f"{FOLDER}/jobs") as entries:
        return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def _forget_old_ones() -> None:
    """Of the jobs that ended the newest stay; their names begin with the time of their run."""
    for name in _jobs()[:-_KEPT]:
        shutil.rmtree(f"{FOLDER}/jobs/{name}", ignore_errors=True)


def _about(job: str) -> dict[str, Any]:
    try:
        found = json.loads(_text(f"{job}/about", 4096))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _journal(printed: str) -> str:
    """The journal that the document names; "" where it names none, or one too long to be sent."""
    try:
        path = json.loads(printed)["journal"]
        return _text(path, _JOURNAL_LIMIT) if os.path.getsize(path) <= _JOURNAL_LIMIT else ""
    except (ValueError, KeyError, TypeError, OSError):
        return ""


def _documents(folder: str) -> tuple[dict[str, str], list[str]]:
    """What was measured, by name, packed; and the paths of what would make the answer too long."""
    found: dict[str, str] = {}
    left, size = [], 0
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(".json"):
            with open(f"{folder}/{name}", "rb") as file:
                packed = base64.b64encode(zlib.compress(file.read(), 9)).decode()
            if size + len(packed) > _DOCUMENTS_LIMIT:
                left.append(f"{folder}/{name}")
                continue
            size += len(packed)
            found[name] = packed
    return found, left


def _text(path: str, limit: int) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _end(path: str, limit: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - limit))
            return file.read(limit).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _to_take_back(python: str, meant: list[dict[str, Any]]) -> int:
    """How often undo is called: it takes back the newest run, so that those that are meant have to be the newest."""
    argv = [python, "-I", "-m", "firstlight", "undo", "--list", "--json"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30)
    try:
        runs = sorted(json.loads(done.stdout)["runs"], key=lambda run: int(run["number"]), reverse=True)
    except (ValueError, KeyError, TypeError):
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Refused(lines[-1] if lines else "firstlight undo --list did not print the runs") from None
    in_place = [run for run in runs if run["state"] != "taken back"]
    ours = [run for run in in_place if any(_is(run, each) for each in meant)]
    if ours != in_place[: len(ours)]:
        raise Refused(
            f"run {in_place[0]['number']} was applied there since; undo would take that back first. "
            "Look there with: firstlight undo --list"
        )
    return len(ours)


def _is(run: dict[str, Any], meant: dict[str, Any]) -> bool:
    return bool(run["number"] == meant["number"] and meant["digest"] in ("", run["digest"]))


def _tool(request: dict[str, Any]) -> str:
    return f"{FOLDER}/tool-{request['sha256'][:16]}"


def _is_whole(tool: str) -> bool:
    """Whether firstlight starts from there; a Python that was upgraded since leaves an environment that does not."""
    if not os.path.exists(f"{tool}/whole"):
        return False
    argv = [f"{tool}/bin/python", "-I", "-c", "import firstlight.cli.main"]
    try:
        return (
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30).returncode == 0
        )
    except OSError:
        return False


def _installed(request: dict[str, Any]) -> str:
    """The Python of the environment that holds firstlight; made of the wheels that came, and of nothing else."""
    tool = _tool(request)
    if not _is_whole(tool):
        made = f"{tool}.part"
        shutil.rmtree(made, ignore_errors=True)
        _make(made, f"{tool}.zip", request["sha256"])
        shutil.rmtree(tool, ignore_errors=True)
        os.replace(made, tool)
        os.unlink(f"{tool}.zip")
    return f"{tool}/bin/python"


def _make(folder: str, archive: str, sha256: str) -> None:
    with open(archive, "rb") as file:
        data = file.read()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise Refused(f"{archive} is not what was sent: its SHA-256 differs; run the same command again")
        argv = [sys.executable, "-I", "-m", "venv", "--without-pip", folder]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=50)
        if done.returncode:
            lines = (done.stdout + done.stderr).decode("utf-8", "replace").strip().splitlines()
            raise Refused(f"no environment could be made: {lines[-1] if lines else 'python3 -m venv said nothing'}")
        [packages] = [f"{folder}/lib/{name}/site-packages" for name in os.listdir(f"{folder}/lib")]
        file.seek(0)
        with zipfile.ZipFile(file) as wheels:
            for name in wheels.namelist():
                with wheels.open(name) as wheel, zipfile.ZipFile(wheel) as each:
                    each.extractall(packages)  # the digest says that it is ours
    with open(f"{folder}/whole", "w"):
        pass


if __name__ == "__main__":
    sys.exit(main(json.loads(base64.b64decode(sys.argv[1]))))
