"""Every signature knows its own text, in the forms that old and new versions print, and no other's."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.explain_lookup import LOOKUPS
from firstlight.diagnosis.signatures import Confidence, signatures

TORCH_COUNT = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? "
)
NO_FILE = ": cannot open shared object file: No such file or directory"

# code -> texts that are this, texts that are near to it and are not
EXAMPLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gpu-off-the-bus": (
        (
            "[ 8431.101] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
            "Unable to determine the device handle for GPU 0000:0E:00.0: GPU is lost.  Reboot the system to recover",
            "pynvml.NVMLError_GpuIsLost: GPU is lost",
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=79, name=python, Ch 00000008", "the wheels fell off the bus"),
    ),
    "ecc-uncorrectable-214": (
        (
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "CUDA failure 214: CUDA_ERROR_ECC_UNCORRECTABLE",
            "NVRM: Xid (PCI:0000:17:00): 48, pid=1234, An uncorrectable double bit error (DBE) has been detected",
        ),
        ("ECC errors: uncorrectable 0, corrected 3", "NVRM: Xid (PCI:0000:17:00): 480, pid=1234"),
    ),
    "docker-without-gpu-support": (
        (
            'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
            'Error response from daemon: could not select device driver "nvidia" with capabilities: [[gpu]]',
            "could not select device driver with capabilities: [[gpu]]",
        ),
        ('could not select device driver "" with capabilities: [[tpu]]',),
    ),
    "driver-not-loaded": (
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.",
            "nvidia-smi has failed because it couldn\u2019t communicate with the NVIDIA driver",
            "Failed to initialize NVML: Driver Not Loaded",
            "pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded",
        ),
        ("the job has failed because it couldn't communicate with the scheduler", "Driver Not Loaded"),
    ),
    "driver-not-found": (
        (
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
            "installed a driver from http://www.nvidia.com/Download/index.aspx",
        ),
        ("Found no AMD driver on your system",),
    ),
    "libcuda-not-found": (
        (
            "AssertionError: libcuda.so cannot found!",
            "ImportError: libcuda.so.1" + NO_FILE,
            "/usr/bin/ld: cannot find -lcuda: No such file or directory",
            "/usr/bin/ld: cannot find -lcuda",
        ),
        ("/usr/bin/ld: cannot find -lcudnn", "libcuda.so.1 => /lib/x86_64-linux-gnu/libcuda.so.1"),
    ),
    "nvml-library-not-found": (
        ("pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found", "OSError: libnvidia-ml.so.1" + NO_FILE),
        ("NVML Shared Library Found", "libnvidia-ml.so.1 (libc6,x86-64) => /lib/libnvidia-ml.so.1"),
    ),
    "nvidia-smi-no-devices": (
        ("No devices were found", "2026-11-15 02:38:25 No devices were found.", "$ nvidia-smi: No devices were found"),
        ("No devices were found in the attic of the house", "adb: NoNo devices were found"),
    ),
    "no-cuda-device-100": (
        (
            "RuntimeError: No CUDA GPUs are available",
            "CUDA error 100: no CUDA-capable device is detected",
            "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorNoDevice: no CUDA-capable device is detected",
            "numba.cuda.cudadrv.error.CudaSupportError: Error at driver init: \n[100] Call to cuInit results in "
            "CUDA_ERROR_NO_DEVICE",
            "cuInit(0) returned 100",
        ),
        ("CUDA_ERROR_NO_DEVICE = 100,", "case CUDA_ERROR_NO_DEVICE_LEFT:", "cuInit took 100.5 ms"),
    ),
    "driver-library-mismatch": (
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124",
            "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
            "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
            "NVRM: API mismatch: the client has the version 390.25, but\n"
            "NVRM: this kernel module has the version 390.12.  Please\nNVRM: make sure that this kernel module",
            "[    9.424670] NVRM: API mismatch: the client 'kwin_wayland' (pid 1005)\n"
            "               NVRM: has the version 595.84, but this kernel module has\n"
            "               NVRM: the version 595.80.  Please make sure that this",
            "gpu-0 kernel: NVRM: API mismatch: the client has the version 535.54.03, but#012NVRM: this kernel module "
            "has the version 530.30.02.  Please#012NVRM: make sure",
        ),
        ("warning: library version mismatch: zlib 1.2 and 1.3", "API mismatch: the server has the version 3"),
    ),
    "compat-stale-803": (
        (
            TORCH_COUNT + "Error 803: system has unsupported display driver / cuda driver combination",
            "cudaErrorSystemDriverMismatch: system has unsupported display driver / cuda driver combination",
            "INTERNAL: cuInit failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
            "cuInit(0) -> 803",
            "CUDA initialization failed with error 803",
        ),
        ("HTTP error 803", "CUDA driver 580.803.01 loaded", "unsupported display driver: vga"),
    ),
    "compat-on-unsupported-gpu-804": (
        (
            TORCH_COUNT + "Error 804: forward compatibility was attempted on non supported HW",
            "cudaGetDeviceCount() returned cudaErrorCompatNotSupportedOnDevice, Error 804",
        ),
        ("forward compatibility was attempted and works", "Error 804: door open"),
    ),
    "stub-library-34": (
        (
            TORCH_COUNT + "Error 34: CUDA driver is a stub library",
            "numba.cuda.cudadrv.driver.CudaAPIError: [34] Call to cuInit results in CUDA_ERROR_STUB_LIBRARY",
        ),
        ("libfoo is a stub library", "CUDA_ERROR_STUB_LIBRARY                   = 34,"),
    ),
    "fabric-not-ready-802": (
        (
            TORCH_COUNT + "Error 802: system not yet initialized",
            "RuntimeError: CUDA error: system not yet initialized",
            "cuInit: 802",
        ),
        ("the heating system not yet initialized", "read 802 bytes"),
    ),
    "driver-init-failed-3": (
        (
            "UserWarning: CUDA initialization: CUDA driver initialization failed, you might not have a CUDA gpu. "
            "(Triggered internally at /pytorch/c10/cuda/CUDAFunctions.cpp:109.)",
            TORCH_COUNT + "Error 3: initialization error",
            "cuInit(0) = 3",
        ),
        ("Error 3: initialization errors were found in 2 modules".replace("Error 3", "Error 33"), "cuInit in 3.4 ms"),
    ),
    "cuda-unknown-error-999": (
        (
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing "
            "env variable CUDA_VISIBLE_DEVICES after program start.",
            TORCH_COUNT + "Error 999: unknown error",
            "cuInit returned 999",
        ),
        ("unknown error", "Error 999: unknown error", "CUDA error: unspecified launch failure"),
    ),
    "mps-not-reachable-805": (
        ("CUDA error 805: MPS client failed to connect to the MPS control daemon or the MPS server",),
        ("MQTT client failed to connect to the server",),
    ),
    "container-lost-gpu": (
        ("Failed to initialize NVML: Unknown Error",),
        ("Failed to initialize NVML: Insufficient Permissions", "Unknown Error"),
    ),
    "driver-too-old": (
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12040). "
            "Please update your GPU driver by downloading and installing a new version",
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version ...).",
        ),
        ("The NVIDIA driver on your system is new (found version 13000).", "your driver on your system is too old"),
    ),
    "driver-insufficient-35": (
        (
            "CUDA error 35: CUDA driver version is insufficient for CUDA runtime version",
            "[CUDA] Insufficient driver: 12040 < 13000",
        ),
        ("CUDA driver version is sufficient for CUDA runtime version", "Insufficient driver: Bob < Alice"),
    ),
    "call-needs-newer-driver-36": (
        ("cudaErrorCallRequiresNewerDriver: API call is not supported in the installed CUDA driver",),
        ("API call is not supported in the installed version",),
    ),
    "image-needs-newer-driver": (
        (
            "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver to "
            "a newer version, or use an earlier cuda container: unknown.",
            "nvidia-container-cli: requirement error: unsatisfied condition: driver>=550",
        ),
        ("pip: unsatisfied condition: python>=3.10",),
    ),
    "ptx-too-new-222": (
        ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",),
        ("the provided C file was compiled with an unsupported toolchain",),
    ),
    "invalid-device-101": (
        (
            "torch.AcceleratorError: CUDA error: invalid device ordinal",
            "CUDA failure 101: invalid device ordinal",
            "Call to cuDeviceGet results in CUDA_ERROR_INVALID_DEVICE",
        ),
        ("hipErrorInvalidDevice: invalid device ordinal", "CUDA_ERROR_INVALID_DEVICE = 101,"),
    ),
    "device-busy-46": (
        (
            "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
            "CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        ),
        ("the printer is busy or unavailable",),
    ),
    "cpu-only-torch": (
        (
            "AssertionError: Torch not compiled with CUDA enabled",
            "RuntimeError: PyTorch was compiled without CUDA support",
            "PyTorch version: 2.9.0\nIs debug build: False\nCUDA used to build PyTorch: None\nROCM used to build: N/A",
        ),
        ("CUDA used to build PyTorch: 13.0", "CUDA used to build PyTorch: N/A"),
    ),
    "wheel-lacks-gpu-arch": (
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device",
            "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch "
            "installation.",
            "    Found GPU0 Tesla V100-SXM2-16GB which is of cuda capability 7.0.\n"
            "    Minimum and Maximum cuda capability supported by this version of PyTorch is\n    (7.5) - (12.0)",
            "    Found GPU0 Tesla K40m which is of cuda capability 3.5.\n"
            "    PyTorch no longer supports this GPU because it is too old.",
            "UserWarning: Found GPU0 Tesla V100 which is of compute capability (CC) 7.0.\n"
            "The following list shows the CCs this version of PyTorch was built for and the hardware CCs it supports:\n"
            "- 7.5 which supports hardware CC >=7.5,<8.0\n- 8.0 which supports hardware CC >=8.0,<9.0\n"
            "Your installed torch==2.13.0+cu130 does not include kernels for this GPU. Reinstall the same version",
            "CUDA driver error: CUDA_ERROR_NO_BINARY_FOR_GPU",
        ),
        (
            "no image is available for execution",
            "Found GPU0 NVIDIA H200 which is of cuda capability 9.0.",
        ),
    ),
    "glibc-too-old": (
        ("ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by ext.so)",),
        ("   0x0020:   Name: GLIBC_2.32  Flags: none  Version: 4", "GLIBC_PRIVATE not found"),
    ),
    "libstdcxx-too-old": (
        (
            "ImportError: /opt/conda/bin/../lib/libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by x.so)",
            "/lib/x86_64-linux-gnu/libstdc++.so.6: version `CXXABI_1.3.15' not found (required by x.so)",
        ),
        ("GLIBCXX_3.4.30 found in /usr/lib/libstdc++.so.6",),
    ),
    "library-of-other-cpu": (
        ("/usr/bin/ld: _deps/libtorch-src/lib/libtorch_cpu.so: error adding symbols: file in wrong format",),
        ("/usr/bin/ld: x.a: error adding symbols: archive has no index", "tar: file in wrong format"),
    ),
    "cudnn-sublibrary-mismatch": (
        (
            "RuntimeError: CUDNN_BACKEND_TENSOR_DESCRIPTOR cudnnFinalize failed cudnn_status: "
            "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
        ),
        ("CUDNN_STATUS_EXECUTION_FAILED",),
    ),
    "cudnn-other-version": (
        (
            "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 10, 2) but found runtime "
            "version (8, 9, 7). PyTorch already comes bundled with cuDNN.",
            "Could not load library libcudnn_cnn_infer.so.8. Error: libcudnn_cnn_infer.so.8" + NO_FILE,
            "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, libcudnn_ops.so.9, libcudnn_ops.so}",
        ),
        ("cuDNN version: 9.10.2", "Unable to load any of {plugin_a, plugin_b}"),
    ),
    "nvjitlink-other-version": (
        (
            "ImportError: /opt/venv/lib/python3.12/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12:"
            " undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
        ),
        ("undefined symbol: nvjit_link", "libnvJitLink.so.12 => /usr/local/cuda/lib64/libnvJitLink.so.12"),
    ),
    "cublaslt-other-version": (
        ("libcublas.so.12: undefined symbol: cublasLtGetEnvironmentMode, version libcublasLt.so.12",),
        ("libcublas.so.12: undefined symbol: cublasGemm", "U cublasLtCreate"),
    ),
    "cublas-invalid-value": (
        ("RuntimeError: CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm( handle, opa, opb)`",),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",),
    ),
    "built-with-cuda-134-preview": (
        ("ImportError: /x/torch/lib/libtorch_cuda.so: undefined symbol: cublasLtGroupedMatrixLayoutCreate",),
        ("libmine.so: undefined symbol: cublasLtGroupedMatrixLayoutCreate",),
    ),
    "nccl-other-version": (
        ("ImportError: /x/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommRegister",),
        ("undefined symbol: nccl_plugin_hook",),
    ),
    "cudart-other-major": (
        ("ImportError: libcudart.so.12" + NO_FILE, "ImportError: libcudart.so.11.0" + NO_FILE),
        ("libcudart.so.12 => not found",),
    ),
    "torch-abi-mismatch": (
        (
            "ImportError: flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: "
            "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            "undefined symbol: _ZNK2at6Tensor5scaleEv",
            "ImportError: libtorch_cuda_cu.so" + NO_FILE,
        ),
        ("undefined symbol: _ZN5boost6system", "undefined symbol: PyUnicode_FromFormat"),
    ),
    "nvpl-missing": (
        ("ImportError: libnvpl_lapack_lp64_gomp.so.0" + NO_FILE, "libnvpl_blas_lp64_gomp.so.0" + NO_FILE),
        ("found libnvpl_blas_lp64_gomp.so.0",),
    ),
    "cudss-missing": (
        ("ImportError: libcudss.so.0" + NO_FILE, "ImportError: libcudss.so.1" + NO_FILE),
        ("libcudss.so.0 found",),
    ),
    "aarch64-wheel-library-missing": (
        (
            "ImportError: libarm_compute.so" + NO_FILE,
            "OSError: libgfortran.so.5" + NO_FILE,
            "ImportError: libcufile.so.0" + NO_FILE,
        ),
        ("libgfortran.so.5 is here",),
    ),
    "nvrtc-link-missing": (
        ("OSError: libnvrtc.so" + NO_FILE,),
        ("libnvrtc.so.13: opened",),
    ),
    "shared-library-missing": (
        (
            "python: error while loading shared libraries: libpython3.12.so.1.0" + NO_FILE,
            "ImportError: libmpi.so.40" + NO_FILE,
            "ImportError: libstdc++.so.6" + NO_FILE,
        ),
        ("cannot open shared object", "error: libmpi.so.40 is old", "/tmp/x: cannot open shared object file"),
    ),
    "triton-missing": (
        (
            "RuntimeError: Cannot find a working triton installation. More information on installing Triton can be "
            "found at https://github.com/openai/triton",
            "torch._inductor.exc.TritonMissing: Cannot find a working triton installation. Either the package is not",
            "ModuleNotFoundError: No module named 'triton'",
            "ModuleNotFoundError: No module named 'triton.ops'",
        ),
        ("ModuleNotFoundError: No module named 'tritonclient'", "No module named 'triton-model-analyzer'"),
    ),
    "ptxas-too-old-for-gpu": (
        ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",),
        ("ptxas fatal   : Value '7' is not defined for option 'opt-level'",),
    ),
    "cxx-compiler-not-found": (
        ("CMake Error: CMAKE_CXX_COMPILER not set, after EnableLanguage", "  No CMAKE_CXX_COMPILER could be found."),
        ("-- CMAKE_CXX_COMPILER: /usr/bin/c++", "CMAKE_CXX_COMPILER_AR not found"),
    ),
    "cuda-compiler-not-found": (
        (
            "CMake Error: CMAKE_CUDA_COMPILER not set, after EnableLanguage",
            "  No CMAKE_CUDA_COMPILER could be found.",
            "  Failed to find nvcc.",
            "  Could not find nvcc, please set CUDAToolkit_ROOT.",
        ),
        ("-- CMAKE_CUDA_COMPILER = /usr/local/cuda/bin/nvcc",),
    ),
    "cuda-home-not-set": (
        (
            "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
            "RuntimeError: CUDA was not found on the system, please set the CUDA_HOME or the CUDA_PATHenvironment "
            "variable or add NVCC to your system PATH. The extension compilation will fail.",
            "FileNotFoundError: nvcc not found at '/opt/cuda/bin/nvcc'. Ensure CUDA path '/opt/cuda' is correct.",
        ),
        ("OSError: ROCM_HOME environment variable is not set. Please set it to your ROCm install root.",),
    ),
    "nvcc-major-differs-from-torch": (
        (
            "RuntimeError: \nThe detected CUDA version (13.0) mismatches the version that was used to compile\n"
            "PyTorch (12.8). Please make sure to use the same CUDA versions.",
            "RuntimeError: ('The detected CUDA version (%s) mismatches the version that was used to compilePyTorch "
            "(%s). Please make sure to use the same CUDA versions.', '13.0', '12.8')",
            "RuntimeError: The detected CUDA version (13.0) mismatches the version that was \n"
            "used to compile PyTorch (12.8). Please make sure to use the same CUDA versions.",
        ),
        ("The detected CUDA version (13.0) matches the version that was used to compile PyTorch (13.0)",),
    ),
    "host-compiler-too-new": (
        (
            "/usr/local/cuda/include/crt/host_config.h:137:2: error: #error -- unsupported GNU version! gcc versions "
            "later than 15 are not supported!",
            "RuntimeError: The current installed version of g++ (15.1.0) is greater than the maximum required version "
            "by CUDA 12.8. Please make sure to use an adequate version of g++ (>=6.0.0, <15.0).",
        ),
        ("GNU version 15 is supported", "The current installed version of g++ (15.1.0) is fine"),
    ),
    "glibc-breaks-cuda-headers": (
        (
            "/usr/include/bits/mathcalls.h(79): error: exception specification is incompatible with that of previous "
            'function "cospi" (declared at line 2601 of /usr/local/cuda/include/crt/math_functions.h)',
            "  /usr/include/x86_64-linux-gnu/bits/mathcalls.h(79): error: exception\n"
            '  specification is incompatible with that of previous function "rsqrt"\n  (declared at line 2601 of',
        ),
        ('x.h(3): error: exception specification is incompatible with that of previous function "open_file"',),
    ),
    "gpu-arch-removed-from-nvcc": (
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_70'",
            "nvcc fatal   : Unsupported gpu architecture 'sm_52'",
        ),
        ("nvcc warning : Support for offline compilation for architectures prior to 'sm_75' will be removed",),
    ),
    "gpu-arch-101-is-now-110": (
        ("nvcc fatal   : Unsupported gpu architecture 'compute_101a'",),
        ("Unsupported gpu architecture 'compute_1010'",),
    ),
    "gpu-arch-unknown-to-nvcc": (
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
            "nvcc fatal : Unsupported gpu architecture 'sm_100f'",
        ),
        ("Unsupported gpu architecture 'gfx942'",),
    ),
    "arch-name-unknown-to-torch": (
        (
            "ValueError: Unknown CUDA arch (10.1) or GPU not supported",
            "CMake Error: Unknown CUDA Architecture Name 9.0a in CUDA_SELECT_NVCC_ARCH_FLAGS",
        ),
        ("Unknown CUDA architecture", "Unknown CPU arch (riscv) or GPU not supported"),
    ),
    "instruction-needs-arch-a": (
        (
            "ptxas /tmp/x.ptx, line 21; error   : Instruction 'wgmma.fence' not supported on .target 'sm_90'",
            "ptxas x.ptx, line 9; error : Feature '.cta_group' not supported on .target 'sm_100'",
            "ERROR : Arch conditional MMA instruction used without targeting appropriate compute capability. Aborting.",
        ),
        ("this option is not supported on .target files",),
    ),
    "nvtoolsext-gone": (
        (
            "Failed to find nvToolsExt",
            'The link interface of target "torch::nvtoolsext" contains:\n\n    CUDA::nvToolsExt\n\n'
            "  but the target was not found.  Possible reasons include:",
        ),
        ("-- Found CUDA::nvToolsExt", "CUDA::nvToolsExt\n\n  but the target was found"),
    ),
    "cmake4-policy": (
        ("  Compatibility with CMake < 3.5 has been removed from CMake.",),
        ("  Compatibility with CMake < 3.10 will be removed from a future version of CMake.",),
    ),
    "cuda13-device-fields-removed": (
        (
            'x.cu(6): error: class "cudaDeviceProp" has no member "clockRate"',
            "x.cpp:444:22: error: \u2018struct cudaDeviceProp\u2019 has no member named \u2018memoryClockRate\u2019",
            "x.cpp:4: error: 'struct cudaDeviceProp' has no member named 'deviceOverlap'",
        ),
        (
            'x.cu(6): error: class "cudaDeviceProp" has no member "colour"',
            'x.cu(6): error: class "Clock" has no member "clockRate"',
        ),
    ),
    "cuda13-memory-location-call": (
        (
            'm.cu(3): error: no suitable constructor exists to convert from "int" to "cudaMemLocation"',
            "m.cu(4): error: too few arguments in function call\n    cudaMemPrefetchAsync(q, 1, 0);\n           ^",
            "error: too few arguments to function \u2018CUresult cuMemPrefetchAsync(CUdeviceptr, size_t)\u2019",
        ),
        ('no suitable constructor exists to convert from "int" to "Widget"', "error: too few arguments to function f"),
    ),
    "cuda13-cub-functors-removed": (
        (
            'c.cu(2): error: namespace "cub" has no member "Max"',
            "c.cpp:2: error: \u2018Sum\u2019 is not a member of \u2018cub\u2019",
        ),
        (
            'c.cu(2): error: namespace "cub" has no member "Mox"',
            "error: \u2018Max\u2019 is not a member of \u2018std\u2019",
        ),
    ),
    "cudart-static-not-found": (
        ("/usr/bin/ld: cannot find -lcudart_static: No such file or directory", "ld: cannot find -lcudadevrt"),
        ("/usr/bin/ld: cannot find -lcudnn_static",),
    ),
    "compiler-killed-out-of-memory": (
        (
            "g++: fatal error: Killed signal terminated program cc1plus",
            "g++: internal compiler error: Killed (program cc1plus)",
            "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        ),
        ("g++: fatal error: Terminated signal terminated program cc1plus", "Killed"),
    ),
    "compiler-crashed": (
        (
            "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)",
            "ptxas fatal   : Internal error: writing file",
        ),
        ("worker died due to signal 15",),
    ),
    "bdist-wheel-missing": (
        (
            "ModuleNotFoundError: No module named 'setuptools.command.bdist_wheel'",
            "error: invalid command 'bdist_wheel'",
        ),
        ("running bdist_wheel", "error: invalid command 'bdist_egg'"),
    ),
    "install-into-system-python": (
        (
            "CMake Error at caffe2/cmake_install.cmake:287 (file):\n  file INSTALL cannot make directory\n"
            '  "/usr/local/lib/python3.12/dist-packages/torch/lib": Permission denied.',
            "  file cannot create directory: /usr/lib/python3/dist-packages/torch/lib.\n"
            "  Maybe need administrative privileges.",
        ),
        ('file INSTALL cannot make directory "/usr/local/share/doc": Permission denied.',),
    ),
    "externally-managed-python": (
        ("error: externally-managed-environment", "\u00d7 This environment is externally managed"),
        ("see also externally-managed-environments in the guide",),
    ),
    "expandable-segments-address-space": (
        (
            "[ExpandableSegmentVA] Failed to reserve 160000000000 bytes (149.01 GiB) of virtual address space for an "
            "expandable CUDA segment on device 0",
            "This is virtual-address-space (VSZ) exhaustion from expandable segments, not physical GPU OOM.",
        ),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
    ),
    "gpu-out-of-memory": (
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 300.00 GiB. GPU 0 has a total capacity of "
            "139.80 GiB",
            # torch 2.15 adds a hint about virtual memory to every such message; the cause is still the GPU's memory
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. expandable_segments is enabled. "
            "If instead the process is running out of virtual address space (VSZ), expandable segments may be "
            "over-reserving VA",
            "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        ),
        ("the host is out of memory", "CUDA out of memory handling is enabled"),
    ),
    "cuda-in-forked-process": (
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
            "use the 'spawn' start method",
        ),
        ("Cannot re-initialize CUDA graphs",),
    ),
    "nvcc-minor-differs-from-torch": (
        (
            "UserWarning: The detected CUDA version (12.6) has a minor version mismatch with the version that was used "
            "to compile PyTorch (12.8). Most likely this shouldn't be a problem.",
        ),
        ("Python has a minor version mismatch",),
    ),
    "gb10-capability-warning": (
        (
            "    Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.\n"
            "    Minimum and Maximum cuda capability supported by this version of PyTorch is\n    (8.0) - (12.0)\n",
            "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1. Minimum and Maximum cuda capability supported by "
            "this version of PyTorch is (8.0) - (12.0)",
        ),
        (
            "Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.",
            "Found GPU0 X which is of cuda capability 12.1.\nMinimum and Maximum cuda capability supported by this "
            "version of PyTorch is\n(5.0) - (9.0)",
        ),
    ),
    "no-gpu-while-building": (
        (
            "No CUDA runtime is found, using CUDA_HOME='/usr/local/cuda'",
            "W1115 03:29:09.743000 1165 torch/utils/cpp_extension.py:140] No CUDA runtime is found, using "
            "CUDA_HOME='/usr/local/cuda'",
        ),
        ("No ROCm runtime is found, using ROCM_HOME='/opt/rocm'",),
    ),
    "host-clang-too-new": (
        ("error: -- unsupported clang version! clang version must be less than 19 and greater than 3.2 .",),
        ("clang version must be supported",),
    ),
    "driver-too-old-cuda-11": (
        ("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).",),
        ("The NVIDIA driver on your system is too old (found version 12040).",),
    ),
    "driver-too-old-cuda-10": (
        (
            "AssertionError: \nThe NVIDIA driver on your system is too old (found version 9000).",
            "The NVIDIA driver on your system is too old (found version 10020).",
        ),
        ("The NVIDIA driver on your system is too old (found version 11000).",),
    ),
    "module-key-rejected": (
        (
            "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
            "insmod: ERROR: could not insert module ./nvidia.ko: Key was rejected by service",
        ),
        ("the API answered: Key was rejected by service", "nvidia: module loaded"),
    ),
    "open-modules-required": (
        ("NVRM: installed in this system requires use of the NVIDIA open kernel modules.",),
        ("see the NVIDIA open kernel modules",),
    ),
    "nouveau-holds-gpu": (
        ("NVRM: GPU 0000:01:00.0 is already bound to nouveau.",),
        ("nouveau is already loaded",),
    ),
    "container-host-lacks-driver": (
        (
            "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared "
            "object file: no such file or directory: unknown.",
        ),
        ("OSError: libnvidia-ml.so.1" + NO_FILE,),
    ),
    "docker-runtime-unknown": (
        (
            "docker: Error response from daemon: unknown or invalid runtime name: nvidia",
            "Error response from daemon: Unknown runtime specified nvidia.",
        ),
        ("unknown or invalid runtime name: crun",),
    ),
    "libcuda-damaged": (
        (
            "ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short",
            "OSError: /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1: file too short",
        ),
        ("libcurl.so.4: file too short", "tar: file too short"),
    ),
    "xid-in-kernel-log": (
        (
            "NVRM: Xid (PCI:0000:01:00): 119, Timeout after 45s of waiting for RPC response from GPU0 GSP!",
            "[ 12.3] NVRM: Xid (PCI:0000:3b:00): 31, pid=79, name=python, Ch 00000008",
        ),
        ("Xid (79) is explained in the guide", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
    ),
    "torch-not-installed": (
        ("ModuleNotFoundError: No module named 'torch'", "ImportError: No module named torch"),
        ("No module named 'torch_scatter'", "No module named 'torch.foo'", "No module named 'torchaudio'"),
    ),
    "torch-shadowed": (
        ("ModuleNotFoundError: No module named 'torch._C'",),
        ("ModuleNotFoundError: No module named 'torch._Custom'", "No module named 'vllm._C'"),
    ),
    "torch-for-other-vendor": (("RuntimeError: No HIP GPUs are available",), ("HIP GPUs are available",)),
    "torchvision-of-other-torch": (
        ("RuntimeError: operator torchvision::nms does not exist",),
        ("torchvision::nms registered",),
    ),
    "extension-for-other-torch": (
        ("WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:",),
        ("xFormers loads C++/CUDA extensions",),
    ),
    "pip-packages-disagree": (
        (
            "ERROR: pip's dependency resolver does not currently take into account all the packages that are "
            "installed. This behaviour is the source of the following dependency conflicts.",
        ),
        ("pip's dependency resolver is new",),
    ),
    "torch-version-not-offered": (
        (
            "ERROR: Could not find a version that satisfies the requirement torch==2.9.0+cu130 (from versions: 2.9.0)",
            "ERROR: Could not find a version that satisfies the requirement torchvision (from versions: none)",
        ),
        ("Could not find a version that satisfies the requirement numpy==9",),
    ),
    "cublas-not-initialized": (
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",),
        ("CUBLAS_STATUS_NOT_INITIALIZED = 1,",),
    ),
    "kernel-image-invalid-200": (
        ("RuntimeError: CUDA error: device kernel image is invalid", "cuModuleLoad: Error CUDA_ERROR_INVALID_IMAGE"),
        ("the docker image is invalid", "CUDA_ERROR_INVALID_IMAGE = 200,"),
    ),
    "c-compiler-not-found": (
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",),
        ("found C compiler",),
    ),
    "python-headers-missing": (
        ("main.c:5:10: fatal error: Python.h: No such file or directory",),
        ("#include <Python.h>",),
    ),
    "cuda-headers-missing": (
        (
            "fatal error: cuda_runtime.h: No such file or directory",
            "c10/cuda/CUDAStream.h:6:10: fatal error: cuda_runtime_api.h: No such file or directory",
        ),
        ("#include <cuda_runtime.h>", "torch/extension.h: No such file or directory"),
    ),
    "ninja-missing": (
        ("RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",),
        ("ninja: no work to do.",),
    ),
    "shared-memory-too-small": (
        (
            "RuntimeError: DataLoader worker (pid 572) is killed by signal: Bus error. It is possible that "
            "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
            "(shm).",
        ),
        ("DataLoader worker (pid 572) is killed by signal: Killed.",),
    ),
    "disk-full": (
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",),
        ("[Errno 2] No such file", "if it says No space left on device, free some"),
    ),
    "nccl-cuda-error": (
        (
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, "
            "unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2",
            "NCCL failure common.cu:908 'unhandled cuda error'",
        ),
        ("unhandled cuda error in the docs",),
    ),
    "nccl-system-error": (
        (
            "RuntimeError: NCCL Error 2: unhandled system error",
            "Test NCCL failure common.cu:777 'unhandled system error'",
        ),
        ("unhandled system error 5",),
    ),
    "cuda-error-code": (
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "CUDA error 719: unspecified launch failure",
            "CUDA failure 700: x",
            "Cuda failure 1 'invalid argument'",
            "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access",
            "Call to cuMemcpy results in CUDA_ERROR_ILLEGAL_ADDRESS",
            "cuInit(0) returned 304",
        ),
        (
            "error 100",
            "program stopped: error 700",
            "CUDA error handling is on",
            "CUDA error 567",
            "case cudaErrorIllegalAddress: return 1;",
            "CUDA_ERROR_ILLEGAL_ADDRESS = 700,",
            "cuInit at line 3",
        ),
    ),
}
POSITIVES = [(code, text) for code, (texts, _) in EXAMPLES.items() for text in texts]
NEAR_MISSES = [(code, text) for code, (_, texts) in EXAMPLES.items() for text in texts]


def codes(text: str) -> list[str]:
    return [explanation.signature.code for explanation in explain_text(text).explanations]


def test_every_signature_has_examples_and_near_misses() -> None:
    assert set(EXAMPLES) == {signature.code for signature in signatures()}
    assert all(texts and near for texts, near in EXAMPLES.values())


@pytest.mark.parametrize(("code", "text"), POSITIVES, ids=lambda value: value[:50])
def test_a_signature_knows_its_own_text_and_only_it_does(code: str, text: str) -> None:
    assert codes(text) == [code]


@pytest.mark.parametrize(("code", "text"), POSITIVES, ids=lambda value: value[:50])
def test_one_message_counts_once(code: str, text: str) -> None:
    [explanation] = explain_text(text).explanations
    assert explanation.count == 1


@pytest.mark.parametrize(("code", "text"), NEAR_MISSES, ids=lambda value: value[:50])
def test_a_near_miss_is_not_taken_for_it(code: str, text: str) -> None:
    assert code not in codes(text)


@pytest.mark.parametrize("signature", signatures(), ids=lambda signature: signature.code)
def test_a_row_is_complete_and_its_placeholders_are_its_captures(signature: object) -> None:
    from firstlight.diagnosis.signatures import Signature

    assert isinstance(signature, Signature)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", signature.code)
    assert signature.patterns
    assert signature.ways_out
    assert signature.source
    assert signature.prove.run
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", signature.date)
    assert signature.confidence in Confidence
    groups: set[str] = set()
    for pattern in signature.patterns:
        assert len(pattern.anchor) >= 5
        assert "\n" not in pattern.anchor
        groups |= set(re.compile(pattern.regex).groupindex)
    names = {captured.name for captured in signature.captures}
    assert groups == names
    looked_up = set(LOOKUPS[signature.lookup][0]) if signature.lookup else set()
    texts = [signature.cause, signature.means, signature.prove.say, *signature.prove.run]
    texts += [part for way in signature.ways_out for part in (way.say, *way.run)]
    for text in texts:
        # a bare {word} is a placeholder of ours; ${WORD} and {{...}} belong to the shell and to docker
        assert set(re.findall(r"(?<![${])\{([a-z_]+)\}", text)) <= names | looked_up
        assert "!" not in text.replace("!=", "")
    assert not any("\u2014" in text for text in texts)


def test_every_pattern_is_found_by_its_anchor() -> None:
    """The anchor is a plain part of what the regex matches, else the search would never reach the regex."""
    for signature in signatures():
        texts = [" ".join(text.split()) for text in EXAMPLES[signature.code][0]]
        for pattern in signature.patterns:
            for text in texts:
                if re.search(pattern.regex, text):
                    assert pattern.anchor in text, (signature.code, pattern)


def test_codes_are_unique_and_the_most_basic_comes_first() -> None:
    rows = signatures()
    assert len({row.code for row in rows}) == len(rows)
    depth = {row.code: row.depth for row in rows}
    order = ["driver-not-loaded", "driver-too-old", "wheel-lacks-gpu-arch", "shared-library-missing", "cmake4-policy"]
    assert sorted(order, key=depth.__getitem__) == order


def test_no_text_repeats_the_wrong_floor_of_cuda_13() -> None:
    """580.95.05 is only the driver that came with 13.0 Update 2; the floor is branch 580, first release 580.65.06."""
    for signature in signatures():
        for text in (signature.cause, signature.means, *(way.say for way in signature.ways_out)):
            assert "580.95.05" not in text


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("driver on your system is too old (found version 12040)", "driver_cuda", "12.4"),
        ("driver on your system is too old (found version 11080)", "driver_cuda", "11.8"),
        ("Insufficient driver: 12080 < 13000", "runtime_cuda", "13.0"),
        ("with CUDA capability sm_120 is not compatible with the current PyTorch installation", "gpu", "12.0"),
        ("which is of compute capability (CC) 7.0.", "gpu", "7.0"),
        ("libcudart.so.13: cannot open shared object file", "major", "13"),
        ("NVML: Driver/library version mismatch\nNVML library version: 570.124", "library_version", "570.124"),
        ("Value 'sm_110a' is not defined for option 'gpu-name'", "arch", "sm_110a"),
    ],
)
def test_versions_are_read_out_of_the_text(text: str, name: str, value: str) -> None:
    [explanation] = explain_text(text).explanations
    assert dict(explanation.sightings[0].values)[name] == value


def test_captured_versions_stand_in_the_cause_and_in_the_commands() -> None:
    text = "The detected CUDA version (13.0) mismatches the version that was used to compile PyTorch (12.8). Please"
    [explanation] = explain_text(text).explanations
    assert "of CUDA 13.0; torch was built with 12.8" in explanation.signature.cause
    assert "export CUDA_HOME=/usr/local/cuda-12.8" in explanation.signature.ways_out[0].run[0]


def test_the_two_false_alarms_and_the_minor_mismatch_say_so() -> None:
    harmless = {signature.code for signature in signatures() if signature.not_a_fault}
    assert harmless == {"gb10-capability-warning", "no-gpu-while-building", "nvcc-minor-differs-from-torch"}


# --- the same messages as they come out of real logs ---

NOISE_PREFIXES = st.sampled_from(
    [
        "",
        "2026-11-15 02:38:25,123 INFO [rank0]: ",
        "2026-11-15T02:38:25.123456Z ",
        "[2026-11-15 02:38:25] ERROR ",
        "[rank3]: ",
        "(EngineCore_0 pid=4711) ERROR 11-15 02:38:25 [core.py:700] ",
        "Nov 15 02:38:25 host-a kernel: ",
        "trainer-0  | ",
        "#12 34.56 ",
        "      ",
        "E   ",
        "[1,3]<stderr>:",
        "[  123.456789] ",
    ]
)
LINE_ENDS = st.sampled_from(["\n", "\r\n"])
COLOURS = st.sampled_from(["\x1b[31m", "\x1b[01;31m\x1b[K", "\x1b[0m", "\x1b[m\x1b[K", "\x1b[38;5;196m"])
FOLDERS = st.sampled_from(["/opt/venv/lib/", "/home/user/.local/share/", "/usr/lib/", "/data/run 7/", "/a/"])
_PATH = re.compile(r"(?<![\w:/.'])/(?:[\w.+-]+/)+")


def _elsewhere(text: str, folder: str) -> str:
    """The same message about files in another folder; folders that the signature itself looks at stay."""
    return text if "-packages/" in text else _PATH.sub(lambda _: folder, text)


def _coloured(text: str, places: list[int], colour: str) -> str:
    for place in sorted({place % (len(text) + 1) for place in places}, reverse=True):
        text = text[:place] + colour + text[place:]
    return text


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(POSITIVES),
    NOISE_PREFIXES,
    LINE_ENDS,
    st.lists(st.integers(0, 400), max_size=4),
    COLOURS,
    FOLDERS,
    st.sampled_from(["", "Traceback (most recent call last):", "step 1 loss=2.31", "\x00\xff binary \x01"]),
)
def test_a_signature_survives_prefixes_colours_folders_and_line_ends(
    example: tuple[str, str], prefix: str, end: str, places: list[int], colour: str, folder: str, around: str
) -> None:
    code, text = example
    lines = _coloured(_elsewhere(text, folder), places, colour).split("\n")
    log = end.join([around, *(prefix + line for line in lines), around, ""])
    assert code in codes(log)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(POSITIVES), st.data())
def test_a_signature_survives_a_lost_beginning_of_the_line(example: tuple[str, str], data: st.DataObject) -> None:
    code, text = example
    [explanation] = explain_text(text).explanations
    patterns = [re.search(pattern.regex, text) for pattern in explanation.signature.patterns]
    starts = [match.start() for match in patterns if match is not None]
    cut = data.draw(st.integers(0, min(starts, default=0)))
    assert code in codes(text[cut:])


@settings(max_examples=150, deadline=None)
@given(st.integers(9, 20), st.integers(0, 9), st.integers(11, 20), st.integers(0, 9))
def test_other_versions_of_the_same_messages_are_known(major: int, minor: int, other: int, digit: int) -> None:
    version, number = f"{major}.{minor}", major * 1000 + minor * 10
    [found] = explain_text(f"The NVIDIA driver on your system is too old (found version {number}).").explanations
    assert dict(found.sightings[0].values) == {"driver_cuda": version}
    message = "The detected CUDA version ({0}) mismatches the version that was used to compile\nPyTorch ({1})."
    [found] = explain_text(message.format(version, f"{other}.{digit}")).explanations
    assert dict(found.sightings[0].values) == {"nvcc": version, "torch": f"{other}.{digit}"}
    assert codes(f"libcudart.so.{major}: cannot open shared object file") == ["cudart-other-major"]
    assert codes(f"version `GLIBCXX_3.4.{other}' not found") == ["libstdcxx-too-old"]
    assert codes(f"unsatisfied condition: cuda>={version}, please") == []
    assert codes(f"requirement error: unsatisfied condition: cuda>={version}, please") == ["image-needs-newer-driver"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([(code, text) for code, text in POSITIVES if "\n" not in text and " " in text]), st.data())
def test_a_message_wrapped_at_a_space_is_still_known(example: tuple[str, str], data: st.DataObject) -> None:
    """A terminal or CMake breaks a line at a space; only a break inside the anchor itself is out of reach."""
    code, text = example
    anchors = [
        (at, at + len(pattern.anchor))
        for signature in signatures()
        if signature.code == code
        for pattern in signature.patterns
        if (at := text.find(pattern.anchor)) >= 0
    ]
    spaces = [m.start() for m in re.finditer(" ", text) if not any(a <= m.start() < b for a, b in anchors)]
    if not spaces:
        return
    place = data.draw(st.sampled_from(spaces))
    wrapped = text[:place] + "\n" + text[place + 1 :]
    assert code in codes(wrapped)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_answered_and_nothing_is_made_up(text: str) -> None:
    assert codes(text) == []
