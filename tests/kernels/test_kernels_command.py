"""`firstlight kernels`: what it says here, without a GPU, without torch, and as JSON that fits its schema."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import torch

from firstlight.cli import kernels as cli
from firstlight.errors import CouldNotLook
from firstlight.kernels.autotune import Tuned
from firstlight.kernels.choice.cases import ProductCase
from firstlight.kernels.choice.models import Models, models_for
from firstlight.kernels.choice.rows import Machine, Row
from firstlight.kernels.here import Backend, Compiler, Device, Here, Limit, attention_on, kernels_here, limits_of, taken
from firstlight.kernels.sm90 import nvrtc
from firstlight.report.kernels_text import kernels_document, kernels_text, tuned_text
from tests.kernels.choice.measured import H100, H200, UNKNOWN, shipped_machine
from tests.schemas import fits

SRC = Path(__file__).parents[2] / "src"
SCHEMA = json.loads((SRC / "firstlight" / "schemas" / "kernels-1.json").read_text())

SOME = Here(
    torch="2.11.0+cu130", torch_cuda="13.0", triton="3.6.0", path="triton", why="up to the densities below",
    backends=(Backend("sm90", runs=False, why="not built yet"), Backend("triton", runs=True, why="")),
    devices=(
        Device(0, "NVIDIA H200", "9.0", "triton", "up to the densities below", "/cache/choice.json",
               (Limit(128, 0.55, 0.72), Limit(16, 0.04, 0.04))),
        Device(1, "Tesla V100", "7.0", "dense", "compute capability 7.0 is below 8.0", "", ()),
        Device(2, "NVIDIA H100", "9.0", "sm90", "up to the densities below", "/cache/choice.json",
               (Limit(64, 0.4, 0.5, "triton"), Limit(64, 0.6, 0.8, "sm90"))),
    ),
    compiler=Compiler("nvrtc 13.0", "/venv/nvidia/cu13/lib/libnvrtc.so.13", "/cache/kernels/sm90", 12),
)  # fmt: skip


def test_it_answers_for_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    cli.command([], standalone_mode=False)
    text = capsys.readouterr().out
    assert text.startswith("path       ")
    assert f"torch      {torch.__version__}" in text
    if not torch.cuda.is_available():
        assert "sm90       no    no CUDA device" in text
    assert "\ncompiler   " in text


def test_what_attention_goes_by_is_told() -> None:
    assert "\nattention  on the processor auto takes dense, or reference where at most 0.15 of" in kernels_text(
        kernels_here()
    )
    models_for.cache_clear()
    assert "a rule, as attention was not measured on this GPU model" in attention_on(UNKNOWN)
    said = attention_on(H200)
    assert said.startswith("auto goes by times fitted to ")
    assert said.endswith(" rows measured on NVIDIA H200")
    assert "borrowed rows of NVIDIA H200, scaled to NVIDIA H100 80GB HBM3 by" in attention_on(H100)


def test_the_densities_that_are_told_fall_with_the_block() -> None:
    limits = {limit.block: limit for limit in limits_of(Models(H200, shipped_machine()), ("sm90",))}
    assert limits[128].lowest > 0.5
    assert limits[128].highest >= limits[64].highest >= limits[16].highest


def test_the_compiler_of_the_hopper_kernels_is_told_with_what_it_built() -> None:
    text = kernels_text(SOME)
    assert "compiler   nvrtc 13.0, for sm90 (/venv/nvidia/cu13/lib/libnvrtc.so.13)\n" in text
    assert "           built: 12 kernels in /cache/kernels/sm90\n" in text


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(nvrtc, "TOOLKITS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH", "FIRSTLIGHT_JIT"):
        monkeypatch.delenv(name, raising=False)
    here = kernels_here()
    text = " ".join(kernels_text(here).split())
    assert "compiler none: the Hopper kernels are compiled where they run: neither NVRTC" in text
    assert "pip install nvidia-cuda-nvrtc" in text
    document = kernels_document(here)
    fits(document, SCHEMA)
    assert document["compiler"]["name"] is None


def test_kernels_kept_on_disk_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path))
    assert kernels_here().compiler.kept == 0
    for name in ("a" * 64, "b" * 64, "locks", "failed", ".half-x"):
        (tmp_path / "kernels" / "sm90" / name).mkdir(parents=True)
    compiler = kernels_here().compiler
    assert (compiler.kept, compiler.kept_in) == (2, str(tmp_path / "kernels" / "sm90"))


def test_auto_takes_the_hopper_kernels_where_they_run_and_were_measured_or_alone_remain() -> None:
    measured, not_measured = (Limit(64, 0.6, 0.8, "sm90"),), (Limit(64, 0.4, 0.5, "triton"),)
    assert taken({"triton": "", "sm90": ""}, measured) == ("sm90", "")
    assert taken({"triton": "", "sm90": ""}, not_measured) == ("triton", "")
    assert taken({"triton": "triton is not installed", "sm90": ""}, not_measured) == ("sm90", "")
    assert taken({"triton": "", "sm90": "no compiler"}, measured) == ("triton", "")
    assert taken({"triton": "capability 7.0", "sm90": "capability is 7.0"}, ()) == ("dense", "capability 7.0")


def test_its_json_fits_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    cli.command(["--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert next(iter(document)) == "schema"
    fits(document, SCHEMA)
    fits(kernels_document(SOME), SCHEMA)


def test_a_gpu_is_told_with_its_densities_and_their_file() -> None:
    text = kernels_text(SOME)
    assert "gpu 0      NVIDIA H200, compute capability 9.0: auto takes triton" in text
    assert "block 128: sparse up to density 0.55 to 0.72, by shape and tokens" in text
    assert "block 16: sparse up to density 0.04\n" in text
    assert "measurements: /cache/choice.json" in text
    assert "auto takes dense, compute capability 7.0 is below 8.0" in text
    assert "gpu 2      NVIDIA H100, compute capability 9.0: auto takes sm90" in text
    assert "block 64: sm90 up to density 0.60 to 0.80, by shape and tokens" in text
    assert "block 64: triton up to density 0.40 to 0.50, by shape and tokens" in text


def test_without_a_gpu_the_reference_runs_and_the_reason_is_said() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    here = kernels_here()
    assert here.path == "reference"
    assert "CUDA" in here.why
    assert {backend.name: backend.runs for backend in here.backends} == {
        "sm90": False, "triton": False, "dense": True, "reference": True,
    }  # fmt: skip


def test_without_torch_it_says_so_and_could_not_look(tmp_path: Path) -> None:
    code = (
        "from firstlight.cli.kernels import command\n"
        "from firstlight.errors import CouldNotLook\n"
        "for given in ([], ['--json'], ['autotune']):\n"
        "    try:\n"
        "        command(given, standalone_mode=False)\n"
        "    except CouldNotLook as error:\n"
        "        assert error.exit_code == 4\n"
        "        assert 'torch is not installed' in str(error)\n"
        "        print('ok')\n"
    )
    # -S leaves out site-packages, and torch with it; click is put back by hand
    paths = [str(SRC), str(tmp_path)]
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["ok", "ok", "ok"], done.stderr


def test_importing_the_verb_does_not_import_torch() -> None:
    code = "import sys, firstlight.cli.kernels, firstlight.report.kernels_text; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_autotune_without_a_gpu_could_not_look() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(CouldNotLook, match="torch sees 0 devices"):
        cli.command(["autotune", "--budget", "1"], standalone_mode=False)


def test_autotune_says_what_it_measured_and_what_it_left() -> None:
    row = Row(ProductCase("multiply", "tokens", 64, "float16", 8192, 8192, 1638, 4096), (("dense", 700.0),))
    tuned = Tuned(Machine(H200, "2.11.0", "3.6.0", "2026-11-15", "a test", (row,)), "/cache/file", 288, 60.4)
    assert tuned_text(tuned).splitlines() == [
        "measured   1 case of 288 in 60 s on NVIDIA H200",
        "           the budget ran out; a longer --budget measures the rest",
        "written    /cache/file",
    ]
