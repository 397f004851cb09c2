"""compose.yaml as its readers see it: the compose tools that can be had here, and our own lint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from firstlight.diagnosis.finding import Question, Severity
from firstlight.emit.compose import emit_compose
from firstlight.emit.imagined import parse_machine
from firstlight.emit.subject import Choices
from firstlight.errors import BadInput
from firstlight.lint.judge import Given, lint
from tests.emit.subjects import HOSTILE, NEW_H100, OLD_H100, TABLES, recorded, subject, text_of, write

READERS = {"podman-compose": str(Path(sys.executable).with_name("podman-compose")), "docker-compose": "docker-compose"}
NO_CUDA = "torch==2.9.0+cpu"
BOARD = "Jetson Thor, driver 580"


def _service(text: str) -> dict[str, Any]:
    [(name, service)] = yaml.safe_load(text)["services"].items()
    assert name == "torch"
    found: dict[str, Any] = service
    return found


def test_the_gpus_are_reserved_as_the_specification_says_and_the_gate_is_the_health() -> None:
    service = _service(text_of(emit_compose(subject()), "compose.yaml"))
    [device] = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert service["healthcheck"]["test"] == ["CMD", "/opt/firstlight/entrypoint.sh", "nvidia-smi", "--list-gpus"]
    assert service["shm_size"] == "8gb"
    assert (service["image"], service["build"]) == ("torch-2.9.0-cu130", ".")
    assert "runtime" not in service


def test_a_torch_without_cuda_reserves_nothing_and_a_jetson_has_the_runtime() -> None:
    without = _service(text_of(emit_compose(subject(NEW_H100, NO_CUDA)), "compose.yaml"))
    assert not {"deploy", "runtime"} & set(without)
    assert without["healthcheck"]["test"][-1] == "true"
    board = _service(text_of(emit_compose(subject(BOARD, "torch==2.13.0")), "compose.yaml"))
    assert ("deploy" in board, board["runtime"], board["healthcheck"]["test"][-1]) == (False, "nvidia", "true")


def test_what_the_image_is_built_from_lies_beside_it_unless_one_is_named() -> None:
    built = {file.name for file in emit_compose(subject()).files}
    assert {"compose.yaml", "Dockerfile", "entrypoint.sh", "compat/run"} <= built
    named = emit_compose(subject(choices=Choices(image="registry.example.com/team/torch:1")))
    assert [file.name for file in named.files] == ["compose.yaml"]
    service = _service(named.files[0].text)
    assert (service["image"], "build" in service) == ("registry.example.com/team/torch:1", False)


@pytest.mark.system  # podman and docker-compose come from apt
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("machine", "wants"), [(OLD_H100, ()), (BOARD, ("torch==2.13.0",))])
def test_a_real_reader_takes_it(reader: str, machine: str, wants: tuple[str, ...], tmp_path: Path) -> None:
    folder = write(emit_compose(subject(machine, *wants)), tmp_path)
    done = subprocess.run(
        [READERS[reader], "config"], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    read = _service(done.stdout)
    written = _service((folder / "compose.yaml").read_text())
    assert read["build"] == {"context": str(folder)}
    assert {key: read[key] for key in written if key != "build"} == {k: v for k, v in written.items() if k != "build"}


@pytest.mark.system  # podman-compose checks no schema
def test_that_reader_refuses_a_reservation_that_is_wrong(tmp_path: Path) -> None:
    folder = write(emit_compose(subject()), tmp_path)
    file = folder / "compose.yaml"
    file.write_text(file.read_text().replace("capabilities: [gpu]", "capability: [gpu]"))
    argv = [READERS["docker-compose"], "config"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "'capability'" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize("machine", [NEW_H100, "RTX 4090, driver 580", "B200, driver 580"])
def test_our_own_lint_finds_nothing_in_it(machine: str, tmp_path: Path) -> None:
    folder = write(emit_compose(subject(machine)), tmp_path)
    file = folder / "compose.yaml"
    question = Question(parse_machine(machine, TABLES), TABLES)
    report = lint(Given(str(file), file.read_text()), question, read=lambda path: Path(path).read_text())
    assert report.findings == ()


def test_where_compat_makes_it_run_lint_says_no_more_than_that(tmp_path: Path) -> None:
    folder = write(emit_compose(subject(OLD_H100)), tmp_path)
    file = folder / "compose.yaml"
    question = Question(parse_machine("H100, driver 550", TABLES), TABLES)
    report = lint(Given(str(file), file.read_text()), question, read=lambda path: Path(path).read_text())
    assert {(each.code, each.severity) for each in report.findings} <= {("torch-needs-newer-driver", Severity.NOTE)}


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_says_about_the_machine_stays_in_a_comment(text: str) -> None:
    plain, hostile = (emit_compose(subject(made_for=name)).files[0].text for name in (OLD_H100, text))
    assert yaml.safe_load(plain) == yaml.safe_load(hostile)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["image", "name", "base", "user"])
def test_names_that_could_be_more_than_names_are_refused(field: str, text: str) -> None:
    with pytest.raises(BadInput, match=f"--{field}"):
        emit_compose(subject(choices=Choices(**{field: text})))


def test_recorded_machines_are_shipped_too() -> None:
    assert "torch==2.9.0" in text_of(emit_compose(recorded("h100-driver-570", "torch==2.9.0")), "Dockerfile")
