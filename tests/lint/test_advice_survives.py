"""Advice that is followed ends its finding, and brings none that is as bad: every judged file, on six machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.lint_corpus import MACHINES, given_of

from firstlight.lint.edits import apply
from firstlight.lint.judge import Given, lint
from firstlight.lint.written import says
from firstlight.ways.asks import words_asked
from firstlight.ways.kinds import AskPerson, InstallWheels, MakeEnvironment, UseImage, WireCompat
from tests.lint.linting import FILES, found
from tests.lint.linting import machine as machine_of
from tests.lint.surviving import outcomes
from tests.lint.test_lint_rules import CASES, Case
from tests.plan.planning import ranked_of

CORPUS = Path(__file__).parent / "corpus"
GIVEN = [
    (path.parent, given_of(path.parent, json.loads(path.read_text()))) for path in sorted(CORPUS.glob("*/case.json"))
]
GIVEN += [(FILES, Given(path.name, path.read_text())) for path in sorted(FILES.iterdir())]
# What no machine can write, by what its answers leave open.
BY_HAND = {
    "arch-list-beyond-toolkit",  # another toolkit, of a base whose torch and system go with it
    "arch-list-without-gpu",
    "framework-has-no-code-for-gpu",  # a build that no index has: NVIDIA's for Jetson, or one of one's own
    "framework-without-cuda",
    "image-other-architecture",  # the program's own image for that processor, whose name is in no table
    "rocm-image",
    "toolkit-differs-from-torch",  # a torch, or a base, of a CUDA whose release is not said
    "torch-backend-auto-in-build",  # an image with vLLM for Jetson
    "torch-has-no-code-for-gpu",  # in another file, in a lock (uv writes it anew), or two lines at once
    "torch-is-cpu-only",
    "torch-needs-newer-driver",
    "torch-not-pinned",  # where no torch at all is known to run
    "torch-overwritten-later",  # two lines at once
}


@pytest.mark.parametrize(("folder", "given"), GIVEN, ids=[f"{folder.name}-{given.file}" for folder, given in GIVEN])
def test_advice_that_is_followed_ends_the_finding_and_brings_no_worse_one(folder: Path, given: Given) -> None:
    for machine in MACHINES:
        all_ = outcomes(given, folder, machine)
        assert not [each.wrong for each in all_ if each.wrong], machine
        assert {each.code for each in all_ if each.by_hand} <= BY_HAND


def test_nine_of_ten_findings_have_an_answer_that_can_be_followed() -> None:
    all_ = [each for folder, given in GIVEN for machine in MACHINES for each in outcomes(given, folder, machine)]
    assert sum(not each.by_hand for each in all_) / len(all_) > 0.93


def _first(text: str, on: str, code: str) -> tuple[object, ...]:
    (finding,) = (each for each in found(text, on) if each.code == code)
    return finding.answers[0].ways


def test_a_torch_without_code_for_the_gpu_is_not_kept() -> None:
    text = "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nRUN pip install vllm==0.11.0\n"
    install, image = _first(text, "RTX 5090, driver 580", "torch-overwritten-later")
    assert isinstance(install, InstallWheels)
    assert isinstance(image, UseImage)
    assert image.image == "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"


def test_where_another_python_would_do_no_newer_driver_is_asked_for() -> None:
    base = "FROM nvidia/cuda:12.8.1-base-ubuntu20.04\nRUN apt-get update && apt-get install -y python3-pip\n"
    text = f"{base}RUN pip install torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130\n"
    hits = [each for each in found(text, "H100, driver 550") if each.code.startswith("torch")]
    ways = [way for each in hits for answer in each.answers for way in answer.ways]
    environment, wheels, *_ = ways
    assert isinstance(environment, MakeEnvironment)
    assert isinstance(wheels, InstallWheels)
    assert wheels.packages[0].version == "2.9.0+cu128"
    assert not any("newer driver" in says(answer, each.syntax) for each in hits for answer in each.answers)


def test_compat_comes_first_where_doctor_puts_it_first() -> None:
    text = "FROM python:3.12\nRUN pip install torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130\n"
    ways = _first(text, "H100, driver 570", "torch-needs-newer-driver")
    assert [type(way) for way in ways][-1] is WireCompat
    assert any(isinstance(way, WireCompat) for way in ranked_of("h100-driver-570").options[0].ways)


@pytest.mark.parametrize("case", [case for case in CASES if "<<" not in case.fires], ids=lambda case: case.code)
def test_an_answer_that_is_written_leaves_a_file_that_parses(case: Case) -> None:
    for finding in found(case.fires, case.on):
        for answer in finding.answers:
            text = apply(case.fires, finding, answer)
            assert text is None or (text != case.fires and found(text, case.on) is not None)


IMAGE = "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime"
SBATCH = "#!/bin/bash\n#SBATCH --gpus-per-node=1\n"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("job.sbatch", f"{SBATCH}apptainer exec --nv docker://{IMAGE} python train.py\n"),
        ("job.sbatch", f"{SBATCH}IMAGE=docker://{IMAGE}\nsingularity run --nv $IMAGE python train.py\n"),
        ("job.sbatch", f"{SBATCH}srun --container-image={IMAGE} python train.py\n"),
        ("job.sbatch", f"{SBATCH}docker run --gpus all -v /data:/data {IMAGE} python train.py\n"),
        (".devcontainer/devcontainer.json", f'{{\n "image": "{IMAGE}",\n "runArgs": ["--gpus=all"]\n}}\n'),
        (
            ".github/workflows/ci.yml",
            "on: push\njobs:\n  test:\n    runs-on: [self-hosted, gpu]\n    container:\n"
            f"      image: {IMAGE}\n      options: --gpus all\n    steps:\n      - run: python train.py\n",
        ),
    ],
)
def test_where_the_torch_is_in_an_image_another_image_is_named_and_ends_it(file: str, text: str) -> None:
    (hit,) = (each for each in found(text, "H100, driver 550", file=file) if each.code.startswith("torch"))
    (way,) = hit.answers[0].ways
    assert way == UseImage(IMAGE.replace("13.0", "12.8"))
    changed = apply(text, hit, hit.answers[0])
    assert changed == text.replace("cuda13.0", "cuda12.8")
    assert found(changed, "H100, driver 550", file=file) == ()


def test_what_goes_beside_a_torch_goes_with_the_torch_that_is_advised() -> None:
    """torch==2.15.0, of CUDA 13, and cupy-cuda12x in one report: followed, the second would be wrong again."""
    text, on = "torch==2.4.1\ncupy-cuda11x\n", "RTX 5090, driver 580"
    hits = {each.code: each for each in found(text, on, file="requirements.txt")}
    for code in ("framework-libraries-differ", "torch-has-no-code-for-gpu"):
        changed = apply(text, hits[code], hits[code].answers[0])
        assert changed is not None
        text = changed
    assert text == "torch==2.15.0\ncupy-cuda13x\n"
    assert found(text, on, file="requirements.txt") == ()
    kept = {each.code: each for each in found("torch==2.4.1\ncupy-cuda13x\n", on, file="requirements.txt")}
    assert kept["framework-libraries-differ"].answers[0].title.startswith("keep it: it goes with torch 2.15.0")


def test_a_torch_that_works_nowhere_there_is_not_pinned() -> None:
    (pin,) = (
        each for each in found("torch<2.6\n", "RTX 5090, driver 580", file="requirements.txt") if "pin" in each.code
    )
    (way,) = pin.answers[0].ways
    assert isinstance(way, AskPerson)
    assert words_asked(way) == "pin one that runs there: see torch-has-no-code-for-gpu"


@pytest.mark.parametrize("where", ["    container: nvidia/cuda:12.4.1-base-ubuntu22.04\n", ""])
def test_a_wheel_that_does_not_exist_is_missing_on_githubs_own_runners_too(where: str) -> None:
    step = "pip install torch==2.9.0 --index-url https://download.pytorch.org/whl/cu121"
    text = f"on: push\njobs:\n  test:\n    runs-on: ubuntu-22.04\n{where}    steps:\n      - run: {step}\n"
    report = lint(Given(".github/workflows/ci.yml", text), machine_of("H100, driver 550"), read=lambda _: None)
    assert "torch-wheel-does-not-exist" in {each.code for each in report.findings}
    assert report.not_judged == ()  # whether it has code for the GPU is no question then


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n    - name: x\n      image: IMAGE\n"
RESERVED = (
    "services:\n  x:\n    image: IMAGE\n    ipc: host\n    COMMAND\n"
    "    deploy:\n      resources:\n        reservations:\n          devices:\n"
)


@pytest.mark.parametrize(
    ("file", "text", "becomes"),
    [
        (
            "compose.yaml",
            RESERVED.replace("COMMAND", "command: torchrun --nproc_per_node=8 t.py")
            + "            - {driver: nvidia, count: 8, capabilities: [gpu]}\n",
            ("--nproc_per_node=1 t.py", "count: all"),
        ),
        (
            "compose.yaml",
            RESERVED.replace("COMMAND", "command: python t.py")
            + "            - driver: nvidia\n              device_ids:\n                - '1'\n"
            "              capabilities: [gpu]\n",
            ("              count: all\n              capabilities: [gpu]\n",),
        ),
        (
            "pod.yaml",
            POD + '      args: ["--model", "m", "--tensor-parallel-size", "2"]\n      resources:\n        limits:\n'
            '          nvidia.com/gpu: "2"\n',
            ('"--tensor-parallel-size", "1"', 'nvidia.com/gpu: "1"'),
        ),
        (
            "job.sbatch",
            "#!/bin/bash\n#SBATCH --gres=gpu:h100:4\nsrun torchrun --nproc-per-node 4 t.py\n",
            ("--gres=gpu:h100:1", "--nproc-per-node 1 t.py"),
        ),
    ],
)
def test_fewer_gpus_are_asked_for_and_used(file: str, text: str, becomes: tuple[str, ...]) -> None:
    """count: all alone left torchrun starting eight processes on one GPU."""
    text = text.replace("IMAGE", "vllm/vllm-openai:v0.11.0")
    (hit,) = (each for each in found(text, "H100, driver 580", file=file) if each.code == "more-gpus-than-machine")
    changed = apply(text, hit, hit.answers[0])
    assert changed is not None
    assert all(each in changed for each in becomes), changed
    assert "more-gpus-than-machine" not in {each.code for each in found(changed, "H100, driver 580", file=file)}


def test_a_framework_is_not_moved_to_a_cuda_that_the_machine_does_not_run() -> None:
    text = "FROM nvidia/cuda:13.0.1-devel-ubuntu24.04\nRUN pip install cupy-cuda12x==13.6.0 --break-system-packages\n"
    for on, moved in (("H100, driver 580", True), ("V100, driver 535", False), ("RTX 4090, driver 550", False)):
        (hit,) = (each for each in found(text, on) if each.code == "framework-libraries-differ")
        (way,) = hit.answers[0].ways
        assert isinstance(way, InstallWheels if moved else UseImage), (on, way)


def test_an_index_of_a_project_takes_the_place_of_the_lines_of_the_same_name() -> None:
    text = (
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch==2.5.1"]\n[tool.uv.sources]\n'
        'torch = { index = "old" }\n[[tool.uv.index]]\nname = "old"\nurl = "https://download.pytorch.org/whl/cu124"\n'
    )
    on = "RTX 5090, driver 570"
    hit = next(each for each in found(text, on, file="pyproject.toml") if each.severity.value == "blocks")
    changed = apply(text, hit, hit.answers[0])
    assert changed is not None
    assert found(changed, on, file="pyproject.toml") == (), changed
    assert changed.count("torch = { index = ") == 1


ROCM = "rocm/pytorch:rocm6.2.4_ubuntu22.04_py3.10_pytorch_release_2.6.0"


def test_an_image_for_amd_gives_way_to_one_that_has_code_for_the_gpu_and_to_nvidias_devices() -> None:
    (image,) = _first(f"FROM {ROCM}\n", "RTX 5090, driver 580", "rocm-image")
    assert isinstance(image, UseImage)
    assert found(f"FROM {image.image}\n", "RTX 5090, driver 580") == ()
    job = f"{SBATCH}srun singularity exec --rocm docker://{ROCM} python train.py --device cuda\n"
    (hit,) = (each for each in found(job, "H100, driver 570", file="job.sbatch") if each.code == "rocm-image")
    assert says(hit.answers[0], hit.syntax).endswith("with --nv in place of --rocm")


def test_no_platform_alone_does_not_help_where_the_image_is_for_that_processor_alone() -> None:
    text = "FROM --platform=linux/amd64 pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime\n"
    (hit,) = found(text, "orin-torch-pypi")
    assert says(hit.answers[0], hit.syntax).startswith("leave --platform out, and, as pytorch/pytorch:2.9.0-cuda12.8")


def test_a_toolkit_whose_image_the_machine_refuses_is_not_advised() -> None:
    text = 'FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nENV TORCH_CUDA_ARCH_LIST="8.9 12.0"\n'
    (hit,) = (each for each in found(text, "RTX 4090, driver 550") if each.code == "arch-list-beyond-toolkit")
    assert [says(each, hit.syntax) for each in hit.answers] == ["take 12.0 out"]


def test_a_job_is_told_to_ask_for_as_many_gpus_as_it_starts_processes() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=1\ntorchrun --nproc_per_node=4 train.py --backend nccl\n"
    (hit,) = found(text, "8x H100, driver 570", file="job.sbatch")
    changed = apply(text, hit, hit.answers[0])
    assert changed is not None
    assert "#SBATCH --gpus-per-node=4" in changed
    assert found(changed, "8x H100, driver 570", file="job.sbatch") == ()
