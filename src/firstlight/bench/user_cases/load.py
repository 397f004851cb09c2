"""A user's file of cases, read and checked field by field: what is wrong is said before anything is measured."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from firstlight.bench.case import Cache
from firstlight.bench.cases.data import ELEMENT_BYTES, TOLERANCE, spelled
from firstlight.bench.user_cases.declare import CudaFile, UserCase
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

DTYPES = tuple(ELEMENT_BYTES)
PEAKS = (*DTYPES, "bandwidth")
LOOSEST = 10.0  # times the tolerance of the dtype: beyond it a coarser type would pass for the one that is named
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9._+-]+)*")
LONGEST_NAME = 80
_TEMPLATE = (
    "CASES = (UserCase(name=..., inputs=..., run=..., reference=..., flops=..., bytes=...),); "
    "docs/bench-cases.md has one to copy"
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The cases of a file and the folder that paths in it count from."""

    cases: tuple[UserCase, ...]
    folder: str


def is_case_file(name: str) -> bool:
    """Whether an argument of `bench` names a file of cases: my_kernels.py, axpy.cu."""
    return name.endswith((".py", ".cu"))


def load_cases(path: str) -> Loaded:
    """The cases of a .py file; a .cu file is described by the .py file of the same name beside it."""
    described = description(path)
    folder = os.path.dirname(os.path.abspath(described))
    cases = _cases(described, _executed(described))
    for place, case in enumerate(cases):
        for fault in _faults(case, folder):
            name = getattr(case, "name", "")
            label = name if isinstance(name, str) and name else f"number {place + 1}"
            raise BadInput(f"{described}: case {label}: {fault}")
    names = [case.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{described}: {names.count(name)} cases are called {name!a}; give each a name of its own")
    if path.endswith(".cu") and not any(_is_about(case, path, folder) for case in cases):
        raise BadInput(
            f"{described}: no case runs {os.path.basename(path)}; one needs run=CudaFile(...) with that path"
        )
    return Loaded(cases, folder)


def description(path: str) -> str:
    """The .py file that describes a file of cases; one that is not there raises BadInput, and nothing of it is run."""
    if not is_case_file(path):
        raise BadInput(f"{path}: a file of cases ends in .py, a kernel in .cu")
    if not os.path.isfile(path):
        raise BadInput(f"{path}: there is no such file; name a .py file with CASES, or a .cu file that one describes")
    if path.endswith(".py"):
        return path
    beside = path.removesuffix(".cu") + ".py"
    if not os.path.isfile(beside):
        raise BadInput(
            f"{path}: its inputs, work and reference are not known; write {beside} beside it with "
            f"run=CudaFile({os.path.basename(path)!r}, entry=..., launch=...) (docs/bench-cases.md has one to copy)"
        )
    return beside


def _executed(path: str) -> dict[str, Any]:
    """The names that a file defines; whatever it raises becomes one line with the place in the file."""
    import importlib.util

    name = f"firstlight_user_cases_{abs(hash(os.path.abspath(path)))}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the file look themselves up
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 it is the user's code, and its error is the answer
        said = " ".join(str(error).split())[:200]
        raise BadInput(
            f"{path}{_line_of(error, path)}: could not be read: {type(error).__name__}: {said}. Repair the file; "
            "nothing was measured."
        ) from None
    finally:
        sys.path.pop(0)
    return vars(module)


def _line_of(error: BaseException, path: str) -> str:
    """':12' for the deepest line of the file that was running."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f":{error.lineno}"
    line, frame = "", error.__traceback__
    while frame is not None:
        if os.path.abspath(frame.tb_frame.f_code.co_filename) == os.path.abspath(path):
            line = f":{frame.tb_lineno}"
        frame = frame.tb_next
    return line


def _cases(path: str, names: dict[str, Any]) -> tuple[UserCase, ...]:
    found = names.get("CASES")
    if not isinstance(found, (tuple, list)) or not found:
        given = "has no CASES" if found is None else f"CASES is {type(found).__name__}, or empty"
        raise BadInput(f"{path}: {given}; accepted: {_TEMPLATE}")
    for each in found:
        if not isinstance(each, UserCase):
            raise BadInput(f"{path}: CASES holds a {type(each).__name__}; accepted: {_TEMPLATE}")
    return tuple(replace(each, dtype=_named(each.dtype), peak=_named(each.peak)) for each in found)


def _named(dtype: Any) -> Any:
    """Our name of a dtype, 'fp16' for torch.float16; what has none stays as it was given, to be refused."""
    return spelled(dtype) or dtype


def _faults(case: UserCase, folder: str) -> Iterator[str]:
    yield from _name_faults(case)
    yield from _work_faults(case)
    for field in ("inputs", "reference"):
        if not callable(getattr(case, field)):
            yield f"{field} is {getattr(case, field)!a:.60}; accepted: a function"
    if case.outputs is not None and not callable(case.outputs):
        yield "outputs is not a function; accepted: a function of `make` that returns a tuple of buffers"
    if isinstance(case.run, CudaFile):
        if case.outputs is None:
            yield "a CudaFile returns nothing, so outputs=lambda make: (make.empty(...),) is needed"
        if not os.path.isfile(os.path.join(folder, case.run.path)):
            yield f"there is no {case.run.path} in {folder}"
    elif not callable(case.run):
        yield f"run is {case.run!a:.60}; accepted: a function, or a CudaFile"


def _name_faults(case: UserCase) -> Iterator[str]:
    if not isinstance(case.name, str) or not NAME.fullmatch(case.name) or len(case.name) > LONGEST_NAME:
        yield f"name is {case.name!a:.100}; accepted: letters, digits and . _ + - / up to {LONGEST_NAME}, as axpy/fp32"
    if case.dtype not in DTYPES:
        yield f"dtype is {case.dtype!a:.40}; accepted: {', '.join(DTYPES)}"
    if case.peak not in ("", *PEAKS):
        yield f"peak is {case.peak!a:.40}; accepted: {', '.join(PEAKS)}"
    if not isinstance(case.cache, Cache):
        yield "cache is not a Cache; accepted: Cache.COLD, Cache.WARM"


def _work_faults(case: UserCase) -> Iterator[str]:
    for field in ("flops", "bytes"):
        value = getattr(case, field)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            yield f"{field} is {value!a:.40}; accepted: a whole number, 0 or more"
            return
    if not case.flops and not case.bytes:
        yield "neither flops nor bytes are counted, so its time has no limit to be compared with; count one of them"
    if case.peak not in ("", "bandwidth") and not case.flops:
        yield f"peak is {case.peak} and flops is 0; count the flops, or take peak='bandwidth'"
    allowed = LOOSEST * TOLERANCE.get(case.dtype, 1.0)
    if not isinstance(case.tolerance, (int, float)) or not 0 <= case.tolerance <= allowed:
        yield (
            f"tolerance is {case.tolerance!a:.40}; accepted for {case.dtype}: up to {allowed:.3g}, beyond which a "
            f"coarser type would pass for {case.dtype}"
        )


def _is_about(case: UserCase, path: str, folder: str) -> bool:
    if not isinstance(case.run, CudaFile):
        return False
    return os.path.realpath(os.path.join(folder, case.run.path)) == os.path.realpath(path)
