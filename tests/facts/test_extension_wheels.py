"""Wheels from PyPI beside the torch that is installed here: what we say of them, and whether torch loads them."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.extensions import Extension, Strings, probe_extensions
from firstlight.facts.known import Known
from firstlight.facts.python_environments import probe_environments
from firstlight.facts.torch_install import probe_torch
from firstlight.machine.live import LiveMachine

pytestmark = pytest.mark.network
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux1_x86_64")


def _beside_torch(tmp_path: Path, requirement: str) -> tuple[Path, dict[str, Extension]]:
    """A wheel unpacked into an environment with the torch of this one; its compiled files by name."""
    torch = pytest.importorskip("torch")
    if sys.version_info[:2] != (3, 11) or torch.version.cuda is not None:
        pytest.skip("the expectations are for a torch without CUDA under Python 3.11")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", "3.11", *(f"--platform={each}" for each in PLATFORMS)]
    subprocess.run([*command, "--dest", str(tmp_path), requirement], check=True)
    site = tmp_path / "opt/venv/lib/python3.11/site-packages"
    site.mkdir(parents=True)
    (tmp_path / "opt/venv/pyvenv.cfg").write_text("version_info = 3.11.2\n")
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "torch").symlink_to(Path(torch.__file__).parent)
    host = replace(LiveMachine().host, python_prefix="")
    machine = LiveMachine(root=str(tmp_path), environ={"VIRTUAL_ENV": "/opt/venv"}, host=host)
    environment = probe_environments(machine).environments[0]
    found = probe_extensions(machine, environment, probe_torch(machine, environment)).files
    assert isinstance(found, Known)
    return site, {Path(each.path).name: each for each in found.value}


def _complaint(path: Path) -> str:
    script = f"import torch\ntorch.ops.load_library({str(path)!r})\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr


def test_torchvision_of_cuda_13_asks_for_what_a_torch_without_cuda_lacks(tmp_path: Path) -> None:
    site, found = _beside_torch(tmp_path, "torchvision==0.28.0")
    assert found["_C.so"].lacks_libraries == ("libc10_cuda.so", "libtorch_cuda.so")
    assert found["_C.so"].cuda_major == Known(13, found["_C.so"].path)
    assert _complaint(site / "torchvision/_C.so")


def test_torchaudio_before_the_new_strings_lacks_names_that_take_a_string(tmp_path: Path) -> None:
    _, found = _beside_torch(tmp_path, "torchaudio==2.5.1")
    sox = found["libtorchaudio_sox.so"]
    assert isinstance(sox.symbols, Known)
    assert sox.symbols.value.lacking == 3
    assert sox.strings == Known(Strings.OLD, sox.path)
    assert any(name.endswith("Ss") for name in sox.symbols.value.names)


def test_torchaudio_of_the_stable_interface_lacks_cuda_alone(tmp_path: Path) -> None:
    site, found = _beside_torch(tmp_path, "torchaudio==2.11.0")
    prefix = found["torchaudio_prefixctc.abi3.so"]
    assert isinstance(prefix.symbols, Known)
    assert prefix.symbols.value.lacking == 0
    assert bool(prefix.lacks_libraries) is bool(_complaint(site / "torchaudio/lib/torchaudio_prefixctc.abi3.so"))
