"""Whose words they are decides the ways out: the program, the module, the system or the release that the text shows."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.explain import Explanation, explain_text

PTXAS = "ptxas fatal   : Value '{}' is not defined for option 'gpu-name'\n"
KILLED = "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n"
DKMS = (
    "Error! Bad return status for module build on kernel: 6.8.0-45-generic (x86_64)\n"
    "Consult /var/lib/dkms/{}/build/make.log for more information.\n"
)
WANTED = "ERROR: Could not find a version that satisfies the requirement torch=={} (from versions: {})\n"
OLD = "0.1.2, 0.1.2.post1, 0.4.1, 1.0.0, 1.6.0, 1.9.1, 1.13.1"
NEW = "2.6.0, 2.7.0, 2.7.1, 2.8.0"


def _first(text: str) -> Explanation:
    return explain_text(text).explanations[0]


def _said(text: str) -> str:
    """Title, cause and ways out of the first answer, as one text."""
    told = _first(text).signature
    return " ".join((told.title, told.cause, *(part for way in told.ways_out for part in (way.say, *way.run))))


WHOSE = {
    "ptxas of Triton": (
        "triton/backends/nvidia/compiler.py\n" + PTXAS.format("sm_121a"),
        "TRITON_PTXAS_PATH",
        "CMAKE",
    ),
    "ptxas-blackwell of Triton": (
        "Internal Triton PTX codegen error\n" + PTXAS.format("sm_121a").replace("ptxas ", "ptxas-blackwell ", 1),
        "TRITON_PTXAS_BLACKWELL_PATH",
        "CMAKE",
    ),
    "ptxas under nvcc, an old GPU": (
        "nvcc -arch=sm_35 -c a.cu -o a.o\n" + PTXAS.format("sm_35") + "make: *** [Makefile:12: a.o] Error 255\n",
        "CMAKE_CUDA_ARCHITECTURES",
        "TRITON",
    ),
    "ptxas under make, an old GPU": (
        PTXAS.format("sm_20") + "make[2]: *** [CMakeFiles/a.dir/a.cu.o] Error 255\n",
        "This CUDA has dropped that architecture",
        "TRITON",
    ),
    "ptxas under make, a new GPU": (
        PTXAS.format("sm_120") + "make[2]: *** [CMakeFiles/a.dir/a.cu.o] Error 255\n",
        "came out before the GPU",
        "TRITON",
    ),
    "jobs of make": (KILLED + "make: *** [Makefile:3: a.o] Error 1\n", "make -j1", "MAX_JOBS"),
    "jobs of CMake with CUDA": (
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\nmake[2]: *** [CMakeFiles/ggml.dir/a.cu.o] Error 9\n",
        "CMAKE_BUILD_PARALLEL_LEVEL",
        "MAX_JOBS",
    ),
    "jobs of torch's builder": (
        KILLED + "torch/utils/cpp_extension.py:1\nninja: build stopped\n",
        "MAX_JOBS",
        "make -j1",
    ),
    "a module that is not NVIDIA's": (DKMS.format("zfs/2.1.5"), "not NVIDIA's", "open modules"),
    "NVIDIA's module": (DKMS.format("nvidia/470.256.02"), "open modules", "not NVIDIA's"),
    "NVIDIA's beside another": (DKMS.format("zfs/2.1.5") + DKMS.format("nvidia/470.256.02"), "open", "not NVIDIA's"),
    "a library of CUDA for the linker": (
        "LINK : fatal error LNK1104: cannot open file 'cudart.lib'\n",
        "CUDA toolkit",
        "Native Tools",
    ),
    "a library of Visual Studio for the linker": (
        "LINK : fatal error LNK1104: cannot open file 'msvcprt.lib'\n",
        "Native Tools",
        "CUDA_PATH",
    ),
    "Python's library for the linker": (
        "LINK : fatal error LNK1104: cannot open file 'python312.lib'\n",
        "full Python",
        "CUDA_PATH",
    ),
    "attention of SGLang": (
        "sglang/srt/model_executor.py\nRuntimeError: FlashAttention only supports Ampere GPUs or newer.\n",
        "--attention-backend triton",
        "axolotl",
    ),
    "attention of ComfyUI": (
        "ComfyUI/nodes.py\nRuntimeError: FlashAttention only supports Ampere GPUs or newer.\n",
        "--use-pytorch-cross-attention",
        "axolotl",
    ),
    "power that a laptop cut": (
        "bbswitch: disabling discrete graphics\nNVRM: GPU 0000:01:00.0: GPU has fallen off the bus.\n",
        "no-bbswitch.conf",
        "node out of service",
    ),
    "power that the kernel cut": (
        "nvidia 0000:01:00.0: Unable to change power state from D3cold to D0\n"
        "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.\n",
        "NVreg_DynamicPowerManagement",
        "node out of service",
    ),
    "a pod": (
        "kubectl logs gpu-agent-x7 -n kube-system\nERROR collector.go:43 could not load NVML library\n",
        "runtimeClassName",
        "--gpus all",
    ),
    "a Mac by its temporary folder": (
        "/private/var/folders/rd/T/x/setup.py:77: UserWarning: apex_x was requested, but nvcc was not found.",
        "of a Mac",
        "devel",
    ),
    "a Mac's Julia": (
        'could not load library "libcuda"\ndlopen(libcuda.dylib, 1): image not found\n',
        "Metal.jl",
        "driver.",
    ),
    "the index of the suffix": (
        "Because there is no version of torch==2.6.0+cu118 and your project depends on torch==2.6.0+cu118\n",
        "uv add 'torch==2.6.0' --index pytorch=https://download.pytorch.org/whl/cu118",
        "cu124",
    ),
    "the suffix of another package": (
        "Because there is no version of torchvision==0.22.0+cpu and your project depends on torchvision==0.22.0+cpu\n",
        "uv add 'torchvision==0.22.0' --index pytorch=https://download.pytorch.org/whl/cpu",
        "cu124",
    ),
    "a release that never was": (WANTED.format("1.15.0", OLD), "no such release", "older Pythons"),
    "a patch that never was": (WANTED.format("2.6.1", NEW), "no such release", "older Pythons"),
    "a release before this Python": (WANTED.format("1.12.1", NEW), "This Python is newer", "never released"),
    "a release after this Python": (WANTED.format("2.4.0", OLD), "This Python is older", "never released"),
    "a build that never was": (WANTED.format("1.14.0a0+410ce96", NEW), "This Python is newer", "never released"),
}


@pytest.mark.parametrize(("text", "words", "never"), WHOSE.values(), ids=WHOSE)
def test_the_ways_are_those_of_what_the_text_shows(text: str, words: str, never: str) -> None:
    said = _said(text)
    assert words in said
    assert never not in said


FOUND = {
    "Go's binding of NVML": ("nvml error: could not load NVML library\n", "nvml-library-not-found"),
    "the plugin's own words": (
        "Failed to initialize NVML: could not load NVML library.\n",
        "kubernetes-plugin-without-nvml",
    ),
    "Python's binding of the driver": ("RuntimeError: Failed to dlopen libcuda.so\n", "libcuda-not-found"),
    "the same with its number": ("RuntimeError: Failed to dlopen libcuda.so.1\n", "libcuda-not-found"),
    "Rust's binding of the driver": (
        'Unable to dynamically load the "cuda" shared library - searched for library names: ["cuda", "nvcuda"]\n',
        "libcuda-not-found",
    ),
    "Julia's binding of the driver": ('could not load library "libcuda.so.1"\n', "julia-no-cuda-runtime"),
    "Rust's build without nvcc": (
        'Failed to execute `nvcc`: Os { code: 2, kind: NotFound, message: "No such file or directory" }\n',
        "rust-build-finds-no-cuda",
    ),
    "Rust's build without nvidia-smi": (
        "`nvidia-smi` failed. Ensure that you have CUDA installed and that `nvidia-smi` is in your PATH.\n",
        "rust-build-asks-nvidia-smi",
    ),
    "an exception that is cut after its raise": (
        '    raise EnvironmentError("Unknown compute capability. Specify the target\n',
        "tinycudann-build-sees-no-gpu",
    ),
}


@pytest.mark.parametrize(("text", "code"), FOUND.values(), ids=FOUND)
def test_a_binding_that_finds_nothing_is_known_in_every_language(text: str, code: str) -> None:
    assert [each.signature.code for each in explain_text(text).explanations] == [code]


def test_what_tensorflow_tells_of_itself_is_no_fault() -> None:
    note = (
        "2026-01-30 22:44:42.4: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on. round-off errors\n"
    )
    assert _first(note).signature.not_a_fault
    known = explain_text(f"{note}RuntimeError: Failed to dlopen libcuda.so\n").explanations
    assert [each.signature.code for each in known] == ["libcuda-not-found"]
    unknown = explain_text(f"{note}KeyError: 'frob'\n")
    assert (unknown.explanations, [each.line for each in unknown.last_error]) == ((), [2])


def test_a_line_of_the_level_of_information_is_not_the_one_that_tells_most() -> None:
    assert explain_text("I frob/core/util.cc:12] round-off errors may grow\n").last_error == ()
    assert explain_text("I0130 22:44:42.456316 12 util.cc:12] no errors so far\n").last_error == ()
    assert [each.line for each in explain_text("E frob/core/util.cc:12] errors grew\n").last_error] == [1]
