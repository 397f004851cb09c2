"""What `import torch` opens from Python: read from its source, and held against an import of the torch that is here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.elf.closure import closure_of_many
from firstlight.elf.ld_cache import LdCache
from firstlight.elf.loader import loader_setup
from firstlight.elf.torch_preload import torch_preloads
from firstlight.machine.live import LiveMachine

Build = Callable[..., Path]

RPATH = "-Wl,--disable-new-dtags,-rpath,"
# The two forms that the list has had, and the two times it is used.
PAIRS = {
    "list": '    cuda_libs = [\n        ("cublas", "libcublasLt.so.*[0-9]"),\n'
    '        ("cublas", "libcublas.so.*[0-9]"),\n'
    '        ("cuda_runtime", "libcudart.so.*[0-9]"),\n        ("nccl", "libnccl.so.*[0-9]"),\n    ]\n',
    "dict": '    cuda_libs: dict[str, str] = {\n        "cublas": "libcublas.so.*[0-9]",\n'
    '        "cuda_runtime": "libcudart.so.*[0-9]",\n        "nccl": "libnccl.so.*[0-9]",\n    }\n',
}
OPTIONAL = '    _preload_cuda_lib("nvtx", "libnvToolsExt.so.*[0-9]", required=False)\n'
AFTER = '        with open("/proc/self/maps") as f:\n'


def _torch(site: Path, build: Build, *, source: str, cudart: str) -> str:
    """A torch whose libtorch_global_deps.so needs libcudart.so.13 and finds it where `cudart` says."""
    stub = build(site / "link" / "libcudart.so.13", "-Wl,-soname,libcudart.so.13")
    rpath = f"{RPATH}$ORIGIN/../../nvidia/cu13/lib" if cudart == "on the RPATH" else f"{RPATH}$ORIGIN"
    build(site / "torch" / "lib" / "libtorch_global_deps.so", str(stub), rpath)
    (site / "torch" / "__init__.py").write_text(source)
    (site / "torch" / "version.py").write_text("__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\n")
    for name in ("libcublas.so.13", "libcublasLt.so.13", "libcudart.so.13"):
        build(site / "nvidia" / "cu13" / "lib" / name, f"-Wl,-soname,{name}")
    build(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2", "-Wl,-soname,libnccl.so.2")
    return str(site / "torch")


def _preloads(torch: str) -> tuple[str, ...]:
    """Of a machine without a toolkit of its own in the loader's cache."""
    machine = LiveMachine(environ={})
    return torch_preloads(machine, torch, setup=loader_setup(machine)._replace(cache=LdCache()))


def _names(torch: str) -> list[str]:
    return [path.rpartition("/")[2] for path in _preloads(torch)]


def test_where_the_global_libraries_load_the_cuda_libraries_follow(tmp_path: Path, build: Build) -> None:
    torch = _torch(tmp_path, build, source=PAIRS["list"] + OPTIONAL + AFTER, cudart="on the RPATH")
    found = _preloads(torch)
    site = str(tmp_path)
    assert found == (
        f"{site}/torch/lib/libtorch_global_deps.so",
        f"{site}/nvidia/cu13/lib/libcublasLt.so.13",
        f"{site}/nvidia/cu13/lib/libcublas.so.13",
        f"{site}/nvidia/cu13/lib/libcudart.so.13",
        f"{site}/nvidia/nccl/lib/libnccl.so.2",
    )


def test_where_they_do_not_load_the_cuda_libraries_come_first(tmp_path: Path, build: Build) -> None:
    torch = _torch(tmp_path, build, source=PAIRS["dict"] + AFTER, cudart="elsewhere")
    assert _names(torch) == ["libcublas.so.13", "libcudart.so.13", "libnccl.so.2", "libtorch_global_deps.so"]
    found = closure_of_many(LiveMachine(environ={}), (), preloaded=_preloads(torch), program=sys.executable)
    assert found is not None
    assert found.not_preloaded == ()


def test_older_releases_open_them_only_where_something_is_missing(tmp_path: Path, build: Build) -> None:
    torch = _torch(tmp_path, build, source=PAIRS["dict"], cudart="on the RPATH")
    assert _names(torch) == ["libtorch_global_deps.so"]


def test_at_a_library_that_is_nowhere_torch_gives_up(tmp_path: Path, build: Build) -> None:
    torch = _torch(tmp_path, build, source=PAIRS["list"] + AFTER, cudart="on the RPATH")
    (tmp_path / "nvidia" / "cu13" / "lib" / "libcublas.so.13").unlink()
    assert _names(torch) == ["libtorch_global_deps.so", "libcublasLt.so.13"]


def test_torch_2_15_goes_on_without_it(tmp_path: Path, build: Build) -> None:
    source = PAIRS["list"] + AFTER + "        _preload_cuda_deps(required=False)\n"
    torch = _torch(tmp_path, build, source=source, cudart="on the RPATH")
    (tmp_path / "nvidia" / "cu13" / "lib" / "libcublas.so.13").unlink()
    assert _names(torch) == ["libtorch_global_deps.so", "libcublasLt.so.13", "libcudart.so.13", "libnccl.so.2"]


def test_a_missing_library_that_torch_does_not_know_is_left_missing(tmp_path: Path, build: Build) -> None:
    torch = _torch(tmp_path, build, source=PAIRS["list"] + AFTER, cudart="elsewhere")
    stub = build(tmp_path / "link" / "libcudss.so.0", "-Wl,-soname,libcudss.so.0")
    build(tmp_path / "torch" / "lib" / "libtorch_global_deps.so", str(stub))
    assert _names(torch) == ["libtorch_global_deps.so"]


def test_a_folder_without_torch_has_nothing_to_open(tmp_path: Path) -> None:
    assert torch_preloads(LiveMachine(environ={}), str(tmp_path / "torch")) == ()


def test_an_import_of_torch_maps_the_files_we_say() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("torch is not installed")
    folder = spec.submodule_search_locations[0]
    [module] = [str(path) for path in Path(folder).glob("_C.cpython-*.so")]
    machine = LiveMachine(environ={"PATH": "/usr/bin:/bin"})
    preloaded = torch_preloads(machine, folder, program=sys.executable)
    found = closure_of_many(machine, (module,), preloaded=preloaded, program=sys.executable)
    assert found is not None
    assert found.missing == ()
    code = "import torch\nfor line in open('/proc/self/maps'):\n  print('/' + line.strip().partition('/')[2])"
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True)
    mapped = set(done.stdout.splitlines())
    ours = {machine.real_path(item.found.path) for item in found.objects}
    assert len(ours) > 10
    assert ours <= mapped
    assert {path for path in mapped if path.startswith(f"{folder}/lib/")} <= ours
