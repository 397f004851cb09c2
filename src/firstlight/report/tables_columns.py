"""Which columns of a table are printed, and how a field becomes a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from firstlight.tables.document import encode_value
from firstlight.tables.row import Row

_COMMON = {field.name for field in fields(Row)}


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and how a row fills it, e.g. 'CUDA' with the wheel's CUDA version."""

    heading: str
    cell: Callable[[Any], str]


def columns_of(subject: str, row_class: type[Row]) -> tuple[Column, ...]:
    """The columns of a table: its own choice where the plain fields would not do, else every field."""
    if subject in _COLUMNS:
        return _COLUMNS[subject]
    names = [field.name for field in fields(row_class) if field.name not in _COMMON]
    return tuple(_field(name) for name in names)


def worth_a_line(row: Row) -> bool:
    """Whether a row is printed as text: of 171 error codes only those there is something to say about."""
    return bool(getattr(row, "meaning", "a row of another table"))


def shown(value: object) -> str:
    """A field as a cell: 'yes', '535 550 570', '13.0', and '-' for what the row says there is none of."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(shown(item) for item in value) or "-"
    return "-" if value is None else str(encode_value(value))


def _field(name: str, heading: str = "") -> Column:
    plain = name.replace("_", " ").replace("cuda", "CUDA").replace("l4t", "L4T").replace("jetpack", "JetPack")
    return Column(heading or plain, lambda row: shown(getattr(row, name)))


def _rounded(name: str, heading: str = "") -> Column:
    """A number in four digits, 989.4 or 13500; '-' where there is none."""

    def cell(row: Any) -> str:
        value = getattr(row, name)
        return "-" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:.4g}"

    return Column(heading or name, cell)


def _or_word(name: str, heading: str, word: str) -> Column:
    """A column whose None has a word of its own, e.g. 'CPU only'."""
    return Column(heading, lambda row: word if getattr(row, name) is None else shown(getattr(row, name)))


def _pin_of(project: str, heading: str) -> Column:
    return Column(heading, lambda row: "-" if (pin := row.pin(project)) is None else pin.version or pin.spec or "any")


def _without_dots(name: str, heading: str) -> Column:
    """Capabilities the way nvcc writes them, 75 80 86, which fits where 7.5 8.0 8.6 does not."""
    return Column(heading, lambda row: shown(getattr(row, name)).replace(".", ""))


def _upper_bound(row: Any) -> str:
    later = row.later_major_from_branch
    return "none" if later is None else f"none in practice: {later} and later run it too"


def _runs_on(row: Any) -> str:
    if row.only_on:
        return f"{shown(row.only_on)} only"
    return f"{row.code.major}.x from {row.code} on" + (f", not {shown(row.not_on)}" if row.not_on else "")


def _part(name: str, heading: str) -> Column:
    def cell(row: Any) -> str:
        for pin in row.parts:
            if pin.project in (f"nvidia-{name}", f"nvidia-{name}-cu11", f"nvidia-{name}-cu12"):
                return str(pin.spec.removeprefix("==").removesuffix(".*"))
        return "-"

    return Column(heading, cell)


def _machines_of_wheels(row: Any) -> str:
    if row.x86_64 and row.aarch64:
        return "both"
    return "x86_64" if row.x86_64 else "aarch64" if row.aarch64 else "source"


def _short_name(row: Any) -> str:
    name = row.name or row.runtime_name
    return str(name.removeprefix("CUDA_ERROR_").removeprefix("NVML_ERROR_").removeprefix("cudaError"))


def _text_and_meaning(row: Any) -> str:
    return "\n".join(part for part in (row.text, f"= {row.meaning}" if row.meaning else "") if part) or "-"


def _system(row: Any) -> str:
    """ubuntu 22.04-24.04, fedora x86_64."""
    ends = tuple(dict.fromkeys((row.release_from, row.release_to)))
    releases = f"from {ends[0]}" if ends[-1] == "" and ends[0] else "-".join(filter(None, ends))
    return " ".join(filter(None, (row.family.value, releases, row.arch)))


def _which(row: Any) -> str:
    return " ".join(filter(None, (row.of, row.flavour, shown(row.numbers) if row.numbers else ""))) or "-"


def _called(row: Any) -> str:
    version = f" {row.version}" if row.version else ""
    return f"{shown(row.names)}{version}{f' ({row.from_repository})' if row.from_repository else ''}"


_COLUMNS: dict[str, tuple[Column, ...]] = {
    "system_names": (
        _field("role", "what"),
        Column("system", _system),
        Column("which", _which),
        Column("its name (repository)", _called),
    ),
    "error_texts": (
        Column("code and title", lambda row: f"{row.code}\n  {row.title}"),
        Column("product and kind", lambda row: f"{row.product}\n{row.family}".strip()),
    ),
    "cuda_majors": (
        Column("CUDA", lambda row: f"{row.major}.x"),
        _field("min_driver_same_major", "oldest driver"),
        Column("upper bound", _upper_bound),
    ),
    "driver_branches": (_field("branch", "driver branch"), _field("native_cuda", "CUDA it reports")),
    "cuda_releases": (_field("toolkit"), _field("label", "called"), _field("driver_in_release_notes")),
    "cuda_runfiles": (_field("toolkit"), _or_word("driver_shipped_with", "driver shipped with", "none inside")),
    "gpus": (_field("model"), _field("capability"), _field("kind")),
    "gpu_peaks": (
        _field("name", "model"),
        _field("sms", "SMs"),
        _field("clock_mhz", "MHz"),
        *(_rounded(name) for name in ("fp64", "fp32", "tf32", "fp16", "fp8", "fp4")),
        _rounded("bandwidth_gbps", "GB/s"),
    ),
    "gpu_rates": (
        _field("line"),
        _field("capabilities", "for"),
        *(_field(name) for name in ("fp64", "fp32", "tf32", "fp16", "fp8", "fp4", "int8")),
    ),
    "nvlink_rates": (
        _field("generation", "NVLink"),
        _field("nvml_version", "NVML's number"),
        _field("each_way_gbps", "GB/s each way"),
        _field("switch_adds", "switches add up"),
    ),
    "code_rules": (
        _field("code", "code for"),
        Column("runs on devices", _runs_on),
        Column("built with CUDA", lambda row: f"{row.torch_cuda_from} or later" if row.torch_cuda_from else "any"),
    ),
    "toolkit_targets": (
        _field("toolkit"),
        Column("sm_ targets", lambda row: shown(row.targets).replace("sm_", "")),
    ),
    "toolkit_wheels": (
        _field("release", "cuda-toolkit"),
        Column("parts", lambda row: str(len(row.parts))),
        _part("cublas", "cuBLAS"),
        _part("cuda-runtime", "runtime"),
        Column("extra nvcc brings", lambda row: shown(row.nvcc_extra).replace("nvidia-", "")),
    ),
    "torch_releases": (
        _field("torch"),
        _field("machine"),
        _or_word("wheel_cuda", "CUDA", "CPU only"),
        Column("CPython", lambda row: f"{row.cpython[0]} - {row.cpython[-1]}"),
        _without_dots("compiled_for", "compiled for sm_"),
        _pin_of("triton", "triton"),
        _pin_of("nvidia-cudnn", "cuDNN"),
    ),
    "variant_targets": (
        _field("torch"),
        _field("wheel_cuda"),
        _field("machine"),
        _without_dots("compiled_for", "compiled for sm_"),
    ),
    "torch_indexes": (_field("channel"), _field("address"), Column("builds", lambda row: shown(row.builds))),
    "companions": (
        _field("project"),
        _field("version"),
        _pin_of("torch", "torch"),
        Column("also requires", lambda row: shown(tuple(p for p in row.requires if p.project != "torch"))),
    ),
    "package_pins": (
        _field("project"),
        _field("version"),
        _field("requires_python", "Python"),
        Column("wheels", _machines_of_wheels),
        _field("cuda_major_x86_64", "CUDA"),
        Column("requires", lambda row: shown(tuple(p for p in row.requires if not p.project.startswith("nvidia")))),
    ),
    "compile_pythons": (_field("torch"), _field("below", "Python below")),
    "beside_wheels": (_field("project"), _field("version"), _field("x86_64"), _field("aarch64")),
    "wheel_sizes": (
        _field("project"),
        _field("version"),
        _field("machine"),
        Column("MB", lambda row: f"{row.bytes / 1e6:.1f}"),
        Column("pulls", lambda row: f"{len(row.pulls)} wheels" if row.pulls else "-"),
    ),
    "runtime_settings": (_field("name"), _field("read_by", "reader"), _field("accepted")),
    "source_tags": (_field("project"), _field("tag"), _field("commit")),
    "features": (
        _field("feature"),
        _field("title"),
        Column("there is such a thing", lambda row: "yes" if row.exists else "no"),
        _or_word("least_capability", "from capability", "any"),
    ),
    "downloads": (
        _field("fetched_by", "fetched by"),
        _field("name"),
        _field("machine"),
        Column("MB", lambda row: f"{row.bytes / 1e6:.1f}"),
    ),
    "durations": (_field("work"), _field("seconds"), _field("per", "for each")),
    "error_codes": (
        _field("api"),
        _field("code"),
        Column("name", _short_name),
        Column("text it prints, and what it means", _text_and_meaning),
    ),
    "xids": (_field("code"), _field("meaning"), _field("action"), _field("if_again", "if it comes again")),
}

# Fields left out above so that a line fits; the reader is told where they are.
ONLY_IN_JSON = {
    "gpus": "pattern, example, memory_gb",
    "gpu_peaks": "bf16, int8, fp64_tc, other clocks, nvlink_gbps, what was seen, pattern, example",
    "gpu_rates": "names, bf16, fp64_tc, fp16_acc16, fp8_acc16",
    "toolkit_targets": "ptxas",
    "toolkit_wheels": "parts",
    "torch_releases": "released, wheel_mb, platform_tag, pins",
    "companions": "machines",
    "package_pins": "released, Pythons of the wheels, sdist, requirements of one machine, nvidia-*",
    "wheel_sizes": "bytes, the names of what is pulled",
    "runtime_settings": "does, since, seen_in, accepts, suggested, instead",
    "source_tags": "address",
    "features": "claim, how it is found out, what is so",
    "downloads": "bytes",
    "error_codes": "runtime_name",
    "xids": "name, lies_with",
}
