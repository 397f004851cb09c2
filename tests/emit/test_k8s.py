"""The Job and the Pod as Kubernetes reads them: by the schemas of several releases, strictly."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from firstlight.emit.document import Emitted
from firstlight.emit.k8s import emit_k8s
from firstlight.emit.subject import BenchJob, Choices
from firstlight.errors import BadInput
from tests.emit.subjects import HOSTILE, NEW_H100, OLD_H100, subject, text_of

IMAGE = "registry.example.com/team/torch:1"
GATE = ["/opt/firstlight/entrypoint.sh", "nvidia-smi", "--list-gpus"]
RELEASES = ("1.25", "1.29", "1.33", "1.37")


def _emitted(machine: str = OLD_H100, *wants: str, **choices: Any) -> Emitted:
    return emit_k8s(subject(machine, *wants, choices=Choices(**{"image": IMAGE, **choices})))


def _documents(emitted: Emitted) -> dict[str, dict[str, Any]]:
    return {file.name: yaml.safe_load(file.text) for file in emitted.files}


def _specs(emitted: Emitted) -> list[dict[str, Any]]:
    """What a node is told, of the Job and of the Pod."""
    read = _documents(emitted)
    return [read["job.yaml"]["spec"]["template"]["spec"], read["pod.yaml"]["spec"]]


def test_the_gate_runs_first_in_the_same_image_and_one_gpu_is_asked_for() -> None:
    for spec in _specs(_emitted()):
        [gate], [main] = spec["initContainers"], spec["containers"]
        assert (gate["image"], main["image"], gate["command"]) == (IMAGE, IMAGE, GATE)
        assert gate["resources"] == main["resources"] == {"limits": {"nvidia.com/gpu": 1}}
        assert "command" not in main  # the entrypoint decides about compat
        [volume] = spec["volumes"]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
        assert main["volumeMounts"] == [{"name": volume["name"], "mountPath": "/dev/shm"}]
        assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
        assert "runtimeClassName" not in spec


def test_the_job_proves_and_the_pod_waits() -> None:
    job, pod = _specs(_emitted())
    assert job["containers"][0]["args"][:2] == ["firstlight", "verify"]
    assert pod["containers"][0]["args"] == ["sleep", "infinity"]
    assert job["restartPolicy"] == pod["restartPolicy"] == "Never"


def test_nothing_in_it_is_refused_where_pods_are_restricted() -> None:
    for spec in _specs(_emitted()):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        for container in (*spec["initContainers"], *spec["containers"]):
            held = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert container["securityContext"] == held


def test_a_runtime_class_is_written_where_one_is_named() -> None:
    assert [spec["runtimeClassName"] for spec in _specs(_emitted(runtime_class="nvidia"))] == ["nvidia", "nvidia"]
    assert any("--runtime-class nvidia" in note for note in _emitted().notes)


def test_a_torch_without_cuda_asks_for_no_gpu() -> None:
    for spec in _specs(_emitted(NEW_H100, "torch==2.9.0+cpu")):
        assert "tolerations" not in spec
        assert spec["initContainers"][0]["command"][-1] == "true"
        assert not any("resources" in each for each in (*spec["initContainers"], *spec["containers"]))


def test_wheels_for_arm_go_to_nodes_of_arm() -> None:
    assert _specs(_emitted("GH200, driver 580", "torch==2.11.0"))[0]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("runtime_class", ["", "nvidia"])
def test_every_release_takes_it_strictly(release: str, runtime_class: str) -> None:
    reader = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for document in _documents(_emitted(runtime_class=runtime_class)).values():
        reader.validate(document, release, strict=True)


def _bench(nodes: int, gpus: int = 8, **choices: str) -> Emitted:
    made = subject(NEW_H100, choices=Choices(**{"image": IMAGE, **choices}))
    return emit_k8s(replace(made, bench=BenchJob(nodes, gpus)))


def test_a_bench_job_is_indexed_and_its_pods_meet_by_the_names_of_a_headless_service() -> None:
    [file] = _bench(4, name="links").files
    service, job = yaml.safe_load_all(file.text)
    assert (file.name, service["kind"], job["kind"]) == ("bench.yaml", "Service", "Job")
    assert service["spec"]["clusterIP"] == "None"
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    pod = spec["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"] == job["metadata"]["name"] == "links"
    assert service["spec"]["selector"] == spec["template"]["metadata"]["labels"]
    [rule] = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    [main] = pod["containers"]
    assert main["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert main["args"][-4:] == ["--nodes", "4", "--rendezvous", "links-0.links:29500"]
    port = service["spec"]["ports"][0]["port"]
    assert main["args"][-1].endswith(f":{port}")


def test_a_bench_job_of_one_node_meets_nobody() -> None:
    [file] = _bench(1).files
    [job] = yaml.safe_load_all(file.text)
    assert "completionMode" not in job["spec"]
    assert "--rendezvous" not in job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_firstlight_runs_in_the_python_whose_torch_is_measured(tmp_path: Path) -> None:
    """The line that the container's sh gets, with the two environments of the image in another folder."""
    [file] = _bench(1).files
    [job] = yaml.safe_load_all(file.text)
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    for name in ("tool", "env"):
        (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / "tool/bin/python").write_text('#!/bin/sh\necho "/opt/a b/site-packages"\n')
    (tmp_path / "env/bin/python").write_text('#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$@"\n')
    for name in ("tool", "env"):
        (tmp_path / name / "bin/python").chmod(0o755)
    line = [word.replace("/opt/firstlight/", f"{tmp_path}/") for word in arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["/opt/a b/site-packages", "-m", "firstlight", *arguments[4:]]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_every_release_takes_a_bench_job_strictly(release: str, nodes: int) -> None:
    reader = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for document in yaml.safe_load_all(_bench(nodes).files[0].text):
        reader.validate(document, release, strict=True)


def test_a_name_that_is_too_long_for_a_bench_job_is_refused() -> None:
    assert _bench(2, name="a" * 57).files
    with pytest.raises(BadInput, match="--name"):
        _bench(2, name="a" * 58)


def test_that_reader_refuses_a_field_that_is_wrong() -> None:
    reader = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    wrong = _documents(_emitted())["job.yaml"]
    wrong["spec"]["template"]["spec"]["runtimeClass"] = "nvidia"
    with pytest.raises(reader.ValidationError):
        reader.validate(wrong, RELEASES[-1], strict=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_says_about_the_machine_stays_in_a_comment(text: str) -> None:
    choices = Choices(image=IMAGE)
    plain, hostile = (_documents(emit_k8s(subject(made_for=name, choices=choices))) for name in (OLD_H100, text))
    assert plain == hostile


@pytest.mark.parametrize("text", [*HOSTILE, "A", "-a", "a" * 58])
@pytest.mark.parametrize("field", ["image", "name", "runtime_class"])
def test_names_that_could_be_more_than_names_are_refused(field: str, text: str) -> None:
    if (field, text) in {("image", "A"), ("image", "a" * 58), ("runtime_class", "a" * 58)}:
        return  # these are names
    with pytest.raises(BadInput, match=f"--{field.replace('_', '-')}"):
        _emitted(**{field: text})


def test_the_plan_is_named_and_the_same_subject_gives_the_same_bytes() -> None:
    emitted = _emitted()
    assert f"# plan {emitted.digest}\n" in text_of(emitted, "pod.yaml")
    assert _documents(emitted)["job.yaml"]["metadata"]["annotations"]["firstlight/plan"] == emitted.digest
    assert emitted == _emitted()
