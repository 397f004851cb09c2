"""One function for each feature of the table. `mode` is 'runs' where GPU 0 can run it, else 'only looks'."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable

import torch

from firstlight.verify.children.cudnn import convolved
from firstlight.verify.children.features import (
    BROKEN,
    BUILT,
    NOT_BUILT,
    REFUSED,
    UNSEEN,
    WORKS,
    flag,
    has_package,
    holds,
    torch_library,
)
from firstlight.verify.children.products import distance

State = tuple[str, str]


def _fbgemm(mode: str) -> State:
    engines = torch.backends.quantized.supported_engines
    if not flag("USE_FBGEMM") or "fbgemm" not in engines:
        return NOT_BUILT, f"USE_FBGEMM is not in torch.__config__; engines: {', '.join(engines)}"
    torch.backends.quantized.engine = "fbgemm"
    w, x = torch.rand(32, 64) - 0.5, torch.randn(8, 64)
    packed = torch.ops.quantized.linear_prepack(torch.quantize_per_tensor(w, 1 / 254, 0, torch.qint8), None)
    plain = x @ w.t()
    off = float(
        (torch.ops.quantized.linear_dynamic(x, packed, reduce_range=True) - plain).abs().max() / plain.abs().max()
    )
    return (WORKS if off < 0.05 else BROKEN), f"a quantized linear layer is within {100 * off:.1f} % of the plain one"


def _tensorexpr(mode: str) -> State:
    return (BUILT, "torch._C._te is there") if hasattr(torch._C, "_te") else (NOT_BUILT, "torch has no torch._C._te")


def _cudnn(mode: str) -> State:
    if not flag("USE_CUDNN"):
        return NOT_BUILT, "USE_CUDNN is off in torch.__config__"
    if mode != "runs":
        return BUILT, "USE_CUDNN is on in torch.__config__"
    x, w = torch.randn(1, 8, 16, 16), torch.randn(8, 8, 3, 3)
    got = convolved(x, w).cpu()
    off = float((got - torch.nn.functional.conv2d(x, w, padding=1)).abs().max())
    version = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return (WORKS if off < 1e-3 else BROKEN), f"cuDNN {version}, max error {off:.2g}"


def _attention(name: str, build_flag: str) -> Callable[[str], State]:
    def probe(mode: str) -> State:
        from torch.nn.attention import SDPBackend

        from firstlight.verify.children.attention import attention_error, must_work

        if mode != "runs":
            if torch.version.cuda is None:
                return NOT_BUILT, "torch is not built for CUDA"
            text = torch.__config__.show()
            off = f"{build_flag}=OFF" in text or f"{build_flag}=0" in text
            return (NOT_BUILT, f"{build_flag} is off in torch.__config__") if off else (BUILT, "a CUDA build of torch")
        try:
            off_by = attention_error(getattr(SDPBackend, name))
        except RuntimeError as error:
            if must_work(name.partition("_")[0].lower(), torch.cuda.get_device_capability(0)):
                raise
            return REFUSED, f"torch refuses it here: {' '.join(str(error).split())[:120]}"
        return (WORKS if off_by <= 4e-3 else BROKEN), f"fp16, causal, forwards and backwards: max error {off_by:.2g}"

    return probe


def _nccl(mode: str) -> State:
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_nccl_available()):
        return NOT_BUILT, "torch.distributed.is_nccl_available() is False"
    version = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    if mode != "runs":
        return BUILT, f"NCCL {version}"
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        x = torch.ones(8, device="cuda")
        dist.all_reduce(x)
        torch.cuda.synchronize()
        dist.destroy_process_group()
    return (WORKS if float(x.sum()) == 8.0 else BROKEN), f"NCCL {version} starts and reduces in one process"


def _nccl_ib(mode: str) -> State:
    paths = [path for path in _mapped() if "libnccl.so" in path]
    if not paths:
        return NOT_BUILT, "torch loads no libnccl.so"
    names = [name for name in ("NCCL_IB_DISABLE", "NCCL_NET_GDR_LEVEL") if holds(paths[0], name.encode())]
    return (BUILT if len(names) == 2 else NOT_BUILT), f"{paths[0]} reads {' and '.join(names) or 'neither'}"


def _tf32(mode: str) -> State:
    if mode != "runs":
        return (BUILT, "a CUDA build of torch") if torch.version.cuda else (NOT_BUILT, "torch is not built for CUDA")
    left, right = torch.randn(256, 512), torch.randn(512, 256)
    errors = []
    for allowed in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        errors.append(distance(left.cuda() @ right.cuda(), left, right, kind="tf32").relative)
    torch.backends.cuda.matmul.allow_tf32 = False
    saw = f"max error {errors[0]:.2g} without, {errors[1]:.2g} with"
    return (WORKS if errors[0] * 20 < errors[1] < 0.01 else BROKEN), saw


def _override(name: str) -> Callable[[str], State]:
    def probe(mode: str) -> State:
        path = torch_library("libtorch_cpu.so")
        here = holds(path, name.encode())
        return (BUILT if here else NOT_BUILT), f"{path} {'holds' if here else 'does not hold'} the name"

    return probe


def _fp8(mode: str) -> State:
    if torch.version.cuda is None or not hasattr(torch, "_scaled_mm"):
        return NOT_BUILT, "torch is not built for CUDA, or has no _scaled_mm"
    if mode != "runs":
        return BUILT, "torch._scaled_mm is there"
    left, right = (torch.randn(*shape).to(torch.float8_e4m3fn) for shape in ((64, 256), (256, 128)))
    one = torch.ones((), device="cuda")
    there = right.t().contiguous().cuda().t()
    got = torch._scaled_mm(left.cuda(), there, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    found = distance(got, left.float(), right.float(), kind="float8_e4m3fn")
    return (WORKS if found.fine else BROKEN), f"float8_e4m3fn: {found}"


def _mxfp8(mode: str) -> State:
    if torch.version.cuda is None or not hasattr(torch, "float8_e8m0fnu"):
        return NOT_BUILT, "torch is not built for CUDA, or has no float8_e8m0fnu"
    if mode != "runs":
        return BUILT, "torch.float8_e8m0fnu is there"
    left, right = (torch.randn(128, 128).to(torch.float8_e4m3fn) for _ in range(2))
    ones = torch.ones(128 * 4, device="cuda").to(torch.float8_e8m0fnu)  # scales of 1: their order does not matter
    there = right.t().contiguous().cuda().t()
    try:
        got = torch._scaled_mm(left.cuda(), there, scale_a=ones, scale_b=ones, out_dtype=torch.bfloat16)
    except (RuntimeError, ValueError) as error:  # how scales are laid out has changed between releases of torch
        return UNSEEN, f"this torch does not take the call: {' '.join(str(error).split())[:160]}"
    found = distance(got, left.float(), right.float(), kind="float8_e4m3fn")
    return (WORKS if found.fine else BROKEN), f"float8_e4m3fn with block scales: {found}"


def _fp4(mode: str) -> State:
    if torch.version.cuda is None or not hasattr(torch, "float4_e2m1fn_x2"):
        return NOT_BUILT, "torch is not built for CUDA, or has no float4_e2m1fn_x2"
    return BUILT, "torch.float4_e2m1fn_x2 is there; no product was run"


def _mslk(mode: str) -> State:
    text = torch.__config__.show()
    name = next((name for name in ("USE_MSLK", "USE_FBGEMM_GENAI") if name in text), "")
    return (BUILT, f"{name} is in torch.__config__") if name else (NOT_BUILT, "USE_MSLK is not in torch.__config__")


def _lazy_loading(mode: str) -> State:
    if mode != "runs":
        return UNSEEN, "no GPU: the driver cannot be asked"
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.ones(1, device="cuda")
    number = ctypes.c_int(0)
    code = ctypes.CDLL("libcuda.so.1").cuModuleGetLoadingMode(ctypes.byref(number))
    if code != 0:
        return BROKEN, f"cuModuleGetLoadingMode returned {code}"
    setting = os.environ.get("CUDA_MODULE_LOADING", "not set")
    word = {1: "eager", 2: "lazy"}.get(number.value, f"mode {number.value}")
    return (WORKS if number.value == 2 else BUILT), f"the driver loads {word} (CUDA_MODULE_LOADING is {setting})"


def _expandable_segments(mode: str) -> State:
    if torch.version.cuda is None:
        return NOT_BUILT, "torch is not built for CUDA"
    if mode != "runs":
        return BUILT, "a CUDA build of torch"
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    try:
        kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
        kept.fill_(7)
        snapshot = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        segments = [each for each in snapshot if each.get("is_expandable")]
    finally:
        torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    return (WORKS if segments else BROKEN), f"{len(segments)} expandable segment(s) in the allocator's snapshot"


def _cuda_graphs(mode: str) -> State:
    if torch.version.cuda is None:
        return NOT_BUILT, "torch is not built for CUDA"
    if mode != "runs":
        return BUILT, "a CUDA build of torch"
    x = torch.randn(64, 64, device="cuda")
    for _ in range(3):
        (x @ x).relu()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (x @ x).relu()
    x.copy_(torch.randn(64, 64))
    graph.replay()
    torch.cuda.synchronize()
    off = float((out - (x @ x).relu()).abs().max())
    return (WORKS if off < 1e-3 else BROKEN), f"a replay with other input is within {off:.2g}"


def _cublas_workspace(mode: str) -> State:
    size = getattr(torch.backends.cuda, "cublas_workspace_size", None)
    if mode != "runs" or size is None:
        return UNSEEN, "no GPU" if mode != "runs" else "this torch does not tell the size"
    return BUILT, f"torch.backends.cuda.cublas_workspace_size() is {size()}"


def _tma(mode: str) -> State:
    return (BUILT, "the GPU has it; kernels use it by themselves") if mode == "runs" else (UNSEEN, "no GPU that has it")


def _machine_code(arch: str) -> Callable[[str], State]:
    def probe(mode: str) -> State:
        archs = (
            torch.cuda.get_arch_list() or (torch._C._cuda_getArchFlags() or "").split() if torch.version.cuda else []
        )
        return (BUILT if arch in archs else NOT_BUILT), f"torch is compiled for {' '.join(archs) or 'no GPU'}"

    return probe


def _mapped() -> list[str]:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return sorted({line.split(None, 5)[-1].strip() for line in maps if ".so" in line})


PROBES: dict[str, Callable[[str], State]] = {
    "fbgemm": _fbgemm,
    "fbgemm-gpu": lambda mode: has_package("fbgemm-gpu"),
    "tensorexpr": _tensorexpr,
    "cudnn": _cudnn,
    "cudnn-frontend": _attention("CUDNN_ATTENTION", "USE_CUDNN"),
    "nccl": _nccl,
    "nccl-ib": _nccl_ib,
    "flash-attention": _attention("FLASH_ATTENTION", "USE_FLASH_ATTENTION"),
    "mem-efficient-attention": _attention("EFFICIENT_ATTENTION", "USE_MEM_EFF_ATTENTION"),
    "tf32": _tf32,
    "torch-tf32-override": _override("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    "cudnn-tf32-override": _override("CUDNN_ALLOW_TF32_CUBLAS_OVERRIDE"),
    "fp8": _fp8,
    "mxfp8": _mxfp8,
    "fp4": _fp4,
    "mslk": _mslk,
    "lazy-loading": _lazy_loading,
    "expandable-segments": _expandable_segments,
    "torchrec": lambda mode: has_package("torchrec"),
    "triton": lambda mode: has_package("triton"),
    "cuda-graphs": _cuda_graphs,
    "cublas-workspace": _cublas_workspace,
    "tma": _tma,
    "sm-100": _machine_code("sm_100"),
    "sm-120": _machine_code("sm_120"),
}
