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
