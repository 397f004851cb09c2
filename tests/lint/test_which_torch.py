"""Which torch an image ends up with: by its indexes, by what is there already, and what is not known of it."""

from __future__ import annotations

import pytest

from firstlight.lint.judge import Given, lint
from firstlight.lint.stages import read_dockerfile
from firstlight.lint.torches import InImage, torches
from tests.lint.linting import H100_550, H100_580, codes, found, machine, written

SLIM = "FROM python:3.12-slim\nENV NVIDIA_VISIBLE_DEVICES=all\n"
CONDA = "FROM continuumio/miniconda3:24.7.1-0\nENV NVIDIA_VISIBLE_DEVICES=all\n"
IN_IMAGE = "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\n"
WHL = "https://download.pytorch.org/whl"
A100_470, B200_570 = "A100, driver 470", "B200, driver 570"


def _torch(text: str, on: str = H100_550) -> InImage:
    last = torches(read_dockerfile(text, "Dockerfile"), machine(on)).last
    assert last is not None
    return last


def _not_judged(text: str, on: str) -> tuple[str, ...]:
    return lint(Given("Dockerfile", text), machine(on), read=lambda _: None).not_judged


@pytest.mark.parametrize(
    ("install", "version", "variant"),
    [
        (f"pip install torch==2.9.0 --extra-index-url {WHL}/cu130", "2.9.0", "cu130"),
        (f"pip install torch==2.9.0 --extra-index-url {WHL}/cpu", "2.9.0", "cpu"),
        (f"pip install --extra-index-url={WHL}/cu126 --extra-index-url={WHL}/cu130 torch==2.9.0", "2.9.0", "cu130"),
        (f"pip install --extra-index-url {WHL}/cu130 --extra-index-url {WHL}/cpu torch==2.9.0", "2.9.0", "cu130"),
        (f"PIP_EXTRA_INDEX_URL='{WHL}/cpu {WHL}/cu126' pip install torch==2.9.0", "2.9.0", "cu126"),
        (f"pip config set global.extra-index-url {WHL}/cu130 && pip install torch==2.9.0", "2.9.0", "cu130"),
        (f"export PIP_EXTRA_INDEX_URL={WHL}/cu130 && pip install torch==2.9.0", "2.9.0", "cu130"),
        # cu121 has no 2.9.0, and cu118 nothing newer than 2.7.1: PyPI's wins
        (f"pip install torch==2.9.0 --extra-index-url {WHL}/cu121", "2.9.0", "cu128"),
        (f"pip install 'torch<2.10' --extra-index-url {WHL}/cu118", "2.9.1", "cu128"),
        (f"pip install 'torch<2.10' -i {WHL}/cu118 --extra-index-url https://pypi.org/simple", "2.9.1", "cu128"),
        (f"pip install 'torch<2.8' --extra-index-url {WHL}/cu118", "2.7.1", "cu118"),
        (f"pip install torch==2.9.0 --extra-index-url {WHL}/nightly/cu130", "2.9.0", "cu128"),
        ("pip install torch==2.9.0 --extra-index-url https://pypi.nvidia.com", "2.9.0", "cu128"),
        # uv: the first index that has torch, however old its torch
        (f"uv pip install 'torch<2.10' --extra-index-url {WHL}/cu118", "2.7.1", "cu118"),
        (f"uv pip install torch==2.9.0 --index {WHL}/cpu --index {WHL}/cu130", "2.9.0", "cpu"),
        (f"UV_EXTRA_INDEX_URL={WHL}/cu130 uv pip install torch==2.9.0", "2.9.0", "cu130"),
        (f"uv pip install torch==2.9.0 --torch-backend=cu126 --index {WHL}/cu130", "2.9.0", "cu126"),
        (f"uv pip install --index-strategy unsafe-best-match 'torch<2.10' --index {WHL}/cu118", "2.9.1", "cu128"),
    ],
)
def test_of_several_indexes_pip_takes_the_highest_version_and_uv_the_first_index(
    install: str, version: str, variant: str
) -> None:
    torch = _torch(f"{SLIM}RUN {install}\n")
    assert (torch.version.public, torch.variant) == (version, variant)


@pytest.mark.parametrize("word", ["ENV", "ARG"])
def test_an_extra_index_of_the_environment_counts(word: str) -> None:
    text = f"{SLIM}{word} PIP_EXTRA_INDEX_URL={WHL}/cu130\nRUN pip install torch==2.9.0\n"
    assert _torch(text).variant == "cu130"


def test_an_extra_index_is_held_against_driver_and_gpu() -> None:
    install = f"{SLIM}RUN pip install torch==2.9.0 --extra-index-url {WHL}"
    assert codes(f"{install}/cu130\n", H100_550) == {"torch-needs-newer-driver"}
    assert codes(f"{install}/cpu\n", H100_550) == {"torch-is-cpu-only"}
    assert codes(f"{install}/cu126\n", H100_550) == set()


@pytest.mark.parametrize(
    "text",
    [
        f"{IN_IMAGE}RUN pip install torchvision torchaudio\n",
        f"{IN_IMAGE}RUN pip install torch torchvision==0.20.1 'torchaudio>=2.5'\n",
        f"{IN_IMAGE}RUN uv pip install --system torchvision\n",
        f"{SLIM}RUN pip install torch==2.5.1 torchvision==0.20.1 -i {WHL}/cu124\nRUN pip install torchvision pillow\n",
        f"{SLIM}RUN pip install torch==2.5.1 torchvision -i {WHL}/cu124\nRUN pip install torchvision\n",
        f"{SLIM}RUN pip install torch==2.8.0\nRUN pip install vllm==0.11.0\nRUN pip install torchvision vllm\n",
        f"{SLIM}RUN pip install torch==2.5.1\nRUN pip install torch==2.5.1 torchvision\n",
    ],
)
def test_what_is_in_the_image_and_fits_is_kept(text: str) -> None:
    assert codes(text, H100_550) == set()


@pytest.mark.parametrize(
    ("install", "why"),
    [
        ("-U torchvision", "torchvision 0.29.2 requires torch>=2.14.0 (0.29.2 is the newest that the tables know)"),
        ("torchvision==0.24.0", "torchvision 0.24.0 requires torch==2.9.0"),
        ("vllm==0.11.0", "vllm 0.11.0 requires torch==2.8.0"),
    ],
)
def test_what_is_in_the_image_is_replaced_where_it_does_not_fit_or_is_to_be_upgraded(install: str, why: str) -> None:
    hits = [each for each in found(f"{IN_IMAGE}RUN pip install {install}\n") if each.code == "torch-overwritten-later"]
    assert len(hits) == 1
    assert hits[0].saw.endswith(why)


def test_a_project_that_stays_behind_an_older_torch_brings_that_torch_back() -> None:
    text = f"{IN_IMAGE}RUN pip install torch==2.6.0\nRUN pip install torchvision\n"
    assert _torch(text).version.public == "2.5.1"
    assert "is in the image already" in next(each.saw for each in found(text) if each.line == 3)


@pytest.mark.parametrize(
    "install",
    [
        "pip install torch==2.9.0+cu130",
        "pip install torch==2.9.0+cu130 --index-url https://pypi.org/simple",
        f"pip install torch==2.9.0+cu130 --index-url {WHL}/cu128",
        "uv pip install torch==2.9.0+cu130",
    ],
)
def test_a_local_version_is_on_no_index_but_pytorchs(install: str) -> None:
    (hit,) = found(f"{SLIM}RUN {install}\n", H100_580)
    assert (hit.code, hit.line) == ("torch-wheel-does-not-exist", 3)
    assert written(hit) == (f"RUN pip install torch==2.9.0+cu130 --index-url {WHL}/cu130",)


@pytest.mark.parametrize(
    "text",
    [
        f"{SLIM}RUN pip install torch==2.9.0+cu130 --index-url {WHL}/cu130\n",
        f"{SLIM}RUN pip install torch==2.9.0+cu130 --extra-index-url {WHL}/cu130\n",
        f"{SLIM}RUN pip install torch==2.9.0+cu130 -f {WHL}/torch\n",
        f"{SLIM}RUN pip install torch==2.9.0+cu130 --index-url https://wheels.example/simple\n",
        f"{SLIM}ENV PIP_FIND_LINKS=/wheels\nRUN pip install torch==2.9.0+cu130\n",
        f"{SLIM}ARG PIP_INDEX_URL={WHL}/cu130\nRUN pip install torch==2.9.0+cu130\n",
        f"{SLIM}RUN UV_TORCH_BACKEND=cu130 uv pip install torch==2.9.0+cu130\n",
        f"{SLIM}COPY pip.conf /etc/pip.conf\nRUN pip install torch==2.9.0+cu130\n",
        f"{SLIM}RUN pip install torch==2.9.0 -i {WHL}/cu130\nRUN pip install torch==2.9.0+cu130\n",
        "FROM pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime\nRUN pip install torch==2.9.0+cu130\n",
        "FROM team/base:1\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install torch==2.9.0+cu130\n",
    ],
)
def test_a_local_version_is_let_be_where_an_index_or_a_file_may_have_it(text: str) -> None:
    assert codes(text, H100_580) == set()


def test_a_requirements_file_may_name_where_a_local_version_is() -> None:
    text = f"{SLIM}COPY r.txt .\nRUN pip install -r r.txt\n"
    for line in (f"--find-links {WHL}/torch_stable.html", f"--extra-index-url {WHL}/cu130"):
        assert found(text, H100_580, beside={"r.txt": f"{line}\ntorch==2.9.0+cu130\n"}) == ()
    (hit,) = found(text, H100_580, beside={"r.txt": "torch==2.9.0+cu130\n"})
    assert hit.code == "torch-wheel-does-not-exist"


def test_an_odd_local_part_is_read_as_far_as_it_goes() -> None:
    assert _torch(f"{SLIM}RUN pip install torch==2.0.1+cu118.with.pypi.cudnn -f x\n").variant == "cu118"
    assert _torch(f"{SLIM}RUN pip install torch==2.5.1+cuda124 -f x\n").cuda is None


@pytest.mark.parametrize(
    ("packages", "variant"),
    [
        ("pytorch==2.4.0 pytorch-cuda=11.8 -c pytorch -c nvidia", "cu118"),
        ("--channel pytorch pytorch=2.4.0 pytorch-cuda==12.1", "cu121"),
        ("-n pytorch pytorch=1.12.1 cudatoolkit=11.3", "cu113"),
        ("-c conda-forge pytorch=2.4.0 cuda-version=12.6", "cu126"),
        ("pytorch=2.4.0 cpuonly", "cpu"),
        ("pytorch=2.4.0", ""),
        ("pytorch=2.4.0 cuda-version=12", ""),
    ],
)
def test_the_cuda_of_condas_pytorch_is_the_one_that_the_command_names(packages: str, variant: str) -> None:
    assert _torch(f"{CONDA}RUN conda install -y {packages}\n").variant == variant


def test_condas_cuda_is_held_against_the_driver() -> None:
    install = f"{CONDA}RUN conda install -y pytorch==2.4.0"
    assert codes(f"{install} pytorch-cuda=11.8\n", A100_470) == set()
    assert codes(f"{install} pytorch-cuda=12.1\n", A100_470) == {"torch-needs-newer-driver"}
    assert codes(f"{install}\n", A100_470) == set()


@pytest.mark.parametrize(
    ("install", "sentence"),
    [
        ("conda install -y pytorch==2.4.0", "which CUDA torch 2.4.0 is built for is not known"),
        ("conda install -y pytorch pytorch-cuda=12.1", "which torch it brings is not known"),
        ("pip install torch==$V", "which torch it brings is not known"),
        ("pip install torch==99.0.0", "which CUDA torch 99.0.0 is built for is not known"),
    ],
)
def test_a_torch_that_is_not_known_is_said_not_to_be_judged(install: str, sentence: str) -> None:
    (said,) = _not_judged(f"{CONDA}RUN {install}\n", A100_470)
    assert said == f"Dockerfile:3: {install}: {sentence}"
    assert _not_judged(f"{CONDA}RUN {install}\n", "gpu-less") == ()


def test_a_wheel_of_a_cuda_whose_compiler_knows_no_code_for_the_gpu_is_blocked() -> None:
    text = f"{SLIM}RUN pip install torch==2.7.0 --index-url {WHL}/cu118\n"
    (hit,) = found(text, B200_570)
    assert hit.code == "torch-has-no-code-for-gpu"
    assert "can have code for sm_35 to sm_90, all that its compiler makes" in hit.saw
    assert _not_judged(text, B200_570) == ()


def test_a_torch_whose_code_is_not_known_is_said_not_to_be_judged() -> None:
    text = f"{SLIM}RUN pip install torch==2.7.0 --index-url {WHL}/cu118\n"
    assert codes(text, H100_580) == set()
    assert _not_judged(text, H100_580) == (
        "Dockerfile:3: whether torch 2.7.0 with CUDA 11.8 has code for NVIDIA H100 80GB HBM3 is not in the tables",
    )


@pytest.mark.parametrize(
    ("asked", "do"),
    [
        ("torchvision", "name the release that goes with torch 2.5.1: torchvision==0.20.1"),
        ("vllm", "name the release that goes with torch 2.5.1: vllm==0.7.3"),
        ("torch==2.9.0", ""),
        ("torch==2.9.0+cu128 --extra-index-url https://download.pytorch.org/whl/cu128", ""),
    ],
)
def test_the_pip_part_of_an_environment_replaces_condas_torch_on_its_own_line(asked: str, do: str) -> None:
    text = f"dependencies:\n  - pytorch=2.5.1\n  - pip:\n    - numpy\n    - {asked}\n"
    (seen,) = (each for each in found(text, file="environment.yml") if each.code == "torch-overwritten-later")
    assert (seen.line, seen.answers[0].title) == (5, do)


@pytest.mark.parametrize("run", ["conda run -n x", "micromamba run -n x"])
@pytest.mark.parametrize(
    "base", ["nvidia/cuda:12.4.1-devel-ubuntu22.04", "ubuntu:22.04", "condaforge/miniforge3:24.9.2-0"]
)
def test_what_conda_runs_in_an_environment_is_a_command_like_another(base: str, run: str) -> None:
    text = f"FROM {base}\nRUN {run} pip install torch==2.12.0\nRUN {run} pip install flash-attn torchvision\n"
    assert ("toolkit-differs-from-torch" in codes(text)) is ("devel" in base)


JOB = "#!/bin/bash\n#SBATCH --gpus-per-node=1\n"
ENVIRONMENT = "dependencies:\n  - python=3.12\n  - pip:\n"
LOCK = 'version = 1\n[[package]]\nname = "torch"\nversion = "2.9.0+cu130"\nsource = { registry = "%s" }\n'
LOCAL = [
    ("uv.lock", LOCK % f"{WHL}/cu130", ""),
    ("pyproject.toml", '[project]\nname = "a"\nversion = "1"\ndependencies = ["torch==2.9.0+cu130"]\n', "degrades"),
    ("pixi.toml", f'[pypi-dependencies]\ntorch = {{ version = "==2.9.0+cu130", index = "{WHL}/cu130" }}\n', ""),
    ("job.sbatch", f"{JOB}pip install torch==2.9.0+cu130\n", "blocks"),
    ("job.sbatch", f"{JOB}pip install torch==2.9.0+cu130 --index-url {WHL}/cu130\n", ""),
    ("job.sbatch", f"{JOB}pip install torch==2.9.0+computecanada\n", ""),
    ("requirements.txt", f"--index-url {WHL}/cu130\ntorch==2.9.0+cu128\n", "blocks"),
    ("requirements.txt", f"--extra-index-url {WHL}/cu130\ntorch==2.9.0+cu130\n", ""),
    ("requirements.txt", f"--find-links {WHL}/torch\ntorch==2.9.0+cu130\n", ""),
    ("requirements.txt", "torch==2.9.0+cu130\n", "degrades"),
    ("environment.yml", f"{ENVIRONMENT}    - torch==2.9.0+cu130\n", "blocks"),
]


@pytest.mark.parametrize(("file", "text", "severity"), LOCAL)
def test_a_local_version_is_missed_in_every_kind_of_file(file: str, text: str, severity: str) -> None:
    """The command that installs a list may name the index that the list does not: that one is not sure."""
    hits = [each for each in found(text, H100_580, file=file) if each.code == "torch-wheel-does-not-exist"]
    assert [each.severity.value for each in hits] == ([severity] if severity else [])


def test_what_may_not_exist_hides_nothing_that_blocks() -> None:
    said = [
        (each.code, each.severity.value) for each in found("torch==2.9.0+cu130\n", "H100, driver 550", file="r.txt")
    ]
    assert sorted(said) == [("torch-needs-newer-driver", "blocks"), ("torch-wheel-does-not-exist", "degrades")]
