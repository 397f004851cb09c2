"""What lint answers with: the ways that doctor has, and lines that the file takes as they are."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from click.testing import CliRunner

from firstlight.cli.lint import command
from firstlight.diagnosis.rules import RULES
from firstlight.lint.dockerfile import parse_dockerfile
from firstlight.lint.edits import apply
from firstlight.lint.judge import Given, lint
from firstlight.lint.model import Place, Syntax
from firstlight.lint.rule import LintFinding
from firstlight.lint.written import lines_of, says, variables_in
from firstlight.report.lint_text import lint_text
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import AskPerson, ChangeImage, InstallWheels, Package, SetVariables, UseImage, Variable
from firstlight.ways.way import chain, type_name
from tests.lint.linting import FILES, H100_550, H100_580, found, machine, written
from tests.lint.test_lint_rules import CASES, Case
from tests.plan.planning import ranked_of

# A rule of lint -> the rule of doctor that finds the same on a machine.
SAME_CAUSE = {
    "image-refused-by-driver": "container-gate-differs",
    "torch-needs-newer-driver": "driver-too-old-for-wheel",
    "torch-has-no-code-for-gpu": "arch-not-in-wheel",
    "torch-is-cpu-only": "torch-cpu-only",
    "torch-wheel-does-not-exist": "no-wheel-for-python",
    "torch-overwritten-later": "companion-wants-other-torch",
    "compat-baked-in": "compat-baked-in",
    "stub-libcuda-on-path": "stub-libcuda-wins",
    "gpus-switched-off": "devices-masked",
    "toolkit-differs-from-torch": "nvcc-major-differs",
    "extension-without-nvcc": "cuda-home-unset",
    "arch-list-without-gpu": "arch-unknown-to-toolkit",
    "arch-list-beyond-toolkit": "arch-unknown-to-toolkit",
    "small-shared-memory": "shm-too-small",
    "service-without-gpu": "no-gpu-in-container",
}
COMPOSE = "services:\n  a:\n    image: nvidia/cuda:12.8.1-base-ubuntu22.04\n    command: torchrun train.py\n"


def of_code(code: str) -> list[LintFinding]:
    hits = [each for case in CASES if case.code == code for each in found(case.fires, case.on)]
    hits += found(COMPOSE, H100_580, file="compose.yml")
    return [each for each in hits if each.code == code]


@pytest.mark.parametrize("code", sorted(SAME_CAUSE))
def test_a_fault_in_a_file_is_answered_as_the_same_fault_of_a_machine(code: str) -> None:
    named = {type(way) for hit in of_code(code) for answer in hit.answers for way in answer.ways}
    (rule,) = (rule for rule in RULES if rule.code == SAME_CAUSE[code])
    assert named & set(rule.ways), (sorted(map(type_name, named)), sorted(map(type_name, rule.ways)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_every_answer_says_what_is_done_and_holds_the_ways_for_it(case: Case) -> None:
    for hit in found(case.fires, case.on):
        assert hit.answers, hit.code
        for answer in hit.answers:
            assert says(answer, hit.syntax)
            assert answer.ways
            orders = [words_asked(way) for way in answer.ways if isinstance(way, AskPerson)]
            assert all(0 < len(order) <= 70 for order in orders), orders


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_a_line_of_a_dockerfile_is_one_instruction_to_the_parser(case: Case) -> None:
    for hit in found(case.fires, case.on):
        for line in written(hit):
            if line.split()[0] in ("ENV", "RUN", "FROM"):
                instructions = parse_dockerfile(f"FROM a\n{line}\n", "Dockerfile")
                assert len(list(instructions)) == 2, line
        changed = [way.line for answer in hit.answers for way in answer.ways if isinstance(way, ChangeImage)]
        assert set(changed) <= set(written(hit))


@pytest.mark.parametrize(
    ("code", "text", "on"),
    [
        ("gpus-not-asked-for", "FROM python:3.12\nRUN pip install torch==2.9.0\n", H100_580),
        (
            "compute-left-out",
            "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nENV NVIDIA_DRIVER_CAPABILITIES=graphics\n",
            H100_580,
        ),
        ("library-path-lost", "FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nENV LD_LIBRARY_PATH=/opt/lib\n", H100_580),
        ("image-refused-by-driver", "FROM nvidia/cuda:13.2.0-base-ubuntu22.04\n", H100_550),
        ("image-does-not-exist", "FROM nvidia/cuda:latest\n", H100_550),
        ("torch-needs-newer-driver", "FROM python:3.12\nRUN pip install torch==2.15.0\n", H100_550),
        ("arch-list-without-gpu", "FROM python:3.12\nENV TORCH_CUDA_ARCH_LIST=8.0\n", H100_580),
    ],
)
def test_the_printed_line_in_place_of_the_faulty_one_ends_the_finding(code: str, text: str, on: str) -> None:
    (hit,) = (each for each in found(text, on) if each.code == code)
    line = written(hit)[-1]
    lines = text.splitlines()
    keyword, at = line.split()[0], hit.line - 1
    if not lines[at].startswith("FROM") or keyword == "FROM":
        lines.pop(at)
    lines.insert(at if keyword == "FROM" else max(at, 1), line if keyword in ("ENV", "RUN", "FROM") else f"ENV {line}")
    mended = "\n".join((*lines, ""))
    assert code not in {each.code for each in found(mended, on)}, mended


def test_a_path_is_kept_without_what_another_finding_tells_to_take_out() -> None:
    text = "FROM nvidia/cuda:13.0.2-base-ubuntu22.04\nENV LD_LIBRARY_PATH=/opt/lib:/usr/local/cuda/compat\n"
    (hit,) = (each for each in found(text) if each.code == "library-path-lost")
    assert written(hit) == ("ENV LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH",)


@pytest.mark.parametrize(
    ("on", "orders"),
    [
        (H100_580, ["use a devel image of CUDA 13", "install torch 2.9.0+cu128"]),
        (H100_550, ["install torch 2.9.0+cu128"]),
    ],
)
def test_no_image_of_a_cuda_that_the_driver_does_not_run_is_told(on: str, orders: list[str]) -> None:
    text = "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y python3-pip\n"
    text += "RUN pip install torch==2.9.0+cu130 --index-url https://download.pytorch.org/whl/cu130\n"
    (hit,) = (each for each in found(text, on) if each.code == "toolkit-differs-from-torch")
    assert [says(answer, hit.syntax) for answer in hit.answers] == orders


@pytest.mark.parametrize("line", ["gpus: all", "reserved"])
def test_either_line_of_a_service_gives_it_the_gpu(line: str) -> None:
    (hit,) = (each for each in found(COMPOSE, file="compose.yml") if each.code == "service-without-gpu")
    written_line = dict(zip(("gpus: all", "reserved"), written(hit), strict=True))[line]
    text = f"{COMPOSE}    {written_line}\n"
    assert "service-without-gpu" not in {each.code for each in found(text, file="compose.yml")}


def test_a_compose_file_gets_keys_and_no_lines_of_a_dockerfile() -> None:
    text = (
        COMPOSE
        + "    environment:\n      NVIDIA_DRIVER_CAPABILITIES: graphics\n      NVIDIA_REQUIRE_CUDA: cuda>=14.0\n"
    )
    text += "      LD_LIBRARY_PATH: /opt/lib\n"
    lines = {hit.code: written(hit) for hit in found(text, H100_580, file="compose.yml")}
    reserved = "deploy: {resources: {reservations: {devices: [{driver: nvidia, count: all, capabilities: [gpu]}]}}}"
    assert lines["service-without-gpu"] == ("gpus: all", reserved)
    assert lines["small-shared-memory"] == ("shm_size: 16gb", "ipc: host")
    assert lines["compute-left-out"] == ("NVIDIA_DRIVER_CAPABILITIES: compute,utility,graphics",)
    assert lines["library-path-lost"] == ("LD_LIBRARY_PATH: /opt/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",)
    for line in (line for each in lines.values() for line in each):
        assert isinstance(yaml.safe_load(line), dict), line


def test_a_variable_is_quoted_where_the_file_needs_it() -> None:
    gate = Variable("NVIDIA_REQUIRE_CUDA", "cuda>=12.0 brand=tesla,driver>=550")
    assert variables_in(Place("Dockerfile", 1), gate) == ChangeImage(f'ENV {gate.name}="{gate.value}"')
    assert isinstance(variables_in(Place("compose.yaml", 1, Syntax.COMPOSE), gate), SetVariables)


def test_text_has_each_line_alone_and_whole() -> None:
    given = Given("Dockerfile", (FILES / "compat-first.Dockerfile").read_text())
    text = lint_text((lint(given, machine(H100_550), read=lambda _: None),), machine(H100_550))
    line = "RUN pip install torch==2.9.0+cu128 --index-url https://download.pytorch.org/whl/cu128"
    assert line in [row.strip() for row in text.splitlines()]
    assert "  or       install torch 2.9.0+cu128\n" in text


def test_json_holds_the_ways_with_their_arguments() -> None:
    result = CliRunner().invoke(command, [str(FILES / "compat-first.Dockerfile"), "--for", H100_550, "--json"])
    findings = {each["code"]: each for each in json.loads(result.stdout)["files"][0]["findings"]}
    out, at_start = findings["compat-baked-in"]["answers"]
    assert [way["type"] for way in out["ways"]] == ["unwire"]
    assert [way["type"] for way in at_start["ways"]] == ["unwire", "wire-compat"]
    assert 550 in at_start["ways"][1]["branches"]
    (wheel,) = findings["torch-needs-newer-driver"]["answers"][-1]["ways"]
    assert (wheel["type"], wheel["packages"][0]["version"]) == ("install-wheels", "2.9.0+cu128")


PINNED = "FROM python:3.12\nRUN pip install torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130\n"


def test_a_file_is_told_the_torch_that_doctor_names_first() -> None:
    (finding,) = (each for each in found(PINNED, "v100-torch-cu130") if each.code == "torch-has-no-code-for-gpu")
    (install, *_) = finding.answers[0].ways
    assert install == ranked_of("v100-torch-cu130").options[0].ways[0]
    assert isinstance(install, InstallWheels)
    assert install.packages[0].version == "2.9.0+cu126"


def test_no_compat_library_is_named_for_a_gpu_that_the_torch_has_no_code_for() -> None:
    image = "FROM nvidia/cuda:13.0.2-runtime-ubuntu22.04\nRUN apt-get update && apt-get install --yes python3-pip\n"
    text = f"{image}RUN pip install torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130\n"
    said = {
        gpu: [answer.title for each in found(text, f"{gpu}, driver 570") for answer in each.answers]
        for gpu in ("H100", "V100")
    }
    assert any("sees to compat" in title for title in said["H100"])
    assert not any("sees to compat" in title for title in said["V100"])


def test_an_image_has_a_python_or_it_has_none() -> None:
    image = "FROM nvidia/cuda:13.0.2-runtime-ubuntu24.04\n"
    python = "RUN apt-get update && apt-get install --yes python3 python3-venv python3-pip\n"
    without, managed = (found(f"{text}RUN pip install torch==2.9.0\n") for text in (image, image + python))
    assert {"no-python-in-image", "pip-refused-by-system"} & {each.code for each in without} == {"no-python-in-image"}
    assert {"no-python-in-image", "pip-refused-by-system"} & {each.code for each in managed} == {
        "pip-refused-by-system"
    }
    (finding,) = (each for each in without if each.code == "no-python-in-image")
    mended = "".join(f"{line}\n" for line in written(finding))
    both = {"no-python-in-image", "pip-refused-by-system"}
    assert not both & {each.code for each in found(f"{image}{mended}RUN pip install torch==2.9.0\n")}


@pytest.mark.parametrize(
    ("image", "on", "other"),
    [
        ("2.9.0-cuda13.0-cudnn9-runtime", H100_550, "2.9.0-cuda12.8-cudnn9-runtime"),
        ("2.9.0-cuda13.0-cudnn9-devel", "H100, driver 550", "2.9.0-cuda12.8-cudnn9-devel"),
        ("2.9.0-cuda13.0-cudnn9-runtime", "RTX 4090, driver 550", "2.9.0-cuda12.8-cudnn9-runtime"),
        ("2.9.0-cuda13.0-cudnn9-devel", "RTX 4090, driver 550", "2.6.0-cuda12.4-cudnn9-devel"),  # 12.8's gate
    ],
)
@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml", "pod.yaml"])
def test_an_image_gives_way_to_the_same_torch_with_another_cuda(file: str, image: str, on: str, other: str) -> None:
    text = _RUNNING[file].replace("IMAGE", f"pytorch/pytorch:{image}")
    (seen,) = (each for each in found(text, on, file=file) if each.code == "torch-needs-newer-driver")
    assert UseImage(f"pytorch/pytorch:{other}") in [way for answer in seen.answers for way in answer.ways]
    mended = found(text.replace(image, other), on, file=file)
    assert not {"torch-needs-newer-driver", "image-refused-by-driver"} & {each.code for each in mended}


_RUNNING = {
    "Dockerfile": "FROM IMAGE\n",
    "compose.yaml": "services:\n  a:\n    gpus: all\n    image: IMAGE\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n"
    "    image: IMAGE\n    resources: {limits: {nvidia.com/gpu: 1}}\n",
}


def test_a_service_may_build_its_image_with_the_compat_library() -> None:
    text = _RUNNING["compose.yaml"].replace("IMAGE", "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime")
    (seen,) = found(text, H100_550, file="compose.yaml")
    built = "\n".join(f"    {line}" for line in lines_of(seen.answers[-1], seen.syntax))
    (left,) = found(text[: text.index("    image:")] + built, H100_550, file="compose.yaml")
    assert (left.code, left.severity.value) == ("torch-needs-newer-driver", "degrades")
    assert "Only the compat library inside makes it run" in left.saw


def test_of_a_board_no_newer_driver_is_asked() -> None:
    text = "FROM python:3.12\nRUN pip install torch==2.6.0\n"
    (seen,) = (each for each in found(text, "Orin, driver 540") if each.code == "torch-is-cpu-only")
    told = [says(answer, seen.syntax) for answer in seen.answers]
    assert told[0].startswith("install NVIDIA's own torch for this JetPack")
    assert not any("driver" in each for each in told)


PROJECT = '[project]\nname = "a"\nversion = "1"\ndependencies = ["torch==2.5.1"]\n'
SOURCES = '[tool.uv.sources]\nTORCH = { index = "x" }\n[[tool.uv.index]]\nname = "x"\nurl = "URL"\nexplicit = true\n'


def test_a_project_that_names_torchs_index_is_told_what_to_replace() -> None:
    """The same table twice is no TOML."""
    old, new = (f"https://download.pytorch.org/whl/{each}" for each in ("cu124", "cu128"))
    text = PROJECT + SOURCES.replace("TORCH", "torch").replace("URL", old)
    (seen,) = found(text, "RTX 5090, driver 570", file="pyproject.toml")
    said = says(seen.answers[0], seen.syntax)
    assert re.fullmatch(rf"write torch==(\S+) among the dependencies, and {new} in place of {old}", said)
    assert not written(seen)
    release = said.split()[1].removeprefix("torch==")
    assert not found(text.replace("2.5.1", release).replace(old, new), "RTX 5090, driver 570", file="pyproject.toml")


def test_a_project_with_other_sources_is_told_that_the_table_is_there_once() -> None:
    text = PROJECT + SOURCES.replace("TORCH", "numpy").replace("URL", "https://example.org/simple")
    (seen,) = found(text, "RTX 5090, driver 570", file="pyproject.toml")
    (header,) = (line for line in written(seen) if line.startswith("[tool.uv.sources]"))
    assert "where it is there, write this below, in place of its lines" in header


OUT = "remove this install: the image has one"


@pytest.mark.parametrize(
    ("date", "asked", "on", "order"),
    [
        ("25.01", "-U torch", H100_550, OUT),
        ("25.01", "torch==2.5.1", "RTX 5090, driver 570", OUT),
        ("25.01", "torch==2.5.1 --index-url https://download.pytorch.org/whl/cpu", H100_550, OUT),
        ("25.01", "torch==2.5.1+cu130", H100_550, OUT),
        ("23.04", "-U torch", "RTX 5090, driver 570", "take a later date of the image, and remove this install"),
    ],
)
def test_over_nvidias_own_torch_all_that_is_said_has_one_cure(date: str, asked: str, on: str, order: str) -> None:
    base = f"FROM nvcr.io/nvidia/pytorch:{date}-py3\n"
    hits = [each for each in found(f"{base}RUN pip install {asked}\n", on) if each.line == 2]
    assert len(hits) == 2
    assert {says(answer, each.syntax) for each in hits for answer in each.answers} == {order}
    assert not [each for each in found(base.replace("23.04", "25.01"), on) if each.code.startswith("torch")]


CU128 = "https://download.pytorch.org/whl/cu128"
PLAIN = "FROM python:3.12\nENV NVIDIA_VISIBLE_DEVICES=all\n"
OLDER = "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\n"


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        (
            f"{OLDER}RUN pip install vllm\n",
            f"{OLDER}RUN pip install vllm==0.26.0\n".replace("2.5.1-cuda12.4", "2.11.0-cuda12.8"),
        ),
        (
            f"{PLAIN}RUN pip install torch==2.5.1\nRUN pip install vllm\n",
            f"{PLAIN}RUN pip install torch==2.11.0+cu128 --index-url {CU128}\nRUN pip install vllm==0.26.0\n",
        ),
        (
            f"{PLAIN}RUN pip install vllm\n",
            f"{PLAIN}RUN pip install torch==2.11.0+cu128 --index-url {CU128}\nRUN pip install vllm==0.26.0\n",
        ),
    ],
)
def test_what_brings_another_torch_is_told_its_own_release_once(text: str, mended: str) -> None:
    """A torch put before vllm does not stay, and in its place there is no vllm."""
    hits = [each for each in found(text, "RTX 5090, driver 570") if each.code.startswith("torch-")]
    (answer,) = {answer for each in hits for answer in each.answers}
    assert "vllm==0.26.0" in answer.title
    assert "2.11.0" in answer.title
    assert not [each for each in found(mended, "RTX 5090, driver 570") if each.severity.value == "blocks"]
    applied = apply(text, hits[0], answer)
    assert applied in (mended, None)


def test_a_torch_that_works_and_is_replaced_stays_whatever_is_wrong_with_the_later_one() -> None:
    text = "FROM pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime\nRUN pip install torch==2.5.1\n"
    (seen,) = (each for each in found(text, "RTX 5090, driver 570") if each.code == "torch-has-no-code-for-gpu")
    assert [answer.title for answer in seen.answers] == [
        "keep torch 2.9.0 with CUDA 12.8 of line 1: see torch-overwritten-later"
    ]


def test_of_what_brings_a_torch_none_is_to_be_left_out() -> None:
    text = "FROM nvcr.io/nvidia/pytorch:25.01-py3\nRUN pip install vllm\n"
    (seen,) = (each for each in found(text, H100_550) if each.code == "vendor-torch-replaced")
    assert [each.title for each in seen.answers] == ["take a base without NVIDIA's torch: vllm brings its own"]


def test_a_manifest_is_told_where_each_line_goes() -> None:
    text = _RUNNING["pod.yaml"].replace("IMAGE", "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime")
    text = text.replace("resources: {limits: {nvidia.com/gpu: 1}}", "command: [torchrun, train.py]")
    told = {each.code: [says(answer, each.syntax) for answer in each.answers] for each in found(text, file="pod.yaml")}
    marked = "write in the container, and beside `containers` what is marked as of the pod"
    assert told["service-without-gpu"] == ["write in the container"]
    assert told["small-shared-memory"] == [marked, "write in the pod, beside `containers`"]


@pytest.mark.parametrize("file", ["pyproject.toml", "pixi.toml"])
def test_only_what_pytorchs_index_has_is_taken_from_there(file: str) -> None:
    way = InstallWheels((Package("torch", "2.11.0+cu128"), Package("vllm", "0.26.0")), CU128)
    syntax = {"pyproject.toml": Syntax.PYPROJECT, "pixi.toml": Syntax.PIXI}[file]
    of_index = [line.split()[0] for line in lines_of(chain(way), syntax) if "index =" in line]
    assert of_index == ["torch"]


def test_a_conda_torch_of_unknown_cuda_is_kept_by_all_that_is_said() -> None:
    text = "name: x\nchannels: [conda-forge]\ndependencies:\n  - pytorch=2.5.1\n  - pip:\n    - vllm\n"
    hits = found(text, "RTX 5090, driver 570", file="environment.yml")
    assert [answer.title for each in hits for answer in each.answers] == [
        "keep torch 2.5.1 of line 4: see torch-overwritten-later",
        "name the release that goes with torch 2.5.1: vllm==0.7.3",
    ]


def test_newer_is_never_said_of_what_is_the_newest() -> None:
    base, on = "FROM python:3.12\nRUN pip install ", "RTX 5090, driver 580"
    for asked in ("tensorflow[and-cuda]", "tensorflow[and-cuda]==2.15.1"):
        (finding,) = (each for each in found(base + asked, on) if each.code == "framework-has-no-code-for-gpu")
        (answer,) = finding.answers
        assert "newer" not in answer.title
        assert [words_asked(way) for way in answer.ways if isinstance(way, AskPerson)] == [
            "take NVIDIA's image of it, nvcr.io/nvidia/tensorflow, 25.01 or later"
        ]


@pytest.mark.parametrize(
    ("maker", "last", "line"),
    [
        ("FROM python:3.12 AS b", "FROM ubuntu:22.04", "FROM python:3.12"),
        (
            "FROM ubuntu:22.04 AS b\nRUN apt-get install --yes python3 python3-venv",
            "FROM nvidia/cuda:12.4.1-base-ubuntu22.04",
            "RUN apt-get update && apt-get install --yes python3",
        ),
    ],
)
def test_an_environment_is_given_the_python_that_it_was_made_with(maker: str, last: str, line: str) -> None:
    stages = (f"{maker}\nRUN python3 -m venv /v\n", "\nCOPY --from=b /v /v\n")
    (finding,) = (each for each in found(last.join(stages)) if each.code == "no-python-in-image")
    assert written(finding) == (line,)
    mended = line if line.startswith("FROM") else f"{last}\n{line}"
    assert "no-python-in-image" not in {each.code for each in found(mended.join(stages))}


def test_another_release_is_not_asked_of_apt_for_an_environment() -> None:
    text = (
        "FROM ubuntu:24.04 AS b\nRUN apt-get install --yes python3-venv\nRUN python3 -m venv /v\n"
        "FROM ubuntu:22.04\nCOPY --from=b /v /v\n"
    )
    (finding,) = (each for each in found(text) if each.code == "no-python-in-image")
    assert written(finding) == ()
    assert "put the last stage on ubuntu:24.04" in says(finding.answers[0], finding.syntax)


@pytest.mark.parametrize(
    ("packages", "brings"),
    [
        ("python3-pip", ("RUN apt-get update && apt-get install --yes python3-venv",)),
        ("python3-pip python3-venv", ()),
        ("python3-pip python3.12-venv", ()),
        ("python3-full", ()),
    ],
)
def test_an_environment_is_made_where_apt_has_brought_the_module_for_it(packages: str, brings: tuple[str, ...]) -> None:
    text = f"FROM ubuntu:24.04\nRUN apt-get update && apt-get install --yes {packages}\nRUN pip3 install torch==2.9.0\n"
    (hit,) = (each for each in found(text) if each.code == "pip-refused-by-system")
    assert written(hit) == (*brings, "RUN python3 -m venv /opt/venv", "ENV PATH=/opt/venv/bin:$PATH")


@pytest.mark.parametrize(
    ("package", "library"),
    [
        ("cupy-cuda11x", "libnvrtc.so.11.2"),
        ("cupy-cuda12x", "libnvrtc.so.12"),
        ("cupy-cuda13x", "libnvrtc.so.13"),
        ("onnxruntime-gpu==1.18.0", "libcublasLt.so.11"),
        ("onnxruntime-gpu==1.22.0", "libcublasLt.so.12"),
    ],
)
def test_the_library_that_is_missing_is_of_the_cuda_that_is_asked_for(package: str, library: str) -> None:
    hits = found(f"FROM python:3.12\nRUN pip install {package}\n")
    (hit,) = (each for each in hits if each.code == "framework-libraries-differ")
    assert hit.error.startswith(f"{library}: cannot open")


def test_jetsons_image_is_pulled_on_an_arm_server_and_its_torch_sees_no_gpu() -> None:
    (hit,) = found("FROM nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3\n", "gh200-torch-pypi")
    assert (hit.code, hit.error) == ("image-other-architecture", "torch.cuda.is_available() is False")
    assert "for Jetson alone; the machine is a server" in hit.saw
    (hit,) = found("FROM nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3\n", H100_580)
    assert hit.error.startswith("no matching manifest for linux/amd64")


def test_of_a_heredoc_the_line_is_shown_that_asks_for_a_gpu() -> None:
    text = "FROM python:3.12\nRUN python3 <<PY\nimport torch\nassert torch.cuda.is_available()\nPY\n"
    (hit,) = (each for each in found(text) if each.code == "gpu-during-build")
    assert hit.saw == "RUN python3, which reads `assert torch.cuda.is_available()`"


@pytest.mark.parametrize(
    ("packages", "what"),
    [
        ("torch==2.5.1 torchvision", "remove this install: the image has one"),
        ("torch==2.5.1 einops", "leave torch out of this install: the image has one"),
    ],
)
def test_where_an_install_has_nothing_but_torch_it_is_removed(packages: str, what: str) -> None:
    text = f"FROM nvcr.io/nvidia/pytorch:25.04-py3\nRUN pip install {packages}\n"
    (hit,) = (each for each in found(text) if each.code == "vendor-torch-replaced")
    (way,) = hit.answers[0].ways
    assert isinstance(way, AskPerson)
    assert words_asked(way) == what


def test_in_an_environment_the_lines_of_condas_torch_go() -> None:
    text = "name: x\nchannels: [pytorch, nvidia]\ndependencies:\n  - pytorch=2.5.1\n  - pytorch-cuda=12.4\n"
    (hit,) = found(text, "RTX 5090, driver 580", file="environment.yml")
    assert says(hit.answers[0], hit.syntax) == "write under `pip`, in place of every line of torch and its CUDA"


def test_a_jetson_in_words_gets_what_a_jetson_gets() -> None:
    (hit,) = found("FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\n", "Jetson Orin, driver 540")
    assert hit.code == "image-other-architecture"
    assert "the machine is Jetson" in hit.saw
    assert [("Jetson" in each.title, written(hit)) for each in hit.answers] == [(True, ())]


@pytest.mark.parametrize(("torch", "python"), [("2.9.0", "3.13"), ("2.7.0", "3.13"), ("2.13.0", "3.14")])
def test_the_python_that_is_named_is_one_in_which_torch_compile_works(torch: str, python: str) -> None:
    base = "FROM ubuntu:20.04\nENV NVIDIA_VISIBLE_DEVICES=all\n"
    (hit,) = found(f"{base}RUN apt-get install -y python3-pip && pip3 install torch=={torch}\n", "H100, driver 580")
    assert hit.code == "torch-wheel-does-not-exist"
    assert f"use Python {python}" in hit.answers[0].title
