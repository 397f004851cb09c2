"""Machines that show the rules about torch itself, and what changes in the near-miss."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from tests.diagnosis.rule_case import RuleCase, facts_of


def with_torch_installed(facts: Facts) -> Facts:
    return replace(facts, torch=facts_of("pytorch-checkout-shadows").torch)


CASES: tuple[RuleCase, ...] = (
    RuleCase("torch-not-installed", "h200-no-torch", with_torch_installed),
    RuleCase(
        "no-wheel-for-python",
        "h200-no-torch",
        ("python.environments.0.python_version=3.11.9",),
        wants=("torch==2.1.0",),
    ),
    RuleCase("torch-not-as-wanted", "h200-healthy", ("torch.version=2.5.1+cu124",), wants=("torch<2.6",)),
    RuleCase("torch-cpu-only", "gpu-box-cpu-wheel", ("torch.build=cuda",)),
    RuleCase("torch-for-other-vendor", "rocm-torch-on-nvidia", ("torch.build=cuda",)),
    RuleCase("arch-not-in-wheel", "v100-torch-cu130", ("capability=7.5",)),
    RuleCase("arch-not-in-wheel", "thor-torch-cu128", ("torch.compiled_for=sm_80, sm_90, sm_100, sm_110, sm_120",)),
    RuleCase("aarch64-wheel-without-cuda", "gh200-torch-pypi", ("torch.recorded_version=2.9.0+cpu",)),
    RuleCase("jetson-needs-own-wheel", "orin-torch-pypi", ("place.platform=sbsa",)),
    RuleCase("triton-too-old-for-gpu", "gb10-triton-3-5", ("companions.0.version=3.6.0",)),
    RuleCase("torch-shadowed", "pytorch-checkout-shadows", ("torch.shadowed_by=",)),
    RuleCase("nvidia-wheel-off-pin", "h100-cudnn-off-pin", ("nvidia_wheels.0.version=9.1.0.70",)),
)
