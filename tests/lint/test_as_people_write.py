"""Ways of writing that real repositories have, and that lint once read wrongly or not at all."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Severity
from firstlight.lint.edits import apply
from firstlight.lint.images import image_named
from firstlight.lint.judge import Given, lint
from firstlight.ways.kinds import UseImage
from tests.lint.linting import H100_550, H100_580, found, machine, written

RTX_5090, V100, H100_570 = "RTX 5090, driver 580", "V100, driver 535", "H100, driver 570"
CPU_INDEX = "--index-url https://download.pytorch.org/whl/cpu"


def codes(text: str, on: str = RTX_5090, *, file: str = "Dockerfile", beside: dict[str, str] | None = None) -> set[str]:
    return {each.code for each in found(text, on, file=file, beside=beside)}


@pytest.mark.parametrize(
    ("name", "torch", "cuda"),
    [
        ("runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel-ubuntu22.04", "2.1.0", "11.8"),
        ("runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404", "2.8.0", "12.8"),
        ("somebody/pytorch:th2.6.0-cu124-flashattn2.7.4-cxx11abi0-devel", "2.6.0", "12.4"),
        ("mosaicml/pytorch:2.1.2_cu121-python3.10-ubuntu20.04", "2.1.2", "12.1"),
        ("1.dkr.ecr.us-west-2.amazonaws.com/pytorch-training:2.0.1-gpu-py310-cu118-ubuntu20.04-ec2", "2.0.1", "11.8"),
        ("deepspeed/deepspeed:v072_torch112_cu117", "1.12", "11.7"),
        ("somebody/axolotl:main-py3.11-cu124-2.6.0", "2.6.0", "12.4"),
        ("rayproject/ray:2.9.0-py310-cu118", "None", "11.8"),
        ("somebody/tool:2.4.0-cuda12.4.1", "None", "12.4"),
    ],
)
def test_the_torch_of_somebodys_own_image_is_in_its_tag(name: str, torch: str, cuda: str) -> None:
    image = image_named(name)
    assert (str(image.torch), str(image.cuda.release if image.cuda else None)) == (torch, cuda)


def test_such_an_image_is_judged_by_its_torch_and_its_processor() -> None:
    text = "FROM runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel-ubuntu22.04\n"
    assert codes(text) == {"torch-has-no-code-for-gpu"}
    assert codes(text, "gh200-torch-pypi") == {"image-other-architecture"}


CHOICE = (
    "FROM python:3.12-slim\nENV NVIDIA_VISIBLE_DEVICES=all\nARG DEVICE={device}\n"
    'RUN if [ "$DEVICE" = "cuda" ]; then \\\n  pip install torch==2.9.0; \\\n'
    f'elif [ -z "x" ]; then pip install torch==2.5.1; else pip install torch==2.9.0 {CPU_INDEX}; fi\n'
)


def test_a_branch_that_the_arguments_rule_out_is_not_read() -> None:
    assert codes(CHOICE.format(device="cpu")) == {"torch-is-cpu-only"}
    assert codes(CHOICE.format(device="cuda")) == set()


def test_a_test_that_the_text_does_not_settle_leaves_every_branch() -> None:
    text = 'FROM python:3.12\nRUN if [ "$(uname -m)" = "x86_64" ]; then pip install torch==2.5.1; fi\n'
    assert "torch-has-no-code-for-gpu" in codes(text)


@pytest.mark.parametrize(("operator", "said"), [("&&", True), ("||", False)])
def test_what_stands_behind_a_test_is_read_where_the_test_lets_it(operator: str, said: bool) -> None:  # noqa: FBT001
    text = f'FROM python:3.12\nARG NEW=0\nRUN [ "$NEW" = 0 ] {operator} pip install torch==2.5.1\n'
    assert ("torch-has-no-code-for-gpu" in codes(text)) is said


def test_a_variable_of_the_same_run_is_put_in_and_may_hold_several_words() -> None:
    text = "FROM python:3.12\nRUN deps='torch==2.5.1 numpy' \\\n && pip install --no-cache-dir $deps\n"
    (finding,) = (each for each in found(text, RTX_5090) if each.code == "torch-has-no-code-for-gpu")
    assert finding.line == 3
    chosen = "FROM python:3.12\nARG A=1\nRUN if [ $A = 1 ]; then V=2.5.1; else V=2.9.0; fi; pip install torch==$V\n"
    assert "torch-has-no-code-for-gpu" in codes(chosen)


def test_the_processor_of_the_machine_chooses_the_branch() -> None:
    install = f"pip install torch==2.9.0 {CPU_INDEX}"
    text = f'FROM python:3.12\nARG TARGETARCH\nRUN if [ "$TARGETARCH" = "arm64" ]; then {install}; fi\n'
    assert "torch-is-cpu-only" not in codes(text)
    assert "torch-is-cpu-only" in codes(text, "gh200-torch-pypi")


POETRY = '[tool.poetry]\nname = "x"\nversion = "0"\n[tool.poetry.dependencies]\npython = "^3.11"\ntorch = "2.4.1"\n'
PIXI = (
    '[workspace]\nname = "x"\nchannels = ["conda-forge"]\nplatforms = ["linux-64"]\n'
    '[dependencies]\npython = "3.11.*"\n[pypi-dependencies]\ntorch = "==2.4.1"\n'
)


@pytest.mark.parametrize(
    ("command", "file", "content"),
    [
        ("poetry install --no-root", "pyproject.toml", POETRY),
        ("pixi install --locked", "pixi.toml", PIXI),
        ("pixi install", "pixi.toml", PIXI.replace('[dependencies]\npython = "3.11.*"\n', "")),
    ],
)
def test_what_poetry_and_pixi_install_is_read_from_their_file(command: str, file: str, content: str) -> None:
    text = f"FROM python:3.11\nRUN {command}\n"
    lines = [each.line for each in found(text, RTX_5090, beside={file: content}) if each.code.startswith("torch-has")]
    assert lines == [2]


POD = "containers: [{name: main, image: nvidia/cuda:12.4.1-base-ubuntu22.04, command: [mpirun, -np, '8', all_reduce]}]"


@pytest.mark.parametrize(
    ("kind", "path", "said"),
    [
        ("RayCluster", "spec: {headGroupSpec: {template: {spec: {POD}}}}", False),
        ("RayCluster", "spec: {workerGroupSpecs: [{template: {spec: {POD}}}]}", True),
        ("MPIJob", "spec: {mpiReplicaSpecs: {Launcher: {template: {spec: {POD}}}}}", False),
        ("MPIJob", "spec: {mpiReplicaSpecs: {Worker: {template: {spec: {POD}}}}}", True),
    ],
)
def test_a_pod_that_only_starts_others_needs_no_gpu_and_no_shared_memory(kind: str, path: str, said: bool) -> None:  # noqa: FBT001
    text = f"apiVersion: x/v1\nkind: {kind}\n{path.replace('POD', POD)}\n"
    wanted = {"service-without-gpu", "small-shared-memory"} if said else set()
    assert codes(text, file="job.yaml") == wanted


TORCH = "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"


@pytest.mark.parametrize(
    ("file", "name", "body", "said"),
    [
        ("compose.yml", "web", f"image: {TORCH}", True),
        ("compose.yml", "web-cpu", f"image: {TORCH}", False),
        ("compose.cpu.yml", "web", f"image: {TORCH}", False),
        ("compose.yml", "web", f"{{image: {TORCH}, command: python main.py --cpu}}", False),
        ("compose.yml", "web", f"{{image: {TORCH}, environment: {{DEVICE: cpu}}}}", False),
        ("compose.yml", "web", f"{{image: {TORCH}, command: chown -R 1000 /data}}", False),
        ("compose.yml", "web", f"{{image: {TORCH}, command: sleep infinity}}", True),
    ],
)
def test_a_service_that_is_to_run_without_a_gpu_is_left_alone(file: str, name: str, body: str, said: bool) -> None:  # noqa: FBT001
    text = f"services:\n  {name}: {body if body.startswith('{') else '{' + body + '}'}\n"
    assert ("service-without-gpu" in codes(text, file=file)) is said


def test_a_model_server_in_a_name_uses_no_shared_memory() -> None:
    text = "services: {epp: {image: some/epp:1.0, command: [-poolName, vllm-llama3]}}\n"
    assert codes(text, file="compose.yml") == set()


@pytest.mark.parametrize(
    ("tag", "on", "said"),
    [("v0.8.5", RTX_5090, True), ("v0.10.0", RTX_5090, False), ("v0.10.0", V100, True), ("v0.8.5", V100, False)],
)
def test_vllms_image_has_the_cuda_it_was_built_with_not_that_of_pypis_torch(tag: str, on: str, said: bool) -> None:  # noqa: FBT001
    assert ("framework-has-no-code-for-gpu" in codes(f"FROM vllm/vllm-openai:{tag}\n", on)) is said


def test_jax_for_a_tpu_is_not_told_to_take_cuda() -> None:
    assert codes("jax[tpu]==0.4.36\n", file="requirements.txt") == set()
    assert codes("jax==0.4.36\n", file="requirements.txt") == {"framework-without-cuda"}


@pytest.mark.parametrize("line", ["torch==1.10.0", "torch==1.12.1+cu113", "vllm==0.5.3"])
def test_older_releases_are_known(line: str) -> None:
    text = f"--extra-index-url https://download.pytorch.org/whl/cu113\n{line}\n"
    assert codes(text, file="requirements.txt") == {"torch-has-no-code-for-gpu"}


def test_a_script_that_sets_up_the_machine_may_install_its_driver() -> None:
    line = "apt-get install -y nvidia-driver-580-open\n"
    assert codes(f"#!/bin/bash\n{line}", H100_570, file="setup.sh") == set()
    assert codes(f"FROM nvidia/cuda:12.4.1-base-ubuntu22.04\nRUN {line}", H100_570) == {"driver-inside-image"}


def test_a_companion_from_an_address_is_of_the_release_that_it_names() -> None:
    wheel = "https://example.com/torchvision-0.24.0%2Bcu128-cp312-cp312-linux_x86_64.whl"
    base = "FROM python:3.12\nENV NVIDIA_VISIBLE_DEVICES=all\nRUN pip install torch==2.9.0\n"
    assert codes(f"{base}RUN pip install {wheel}\n") == set()
    assert "torch-overwritten-later" in codes(f"{base}RUN pip install {wheel.replace('0.24.0', '0.20.1')}\n")
    assert codes(f"{base}RUN pip install git+https://github.com/pytorch/vision.git\n") == set()


def test_a_source_beside_a_torch_without_cuda_needs_no_nvcc() -> None:
    source = "RUN pip install git+https://github.com/facebookresearch/detectron2.git\n"
    assert codes(f"FROM python:3.12\nRUN pip install torch==2.9.0 {CPU_INDEX}\n{source}") == {"torch-is-cpu-only"}
    assert "extension-without-nvcc" in codes(f"FROM python:3.12\nRUN pip install torch==2.9.0\n{source}")


def test_an_image_is_not_named_alone_where_a_later_line_wants_the_torch_that_was_in_it() -> None:
    """With another image alone, vllm==0.6.6 would put torch 2.5.1 back, which has no code for the GPU."""
    text = "FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\nRUN pip install vllm==0.6.6\n"
    (finding,) = found(text, RTX_5090)
    title = finding.answers[0].title
    (image,) = (each.image for each in finding.answers[0].ways if isinstance(each, UseImage))
    release = title.partition("name vllm==")[2].partition(" ")[0]
    assert "on line 2" in title
    assert codes(f"FROM {image}\nRUN pip install vllm=={release}\n") == set()
    assert codes(f"FROM {image}\nRUN pip install vllm==0.6.6\n") >= {"torch-has-no-code-for-gpu"}


EXPORTER = """\
services:
  exporter:
    image: utkuozdemir/nvidia_gpu_exporter:1.2.1
    runtime: nvidia
    environment:
      NVIDIA_VISIBLE_DEVICES: all
      NVIDIA_DRIVER_CAPABILITIES: utility
  watch:
    image: nvidia/cuda:12.4.1-base-ubuntu22.04
    command: nvidia-smi -l 5
    runtime: nvidia
    environment:
      NVIDIA_DRIVER_CAPABILITIES: utility
"""


def test_what_only_looks_at_gpus_needs_utility_alone() -> None:
    assert "compute-left-out" not in codes(EXPORTER, file="compose.yaml")
    served = EXPORTER.replace("command: nvidia-smi -l 5", "command: /opt/bin/whisper-server")
    assert "compute-left-out" in codes(served, file="compose.yaml")


def test_a_step_that_starts_a_container_ends_with_dockers_own_words() -> None:
    text = "on: [push]\njobs:\n  t:\n    runs-on: ubuntu-22.04\n    steps:\n      - run: docker run --gpus all app\n"
    [seen] = found(text, RTX_5090, file=".github/workflows/ci.yml")
    assert seen.code == "runner-without-gpu"
    assert "could not select device driver" in seen.error


@pytest.mark.parametrize(("tool", "named"), [("poetry", "pyproject.toml"), ("pdm", "pyproject.toml")])
def test_a_project_of_another_tool_is_told_to_name_the_release_in_its_own_file(tool: str, named: str) -> None:
    text = f"FROM python:3.11\nRUN pip install {tool}\nCOPY pyproject.toml ./\nRUN {tool} install\n"
    beside = {"pyproject.toml": '[project]\nname = "a"\nversion = "1"\ndependencies = ["torch==2.3.1"]\n'}
    [seen] = [each for each in found(text, RTX_5090, beside=beside) if each.code == "torch-has-no-code-for-gpu"]
    assert seen.answers[0].title.endswith(f"in {named}")


@pytest.mark.parametrize(
    ("line", "on", "advice"),
    [
        ("jax==0.4.30", H100_580, "jax[cuda12]==0.4.30"),
        ("jax==0.7.1", H100_580, "jax[cuda12]==0.7.1"),
        ("jax==0.7.2", H100_580, "jax[cuda13]==0.7.2"),
        ("jax==0.7.2", H100_550, "jax[cuda12]==0.7.2"),
        ("jax<0.5", H100_580, "jax[cuda12]<0.5"),
        ("jax", H100_580, "jax[cuda13]"),
        ("jax==0.4.20", H100_580, "jax[cuda12]>=0.4.22"),
        ("jax[cuda13]==0.4.30", H100_580, "jax[cuda12]==0.4.30"),
        ("jax[cuda13]~=0.4.30", H100_580, "jax[cuda12]~=0.4.30"),
        ("jax[cuda12_pip]==0.6.0", H100_580, "jax[cuda12]==0.6.0"),
        ("jax[cuda12_pip]", H100_580, "jax[cuda13]"),
    ],
)
def test_the_plugin_of_jax_is_one_that_the_release_has(line: str, on: str, advice: str) -> None:
    (finding,) = found(f"{line}\n", on, file="requirements.txt")
    assert finding.code == "framework-without-cuda"
    assert apply(f"{line}\n", finding, finding.answers[0]) == f"{advice}\n"
    assert codes(f"{advice}\n", on, file="requirements.txt") == set()


@pytest.mark.parametrize("line", ["jax[cuda12]==0.4.30", "jax[cuda12_pip]==0.5.3", "jax[cuda12]==0.4.13", "jax[cuda]"])
def test_an_extra_that_a_release_has_or_that_nobody_looked_at_is_let_be(line: str) -> None:
    assert codes(f"{line}\n", file="requirements.txt") == set()


def test_a_pin_of_jax_stays_when_the_driver_asks_for_another_plugin() -> None:
    text = "jax[cuda13]==0.8.0\n"
    (finding,) = found(text, H100_550, file="requirements.txt")
    assert finding.code == "framework-needs-newer-driver"
    assert apply(text, finding, finding.answers[0]) == "jax[cuda12]==0.8.0\n"


JOB = """#!/bin/bash
#SBATCH --gres=gpu:4
SIF=/proj/images/pytorch_2.6.0.sif
srun apptainer exec --bind /data "$SIF" torchrun --nproc_per_node=8 train.py
"""


def test_a_container_of_a_file_without_nv_and_more_ranks_than_the_job_has_gpus() -> None:
    for on in ("4x A100, driver 535", "8x H100, driver 570"):
        hits = found(JOB, on, file="train.sbatch")
        assert [(hit.code, hit.line) for hit in hits] == [("service-without-gpu", 4), ("more-gpus-than-machine", 4)]
        assert "no --nv" in hits[0].saw
    right = JOB.replace("exec --bind", "exec --nv --bind")
    (hit,) = found(right, "8x H100, driver 570", file="train.sbatch")
    assert "takes 8 GPUs; job gets 4" in hit.saw
    for near in (right.replace("node=8", "node=4"), right.replace("gpu:4", "gpu:8")):
        assert found(near, "8x H100, driver 570", file="train.sbatch") == ()
    on_cpu = JOB.replace("torchrun --nproc_per_node=8 train.py", "python unpack.py")
    assert found(on_cpu, "8x H100, driver 570", file="train.sbatch") == ()


@pytest.mark.parametrize("word", ["--gpus all", "--ipc host"])
def test_an_option_and_its_value_in_one_word_of_runargs(word: str) -> None:
    text = f'{{"image": "python:3.12",\n "runArgs": ["{word}"],\n "hostRequirements": {{"gpu": true}}}}'
    (hit,) = found(text, H100_580, file="devcontainer.json")
    assert (hit.code, hit.line) == ("service-without-gpu", 2)
    assert word.replace(" ", "=") in hit.answers[0].title
    for near in (word.replace(" ", "="), word.replace(" ", '", "')):
        assert found(text.replace(word, near), H100_580, file="devcontainer.json") == ()


CONDA = """channels: [pytorch, nvidia]
dependencies:
  - python=3.12
  - pytorch=2.1.2
  - pytorch-cuda=11.8
"""


def test_condas_torch_has_no_build_for_that_python() -> None:
    (hit,) = found(CONDA, "RTX 4090, driver 525", file="environment.yml")
    assert (hit.code, hit.line) == ("torch-wheel-does-not-exist", 4)
    assert "use Python 3.11" in hit.answers[0].title
    assert found(CONDA.replace("3.12", "3.11"), "RTX 4090, driver 525", file="environment.yml") == ()
    of_forge = CONDA.replace("  - pytorch-cuda=11.8\n", "").replace("[pytorch, nvidia]", "[conda-forge]")
    assert "torch-wheel-does-not-exist" not in codes(of_forge, "RTX 4090, driver 525", file="environment.yml")


def test_the_torch_that_is_named_is_kept_where_uv_is_told_which_backend() -> None:
    text = "FROM python:3.12\nRUN uv pip install --system torch==2.9.1 torchvision==0.24.1 --torch-backend=auto\n"
    (hit,) = (each for each in found(text, H100_570) if each.code == "torch-backend-auto-in-build")
    assert [str(each) for each in written(hit)] == [
        "RUN pip install torch==2.9.1+cu128 torchvision==0.24.1+cu128 --index-url https://download.pytorch.org/whl/cu128"
    ]


def test_an_image_of_an_older_jetson_linux_has_no_code_for_a_thor() -> None:
    text = "FROM dustynv/l4t-pytorch:r36.4.0\nRUN pip3 install --no-deps ultralytics==8.3.40\n"
    (hit,) = found(text, "Jetson Thor, driver 580")
    assert hit.code == "torch-has-no-code-for-gpu"
    assert "Jetson Linux 36.4, whose CUDA is 12.6" in hit.saw
    assert found(text, "Jetson Orin, driver 540.4.0") == ()
    assert found(text.replace("r36.4.0", "r38.2.0"), "Jetson Thor, driver 580") == ()


def test_whether_a_servers_image_lets_the_driver_in_is_among_what_was_not_judged() -> None:
    text = "services:\n  v:\n    image: vllm/vllm-openai:v0.11.0\n    gpus: all\n    ipc: host\n"
    for on, told in (("RTX 4090, driver 550", True), ("RTX 4090, driver 570", False)):
        report = lint(Given("compose.yml", text), machine(on), read=lambda path: None)
        assert any("lets in driver 550" in each for each in report.not_judged) is told
    own = text + "    environment: {NVIDIA_DISABLE_REQUIRE: '1'}\n"
    assert not lint(Given("compose.yml", own), machine("RTX 4090, driver 550"), read=lambda path: None).not_judged


def test_a_vendors_torch_that_is_replaced_under_what_the_image_imports_blocks() -> None:
    text = "FROM nvcr.io/nvidia/pytorch:25.06-py3\nRUN pip install -U torch\n"
    start = 'CMD ["python", "-c", "import torch, transformer_engine.pytorch as te"]\n'
    for more, severity in (
        (start, Severity.BLOCKS),
        ("", Severity.DEGRADES),
        (start.replace("transformer_engine", "json"), Severity.DEGRADES),
    ):
        (hit,) = (each for each in found(text + more, "8x B200, driver 580") if each.code == "vendor-torch-replaced")
        assert hit.severity is severity
