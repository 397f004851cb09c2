"""Fresh shells that see something else, and libraries that are not the intended ones."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.look import Look, Names, look_at
from firstlight.verify.check import CheckOutcome, Result
from firstlight.verify.checks import CHECKS
from firstlight.verify.fresh import CRON, INTERACTIVE, LOGIN, SSH, in_shell, ssh_answers
from firstlight.verify.judges import judge_libraries, judge_shell
from firstlight.verify.runner import chosen, run_checks
from tests.verify.standing_in import case_of, check_named, facts_here, prove, python_with, said, stand_in

SMALL_TORCH = """
__version__ = "9.9.9"
class version:
    cuda = None
class cuda:
    is_available = staticmethod(lambda: False)
    device_count = staticmethod(lambda: 0)
"""


OTHER_TORCH = SMALL_TORCH.replace("9.9.9", "1.1.1")


def shells(tmp_path: Path, *names: str) -> dict[str, Result]:
    """The checks on an environment whose own torch is 1.1.1."""
    checks = chosen(CHECKS, ("here", *names))
    case = case_of(tmp_path / "work", interpreter=python_with(tmp_path / "environment", OTHER_TORCH))
    results, _ = run_checks(checks, case, lambda _: None)
    return {result.check: result for result in results}


def test_what_only_this_shell_knows_is_missing_in_the_fresh_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch that is there by PYTHONPATH alone, as field report 000's libraries were by LD_LIBRARY_PATH alone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", stand_in(tmp_path / "mine", SMALL_TORCH))
    found = shells(tmp_path, "cron")
    assert found["here"].outcome is CheckOutcome.OK
    assert found["cron"].outcome is CheckOutcome.FAILED
    assert "torch is 1.1.1 there, 9.9.9 here" in found["cron"].says


def test_a_poisoned_profile_is_found_in_the_shell_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export in .profile reaches the login shell, one in .bashrc the interactive one, none of them cron."""
    home = tmp_path / "home"
    home.mkdir()
    broken = stand_in(tmp_path / "broken", "raise ImportError('libcudart.so.13: wrong ELF class: ELFCLASS32')")
    (home / ".profile").write_text(f"echo hello\nexport PYTHONPATH={broken}\nexport LD_LIBRARY_PATH=/poison\n")
    (home / ".bashrc").write_text("echo welcome back\n")
    monkeypatch.setenv("HOME", str(home))
    found = shells(tmp_path, "login-shell", "interactive-shell", "cron")
    assert found["login-shell"].outcome is CheckOutcome.FAILED
    assert "wrong ELF class" in found["login-shell"].says
    assert "LD_LIBRARY_PATH is /poison there" in " ".join(found["login-shell"].do)
    assert found["interactive-shell"].outcome is CheckOutcome.OK, found["interactive-shell"].says
    assert found["cron"].outcome is CheckOutcome.OK, found["cron"].says


def test_a_bashrc_that_leaves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("echo no shells here >&2\nexit 7\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", stand_in(tmp_path / "mine", SMALL_TORCH))
    result = shells(tmp_path, "interactive-shell")["interactive-shell"]
    assert result.outcome is CheckOutcome.FAILED
    assert "exit status 7 and no answer: no shells here" in result.says


def test_without_a_baseline_a_shell_is_skipped(tmp_path: Path) -> None:
    result = prove(check_named("cron"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.SKIPPED
    assert "`here`" in result.says


def test_fresh_shells_start_with_nothing_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    for shell in (LOGIN, INTERACTIVE, CRON):
        started = in_shell(shell, ("/usr/bin/python3", "-V"))
        assert "LD_LIBRARY_PATH" not in started.environ
        assert started.argv[-2:] == ("/usr/bin/python3", "-V")
    assert in_shell(CRON, ("x",)).environ["PATH"] == "/usr/bin:/bin"
    assert in_shell("", ("x",)).environ["LD_LIBRARY_PATH"] == "/mine"
    assert "it'\"'\"'s" in in_shell(SSH, ("echo", "it's")).argv[-1]


def a_server(banner: bytes) -> int:
    """A port on which one caller is greeted."""
    server = socket.create_server(("127.0.0.1", 0))

    def greet() -> None:
        connection, _ = server.accept()
        connection.sendall(banner)
        connection.close()
        server.close()

    threading.Thread(target=greet, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


def test_ssh_is_tried_only_where_a_server_and_a_key_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert "no ssh server answers" in ssh_answers(1)
    assert "is not an ssh server" in ssh_answers(a_server(b"HTTP/1.1 400\r\n"))
    assert "authorized_keys is not there" in ssh_answers(a_server(b"SSH-2.0-x\r\n"))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/authorized_keys").write_text("")
    assert "there is no key in" in ssh_answers(a_server(b"SSH-2.0-x\r\n"))
    (tmp_path / ".ssh/id_ed25519").write_text("")
    assert ssh_answers(a_server(b"SSH-2.0-x\r\n")) == ""


def test_a_command_over_ssh_is_compared_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for ssh that starts the command as sshd does: by the user's shell, with a bare environment."""
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nfor last; do :; done\nexec env -i HOME="$HOME" PATH=/usr/bin:/bin /bin/sh -c "$last"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", stand_in(tmp_path / "mine", SMALL_TORCH))
    checks = (check_named("here"), check_named("ssh", needs=()))
    case = case_of(tmp_path / "work", interpreter=python_with(tmp_path / "environment", OTHER_TORCH))
    results, _ = run_checks(checks, case, lambda _: None)
    assert results[1].outcome is CheckOutcome.FAILED
    assert "torch is 1.1.1 there, 9.9.9 here" in results[1].says


def test_a_refused_login_is_a_skip_not_a_failure(tmp_path: Path) -> None:
    answer = replace(said(CheckOutcome.FAILED), more={}, stderr="me@localhost: Permission denied (publickey).")
    result = judge_shell(check_named("ssh"), answer, case_of(tmp_path), {"here": said(version="1")})
    assert result.outcome is CheckOutcome.SKIPPED


def test_a_gpu_that_only_this_shell_sees_fails(tmp_path: Path) -> None:
    here = said(
        file="t", version="2", available=True, libcuda="/compat/libcuda.so.1", gpus=1, ld_library_path="/compat"
    )
    there = said(file="t", version="2", available=False, libcuda="/usr/lib/libcuda.so.1", gpus=0, ld_library_path="")
    result = judge_shell(check_named("cron"), there, case_of(tmp_path), {"here": here})
    assert result.outcome is CheckOutcome.FAILED
    assert "a usable GPU is not seen there, seen here" in result.says
    assert "libcuda is /usr/lib/libcuda.so.1 there, /compat/libcuda.so.1 here" in result.says
    assert "LD_LIBRARY_PATH is empty there, /compat here" in result.do[0]


def test_a_library_that_ld_library_path_swaps_is_found_in_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real swap: a copy of libc10.so, which torch's CPU build (DT_RUNPATH) lets LD_LIBRARY_PATH put in its place."""
    import torch

    if torch.version.cuda is not None:
        pytest.skip("a CUDA build of torch carries DT_RPATH, which LD_LIBRARY_PATH cannot override")
    copy = tmp_path / "swap"
    copy.mkdir()
    shutil.copy(Path(torch.__file__).parent / "lib/libc10.so", copy / "libc10.so")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(copy))
    facts = look_at(Look(python=sys.executable, names=Names.REAL))
    result = prove(check_named("libraries"), case_of(tmp_path / "work", facts))
    assert result.outcome is CheckOutcome.FAILED
    assert f"libc10.so is {copy}/libc10.so, not torch's" in result.says
    assert "LD_LIBRARY_PATH" in result.do[0]


def test_the_libraries_of_a_good_torch_are_the_intended_ones(tmp_path: Path) -> None:
    result = prove(check_named("libraries"), case_of(tmp_path, facts_here()))
    assert result.outcome is CheckOutcome.OK, result.says
    assert "are the intended files, none twice" in result.says


def test_two_copies_of_one_library_fail(tmp_path: Path) -> None:
    both = ["/a/libcublas.so.12", "/b/libcublas.so.13.1.0.3", "/usr/lib/libz.so.1", "/opt/libz.so.1"]
    result = judge_libraries(check_named("libraries"), said(libraries=both), case_of(tmp_path), {})
    assert result.outcome is CheckOutcome.FAILED
    assert result.says == "libcublas is loaded twice: /a/libcublas.so.12 and /b/libcublas.so.13.1.0.3"


def test_libraries_that_cannot_be_compared_are_not_proved(tmp_path: Path) -> None:
    result = judge_libraries(check_named("libraries"), said(libraries=["/usr/lib/libz.so.1"]), case_of(tmp_path), {})
    assert result.outcome is CheckOutcome.SKIPPED
