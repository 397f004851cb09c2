"""The checks, in the order in which they are told. To add one: a script in children/ and an entry here.

Each check has a process of its own: a library that crashes, hangs or leaves a CUDA error behind then spoils one line
and no other. The price is one import of torch each; checks of one lane run one after the other, lanes side by side, so
that compilers (BUILD) and shells (SHELL) work while the GPU does.
"""

from __future__ import annotations

from typing import Any

from firstlight.facts.known import Known
from firstlight.tables.feature_lookups import features
from firstlight.verify.check import Case, Check, Judge, Lane, Need
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


_ON_GPU = (Need.TORCH, Need.WORKING_GPU)


def _on_gpu(
    name: str, title: str, script: str, *needs: Need, limit_s: float = 90.0, judge: Judge | None = None
) -> Check:
    return Check(name, title, script, (*_ON_GPU, *needs), Lane.GPU, limit_s, after=("gpus",), judge=judge)


def _fresh(name: str, title: str, shell: str, *needs: Need) -> Check:
    """The surroundings of another environment than this one, beside those of this one."""
    wants = (Need.TORCH, Need.BASELINE, *needs)
    return Check(name, title, "surroundings", wants, Lane.SHELL, 90.0, ("here",), shell, judge=judge_shell)


CHECKS = (
    Check("import", "torch imports", "import_torch", (), Lane.GPU, 180.0),
    Check("cpu", "the processor computes", "cpu_math", (Need.TORCH,), Lane.BUILD, 90.0, after=("import",)),
    Check("gpus", "every GPU computes a product that matches float64", "gpu_math", (Need.TORCH, Need.GPU), Lane.GPU,
          120.0, after=("import",), asks=_about_gpus),
    _on_gpu("kernels", "torch's own kernels run on every GPU", "own_kernels", judge=judge_own_kernels),
    _on_gpu("cublas", "cuBLAS multiplies in every format", "cublas"),
    _on_gpu("cudnn", "cuDNN convolves", "cudnn"),
    _on_gpu("sdpa", "each attention backend works", "attention"),
    Check("libraries", "the libraries loaded are the intended ones", "loaded_libraries", (Need.TORCH,), Lane.GPU, 90.0,
          after=("import",), asks=lambda case: {"names": list(OURS)}, judge=judge_libraries),
    _on_gpu("nccl", "NCCL reduces across the GPUs", "collective", Need.SECOND_GPU, limit_s=120.0),
    Check("compile", "torch.compile makes code, from cold caches", "compiled", (Need.TORCH,), Lane.BUILD, 180.0,
          after=("import", "gpus"), asks=_device),
    Check("extension", "a C++ extension is built and runs", "extensions", (Need.TORCH, Need.CXX), Lane.BUILD, 240.0,
          after=("import",), asks=lambda case: {"cuda": False}),
    Check("cuda-extension", "a CUDA extension is built and runs", "extensions", (*_ON_GPU, Need.TOOLKIT, Need.CXX),
          Lane.BUILD, 240.0, after=("gpus",), asks=lambda case: {"cuda": True}),
    Check("so", "your binaries hold code for the GPUs here", "", (Need.FILES,), Lane.SHELL, 30.0, judge=judge_so_files),
    Check("here", "what this shell sees", "surroundings", (Need.TORCH,), Lane.SHELL, 90.0, after=("import",)),
    _fresh("login-shell", "a fresh login shell sees the same", LOGIN),
    _fresh("interactive-shell", "a fresh interactive shell sees the same", INTERACTIVE),
    _fresh("cron", "cron's environment sees the same", CRON),
    _fresh("ssh", "a command over ssh sees the same", SSH, Need.SSHD),
    Check("features", "the feature table", "features", (Need.TORCH,), Lane.GPU, 120.0, after=("import",),
          asks=_about_features, judge=judge_features),
)  # fmt: skip
