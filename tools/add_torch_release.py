"""Add a torch release to the tables: read from its wheels on an index, by ranges, and written as rows.

    python -m tools.add_torch_release 2.16.0                      from pip's own index
    python -m tools.add_torch_release 2.16.0 --index-url URL      another one; --released DAY where it tells no dates

Writes torch_releases for both processors, torch_variants, variant_targets, compile_pythons and triton_ptxas, as far as
they do not know the release; a row that is there already is left as it is. What PyPI has of the packages around it:
python -m tools.refresh_pins. Exit: 0 written or known already, 2 bad usage, 4 the index has not what is needed.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from firstlight.errors import CouldNotLook
from firstlight.tables.reading import checked_rows
from tools.refresh_pins import DATA, MACHINES, Index, written
from tools.refresh_tables import (
    IndexFile,
    NotFound,
    fetch,
    pip_index_url,
    project_files,
    read_member,
    read_metadata,
    requirements,
)

_KEPT = re.compile(r"triton|cuda-.*|nvidia-.*")
_ARCHES = re.compile(rb"\0((?:(?:sm|compute)_\d+[af]? ?)+)\0")  # what torch.cuda.get_arch_list() says
_PTXAS = re.compile(rb"Cuda compilation tools, release [\d.]+, V([\d.]+)")
_PROGRAMS = ("ptxas", "ptxas-blackwell")
_OF_CODE_CC = "torch/cuda/__init__.py, PYTORCH_RELEASES_CODE_CC, of the PyPI wheel torch {}"
Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Told:
    """What the wheels of a release say, e.g. CUDA 13.2 of torch 2.15.0 for x86_64."""

    version: Version
    wheels: Mapping[str, IndexFile]  # by machine
    pythons: Mapping[str, tuple[str, ...]]  # 3.12, 3.13t
    cuda: Mapping[str, str | None]
    arches: Mapping[str, tuple[str, ...]]
    pins: Mapping[str, tuple[str, ...]]
    sizes: Mapping[str, int]
    released: str
    variants: Mapping[str, Mapping[str, set[int]]]  # CUDA, machine, {75, 80}
    compile_below: str  # 3.16

    @property
    def minor(self) -> str:
        return f"{self.version.major}.{self.version.minor}"


def read_release(index: str, version: Version, released: str) -> Told:
    """Everything that the rows are made of; CouldNotLook names what the index has not."""
    files = [file for file in project_files(index, "torch") if file.version == version and not file.yanked]
    wheels: dict[str, IndexFile] = {}
    for machine in MACHINES:
        fitting = [file for file in files if "linux" in file.platform and machine in file.platform]
        if not fitting:
            raise CouldNotLook(f"torch {version}: no Linux wheel for {machine} on this index.")
        wheels[machine] = min(fitting, key=lambda file: "-cp312-cp312-" not in file.filename)
    pythons = {
        machine: _pythons(f.filename for f in files if machine in f.platform and "linux" in f.platform)
        for machine in MACHINES
    }
    cuda = {machine: _cuda_of(wheel) for machine, wheel in wheels.items()}
    first = wheels["x86_64"]
    day = released or _day(index, version)
    if not day:
        raise CouldNotLook(f"torch {version}: this index does not tell when it was released; give --released DAY.")
    return Told(
        version=version,
        wheels=wheels,
        pythons=pythons,
        cuda=cuda,
        arches={machine: _arches(wheel) if cuda[machine] else () for machine, wheel in wheels.items()},
        pins={machine: tuple(_pins(wheel, machine)) for machine, wheel in wheels.items()},
        sizes={machine: fetch(wheel.url, {"Range": "bytes=0-0"}).whole_size for machine, wheel in wheels.items()},
        released=day,
        variants=_assigned(read_member(first.url, "torch/cuda/__init__.py"), "PYTORCH_RELEASES_CODE_CC"),
        compile_below=_compile_below(read_member(first.url, "torch/_dynamo/eval_frame.py").decode("utf-8")),
    )


def _pythons(names: Iterable[str]) -> tuple[str, ...]:
    """3.12 of cp312-cp312, 3.13t of cp313-cp313t, oldest first."""
    found = {(int(match[1]), match[2]) for name in names if (match := re.search(r"-cp3(\d+)-cp3\d+(t?)-", name))}
    return tuple(f"3.{minor}{free}" for minor, free in sorted(found))


def _cuda_of(wheel: IndexFile) -> str | None:
    cuda: str | None = _assigned(read_member(wheel.url, "torch/version.py"), "cuda")
    return cuda


def _assigned(source: bytes, name: str) -> Any:
    """The constant that a module gives a name; the module is read and not run."""
    for node in ast.parse(source).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return ast.literal_eval(node.value)  # type: ignore[attr-defined]
    raise CouldNotLook(f"the wheel has no {name} where torch has it; read it by hand, and mend this tool.")


def _arches(wheel: IndexFile) -> tuple[str, ...]:
    """7.5, 8.0, ... of 'sm_75 sm_80': the list that torch.cuda.get_arch_list() gives, without PTX."""
    match = _ARCHES.search(read_member(wheel.url, "torch/lib/libtorch_python.so"))
    if match is None:
        raise CouldNotLook(f"{wheel.filename}: libtorch_python.so has no list of architectures.")
    numbers = re.findall(r"sm_(\d+)", match[1].decode())
    return tuple(f"{number[:-1]}.{number[-1]}" for number in numbers)


def _pins(wheel: IndexFile, machine: str) -> Iterator[str]:
    for name, spec in requirements(read_metadata(wheel), machine).items():
        if _KEPT.fullmatch(name):
            yield f"{name}{spec}"


def _compile_below(source: str) -> str:
    found = re.search(r"def check_if_dynamo_supported.*?sys\.version_info >= \((\d+), (\d+)\)", source, re.DOTALL)
    if found is None:
        raise CouldNotLook("the wheel's check_if_dynamo_supported names no Python; read it by hand.")
    return f"{found[1]}.{found[2]}"


def _day(index: str, version: Version) -> str:
    """The day its first wheel came, e.g. 2026-10-28; "" where the index has no JSON beside its simple pages."""
    try:
        return min((file.uploaded for file in Index(index).releases("torch").get(version, ())), default="")
    except NotFound:
        return ""


def rows_of(told: Told, index: str, known: Mapping[str, list[Row]], today: str) -> dict[str, list[Row]]:
    """The rows of every table that lacks the release."""
    end: Row = {"date": today, "confidence": "measured"}
    of_code_cc = {"source": _OF_CODE_CC.format(told.version), **end}
    variants = sorted(told.variants, key=lambda cuda: tuple(map(int, cuda.split("."))))
    default = told.cuda["x86_64"]
    return {
        "torch_releases": [_release(told, machine, end) for machine in MACHINES],
        "torch_variants": [
            {"torch": told.minor, "wheel_cuda": cuda, "status": "in the wheel's table", **of_code_cc,
             **({"note": "The default on PyPI."} if default is not None and cuda == _minor(default) else {})}
            for cuda in variants
        ],
        "variant_targets": [
            {"torch": told.minor, "wheel_cuda": cuda, "machine": machine,
             "compiled_for": [f"{number // 10}.{number % 10}" for number in sorted(numbers)], **of_code_cc}
            for cuda in variants
            for machine, numbers in sorted(told.variants[cuda].items())
        ],
        "compile_pythons": [
            {"torch": told.minor, "below": told.compile_below,
             "source": f"check_if_dynamo_supported in torch/_dynamo/eval_frame.py of the wheel torch {told.version}",
             **end}
        ],
        "triton_ptxas": list(_ptxas(told, index, known["triton_ptxas"], end)),
    }  # fmt: skip


def _release(told: Told, machine: str, end: Row) -> Row:
    wheel = told.wheels[machine]
    cuda = told.cuda[machine]
    read = "METADATA, torch/version.py and libtorch_python.so" if cuda else "METADATA and torch/version.py"
    return {
        "torch": str(told.version), "machine": machine, "wheel_cuda": cuda, "released": told.released,
        "cpython": list(told.pythons[machine]), "compiled_for": list(told.arches[machine]),
        "wheel_mb": round(told.sizes[machine] / 1e6, 1),
        "platform_tag": wheel.platform.removesuffix(f"_{machine}").split(".")[0], "pins": list(told.pins[machine]),
        "source": f"{read} of this PyPI wheel (cp312, else cp310)", **end,
    }  # fmt: skip


def _ptxas(told: Told, index: str, known: list[Row], end: Row) -> Iterator[Row]:
    """The ptxas programs of the triton that the release pins, where no row has that triton."""
    pinned = next((re.search(r"\d+\.\d+", pin) for pin in told.pins["x86_64"] if pin.startswith("triton")), None)
    triton = pinned[0] if pinned else ""
    if not triton or any(row["triton"] == triton for row in known):
        return
    files = [file for file in project_files(index, "triton") if str(file.version).startswith(f"{triton}.")]
    fitting = [file for file in files if "x86_64" in file.platform]
    if not fitting:
        raise CouldNotLook(f"triton {triton}: no wheel on this index.")
    wheel = max(fitting, key=lambda file: (file.version, "-cp312-" in file.filename))
    for program in _PROGRAMS:
        found = _PTXAS.search(read_member(wheel.url, f"/bin/{program}"))
        if found is None:
            raise CouldNotLook(f"{wheel.filename}: {program} does not say its version.")
        source = f"version inside the program of the PyPI wheel triton {wheel.version}"
        yield {"triton": triton, "torch": [told.minor], "program": program, "ptxas": found[1].decode(),
               "source": source, **end}  # fmt: skip


def _minor(cuda: str) -> str:
    return ".".join(cuda.split(".")[:2])


_KEYS = {
    "torch_releases": ("torch", "machine"),
    "torch_variants": ("torch", "wheel_cuda"),
    "variant_targets": ("torch", "wheel_cuda", "machine"),
    "compile_pythons": ("torch",),
    "triton_ptxas": ("triton", "program"),
}


def add(folder: Path, told: Told, index: str, today: str) -> dict[str, int]:
    """Write what is new into the tables of a folder; how many rows each got. Nothing is written where one is no row."""
    before = {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in _KEYS}
    after, counts = {}, {}
    for name, rows in rows_of(told, index, {n: each["rows"] for n, each in before.items()}, today).items():
        have = {tuple(row[key] for key in _KEYS[name]) for row in before[name]["rows"]}
        new = [row for row in rows if tuple(row[key] for key in _KEYS[name]) not in have]
        whole = [_with_minor(row, told) if name == "triton_ptxas" else row for row in before[name]["rows"]]
        after[name], counts[name] = written(name, before[name]["about"], [*whole, *new]), len(new)
    for name, text in after.items():
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        checked_rows(str(folder), name)
    return counts


def _with_minor(row: Row, told: Told) -> Row:
    """A row of the triton that the release takes, with the release's minor among its torches."""
    pins = [pin for pin in told.pins["x86_64"] if re.match(r"triton\D", pin)]
    torches = row["torch"]
    assert isinstance(torches, list)
    is_of_it = any(re.search(r"\d+\.\d+", pin[6:])[0] == row["triton"] for pin in pins)  # type: ignore[index]
    return {**row, "torch": [*torches, told.minor]} if is_of_it and told.minor not in torches else row


def main(argv: list[str] | None = None) -> int:
    """Read the release and write its rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", help="e.g. 2.16.0")
    parser.add_argument("--index-url", help="a simple index; default: the one pip uses")
    parser.add_argument("--released", default="", metavar="DAY", help="e.g. 2026-12-02; default: what the index tells")
    parser.add_argument("--folder", type=Path, default=DATA, help="where the tables are")
    given = parser.parse_args(argv)
    try:
        version = Version(given.version)
        day = given.released and datetime.date.fromisoformat(given.released).isoformat()
    except (InvalidVersion, ValueError) as error:
        parser.error(f"{error}; accepted: a release such as 2.16.0, and a day such as 2026-12-02")
    try:
        index = given.index_url or pip_index_url()
        told = read_release(index, version, day)
        counts = add(given.folder, told, index, datetime.date.today().isoformat())
    except CouldNotLook as error:
        print(f"add_torch_release: {error}", file=sys.stderr)
        return error.exit_code
    for name, count in counts.items():
        print(f"{name}: {count} new" if count else f"{name}: has it already")
    print("next: python -m tools.refresh_pins, then pytest tests/tables")
    return 0


if __name__ == "__main__":
    sys.exit(main())
