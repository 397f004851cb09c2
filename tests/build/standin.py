"""A project to be built for real: C++ and CUDA units, USE_* options, a submodule on a local remote, CMake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PYPROJECT = """
[build-system]
requires = ["scikit-build-core>=0.10"]
build-backend = "scikit_build_core.build"
[project]
name = "standin"
version = "1.0"
[tool.scikit-build]
build.targets = ["_standin"]
wheel.packages = ["standin"]
"""
CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(standin LANGUAGES CXX)
option(USE_CUDA "CUDA units too" OFF)
option(USE_LOUD "Say more" ON)
find_package(Python COMPONENTS Interpreter Development.Module REQUIRED)
file(GLOB SOURCES CONFIGURE_DEPENDS src/*.cpp)
if(USE_CUDA)
  enable_language(CUDA)
  file(GLOB KERNELS CONFIGURE_DEPENDS src/*.cu)
endif()
python_add_library(_standin MODULE ${SOURCES} ${KERNELS} WITH_SOABI)
target_include_directories(_standin PRIVATE part)
if(USE_LOUD)
  target_compile_definitions(_standin PRIVATE LOUD=1)
endif()
install(TARGETS _standin LIBRARY DESTINATION standin)
"""
MODULE = """
#include <Python.h>
#include <part.h>
%(declared)s
static PyObject* total(PyObject*, PyObject*) { return PyLong_FromLong(0%(sum)s); }
static PyMethodDef methods[] = {{"total", total, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_standin", "", -1, methods, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC PyInit__standin() { return PyModule_Create(&module); }
"""
UNIT = "#include <part.h>\n#include <%(header)s>\nlong unit_%(n)d() { return %(n)d * PART; }\n"
HEAVY_UNIT = UNIT + "long heavy_%(n)d(const char* text) { return heavy(text); }\n"
# A header of the submodule with which a unit takes a second and a half, as small units of real projects do.
HEAVY = """#include <bits/stdc++.h>
inline long heavy(const char* text) {
    std::map<std::string, std::vector<std::string>> found;
    std::unordered_map<std::string, std::function<long(long)>> calls;
    std::istringstream words{std::string(text)};
    for (std::string word; words >> word;) found[word.substr(0, 1)].push_back(word);
    std::vector<std::pair<std::string, long>> counted;
    for (const auto& [first, all] : found) {
        counted.emplace_back(first, static_cast<long>(all.size()));
        calls[first] = [size = all.size()](long more) { return static_cast<long>(size) + more; };
    }
    std::stable_sort(counted.begin(), counted.end());
    auto last = [&] { return counted.empty() ? 0 : calls[counted.back().first](1); };
    auto later = std::async(std::launch::deferred, last);
    return later.get();
}
"""
KERNEL = "__global__ void kernel_%(n)d(float* x) { x[threadIdx.x] *= %(n)d; }\nlong kernel_unit_%(n)d() { return 0; }\n"


def git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.invalid", "-c", "protocol.file.allow=always")
    subprocess.run(["git", *author, "-C", str(folder), *words], check=True, capture_output=True)


def make_part(folder: Path) -> Path:
    """The repository that becomes the submodule."""
    folder.mkdir()
    (folder / "part.h").write_text("#define PART 1\n")
    (folder / "heavy.h").write_text(HEAVY)
    git(folder, "init", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "part")
    return folder


def make_standin(
    folder: Path, *, units: int, kernels: int = 0, header: str = "string", submodule: bool = False
) -> Path:
    """The tree; its module's total() is the sum of 0 ... units-1."""
    (folder / "src").mkdir(parents=True)
    (folder / "standin").mkdir()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "standin/__init__.py").write_text("from standin._standin import total\n")
    numbers = range(units)
    declared = "\n".join(f"long unit_{n}();" for n in numbers)
    module = MODULE % {"declared": declared, "sum": "".join(f" + unit_{n}()" for n in numbers)}
    (folder / "src/module.cpp").write_text(module)
    for n in numbers:
        text = HEAVY_UNIT if header == "heavy.h" else UNIT
        (folder / f"src/unit_{n}.cpp").write_text(text % {"n": n, "header": header})
    for n in range(kernels):
        (folder / f"src/kernel_{n}.cu").write_text(KERNEL % {"n": n})
    git_part(folder, submodule=submodule)
    return folder


def git_part(folder: Path, *, submodule: bool) -> None:
    if not submodule:
        make_part(folder / "part")
        subprocess.run(["rm", "-rf", str(folder / "part/.git")], check=True)
        return
    part = make_part(folder.parent / "part-remote")
    git(folder, "init", "--initial-branch=main")
    git(folder, "submodule", "add", str(part), "part")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "stand-in")


def make_environment(folder: Path) -> Path:
    """A venv that has what the tests' own has, and a site-packages of its own; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    own = [each for each in sys.path if each.endswith("site-packages")]
    (site / "tests-own.pth").write_text("".join(f"{each}\n" for each in own))
    for name in ("cmake", "ninja"):
        (folder / "bin" / name).symlink_to(Path(sys.executable).parent / name)
    return folder / "bin/python"
