"""The checks, in the order in which they are told. To add one: a script in children/ and an entry here.

Each check has a process of its own: a library that crashes, hangs or leaves a CUDA error behind then spoils one line
and no other. The price is one import of torch each; checks of one lane run one after the other, lanes side by side, so
that compilers (BUILD) and shells (SHELL) work while the GPU does.
"""

from __future__ import annotations

from typing import Any

from firstlight.facts.known import Known
from firstlight.tables.feature_lookups import features
from firstlight.verify.check import Case, Check, Lane, Need
from firstlight.verify.features import judge_features
from firstlight.verify.fresh import CRON, INTERACTIVE, LOGIN, SSH
from firstlight.verify.judges import OURS, judge_libraries, judge_own_kernels, judge_shell
from firstlight.verify.needs import gpus_built_in
from firstlight.verify.so_files import judge_so_files


def _about_gpus(case: Case) -> dict[str, Any]:
    visible = case.facts.gpus.cuda_visible_devices
    sliced = any(isinstance(gpu.mig_mode, Known) and gpu.mig_mode.value for gpu in case.facts.gpus.devices)
    hidden = visible.value if isinstance(visible, Known) else ""
    return {"gpus": gpus_built_in(case), "visible_devices": hidden, "sliced": sliced}


def _device(case: Case) -> dict[str, Any]:
    return {"device": "cuda" if gpus_built_in(case) else "cpu"}


def _about_features(case: Case) -> dict[str, Any]:
    wanted = {}
    for row in features():
        least = row.least_capability
        wanted[row.feature] = [] if least is None else [least.major, least.minor]
    return {"features": wanted}


CHECKS = (
    Check("import", "torch imports", "import_torch", (), Lane.GPU, 180.0),
    Check("cpu", "the processor computes", "cpu_math", (Need.TORCH,), Lane.BUILD, 90.0, after=("import",)),
    Check(
        "gpus",
        "every GPU computes a product that matches float64",
        "gpu_math",
        (Need.TORCH, Need.GPU),
        Lane.GPU,
        120.0,
        after=("import",),
        asks=_about_gpus,
    ),
    Check(
        "kernels",
        "torch's own kernels run on every GPU",
        "own_kernels",
        (Need.TORCH, Need.WORKING_GPU),
        Lane.GPU,
        90.0,
        after=("gpus",),
        judge=judge_own_kernels,
    ),
    Check(
        "cublas",
        "cuBLAS multiplies in every format",
        "cublas",
        (Need.TORCH, Need.WORKING_GPU),
        Lane.GPU,
        90.0,
        after=("gpus",),
    ),
    Check(
        "cudnn",
        "cuDNN convolves",
        "cudnn",
        (Need.TORCH, Need.WORKING_GPU),
        Lane.GPU,
        90.0,
        after=("gpus",),
    ),
    Check(
        "sdpa",
        "each attention backend works",
        "attention",
        (Need.TORCH, Need.WORKING_GPU),
        Lane.GPU,
        90.0,
        after=("gpus",),
    ),
    Check(
        "libraries",
        "the libraries loaded are the intended ones",
        "loaded_libraries",
        (Need.TORCH,),
        Lane.GPU,
        90.0,
        after=("import",),
        asks=lambda case: {"names": list(OURS)},
        judge=judge_libraries,
    ),
    Check(
        "nccl",
        "NCCL reduces across the GPUs",
        "collective",
        (Need.TORCH, Need.WORKING_GPU, Need.SECOND_GPU),
        Lane.GPU,
        120.0,
        after=("gpus",),
    ),
    Check(
        "compile",
        "torch.compile makes code, cold",
        "compiled",
        (Need.TORCH,),
        Lane.BUILD,
        180.0,
        after=("import", "gpus"),
        asks=_device,
    ),
    Check(
        "extension",
        "a C++ extension is built and runs",
        "extensions",
        (Need.TORCH, Need.CXX),
        Lane.BUILD,
        240.0,
        after=("import",),
        asks=lambda case: {"cuda": False},
    ),
    Check(
        "cuda-extension",
        "a CUDA extension is built and runs",
        "extensions",
        (Need.TORCH, Need.WORKING_GPU, Need.TOOLKIT, Need.CXX),
        Lane.BUILD,
        240.0,
        after=("gpus",),
        asks=lambda case: {"cuda": True},
    ),
    Check("so", "your binaries hold code for the GPUs here", "", (Need.FILES,), Lane.SHELL, 30.0, judge=judge_so_files),
    Check("here", "what this shell sees", "surroundings", (Need.TORCH,), Lane.SHELL, 90.0, after=("import",)),
    Check(
        "login-shell",
        "a fresh login shell sees the same",
        "surroundings",
        (Need.TORCH, Need.BASELINE),
        Lane.SHELL,
        90.0,
        after=("here",),
        shell=LOGIN,
        judge=judge_shell,
    ),
    Check(
        "interactive-shell",
        "a fresh interactive shell sees the same",
        "surroundings",
        (Need.TORCH, Need.BASELINE),
        Lane.SHELL,
        90.0,
        after=("here",),
        shell=INTERACTIVE,
        judge=judge_shell,
    ),
    Check(
        "cron",
        "cron's environment sees the same",
        "surroundings",
        (Need.TORCH, Need.BASELINE),
        Lane.SHELL,
        90.0,
        after=("here",),
        shell=CRON,
        judge=judge_shell,
    ),
    Check(
        "ssh",
        "a command over ssh sees the same",
        "surroundings",
        (Need.TORCH, Need.BASELINE, Need.SSHD),
        Lane.SHELL,
        90.0,
        after=("here",),
        shell=SSH,
        judge=judge_shell,
    ),
    Check(
        "features",
        "the feature table",
        "features",
        (Need.TORCH,),
        Lane.GPU,
        120.0,
        after=("import",),
        asks=_about_features,
        judge=judge_features,
    ),
)
