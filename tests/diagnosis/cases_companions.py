"""Machines that show the rules about the packages around torch, and what changes in the near-miss."""

from __future__ import annotations

from tests.diagnosis.rule_case import RuleCase

CASES: tuple[RuleCase, ...] = (
    RuleCase("companion-wants-other-torch", "vllm-torch-2-9", ("torch.version=2.8.0+cu128",)),
    RuleCase("companions-disagree", "h100-triton-3-4", ("python.environments.0.distributions.1.version=3.5.0",)),
    RuleCase("duplicate-distributions", "duplicate-torch", ("python.environments.0.duplicates=",)),
    RuleCase("extension-for-other-cuda", "flash-attn-cu12", ("companions.0.cuda_major=13",)),
    RuleCase("extension-for-other-torch", "flash-attn-cu12", ("companions.0.built_for_torch=2.9",)),
    RuleCase("project-would-undo", "uv-lock-would-undo", ("python.project_files.0.torch=2.9.0+cu130",)),
)
