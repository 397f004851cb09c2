"""Breaks real builds and keeps what they print: python -m tests.build.make_failure_logs writes logs/ anew.

Each log begins with the command that made it. Which line is the first real error was decided by reading the log, and
stands here beside the case.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

LOGS = Path(__file__).parent / "logs"
NVCC = "/usr/local/cuda-13.0/bin/nvcc"
KILLING = '#!/bin/sh\ng++ -c "$2" -o "$4" & sleep 0.1; kill -9 $$\n'
LIMITED = '#!/bin/sh\nulimit -v 60000\nexec g++ -O2 -c "$2" -o "$4"\n'


@dataclass(frozen=True)
class Break:
    """A build that fails: its files, its commands for ninja or a whole command line, and its first real error."""

    name: str
    error: str  # what the line that states the fault holds
    files: dict[str, str]
    units: dict[str, str] = field(default_factory=dict)  # output -> command
    command: str = ""


FINE = "int fine() { return 1; }\n"
MAIN = "int main() { return 0; }\n"
SETUP = "from setuptools import setup, Extension\nsetup(name='x', ext_modules=[Extension('x', ['x.cpp'], %s)])\n"
MODULE = "#include <Python.h>\nPyMODINIT_FUNC PyInit_x() { return nullptr; }\n"
BREAKS = (
    Break("missing-header", "fatal error: nccl.h: No such file or directory", {"a.cpp": "#include <nccl.h>\n"},
          {"a.o": "g++ -c a.cpp -o a.o"}),
    Break("undeclared-after-warning", "error: 'nowhere' was not declared",
          {"a.cpp": "int error_count() { int unused; return 1; }\nint f() { return nowhere; }\n"},
          {"a.o": "g++ -Wall -c a.cpp -o a.o"}),
    Break("missing-semicolon", "error: expected ',' or ';' before 'return'", {"a.cpp": "int f() { int x = 1\n return x; }\n"},
          {"a.o": "g++ -c a.cpp -o a.o"}),
    Break("static-assert", "error: static assertion failed: needs C++20",
          {"a.cpp": "template <class T> struct S { static_assert(sizeof(T) > 9, \"needs C++20\"); };\nS<int> s;\n"},
          {"a.o": "g++ -c a.cpp -o a.o"}),
    Break("no-member", "has no member named 'size_bytes'", {"a.cpp": "struct T {}; int f(T t) { return t.size_bytes(); }\n"},
          {"a.o": "g++ -c a.cpp -o a.o"}),
    Break("werror", "error: unused variable 'x' [-Werror=unused-variable]", {"a.cpp": "void f() { int x; }\n"},
          {"a.o": "g++ -Wall -Werror -c a.cpp -o a.o"}),
    Break("wrong-standard", "error: 'concept' does not name a type", {"a.cpp": "template <class T> concept C = true;\n"},
          {"a.o": "g++ -std=c++14 -c a.cpp -o a.o"}),
    Break("undefined-reference", "undefined reference to `gone()'", {"a.cpp": "void gone(); int main() { gone(); }\n"},
          {"a": "g++ a.cpp -o a"}),
    Break("multiple-definition", "multiple definition of `fine()'", {"a.cpp": FINE, "b.cpp": FINE + MAIN},
          {"a": "g++ a.cpp b.cpp -o a"}),
    Break("missing-library", "cannot find -lnccl_static: No such file or directory", {"a.cpp": MAIN},
          {"a": "g++ a.cpp -lnccl_static -o a"}),
    Break("not-an-object", "file format not recognized", {"a.o": "no object\n", "a.cpp": MAIN}, {"a": "g++ a.cpp a.o -o a"}),
    Break("memory-limit", "out of memory allocating|virtual memory exhausted|cannot allocate memory|Cannot allocate",
          {"a.cpp": "#include <regex>\n#include <map>\nstd::regex r; std::map<int, int> m;\n", "limited.sh": LIMITED},
          {"a.o": "sh limited.sh -c a.cpp -o a.o"}),
    Break("killed", "Killed", {"a.cpp": FINE, "killing.sh": KILLING}, {"a.o": "sh killing.sh -c a.cpp -o a.o; exit $?"}),
    Break("disk-full", "No space left on device", {"a.cpp": FINE}, {"a.o": "g++ -S a.cpp -o /dev/full"}),
    Break("no-folder-to-write", "No such file or directory", {"a.cpp": FINE}, {"a.o": "g++ -c a.cpp -o gone/a.o"}),
    Break("no-compiler", "not found", {"a.cpp": FINE}, {"a.o": "g++-99 -c a.cpp -o a.o"}),
    Break("unknown-option", "error: unrecognized command-line option '-fno-such-thing'", {"a.cpp": FINE},
          {"a.o": "g++ -fno-such-thing -c a.cpp -o a.o"}),
    Break("second-of-three", "error: 'b_is_broken' was not declared",
          {"a.cpp": FINE, "b.cpp": "int f() { return b_is_broken; }\n", "c.cpp": "int g() { return c_too; }\n"},
          {"a.o": "g++ -c a.cpp -o a.o", "b.o": "g++ -c b.cpp -o b.o", "c.o": "sleep 2; g++ -c c.cpp -o c.o"}),
    Break("nvcc-old-architecture", "Unsupported gpu architecture 'sm_35'", {"a.cu": "__global__ void k() {}\n"},
          {"a.o": f"{NVCC} -arch=sm_35 -c a.cu -o a.o"}),
    Break("nvcc-unknown-option", "Unknown option '-fno-such-thing'", {"a.cu": "__global__ void k() {}\n"},
          {"a.o": f"{NVCC} -fno-such-thing -c a.cu -o a.o"}),
    Break("nvcc-undefined", 'error: identifier "nowhere" is undefined', {"a.cu": "__global__ void k() { int unused; nowhere(); }\n"},
          {"a.o": f"{NVCC} -arch=sm_90 -c a.cu -o a.o"}),
    Break("nvcc-missing-header", "fatal error: cute/tensor.hpp: No such file or directory", {"a.cu": "#include <cute/tensor.hpp>\n"},
          {"a.o": f"{NVCC} -arch=sm_90 -c a.cu -o a.o"}),
    Break("ptxas-shared-memory", "uses too much shared data", {
          "a.cu": "__global__ void k(float* x) { __shared__ float s[20000]; s[threadIdx.x] = x[0]; __syncthreads(); x[0] = s[7]; }\n"},
          {"a.o": f"{NVCC} -arch=sm_90 -c a.cu -o a.o"}),
    Break("nvcc-no-host-compiler", "Failed to preprocess host compiler properties|No such file or directory", {"a.cu": FINE},
          {"a.o": f"{NVCC} -ccbin /nonexistent/g++ -c a.cu -o a.o"}),
    Break("cmake-too-old", "CMake 9.9 or higher is required", {"CMakeLists.txt": "cmake_minimum_required(VERSION 9.9)\n"},
          command="cmake -S . -B build"),
    Break("cmake-no-package", "CMake Error at CMakeLists.txt:3 (find_package)", {
          "CMakeLists.txt": "cmake_minimum_required(VERSION 3.20)\nproject(x CXX)\nfind_package(NVPL REQUIRED)\n"},
          command="cmake -S . -B build"),
    Break("setuptools-missing-header", "fatal error: cudnn.h: No such file or directory",
          {"setup.py": SETUP % "", "x.cpp": "#include <cudnn.h>\n" + MODULE}, command="python setup.py build_ext"),
    Break("setuptools-link", "cannot find -lnvpl_blas", {"setup.py": SETUP % "libraries=['nvpl_blas']", "x.cpp": MODULE},
          command="python setup.py build_ext"),
    Break("setup-without-torch", "ModuleNotFoundError: No module named 'no_such_torch'",
          {"setup.py": "import no_such_torch\nfrom setuptools import setup\nsetup()\n"}, command="python setup.py build_ext"),
)  # fmt: skip


def made(case: Break) -> str:
    """What a broken build prints, with the command in front."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in case.files.items():
            Path(folder, name).write_text(text)
        command = case.command or "ninja -k 0 -j 1"
        if case.units:
            rules = "".join(
                f"rule r{at}\n  command = {said.replace('$', '$$')}\n  description = Building CXX object {output}\n"
                f"build {output}: r{at}\n"
                for at, (output, said) in enumerate(case.units.items())
                if not Path(folder, output).exists()
            )
            Path(folder, "build.ninja").write_text(rules)
        here = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        done = subprocess.run(
            command, shell=True, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, "LC_ALL": "C", "NINJA_STATUS": "[%f/%t] ", "PATH": here},
        )  # fmt: skip
        assert done.returncode != 0, case.name
        return f"# made by: {command}\n" + done.stdout.replace(folder, "/src").replace(sys.prefix, "/venv")


def main() -> None:
    LOGS.mkdir(exist_ok=True)
    for case in BREAKS:
        (LOGS / f"{case.name}.log").write_text(made(case))


if __name__ == "__main__":
    main()
