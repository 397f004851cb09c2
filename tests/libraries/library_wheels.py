"""Wheels that hold real shared libraries, built with gcc while the tests run."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import zipfile
from pathlib import Path


def build_library(
    path: Path,
    *,
    needs: tuple[Path, ...] = (),
    rpath: str = "",
    runpath: str = "",
    source: str = "",
    plain: bool = True,
) -> Path:
    """A shared library whose soname is its file name; `plain`: without the C library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-nostdlib"] if plain else []
    if rpath:
        flags += ["-Wl,--disable-new-dtags", f"-Wl,-rpath,{rpath}"]
    if runpath:
        flags += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"]
    command = [
        "gcc",
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        f"-Wl,-soname,{path.name}",
        "-o",
        str(path),
        "-x",
        "c",
        "-",
    ]
    subprocess.run([*command, "-x", "none", *flags, *map(str, needs)], input=source, text=True, check=True)
    return path


def library_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    files: dict[str, bytes],
    requires: tuple[str, ...] = (),
    tag: str = "py3-none-manylinux_2_27_x86_64",
) -> Path:
    """A wheel with these files under site-packages."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    inside = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in inside.items())
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in {**inside, f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}.items():
            archive.writestr(member, data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def cuda_wheels(folder: Path, work: Path) -> None:
    """Stand-ins for cuDSS 0.8 and 1.0 and cuBLAS of CUDA 13: real libraries with the real names, needs and RPATHs."""
    lt = build_library(work / "libcublasLt.so.13")
    blas = build_library(work / "libcublas.so.13", needs=(lt,), runpath="$ORIGIN")
    for version, soname in (("0.8.0.10", "libcudss.so.0"), ("1.0.0.35", "libcudss.so.1")):
        cudss = build_library(work / soname, needs=(blas,), rpath="$ORIGIN:$ORIGIN/../../cublas/lib")
        library_wheel(
            folder, "nvidia-cudss-cu13", version, files={f"nvidia/cu13/lib/{soname}": cudss.read_bytes()},
            requires=("nvidia-cublas",),
        )  # fmt: skip
    files = {f"nvidia/cu13/lib/{each.name}": each.read_bytes() for each in (lt, blas)}
    library_wheel(folder, "nvidia-cublas", "13.1.0.3", files=files)
