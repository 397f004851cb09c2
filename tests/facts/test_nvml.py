"""NVML through the real pynvml in a real child process, against a libnvidia-ml.so.1 built for the purpose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from firstlight.facts.children import child_script
from firstlight.facts.driver import probe_driver
from firstlight.facts.gpus import probe_gpus
from firstlight.facts.health import probe_health
from firstlight.facts.known import Known, Unknown
from firstlight.facts.nvml import ask_nvml
from firstlight.machine import ChildAnswer
from firstlight.machine.live import LiveMachine
from firstlight.machine.recorded import RecordedMachine, RecordingMachine

NO_PROGRAMS = "/there/are/no/programs/here"
QUERY = (
    "index,name,compute_cap,memory.total,driver_version,uuid,pci.bus_id,mig.mode.current,ecc.mode.current,"
    "power.limit,clocks.sm,clocks.max.sm,persistence_mode"
)
H200_ROW = (
    "0, NVIDIA H200, 9.0, 143771, 580.159.04, GPU-0a, 00000000:18:00.0, Disabled, Enabled, 700.00, 345, 1980, Enabled"
)
SECOND_ROW = H200_ROW.replace("0, NVIDIA", "1, NVIDIA", 1).replace("18:00", "2A:00").replace("GPU-0a", "GPU-0b")


@pytest.fixture(autouse=True)
def _pynvml_not_imported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of bench import pynvml; a module that is loaded would be found in place of the one a test puts down."""
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)


@pytest.fixture(scope="session")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with libnvidia-ml.so.1 -> libnvidia-ml.so.580.159.04; what it does is chosen by FAKE_NVML."""
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("fake_nvml.c")
    subprocess.run([gcc, "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.580.159.04"), str(source)], check=True)
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.159.04")
    return folder


def _machine(library_folder: Path, behaviour: str) -> LiveMachine:
    return LiveMachine(environ={"LD_LIBRARY_PATH": str(library_folder), "FAKE_NVML": behaviour, "PATH": NO_PROGRAMS})


def _smi_machine(tmp_path: Path, script: str) -> LiveMachine:
    """A machine without libnvidia-ml, with this nvidia-smi."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return LiveMachine(root=str(tmp_path), environ={"PATH": f"{folder}:/usr/bin:/bin"})


def _says(row: str) -> str:
    return f"cat <<'END'\n{row}\nEND"


def test_a_good_library_is_read_field_by_field(library_folder: Path) -> None:
    answer = ask_nvml(_machine(library_folder, "good"))
    assert answer.init_code == Known(0, "nvmlInit")
    assert answer.count == Known(2, "NVML")
    assert answer.system.text("driver_version") == Known("580.159.04", "NVML")
    assert answer.system.number("driver_cuda") == Known(13000, "NVML")
    first, second = answer.devices
    assert first.text("name") == Known("NVIDIA H200", "NVML")
    assert first.number("memory_bytes") == Known(150754820096, "NVML")
    assert first.number("power_limit_mw") == Known(650000, "NVML")
    assert first.number("clock_sm_max_mhz") == Known(1980, "NVML")
    assert first.number("ecc_uncorrected_aggregate") == Known(7, "NVML")
    assert first.flag("mig_mode") == Known(value=False, seen_in="NVML")
    assert second.flag("mig_mode") == Known(value=True, seen_in="NVML")


def test_one_field_that_is_refused_leaves_the_others_alone(library_folder: Path) -> None:
    first = ask_nvml(_machine(library_folder, "good")).devices[0]
    assert first.number("virtualization") == Unknown("NVML: Insufficient Permissions")
    assert first.number("pcie_width") == Known(8, "NVML")


def test_a_function_the_driver_lacks_is_asked_under_its_older_name(library_folder: Path) -> None:
    assert ask_nvml(_machine(library_folder, "good")).devices[0].number("throttle_bits") == Known(0x1024, "NVML")


def test_the_library_is_the_file_the_loader_took(library_folder: Path) -> None:
    answer = ask_nvml(_machine(library_folder, "good"))
    assert answer.library == Known(
        str(library_folder / "libnvidia-ml.so.580.159.04"), "/proc/self/maps of the nvml child"
    )


def test_the_facts_of_the_whole_chain_come_from_the_real_child(library_folder: Path) -> None:
    machine = _machine(library_folder, "good")
    nvml = ask_nvml(machine)
    driver, gpus = probe_driver(machine, nvml), probe_gpus(machine, nvml)
    health = probe_health(machine, nvml, gpus=gpus, driver=driver)
    assert (
        str(driver.nvml_library_version.value if isinstance(driver.nvml_library_version, Known) else "") == "580.159.04"
    )
    assert [gpu.id for gpu in gpus.devices] == ["gpu-0", "gpu-1"]
    assert gpus.devices[1].mig_devices[0].profile == Known("1g.18gb", "NVML")
    assert health.gpus[0].throttle == Known(("software-power-cap", "software-thermal", "bits-0x1000"), "NVML")


@pytest.mark.parametrize(
    ("behaviour", "code", "message"),
    [
        ("mismatch", 18, "Driver/library version mismatch"),
        ("notloaded", 9, "Driver Not Loaded"),
        ("unknown", 999, "Unknown Error"),
    ],
)
def test_an_init_that_fails_keeps_its_code_and_the_drivers_words(
    library_folder: Path, behaviour: str, code: int, message: str
) -> None:
    answer = ask_nvml(_machine(library_folder, behaviour))
    assert answer.init_code == Known(code, "nvmlInit")
    assert answer.init_message == Known(message, "nvmlInit")
    assert answer.count == Unknown(f"NVML: {message} ({code}); nvidia-smi: not found")
    assert answer.devices == ()


def test_an_init_that_hangs_is_given_up_at_the_limit(library_folder: Path) -> None:
    start = time.monotonic()
    answer = ask_nvml(_machine(library_folder, "hang"), limit_s=1.0)
    assert time.monotonic() - start < 8
    assert answer.init_code == Unknown("the nvml child gave no answer within 1 s")
    assert isinstance(answer.library, Known)


def test_a_library_that_crashes_takes_only_the_child_down(library_folder: Path) -> None:
    answer = ask_nvml(_machine(library_folder, "crash"))
    assert isinstance(answer.init_code, Unknown)
    assert "killed by a signal" in answer.init_code.reason


def test_what_a_stub_prints_does_not_spoil_the_answer(library_folder: Path) -> None:
    assert ask_nvml(_machine(library_folder, "noisy")).count == Known(2, "NVML")


def test_on_a_jetson_names_are_known_and_numbers_are_not_supported(library_folder: Path) -> None:
    first = ask_nvml(_machine(library_folder, "jetson")).devices[0]
    assert first.text("name") == Known("NVIDIA Thor", "NVML")
    for field in ("memory_bytes", "power_limit_mw", "clock_sm_mhz", "capability_major", "fabric_state", "rows_failure"):
        assert first.number(field) == Unknown("NVML: Not Supported"), field


def test_a_gpu_that_is_lost_does_not_hide_the_one_that_works(library_folder: Path) -> None:
    works, lost = ask_nvml(_machine(library_folder, "lost")).devices
    assert works.number("code") == Known(0, "NVML")
    assert works.text("name") == Known("NVIDIA H200", "NVML")
    assert lost.number("code") == Known(15, "NVML")
    assert lost.text("name") == Unknown("NVML: GPU is lost")


def test_a_gpu_lost_while_it_is_asked_is_asked_no_more(library_folder: Path) -> None:
    gone = ask_nvml(_machine(library_folder, "vanishing")).devices[1]
    assert gone.text("name") == Known("NVIDIA H200", "NVML")
    assert gone.number("code") == Known(15, "NVML")
    assert gone.number("ecc_mode") == Unknown("NVML: GPU is lost")
    assert gone.number("fabric_state") == Unknown("NVML: GPU is lost")


def test_an_absurd_number_of_gpus_ends(library_folder: Path) -> None:
    answer = ask_nvml(_machine(library_folder, "many"))
    assert len(answer.devices) == 128
    assert answer.devices[5].text("name") == Unknown("NVML: Not Found")


def test_what_was_learned_before_the_time_was_up_is_kept(library_folder: Path) -> None:
    machine = _machine(library_folder, "slow")
    spec = find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    said = machine.child(child_script("nvml"), str(Path(spec.origin).parent), "0.3", timeout_s=20)
    assert said.answer["driver_version"] == "580.159.04"
    devices = said.answer["devices"]
    assert isinstance(devices, list)
    assert devices[0]["name"] == {"error": "not asked, the time was up"}
    assert devices[1] == {"index": 1, "error": "not asked, the time was up"}


def test_without_a_library_no_child_is_started(tmp_path: Path) -> None:
    machine = RecordingMachine(LiveMachine(root=str(tmp_path), environ={"PATH": NO_PROGRAMS}))
    answer = ask_nvml(machine)
    assert machine.evidence.children == {}
    why = "no libnvidia-ml.so.1 in LD_LIBRARY_PATH, the loader's cache or the usual library folders"
    assert answer.library == answer.init_code == Unknown(why)
    assert answer.count == Unknown(f"{why}; nvidia-smi: not found")


def test_a_file_that_is_no_library_is_reported_with_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not an ELF file")
    answer = ask_nvml(LiveMachine(environ={"LD_LIBRARY_PATH": str(tmp_path), "PATH": NO_PROGRAMS}))
    assert answer.library == Known(str(tmp_path / "libnvidia-ml.so.1"), str(tmp_path / "libnvidia-ml.so.1"))
    assert answer.init_code == Known(12, "nvmlInit")


def test_pynvml_is_found_inside_a_zip(library_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = find_spec("pynvml")
    assert spec is not None
    assert spec.origin is not None
    archive = tmp_path / "firstlight.pyz"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.write(spec.origin, "pynvml.py")
        zipped.writestr("only_in_the_zip.txt", "")
    monkeypatch.syspath_prepend(str(archive))
    found = find_spec("pynvml")
    assert found is not None
    assert found.origin == f"{archive}/pynvml.py"
    assert ask_nvml(_machine(library_folder, "good")).count == Known(2, "NVML")


OLD_PYNVML = """
class NVMLError(Exception):
    value = 999
def nvmlInit(): pass
def nvmlSystemGetDriverVersion(): return b"418.67"
def nvmlDeviceGetCount(): return 1
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return b"Tesla V100-SXM2-16GB"
def nvmlDeviceGetBrand(handle): raise NVMLError()
def nvmlDeviceGetCudaComputeCapability(handle): return (7, 0)
"""


def test_an_old_pynvml_gives_bytes_and_lacks_functions(
    library_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text(OLD_PYNVML)
    monkeypatch.syspath_prepend(str(tmp_path))
    answer = ask_nvml(_machine(library_folder, "good"))
    [gpu] = answer.devices
    assert answer.system.text("driver_version") == Known("418.67", "NVML")
    assert gpu.text("name") == Known("Tesla V100-SXM2-16GB", "NVML")
    assert gpu.number("capability_major") == Known(7, "NVML")
    assert gpu.number("brand") == Unknown("NVML: NVMLError")
    assert gpu.number("rows_failure") == Unknown("NVML: this pynvml has no nvmlDeviceGetRemappedRows")
    assert gpu.number("fabric_state") == Unknown("NVML: this pynvml has no nvmlDeviceGetGpuFabricInfo")


def test_looking_leaves_no_compiled_files_behind(
    library_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text(OLD_PYNVML)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert ask_nvml(_machine(library_folder, "good")).count == Known(1, "NVML")
    assert os.listdir(tmp_path) == ["pynvml.py"]


def test_a_pynvml_that_cannot_be_imported_is_named(
    library_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    answer = ask_nvml(_machine(library_folder, "good"))
    assert answer.init_code == Unknown("pynvml cannot be imported (ImportError)")


def test_a_recording_replays_to_the_same_answer(library_folder: Path) -> None:
    recording = RecordingMachine(_machine(library_folder, "good"))
    live = ask_nvml(recording)
    assert ask_nvml(RecordedMachine(recording.evidence)) == live


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"init": []},
        {"init": {"code": "0"}},
        {"init": {"code": 0}, "devices": "none"},
        {"init": {"code": 0}, "count": 1, "devices": [None, 7, {"name": 5, "uuid": "", "memory_bytes": -1}]},
        {"init": {"code": 0}, "library": 3, "devices": [{"error": {"a": 1}, "mig_devices": [3]}]},
    ],
)
def test_a_recording_with_absurd_content_gives_unknowns(library_folder: Path, broken: dict[str, object]) -> None:
    recording = RecordingMachine(_machine(library_folder, "good"))
    ask_nvml(recording)
    recording.evidence.children["nvml"] = ChildAnswer(broken, "")
    machine = RecordedMachine(recording.evidence)
    answer = ask_nvml(machine)
    gpus = probe_gpus(machine, answer)
    assert all(isinstance(gpu.name, Unknown) and isinstance(gpu.memory_bytes, Unknown) for gpu in gpus.devices)
    assert isinstance(answer.count, Unknown) or answer.count.value == 1


def test_nvidia_smi_speaks_for_two_gpus_where_nvml_is_missing(tmp_path: Path) -> None:
    script = f'[ "$1" = "--query-gpu={QUERY}" ] || exit 9\n[ "$2" = "--format=csv,noheader,nounits" ] || exit 9\n'
    answer = ask_nvml(_smi_machine(tmp_path, script + _says(f"{H200_ROW}\n{SECOND_ROW}")))
    assert answer.count == Known(2, "nvidia-smi")
    assert answer.system.text("driver_version") == Known("580.159.04", "nvidia-smi")
    first, second = answer.devices
    assert first.text("name") == Known("NVIDIA H200", "nvidia-smi")
    assert first.number("memory_bytes") == Known(143771 << 20, "nvidia-smi")
    assert first.number("power_limit_mw") == Known(700000, "nvidia-smi")
    assert first.number("capability_major") == Known(9, "nvidia-smi")
    assert first.flag("mig_mode") == Known(value=False, seen_in="nvidia-smi")
    assert first.flag("ecc_mode") == Known(value=True, seen_in="nvidia-smi")
    assert second.number("index") == Known(1, "nvidia-smi")
    assert isinstance(first.number("temperature_c"), Unknown)


def test_values_nvidia_smi_does_not_have_are_unknown(tmp_path: Path) -> None:
    row = (
        "0, Orin (nvgpu), 8.7, [N/A], 540.4.0, [Unknown Error], N/A, [Not Supported], [Insufficient Permissions], "
        "nonsense, ERR!, 1e9, Perhaps"
    )
    [gpu] = ask_nvml(_smi_machine(tmp_path, _says(row))).devices
    assert gpu.text("name") == Known("Orin (nvgpu)", "nvidia-smi")
    assert gpu.number("memory_bytes") == Unknown("nvidia-smi: N/A")
    assert gpu.text("uuid") == Unknown("nvidia-smi: Unknown Error")
    assert gpu.flag("mig_mode") == Unknown("nvidia-smi: Not Supported")
    assert gpu.flag("ecc_mode") == Unknown("nvidia-smi: Insufficient Permissions")
    assert gpu.number("power_limit_mw") == Unknown("nvidia-smi: power_limit_mw is 'nonsense'")
    assert gpu.number("clock_sm_mhz") == Unknown("nvidia-smi: ERR!")
    assert gpu.number("clock_sm_max_mhz") == Unknown("nvidia-smi: clock_sm_max_mhz is '1e9'")
    assert gpu.flag("persistence_mode") == Unknown("nvidia-smi: persistence_mode is 'Perhaps'")


def test_an_older_nvidia_smi_is_asked_again_for_less(tmp_path: Path) -> None:
    script = (
        'case "$1" in *compute_cap*) echo \'Field "compute_cap" is not a valid field to query.\'; exit 2;; esac\n'
        + _says("0, Tesla V100, 16130, 418.67, GPU-0a, 00000000:18:00.0, Enabled, 300.00, 135, 1530, Disabled")
    )
    [gpu] = ask_nvml(_smi_machine(tmp_path, script)).devices
    assert gpu.text("name") == Known("Tesla V100", "nvidia-smi")
    assert gpu.number("clock_sm_max_mhz") == Known(1530, "nvidia-smi")
    assert isinstance(gpu.number("capability_major"), Unknown)


def test_lines_that_are_no_rows_are_passed_over(tmp_path: Path) -> None:
    said = f"Unable to determine the device handle for GPU0000:2A:00.0: GPU is lost.\n{H200_ROW}"
    answer = ask_nvml(_smi_machine(tmp_path, _says(said) + "\nexit 15"))
    assert answer.count == Known(1, "nvidia-smi")


def test_an_nvidia_smi_that_sees_nothing_is_quoted(tmp_path: Path) -> None:
    answer = ask_nvml(_smi_machine(tmp_path, "echo 'No devices were found'; exit 6"))
    assert isinstance(answer.count, Unknown)
    assert answer.count.reason.endswith("; nvidia-smi: exit status 6, No devices were found")
    assert answer.devices == ()


def test_an_nvidia_smi_that_hangs_is_given_up(tmp_path: Path) -> None:
    answer = ask_nvml(_smi_machine(tmp_path, "sleep 60"), limit_s=1.0)
    assert isinstance(answer.count, Unknown)
    assert answer.count.reason.endswith("; nvidia-smi: timed out")


def test_a_hundred_megabytes_from_nvidia_smi_are_not_read(tmp_path: Path) -> None:
    answer = ask_nvml(_smi_machine(tmp_path, f"yes '{H200_ROW}' | head -c 100000000"), limit_s=20)
    assert isinstance(answer.count, Unknown)
    assert answer.count.reason.endswith("; nvidia-smi: too much output")


def test_the_banner_of_nvidia_smi_is_not_a_source(tmp_path: Path) -> None:
    banner = "| NVIDIA-SMI 580.159.04   Driver Version: 580.159.04   CUDA UMD Version: 13.0 |"
    answer = ask_nvml(_smi_machine(tmp_path, _says(banner)))
    assert isinstance(answer.system.text("driver_version"), Unknown)
    assert isinstance(answer.count, Unknown)
    assert answer.count.reason.endswith("; nvidia-smi: no line has the fields that were asked for")


def test_nvidia_smi_speaks_where_pynvml_cannot(
    library_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{_says(H200_ROW)}\n")
    program.chmod(0o755)
    answer = ask_nvml(
        LiveMachine(environ={"LD_LIBRARY_PATH": str(library_folder), "PATH": f"{tmp_path}:/usr/bin:/bin"})
    )
    assert answer.count == Known(1, "nvidia-smi")
    assert isinstance(answer.library, Known)


def test_asking_does_not_import_pynvml_here(library_folder: Path) -> None:
    code = (
        "import sys; from firstlight.machine.live import LiveMachine; from firstlight.facts.nvml import ask_nvml;"
        "print(ask_nvml(LiveMachine()).count.value, 'pynvml' in sys.modules)"
    )
    environ = {"LD_LIBRARY_PATH": str(library_folder), "FAKE_NVML": "good", "PATH": NO_PROGRAMS}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 False"


def test_a_guest_tells_its_licence_its_pages_and_confidential_computing(library_folder: Path) -> None:
    answer = ask_nvml(_machine(library_folder, "guest"))
    first, second = answer.devices
    assert first.inside("licences") == ()  # not asked of a GPU that is no virtual one
    [licence] = second.inside("licences")
    assert licence.text("product") == Known("NVIDIA Virtual Compute Server", "NVML")
    assert licence.number("state") == Known(3, "NVML")
    assert isinstance(licence.text("expires"), Unknown)
    assert second.number("retired_pages_single") == Known(1, "NVML")
    assert second.number("retired_pages_double") == Known(3, "NVML")
    assert second.number("fabric_health") == Known(9, "NVML")
    assert answer.system.flag("confidential_feature") == Known(value=True, seen_in="NVML")
    assert answer.system.flag("confidential_ready") == Known(value=False, seen_in="NVML")


def test_what_a_gpu_does_not_support_stays_unknown(library_folder: Path) -> None:
    answer = ask_nvml(_machine(library_folder, "good"))
    assert isinstance(answer.system.flag("confidential_ready"), Unknown)
    assert isinstance(answer.devices[0].number("retired_pages_double"), Unknown)
