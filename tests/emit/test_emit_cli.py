"""`firstlight emit` as it is called: files, the summary, JSON by its schema, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

import firstlight
from firstlight.cli.emit import command
from firstlight.emit.kinds import NAMES
from firstlight.errors import BadInput

SCHEMA = json.loads((Path(firstlight.__file__).parent / "schemas/emit-1.json").read_text())
FOR = ("--for", "H100, driver >= 550")
MACHINES = Path(__file__).parents[1] / "machines"


def _run(*argv: str) -> Result:
    return CliRunner().invoke(command, argv)


def _document(*argv: str) -> dict[str, Any]:
    done = _run(*argv, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    return document


def test_the_file_goes_to_stdout_and_the_summary_to_stderr() -> None:
    done = _run("bash", *FOR, "--want", "torch==2.9.0+cu130")
    assert done.exit_code == 0
    assert done.stdout.startswith("#!/bin/sh\n")
    assert "580.65.06 or newer; 535, 550, 565, 570, 575 with a compat library" in done.stderr


def test_out_writes_the_file_with_its_mode_and_again_the_same(tmp_path: Path) -> None:
    for _ in range(2):
        assert _run("bash", *FOR, "--out", str(tmp_path / "pod")).exit_code == 0
    file = tmp_path / "pod/pod_setup.sh"
    assert file.stat().st_mode & 0o777 == 0o755
    assert sorted(each.name for each in file.parent.iterdir()) == ["pod_setup.sh"]


def test_a_file_that_differs_is_kept_unless_force_is_given(tmp_path: Path) -> None:
    file = tmp_path / "pod_setup.sh"
    file.write_text("mine\n")
    refused = _run("bash", *FOR, "--out", str(tmp_path))
    assert isinstance(refused.exception, BadInput)
    assert file.read_text() == "mine\n"
    assert _run("bash", *FOR, "--out", str(tmp_path), "--force").exit_code == 0
    assert file.read_text().startswith("#!/bin/sh\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("bash", "--for", ""), "is no GPU that the tables know"),
        (("bash", *FOR, "--base", "x"), "--base says nothing to bash; accepted: with dockerfile or devcontainer"),
        (("slurm", *FOR, "--image", "x"), "--image says nothing to slurm; accepted: with runpod or devcontainer"),
        (("ansible", *FOR, "--user", "x"), "--user says nothing to ansible"),
        (("ansible", *FOR, "--name", "x"), "--name says nothing to ansible; accepted: with dockerfile or devcontainer"),
        (("bash", *FOR, "--name", "x"), "--name says nothing to bash"),
        (("devcontainer", *FOR, "--image", "x", "--base", "y"), "--image 'x' and --base 'y': accepted is one of them."),
        (("bash", *FOR, "--force"), "it goes with --out"),
        (("bash", *FOR, "--volume", "/"), "accepted is a folder of its own"),
        (("bash", *FOR, "--out", __file__), "is a file; accepted: a folder"),
        (("bash", *FOR, "--out", f"{__file__}/below"), "is a file; accepted: a folder"),
    ],
)
def test_what_would_be_dropped_in_silence_is_refused(argv: tuple[str, ...], message: str) -> None:
    done = _run(*argv)
    assert isinstance(done.exception, BadInput), done.exception
    assert message in str(done.exception)


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a\nb", "$(touch outside)", "a b", "x/../../outside"])
def test_no_name_leads_out_of_the_folder(kind: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside/deep"
    image = ("--image", "x/y:1") if kind in ("runpod", "devcontainer") else ()
    done = _run(kind, *FOR, "--name", name, *image, "--out", str(folder))
    assert done.exit_code == 0 or isinstance(done.exception, BadInput), done.exception
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(folder) for path in found)


def test_json_holds_the_gates_and_the_files() -> None:
    document = _document("bash", *FOR, "--want", "torch==2.9.0+cu130")
    assert next(iter(document)) == "schema"
    assert document["gates"]["min_driver"] == "535"
    assert document["compat"][0]["package"] == "cuda-compat-13-0"
    assert document["files"][0]["name"] == "pod_setup.sh"


def test_slurm_names_the_archive_that_it_brings_not_the_package_of_the_plan() -> None:
    argv = ("slurm", *FOR, "--want", "torch==2.9.0+cu130")
    [title, _, driver, cuda, *_] = _run(*argv).stderr.splitlines()
    assert title == (
        "slurm for H100, driver >= 550: the CUDA 13.1 compat library of NVIDIA's archive, wired at each start; "
        "and torch==2.9.0+cu130"
    )
    assert driver == "  driver   580.65.06 or newer; 535, 550, 570, 575 with a compat library, decided at each start"
    assert cuda == "  CUDA     12.2, 12.4, 12.8 or newer, as nvidia-smi counts it"  # 12.7 is branch 565
    [compat] = _document(*argv)["compat"]
    assert compat["package"] == "cuda_compat-linux-x86_64-590.48.01_cuda13.1-archive.tar.xz"
    assert compat["branches"] == [535, 550, 570, 575]


def test_a_torch_without_cuda_has_no_floors() -> None:
    document = _document("bash", "--for", "H100, driver 580", "--want", "torch==2.13.0+cpu")
    assert document["gates"]["min_driver"] is None
    assert document["gates"]["require_cuda"] == ""


def test_a_recorded_machine_is_named_by_its_folder() -> None:
    document = _document("bash", "--facts", str(MACHINES / "h100-driver-570"))
    assert document["made_for"] == "the machine of h100-driver-570"


def test_the_processor_can_be_another() -> None:
    document = _document("bash", "--for", "H100, driver 580", "--platform", "aarch64")
    assert document["target"]["machine"] == "aarch64"


@pytest.mark.parametrize("gpu", ["GH200", "GB200", "GB10", "Jetson Thor"])
def test_gpus_that_come_with_an_arm_processor_alone_get_files_for_it(gpu: str) -> None:
    assert _document("bash", "--for", f"{gpu}, driver 580")["target"]["machine"] == "aarch64"


def test_an_orin_gets_wheels_for_its_processor() -> None:
    argv = ("--for", "Jetson AGX Orin, driver 540", "--option", "driver-upgrade:580")
    assert _document("dockerfile", *argv)["target"]["machine"] == "aarch64"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((*FOR, "--facts", "x"), "Give one of them"),
        (("--for", "toaster"), "toaster"),
        ((*FOR, "--want", "torch==$(id)"), "version"),
        ((*FOR, "--want", "nothing"), "accepted"),
        ((*FOR, "--volume", "/a\nb"), "path"),
        ((*FOR, "--volume", "/my disk"), "torch.compile"),
        ((*FOR, "--python", "snake"), "3.12"),
        ((*FOR, "--platform", "sparc"), "x86_64"),
        (("--for", "GH200, driver 580", "--platform", "x86_64"), "every machine with GH200 is aarch64"),
        ((*FOR, "--option", "source-build:torch"), "option"),
        (("--facts", "/no/such"), "no/such"),
    ],
)
def test_what_cannot_be_used_is_refused(argv: tuple[str, ...], words: str) -> None:
    done = _run("bash", *argv)
    assert isinstance(done.exception, BadInput), done.output
    assert words in str(done.exception)
    assert "\n" not in str(done.exception)


def test_another_kind_is_a_usage_error() -> None:
    done = _run("terraform", *FOR)
    assert done.exit_code == 2
    assert "dockerfile" in done.output
