"""The kit: what it is made of, what its make and preflight really do, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import firstlight
from firstlight.cli.emit import command
from firstlight.diagnosis.finding import Question, Severity
from firstlight.emit.imagined import parse_machine
from firstlight.emit.kit import SOURCES, emit_kit
from firstlight.emit.subject import Choices
from firstlight.errors import BadInput
from firstlight.lint.judge import Given, lint
from firstlight.secrets import masked
from firstlight.verify.require_file import RequirementKind, read_require_file
from tests.emit.subjects import NEW_H100, OLD_H100, TABLES, subject, text_of, with_own_wheel, write
from tests.kernels.sm90.cases import needs_nvcc
from tests.programs import SHELLCHECK

PACKAGE = Path(firstlight.__file__).parent / "kernels/sm90"
FOR = ("kit", "--for", NEW_H100, "--want", "torch==2.9.0+cu130")
BASE = f"nvidia/cuda:13.0.2-devel-ubuntu24.04@sha256:{'0' * 64}"  # no image has this digest
ONE_KERNEL = "BUILDS=128-0-256-0"
BIN = str(Path(sys.executable).parent)
HADOLINT = shutil.which("hadolint", path=f"{BIN}:{os.environ.get('PATH', '')}")
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def _run(*argv: str) -> Result:
    return CliRunner().invoke(command, argv)


def _make(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    env = {**kept, "PATH": f"{path or BIN}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": ""}
    argv = ["make", *words]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=env)


def _kit(folder: Path, base: str = "none", text: str = NEW_H100) -> Path:
    return write(emit_kit(with_own_wheel(subject(text, choices=Choices(base=base)))), folder / "a kit")


def _program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o755)
    return file


def test_every_file_that_a_source_includes_comes_along() -> None:
    assert {f"bsr_bench/{path.name}" for path in (PACKAGE / "bsr_bench").iterdir()} <= set(SOURCES)
    named = {name.partition("/")[2] for name in SOURCES}
    included = {found for name in SOURCES for found in re.findall(r'#include "(.+)"', (PACKAGE / name).read_text())}
    assert included - named == {"builds.h"}  # which its Makefile writes


def test_out_writes_the_sources_to_the_byte_and_a_second_emit_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a kit"
    assert _run(*FOR, "--base", BASE, "--out", str(folder)).exit_code == 0
    assert any(masked((PACKAGE / name).read_text()) != (PACKAGE / name).read_text() for name in SOURCES)
    for name in SOURCES:
        assert (folder / "src" / name).read_bytes() == (PACKAGE / name).read_bytes()
    first = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert _run(*FOR, "--base", BASE, "--out", str(folder)).exit_code == 0
    assert first == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder / "wheels", check=False).returncode == 0


def test_a_folder_with_another_makefile_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n")
    done = _run(*FOR, "--base", "none", "--out", str(tmp_path))
    assert isinstance(done.exception, BadInput)
    assert "Makefile is there already and differs" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--for", NEW_H100), "emit kit needs --base, an image with nvcc, and firstlight asks no registry"),
        (("--for", NEW_H100, "--base", "team/cuda:13"), "imagetools inspect team/cuda:13` or `skopeo inspect"),
        (("--for", NEW_H100, "--base", "team/cuda@sha256:12"), "accepted is the name of an image"),
        (("--for", "B200, driver >= 580", "--base", "none"), "no GPU there is known to have compute capability 9.0"),
        (("--for", "toaster", "--base", "none"), "toaster"),
        (("--for", NEW_H100, "--base", "none", "--name", "x"), "there is no image"),
        (("--for", NEW_H100, "--base", "none", "--image", "x"), "--image does not apply to kit"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(argv: tuple[str, ...], message: str) -> None:
    done = _run("kit", *argv)
    assert isinstance(done.exception, BadInput), done.output
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)


def test_json_names_the_sources_without_their_text() -> None:
    document = json.loads(_run(*FOR, "--base", "none", "--json").stdout)
    assert [each["name"] for each in document["sources"]] == [f"src/{name}" for name in SOURCES]
    assert not any(each["name"].startswith("src/") for each in document["files"])


def test_the_base_is_pinned_cutlass_is_at_its_commit_and_our_own_lint_has_nothing_against_it() -> None:
    text = text_of(emit_kit(subject(OLD_H100, choices=Choices(base=BASE))), "Dockerfile")
    assert f"ARG BASE={BASE}\n" in text
    row = TABLES.source_tag("cutlass", "v4.3.0")
    assert row is not None
    assert f"fetch --quiet --depth 1 {row.address} {row.commit} " in text
    assert re.findall(r"(?m)^USER (.*)", text)[-1] == "$UID"
    question = Question(parse_machine(OLD_H100, TABLES), TABLES)
    found = lint(Given("Dockerfile", text), question, read=lambda path: Path(path).read_text()).findings
    assert [each for each in found if each.severity is Severity.BLOCKS] == []


@pytest.mark.skipif(HADOLINT is None, reason="needs hadolint")
def test_hadolint_finds_no_error(tmp_path: Path) -> None:
    folder = _kit(tmp_path, BASE)
    argv = [str(HADOLINT), "--failure-threshold", "error", "Dockerfile"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("base", "kinds"), [("none", set()), (BASE, {RequirementKind.COMMIT})])
def test_the_list_of_the_team_is_one_that_verify_reads(base: str, kinds: set[RequirementKind], tmp_path: Path) -> None:
    read = read_require_file(str(_kit(tmp_path, base) / "team.toml"))
    assert {each.kind for each in read} & {RequirementKind.COMMIT, RequirementKind.TAG} == kinds
    needed = {(each.kind, each.name): each.needed for each in read}
    assert needed[RequirementKind.BINARY, "build/sparse_bsr_gemm_h100"] == "sm_90a"
    assert needed[RequirementKind.VERSION, "torch"] == "==2.9.0+cu130"
    assert needed[RequirementKind.TOOLKIT, ""] == ">=13.0,<14"


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    argv = [SHELLCHECK, str(_kit(tmp_path) / "preflight.sh")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("check", "verify", "ended", "asked"),
    [
        (0, 0, 0, ["check --locked", "verify --require team.toml"]),
        (3, 0, 3, ["check --locked"]),
        (0, 1, 1, ["check --locked", "verify --require team.toml"]),
    ],
)
def test_preflight_ends_with_the_code_of_what_refused(
    check: int, verify: int, ended: int, asked: list[str], tmp_path: Path
) -> None:
    stand_in = _program(
        tmp_path / "b in",
        "firstlight",
        f'echo "$*" >> "{tmp_path}/said"\n[ $1 = check ] && exit {check}\nexit {verify}\n',
    )
    argv = [str(_kit(tmp_path) / "preflight.sh")]
    env = {**os.environ, "FIRSTLIGHT": str(stand_in)}
    assert subprocess.run(argv, env=env, check=False).returncode == ended
    assert (tmp_path / "said").read_text().splitlines() == asked


def test_preflight_without_firstlight_ends_with_4(tmp_path: Path) -> None:
    env = {**os.environ, "FIRSTLIGHT": "no-such-program"}
    argv = [str(_kit(tmp_path) / "preflight.sh")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, "README.md says how" in done.stderr) == (4, True)


@needs_nvcc
def test_on_the_machine_itself_it_builds_in_a_folder_with_a_space_and_says_what_is_not_proved(tmp_path: Path) -> None:
    folder = _kit(tmp_path)
    built = _make(folder, "-j2", "build", ONE_KERNEL)
    assert built.returncode == 0, built.stderr
    assert "without a container" in built.stderr
    ran = _make(folder, "run", ONE_KERNEL)
    assert (ran.returncode, "no GPU can be used here" in ran.stderr, "Error 4" in ran.stderr) == (2, True, True)
    checked = _make(folder, "check")
    assert (checked.returncode, "firstlight.lock: no such file" in checked.stderr) == (2, True)
    proved = _make(folder, "verify", ONE_KERNEL)
    assert (proved.returncode, "firstlight.lock: no such file" in proved.stderr) == (2, True)
    argv = [f"{BIN}/firstlight", "verify", "--only", "require", "--require", "team.toml", "--json"]
    held = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    rows = {row["requirement"]: row["met"] for row in json.loads(held.stdout)["requirements"]}
    assert (held.returncode, rows["build/sparse_bsr_gemm_h100"], rows["torch"]) == (1, "met", "not met")
    assert _make(folder, "clean").returncode == 0
    assert not (folder / "build").exists()


def test_in_a_container_every_target_goes_through_the_engine(tmp_path: Path) -> None:
    folder = _kit(tmp_path, BASE)
    tools = _program(
        tmp_path / "bin", "docker", f'printf "%s|" "$@" >> "{tmp_path}/said"; echo >> "{tmp_path}/said"\n'
    ).parent
    (folder / "firstlight.lock").write_text("kept\n")
    for target in ("build", "run", "ncu", "check", "verify", "clean"):
        done = _make(folder, target, "CONTAINER=docker", "ARGS=--block 64", path=str(tools))
        assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text().splitlines()
    mount = f"--volume|{folder}/firstlight.lock:/opt/kit/firstlight.lock:ro|"
    assert said.count("build|--tag|torch-2.9.0-cu130|.|") == 4  # build, run, ncu, verify
    runs = [line for line in said if line.startswith("run|--rm|--gpus|all|")]
    assert all(mount in line for line in runs)
    assert [line.partition("|torch-2.9.0-cu130|")[2] for line in runs if "ncu" not in line] == [
        "./build/sparse_bsr_gemm_h100|--block|64|",
        "firstlight|check|--locked|--python|/opt/firstlight/env/bin/python|",
        "./preflight.sh|",
    ]
    [counted] = [line for line in runs if "|ncu|" in line]
    assert "|--cap-add|SYS_ADMIN|" in counted
    assert said[-1] == "image|rm|torch-2.9.0-cu130|"


def test_the_lock_of_a_container_keeps_what_was_in_it_and_one_that_fails_changes_nothing(tmp_path: Path) -> None:
    folder = _kit(tmp_path, BASE)
    lock = folder / "firstlight.lock"
    tools = _program(tmp_path / "bin", "docker", "[ $1 = build ] || { cat; echo mine; }\n").parent
    assert _make(folder, "lock", "CONTAINER=docker", path=str(tools)).returncode == 0
    assert lock.read_text() == "mine\n"
    lock.write_text("another class\n")
    assert _make(folder, "lock", "CONTAINER=docker", path=str(tools)).returncode == 0
    assert lock.read_text() == "another class\nmine\n"
    _program(tmp_path / "bin", "docker", "[ $1 = build ] || { echo half; exit 1; }\n")
    assert _make(folder, "lock", "CONTAINER=docker", path=str(tools)).returncode == 2
    assert lock.read_text() == "another class\nmine\n"
    lock.unlink()
    assert _make(folder, "lock", "CONTAINER=docker", path=str(tools)).returncode == 2
    assert not list(folder.glob("firstlight.lock*"))


@pytest.mark.parametrize(("base", "words"), [
    ("none", "this kit has no Dockerfile"), (BASE, "accepted: docker, podman, or none for the machine itself")
])  # fmt: skip
def test_another_engine_is_refused_with_what_is_accepted(base: str, words: str, tmp_path: Path) -> None:
    done = _make(_kit(tmp_path, base), "build", "CONTAINER=lxc")
    assert (done.returncode, words in done.stderr) == (2, True)


def test_a_machine_whose_name_ends_with_a_backslash_does_not_swallow_a_line(tmp_path: Path) -> None:
    made = subject(NEW_H100, choices=Choices(base="none"), made_for="x\\")
    folder = write(emit_kit(made), tmp_path)
    plain = write(emit_kit(subject(NEW_H100, choices=Choices(base="none"))), tmp_path / "plain")
    one, other = (_make(each, "-n", "--no-print-directory", "check") for each in (folder, plain))
    assert (one.returncode, one.stdout) == (0, other.stdout)
