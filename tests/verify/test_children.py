"""Children that fail in every way a process can, and the checks that run on a processor alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.verify.check import CheckOutcome
from tests.verify.standing_in import case_of, check_named, prove, stand_in

REAL_TORCH_THAT_LIES = """
import os, sys
here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path = [path for path in sys.path if os.path.abspath(path or ".") != here]
del sys.modules["torch"]
import torch
plain = torch.Tensor.__matmul__
torch.Tensor.__matmul__ = lambda a, b: plain(a, b) + (0.01 if a.dtype is torch.float32 else 0)
sys.modules["torch"] = torch
"""


@pytest.fixture
def torch_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a stand-in for torch in front of the real one."""

    def put(source: str) -> None:
        monkeypatch.setenv("PYTHONPATH", stand_in(tmp_path / "stand-in", source))

    return put


def test_a_torch_that_imports_is_proved_with_its_file_and_version(tmp_path: Path) -> None:
    result = prove(check_named("import"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.OK
    seen = {each.what: each.value for each in result.evidence}
    assert seen["interpreter"] == sys.executable
    assert str(seen["file"]).endswith("torch/__init__.py")
    assert result.command[:2] == (sys.executable, result.command[1])
    assert result.seconds > 0


def test_an_import_error_is_told_in_its_own_words(tmp_path: Path, torch_is: Callable[[str], None]) -> None:
    torch_is("raise ImportError('libcudnn.so.9: cannot open shared object file: No such file or directory')")
    result = prove(check_named("import"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert result.says.startswith("ImportError: libcudnn.so.9: cannot open shared object file")
    assert "firstlight explain" in " ".join(result.do)


def test_no_torch_at_all_is_a_failure_not_a_skip(tmp_path: Path) -> None:
    bare = subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    assert bare.returncode == 0
    result = prove(check_named("import"), case_of(tmp_path, interpreter=str(tmp_path / "bare/bin/python")))
    assert result.outcome is CheckOutcome.FAILED
    assert "No module named 'torch'" in result.says
    assert "--python" in " ".join(result.do)


def test_a_folder_called_torch_is_not_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "path" / "torch").mkdir(parents=True)
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    result = prove(check_named("import"), case_of(tmp_path, interpreter=str(bare / "bin/python")))
    assert result.outcome is CheckOutcome.FAILED
    assert "is not torch" in result.says


def test_a_removed_library_of_torch_fails_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    real = Path(torch.__file__).parent
    farm = tmp_path / "farm" / "torch"
    (farm / "lib").mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name != "lib":
            (farm / entry.name).symlink_to(entry)
    for entry in (real / "lib").iterdir():
        if entry.name != "libtorch_global_deps.so":
            (farm / "lib" / entry.name).symlink_to(entry)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "farm"))
    result = prove(check_named("import"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert "libtorch_global_deps.so" in result.says


def test_a_child_that_hangs_is_killed_with_all_it_started(tmp_path: Path, torch_is: Callable[[str], None]) -> None:
    mark = tmp_path / "pid"
    torch_is(
        "import subprocess, time\n"
        f"open({str(mark)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "time.sleep(600)\n"
    )
    started = time.monotonic()
    result = prove(check_named("import", limit_s=3.0), case_of(tmp_path))
    assert time.monotonic() - started < 10
    assert result.outcome is CheckOutcome.FAILED
    assert "no answer within 3 s" in result.says
    assert _is_gone(int(mark.read_text()))


def _is_gone(pid: int) -> bool:
    for _ in range(50):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_crash_is_named_by_its_signal(tmp_path: Path, torch_is: Callable[[str], None]) -> None:
    torch_is(f"import os; os.kill(os.getpid(), {signal.SIGSEGV:d})")
    result = prove(check_named("import"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert "SIGSEGV" in result.says
    assert result.do


def test_a_child_that_leaves_without_a_word_fails(tmp_path: Path, torch_is: Callable[[str], None]) -> None:
    torch_is("import os, sys; sys.stderr.write('giving up\\n'); sys.stderr.flush(); os._exit(0)")
    result = prove(check_named("import"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert "exit status 0 and no answer: giving up" in result.says


def test_noise_on_stdout_does_not_spoil_an_answer(tmp_path: Path, torch_is: Callable[[str], None]) -> None:
    torch_is('print(\'{"firstlight-proof": {"outcome": "ok"}}\')\n__version__ = \'1.0\'\nclass version: cuda = None\n')
    result = prove(check_named("import"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.OK
    assert result.says.startswith("torch 1.0")


def test_what_python_prints_at_start_is_never_taken_for_the_answer(
    tmp_path: Path, torch_is: Callable[[str], None]
) -> None:
    torch_is("import os; os._exit(0)")
    forged = {"outcome": "ok", "says": "fine", "do": [], "evidence": [], "more": {}}
    (tmp_path / "stand-in/sitecustomize.py").write_text(
        f"import json, os; os.write(1, json.dumps({{'firstlight-proof': {forged}}}).encode() + b'\\n')\n"
    )
    result = prove(check_named("import"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert "no answer" in result.says


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = prove(check_named("import"), case_of(tmp_path, interpreter="/nowhere/python"))
    assert result.outcome is CheckOutcome.FAILED
    assert "/nowhere/python was not found" in result.says


def test_the_processor_matches_float64(tmp_path: Path) -> None:
    result = prove(check_named("cpu"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.OK, result.says
    assert "of what rounding allows" in result.says


def test_a_product_that_is_a_hundredth_off_is_found(tmp_path: Path, torch_is: Callable[[str], None]) -> None:
    torch_is(REAL_TORCH_THAT_LIES)
    result = prove(check_named("cpu"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert "a product on the processor is wrong" in result.says


def test_torch_compile_without_a_compiler_fails_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    result = prove(check_named("compile"), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert "torch.compile fails on cpu" in result.says
    assert "compiler" in " ".join(result.do)


def test_an_extension_without_ninja_is_skipped_never_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.path.exists(os.path.join(os.path.dirname(sys.executable), "ninja")):
        pytest.skip("ninja is installed beside this interpreter")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = prove(check_named("extension", needs=()), case_of(tmp_path))
    assert result.outcome is CheckOutcome.SKIPPED
    assert "ninja" in result.says


def test_an_extension_that_does_not_compile_shows_the_compilers_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "g++"
    broken.write_text(
        "#!/bin/sh\ncase \"$*\" in *-dump*|*--version*|*-v*) echo 'g++ (GCC) 12.2.0'; exit 0;; esac\n"
        "echo 'fatal error: cannot execute cc1plus' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    result = prove(check_named("extension", needs=()), case_of(tmp_path))
    assert result.outcome is CheckOutcome.FAILED
    assert "the build failed" in result.says
    assert "cc1plus" in result.says + result.stderr


def test_nothing_is_left_in_the_users_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    assert prove(check_named("here"), case_of(tmp_path / "work")).outcome is CheckOutcome.OK
    assert list(home.iterdir()) == []


def test_a_gpu_for_one_process_at_a_time_gets_one_lane(tmp_path: Path) -> None:
    from dataclasses import replace

    from firstlight.facts.gpus import ComputeMode
    from firstlight.facts.known import Known
    from firstlight.verify.checks import CHECKS
    from firstlight.verify.runner import _lane
    from tests.verify.standing_in import facts_of

    facts = facts_of("h200")
    one = replace(facts.gpus.devices[0], compute_mode=Known(ComputeMode.EXCLUSIVE_PROCESS, "a test"))
    alone = replace(facts, gpus=replace(facts.gpus, devices=(one,)))
    assert {_lane(check, case_of(tmp_path, alone)) for check in CHECKS} == {"gpu"}
    assert {_lane(check, case_of(tmp_path, facts)) for check in CHECKS} >= {"gpu", "shell"}
