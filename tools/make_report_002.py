"""Make the wheel of field report 002 for the tests: what the loader reads of a real wheel, and nothing else of it.

python -m tools.make_report_002

The libraries of PyPI's torch 2.9.0 wheel for aarch64 are read by range requests. Each becomes a small file with the
same names, search paths and symbol versions and no code, and libtorch_cpu.so gets the three names that the report says
its wheel asked for. The report's own wheel was another build of 2.9.0, for CUDA 13: so this one is RECONSTRUCTED, says
so in its METADATA, and its search path is the real wheel's.
"""

from __future__ import annotations

import argparse
import io
import posixpath
import sys
import zipfile
from pathlib import Path

from firstlight.elf.image import bytes_of, open_image
from firstlight.elf.reader import defined_of, elf_of, needed_of
from firstlight.errors import CouldNotLook
from firstlight.libraries.wheel_machine import SHARED
from tools.machines.elf_writer import ElfSpec, make_elf
from tools.refresh_tables import RangeFile, pip_index_url, project_files

OUT = Path(__file__).parents[1] / "tests" / "libraries" / "data"
NAME = "torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl"
REPORTED = ("libnvpl_lapack_lp64_gomp.so.0", "libnvpl_blas_lp64_gomp.so.0", "libcudss.so.0")
ASKING = "torch/lib/libtorch_cpu.so"
SAYS = (
    "RECONSTRUCTED from field report 002: the dynamic sections of PyPI's torch 2.9.0 for aarch64, with the three names "
    "that the report's wheel asked for added to libtorch_cpu.so. No code of torch is in it."
)


def main() -> int:
    """Write the wheel into tests/libraries/data."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    try:
        url = next(
            (each.url for each in project_files(pip_index_url(), "torch") if each.url.split("#")[0].endswith(NAME)), ""
        )
        if not url:
            raise CouldNotLook(f"{NAME} is not on the index.")
        with zipfile.ZipFile(io.BufferedReader(RangeFile(url), 1 << 22)) as wheel:
            files = {name: small(wheel.read(name), name) for name in wheel.namelist() if is_library(name)}
            [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
            text = wheel.read(metadata).decode()
            files["torch/__init__.py"] = b""
            files["torch/version.py"] = wheel.read("torch/version.py")
    except CouldNotLook as error:
        print(f"make_report_002: {error}", file=sys.stderr)
        return error.exit_code
    head = [line.rstrip() for line in text.split("\n\n")[0].splitlines() if line.startswith(_KEPT)]
    files[metadata] = "\n".join([*head, f"Summary: {SAYS}", "", ""]).encode()
    write(files)
    return 0


_KEPT = ("Metadata-Version:", "Name:", "Version:", "Requires-Dist:")


def is_library(name: str) -> bool:
    return name.startswith(("torch/", "torch.libs/")) and SHARED.search(posixpath.basename(name)) is not None


def small(data: bytes, name: str) -> bytes:
    """A library with what the loader reads of the real one; the one that asks gets the report's names too."""
    image = open_image(bytes_of(data), name)
    assert image is not None, name
    file = elf_of(image)
    asked = REPORTED if name == ASKING else ()
    return make_elf(
        ElfSpec(
            arch=file.arch,
            needed=(*file.needed, *asked),
            soname=file.soname,
            rpath=":".join(file.rpath),
            runpath=":".join(file.runpath),
            defines=defined_of(image),
            needs=tuple((each.library, each.names) for each in needed_of(image)),
        )
    )


def write(files: dict[str, bytes]) -> None:
    OUT.mkdir(exist_ok=True)
    with zipfile.ZipFile(OUT / NAME, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)  # the same bytes every time
    print(f"wrote {OUT / NAME}: {len(files)} files, {(OUT / NAME).stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
