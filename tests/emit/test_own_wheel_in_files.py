"""firstlight's own wheel beside what is emitted: every file that installs it has its digest, and no index is asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from firstlight import __version__
from firstlight.emit.document import Emitted
from firstlight.emit.kinds import NAMES, emit
from firstlight.emit.subject import Choices
from firstlight.own_wheel import own_wheel
from tests.emit.subjects import NEW_H100, subject, text_of, with_own_wheel, write
from tests.emit.test_ansible import PROGRAM
from tests.programs import SHELLCHECK

WHEEL = own_wheel()
# the file that installs firstlight, and the folder of the wheel
INSTALLS = {
    "bash": ("pod_setup.sh", "wheels"),
    "dockerfile": ("Dockerfile", "wheels"),
    "devcontainer": (".devcontainer/Dockerfile", ".devcontainer/wheels"),
    "runpod": ("pod_setup.sh", "wheels"),
    "slurm": ("torch-2.9.0-cu130.sbatch", "wheels"),
    "ansible": ("playbook.yml", "wheels"),
    "compose": ("Dockerfile", "wheels"),
    "kit": ("Dockerfile", "wheels"),
}


_NEEDED = {"kit": {"base": f"cuda@sha256:{'0' * 64}"}}


def _emitted(kind: str, **choices: Any) -> Emitted:
    return emit(kind, with_own_wheel(subject(NEW_H100, choices=Choices(**_NEEDED.get(kind, {}), **choices))))


@pytest.mark.parametrize("kind", INSTALLS)
def test_the_file_that_installs_it_names_the_wheel_and_its_digest_and_no_index_has_its_name(kind: str) -> None:
    emitted = _emitted(kind)
    name, folder = INSTALLS[kind]
    assert emitted.wheel is not None
    assert (emitted.wheel.name, emitted.wheel.data) == (f"{folder}/{WHEEL.name}", WHEEL.data)
    text = text_of(emitted, name)
    assert WHEEL.name in text
    assert WHEEL.sha256 in text
    asked = [line for line in text.splitlines() if re.search(r"pip (install|download).*firstlight==", line)]
    assert asked == []


@pytest.mark.parametrize("kind", INSTALLS)
def test_an_index_is_asked_for_it_where_that_was_said_and_the_note_says_so(kind: str) -> None:
    emitted = emit(kind, subject(NEW_H100, choices=Choices(**_NEEDED.get(kind, {}))))
    assert emitted.wheel is None
    text = text_of(emitted, INSTALLS[kind][0])
    assert f"firstlight=={__version__}" in text
    assert "sha256sum" not in text
    assert kind == "devcontainer" or any("the name is firstlight's own" in note for note in emitted.notes)


@pytest.mark.parametrize("kind", ["runpod", "devcontainer", "compose", "k8s"])
def test_where_an_image_is_named_nothing_installs_firstlight(kind: str) -> None:
    assert _emitted(kind, image="x/y:1").wheel is None


def test_every_kind_is_here() -> None:
    assert set(INSTALLS) == set(NAMES) - {"k8s"}  # it names an image that was built


def _bring(folder: Path, kind: str) -> subprocess.CompletedProcess[str]:
    """The functions of the script, and the one that brings the wheel."""
    text = (folder / INSTALLS[kind][0]).read_text()
    functions = text[: text.index("main() {" if kind == "bash" else "\nproves=no")]
    shell = "sh" if kind == "bash" else "bash"
    calls = f"mkdir -p '{folder}/state' && bring_wheel '{folder}' '{folder}/state' && echo \"$own_wheel\""
    return subprocess.run([shell, "-c", f"{functions}\n{calls}"], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["bash", "slurm"])
def test_the_shell_takes_the_wheel_it_was_written_with_and_refuses_a_changed_byte(kind: str, tmp_path: Path) -> None:
    write(_emitted(kind), tmp_path)
    wheel, taken = tmp_path / "wheels" / WHEEL.name, tmp_path / "state" / WHEEL.name
    wheel.write_bytes(WHEEL.data[:-1] + bytes((WHEEL.data[-1] ^ 1,)))
    refused = _bring(tmp_path, kind)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is not the wheel that this file was written with" in refused.stderr
    assert list(taken.parent.iterdir()) == []
    wheel.write_bytes(WHEEL.data)
    assert (_bring(tmp_path, kind).stdout, taken.read_bytes()) == (f"{taken}\n", WHEEL.data)
    taken.write_bytes(b"an older one")
    assert (_bring(tmp_path, kind).returncode, taken.read_bytes()) == (0, WHEEL.data)
    wheel.unlink()
    assert _bring(tmp_path, kind).returncode == 0  # what is on the volume is enough
    taken.unlink()
    missing = _bring(tmp_path, kind)
    assert (missing.returncode, "bring the folder wheels along" in missing.stderr) == (1, True)


@pytest.mark.parametrize("kind", ["bash", "slurm"])
def test_shellcheck_has_nothing_to_say(kind: str, tmp_path: Path) -> None:
    write(_emitted(kind), tmp_path)
    argv = [SHELLCHECK, str(tmp_path / INSTALLS[kind][0])]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_pod_setup_refuses_it_before_anything_is_downloaded(tmp_path: Path) -> None:
    write(_emitted("bash", volume=str(tmp_path / "volume")), tmp_path)
    (tmp_path / "wheels" / WHEEL.name).write_bytes(b"another")
    done = subprocess.run(["sh", str(tmp_path / "pod_setup.sh")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is not the wheel that this file was written with" in done.stderr
    assert sorted(path.name for path in (tmp_path / "volume/firstlight").iterdir()) == ["lock"]


@pytest.mark.parametrize(("data", "code"), [(WHEEL.data, 0), (WHEEL.data + b"x", 1), (None, 1)])
def test_the_image_is_not_built_with_another(data: bytes | None, code: int, tmp_path: Path) -> None:
    text = re.sub(r"\\\n", " ", text_of(_emitted("dockerfile"), "Dockerfile"))
    [run] = [line for line in text.splitlines() if line.startswith("RUN ") and "sha256sum -c" in line]
    if data is not None:
        (tmp_path / WHEEL.name).write_bytes(data)
    script = run.removeprefix("RUN ").replace("/wheels/", f"{tmp_path}/")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert ("is not the wheel that this file was written with" in done.stderr) == (code == 1)


@pytest.mark.skipif(PROGRAM is None, reason="needs ansible-core")
@pytest.mark.parametrize(
    ("data", "mode", "code"),
    [
        (WHEEL.data + b"x", "--diff", 2),
        (WHEEL.data + b"x", "--check", 2),
        (None, "--check", 2),
        (WHEEL.data, "--check", 0),
    ],
)
def test_the_playbook_refuses_another(data: bytes | None, mode: str, code: int, tmp_path: Path) -> None:
    made = _emitted("ansible")
    text = text_of(made, "playbook.yml").replace("/opt/firstlight", str(tmp_path / "there"))
    [play] = yaml.load(text.replace("!unsafe ", ""), yaml.SafeLoader)
    names = [task["name"] for task in play["tasks"]]
    before, after = (names.index(name) for name in ("Install Python's headers", "Make the environment"))
    play |= {"tasks": play["tasks"][before + 1 : after], "become": False}
    write(replace(made, files=()), tmp_path)
    wheel = tmp_path / "wheels" / WHEEL.name
    wheel.unlink() if data is None else wheel.write_bytes(data)
    (tmp_path / "playbook.yml").write_text(yaml.safe_dump([play]))
    argv = [str(PROGRAM), mode, "--inventory", "localhost,", "--connection", "local", "--extra-vars",
            f"ansible_python_interpreter={sys.executable}", str(tmp_path / "playbook.yml")]  # fmt: skip
    environ = {**os.environ, "ANSIBLE_HOME": str(tmp_path / "home"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environ, timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("is not the wheel that this playbook was written with" in done.stdout) == (code == 2)
    assert not (tmp_path / "there").exists()  # no host gets it
