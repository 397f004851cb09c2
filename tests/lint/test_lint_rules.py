"""Every rule on a file where it fires, with its line, and on a near-miss where it does not."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from firstlight.diagnosis.finding import Severity
from firstlight.lint.judge import LINT_RULES, Given, lint
from firstlight.lint.written import lines_of, says
from tests.lint.linting import H100_550, H100_580, codes, found, machine, written

BLOCKS, DEGRADES, NOTE = Severity.BLOCKS, Severity.DEGRADES, Severity.NOTE
CUDA12, CUDA13 = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n", "FROM nvidia/cuda:13.0.2-devel-ubuntu22.04\n"
SLIM = "FROM python:3.12-slim\n"
APT = "RUN apt-get install -y python3-pip\n"
CPU = "https://download.pytorch.org/whl/cpu"
CU124, CU128 = "https://download.pytorch.org/whl/cu124", "https://download.pytorch.org/whl/cu128"
NVIDIA = "FROM nvidia/cuda:12.8.1-base-ubuntu22.04\n"
GEFORCE_550 = "RTX 4090, driver 550"


@dataclass(frozen=True)
class Case:
    """A file with a fault on a line, and the same file without it; `other` is a machine where the fault is none."""

    code: str
    fires: str
    line: int
    near_miss: str = ""
    severity: Severity = BLOCKS
    on: str = H100_580
    other: str = ""


CASES = (
    Case("image-refused-by-driver", CUDA13, 1, CUDA12, on=GEFORCE_550, other="RTX 4090, driver 580"),
    Case("image-refused-by-driver", CUDA13, 1, CUDA13 + "ENV NVIDIA_DISABLE_REQUIRE=1\n", on=GEFORCE_550),
    Case("image-refused-by-driver", "FROM nvidia/cuda:13.2.0-base-ubuntu22.04\n", 1, on=H100_550,
         other="H100, driver 570"),
    Case("image-refused-by-driver", "FROM nvidia/cuda:13.2.0-base-ubuntu22.04\n", 1, NVIDIA,
         on="RTX 4090, driver 580"),
    Case("image-refused-by-driver", NVIDIA + 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.8"\n', 2, on=H100_550,
         near_miss=NVIDIA + 'ENV NVIDIA_REQUIRE_CUDA="cuda>=12.8 brand=tesla,driver>=550,driver<551"\n'),
    Case("torch-needs-newer-driver", SLIM + "RUN pip install torch\n", 2, SLIM + "RUN pip install torch==2.6.0\n",
         on=H100_550, other=H100_580),
    Case("torch-needs-newer-driver", SLIM
         + "RUN pip install torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130\n",
         2, SLIM + f"RUN pip install torch==2.9.0 --index-url {CU128}\n", on=H100_550),
    Case("torch-needs-newer-driver", CUDA13 + APT + "RUN pip install torch==2.11.0\n", 3, severity=DEGRADES,
         on=H100_550),
    Case("torch-needs-newer-driver", SLIM + "RUN apt-get install -y cuda-compat-13-0\nRUN pip install torch==2.11.0\n",
         3, severity=DEGRADES, on=H100_550),
    Case("torch-needs-newer-driver", SLIM + "RUN apt-get install -y cuda-compat-13-2\nRUN pip install torch==2.11.0\n",
         3, on=H100_550),
    Case("torch-has-no-code-for-gpu", SLIM + "RUN pip install torch==2.5.1\n", 2, SLIM
         + "RUN pip install torch==2.8.0\n",
         on="RTX 5090, driver 580", other=H100_580),
    Case("torch-has-no-code-for-gpu", "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\n", 1, on="B200, driver 580",
         other=H100_580),
    Case("torch-is-cpu-only", SLIM + f"RUN pip install torch==2.9.0 --index-url {CPU}\n", 2,
         SLIM + f"RUN pip install torch==2.9.0 --index-url {CU128}\n", other="gpu-less"),
    Case("torch-is-cpu-only", SLIM + "RUN uv pip install --system torch==2.9.0 --torch-backend=cpu\n", 2,
         SLIM + "RUN uv pip install --system torch==2.9.0 --torch-backend=cu128\n"),
    Case("torch-wheel-does-not-exist", SLIM + f"RUN pip install torch==2.9.0 --index-url {CU124}\n", 2,
         SLIM + f"RUN pip install torch==2.5.1 --index-url {CU124}\n"),
    Case("torch-wheel-does-not-exist", "FROM python:3.13\nRUN pip install torch==2.4.1\n", 2, SLIM
         + "RUN pip install torch==2.4.1\n"),
    Case("torch-overwritten-later", SLIM
         + f"RUN pip install torch==2.6.0 --index-url {CU124}\nRUN pip install torchvision\n",
         3, SLIM + f"RUN pip install torch==2.6.0 torchvision==0.21.0 --index-url {CU124}\n", DEGRADES),
    Case("torch-overwritten-later", SLIM + "RUN pip install torch==2.9.0\nRUN pip install vllm==0.11.0\n", 3,
         SLIM + "RUN pip install torch==2.8.0\nRUN pip install vllm==0.11.0\n", DEGRADES),
    Case("torch-overwritten-later", "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install -U torch\n", 2,
         "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install torch\n", DEGRADES),
    Case("torch-overwritten-later", CUDA12 + APT + "RUN pip install torch==2.6.0\nRUN pip install flash-attn\n"
         "RUN pip install torchvision\n", 5, severity=BLOCKS),
    Case("torch-not-pinned", SLIM + "RUN pip install torch\n", 2, SLIM + "RUN pip install torch==2.9.0\n", NOTE),
    Case("compat-baked-in", CUDA12 + "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat:$LD_LIBRARY_PATH\n", 2,
         CUDA12 + "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64:$LD_LIBRARY_PATH\n"),
    Case("compat-baked-in", CUDA13 + "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n", 2, severity=DEGRADES, on=H100_550),
    Case("compat-baked-in", CUDA13 + "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n", 2, on=GEFORCE_550),
    Case("compat-baked-in", CUDA13 + "ENV LD_LIBRARY_PATH=/usr/local/cuda/compat\n", 2, on="h200"),
    Case("compat-baked-in", CUDA12
         + "RUN echo /usr/local/cuda-12.4/compat > /etc/ld.so.conf.d/00-cuda.conf && ldconfig\n", 2,
         CUDA12 + "RUN LD_LIBRARY_PATH=/usr/local/cuda/compat nvcc --version\n"),
    Case("stub-libcuda-on-path", CUDA12 + "ENV LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs:$LD_LIBRARY_PATH\n", 2,
         CUDA12 + "ENV LIBRARY_PATH=/usr/local/cuda/lib64/stubs\n"),
    Case("stub-libcuda-on-path", CUDA12 + "RUN ln -s /usr/local/cuda/lib64/stubs/libcuda.so /usr/lib/libcuda.so.1\n", 2,
         CUDA12 + "RUN ln -s /usr/local/cuda/lib64/stubs/libcuda.so /usr/lib/libcuda.so\n"),
    Case("library-path-lost", CUDA12 + "ENV LD_LIBRARY_PATH=/opt/lib\n", 2,
         CUDA12 + "ENV LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH\n", NOTE),
    Case("driver-folder-not-searched", CUDA12 + "ENV LD_LIBRARY_PATH=/opt/lib\n", 2,
         CUDA12 + "ENV LD_LIBRARY_PATH=/opt/lib:$LD_LIBRARY_PATH\n", on="gke-libcuda-out-of-reach", other=H100_580),
    Case("driver-folder-not-searched", SLIM + "RUN pip install torch==2.9.0\n", 1, NVIDIA, on="h200",
         other="h200-healthy"),
    Case("driver-inside-image", CUDA12 + "RUN apt-get update && \\\n apt-get install -y nvidia-driver-535\n", 3,
         CUDA12 + "RUN apt-get install -y cuda-toolkit-12-4\n"),
    Case("driver-inside-image", CUDA12 + "RUN apt-get install -y cuda-12-4\n", 2, severity=DEGRADES),
    Case("gpus-not-asked-for", SLIM + "RUN pip install torch==2.9.0\n", 1,
         SLIM + "ENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install torch==2.9.0\n", DEGRADES),
    Case("gpus-not-asked-for", SLIM + "RUN pip install torch==2.9.0\n", 1,
         SLIM + f"RUN pip install torch==2.9.0 --index-url {CPU}\n", DEGRADES),
    Case("gpus-switched-off", NVIDIA + 'ENV CUDA_VISIBLE_DEVICES=""\n', 2, NVIDIA + "ENV CUDA_VISIBLE_DEVICES=0\n"),
    Case("gpus-switched-off", NVIDIA + "ENV CUDA_VISIBLE_DEVICES=3\n", 2, NVIDIA + "ENV CUDA_VISIBLE_DEVICES=0\n",
         on="h200"),
    Case("gpus-switched-off", NVIDIA + "ENV NVIDIA_VISIBLE_DEVICES=void\n", 2,
         NVIDIA + "ENV NVIDIA_VISIBLE_DEVICES=all\n", DEGRADES),
    Case("compute-left-out", NVIDIA + "ENV NVIDIA_DRIVER_CAPABILITIES=graphics,utility\n", 2,
         NVIDIA + "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility\n"),
    Case("compute-left-out", NVIDIA + "ENV NVIDIA_DRIVER_CAPABILITIES=compute\n", 2,
         NVIDIA + "ENV NVIDIA_DRIVER_CAPABILITIES=all\n", DEGRADES),
    Case("user-without-access", NVIDIA + "ENV HF_HOME=/root/.cache/huggingface\nUSER app\n", 2,
         NVIDIA + "ENV HF_HOME=/root/.cache/huggingface\nUSER app\nUSER root\n", DEGRADES),
    Case("user-without-access", NVIDIA + "ENV PATH=/root/.local/bin:$PATH\nUSER 1000:1000\n", 2,
         NVIDIA + "ENV PATH=/opt/venv/bin:$PATH\nUSER 1000:1000\n"),
    Case("base-not-pinned", "FROM pytorch/pytorch\n", 1, "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\n", NOTE),
    Case("base-not-pinned", "FROM pytorch/pytorch:latest\n", 1, "FROM scratch\n", NOTE),
    Case("image-does-not-exist", "FROM nvidia/cuda:latest\n", 1, NVIDIA),
    Case("image-does-not-exist", "FROM nvidia/cuda:12.4-devel-ubuntu22.04\n", 1, CUDA12),
    Case("image-does-not-exist", "FROM nvidia/cuda:10.2-cudnn7-devel-ubuntu18.04\n", 1, CUDA12),
    Case("toolkit-differs-from-torch", CUDA12 + APT + "RUN pip install torch==2.11.0\nRUN pip install flash-attn\n", 4,
         CUDA12 + APT + "RUN pip install torch==2.6.0\nRUN pip install flash-attn\n"),
    Case("toolkit-differs-from-torch", CUDA12 + APT + "RUN pip install torch==2.11.0\n", 3, severity=NOTE,
         near_miss=CUDA13 + APT + "RUN pip install torch==2.11.0\n"),
    Case("toolkit-differs-from-torch", NVIDIA + APT
         + "RUN apt-get install -y cuda-toolkit-12-8\nRUN pip install torch==2.11.0\n"
         "RUN python3 setup.py install\n", 5),
    Case("extension-without-nvcc", "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nRUN pip install flash-attn\n",
         2,
         "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install flash-attn\n", DEGRADES),
    Case("extension-without-nvcc", NVIDIA + APT + "RUN pip install flash-attn\n", 3,
         NVIDIA + APT + "RUN apt-get install -y cuda-toolkit-12-8\nRUN pip install flash-attn\n", DEGRADES),
    Case("arch-list-without-gpu", CUDA12 + 'ENV TORCH_CUDA_ARCH_LIST="8.0;8.6"\n', 2,
         CUDA12 + 'ENV TORCH_CUDA_ARCH_LIST="8.0;9.0a"\n', other="A100, driver 580"),
    Case("arch-list-without-gpu", CUDA12 + "RUN TORCH_CUDA_ARCH_LIST=Ampere pip install -v .\n", 2,
         CUDA12 + "RUN TORCH_CUDA_ARCH_LIST=Hopper pip install -v .\n"),
    Case("arch-list-without-gpu", CUDA12 + 'ENV TORCH_CUDA_ARCH_LIST="8.0+PTX"\n', 2, severity=NOTE,
         near_miss=CUDA12 + 'ENV TORCH_CUDA_ARCH_LIST="9.0+PTX"\n'),
    Case("arch-list-beyond-toolkit", CUDA12 + 'ENV TORCH_CUDA_ARCH_LIST="9.0 12.0"\n', 2,
         "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\n" + 'ENV TORCH_CUDA_ARCH_LIST="9.0 12.0"\n'),
    Case("gpu-during-build", NVIDIA + "RUN nvidia-smi\n", 2, NVIDIA + "CMD nvidia-smi\n"),
    Case("gpu-during-build", SLIM + 'RUN python -c "import torch; assert torch.cuda.is_available()"\n', 2,
         SLIM + 'RUN python -c "import torch; print(torch.__version__)"\n'),
    Case("pip-refused-by-system", "FROM nvidia/cuda:12.8.1-base-ubuntu24.04\n" + APT
         + "RUN pip install torch==2.9.0\n", 3,
         "FROM nvidia/cuda:12.8.1-base-ubuntu24.04\n" + APT + "RUN pip install --break-system-packages torch==2.9.0\n"),
    Case("pip-refused-by-system", "FROM ubuntu:24.04\n" + APT + "RUN pip install torch==2.9.0\n", 3,
         "FROM ubuntu:22.04\n" + APT + "RUN pip install torch==2.9.0\n"),
    Case("pip-refused-by-system", "FROM ubuntu:24.04\n" + APT + "RUN pip install torch==2.9.0\n", 3,
         "FROM ubuntu:24.04\n" + APT
         + "RUN python3 -m venv /opt/venv\nENV PATH=/opt/venv/bin:$PATH\nRUN pip install x\n"),
    Case("no-python-in-image", NVIDIA + "RUN pip install torch==2.9.0\n", 2, NVIDIA + APT
         + "RUN pip install torch==2.9.0\n"),
    Case("no-python-in-image", SLIM.replace("\n", " AS build\n") + "RUN python -m venv /opt/venv\n" + NVIDIA
         + 'COPY --from=build /opt/venv /opt/venv\nENV PATH=/opt/venv/bin:$PATH\nCMD ["python", "a.py"]\n', 3,
         SLIM.replace("\n", " AS build\n") + "RUN python -m venv /opt/venv\n" + NVIDIA + APT
         + 'COPY --from=build /opt/venv /opt/venv\nENV PATH=/opt/venv/bin:$PATH\nCMD ["python", "a.py"]\n'),
    Case("gpu-during-build", SLIM + "RUN nvidia-smi\n", 2, SLIM + "RUN nvidia-smi || true\n"),
    Case("image-other-architecture", "FROM pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime\n", 1, NVIDIA,
         on="gh200-torch-pypi", other=H100_580),
    Case("image-other-architecture", "FROM --platform=linux/arm64 python:3.12\n", 1,
         "FROM --platform=$BUILDPLATFORM python:3.12\n", other="gh200-torch-pypi"),
    Case("image-other-architecture", "FROM nvcr.io/nvidia/l4t-pytorch:r35.2.1-pth2.0-py3\n", 1, on=H100_580,
         other="orin-torch-pypi"),
    Case("rocm-image", "FROM rocm/pytorch:rocm6.2_ubuntu22.04_py3.10_pytorch_2.3.0\n", 1, NVIDIA),
    Case("rocm-image", SLIM + "RUN pip install torch==2.9.0 --index-url https://download.pytorch.org/whl/rocm6.4\n",
         2, SLIM + f"RUN pip install torch==2.9.0 --index-url {CU128}\n", other="gpu-less"),
    Case("vendor-torch-replaced", "FROM nvcr.io/nvidia/pytorch:25.04-py3\nRUN pip install -U torch\n", 2,
         "FROM nvcr.io/nvidia/pytorch:25.04-py3\nRUN pip install torch\n", DEGRADES),
    Case("torch-backend-auto-in-build", SLIM + "RUN uv pip install --system torch --torch-backend=auto\n", 2,
         SLIM + "RUN uv pip install --system torch --torch-backend=cu128\n"),
    Case("torch-backend-auto-in-build", SLIM + "ENV UV_TORCH_BACKEND=auto\nRUN uv pip install --system vllm\n", 2,
         SLIM + "ENV UV_TORCH_BACKEND=auto\nRUN uv pip install --system numpy\n"),
    Case("framework-needs-newer-driver", SLIM + 'RUN pip install "jax[cuda13]"\n', 2,
         SLIM + 'RUN pip install "jax[cuda12]"\n', on=H100_550, other=H100_580),
    Case("framework-without-cuda", NVIDIA + APT + "RUN pip install jax\n", 3,
         NVIDIA + APT + 'RUN pip install "jax[cuda12]"\n', other="gpu-less"),
    Case("framework-without-cuda", SLIM + "RUN pip install onnxruntime\n", 2,
         SLIM + 'RUN pip install "onnxruntime-gpu[cuda,cudnn]"\n', DEGRADES),
    Case("framework-has-no-code-for-gpu", SLIM + 'RUN pip install "tensorflow[and-cuda]==2.15.1"\n', 2,
         on="RTX 5090, driver 580", other=H100_580),
    Case("framework-libraries-differ", "FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04\n" + APT
         + "RUN pip install onnxruntime-gpu==1.18.0\n", 3, "FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04\n" + APT
         + "RUN pip install onnxruntime-gpu==1.22.0\n"),
)  # fmt: skip
ELSEWHERE = "conda-cuda-beyond-driver"  # of pixi.toml alone: test_readers
DOCKERFILE_RULES = [
    rule.code
    for rule in LINT_RULES
    if rule.check.__module__ != "firstlight.lint.compose_rules" and rule.code != ELSEWHERE
]


def _of(case: Case) -> str:
    return f"{case.code}-{CASES.index(case)}"


@pytest.mark.parametrize("case", CASES, ids=_of)
def test_the_rule_fires_on_its_line_with_its_severity(case: Case) -> None:
    hits = [finding for finding in found(case.fires, case.on) if finding.code == case.code]
    assert [(hit.line, hit.severity) for hit in hits] == [(case.line, case.severity)]
    assert hits[0].answers
    assert hits[0].because.endswith(".")


@pytest.mark.parametrize("case", [case for case in CASES if case.near_miss], ids=_of)
def test_the_rule_is_silent_on_the_near_miss(case: Case) -> None:
    assert case.code not in codes(case.near_miss, case.on)


@pytest.mark.parametrize("case", [case for case in CASES if case.other], ids=_of)
def test_the_rule_is_silent_on_another_machine(case: Case) -> None:
    assert case.code not in codes(case.fires, case.other)


@pytest.mark.parametrize("code", DOCKERFILE_RULES)
def test_every_rule_about_images_has_a_case_with_a_near_miss(code: str) -> None:
    assert any(case.code == code and (case.near_miss or case.other) for case in CASES)


def test_codes_are_unique_and_say_a_source() -> None:
    assert len({rule.code for rule in LINT_RULES}) == len(LINT_RULES)
    assert all(rule.source and rule.because.endswith(".") for rule in LINT_RULES)


def test_the_other_wheel_runs_on_the_machine_and_is_of_the_same_release_where_there_is_one() -> None:
    text = SLIM + "RUN pip install torch==2.9.0+cu130 --index-url https://download.pytorch.org/whl/cu130\n"
    (hit,) = [each for each in found(text, H100_550) if each.code == "torch-needs-newer-driver"]
    assert written(hit)[-1] == f"RUN pip install torch==2.9.0+cu128 --index-url {CU128}"


def test_a_torch_copied_from_another_stage_is_judged() -> None:
    text = (
        SLIM.replace("\n", " AS build\n") + "RUN pip install torch\n" + SLIM + "COPY --from=build /opt/venv /opt/venv\n"
    )
    assert "torch-needs-newer-driver" in codes(text, H100_550)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("torch", "torch-needs-newer-driver"),
        ("torch==2.9.0", "torch-is-cpu-only"),
        (f"torch==2.9.0 --index-url {CU128}", "torch-has-no-code-for-gpu"),
        ("torch==2.3.1 --index-url https://download.pytorch.org/whl/cu121", "torch-wheel-does-not-exist"),
    ],
)
def test_a_jetson_is_told_what_the_wheels_for_servers_do_there(line: str, code: str) -> None:
    said = codes(f"{SLIM}RUN pip install {line}\n", "orin-torch-pypi")
    assert {each for each in said if each.startswith("torch") and each != "torch-not-pinned"} == {code}


@pytest.mark.parametrize(("line", "said"), [("assert torch.cuda.is_available()", 1), ("print(torch.__version__)", 0)])
def test_a_program_in_a_heredoc_is_read(line: str, said: int) -> None:
    hits = found(f"{SLIM}RUN python <<PY\nimport torch\n{line}\nPY\n")
    assert [each.line for each in hits if each.code == "gpu-during-build"] == [2] * said


def test_an_image_whose_list_of_branches_is_not_known_is_not_judged() -> None:
    text = "FROM nvidia/cuda:12.3.2-base-ubuntu22.04\n"
    report = lint(Given("Dockerfile", text), machine("V100, driver 535"), read=lambda _: None)
    assert report.findings == ()
    (sentence,) = report.not_judged
    assert "lets in driver 535" in sentence


def test_nothing_is_said_of_a_driver_that_is_not_known() -> None:
    said = codes(CUDA13 + APT + "RUN pip install torch==2.11.0\n", "gpu-less")
    assert not said & {"image-refused-by-driver", "torch-needs-newer-driver", "torch-has-no-code-for-gpu"}


def test_variables_that_nobody_knows_give_no_verdict() -> None:
    text = "ARG BASE\nFROM $BASE\nARG V\nRUN pip install torch==$V\n"
    assert codes(text, H100_550) == set()


SLURM = "#!/bin/bash\n#SBATCH -J a\n"
POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - {name: a, image: 'vllm/vllm-openai:v0.11.0'}\n"
WORDS: list[tuple[str, str, str, str, str]] = [
    # file, machine, text, code, what is not said there
    ("r.txt", H100_550, "torch==2.12.0\n", "torch-needs-newer-driver", "image"),
    ("Dockerfile", H100_550, "FROM nvcr.io/nvidia/l4t-jetpack:r36.2.0\n", "image-other-architecture", "linux/arm64"),
    (
        "j.sh",
        H100_550,
        f"{SLURM}torchrun --nproc_per_node=8 a.py\n",
        "service-without-gpu",
        "the service|--nv",
    ),
    (
        "Dockerfile",
        H100_550,
        "FROM mambaorg/micromamba:2.0\nRUN micromamba install -c conda-forge pytorch=2.5.1=cpu*\n",
        "torch-is-cpu-only",
        "no driver",
    ),
]


@pytest.mark.parametrize(("file", "on", "text", "code", "never"), WORDS)
def test_what_is_said_fits_the_file(file: str, on: str, text: str, code: str, never: str) -> None:
    (seen,) = (each for each in found(text, on, file=file) if each.code == code)
    assert not re.search(never, " ".join((seen.title, seen.saw, seen.because, seen.error)))


def test_lines_of_the_pod_are_not_told_to_stand_in_the_container() -> None:
    (seen,) = (each for each in found(POD, file="pod.yaml") if each.code == "small-shared-memory")
    answer = next(each for each in seen.answers if any("of the pod" in line for line in lines_of(each, seen.syntax)))
    assert "beside `containers` what is marked as of the pod" in says(answer, seen.syntax)
