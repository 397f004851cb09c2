"""What a file is meant for: a web server's workers share no tensors, and a file for processors needs no CUDA."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Severity
from tests.lint.linting import codes, found

CPU_INDEX = "--index-url https://download.pytorch.org/whl/cpu"
INSTALL = f"FROM python:3.12-slim\nRUN pip install torch==2.9.0 {CPU_INDEX}\n"
PRIVATE = "registry.example.org/team/app:1.4"
PYTORCH = "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"


def _service(command: str, image: str = PRIVATE, more: str = "") -> set[str]:
    text = f"services:\n  app:\n    image: {image}\n    command: {command}\n{more}"
    return codes(text, file="compose.yml")


GPUS = "    gpus: all\n"


@pytest.mark.parametrize(
    "command",
    [
        "gunicorn shop.wsgi --bind 0.0.0.0:8000 --workers 4",
        "uvicorn app:app --workers 2",
        "archived --workers 2",
        "python ingest.py --num-workers 8",
        "mpirun -np 8 solve",
    ],
)
def test_workers_of_a_service_without_gpu_or_torch_need_no_shared_memory(command: str) -> None:
    assert _service(command) == set()


@pytest.mark.parametrize("command", ["gunicorn api:app --workers=4", "python3 -m uvicorn api:app --workers 2"])
def test_a_web_servers_workers_pass_no_tensors_on_a_gpu_either(command: str) -> None:
    assert _service(command, more=GPUS) == set()
    assert _service(command, PYTORCH, GPUS) == set()


@pytest.mark.parametrize(
    ("image", "more"),
    [
        (PRIVATE, GPUS),
        (PRIVATE, "    runtime: nvidia\n"),
        (PRIVATE, "    environment: {NVIDIA_VISIBLE_DEVICES: all}\n"),
        ("registry.example.org/team/torch-cpu:2.9", ""),
        (PYTORCH, GPUS),
        ("nvcr.io/nvidia/pytorch:25.04-py3", GPUS),
    ],
)
def test_workers_of_a_service_with_a_gpu_or_torch_need_it(image: str, more: str) -> None:
    assert "small-shared-memory" in _service("python train.py --workers 8", image, more)
    assert "small-shared-memory" not in _service("python train.py --workers 8", image, f"{more}    shm_size: 8gb\n")


def test_the_torch_of_a_dockerfile_that_is_built_counts() -> None:
    text = "services:\n  app:\n    build: .\n    command: python train.py --num-workers 4\n"
    for install, said in ((f"torch==2.9.0 {CPU_INDEX}", True), ("flask==3.1.0", False)):
        beside = {"Dockerfile": f"FROM python:3.12-slim\nRUN pip install {install}\n"}
        hits = found(text, file="compose.yml", beside=beside)
        assert ("small-shared-memory" in {each.code for each in hits}) is said


@pytest.mark.parametrize("command", ["torchrun --nproc-per-node=2 t.py", "python t.py --dataloader_num_workers 4"])
def test_a_program_of_torchs_own_says_enough(command: str) -> None:
    assert "small-shared-memory" in _service(command)


@pytest.mark.parametrize(
    "file", ["Dockerfile.cpu", "cpu.Dockerfile", "Dockerfile-cpu", "docker/cpu/Dockerfile", "a/Dockerfile.CPU"]
)
def test_a_dockerfile_named_for_processors_may_have_a_torch_without_cuda(file: str) -> None:
    assert codes(INSTALL, file=file) == set()
    assert codes("FROM python:3.12-slim\nRUN pip install torch==2.9.0\n", "gh200-torch-pypi", file=file) == set()


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.gpu", "cpuset.Dockerfile", "cpu/docker/Dockerfile"])
def test_another_dockerfile_may_not(file: str) -> None:
    assert codes(INSTALL, file=file) == {"torch-is-cpu-only"}


@pytest.mark.parametrize(
    "line",
    ["ENV DEVICE=cpu", "ENV EMBED_DEVICE=CPU", 'CMD ["serve", "--device", "cpu"]', "CMD python serve.py --use-cpu"],
)
def test_nor_is_a_dockerfile_told_that_says_so_inside(line: str) -> None:
    assert codes(f"{INSTALL}{line}\n") == set()


def test_a_stage_named_for_processors_is_one() -> None:
    text = f"FROM python:3.12-slim AS base\nFROM base AS cpu\nRUN pip install torch==2.9.0 {CPU_INDEX}\n"
    assert codes(text) == set()
    assert codes(text.replace("AS cpu", "AS app")) == {"torch-is-cpu-only"}


@pytest.mark.parametrize(
    "line", ["ENV NVIDIA_VISIBLE_DEVICES=all", 'CMD ["serve", "--device", "cuda"]', "RUN nvidia-smi || true"]
)
def test_what_speaks_of_a_gpu_is_told_whatever_its_name(line: str) -> None:
    assert "torch-is-cpu-only" in codes(f"{INSTALL}{line}\n", file="Dockerfile.cpu")


@pytest.mark.parametrize("file", ["requirements-cpu.txt", "requirements/cpu.txt", "requirements_cpu.in"])
def test_a_list_named_for_processors_is_silent_of_torch_and_of_frameworks(file: str) -> None:
    text = f"{CPU_INDEX}\ntorch==2.9.0\nonnxruntime==1.20.1\njax==0.6.0\n"
    assert codes(text, file=file) == set()
    assert codes(text, file="requirements.txt") == {"torch-is-cpu-only", "framework-without-cuda"}


def test_an_environment_named_for_processors_is_silent() -> None:
    text = "channels: [pytorch]\ndependencies:\n  - python=3.11\n  - pytorch=2.4.1\n  - cpuonly\n"
    assert codes(text, file="environment-cpu.yml") == set()
    assert codes(text, file="environment.yml") == {"torch-is-cpu-only"}


def test_a_file_for_processors_may_hide_the_gpus() -> None:
    text = 'FROM python:3.12-slim\nENV CUDA_VISIBLE_DEVICES=""\n'
    assert codes(text, file="Dockerfile.cpu") == set()
    assert codes(text) == {"gpus-switched-off"}
    service = 'services:\n  app-cpu:\n    image: python:3.12\n    environment: {CUDA_VISIBLE_DEVICES: ""}\n'
    assert codes(service, file="compose.yml") == set()
    assert codes(service + GPUS, file="compose.yml") == {"gpus-switched-off"}


DRIVERS = "FROM ubuntu:22.04\nRUN apt-get update && apt-get install -y ffmpeg libnvidia-compute-550 nvidia-utils-550\n"


def test_driver_packages_of_one_command_are_one_finding() -> None:
    (finding,) = found(DRIVERS)
    assert (finding.code, finding.line, finding.severity) == ("driver-inside-image", 2, Severity.BLOCKS)
    assert "libnvidia-compute-550 and nvidia-utils-550 are part of a driver" in finding.saw
    assert len(finding.answers) == 1


def test_one_package_of_another_branch_makes_the_whole_command_block() -> None:
    (same,) = found("FROM ubuntu:22.04\nRUN apt-get install -y nvidia-utils-580 libcuda1\n")
    assert same.severity is Severity.DEGRADES
    (other,) = found(
        "FROM ubuntu:22.04\nRUN apt-get install -y nvidia-utils-580 libcuda1 cuda-12-4 nvidia-driver-535\n"
    )
    assert other.severity is Severity.BLOCKS
    assert "cuda-toolkit-12-4 in their place" in other.answers[0].title
