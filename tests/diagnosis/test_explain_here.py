"""`explain --here` and doctor agree: a text leads to the finding that doctor has, and to the same first option."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from firstlight.cli.main import run
from firstlight.diagnosis.explain import Explained, Explanation, explain_given, explain_text
from firstlight.diagnosis.explain_here import not_looked_at, shown_here
from firstlight.diagnosis.explain_platform import for_platform
from firstlight.diagnosis.finding import Diagnosis, Question
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.observed import container
from firstlight.diagnosis.rules import RULES
from firstlight.diagnosis.signatures import found_by, signatures
from firstlight.facts.containers import ContainerKind
from firstlight.facts.known import Known
from firstlight.tables import load
from firstlight.ways.platform import platform_of
from tests.diagnosis.rule_case import MACHINES, facts_of
from tests.diagnosis.test_explain_answers import ELIDED
from tests.diagnosis.test_explain_cli import SCHEMA
from tests.diagnosis.test_product_errors import ROWS
from tests.schemas import fits

TABLES = load()
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/machine.json"))
# Findings that have no error text: the machine hangs, is slow, or nothing fails at once.
SILENT = {"cuinit-hangs", "gpu-throttled", "shell-lacks-container-env", "project-would-undo", "setting-slows"}
TOO_OLD = (
    "/usr/local/lib/python3.12/dist-packages/torch/cuda/__init__.py:182: UserWarning: CUDA initialization: The NVIDIA "
    "driver on your system is too old (found version 12080). Please update your GPU driver by downloading and "
    "installing a new version from the URL: http://www.nvidia.com/Download/index.aspx"
)
NO_GPUS = "RuntimeError: No CUDA GPUs are available"
NO_DRIVER = (
    "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed a "
    "driver from http://www.nvidia.com/Download/index.aspx"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.107"
CPU_ONLY = "AssertionError: Torch not compiled with CUDA enabled"
SMI = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
UNKNOWN = "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment"

# As programs and drivers print it on such machines, not as our rules quote it.
MET: tuple[tuple[str, str], ...] = (
    ("h100-driver-570", TOO_OLD),
    ("h100-driver-570-compat-unused", TOO_OLD),
    ("python-path-hides-torch", TOO_OLD),
    ("devices-masked", NO_GPUS),
    ("a100-mig-empty", NO_GPUS),
    ("cuda-sees-none", NO_GPUS),
    ("docker-no-gpus", NO_DRIVER),
    ("gke-libcuda-out-of-reach", NO_DRIVER),
    ("a100-no-driver", SMI),
    ("nouveau-holds-gpu", SMI),
    ("nodes-missing", SMI),
    ("secure-boot", "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"),
    ("ubuntu-half-upgraded", MISMATCH),
    ("image-with-driver-packages", MISMATCH.replace("550.107", "610.43")),
    ("docker-lost-gpus", "Failed to initialize NVML: Unknown Error"),
    ("h200-compat-stale", "CUDA error 803: system has unsupported display driver / cuda driver combination"),
    ("h100-driver-595-compat-580", "cuInit gives 803"),
    ("rtx4090-compat-image", "CUDA error 804: forward compatibility was attempted on non supported HW"),
    ("h100-stub-libcuda", "error 34"),
    ("h100-no-fabric-manager", "CUDA_ERROR_SYSTEM_NOT_READY"),
    ("h200-other-fabric-manager", "RuntimeError: CUDA error: system not yet initialized"),
    ("l20-hmm", "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu."),
    ("uvm-missing", UNKNOWN),
    ("after-suspend", UNKNOWN),
    ("gpu-fell-off", "Unable to determine the device handle for GPU0000:1A:00.0: GPU is lost.  Reboot the system"),
    ("l40-seven-of-eight", "NVRM: (PCI ID: 10de:26b5) installed in this system has\nNVRM: GPU 0000:b3:00.0: GPU has "
     "fallen off the bus."),
    ("gtx1070-under-open-module", "NVRM: installed in this system is not supported by open\nNVRM: nvidia.ko because it "
     "does not include the required GPU\nNVRM: System Processor (GSP)."),
    ("titan-v-does-not-start", "No devices were found"),
    ("blackwell-proprietary", "No devices were found"),
    ("a100-faulty-memory", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("rtx5080-xids", "NVRM: Xid (PCI:0000:18:00): 119, pid=1, name=python, Timeout after 45s of waiting for RPC"),
    ("gpu-prohibited", "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    ("gpu-box-cpu-wheel", CPU_ONLY),
    ("user-site-hides-torch", CPU_ONLY),
    ("gh200-torch-pypi", CPU_ONLY),
    ("orin-torch-pypi", CPU_ONLY),
    ("v100-torch-cu130", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("thor-torch-cu128", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    ("h200-no-torch", "ModuleNotFoundError: No module named 'torch'"),
    ("pytorch-checkout-shadows", "ModuleNotFoundError: No module named 'torch._C'"),
    ("container-empty-libcuda", "OSError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short"),
    ("small-pod", "OSError: [Errno 28] No space left on device"),
)  # fmt: skip


def judged(machine: str) -> Diagnosis:
    return judge(Question(facts_of(machine), TABLES), RULES)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    run([*arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def quoted(machine: str) -> list[tuple[str, str]]:
    """The error texts of what doctor finds as the cause and as its symptoms, with what they leave out filled in."""
    diagnosis = judged(machine)
    mine = [each for each in diagnosis.findings if diagnosis.primary in (each.code, each.caused_by)]
    texts = []
    for finding in mine:
        text = finding.error
        for elided, real in ELIDED:
            text = text.replace(elided, real)
        if text:
            texts.append((finding.code, text))
    return texts


BLAMED = [name for name in NAMES if judged(name).primary and judged(name).primary not in SILENT]


def test_both_can_know_on_more_than_30_machines() -> None:
    assert len({machine for machine, _ in MET}) >= 40
    assert len(BLAMED) >= 60


@pytest.mark.parametrize("machine", BLAMED)
def test_the_texts_that_doctor_quotes_lead_back_to_its_primary_finding(machine: str) -> None:
    diagnosis = judged(machine)
    for code, text in quoted(machine):
        explained = explain_text(text)
        assert explained.explanations, (code, text)
        assert shown_here(explained, diagnosis)[0].code == diagnosis.primary, (code, text)


@pytest.mark.parametrize(("machine", "text"), MET, ids=[f"{number}-{each[0]}" for number, each in enumerate(MET)])
def test_a_text_as_programs_print_it_leads_to_doctors_finding_and_its_first_option(
    machine: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(MACHINES / machine)
    explained = document(capsys, "explain", "--here", "--facts", folder, text)
    doctor = document(capsys, "doctor", "--facts", folder)
    fits(explained, json.loads(SCHEMA.read_text()))
    assert explained["recognised"]
    assert explained["here"][0]["code"] == doctor["primary"]
    told = ("id", "title", "ways")
    assert explained["option"] == [{name: each[name] for name in told} for each in doctor["options"][:1]]
    [finding] = [each for each in doctor["findings"] if each["code"] == doctor["primary"]]
    assert explained["here"][0]["answers"] == finding["answers"]


@pytest.mark.parametrize(
    ("machine", "text"),
    [("h200-healthy", NO_GPUS), ("small-pod", CPU_ONLY), ("gpu-box-cpu-wheel", "OSError: [Errno 28] No space left")],
)
def test_a_text_of_which_nothing_shows_here_leads_nowhere(machine: str, text: str) -> None:
    assert shown_here(explain_given(text), judged(machine)) == ()


def test_the_screen_has_doctors_commands_before_the_ways_out_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(MACHINES / "image-with-driver-packages")
    assert run(["explain", "--here", "--facts", folder, MISMATCH]) == 0
    out = capsys.readouterr().out
    assert out.index("apt-get remove --yes libnvidia-compute-610") < out.index("elsewhere, depending on which it is")
    assert "possible cause elsewhere: " in out


def test_facts_without_here_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "--facts", str(MACHINES / "small-pod"), "error 803"]) == 2
    assert "--here" in capsys.readouterr().err


def test_every_finding_that_a_row_names_is_one_that_a_rule_makes() -> None:
    rules = {rule.code for rule in RULES}
    assert [(each.code, code) for each in signatures() for code in each.related if code not in rules] == []
    assert set(found_by()) <= {each.code for each in signatures() if each.product}
    assert len([each for each in signatures() if each.product and each.related]) >= 190


# A product's words for what doctor finds on the machine, the finding, and one where it is not so.
OF_PRODUCTS = (
    ("docker-no-gpus", "vllm-no-device", "no-gpu-in-container", "h200-healthy"),
    ("gpu-box-cpu-wheel", "accelerate-no-gpu", "torch-cpu-only", "h200-healthy"),
    ("nouveau-holds-gpu", "nouveau-blocks-installer", "nouveau-loaded", "h200-healthy"),
    ("secure-boot", "secure-boot-key-not-available", "secure-boot-blocks-module", "h200-healthy"),
    ("small-pod", "docker-disk-full", "disk-nearly-full", "h200-healthy"),
)


@pytest.mark.parametrize(("machine", "code", "finding", "healthy"), OF_PRODUCTS, ids=[each[1] for each in OF_PRODUCTS])
def test_a_products_error_says_whether_it_is_so_here(
    machine: str, code: str, finding: str, healthy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = next(row["text"] for row in ROWS if row["code"] == code)
    run(["explain", "--here", "--facts", str(MACHINES / machine), text])
    assert f"it is so on this machine: {finding}: " in " ".join(capsys.readouterr().out.split())
    run(["explain", "--here", "--facts", str(MACHINES / healthy), text])
    out = " ".join(capsys.readouterr().out.split())
    assert "not on this machine: no sign of it is here now (looked for " in out
    assert "it is so on this machine" not in out


def test_an_error_that_no_check_goes_with_is_not_denied(capsys: pytest.CaptureFixture[str]) -> None:
    text = next(row["text"] for row in ROWS if row["code"] == "transformers-adamw-removed")
    run(["explain", "--here", "--facts", str(MACHINES / "h200-healthy"), text])
    assert "whether it is so here is not known: no check" in " ".join(capsys.readouterr().out.split())


def test_a_text_that_is_not_known_is_not_denied(capsys: pytest.CaptureFixture[str]) -> None:
    run(["explain", "--here", "--facts", str(MACHINES / "h200-healthy"), "FrobError: cannot frob"])
    out = capsys.readouterr().out
    assert "not on this machine" not in out
    assert "this machine: " in out


NO_TOOLKIT = 'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].'
XID = "NVRM: Xid (PCI:0000:18:00): 119, pid=1, name=python, Timeout after 45s of waiting for RPC"


@pytest.mark.parametrize(
    ("machine", "text", "said"),
    [
        ("docker-no-gpus", NO_TOOLKIT, "could not be looked at here: container-runtime-missing: it is the host's"),
        ("h200-healthy", XID, "could not be looked at here: xid-seen: dmesg: not found"),
        ("h200-no-torch", CPU_ONLY, "could not be looked at here: torch-cpu-only: "),
    ],
)
def test_what_a_check_could_not_look_at_is_not_denied(
    machine: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["explain", "--here", "--facts", str(MACHINES / machine), text])
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert "not on this machine" not in out


def test_a_rule_that_never_fires_inside_a_container_says_that_it_is_the_hosts() -> None:
    silenced: set[str] = set()
    speaking: set[str] = set()
    for name in NAMES:
        facts = facts_of(name)
        if container(facts) is not None:
            continue
        inside = replace(facts, container=replace(facts.container, kind=Known(ContainerKind.DOCKER, "test")))
        for rule in RULES:
            if any(rule.check(Question(facts, TABLES))):
                (speaking if any(rule.check(Question(inside, TABLES))) else silenced).add(rule.code)
    assert {rule.code for rule in RULES if rule.of_host} == silenced - speaking


def test_every_fact_that_a_rule_needs_is_one() -> None:
    for name in ("h200-healthy", "docker-no-gpus", "a100-no-driver"):
        assert len(not_looked_at(facts_of(name), RULES)) < len(RULES)
    looks_at = {rule.code: {path.split(".")[0] for path in rule.looks_at} for rule in RULES}
    paths = [(rule.code, path) for rule in RULES for path in (*rule.needs, *rule.settled_by)]
    assert [(code, path) for code, path in paths if path.split(".")[0] not in looks_at[code]] == []


def _screen(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    run(["explain", *words])
    return capsys.readouterr().out


def test_the_commands_of_another_package_manager_are_left_out_here(capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = _screen(capsys, TOO_OLD)
    assert "sudo apt-get install cuda-compat-13-0\n" in elsewhere
    here = _screen(capsys, "--here", "--facts", str(MACHINES / "fedora-44-cuda-12-8"), TOO_OLD)
    assert "apt-get install" not in " ".join(here.split())
    left_out = (
        "(Commands of apt-get are left out: this machine has dnf. Wanted is what apt-get calls cuda-compat-13-0.)"
    )
    assert left_out in " ".join(here.split())
    assert "sudo apt-get install cuda-compat-13-0\n" in _screen(
        capsys, "--here", "--facts", str(MACHINES / "h200-healthy"), TOO_OLD
    )


def test_no_row_has_a_command_of_another_package_manager_on_any_machine() -> None:
    everything = Explained(tuple(Explanation(each, 1, ()) for each in signatures()), 1, 1, ())
    for machine, foreign in (("fedora-44-cuda-12-8", "apt-get"), ("h200-healthy", "dnf")):
        fitted = for_platform(everything, platform_of(facts_of(machine)))
        lines = [line for each in fitted.explanations for way in each.signature.ways_out for line in way.run]
        assert [line for line in lines if line.startswith((f"sudo {foreign} ", f"{foreign} "))] == []
        assert len(lines) > 500


def test_one_line_names_here_where_a_check_goes_with_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert _screen(capsys, TOO_OLD).count("--here") == 1
    assert "--here" not in _screen(capsys, "--here", "--facts", str(MACHINES / "h200-healthy"), TOO_OLD)
    unchecked = next(row["text"] for row in ROWS if row["code"] == "transformers-adamw-removed")
    assert "--here" not in _screen(capsys, unchecked)


@pytest.mark.parametrize("text", ["FrobError: cannot frob", "RuntimeError: CUDA error: device-side assert triggered"])
def test_with_a_saved_machine_the_commands_that_follow_name_it(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(MACHINES / "h200-healthy")
    lines = _screen(capsys, "--here", "--facts", folder, text).splitlines()
    assert [line.strip() for line in lines if line.strip().startswith("firstlight doctor")] == [
        f"firstlight doctor --facts {folder}"
    ]
    assert not any("--record" in line for line in lines)
