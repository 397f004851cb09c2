"""`firstlight emit` as it is called: files, the summary, JSON by its schema, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import firstlight
from firstlight.cli.emit import command
from firstlight.cli.main import run
from firstlight.emit.kinds import NAMES
from firstlight.errors import BadInput
from firstlight.own_wheel import own_wheel
from tests.schemas import fits

SCHEMA = json.loads((Path(firstlight.__file__).parent / "schemas/emit-1.json").read_text())
FOR = ("--for", "H100, driver >= 550")
MACHINES = Path(__file__).parents[1] / "machines"


def _run(*argv: str) -> Result:
    return CliRunner().invoke(command, argv)


def _document(*argv: str) -> dict[str, Any]:
    done = _run(*argv, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    fits(document, SCHEMA)
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
    [wheel] = (file.parent / "wheels").iterdir()
    assert (wheel.name, wheel.read_bytes()) == (own_wheel().name, own_wheel().data)
    assert sorted(each.name for each in file.parent.iterdir()) == ["pod_setup.sh", "wheels"]


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
        (("bash", "--for", ""), "is neither a GPU that the tables know"),
        (("bash", *FOR, "--base", "x"), "--base does not apply to bash; accepted: with dockerfile or devcontainer"),
        (
            ("compose", *FOR, "--runtime-class", "nvidia"),
            "--runtime-class does not apply to compose; accepted: with k8s.",
        ),
        (("k8s", *FOR, "--image", "x", "--firstlight-from-index"), "--firstlight-from-index does not apply to k8s"),
        (("compose", *FOR, "--image", "x", "--firstlight-from-index"), "the image that was built has firstlight"),
        (("compose", *FOR, "--image", "x", "--base", "y"), "--image 'x' and --base 'y': accepted is one of them."),
        (("k8s", *FOR), "Build it from the files of `firstlight emit dockerfile`, push it, then give its name"),
        (("slurm", *FOR, "--image", "x"), "--image does not apply to slurm; accepted: with runpod or devcontainer"),
        (("ansible", *FOR, "--user", "x"), "--user does not apply to ansible"),
        (
            ("ansible", *FOR, "--name", "x"),
            "--name does not apply to ansible; accepted: with dockerfile or devcontainer",
        ),
        (("bash", *FOR, "--name", "x"), "--name does not apply to bash"),
        (("devcontainer", *FOR, "--image", "x", "--base", "y"), "--image 'x' and --base 'y': accepted is one of them."),
        (("bash", *FOR, "--bench"), "--bench does not apply to bash; accepted: with slurm or k8s."),
        (("slurm", *FOR, "--nodes", "4"), "--nodes 4: accepted with --bench, the job that measures several nodes."),
        (("bash", *FOR, "--force"), "it goes with --out"),
        *(
            (("bash", *FOR, "--volume", each), "--volume /")
            for each in ("/", "/proc", "/etc", "/usr/share", "/dev/shm")
        ),
        (("bash", *FOR, "--out", __file__), "is a file; accepted: a folder"),
        (("bash", *FOR, "--out", f"{__file__}/below"), "is a file; accepted: a folder"),
    ],
)
def test_what_would_be_dropped_in_silence_is_refused(argv: tuple[str, ...], message: str) -> None:
    done = _run(*argv)
    assert isinstance(done.exception, BadInput), done.exception
    assert message in str(done.exception)


# Each with a value that is good where the option is read. What is in none of the kinds' files is about the call itself.
_FLAGS = ("--firstlight-from-index", "--mcp", "--remove", "--bench")
_GIVEN = {
    "--want": "torch==2.8.0", "--for": "B200, driver >= 580", "--facts": str(MACHINES / "b200-driver-610"),
    "--option": "2", "--python": "3.11", "--platform": "aarch64", "--volume": "/data", "--base": "python:3.11-slim",
    "--image": "team/torch:1", "--user": "somebody", "--name": "something", "--goal": "train",
    "--runtime-class": "other", "--firstlight-from-index": "", "--tool": "claude", "--mcp": "", "--remove": "",
    "--bench": "", "--nodes": "2", "--gpus": "8",
    "--build": "flash-attn==2.8.3", "--archs": "9.0", "--flag": "A=1", "--with": "nccl", "--without": "nccl",
}  # fmt: skip
_NEEDED = {"k8s": ("--image", "team/other:1"), "kit": ("--base", f"cuda@sha256:{'0' * 64}")}  # cannot do without
_OF_THE_CALL = {"--out", "--force", "--json"}


def test_every_option_is_tried_with_every_kind() -> None:
    named = {option for each in command.params if isinstance(each, click.Option) for option in each.opts}
    assert named == {*_GIVEN, *_OF_THE_CALL}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("option", _GIVEN)
def test_an_option_changes_what_is_written_or_is_refused_with_what_is_accepted(kind: str, option: str) -> None:
    machine = () if option in ("--for", "--facts") else FOR
    image = _NEEDED.get(kind, ())
    plain = _run(kind, *FOR, *image, "--json")
    value = () if option in _FLAGS else (_GIVEN[option],)
    done = _run(kind, *machine, *(() if option in image else image), option, *value, "--json")
    if done.exit_code != 0:
        assert isinstance(done.exception, BadInput), done.exception
        assert "accepted" in str(done.exception)
        assert option in str(done.exception)
        return
    assert _written(plain, option) != _written(done, option)


def _written(done: Result, option: str) -> list[str]:
    """The lines that do something, and for these two all: a goal stands in the header, a name in commands to paste."""
    plan = ("firstlight.plan=", "FIRSTLIGHT_EMITTED", '"plan": ')
    files = [[file["name"], *file["text"].splitlines()] for file in json.loads(done.stdout)["files"]]
    lines = [line for file in files for line in file if not any(word in line for word in plan)]
    return lines if option in ("--goal", "--name") else [line for line in lines if not line.startswith("# ")]


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a\nb", "$(touch outside)", "a b", "x/../../outside"])
def test_no_name_leads_out_of_the_folder(kind: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside/deep"
    image = ("--image", "x/y:1") if kind in ("runpod", "devcontainer", "k8s") else _NEEDED.get(kind, ())
    done = _run(kind, *FOR, "--name", name, *image, "--out", str(folder))
    assert done.exit_code == 0 or isinstance(done.exception, BadInput), done.exception
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(folder) for path in found)


def test_json_names_the_wheel_and_its_digest_unless_an_index_is_to_have_it() -> None:
    wheel = own_wheel()
    assert _document("slurm", *FOR)["wheel"] == {
        "name": f"wheels/{wheel.name}",
        "sha256": wheel.sha256,
        "bytes": len(wheel.data),
    }
    assert _document("slurm", *FOR, "--firstlight-from-index")["wheel"] is None


def test_a_wheel_of_an_earlier_version_in_the_folder_is_kept_unless_force_is_given(tmp_path: Path) -> None:
    file = tmp_path / "wheels" / own_wheel().name
    file.parent.mkdir()
    file.write_bytes(b"\xffearlier")
    refused = _run("bash", *FOR, "--out", str(tmp_path))
    assert isinstance(refused.exception, BadInput)
    assert not (tmp_path / "pod_setup.sh").exists()
    assert _run("bash", *FOR, "--out", str(tmp_path), "--force").exit_code == 0
    assert file.read_bytes() == own_wheel().data


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


@pytest.mark.parametrize(
    ("text", "machine"), [("aarch64", "aarch64"), ("arm64", "aarch64"), ("x86_64", "x86_64"), ("amd64", "x86_64")]
)
def test_the_processor_can_be_another_and_has_its_name_of_images_too(text: str, machine: str) -> None:
    document = _document("bash", "--for", "H100, driver 580", "--platform", text)
    assert document["target"]["machine"] == machine


@pytest.mark.parametrize("gpu", ["GH200", "GB200", "GB10", "Jetson Thor"])
def test_gpus_that_come_with_an_arm_processor_alone_get_files_for_it(gpu: str) -> None:
    assert _document("bash", "--for", f"{gpu}, driver 580")["target"]["machine"] == "aarch64"


def test_an_orin_gets_wheels_for_its_processor() -> None:
    argv = ("--for", "Jetson AGX Orin, driver 595")
    assert _document("dockerfile", *argv)["target"]["machine"] == "aarch64"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((*FOR, "--facts", "x"), "Give one of them"),
        (("--for", "toaster"), "toaster"),
        ((*FOR, "--want", "torch==$(id)"), "version"),
        ((*FOR, "--want", "nothing"), "accepted"),
        ((*FOR, "--volume", "/a\nb"), "--volume '/a\\nb': a path cannot hold \\n"),
        ((*FOR, "--volume", "/my disk"), "torch.compile"),
        ((*FOR, "--python", "snake"), "3.12"),
        *(
            ((*FOR, "--platform", each), f"--platform '{each}': accepted: x86_64")
            for each in ("sparc", "riscv64", "x86")
        ),
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


def test_help_says_what_each_kind_is() -> None:
    lines = [line.split(maxsplit=1) for line in _run("--help").output.splitlines()]
    said = {words[0]: words[1] for words in lines if len(words) == 2 and words[0] in NAMES}
    assert tuple(said) == NAMES


def test_another_kind_is_a_usage_error() -> None:
    done = _run("terraform", *FOR)
    assert done.exit_code == 2
    assert "dockerfile" in done.output


def test_where_files_take_another_option_than_doctors_first_that_is_said_with_the_reason() -> None:
    done = _run("bash", "--facts", str(MACHINES / "h100-driver-570"))
    assert (
        "  not      wire cuda-compat 13.1 from NVIDIA's archive at each start, which doctor names first" in done.stderr
    )
    named = _run("bash", "--facts", str(MACHINES / "h100-driver-570"), "--option", "1")
    same = _run("bash", "--facts", str(MACHINES / "v100-torch-cu130"))
    assert (named.exit_code, same.exit_code) == (0, 0)
    assert "doctor names first" not in f"{named.stderr}{same.stderr}"


DIGEST = f"@sha256:{'a' * 64}"
VALUES = {
    "--volume": ("/data",), "--python": ("3.11",), "--base": (f"python:3.11-slim{DIGEST}",), "--user": ("bob",),
    "--name": ("mine",), "--runtime-class": ("nvidia",), "--firstlight-from-index": (),
}  # fmt: skip
BUILT = ("--image", f"x/y{DIGEST}")
WITHOUT_IMAGE = {"k8s"}  # where one has to be named
WITH_IMAGE = {"devcontainer", "runpod", "compose", "k8s"}
CALLS = [(kind, ()) for kind in NAMES if kind not in WITHOUT_IMAGE] + [(kind, BUILT) for kind in sorted(WITH_IMAGE)]


@pytest.mark.parametrize(("kind", "image"), CALLS, ids=[" ".join((kind, *image[:1])) for kind, image in CALLS])
def test_every_option_changes_the_files_or_is_refused(
    kind: str, image: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    base = ("--base", "none") if kind == "kit" else ()

    def files(*words: str) -> object:
        code = run(["emit", kind, "--for", "H100, driver >= 580", "--json", *base, *image, *words])
        told = capsys.readouterr()
        assert code in (0, 2), told.err
        return [(file["name"], file["text"]) for file in json.loads(told.out)["files"]] if code == 0 else None

    plain = files()
    assert plain is not None
    for option, value in VALUES.items():
        if option not in base:
            assert files(option, *value) != plain, option


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--want", "torch==2.9.0"], "--want does not apply to agents"),
        (["--platform", "aarch64"], "--platform does not apply to agents"),
    ],
)
def test_an_option_is_called_as_it_is_typed(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["emit", "agents", "--out", str(tmp_path), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind != "k8s"])
def test_commands_stand_alone_on_their_line(kind: str) -> None:
    said = _run(kind, *FOR, *(("--base", "none") if kind == "kit" else ())).stderr
    programs = ("sh", "docker", "make", "sbatch", "kubectl", "ansible-playbook", "runpodctl", "devcontainer")
    assert [line for line in said.splitlines() if line.startswith("    ") and line.split()[0] in programs], said
    assert not [line for line in said.splitlines() if any(f": {name} " in line for name in programs)], said
