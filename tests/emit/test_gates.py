"""Gates are computed from the wheels inside, and the shell asks the same as the table says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from firstlight.emit.gate_words import text_of
from firstlight.emit.gates import CompatPart, Gates, gates_of
from firstlight.emit.kinds import emit
from firstlight.emit.packages import cuda_of
from firstlight.emit.preflight import preflight_functions
from firstlight.errors import BadInput
from firstlight.facts.known import Known, Unknown
from firstlight.tables import load
from firstlight.versions import CudaVersion, DriverVersion, TorchVersion
from tests.emit.subjects import recorded, subject

TABLES = load()
COMPAT_13_0 = CompatPart("cuda-compat-13-0", CudaVersion(13, 0), (535, 550, 565, 570, 575))


def _gates(torch: str, *, compat: tuple[CompatPart, ...] = (), machine: str = "x86_64") -> Gates:
    version = TorchVersion.parse(torch)
    return gates_of(version, cuda_of(version, machine, TABLES), machine=machine, compat=compat, tables=TABLES)


def test_a_cuda_13_wheel_asks_for_the_floor_of_its_major() -> None:
    gates = _gates("2.9.0+cu130")
    assert gates.min_driver == gates.min_driver_alone
    assert isinstance(gates.min_driver, Known)
    assert str(gates.min_driver.value) == "580.65.06"
    assert isinstance(gates.min_cuda, Known)
    assert (str(gates.min_cuda.value), gates.require_cuda) == ("13.0", "cuda>=13.0")
    assert "sm_90" in gates.architectures


def test_a_cuda_12_wheel_runs_on_every_driver_of_cuda_12() -> None:
    gates = _gates("2.9.0")  # PyPI's, built with 12.8
    assert isinstance(gates.min_cuda, Known)
    assert (str(gates.min_cuda.value), gates.require_cuda) == ("12.0", "cuda>=12.0")
    assert gates.allowed_cuda[0] == CudaVersion(12, 0)
    assert CudaVersion(13, 0) in gates.allowed_cuda


def test_with_a_compat_library_its_branches_are_let_in_and_no_others() -> None:
    gates = _gates("2.9.0+cu130", compat=(COMPAT_13_0,))
    assert isinstance(gates.min_driver, Known)
    assert gates.min_driver.value == DriverVersion.parse("535")
    assert isinstance(gates.min_cuda, Known)
    assert str(gates.min_cuda.value) == "12.2"
    assert CudaVersion(12, 6) not in gates.allowed_cuda  # branch 560: not in the library's list
    words = gates.require_cuda.split()
    assert words[0] == "cuda>=13.0"
    assert "brand=tesla,driver>=570,driver<571" in words
    assert not any("560" in word or "geforce" in word or "titan" in word for word in words)


def test_the_branches_are_those_that_nvidias_own_image_lets_in() -> None:
    image = TABLES.image(CudaVersion(13, 0))
    assert image is not None
    words = _gates("2.9.0+cu130", compat=(COMPAT_13_0,)).require_cuda.split()
    seen = {int(word.partition("driver>=")[2].partition(",")[0]) for word in words[1:]}
    assert seen == set(image.branches)


def test_a_build_whose_code_is_not_known_asks_for_no_capability() -> None:
    gates = _gates("2.8.0+cu126")
    assert (gates.architectures, gates.capabilities) == ((), ())
    assert any("not checked" in reason for reason in gates.reasons)
    assert isinstance(gates.min_capability, Unknown)


def test_code_for_8_0_lets_in_8_6_but_not_8_7_with_cuda_12() -> None:
    shown = [str(each) for each in _gates("2.9.0").capabilities]
    assert {"8.0", "8.6", "8.9", "9.0"} <= set(shown)
    assert "8.7" not in shown


def test_a_torch_without_cuda_asks_nothing() -> None:
    gates = _gates("2.9.0+cpu")
    assert not gates.asks_for_gpu
    assert (gates.require_cuda, gates.allowed_cuda) == ("", ())


def test_a_cuda_major_that_the_tables_do_not_know_is_refused() -> None:
    with pytest.raises(BadInput, match="CUDA 99"):
        _gates("2.9.0+cu990")


@pytest.mark.parametrize(
    ("torch", "machine", "oldest"),
    [
        ("2.9.0+cu130", "aarch64", "38"),
        ("2.9.0+cu126", "aarch64", "36.4"),
        ("2.15.0", "aarch64", "39"),  # CUDA 13.2: Jetson Linux 38 has 13.0
        ("2.9.0+cu130", "x86_64", ""),
        ("2.9.0+cpu", "aarch64", ""),
    ],
)
def test_a_jetson_is_judged_by_the_cuda_of_its_system(torch: str, machine: str, oldest: str) -> None:
    assert text_of(_gates(torch, machine=machine).min_l4t) == oldest


class Place:
    """A folder that stands for / in the shell functions: their two paths are read below it."""

    def __init__(self, root: Path, gates: Gates) -> None:
        self.root = root
        text = preflight_functions(gates, os.uname().machine)
        self.script = text.replace("/sys/module/", f"{root}/sys/module/").replace(
            "/proc/driver/", f"{root}/proc/driver/"
        )

    def driver(self, version: str) -> None:
        file = self.root / "sys/module/nvidia/version"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{version}\n")

    def smi(self, *capabilities: str) -> None:
        program = self.root / "bin/nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n" + "".join(f"echo {each}\n" for each in capabilities))
        program.chmod(0o755)

    def asks(self, **environ: str) -> subprocess.CompletedProcess[str]:
        script = f'set -eu\n{self.script}\nif check_gates; then echo "in ${{needs_compat:-}}"; else echo out; fi'
        path = f"{self.root}/bin:/usr/bin:/bin"
        env = {"PATH": path, **environ}
        return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=env)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, _gates("2.9.0+cu130", compat=(COMPAT_13_0,), machine="x86_64"))


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("580.65.06", "in no"),
        ("580.159.04", "in no"),
        ("610.10", "in no"),
        ("580.65.05", "out"),  # older than the floor, and its branch is not in the list
        ("570.133.20", "in yes"),
        ("535.54.03", "in yes"),
        ("560.35.03", "out"),
        ("525.60.13", "out"),
        ("470", "out"),
    ],
)
def test_the_shell_lets_in_what_the_gates_say(place: Place, driver: str, said: str) -> None:
    place.driver(driver)
    done = place.asks()
    assert done.stdout.strip() == said, done.stderr
    assert ("580.65.06 or newer" in done.stderr) == (said == "out")


def test_a_refusal_names_the_releases_that_would_do_and_not_those_between_them(place: Place) -> None:
    place.driver("560.35.03")  # nvidia-smi shows CUDA 12.6 there, newer than 12.2 and refused
    assert "such a driver (CUDA 12.2, 12.4, 12.7 or newer in nvidia-smi), or emit" in place.asks().stderr


@pytest.mark.parametrize(
    ("torch", "compat", "words"),
    [
        ("2.9.0", (), "12.0 or newer"),
        ("2.9.0+cu130", (), "13.0 or newer"),
        ("2.9.0+cu130", (COMPAT_13_0,), "12.2, 12.4, 12.7 or newer"),
        ("2.9.0+cpu", (), ""),
    ],
)
def test_the_releases_that_are_let_in_are_named_with_their_gaps(
    torch: str, compat: tuple[CompatPart, ...], words: str
) -> None:
    assert _gates(torch, compat=compat).cuda_words == words


def test_without_a_driver_it_says_so_and_goes_on(place: Place) -> None:
    done = place.asks()
    assert done.stdout == "in no\n"
    assert "no NVIDIA driver" in done.stderr


def test_the_driver_is_read_from_proc_where_sys_has_none(place: Place) -> None:
    file = place.root / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  525.60.13  Release Build\nGCC version: x\n"
    )
    assert "driver 525.60.13 is loaded" in place.asks().stderr


@pytest.mark.parametrize("text", ["", "garbage", "580.65; touch x", "$(id)"])
def test_a_driver_version_that_is_none_counts_as_no_driver(place: Place, text: str) -> None:
    place.driver(text)
    assert place.asks().stdout == "in no\n"


def test_a_gpu_that_the_wheel_has_no_code_for_is_refused(place: Place) -> None:
    place.driver("580.95.05")
    place.smi("9.0", "7.0")
    done = place.asks()
    assert done.stdout == "out\n"
    assert "capability 7.0" in done.stderr


@pytest.mark.parametrize("said", ["9.0", "[N/A]", "No devices were found"])
def test_what_nvidia_smi_says_of_known_gpus_or_of_none_lets_in(place: Place, said: str) -> None:
    place.driver("580.95.05")
    place.smi(said)
    assert place.asks().stdout == "in no\n"


def test_nvidias_own_switch_lets_everything_in_and_still_says_what_does_not_fit(place: Place) -> None:
    place.driver("525.60.13")
    done = place.asks(NVIDIA_DISABLE_REQUIRE="1")
    assert done.stdout == "in no\n"
    assert "driver 525.60.13" in done.stderr


def test_another_processor_is_refused(tmp_path: Path) -> None:
    gates = _gates("2.9.0+cu130", machine="aarch64")
    text = preflight_functions(gates, "not-this-one")
    done = subprocess.run(["sh", "-c", f"{text}\ncheck_gates"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the wheels are for not-this-one" in done.stderr


@pytest.mark.parametrize(
    ("kind", "text", "wants", "refused"),
    [
        ("bash", "H100, driver >= 550", ("torch==2.9.0+cu130",), "555 or 560"),
        ("slurm", "H100, driver >= 550", ("torch==2.9.0+cu130",), "555, 560 or 565"),
        ("bash", "H100, driver >= 565", ("torch==2.9.0+cu130",), ""),
        ("slurm", "H100, driver >= 565", ("torch==2.9.0+cu130",), "565"),
        ("bash", "H100, driver >= 580", ("torch==2.9.0+cu130",), ""),
        ("bash", "H100, driver >= 550", ("torch==2.9.0",), ""),
        ("bash", "H100, driver >= 550", ("torch==2.9.0+cpu",), ""),
    ],
)
def test_what_of_the_class_is_refused_is_said_with_the_build_that_runs_on_all(
    kind: str, text: str, wants: tuple[str, ...], refused: str
) -> None:
    emitted = emit(kind, subject(text, *wants))
    said = [note for note in emitted.notes if "are refused:" in note]
    assert bool(said) == bool(refused)
    for note in said:
        assert f"those with driver {refused} are refused:" in note
        assert note.endswith('To let in all: --want "torch==2.9.0".')
        assert f"# {note}\n" in emitted.files[0].text


def test_of_one_machine_nothing_is_refused() -> None:
    assert not any("are refused:" in note for note in emit("bash", recorded("h100-driver-570")).notes)
