"""The answer of `firstlight kernels` as plain text and as a JSON document (schema firstlight.kernels/1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.numerals import counted
from firstlight.report.documents.making import headed, shown
from firstlight.report.documents.measuring import CompilerHere, DeviceHere, KernelsDocument
from firstlight.report.layout import labelled

if TYPE_CHECKING:  # importing them imports torch
    from firstlight.kernels.autotune import Tuned
    from firstlight.kernels.here import Compiler, Device, Here, Limit

SCHEMA = "firstlight.kernels/1"
_LABEL = 11


def kernels_text(here: Here) -> str:
    """The path, the backends one by one, and the densities of each GPU."""
    out = labelled("path", [f"{here.path}: {here.why}"], label_width=_LABEL)
    cuda = f" (CUDA {here.torch_cuda})" if here.torch_cuda else " (no CUDA)"
    out += labelled("torch", [f"{here.torch}{cuda}, triton {here.triton or 'not installed'}"], label_width=_LABEL)
    lines = [f"{backend.name:<10} {'runs' if backend.runs else 'no':<5} {backend.why}" for backend in here.backends]
    out += labelled("backends", lines, label_width=_LABEL)
    out += labelled("attention", [here.attention], label_width=_LABEL)
    out += labelled("compiler", _compiler_lines(here.compiler), label_width=_LABEL)
    for device in here.devices:
        out += labelled(f"gpu {device.number}", _device_lines(device), label_width=_LABEL)
    return out


def _compiler_lines(compiler: Compiler) -> list[str]:
    if not compiler.name:
        return [f"none: {compiler.where}"]
    return [
        f"{compiler.name}, for sm90 ({compiler.where})",
        f"built: {counted(compiler.kept, 'kernel')} in {compiler.kept_in}",
    ]


def _limit_line(limit: Limit, *, several: bool) -> str:
    who = limit.backend if several else "sparse"
    spread = "" if limit.lowest == limit.highest else f" to {limit.highest:.2f}, by shape and tokens"
    return f"block {limit.block}: {who} up to density {limit.lowest:.2f}{spread}"


def _device_lines(device: Device) -> list[str]:
    lines = [f"{device.name}, compute capability {device.capability}: auto takes {device.path}, {device.why}"]
    if device.path != "dense":
        several = len({limit.backend for limit in device.limits}) > 1
        lines += [_limit_line(limit, several=several) for limit in device.limits]
        lines.append(
            f"measurements: {device.measured_in}" if device.measured_in else "to measure: firstlight kernels autotune"
        )
    return lines


def kernels_document(here: Here) -> KernelsDocument:
    """The document, schema first."""
    return headed(
        KernelsDocument,
        SCHEMA,
        here,
        torch_cuda=here.torch_cuda or None,
        triton=here.triton or None,
        devices=[shown(DeviceHere, each, measured_in=each.measured_in or None) for each in here.devices],
        compiler=shown(CompilerHere, here.compiler, name=here.compiler.name or None),
    )


def tuned_text(tuned: Tuned) -> str:
    """What autotune measured and where it is."""
    rows = tuned.machine.rows
    lines = [f"{counted(len(rows), 'case')} of {tuned.planned} in {tuned.seconds:.0f} s on {tuned.machine.card.gpu}"]
    if tuned.too_large:
        lines.append(f"{counted(tuned.too_large, 'case')} left out, which no backend had the memory for")
    if len(rows) + tuned.too_large < tuned.planned:
        lines.append("the budget ran out; a longer --budget measures the rest")
    if tuned.kept:
        lines.append(f"{counted(tuned.kept, 'row')} of earlier runs kept")
    return labelled("measured", lines, label_width=_LABEL) + labelled("written", [tuned.path], label_width=_LABEL)
