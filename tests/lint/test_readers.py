"""Each kind of file comes to the lists, images and jobs that the rules judge, each on its own line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firstlight.lint.installs import installs
from firstlight.lint.kinds import kind_of
from firstlight.lint.model import ProjectAsked, Syntax, Target
from firstlight.lint.readers import read_targets
from firstlight.lint.reading import Reading
from firstlight.lint.written import lines_of, says
from firstlight.ways.kinds import ChangeImage, InstallWheels, Package, StartContainer
from firstlight.ways.way import chain
from tests.lint.linting import found

CU124, CPU = "https://download.pytorch.org/whl/cu124", "https://download.pytorch.org/whl/cpu"


def read(file: str, text: str, arch: str = "x86_64", **beside: str) -> dict[str, Target]:
    """The targets of a file by name; `beside` are other files, with __ for a dot and _of_ for a slash."""
    others = {name.replace("_of_", "/").replace("__", "."): content for name, content in beside.items()}
    reading = Reading(file, text, kind_of(file, text), others.get, arch)
    return {target.name: target for target in read_targets(reading)}


def listed(target: Target) -> dict[str, tuple[str, int]]:
    """Project, what is asked of it, and its line."""
    return {
        each.project: (each.spec or each.address, _line(each)) for one in installs(target) for each in one.requirements
    }


def _line(each: ProjectAsked) -> int:
    return 0 if each.place is None else each.place.line


CASES = json.loads((Path(__file__).parent / "lists.json").read_text())


def _reading(case: dict[str, Any]) -> Reading:
    text = "\n".join((*case["lines"], ""))
    return Reading(
        case["file"], text, kind_of(case["file"], text), case.get("beside", {}).get, case.get("arch", "x86_64")
    )


@pytest.mark.parametrize("case", CASES["lists"], ids=lambda case: f"{case['file']}: {case['lines'][-1]}"[:50])
def test_a_list_of_packages_is_read_with_its_lines(case: dict[str, Any]) -> None:
    """`asked` has for each target the projects, what is asked of them, and the line that names them."""
    found_ = {target.name: listed(target) for target in read_targets(_reading(case))}
    assert found_ == {name: {key: tuple(value) for key, value in row.items()} for name, row in case["asked"].items()}


def test_where_a_list_looks_for_its_packages() -> None:
    head = f"--index-url https://i\n--extra-index-url={CU124}\n-f https://f\n--pre\ntorch\n"
    (install,) = installs(read("requirements.txt", head)[""])
    assert (install.index, install.extra_indexes, install.find_links) == ("https://i", (CU124,), ("https://f",))
    assert install.options == ("--pre",)


UV = (
    '[project]\nrequires-python = "==3.12.*"\ndependencies = ["torch>=2.5"]\n[project.optional-dependencies]\n'
    'cpu = ["torch"]\ncu124 = ["torch==2.5.1"]\n[tool.uv.sources]\ntorch = [%s]\n'
    f'[[tool.uv.index]]\nname = "cpu"\nurl = "{CPU}"\nexplicit = true\n'
    f'[[tool.uv.index]]\nname = "cu124"\nurl = "{CU124}"\nexplicit = true\n'
)


@pytest.mark.parametrize(
    ("sources", "arch", "indexes"),
    [
        ('{index = "cu124"}', "x86_64", {"": CU124, "cu124": CU124}),
        ('{index = "cu124", marker = "platform_machine == \'x86_64\'"}', "aarch64", {"": "", "cu124": ""}),
        ('{index = "cpu", extra = "cpu"}, {index = "cu124", extra = "cu124"}', "x86_64", {"cu124": CU124}),
    ],
)
def test_uv_takes_torch_from_the_index_of_its_source(sources: str, arch: str, indexes: dict[str, str]) -> None:
    targets = read("pyproject.toml", UV % sources, arch)
    taken = {name: (installs(each)[0].of("torch"), installs(each)[0]) for name, each in targets.items()}
    assert {name: asked.index for name, (asked, _) in taken.items() if asked is not None} == indexes
    assert all(install.python == "3.12" and install.tool == "uv" for _, install in taken.values())


POD = """apiVersion: v1
kind: Service
metadata: {name: a}
---
apiVersion: batch/v1
kind: CronJob
spec:
  jobTemplate:
    spec:
      template:
        spec:
          runtimeClassName: %s
          hostIPC: %s
          initContainers:
            - name: fetch
              image: busybox:1
          containers:
            - name: train
              image: nvidia/cuda:12.8.1-runtime-ubuntu22.04
              command: [bash, -c]
              args:
                - |
                  pip install torch==2.9.0
                  torchrun train.py
              env: [{name: A, value: "1"}, {name: B, valueFrom: {}}]
              resources: {limits: {%s}}
              volumeMounts: [{name: shm, mountPath: /dev/shm}]
          volumes:
            - {name: shm, emptyDir: {medium: Memory, sizeLimit: 2Gi}}
"""


def test_a_pod_is_found_wherever_it_lies_and_read_with_its_gpus_and_memory() -> None:
    targets = read("job.yaml", POD % ("nvidia", "true", "nvidia.com/gpu: 4"))
    assert sorted(targets) == ["fetch", "train"]
    train = targets["train"]
    assert train.service is not None
    assert (train.place.line, train.service.place.line) == (19, 18)
    assert [(each.count, each.place.line) for each in train.service.devices] == [("4", 26)]
    assert (train.service.runtime, train.service.ipc, train.service.shm_size) == ("nvidia", "host", "2Gi")
    assert ("torchrun", "train.py") in [each.words for each in train.starts]
    assert {name: event.value for name, event in train.env.items()} == {"A": "1"}
    shared = read("job.yaml", POD % ("a", "false", "nvidia.com/mig-1g.10gb: 1"))["train"].service
    assert shared is not None
    assert (shared.gpus, shared.devices, shared.runtime, shared.ipc) == (True, (), "", "")


@pytest.mark.parametrize(
    ("kind", "line", "said"),
    [
        ("Pod", "image: nvidia/cuda:12.8.1-base-ubuntu22.04", {"service-without-gpu"}),
        ("Pod", "image: nvidia/cuda:12.8.1-base-ubuntu22.04\n    securityContext: {privileged: true}", set()),
        ("Pod", "image: nvcr.io/nvidia/k8s-device-plugin:v0.20.0", set()),
        ("ClusterTrainingRuntime", "image: nvidia/cuda:12.8.1-base-ubuntu22.04", set()),
    ],
)
def test_a_container_is_asked_for_gpus_where_it_gets_none_another_way(kind: str, line: str, said: set[str]) -> None:
    text = f"apiVersion: v1\nkind: {kind}\nspec:\n  containers:\n  - name: a\n    {line}\n"
    assert {each.code for each in found(text, file="pod.yaml") if each.code.startswith("service")} == said


DEVCONTAINER = """// for VS Code
{
  "image": "nvidia/cuda:12.8.1-devel-ubuntu22.04", // pinned
  /* no GPU
     here */
  "runArgs": [%s],
  "features": {"ghcr.io/devcontainers/features/python:1": {"version": "3.11"}},
  "hostRequirements": {%s},
  "containerEnv": {"CUDA_VISIBLE_DEVICES": ""},
  "postCreateCommand": "pip install torch==2.9.0 && echo // not a comment",
}
"""


@pytest.mark.parametrize(
    ("arguments", "requirements", "gpus"),
    [
        ("", "", "no"),
        ('"--gpus", "all"', "", "yes"),
        ('"--gpus=all"', "", "yes"),
        ("", '"gpu": true', "yes"),
        ("", '"gpu": "optional"', "yes"),
        ("", '"gpu": {"cores": 1000}', "yes"),
        ('"--device=nvidia.com/gpu=all"', '"gpu": false', "yes"),
        ("", '"gpu": false', "no"),
    ],
)
def test_a_devcontainer_is_read_through_comments_and_trailing_commas(
    arguments: str, requirements: str, gpus: str
) -> None:
    target = read(".devcontainer/devcontainer.json", DEVCONTAINER % (arguments, requirements))[""]
    assert target.service is not None
    assert target.service.gpus is (gpus == "yes")
    assert (target.place.line, target.image.python) == (3, "3.11")
    assert target.env["CUDA_VISIBLE_DEVICES"].place.line == 9
    assert [(each.words[:2], each.place.line) for each in target.ran] == [
        (("pip", "install"), 10),
        (("echo", "//"), 10),
    ]


def test_a_devcontainer_is_judged_by_its_dockerfile_or_by_the_service_of_its_compose_file() -> None:
    built = '{"build": {"dockerfile": "../Dockerfile", "args": {"CUDA": "12.8.1"}}, "runArgs": ["--gpus=all"]}'
    one = read(
        ".devcontainer/devcontainer.json", built, Dockerfile="ARG CUDA\nFROM nvidia/cuda:$CUDA-base-ubuntu22.04\n"
    )
    assert one[""].image.name == "nvidia/cuda:12.8.1-base-ubuntu22.04"
    named = '{"dockerComposeFile": ["../c.yml"], "service": "b"}'
    two = read(
        ".devcontainer/devcontainer.json", named, c__yml="services:\n  a: {image: x:1}\n  b: {image: y:2, gpus: all}\n"
    )
    assert two[""].image.name == "y:2"
    assert two[""].service is not None
    assert two[""].service.gpus


WORKFLOW = """on:
  workflow_dispatch: {inputs: {torch: {default: "2.9.0"}}}
env: {PIP_INDEX_URL: https://i}
jobs:
  test:
    runs-on: ${{ matrix.os }}
    strategy:
      matrix:
        os: [ubuntu-24.04, gpu-runner]
        include: [{os: gpu-runner, cuda: cu128}]
    container:
      image: nvidia/cuda:12.8.1-base-ubuntu22.04
      options: --gpus all --shm-size=2g
    services: {db: {image: postgres:16}}
    steps:
      - uses: actions/setup-python@v5
        with: {python-version: "3.11"}
      - name: install
        run: |
          # first
          pip install torch==${{ inputs.torch }} \\
            numpy
          python - <<'PY'
          import os
          PY
          uv run pytest --index=${{ matrix.cuda }}
"""


def test_a_job_is_read_for_each_choice_of_its_matrix() -> None:
    text = WORKFLOW
    reading = Reading(".github/workflows/ci.yml", text, kind_of(".github/workflows/ci.yml", text), lambda _: None)
    jobs = [each for each in read_targets(reading) if each.name == "test"]
    assert [each.service.runs_on for each in jobs if each.service is not None] == [("ubuntu-24.04",), ("gpu-runner",)]
    (install,) = installs(jobs[1])
    assert (install.ran.place.line, install.index, install.ran.words[-2:]) == (
        21,
        "https://i",
        ("torch==2.9.0", "numpy"),
    )
    assert ("pytest", "--index=cu128") in [each.words for each in jobs[1].ran]
    assert not any("import" in each.words for each in jobs[0].ran)
    assert jobs[0].image.python == "3.11"
    assert jobs[0].service is not None
    assert (jobs[0].service.gpus, jobs[0].service.shm_size) == (True, "2g")
    assert any(each.image.name == "postgres:16" for each in read_targets(reading))


JOB = """#!/bin/bash
#SBATCH --job-name=big
#SBATCH -N 2 %s
module load python/3.11
export NCCL_DEBUG=INFO
IMAGE=nvcr.io#nvidia/pytorch:25.06-py3
pip install torch==2.9.0
srun --container-image=$IMAGE -n 8 torchrun train.py
apptainer exec --nv docker://pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime python a.py
"""


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ("--gres=gpu:h100:8", ["8"]),
        ("--gres gpu:4,nvme:1", ["4"]),
        ("--gpus=8", ["4"]),
        ("-G 8", ["4"]),
        ("--gpus-per-node=a100:2", ["2"]),
        ("--gpus-per-task=1 --ntasks-per-node=4", ["4"]),
        ("--partition=cpu", []),
    ],
)
def test_a_job_asks_for_gpus_of_one_node(asked: str, counts: list[str]) -> None:
    reading = Reading("job.sbatch", JOB % asked, kind_of("job.sbatch", ""), lambda _: None)
    job, inside, apptainer = read_targets(reading)
    assert job.service is not None
    assert [each.count for each in job.service.devices] == counts
    assert (job.service.name, job.image.python) == ("big", "3.11")
    assert installs(job)[0].ran.place.line == 7
    assert job.env["NCCL_DEBUG"].place.line == 5
    assert (inside.image.name, inside.place.line) == ("nvcr.io/nvidia/pytorch:25.06-py3", 6)
    assert ("torchrun", "train.py") in [each.words for each in inside.starts]
    assert (apptainer.image.repository, apptainer.place.line) == ("pytorch/pytorch", 9)
    assert apptainer.service is not None
    assert apptainer.service.gpus


@pytest.mark.parametrize("case", CASES["too_new"], ids=lambda case: case["file"])
def test_a_torch_that_is_too_new_is_found_in_every_kind_at_its_line(case: dict[str, Any]) -> None:
    findings = found(_reading(case).text, "H100, driver 550", file=case["file"])
    assert ("torch-needs-newer-driver", case["file"], case["line"]) in {
        (each.code, each.file, each.line) for each in findings
    }


def test_a_job_that_runs_whole_in_an_image_names_it_on_its_own_line() -> None:
    image = "#SBATCH --container-image=nvcr.io#nvidia/cuda:12.8.1-base-ubuntu22.04"
    job = read("job.sh", f"#!/bin/bash\n#SBATCH --gpus=1  # one\n{image}\nls\n")[""]
    assert (job.image.name, job.place.line) == ("nvcr.io/nvidia/cuda:12.8.1-base-ubuntu22.04", 3)
    assert job.service is not None
    assert [each.count for each in job.service.devices] == ["1"]


def test_answers_are_written_as_each_kind_takes_them() -> None:
    wheel = chain(InstallWheels((Package("torch", "2.9.0+cu126"),), "https://download.pytorch.org/whl/cu126"))
    pip = "pip install torch==2.9.0+cu126 --index-url https://download.pytorch.org/whl/cu126"
    extra = "--extra-index-url https://download.pytorch.org/whl/cu126"
    assert lines_of(wheel, Syntax.REQUIREMENTS) == (extra, "torch==2.9.0+cu126")
    assert lines_of(wheel, Syntax.CONDA) == (f"- {extra}", "- torch==2.9.0+cu126")
    assert lines_of(wheel, Syntax.SHELL) == lines_of(wheel, Syntax.WORKFLOW) == (pip,)
    assert lines_of(wheel, Syntax.LOCK) == ()
    apt = chain(ChangeImage("RUN apt-get update"))
    assert (says(apt, Syntax.WORKFLOW), lines_of(apt, Syntax.WORKFLOW)) == ("run before it", ("apt-get update",))
    gpus = chain(StartContainer(("--gpus=all",), gives_gpus=True))
    assert lines_of(gpus, Syntax.KUBERNETES) == ("resources: {limits: {nvidia.com/gpu: 1}}",)
    assert lines_of(gpus, Syntax.SHELL) == ("#SBATCH --gpus-per-node=1",)
    toml = "\n".join(("[project]", "dependencies = [", *lines_of(wheel, Syntax.PYPROJECT)[:1], "]",
                      *lines_of(wheel, Syntax.PYPROJECT)[1:]))  # fmt: skip
    (install,) = installs(read("pyproject.toml", toml)[""])
    asked = install.of("torch")
    assert asked is not None
    assert (asked.exact, asked.index) == ("2.9.0+cu126", "https://download.pytorch.org/whl/cu126")


LOCK = """version = 1
requires-python = ">=3.12"
[[package]]
name = "proj"
version = "0.1.0"
source = { virtual = "." }
dependencies = [{ name = "numpy" }]
[package.optional-dependencies]
cpu = [{ name = "torch", version = "2.5.1+cpu", source = { registry = "cpu" } }]
cu124 = [{ name = "torch", version = "2.5.1+cu124", marker = "extra == 'extra-4-proj-cu124'" }]
docs = [{ name = "numpy" }]
[[package]]
name = "numpy"
version = "2.0"
[[package]]
name = "torch"
version = "2.5.1+cpu"
[[package]]
name = "torch"
version = "2.5.1+cu124"
"""


def test_of_groups_that_exclude_each_other_each_has_its_own_torch() -> None:
    """The form is that of `uv lock` with [tool.uv] conflicts."""
    targets = read("uv.lock", LOCK)
    assert {name: listed(each).get("torch") for name, each in targets.items()} == {
        "": None,
        "cu124": ("==2.5.1+cu124", 19),
    }
    assert all(listed(each)["numpy"] == ("==2.0", 13) for each in targets.values())


def test_a_composed_devcontainer_gets_gpus_by_its_host_requirements() -> None:
    named = '{"dockerComposeFile": "c.yml", "service": "b", "hostRequirements": {"gpu": true}}'
    service = read("devcontainer.json", named, c__yml="services:\n  b: {image: y:2}\n")[""].service
    assert service is not None
    assert service.gpus


PIXI_129 = """[workspace]
name = "render"
channels = ["conda-forge"]
platforms = ["linux-64"]
[system-requirements]
cuda = "12.9"
[dependencies]
pytorch-gpu = "2.7.*"
"""


def test_pixi_wants_a_later_cuda_than_the_driver_reports() -> None:
    (hit,) = found(PIXI_129, "H100, driver 570", file="pixi.toml")
    assert (hit.code, hit.line) == ("conda-cuda-beyond-driver", 6)
    for near in ("12.8", "12.0", "12"):
        assert found(PIXI_129.replace("12.9", near), "H100, driver 570", file="pixi.toml") == ()
    assert found(PIXI_129, "B200, driver 580", file="pixi.toml") == ()


@pytest.mark.parametrize("cuda", ["13.0", "13"])
@pytest.mark.parametrize("torch", ['pytorch-gpu = "*"', 'jax = "*"', 'cmake = "*"'])
def test_pixi_wants_a_later_major_whatever_else_is_in_it(torch: str, cuda: str) -> None:
    """pixi itself refuses: with no torch that is known to be too new, nothing else speaks of it."""
    text = PIXI_129.replace("12.9", cuda).replace('pytorch-gpu = "2.7.*"', torch)
    hits = found(text, "H100, driver 570", file="pixi.toml")
    assert ("conda-cuda-beyond-driver", 6) in {(hit.code, hit.line) for hit in hits}
    assert "12.0" in hits[0].answers[0].title
    assert found(text, "H100, driver 580", file="pixi.toml") == ()
