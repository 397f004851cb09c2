"""Compose files are read with their lines, anchors, merge keys and variables; each rule about services on and off."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.finding import Severity
from firstlight.errors import BadInput
from firstlight.lint.compose import read_compose
from firstlight.lint.compose_rules import COMPOSE_LINT_RULES, runner_without_gpu
from firstlight.lint.dockerfile import Text
from firstlight.lint.images import image_named
from firstlight.lint.model import Place, Ran, Service, Syntax, Target, Where
from firstlight.lint.reading import Reading
from firstlight.lint.shell import simple_commands
from tests.lint.linting import H100_580, found, machine, written

HEAD = "services:\n  train:\n    image: nvidia/cuda:12.8.1-runtime-ubuntu22.04\n"
GPU = "    gpus: all\n"
SHM = "    shm_size: 8gb\n"
RESERVED = "    deploy: {resources: {reservations: {devices: [{%s}]}}}\n"


def _targets(text: str, **variables: str) -> dict[str, Target]:
    reading = Reading("compose.yml", text, Syntax.COMPOSE, lambda _: None, variables=tuple(variables.items()))
    found_ = read_compose(reading)
    return {target.name: target for target in found_}


def _codes(text: str, on: str = H100_580) -> dict[str, tuple[int, Severity]]:
    return {each.code: (each.line, each.severity) for each in found(text, on, file="compose.yml")}


WORKERS = HEAD + GPU + "    command: torchrun --nproc-per-node=2 train.py\n"


@pytest.mark.parametrize(
    ("code", "text", "line", "near_miss"),
    [
        ("service-without-gpu", HEAD + SHM, 2, HEAD + SHM + GPU),
        ("service-without-gpu", HEAD + SHM, 2, HEAD + SHM + "    runtime: nvidia\n"),
        ("service-without-gpu", HEAD + SHM, 2, HEAD + SHM + "    devices: [nvidia.com/gpu=all]\n"),
        ("service-without-gpu", HEAD + SHM, 2, HEAD + SHM + RESERVED % "driver: nvidia, capabilities: [gpu]"),
        ("service-without-gpu", HEAD + SHM, 2, "services:\n  web:\n    image: nginx:1.27\n"),
        (
            "service-without-gpu",
            HEAD
            + SHM
            + "    deploy:\n      resources:\n        limits:\n          devices:\n            - capabilities: [gpu]\n",
            9,
            HEAD + SHM + RESERVED % "capabilities: [gpu]",
        ),
        (
            "reservation-without-gpu",
            HEAD + SHM + RESERVED % "driver: nvidia, count: 1",
            5,
            HEAD + SHM + RESERVED % "driver: nvidia, count: 1, capabilities: [gpu]",
        ),
        (
            "reservation-without-gpu",
            HEAD + SHM + RESERVED % "count: 1, device_ids: ['0'], capabilities: [gpu]",
            5,
            HEAD + SHM + RESERVED % "device_ids: ['0'], capabilities: [gpu]",
        ),
        (
            "reservation-without-gpu",
            HEAD + SHM + RESERVED % "capabilities: [gpu, utility]",
            5,
            HEAD + SHM + RESERVED % "capabilities: [gpu, utility, compute]",
        ),
        ("small-shared-memory", WORKERS, 2, WORKERS + SHM),
        ("small-shared-memory", WORKERS, 2, WORKERS + "    ipc: host\n"),
        ("small-shared-memory", WORKERS + "    shm_size: 256m\n", 2, WORKERS + "    shm_size: 2147483648\n"),
        ("small-shared-memory", WORKERS, 2, WORKERS + "    tmpfs: /dev/shm:size=8g\n"),
        ("small-shared-memory", WORKERS, 2, HEAD + GPU),  # nothing shows that it passes tensors through /dev/shm
    ],
)
def test_a_rule_about_services_fires_on_its_line_and_not_on_the_near_miss(
    code: str, text: str, line: int, near_miss: str
) -> None:
    assert _codes(text)[code][0] == line
    assert code not in _codes(near_miss)


def test_more_gpus_than_the_machine_has_are_counted() -> None:
    text = HEAD + SHM + RESERVED % "count: 4, capabilities: [gpu]"
    assert _codes(text, "h200")["more-gpus-than-machine"] == (5, Severity.BLOCKS)
    assert "more-gpus-than-machine" in _codes(text, H100_580)
    assert "more-gpus-than-machine" not in _codes(text, "8x H100, driver 580")
    assert "more-gpus-than-machine" not in _codes(text.replace("count: 4", "count: all"), "h200")
    assert "more-gpus-than-machine" in _codes(HEAD + SHM + RESERVED % "device_ids: ['1'], capabilities: [gpu]", "h200")


def test_every_rule_about_services_is_tried_in_this_file() -> None:
    tried = {"service-without-gpu", "reservation-without-gpu", "more-gpus-than-machine", "small-shared-memory"}
    tried |= {"runner-without-gpu"}
    assert {rule.code for rule in COMPOSE_LINT_RULES} == tried


def test_the_nvidia_runtime_needs_an_image_that_asks_for_gpus() -> None:
    inline = (
        "services:\n  train:\n    runtime: nvidia\n    ipc: host\n    build:\n      dockerfile_inline: |\n"
        "        FROM python:3.12\n        RUN pip install torch==2.9.0\n"
    )
    assert _codes(inline)["gpus-not-asked-for"] == (2, Severity.BLOCKS)
    assert "gpus-not-asked-for" not in _codes(inline + "    environment: [NVIDIA_VISIBLE_DEVICES=all]\n")


@pytest.mark.parametrize(
    "environment",
    ["    environment:\n      - CUDA_VISIBLE_DEVICES=-1\n", "    environment:\n      CUDA_VISIBLE_DEVICES: '-1'\n"],
)
def test_the_environment_of_a_service_is_judged_as_the_images_is(environment: str) -> None:
    assert _codes(HEAD + GPU + SHM + environment)["gpus-switched-off"] == (7, Severity.BLOCKS)


def test_anchors_and_merge_keys_are_followed_and_own_keys_win() -> None:
    text = (
        "x-a: &a {shm_size: 1gb, ipc: host}\nx-b: &b {runtime: nvidia}\nservices:\n"
        "  one:\n    <<: [*a, *b]\n    image: a:1\n    shm_size: 2gb\n"
    )
    service = _targets(text)["one"].service
    assert service is not None
    assert (service.shm_size, service.ipc, service.runtime) == ("2gb", "host", "nvidia")


def test_variables_take_their_default_or_what_is_given() -> None:
    text = "services:\n  one:\n    image: nvidia/cuda:${CUDA:-12.8.1}-base-ubuntu22.04\n"
    assert _targets(text)["one"].image.tag == "12.8.1-base-ubuntu22.04"
    assert _targets(text, CUDA="13.0.2")["one"].image.tag == "13.0.2-base-ubuntu22.04"


def test_a_dockerfile_beside_the_compose_file_is_read_with_its_arguments_and_target() -> None:
    text = (
        "services:\n  one:\n    build:\n      context: ./app\n      target: gpu\n      args: {CUDA: 13.0.2}\n"
        "  two:\n    build: ../elsewhere\n"
    )
    files = {"deploy/app/Dockerfile": "ARG CUDA=12.8.1\nFROM nvidia/cuda:$CUDA-base-ubuntu22.04 AS gpu\nFROM alpine\n"}
    one, two = read_compose(Reading("deploy/compose.yaml", text, Syntax.COMPOSE, files.get))
    assert one.image.name == "nvidia/cuda:13.0.2-base-ubuntu22.04"
    assert (one.place.file, one.place.line) == ("deploy/app/Dockerfile", 2)
    assert two.image.name == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", "compose.yml:2: not YAML"),
        ("services:\n\t- x\n", "compose.yml:2: not YAML"),
        ("", "no services in it"),
        ("- a\n- b\n", "no services in it"),
        ("services: []\n", "no services in it"),
        ("services:\n", "no services in it"),
        ("[" * 1500, "nested too deeply|not YAML"),
        ("a: \x01\n", "not YAML"),
        ("services:\n  a: &a\n    <<: {<<: *a}\n    image: b\n", "merge keys .* nested too deeply"),
    ],
)
def test_what_is_no_compose_file_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        _targets(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "body",
    ["3", "[]", "null", "{deploy: 1}", "{deploy: {resources: [1]}}", "{environment: 5, build: [], image: {}}",
     "{gpus: , devices: {a: b}, deploy: {resources: {reservations: {devices: [1, {count: {}}]}}}}"],
)  # fmt: skip
def test_services_of_odd_shapes_are_read_without_a_crash(body: str) -> None:
    assert list(_targets(f"services:\n  one: {body}\n")) == ["one"]


@pytest.mark.parametrize(
    ("label", "script", "said"),
    [
        ("ubuntu-latest", "nvidia-smi", 1),
        ("ubuntu-latest", "nvidia-smi || true", 0),
        ("ubuntu-latest", "pytest -q", 0),
        ("self-hosted", "nvidia-smi", 0),
        ("linux-gpu-t4", "nvidia-smi", 0),
    ],
)
def test_a_job_that_needs_a_gpu_is_not_for_a_runner_without_one(label: str, script: str, said: int) -> None:
    place = Place("ci.yml", 3, Syntax.WORKFLOW)
    steps = tuple(Ran(each, place) for each in simple_commands((Text(script, 7),)))
    job = Service("test", place, (), gpus=False, runtime="", shm_size="", ipc="host", runs_on=(label,))
    target = Target("test", image_named(""), place, steps, service=job, where=Where.RUNNER)
    assert len(list(runner_without_gpu(target, machine(H100_580)))) == said


def _served(count: str, split: str) -> str:
    device = f"{{driver: nvidia, count: {count}, capabilities: [gpu]}}"
    return (
        f"services:\n  llm:\n    image: vllm/vllm-openai:v0.11.0\n    ipc: host\n    command: --model x {split}\n"
        f"    deploy: {{resources: {{reservations: {{devices: [{device}]}}}}}}\n"
    )


@pytest.mark.parametrize("split", ["--tensor-parallel-size 2", "--tensor-parallel-size=2", "-tp 2"])
@pytest.mark.parametrize("count", ["2", "all"])
def test_a_model_that_is_split_over_two_gpus_is_not_told_to_take_all_of_one(count: str, split: str) -> None:
    (hit,) = found(_served(count, split), "H100, driver 580", file="compose.yml")
    assert hit.code == "more-gpus-than-machine"
    (answer,) = hit.answers
    assert answer.title.startswith("take a machine with 2 GPUs, or ")
    assert found(_served(count, split), "2x H100, driver 580", file="compose.yml") == ()
    assert found(_served("all", split.replace("2", "1")), "H100, driver 580", file="compose.yml") == ()


@pytest.mark.parametrize("command", ["--tensor-parallel-size 2", '["--tensor-parallel-size=2"]', "|\n      -tp 2"])
def test_options_alone_are_read_as_those_of_the_images_program(command: str) -> None:
    text = (
        f"services:\n  v:\n    image: vllm/vllm-openai:v0.10.1\n    gpus: all\n    ipc: host\n    command: {command}\n"
    )
    assert [hit.code for hit in found(text, "H100, driver 570", file="compose.yml")] == ["more-gpus-than-machine"]
    assert found(text, "2x H100, driver 570", file="compose.yml") == ()


POD = """apiVersion: v1
kind: Pod
metadata: {name: t}
spec:
  containers:
  - name: t
    image: vllm/vllm-openai:v0.10.1
    args: ["--tensor-parallel-size=2"]
    resources: {limits: {nvidia.com/gpu: 1}}
    volumeMounts: [{name: shm, mountPath: /dev/shm}]
  volumes: [{name: shm, emptyDir: {medium: Memory}}]
"""


def test_a_command_that_takes_more_gpus_than_its_pod_gets_is_told_both_ways_out() -> None:
    (hit,) = found(POD, "2x H100, driver 570", file="pod.yaml")
    assert (hit.code, hit.line) == ("more-gpus-than-machine", 8)
    assert "takes 2 GPUs; t gets 1" in hit.saw
    assert [written(hit)[0], hit.answers[1].title] == [
        "resources: {limits: {nvidia.com/gpu: 2}}",
        "--tensor-parallel-size 1",
    ]
    for near in (POD.replace("gpu: 1", "gpu: 2"), POD.replace("size=2", "size=1")):
        assert found(near, "2x H100, driver 570", file="pod.yaml") == ()


def test_a_service_that_gets_one_card_and_a_command_for_two() -> None:
    text = """services:
  v:
    image: vllm/vllm-openai:v0.10.1
    ipc: host
    command: --tensor-parallel-size 2
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 1, capabilities: [gpu]}]}}}
"""
    assert [hit.code for hit in found(text, "2x H100, driver 570", file="compose.yml")] == ["more-gpus-than-machine"]
    for near in ("count: 2", "count: all", 'device_ids: ["0", "1"]'):
        assert found(text.replace("count: 1", near), "2x H100, driver 570", file="compose.yml") == ()
