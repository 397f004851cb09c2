"""The Python that a program for Windows brings along: pip and python of the prompt are another one."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.diagnosis.explain_setting import Setting
from firstlight.diagnosis.signatures import Commands, Signature
from firstlight.tables.torch_index import index_of_build

_BROUGHT = (
    (rb"(?i)\bpython_embed(?:ed|ded)\\", r".\python_embeded\python.exe"),  # ComfyUI's portable build spells it so
    (rb"(?i)\\installer_files\\+env\\", r".\installer_files\env\python.exe"),
    (rb"(?i)\\venv\\+(?:scripts|lib)\\", r".\venv\Scripts\python.exe"),
)
_DLL = r"(?i)[\w.-]+\.dll"
_ON_THAT_INDEX = ("torch", "xformers", "triton")
_START = r"(^|; )"  # of a command: a variable may be set before it
_AUTOMATIC = "cu128"  # pip chooses no CUDA by itself: this has code for RTX 20 to 50


def python_of(text: bytes) -> str:
    """The interpreter that the paths of a text name, as the program's folder has it; "" where none is its own."""
    return next((python for shown, python in _BROUGHT if re.search(shown, text)), "")


def with_python(signature: Signature, python: str, setting: Setting) -> Signature:
    """The same answer with commands for that interpreter."""
    if not python or setting is not Setting.WINDOWS:
        return signature
    ways = tuple(replace(way, run=_for(way.run, python)) for way in signature.ways_out)
    return replace(signature, prove=Commands(signature.prove.say, _for(signature.prove.run, python)), ways_out=ways)


def with_dll(signature: Signature, values: dict[str, str]) -> Signature:
    """The same answer with the DLL that the text names in place of NAME.dll: 'where.exe cudart64_110.dll'."""
    named = next((value for value in values.values() if re.fullmatch(_DLL, value)), "")
    if not named:
        return signature

    def told(run: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(line.replace("NAME.dll", named) for line in run)

    ways = tuple(replace(way, run=told(way.run)) for way in signature.ways_out)
    return replace(signature, prove=Commands(signature.prove.say, told(signature.prove.run)), ways_out=ways)


def _for(run: tuple[str, ...], python: str) -> tuple[str, ...]:
    return tuple(_line(line, python) for line in run)


def _line(line: str, python: str) -> str:
    if line.startswith("uv pip install "):
        return f"{python} -m pip install {' '.join(_of_pip(line.split()[3:]))}"
    line = re.sub(rf"{_START}(?:python3? -m )?pip3? (?=[a-z])", lambda at: f"{at[1]}{python} -m pip ", line)
    return re.sub(rf"{_START}python3? (?=-[cm] )", lambda at: f"{at[1]}{python} ", line)


def _of_pip(words: list[str]) -> list[str]:
    """Arguments of uv as pip has them: --torch-backend=cu126 is an index there."""
    told: list[str] = []
    backend = ""
    names = iter(words)
    for word in names:
        if word in ("--reinstall-package", "-P"):
            next(names, "")
            if "--force-reinstall" not in told:
                told.append("--force-reinstall")
        elif word.startswith("--torch-backend="):
            backend = word.partition("=")[2]
        else:
            told.append(word)
    if not backend:
        return told
    wanted = [word for word in told if not word.startswith("-")]
    alone = all(word.strip("'\"").startswith(_ON_THAT_INDEX) for word in wanted)
    option = "--index-url" if alone else "--extra-index-url"
    return [*told, option, index_of_build(_AUTOMATIC if backend == "auto" else backend)]
