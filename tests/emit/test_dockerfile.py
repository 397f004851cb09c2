"""The Dockerfile and what it copies: gates where they belong, nothing baked, no word of a user as an instruction."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from firstlight.emit.dockerfile import emit_dockerfile
from firstlight.emit.subject import Choices
from firstlight.errors import BadInput
from tests.emit.subjects import HOSTILE, NEW_H100, OLD_H100, recorded, subject, text_of, with_package, write
from tests.programs import SHELLCHECK

INSTRUCTIONS = {"ARG", "FROM", "RUN", "COPY", "ENV", "LABEL", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}


def _instructions(text: str) -> list[tuple[str, str]]:
    """Instructions with their arguments, as a builder reads them: comments gone, continued lines joined."""
    lines = [line for line in text.split("\n") if not re.match(r"\s*#", line)]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [
        (word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.split("\n") if line.strip())
    ]


def _env(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word, rest in _instructions(text):
        if word == "ENV":
            found.update((name, value) for name, _, value in (part.partition("=") for part in shlex.split(rest)))
    return found


def test_only_known_instructions_are_written_and_the_last_user_is_not_root() -> None:
    read = _instructions(text_of(emit_dockerfile(subject()), "Dockerfile"))
    assert {word for word, _ in read} == INSTRUCTIONS
    assert [rest for word, rest in read if word == "USER"] == ["$UID"]
    assert ("ARG", "UID=10001") in read
    assert json.loads(next(rest for word, rest in read if word == "ENTRYPOINT")) == ["/opt/firstlight/entrypoint.sh"]


def test_the_gate_of_the_runtime_is_that_of_the_wheels_inside() -> None:
    made = subject()
    env = _env(text_of(emit_dockerfile(made), "Dockerfile"))
    assert env["NVIDIA_REQUIRE_CUDA"] == made.gates.require_cuda
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert "LD_LIBRARY_PATH" not in env
    newer = _env(text_of(emit_dockerfile(subject(NEW_H100)), "Dockerfile"))
    assert newer["NVIDIA_REQUIRE_CUDA"] == "cuda>=13.0"


def test_a_driver_that_runs_the_wheels_needs_no_compat_files() -> None:
    names = {file.name for file in emit_dockerfile(subject(NEW_H100)).files}
    assert names == {"Dockerfile", "entrypoint.sh", "shell.sh", "wheels/README"}
    assert {"get_compat.sh", "compat/wire.sh", "compat/run"} <= {file.name for file in emit_dockerfile(subject()).files}
    read = _instructions(text_of(emit_dockerfile(subject(NEW_H100)), "Dockerfile"))
    assert not any("compat" in rest for _, rest in read)


def test_everything_that_is_copied_from_the_folder_is_emitted() -> None:
    emitted = emit_dockerfile(subject())
    copied = [
        word
        for instruction, rest in _instructions(text_of(emitted, "Dockerfile"))
        if instruction == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    ]
    names = {file.name for file in emitted.files}
    for source in copied:
        assert source in names or any(name.startswith(f"{source}/") for name in names), source
    assert {"wheels", "get_compat.sh", "entrypoint.sh"} <= set(copied)


def test_wheels_are_cached_between_builds() -> None:
    runs = [rest for word, rest in _instructions(text_of(emit_dockerfile(subject()), "Dockerfile")) if word == "RUN"]
    installs = [run for run in runs if "pip install" in run]
    assert len(installs) == 3  # torch, numpy, firstlight
    assert all("--mount=type=cache,target=/root/.cache/pip" in run for run in installs)


def _last_stage(text: str) -> list[str]:
    """What is run in the stage that becomes the image."""
    read = _instructions(text)
    start = max(place for place, (word, _) in enumerate(read) if word == "FROM")
    return [rest for word, rest in read[start:] if word == "RUN"]


class Stage:
    """The RUN that brings a compiler, with stand-ins for apt-get, g++ and the base's python3 alone in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [self.script] = [run for run in _last_stage(text_of(emit_dockerfile(subject()), "Dockerfile")) if "g++" in run]
        (folder / "bin").mkdir()
        (folder / "bin/rm").symlink_to("/bin/rm")
        self.program("python3", f"echo '{folder}/include'")

    def program(self, name: str, line: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(f"#!/bin/sh\n{line}\n")
        file.chmod(0o755)

    def asked_of_apt(self, *, code: int = 0) -> str:
        script = self.script.replace("/var/lib/apt/lists", f"{self.folder}/lists")
        path = {"PATH": str(self.folder / "bin")}
        done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, env=path)
        assert done.returncode == code, done.stderr
        log = self.folder / "apt.log"
        return log.read_text() if log.exists() else ""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.program("apt-get", f'echo "$*" >> {tmp_path}/apt.log')
    return made


def test_the_image_gets_a_compiler_which_torch_compile_and_triton_call(stage: Stage) -> None:
    (stage.folder / "include").mkdir()
    (stage.folder / "include/Python.h").write_text("")  # as in Python's own images
    assert stage.asked_of_apt() == "update\ninstall --yes --no-install-recommends g++\n"


def test_a_python_of_apt_gets_its_headers_too(stage: Stage) -> None:
    assert stage.asked_of_apt() == "update\ninstall --yes --no-install-recommends g++ python3-dev\n"


def test_a_base_that_has_both_asks_apt_for_nothing(stage: Stage) -> None:
    stage.program("g++", "")
    (stage.folder / "include").mkdir()
    (stage.folder / "include/Python.h").write_text("")
    assert stage.asked_of_apt() == ""


def test_a_base_without_apt_is_taken_as_it_is_and_one_whose_apt_fails_is_not(stage: Stage) -> None:
    stage.program("apt-get", "exit 100")
    stage.asked_of_apt(code=100)
    (stage.folder / "bin/apt-get").unlink()
    assert stage.asked_of_apt() == ""


def test_every_user_may_note_what_cuinit_said() -> None:
    # a dev container gives the user the number of its owner on the host
    [run] = [run for run in _last_stage(text_of(emit_dockerfile(subject()), "Dockerfile")) if "compat/run" in run]
    assert " chmod 1777 /opt/firstlight/compat " in run
    assert not any(
        "chmod 1777" in run for run in _last_stage(text_of(emit_dockerfile(subject(NEW_H100)), "Dockerfile"))
    )


def test_a_base_can_be_pinned_by_its_digest() -> None:
    base = "docker.io/library/python@sha256:" + "0" * 64
    emitted = emit_dockerfile(subject(choices=Choices(base=base)))
    assert ("ARG", f"BASE={base}") in _instructions(text_of(emitted, "Dockerfile"))
    assert not any("not pinned" in note for note in emitted.notes)
    assert any("not pinned" in note for note in emit_dockerfile(subject()).notes)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_says_about_the_machine_stays_in_a_comment(text: str) -> None:
    plain, hostile = (emit_dockerfile(subject(made_for=name)) for name in (OLD_H100, text))
    assert [file.name for file in plain.files] == [file.name for file in hostile.files]
    assert _instructions(text_of(plain, "Dockerfile")) == _instructions(text_of(hostile, "Dockerfile"))
    for before, after in zip(plain.files, hostile.files, strict=True):
        if before.name.endswith(".sh"):
            assert _code(before.text) == _code(after.text), before.name


@pytest.mark.parametrize("text", HOSTILE)
def test_a_package_of_a_hostile_facts_file_is_one_word_or_refused(text: str) -> None:
    if not text.isprintable():
        with pytest.raises(BadInput, match="a Dockerfile cannot hold"):
            emit_dockerfile(with_package(f"vllm=={text}"))
        return
    read = _instructions(text_of(emit_dockerfile(with_package(f"vllm=={text}")), "Dockerfile"))
    run = [rest for word, rest in read if word == "RUN" and "pip install" in rest][1]
    assert shlex.split(run)[-2:] == [f"vllm=={text}", "torch==2.9.0+cu130"]
    assert {word for word, _ in read} == INSTRUCTIONS


def _code(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.startswith("#")]


@pytest.mark.parametrize("text", [*HOSTILE, "root", "", "A", "x" * 40])
@pytest.mark.parametrize("field", ["base", "user", "name"])
def test_names_that_could_be_more_than_names_are_refused(field: str, text: str) -> None:
    if not text or (field, text) in {
        ("base", "root"),
        ("name", "root"),
        ("base", "A"),
        ("base", "x" * 40),
        ("name", "x" * 40),
    }:
        return  # "" leaves it to the emitter; the others are names
    with pytest.raises(BadInput, match=f"--{field}"):
        emit_dockerfile(subject(choices=Choices(**{field: text})))


def test_the_same_subject_gives_the_same_bytes_and_says_which_plan() -> None:
    first, second = emit_dockerfile(subject()), emit_dockerfile(subject())
    assert first == second
    assert f"# plan {first.digest}" in text_of(first, "Dockerfile")
    assert f'firstlight.plan="{first.digest}"' in text_of(first, "Dockerfile")


def test_a_torch_without_cuda_asks_nothing_of_the_host() -> None:
    emitted = emit_dockerfile(subject(NEW_H100, "torch==2.9.0+cpu"))
    assert "NVIDIA" not in "".join(_env(text_of(emitted, "Dockerfile")))
    assert "https://download.pytorch.org/whl/cpu" in text_of(emitted, "Dockerfile")


def test_a_recorded_machine_ships_what_it_has() -> None:
    emitted = emit_dockerfile(recorded("h200-healthy"))
    assert "torch==" in text_of(emitted, "Dockerfile")


@pytest.mark.parametrize("machine", [OLD_H100, NEW_H100])
def test_the_scripts_are_clean_for_shellcheck(machine: str, tmp_path: Path) -> None:
    folder = write(emit_dockerfile(subject(machine)), tmp_path)
    scripts = sorted(str(path) for path in folder.rglob("*.sh"))
    done = subprocess.run(
        [SHELLCHECK, "-s", "sh", "-e", "SC1091,SC2194", *scripts], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
