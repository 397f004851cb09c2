"""Commands for the Python that a program for Windows brings along."""

from __future__ import annotations

import pytest

from firstlight.diagnosis.explain import explain_text

CPU_ONLY = "AssertionError: Torch not compiled with CUDA enabled"


def _first(text: str) -> str:
    return explain_text(text).explanations[0].signature.ways_out[0].run[0]


@pytest.mark.parametrize(
    ("path", "python"),
    [
        (r"I:\ComfyUI\python_embeded\Lib\site-packages\torch\cuda\__init__.py", r".\python_embeded\python.exe"),
        (r"C:\kohya_ss\venv\lib\site-packages\torch\cuda\__init__.py", r".\venv\Scripts\python.exe"),
        (r"D:\textgen\installer_files\env\Lib\site-packages\torch", r".\installer_files\env\python.exe"),
    ],
)
def test_pip_is_that_of_the_program(path: str, python: str) -> None:
    line = _first(f'File "{path}", line 3\n{CPU_ONLY}')
    assert line.startswith(f"{python} -m pip install --force-reinstall torch")
    assert line.endswith(" --index-url https://download.pytorch.org/whl/cu128")


def test_the_proof_asks_that_python_too() -> None:
    text = f"I:\\ComfyUI\\python_embeded\\Lib\\site-packages\\torch\n{CPU_ONLY}"
    [line] = explain_text(text).explanations[0].signature.prove.run
    assert line.startswith(r".\python_embeded\python.exe -c ")


@pytest.mark.parametrize("path", ["/home/me/venv/lib/python3.10/site-packages/torch", r"C:\Python310\lib\torch"])
def test_elsewhere_the_commands_stay(path: str) -> None:
    assert _first(f"{path}\n{CPU_ONLY}").startswith(("uv pip install", "pip install"))


def test_a_package_of_another_index_keeps_its_own() -> None:
    text = "C:\\app\\venv\\Scripts\\python.exe\nImportError: DLL load failed while importing flash_attn_2_cuda: x"
    for way in explain_text(text).explanations[0].signature.ways_out:
        assert not any(line.startswith(("pip ", "uv pip")) for line in way.run)


def test_the_dll_that_a_text_names_is_the_one_that_is_looked_for() -> None:
    text = "dso_loader.cc:64] Could not load dynamic library 'cudart64_110.dll'; dlerror: cudart64_110.dll not found"
    lines = [line for way in explain_text(text).explanations[0].signature.ways_out for line in way.run]
    assert "where.exe cudart64_110.dll" in lines
    assert not [line for line in lines if "NAME.dll" in line]


def test_a_venv_of_linux_is_that_of_windows_in_a_text_of_windows() -> None:
    text = r"""File "C:\webui\launch.py", line 48, in <module>
RuntimeError: Torch is not able to use GPU; add --skip-torch-cuda-test to COMMANDLINE_ARGS variable"""
    found = explain_text(text).explanations[0].signature
    lines = [*found.prove.run, *(line for way in found.ways_out for line in way.run)]
    assert any(line.startswith(r"venv\Scripts\python.exe") for line in lines)
    assert not [line for line in lines if "venv/bin" in line]
