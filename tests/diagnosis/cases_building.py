"""Machines that show the rules about building, and what changes in the near-miss."""

from __future__ import annotations

from dataclasses import replace

from firstlight.diagnosis.finding import Goal
from firstlight.facts.collect import Facts
from tests.diagnosis.rule_case import RuleCase, facts_of

BUILD = Goal.BUILD_EXTENSIONS


def with_every_folder_writable(facts: Facts) -> Facts:
    prefixes = tuple(replace(each, writable=True) for each in facts.ability.prefixes)
    return replace(facts, ability=replace(facts.ability, prefixes=prefixes))


def with_compilers(facts: Facts) -> Facts:
    return replace(facts, compilers=facts_of("nvcc-12-9-torch-cu128").compilers)


CASES: tuple[RuleCase, ...] = (
    RuleCase("nvcc-major-differs", "h100-nvcc-13-torch-cu128", ("torch.wheel_cuda=13.0",), BUILD),
    RuleCase("nvcc-minor-differs", "nvcc-12-9-torch-cu128", ("torch.wheel_cuda=12.9",), BUILD),
    RuleCase("toolkit-incomplete", "pip-toolkit-without-lib64", ("toolkits.toolkits.0.missing=nvrtc",), BUILD),
    RuleCase("host-compiler-out-of-range", "fedora-44-cuda-12-8", ("toolkits.toolkits.0.gcc_max=15",), BUILD),
    RuleCase("glibc-breaks-cuda-headers", "fedora-44-cuda-12-8", ("glibc=2.40",), BUILD),
    RuleCase(
        "cuda-home-unset",
        "pip-toolkit-without-lib64",
        ("toolkits.cpp_extension_home=/root/venv/lib/python3.12/site-packages/nvidia/cu13",),
    ),
    RuleCase("cuda-home-unset", "no-toolkit", ("torch.build=cpu",), BUILD),
    RuleCase("nvcc-is-wrapper", "nvcc-wrapper", ("toolkits.nvcc_on_path.is_wrapper=false",)),
    RuleCase(
        "arch-flag-drops-features",
        "h100-nvcc-13-torch-cu128",
        ("build_variables.0.value=-gencode arch=compute_90a,code=sm_90a",),
    ),
    RuleCase("arch-unknown-to-toolkit", "nvcc-wrapper", ("build_variables.0.value=7.5;8.0;9.0;12.0",)),
    RuleCase("too-little-memory-per-job", "orin-flash-attention", ("resources.processors=3",)),
    RuleCase("prefix-not-writable", "thor-source-build", with_every_folder_writable),
    RuleCase("externally-managed-python", "thor-source-build", ("python.environments.0.externally_managed=false",)),
    RuleCase("build-tools-missing", "no-toolkit", with_compilers, BUILD),
)
