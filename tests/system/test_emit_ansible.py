"""The emitted playbook run by Ansible over ssh against a Debian root of its own: gates, changes, again, compat."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from firstlight.emit.kinds import emit
from tests.apply.debs import Repository
from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts
from tests.apply.wheels import make_wheel
from tests.emit.subjects import OLD_H100, subject, with_own_wheel, write
from tests.system.clean_root import chroot, closure, essential, make_root
from tests.system.wheels_again import pack_again, with_needs

PROGRAM = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
_PACKAGES = ("openssh-server", "python3", "python3-venv", "python3-apt", "ca-certificates")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(PROGRAM is None, reason="needs ansible-core"),
    pytest.mark.skipif(shutil.which("gpg") is None or shutil.which("gcc") is None, reason="needs gpg and gcc"),
    pytest.mark.skipif(
        not all(Path("/usr/share/doc", name).exists() for name in _PACKAGES), reason=f"needs {', '.join(_PACKAGES)}"
    ),
]


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@dataclass
class Host:
    """A root with sshd in it, and the folder that the playbook is run from."""

    root: Path
    control: Path
    port: int

    def load(self, driver: str) -> None:
        """Let the host have this kernel driver."""
        folder = self.root / "sys/module/nvidia"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "version").write_text(f"{driver}\n")

    def play(self, *options: str) -> tuple[dict[str, int], str]:
        """The counts of the recap, and everything that was printed."""
        recaps, said = play((self,), *options)
        return recaps[0], said


def play(hosts: tuple[Host, ...], *options: str) -> tuple[list[dict[str, int]], str]:
    """One play over all of them, from the folder of the first: the counts of each, and everything that was printed."""
    control = hosts[0].control
    inventory = control / "hosts"
    about = (
        f"ansible_host=127.0.0.1 ansible_user=root ansible_ssh_private_key_file={control}/id_ed25519 "
        "ansible_python_interpreter=/usr/bin/python3"
    )
    inventory.write_text("".join(f"host-{host.port} ansible_port={host.port} {about}\n" for host in hosts))
    pip = json.dumps({"firstlight_pip_environment": {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}})
    done = subprocess.run(
        [str(PROGRAM), "--inventory", str(inventory), "--extra-vars", pip, *options, "playbook.yml"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300, cwd=control,
        env={
            **os.environ, "ANSIBLE_HOME": str(control / "home"), "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_SSH_ARGS": "-o ControlMaster=no -o UserKnownHostsFile=/dev/null", "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "True",
        },
    )  # fmt: skip
    said = done.stdout + done.stderr
    recap = said.rpartition("PLAY RECAP")[2]
    rows = [re.search(rf"host-{host.port} .*", recap) for host in hosts]
    assert all(rows), said
    counts = [re.findall(r"(\w+)=(\d+)", row[0]) for row in rows if row]
    return [{name: int(count) for name, count in each} for each in counts], said


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    root, control = folder / "root", folder / "control"
    make_root(root, tuple(sorted({*essential(), *closure(_PACKAGES)})))
    server = _apt(folder, root)
    write(emit("ansible", with_own_wheel(subject(OLD_H100))), control)
    make_wheel(root / "wheels", "torch", "2.9.0+cu130")
    for name in with_needs("firstlight"):
        if name != "firstlight":
            pack_again(name, root / "wheels")
    (root / "usr/bin/nvidia-smi").write_text("#!/bin/sh\necho 9.0\n")
    (root / "usr/bin/nvidia-smi").chmod(0o755)
    # before anything is done to it: the second host of the last test
    subprocess.run(["cp", "--archive", "--reflink=auto", str(root), str(folder / "twin")], check=True)
    for name in ("host", "id_ed25519"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(control / name)], check=True)
    made = Host(root, control, _free_port())
    with _sshd(made):
        yield made
    server.shutdown()
    shutil.rmtree(folder)


def _apt(folder: Path, root: Path) -> ThreadingHTTPServer:
    repository = Repository(folder / "apt")
    tree = folder / "apt/cuda-compat-13-0_580.95.05"
    build_libcuda(tree / "usr/local/cuda-13.0/compat", version="580.95.05", cuda=13000)
    repository.add("cuda-compat-13-0", "580.95.05", files={"/usr/local/cuda-13.0/compat/README": "stand-in\n"})
    [minor] = {path.name for path in (root / "usr/lib").glob("python3.*")}
    compiler = folder / "apt/g++_12.2/usr/bin/g++"
    compiler.parent.mkdir(parents=True)
    compiler.touch(mode=0o755)
    repository.add("g++", "12.2", files={})
    repository.add(f"{minor}-dev", "1", files={f"/usr/include/{minor}/Python.h": ""})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(repository.packages)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shutil.copy(folder / "apt/key.gpg", root / "etc/apt/key.gpg")
    line = f"deb [signed-by=/etc/apt/key.gpg] http://127.0.0.1:{server.server_address[1]} ./\n"
    (root / "etc/apt/sources.list").write_text(line)
    (root / "etc/apt/apt.conf.d/99tests").write_text('APT::Sandbox::User "root";\n')
    (root / "etc/profile").write_text('for each in /etc/profile.d/*.sh; do [ ! -r "$each" ] || . "$each"; done\n')
    assert chroot(root, "apt-get", "update").returncode == 0
    return server


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _sshd(host: Host) -> Iterator[None]:
    keys = host.root / "etc/ssh/of-tests"
    keys.mkdir(parents=True)
    shutil.copy(host.control / "host", keys / "host")
    shutil.copy(host.control / "id_ed25519.pub", keys / "authorized_keys")
    (host.root / "run/sshd").mkdir(parents=True, exist_ok=True)
    (keys / "sshd_config").write_text(
        f"Port {host.port}\nListenAddress 127.0.0.1\nHostKey /etc/ssh/of-tests/host\nUsePAM no\nStrictModes no\n"
        "PermitRootLogin prohibit-password\nAuthorizedKeysFile /etc/ssh/of-tests/authorized_keys\nPidFile none\n"
        "Subsystem sftp internal-sftp\n"
    )
    script = (
        'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && root="$1" && shift && exec chroot "$root" "$@"'
    )
    daemon = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(host.root),
         "/usr/sbin/sshd", "-D", "-f", "/etc/ssh/of-tests/sshd_config", "-E", "/etc/ssh/of-tests/log"],
    )  # fmt: skip
    try:
        assert _answers(host.port), (keys / "log").read_text()
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def _answers(port: int) -> bool:
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.1)
    return False


def _login(host: Host, command: str) -> str:
    return chroot(host.root, "sh", "-lc", command).stdout.strip()


def test_a_host_that_does_not_fit_is_refused_before_anything_changes(host: Host) -> None:
    host.load("560.35.03")
    recap, said = host.play()
    assert (recap["changed"], recap["failed"]) == (0, 1), said
    assert "driver 560.35.03 is loaded; torch 2.9.0+cu130 needs 580.65.06 or newer" in said
    assert not (host.root / "opt/firstlight").exists()


def test_check_mode_changes_nothing(host: Host) -> None:
    host.load("570.133.20")
    recap, said = host.play("--check", "--diff", "--skip-tags", "verify")
    assert recap["failed"] == 0, said
    assert recap["changed"] > 0
    assert not (host.root / "opt/firstlight").exists()
    assert not (host.root / "usr/local/cuda-13.0").exists()


def test_a_host_is_brought_up_and_the_second_run_changes_nothing(host: Host) -> None:
    host.load("580.95.05")
    recap, said = host.play("--skip-tags", "verify")
    assert recap["failed"] == 0, said
    assert recap["changed"] > 0
    assert _login(host, "python -c 'import torch; print(torch.VERSION)'") == "2.9.0+cu130"
    assert not (host.root / "usr/local/cuda-13.0").exists()  # this driver needs no compat library
    assert (host.root / "usr/bin/g++").exists()  # torch.compile calls it
    assert list((host.root / "usr/include").glob("python3.*/Python.h"))
    again, said = host.play("--skip-tags", "verify")
    assert (again["failed"], again["changed"]) == (0, 0), said


def test_an_older_driver_gets_the_compat_library_and_a_newer_one_does_not_use_it(host: Host) -> None:
    host.load("570.133.20")
    recap, said = host.play("--skip-tags", "verify")
    assert (recap["failed"], recap["changed"]) == (0, 1), said
    shown = 'echo "${LD_LIBRARY_PATH:-none}"'
    assert _login(host, shown) == "/usr/local/cuda-13.0/compat"
    host.load("595.45.04")
    assert _login(host, shown) == "none"


def test_what_cannot_be_proved_fails_the_play(host: Host) -> None:
    host.load("580.95.05")
    recap, said = host.play()
    assert recap["failed"] == 1, said
    assert "TASK [Prove it]" in said  # the torch of these tests is a stand-in


def test_two_hosts_are_brought_up_in_one_play_and_one_that_does_not_fit_does_not_stop_the_other(host: Host) -> None:
    twin = Host(host.root.parent / "twin", host.control, _free_port())
    host.load("580.95.05")
    with _sshd(twin):
        twin.load("560.35.03")
        [up, refused], said = play((host, twin), "--skip-tags", "verify")
        assert (up["failed"], refused["failed"], refused["changed"]) == (0, 1, 0), said
        assert not (twin.root / "opt/firstlight").exists()
        twin.load("570.133.20")
        [up, other], said = play((host, twin), "--skip-tags", "verify")
        assert (up["failed"], up["changed"], other["failed"]) == (0, 0, 0), said
        assert other["changed"] > 0
        assert _login(twin, 'echo "${LD_LIBRARY_PATH:-none}"') == "/usr/local/cuda-13.0/compat"
        assert _login(host, 'echo "${LD_LIBRARY_PATH:-none}"') == "none"
