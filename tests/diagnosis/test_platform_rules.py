"""Rules about what a system is: musl, images, labels, nodes, and what they silence in others."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.facts.override import override
from firstlight.facts.place import Platform
from firstlight.facts.torch_libraries import MissingLibrary
from firstlight.tables import load
from firstlight.ways.kinds import AskPerson, InstallPackages, StartContainer, UseImage
from tests.diagnosis.rule_case import facts_of, ways_of

TABLES = load()


def _codes(facts: Facts) -> set[str]:
    return {finding.code for finding in judge(Question(facts, TABLES), RULES).findings}


def _first(facts: Facts, code: str) -> tuple[object, ...]:
    finding = judge(Question(facts, TABLES), RULES).of(code)
    assert finding is not None
    return ways_of(finding)[0]


def test_in_a_container_with_musl_another_image_is_the_only_way_that_works() -> None:
    facts = facts_of("alpine-with-torch")
    assert _first(facts, "musl-has-no-cuda") == (UseImage("python:3.12-slim-bookworm"),)
    finding = judge(Question(facts, TABLES), RULES).of("musl-has-no-cuda")
    assert finding is not None
    assert len(ways_of(finding)) == 1
    assert {"musl" in each.why_not or "symbols" in each.why_not for each in finding.answers if each.why_not} == {True}


def test_an_lxc_container_with_musl_is_made_anew_and_a_host_gets_another_system() -> None:
    facts = facts_of("alpine-with-torch")
    assert _first(override(facts, ("container.kind=incus",)), "musl-has-no-cuda") == (UseImage("debian:12"),)
    [way] = _first(override(facts, ("container.kind=none",)), "musl-has-no-cuda")
    assert isinstance(way, AskPerson)


def test_lxc_gets_the_libraries_of_the_hosts_version_and_docker_does_not() -> None:
    facts = facts_of("lxc-no-nodes")
    start, libraries = _first(facts, "no-gpu-in-container")
    assert start == StartContainer((), gives_gpus=True)
    assert isinstance(libraries, (AskPerson, InstallPackages))
    assert "570.133.20" in repr(libraries)
    docker = override(facts, ("container.kind=docker",))
    assert _first(docker, "no-gpu-in-container") == (StartContainer(("--gpus", "all"), gives_gpus=True),)


def test_a_pod_that_was_given_a_gpu_and_another_runtime_is_told_of_the_class() -> None:
    facts = override(facts_of("docker-no-gpus"), ("container.kind=kubernetes", "container.visible_devices=by name"))
    [way] = _first(facts, "no-gpu-in-container")
    assert way == StartContainer(("runtimeClassName: nvidia",), gives_gpus=True)


def test_no_mig_of_a_cluster_is_turned_off_from_a_pod() -> None:
    facts = override(facts_of("a100-mig-empty"), ("container.kind=kubernetes",))
    [way] = _first(facts, "mig-without-slices")
    assert isinstance(way, StartContainer)
    assert "nvidia.com/mig-" in way.arguments[0]


def test_lxc_is_not_told_of_systemd_and_the_toolkit() -> None:
    facts = override(facts_of("docker-lost-gpus"), ("container.kind=lxc",))
    finding = judge(Question(facts, TABLES), RULES).of("device-access-lost")
    assert finding is not None
    assert "systemd" not in finding.means
    assert "nvidia-ctk" not in repr(finding.answers)


def test_the_c_library_that_python_runs_with_is_not_missing_on_nixos_and_is_on_alpine() -> None:
    missing = MissingLibrary("libc.so.6", ("/x/torch/lib/libtorch_cuda.so",), "")
    facts = facts_of("devices-masked")
    assert isinstance(facts.torch_libraries, Known)
    lacking = replace(facts, torch_libraries=Known(replace(facts.torch_libraries.value, missing=(missing,)), "files"))
    assert "missing-library" not in _codes(override(lacking, ("place.os_id=nixos",)))
    assert "missing-library" in _codes(override(lacking, ("place.os_id=alpine", "runtime.libc=musl")))


def test_a_container_under_wsl_that_was_given_nothing_is_told_so() -> None:
    facts = facts_of("jetson-container-no-runtime")
    place = replace(
        facts.place, platform=Known(Platform.WSL2, "kernel"), kernel_release="6.6.87.2-microsoft-standard-WSL2"
    )
    [way] = _first(replace(facts, place=place), "no-gpu-in-container")
    assert way == StartContainer(("--gpus", "all"), gives_gpus=True)
    given = replace(place, wsl_libraries=Known("/usr/lib/wsl/lib", "/usr/lib/wsl/lib"))
    assert "no-gpu-in-container" not in _codes(replace(facts, place=given))


def test_a_note_about_an_image_changes_nothing_else() -> None:
    facts = facts_of("silverblue-works")
    assert _codes(facts) - _codes(override(facts, ("place.image_based=none",))) == {"system-comes-as-image"}
