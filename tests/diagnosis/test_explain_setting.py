"""A text that shows Windows or WSL is answered for that system: no sudo, no ldconfig, its own way first."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.explain import Explanation, explain_text
from firstlight.diagnosis.explain_setting import Setting, in_setting, setting_of
from firstlight.diagnosis.signatures import signatures, way_types

WINDOWS_TEXT = (
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:59] Could not load dynamic library "
    "'cudart64_101.dll'; dlerror: cudart64_101.dll not found\n"
)
NO_DRIVER = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
OF_LINUX = ("sudo ", "ldconfig", "apt-get", "LD_LIBRARY_PATH", "modprobe")


def _one(text: str) -> Explanation:
    [found] = explain_text(text).explanations
    return found


def _commands(explanation: Explanation) -> list[str]:
    signature = explanation.signature
    return [*signature.prove.run, *(line for way in signature.ways_out for line in way.run)]


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        (rb"File C:\Users\me\torch\lib\c10.dll", Setting.WINDOWS),
        (b"CUDA error (C:/a/xformers/hopper/flash.h:188): invalid argument", Setting.WINDOWS),
        (b"OSError: [WinError 126] The specified module could not be found", Setting.WINDOWS),
        (b"Linux host 5.15.167.4-microsoft-standard-WSL2", Setting.WSL),
        (b"/usr/lib/wsl/lib/libcuda.so.1: file exists", Setting.WSL),
        (b"/home/me/x.so: cannot open shared object file; on Windows it is x.dll", Setting.NOT_SHOWN),
        (b"see https://example.org/a: not found", Setting.NOT_SHOWN),
        (b"CUDA out of memory", Setting.NOT_SHOWN),
        (b"File /Users/me/venv/torch/cuda/__init__.py", Setting.MACOS),
        (b"/opt/homebrew/lib/python3.12/site-packages/torch", Setting.MACOS),
        (b"my Macbook has no GPU, the server has a GeForce RTX 4090", Setting.NOT_SHOWN),
        (b"RuntimeError: HIP error: invalid device function", Setting.ROCM),
        (b"Available platform names are: CUDA; rocm was not found; NVIDIA A100", Setting.NOT_SHOWN),
        (b"kernel: 6.8.10-300.fc40.x86_64", Setting.RPM),
        (b"dkms install -k 7.0.9-1-cachyos", Setting.ARCH),
        (b"gcc (Ubuntu 11.4.0) beside a Fedora image", Setting.NOT_SHOWN),
    ],
)
def test_what_a_text_shows(text: bytes, setting: Setting) -> None:
    assert setting_of(text) is setting


def test_a_dll_is_not_answered_with_ldconfig() -> None:
    found = _one(WINDOWS_TEXT)
    assert found.signature.code == "tensorflow-library-not-loaded"
    assert "The text is of Windows" in found.signature.cause
    assert not [line for line in _commands(found) for word in OF_LINUX if word in line]
    assert not [way for way in found.signature.ways_out if "and-cuda" in " ".join(way.run)]  # no GPU on Windows


def test_the_same_of_linux_keeps_its_commands() -> None:
    found = _one(WINDOWS_TEXT.replace("cudart64_101.dll", "libcudart.so.10.1"))
    assert "The text is of" not in found.signature.cause
    assert any("and-cuda" in line for line in _commands(found))


def test_in_wsl_the_driver_is_that_of_windows() -> None:
    found = _one(f"Linux pc 5.15.167.4-microsoft-standard-WSL2 x86_64\n$ nvidia-smi\n{NO_DRIVER}\n")
    assert found.signature.ways_out[0].run[0] == "wsl.exe --update"
    assert not [line for line in _commands(found) if "modprobe" in line or "nvidia-driver" in line]


def test_without_a_sign_of_wsl_it_is_linux() -> None:
    assert _one(NO_DRIVER).signature.ways_out[0].run != ("wsl.exe --update",)


def test_a_variable_before_a_command_is_written_for_powershell() -> None:
    lines = {line for row in signatures() for way in in_setting(row, Setting.WINDOWS).ways_out for line in way.run}
    assert any(line.startswith("$env:TORCH_CUDA_ARCH_LIST='") for line in lines)


@pytest.mark.parametrize("setting", [Setting.WINDOWS, Setting.WSL])
def test_every_row_keeps_a_way_out(setting: Setting) -> None:
    for row in signatures():
        told = in_setting(row, setting)
        assert told.ways_out, row.code
        assert all(kind in way_types().values() for way in told.ways_out for kind in way.ways)


def test_the_lines_far_from_an_error_do_not_count() -> None:
    far = "step 1 of a run\n" * 3000
    assert "The text is of" not in _one(f"C:\\Users\\me\n{far}{NO_DRIVER}\n").signature.cause


@pytest.mark.parametrize(
    ("text", "words", "never"),
    [
        (
            "/Users/me/torch/cuda/__init__.py\nAssertionError: Torch not compiled with CUDA enabled",
            "'mps'",
            "torch-backend",
        ),
        ("/Users/me/x.py\nNo module named 'exllamav2_ext'", "the Mac's own GPU", "nvcc"),
        ("gfx1031, torch 2.6.0+rocm6.2\nAssertionError: Torch not compiled with CUDA enabled", "ROCm", "cu126"),
        (
            "Error! Bad return status for module build on kernel: 6.8.10-300.fc40.x86_64\n"
            "Consult /var/lib/dkms/nvidia/545.29.02/build/make.log for more information.",
            "akmods",
            "apt-",
        ),
        (
            "#error -- unsupported GNU version! gcc versions later than 13 are not supported!\n7.0.9-1-cachyos",
            "pacman",
            "apt-get",
        ),
    ],
)
def test_the_ways_are_those_of_the_system_that_the_text_shows(text: str, words: str, never: str) -> None:
    signature = explain_text(text).explanations[0].signature
    told = " ".join((signature.cause, *(" ".join((way.say, *way.run)) for way in signature.ways_out)))
    assert words in told
    assert never not in " ".join(_commands(explain_text(text).explanations[0]))


@pytest.mark.parametrize(
    "line",
    [
        r"Command '['C:\\kohya\\venv\\Scripts\\python.exe', 'train.py']' returned non-zero exit status 3221225477.",
        "Exception code: 0xc0000005",
    ],
)
def test_a_crash_on_windows_is_not_proved_with_programs_of_linux(line: str) -> None:
    [explanation] = explain_text(line).explanations
    assert explanation.signature.code in ("crash-in-compiled-code", "windows-access-violation")
    assert not [each for each in _commands(explanation) if each.startswith(("gdb", "env ", "sudo"))]


def test_where_the_proof_is_of_linux_windows_has_its_own() -> None:
    prove = explain_text("C:\\x\\y.py\nRuntimeError: No CUDA GPUs are available").explanations[0].signature.prove
    assert prove.run[:2] == ("nvidia-smi", "where.exe nvcuda.dll nvml.dll")


def test_a_filter_of_linux_is_left_out_of_a_command_for_windows() -> None:
    text = "C:\\>ERROR: torch-2.0.1+cu118-cp310-cp310-win_amd64.whl is not a supported wheel on this platform."
    prove = explain_text(text).explanations[0].signature.prove
    assert prove.run == ("python -m pip debug --verbose",)
