"""Machines that show the rules about shared libraries, and what changes in the near-miss."""

from __future__ import annotations

from dataclasses import replace

from firstlight.facts.collect import Facts
from tests.diagnosis.rule_case import RuleCase, facts_of


def with_rpath_in_libcusparse(facts: Facts) -> Facts:
    return replace(facts, torch_libraries=facts_of("cuda-lib64-first-rpath").torch_libraries)


def without_the_wheel_of_cuda_12(facts: Facts) -> Facts:
    return replace(facts, nvidia_wheels=tuple(each for each in facts.nvidia_wheels if "cu12" not in each.name))


CASES: tuple[RuleCase, ...] = (
    RuleCase("missing-library", "thor-missing-libraries", ("torch_libraries.missing=",)),
    RuleCase("library-path-breaks", "cuda-lib64-first", with_rpath_in_libcusparse),
    RuleCase("library-path-breaks", "cuda-lib64-first", ("toolkits.toolkits.0.version=12.4.131",)),
    RuleCase("library-path-shadows", "cuda-lib64-newer-first", with_rpath_in_libcusparse),
    RuleCase("two-cuda-majors", "nccl-of-two-majors", without_the_wheel_of_cuda_12),
    RuleCase("cudnn-mix", "cudnn-mix", ("nvidia_wheels.0.version=9.24.0.43",)),
    RuleCase("glibc-too-old", "centos-7", ("glibc=2.27",)),
    RuleCase("libstdcxx-too-old", "conda-without-libstdcxx-link", ("torch_libraries.libstdcxx_offered=3.4.30",)),
)
