"""A host without a new Python is asked by its sh: the real sh of this machine, read back into facts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from firstlight.errors import CouldNotLook
from firstlight.facts.by_sh import NO_PYTHON
from firstlight.facts.known import Known, Unknown
from firstlight.fleet.look import AskedBy, Looked
from firstlight.fleet.reply import between_marks
from firstlight.fleet.sh_probe import is_sh_answer, read_sh_answer, sh_script
from firstlight.machine.live import LiveMachine
from tests.programs import SHELLCHECK

SHELLS = [shell for shell in ("sh", "dash", "bash", "ksh", "busybox") if shutil.which(shell)]


def _asked(shell: str, path: str) -> bytes:
    words = [shell, "sh"] if shell == "busybox" else [shell]
    done = subprocess.run(
        [*words, "-c", sh_script("ab")],
        capture_output=True,
        check=True,
        timeout=60,
        env={"PATH": path, "HOME": "/root"},
    )
    assert done.stderr == b""
    answer = between_marks(done.stdout, "ab")
    assert answer is not None
    assert is_sh_answer(answer)
    return answer


@pytest.mark.parametrize("shell", SHELLS)
def test_the_answer_of_a_real_sh_becomes_facts(shell: str, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(
        "#!/bin/sh\necho '0, NVIDIA H200, 9.0, 143771, 570.133.20, GPU-1, 00000000:18:00.0, Disabled, Enabled, "
        "700, 1980, 1980, Enabled'\n"
    )
    smi.chmod(0o755)
    looked = Looked("node01", read_sh_answer(_asked(shell, f"{tmp_path}:/usr/bin:/bin")), AskedBy.SH)
    facts = looked.facts()
    live = LiveMachine()
    assert facts.place.arch == live.host.arch
    assert facts.place.kernel_release == live.host.kernel_release
    [gpu] = facts.gpus.devices
    assert gpu.name == Known("NVIDIA H200", "nvidia-smi")
    assert isinstance(facts.torch, Unknown)
    assert facts.torch.reason == NO_PYTHON


def test_a_line_that_was_not_asked_for_is_refused() -> None:
    for line in ("X /etc/passwd 00", "T /etc/os-release zz", "S /dev/null rm -rf"):
        with pytest.raises(CouldNotLook):
            read_sh_answer(f"firstlight-sh\n{line}\n".encode())


def test_shellcheck_has_nothing_to_say_of_the_script(tmp_path: Path) -> None:
    file = tmp_path / "probe.sh"
    file.write_text("#!/bin/sh\n" + sh_script("ab"))
    done = subprocess.run([SHELLCHECK, "--shell=sh", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
