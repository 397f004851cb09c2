"""Machines that show the rules about the packages around torch, and what changes in the near-miss."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from firstlight.facts.extensions import Extension, TorchSymbols
from firstlight.facts.known import Known
from tests.diagnosis.rule_case import RuleCase


def with_files(facts: Facts, *files: Extension) -> Facts:
    """The facts with other compiled files beside torch."""
    return replace(facts, extensions=replace(facts.extensions, files=Known(files, "a test")))


def files_of(facts: Facts) -> tuple[Extension, ...]:
    found = facts.extensions.files
    return found.value if isinstance(found, Known) else ()


def all_names_found(facts: Facts) -> Facts:
    return with_files(
        facts, *(replace(each, symbols=Known(TorchSymbols(3, 0, ()), "a test")) for each in files_of(facts))
    )


def code_for_blackwell(facts: Facts) -> Facts:
    return with_files(
        facts, *(replace(each, gpu_code=Known(("sm_80", "sm_120"), "a test")) for each in files_of(facts))
    )


def newer_cudnn(facts: Facts) -> Facts:
    return replace(facts, nvidia_wheels=tuple(replace(each, version="9.8.0.87") for each in facts.nvidia_wheels))


def asks_for_cuda_13(facts: Facts) -> Facts:
    """libcudart.so.13 is torch's own; the others are left out, as the facts know of no file of them here."""
    return with_files(facts, *(replace(each, needed=("libcudart.so.13", "libc.so.6")) for each in files_of(facts)))


def asks_for_nothing(facts: Facts) -> Facts:
    return with_files(facts, *(replace(each, needed=("libc.so.6",)) for each in files_of(facts)))


def without_plain_onnxruntime(facts: Facts) -> Facts:
    environment = facts.environment
    assert environment is not None
    kept = tuple(each for each in environment.distributions if each.name != "onnxruntime")
    python = replace(facts.python, environments=(replace(environment, distributions=kept),))
    return replace(facts, python=python)


def cuda_13_alone(facts: Facts) -> Facts:
    kept = tuple(each for each in facts.nvidia_wheels if not each.name.endswith("-cu12"))
    return replace(facts, nvidia_wheels=kept)


def plugin_of_jaxlib(facts: Facts) -> Facts:
    environment = facts.environment
    assert environment is not None
    same = tuple(replace(each, version="0.9.0.1") for each in environment.distributions)
    return replace(facts, python=replace(facts.python, environments=(replace(environment, distributions=same),)))


CASES: tuple[RuleCase, ...] = (
    RuleCase("companion-wants-other-torch", "vllm-torch-2-9", ("torch.version=2.8.0+cu128",)),
    RuleCase("companions-disagree", "h100-triton-3-4", ("python.environments.0.distributions.1.version=3.5.0",)),
    RuleCase("duplicate-distributions", "duplicate-torch", ("python.environments.0.duplicates=",)),
    RuleCase("extension-for-other-cuda", "flash-attn-cu12", ("companions.0.cuda_major=13",)),
    RuleCase("extension-for-other-torch", "flash-attn-cu12", ("companions.0.built_for_torch=2.9",)),
    RuleCase("extension-lacks-symbols", "flash-attn-old-strings", all_names_found),
    RuleCase("extension-without-gpu-code", "flash-attn-no-blackwell", code_for_blackwell),
    RuleCase("framework-wants-newer-library", "jax-over-torchs-cudnn", newer_cudnn),
    RuleCase("jax-plugin-of-other-version", "jax-plugin-newer", plugin_of_jaxlib),
    RuleCase("packages-share-a-folder", "onnxruntime-twice", without_plain_onnxruntime),
    RuleCase("framework-finds-no-cuda", "onnxruntime-of-cuda-12", asks_for_cuda_13),
    RuleCase("framework-needs-torch-first", "onnxruntime-before-torch", asks_for_nothing),
    RuleCase("nvidia-wheels-left-over", "wheels-left-over", cuda_13_alone),
    RuleCase("project-would-undo", "uv-lock-would-undo", ("python.project_files.0.torch=2.9.0+cu130",)),
)
