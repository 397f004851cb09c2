"""Rows of products: each is found in the text as it was posted, however a log carries it, and nowhere else."""

from __future__ import annotations

import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.signatures import FAMILIES, PRODUCTS, product_files, signatures


def _rows(name: str) -> list[dict[str, Any]]:
    text = pkgutil.get_data("firstlight.diagnosis", name)
    assert text is not None
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


ROWS = [row for name in product_files() for row in _rows(f"{PRODUCTS}/{name}")]
_SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|(?:https?://)?[\w-]+(?:\.[\w-]+)+(?:/\S*)?.*")


@cache
def _codes(text: str) -> list[str]:
    return [each.signature.code for each in explain_text(text).explanations]


def _found(row: dict[str, Any], text: str) -> bool:
    return row["code"] in _codes(text)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["code"])
def test_a_row_is_found_in_the_text_as_it_was_posted(row: dict[str, Any]) -> None:
    assert _found(row, row["text"]), _codes(row["text"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["code"])
def test_a_row_says_whose_it_is_and_where_it_was_read(row: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", row["product"])
    assert row["family"] in {family["code"] for family in _rows(FAMILIES)}
    assert row["source"]
    assert all(_SOURCE.fullmatch(source) for source in row["source"]), row["source"]
    for form in row["patterns"]:
        assert not set(form["anchor"]) & set('\\"\n'), "a log of JSON lines escapes these"
        assert re.search(form["regex"], " ".join(row["text"].split())) is None or form["anchor"] in row["text"]


def _with_prefix(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def _cut(text: str, columns: int = 80) -> str:
    """As it is copied from a terminal of that width."""
    return "\n".join(line[at : at + columns] for line in text.splitlines() for at in range(0, len(line) or 1, columns))


CARRIED: dict[str, Callable[[str], str]] = {
    "rank": lambda text: _with_prefix("[rank3]: ", text),
    "compose": lambda text: _with_prefix("worker-0  | ", text),
    "time": lambda text: _with_prefix("2026-11-15 02:38:25,123 ERROR ", text),
    "colour": lambda text: _with_prefix("\x1b[31m", text),
    "json": lambda text: "".join(json.dumps({"level": "error", "message": line}) + "\n" for line in text.splitlines()),
    "progress": lambda text: "10%|#   | 1/10\r" + text,
    "80 columns": _cut,
}


@pytest.mark.parametrize("carrier", CARRIED)
def test_every_row_has_the_same_answers_however_a_log_carries_it(carrier: str) -> None:
    told = [(row["code"], _codes(row["text"]), _codes(CARRIED[carrier](row["text"]))) for row in ROWS]
    # What tells CUDA's own row to be silent there stands behind the cut: both are said.
    # A frame of a traceback is longer than the neighbours that are read.
    known = {"80 columns": ["package-check-failed", "wsl2-out-of-memory-at-start"]}.get(carrier, [])
    assert [code for code, plain, carried in told if plain != carried] == known


def test_no_code_is_used_twice_and_every_family_has_its_words() -> None:
    counts = Counter(signature.code for signature in signatures())
    assert [code for code, count in counts.items() if count > 1] == []
    for family in _rows(FAMILIES):
        assert family["title"]
        assert family["ways_out"]


def test_a_wrapped_message_is_known_by_its_own_row_where_its_first_line_has_only_a_fallback() -> None:
    text = "nvidia-container-cli: mount error: stat failed:\n/dev/nvidia-modeset: no such file or directory: unknown"
    assert _codes(text) == ["toolkit-mount-source-missing"]


WRAPPED = {
    "ollama": ("Error: llama runner process has terminated: CUDA error: out of memory", ["gpu-out-of-memory"]),
    "numba": (
        "CudaSupportError: Error at driver init: Call to cuInit results in CUDA_ERROR_OPERATING_SYSTEM (304)",
        ["cuda-error-code"],
    ),
    "nccl": (
        "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 2 'out of memory'",
        ["gpu-out-of-memory"],
    ),
    "tensorrt": ("[TRT] CUDA initialization failure with error 222. Please check", ["ptx-too-new-222"]),
    "onnx2trt": ("ERROR] Cuda initialization failure with error 35. Please check", ["driver-insufficient-35"]),
}


@pytest.mark.parametrize(("text", "codes"), WRAPPED.values(), ids=WRAPPED)
def test_what_stands_in_a_wrapper_is_the_cause(text: str, codes: list[str]) -> None:
    assert _codes(text) == codes


NOTE = "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'\n"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (NOTE, ["no-gpu-while-building"]),
        (NOTE + "running build_ext\n", ["no-gpu-while-building"]),
        (NOTE + "KeyError: 'a name that nobody knows'\n", []),
        ("[ERROR] async_io requires the dev libaio .so object\n", ["deepspeed-libaio-missing"]),
    ],
)
def test_a_note_that_harms_nothing_is_no_answer_to_an_unknown_error(text: str, codes: list[str]) -> None:
    explained = explain_text(text)
    assert [each.signature.code for each in explained.explanations] == codes
    assert [each.text for each in explained.last_error] == ([] if codes else ["KeyError: 'a name that nobody knows'"])


def test_each_xid_of_a_log_is_told_from_the_catalogue() -> None:
    log = "NVRM: Xid (PCI:0000:2d:00): {}, Ch 00000003\n"
    [answer] = explain_text("".join(log.format(code) for code in (32, 62, 32, 999))).explanations
    assert "32: Commands arrived broken" in answer.signature.cause
    assert "62: A controller inside the GPU halted." in answer.signature.cause
    assert "999: not in our catalogue." in answer.signature.cause


# A text of the same look with another cause: the row that was meant for its neighbour must stay silent.
NOT_THIS = {
    "triton-missing": "ModuleNotFoundError: No module named 'triton.common'",
    "gpu-out-of-memory": "failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "cuda-library-header-missing": "utils.h:11:10: fatal error: cudnn_frontend.h: No such file or directory",
    "nccl-shared-memory-full": "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-NzwJ7O (size 96)",
    "ollama-lost-the-gpu": "cuda driver library failed to get device context 2",
    "jax-platform-gpu-means-rocm": "INFO:absl:Unable to initialize backend 'rocm': NOT_FOUND: no platform",
    "python-dll-not-found": "ImportError: DLL load failed: %1 is not a valid Win32 application.",
    "enroot-disk-full": "tar: data/a.bin: Cannot write: No space left on device",
    "numba-nvvm-missing": "NvvmSupportError: No supported GPU compute capabilities found.",
    "apt-unmet-cuda-dependencies": " cuda-11 : Depends: nvidia-440 but it is not installable",
}


@pytest.mark.parametrize(("code", "text"), NOT_THIS.items(), ids=NOT_THIS)
def test_a_row_is_silent_on_its_neighbours_text(code: str, text: str) -> None:
    assert code not in _codes(text)


# Each of these was once answered with a cause that its text does not show, or even speaks against.
PROVED = {
    "no NVRTC of any version": (
        "[cupy-wheel] Failed to open nvrtc64_120_0.dll: Could not find module 'nvrtc64_120_0.dll' "
        "(or one of its dependencies).",
        ["cupy-wheel-finds-no-cuda"],
    ),
    "the DLL itself may be missing": (
        "FileNotFoundError: Could not find module 'C:\\a\\b.dll' (or one of its dependencies). Try using",
        ["python-library-not-loaded-by-name"],
    ),
    "cgroup v1, not eBPF": (
        "nvidia-container-cli: mount error: failed to add device rules: open "
        "/sys/fs/cgroup/devices/slurm/devices.allow: permission denied",
        ["toolkit-cgroup-file-refused"],
    ),
    "a reason that no row knows": (
        "nvidia-container-cli: mount error: failed to add device rules: write error: no space left on device",
        ["toolkit-other-error"],
    ),
    "its own connection failed first": (
        "[3] NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=2, closing connection\n"
        "[3] NCCL WARN socketProgress: Connection closed by remote peer a.ibnet<53735>\n",
        ["nccl-connect-failed"],
    ),
    "no locked memory, so no connection": (
        "[7] NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory\n"
        "[2] NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=3, closing connection\n",
        ["nccl-cannot-lock-memory"],
    ),
    "headers, not a new kernel": (
        "The Module.symvers file is missing, or does not contain any\n"
        "make[2]: *** [/var/lib/dkms/nvidia/435.27.08/build/Kbuild:181: module_symvers_sanity_check] Error 1\n"
        "make[1]: *** [Makefile:1652: /var/lib/dkms/nvidia/435.27.08/build] Error 2\n",
        ["kernel-symbols-file-missing"],
    ),
    "a path is not searched for": (
        "OSError: /src/tensorrt_llm/libs/libnvinfer_plugin.so: cannot open shared object file: No such file",
        ["shared-library-file-not-there"],
    ),
    "a file that may not be read is there": (
        "OSError: /src/libs/libnvinfer_plugin_tensorrt_llm.so: cannot open shared object file: Permission denied",
        [],
    ),
    "a C library of the program's own": (
        "rv.bin: /opt/OpenRV/lib/libc.so.6: version `GLIBC_2.38' not found (required by /usr/lib/libGLX.so.0)",
        ["glibc-own-copy-too-old"],
    ),
    "the system's C library": (
        "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by /a/flash.so)",
        ["glibc-too-old"],
    ),
    "NumPy 2 says so itself": (
        "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0\nRuntimeError: Numpy is not available",
        ["numpy-2-with-old-build"],
    ),
    "a library of the host": (
        "glxgears: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found "
        "(required by /.singularity.d/libs/libGLX.so.0)",
        ["apptainer-host-library-needs-newer-glibc"],
    ),
    "the DLL that is named, not another": (
        '[WinError 126] module not found. Error loading "C:\\torch\\lib\\caffe2_nvrtc.dll" or one of its dependencies.',
        ["torch-dll-lacks-another"],
    ),
    "curl's library is not CUDA's": ("/usr/bin/ld: cannot find -lcurl: No such file or directory", []),
    "a module of another subsystem": ("nvme: disagrees about version of symbol module_layout", []),
    "a header of another project": ("a.c:1:10: fatal error: zlib.h: No such file or directory", []),
    "a name that any package may lack": ("ImportError: cannot import name 'a' from 'django.db'", []),
    "HIP's words, not CUDA's": ("hipErrorInvalidDevice: invalid device ordinal", []),
    "a symbol that a program asked itself for": ("AttributeError: /usr/bin/python3: undefined symbol: no_such", []),
    "a link that is missing, not the run": ("NCCL INFO Failed to open libibverbs.so[.1]", ["nccl-no-libibverbs"]),
    "memory first, though XLA guesses at the driver": (
        "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\nPossibly insufficient driver version: 510.47.3",
        ["cudnn-handle-not-created", "cudnn-driver-possibly-too-old"],
    ),
    "another server answered": (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
        "Hostname mismatch, certificate is not valid for 'a.co'.",
        ["linux-certificate-of-other-name"],
    ),
}


@pytest.mark.parametrize(("text", "codes"), PROVED.values(), ids=PROVED)
def test_an_answer_claims_no_more_than_its_text_shows(text: str, codes: list[str]) -> None:
    assert _codes(text) == codes


# Where one message has several causes, the answer names each.
NAMED = {
    "pip-isolated-build-lacks-module": "--no-build-isolation",
    "driver-not-loaded": "WSL 1 has no GPU",
    "toolkit-driver-request-failed": "Windows build",
    "transformers-bitsandbytes-not-seen": "newer than it can read",
    "nccl-peer-closed-connection": "network between the nodes",
    "linux-certificate-unknown": "{why}",
    "toolkit-device-rules-refused": "{what}",
    "libcuda-not-found": "LD_LIBRARY_PATH that a script set anew",
    "gpu-arch-removed-from-nvcc": "older than that generation",
    "nccl-system-error": "NCCL_GRAPH_FILE",
    "kubernetes-no-gpu-to-schedule": "unhealthy",
    "loader-undefined-symbol": "import torch first",
    "container-host-lacks-driver": "no NVIDIA GPU at all",
    "cublas-execution-failed": "older than the GPU",
    "cublas-not-initialized": "older than the GPU",
    "apt-unmet-cuda-dependencies": "another release of the distribution",
    "apt-unmet-dependencies": "no pin file",
    "fp8-product-needs-newer-gpu": "a newer torch takes it",
    "compat-on-unsupported-gpu-804": "updated and not restarted",
    "ptxas-too-old-for-gpu": "has dropped it",
    "llamacpp-cuda-did-not-start": "nvidia_uvm",
    "onnxruntime-provider-not-created": "another CUDA major",
    "nccl-invalid-usage": "too old for",
    "cudnn-driver-possibly-too-old": "bytes free",
    "driver-insufficient-35": "a stub of the toolkit",
    "no-cuda-device-100": "MIG mode without instances",
    "cpu-only-torch": "on a Jetson",
    "shared-memory-too-small": "memory limit",
}


@pytest.mark.parametrize(("code", "words"), NAMED.items(), ids=NAMED)
def test_an_answer_names_every_cause_that_its_message_has(code: str, words: str) -> None:
    [signature] = [each for each in signatures() if each.code == code]
    assert words in signature.cause


# A program or a terminal may break the line inside what a row is found by.
BROKEN = {
    "shared-memory-too-small": "DataLoader worker (pid 47) is killed by signal: Bus\nerror. It is possible that",
    "jax-out-of-memory": "replica 0 failed: Resource exhausted: Out \nof memory while trying to allocate 5520 bytes.",
    "conda-specs-conflict": "The following specifications were found\nto be incompatible with the existing python",
    "wheel-lacks-gpu-arch": "CUDA error: no\n   kernel image\n   is available for execution on the device",
    "driver-insufficient-35": "CUDA driver version is\r\n  insufficient for CUDA runtime\r\n  version",
    "driver-too-old": "The NVIDIA driver on your system is\ntoo old (found version 12040)",
}


@pytest.mark.parametrize(("code", "text"), BROKEN.items(), ids=BROKEN)
def test_a_message_is_known_though_its_line_is_broken(code: str, text: str) -> None:
    assert _codes(text) == [code]


# Programs word one message in their own letters, and people type it from a screen.
OTHER_LETTERS = {
    "driver-not-loaded": "nvidia-smi has failed because it couldn't communicate with the nvidia driver.",
    "container-lost-gpu": "failed to initialize nvml: unknown error",
    "driver-library-mismatch": "FAILED TO INITIALIZE NVML: DRIVER/LIBRARY VERSION MISMATCH",
    "wheel-lacks-gpu-arch": "cuda error: No Kernel Image is available for execution on the device",
}


@pytest.mark.parametrize(("code", "text"), OTHER_LETTERS.items(), ids=OTHER_LETTERS)
def test_a_message_is_known_in_letters_of_any_case(code: str, text: str) -> None:
    assert _codes(text) == [code]


def test_an_anchor_that_would_begin_at_a_line_end_is_passed_over() -> None:
    spaced = [pattern.anchor for each in signatures() for pattern in each.patterns if pattern.anchor.startswith(" ")]
    for anchor in spaced:
        explain_text(f"a line\n{anchor[1:]}\n")
