"""Which case stands in which table of the Markdown report, and what its own columns are.

The tables and their columns are those people already post (size, median, rate); the limits come after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from firstlight.bench.results import CaseResult, Figure
from firstlight.frozen import dataclass
from firstlight.numerals import DASH, significant
from firstlight.report.bench_cells import gbps_text, scaled_text, time_text, whole

Cell = Callable[[CaseResult, Figure], str]
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Section:
    """One table: which cases it has and its columns in front of the limits."""

    title: str
    takes: Callable[[CaseResult], bool]
    columns: tuple[tuple[str, Cell], ...]
    versus: str = ""  # dtype of the row that the others are compared with, e.g. fp32


def param(case: CaseResult, name: str) -> str:
    """A parameter of a case as text, '-' where it has none of that name."""
    return dict(case.params).get(name, DASH)


def median(case: CaseResult, figure: Figure) -> str:
    return time_text(figure.time_s.median)


def tflops(case: CaseResult, figure: Figure) -> str:
    return DASH if figure.rate.tflops is None else significant(figure.rate.tflops)


def bandwidth(case: CaseResult, figure: Figure) -> str:
    return DASH if figure.rate.gbps is None else f"{gbps_text(figure.rate.gbps)} GB/s"


def throughput(case: CaseResult, figure: Figure) -> str:
    """'7,124 img/s' in the words of the field."""
    item = {"image": "img", "sequence": "seq", "token": "tok"}.get(param(case, "item"), param(case, "item"))
    rate = figure.rate.items_per_s
    return DASH if rate is None else f"{rate:,.0f} {item}/s" if rate >= 100 else f"{rate:.1f} {item}/s"


def precision(case: CaseResult, figure: Figure) -> str:
    """'FP16', 'FP32 (TF32)'."""
    name = {"tf32": "FP32 (TF32)", "fp32": "FP32 (no TF32)"}.get(case.dtype, case.dtype.upper())
    sums = param(case, "accumulate")
    return f"{name}, FP32 sums" if case.id.endswith("/fp32-sums") else f"{name}, fast sums" if sums == "fast" else name


def _sizes(case: CaseResult) -> tuple[str, str, str]:
    return param(case, "m"), param(case, "n"), param(case, "k")


def _is_square(case: CaseResult) -> bool:
    return case.family == "gemm" and len(set(_sizes(case))) == 1


def _matrix(case: CaseResult, figure: Figure) -> str:
    m, n, k = _sizes(case)
    return f"{m} x {n}" if m == n == k else f"{m} x {n} x {k}"


def _convolution(case: CaseResult, figure: Figure) -> str:
    size = f"{param(case, 'height')}x{param(case, 'width')}"
    layout = f"{case.dtype.upper()} {param(case, 'layout').upper()}"
    if case.family == "depthwise":
        return f"B={param(case, 'batch')}, C={param(case, 'channels_in')}, {size}, {layout}"
    channels = f"{param(case, 'channels_in')}→{param(case, 'channels_out')}"
    return f"B={param(case, 'batch')}, {channels}, {size}, k={param(case, 'kernel')}, {layout}"


def _attention(case: CaseResult, figure: Figure) -> str:
    sizes = ", ".join(
        f"{letter}={param(case, name)}"
        for letter, name in (("B", "batch"), ("H", "heads"), ("S", "seq"), ("D", "head_dim"))
    )
    mask, backend = param(case, "mask"), param(case, "backend")
    return f"{case.dtype.upper()} {sizes}{'' if mask == 'full' else f', {mask}'}, {backend}"


def _linear(case: CaseResult, figure: Figure) -> str:
    return f"{case.dtype.upper()} [{param(case, 'm')},{param(case, 'k')}]→[{param(case, 'm')},{param(case, 'n')}]"


def _operation(case: CaseResult, figure: Figure) -> str:
    name = {"layernorm": "LayerNorm", "softmax": "Softmax"}.get(case.family, case.family)
    return f"{name} {case.dtype.upper()}"


def _shape(case: CaseResult, figure: Figure) -> str:
    return f"[{param(case, 'shape').replace('x', ', ')}]"


def _stream(case: CaseResult, figure: Figure) -> str:
    return f"{param(case, 'operation').capitalize()} {_mib(case, 'array_bytes')} {case.dtype.upper()}"


def _direction(case: CaseResult, figure: Figure) -> str:
    words = {"h2d": "host → GPU", "d2h": "GPU → host"}
    given = param(case, "direction")
    if given in words:
        return f"{words[given]} ({param(case, 'host_memory')})"
    arrow = "↔" if given.startswith("both") else "→"
    return f"GPU{param(case, 'source')} {arrow} GPU{param(case, 'target')} ({param(case, 'link')})"


def _transfer_size(case: CaseResult, figure: Figure) -> str:
    return _mib(case, "size_bytes")


def _collective_size(case: CaseResult, figure: Figure) -> str:
    return case.id.rpartition("/")[2]


def _algorithm_bandwidth(case: CaseResult, figure: Figure) -> str:
    """algbw of nccl-tests: the size over the time."""
    size = whole(param(case, "size_bytes"))
    return DASH if size is None else scaled_text(size / figure.time_s.median / 1e9)


def _bus_bandwidth(case: CaseResult, figure: Figure) -> str:
    return DASH if figure.rate.gbps is None else scaled_text(figure.rate.gbps)


def _mib(case: CaseResult, name: str) -> str:
    """'512 MiB'; what is no number of bytes is shown as it is."""
    size = whole(param(case, name))
    return param(case, name) if size is None else f"{size // MIB} MiB"


def _named(name: str) -> Cell:
    return lambda case, figure: param(case, name)


def _decoder(case: CaseResult, figure: Figure) -> str:
    return f"{param(case, 'stage')}, {param(case, 'layers')} layers, d={param(case, 'width')}, {case.dtype.upper()}"


def _is(*families: str) -> Callable[[CaseResult], bool]:
    return lambda case: case.family in families


_MEDIAN: tuple[str, Cell] = ("Median", median)
_TFLOPS: tuple[str, Cell] = ("TFLOPS", tflops)
_PRECISION: tuple[str, Cell] = ("Precision", precision)
_RUN: tuple[str, Cell] = ("Run", _named("run"))

SECTIONS: tuple[Section, ...] = (
    Section(
        "GEMM Performance (FP16)",
        lambda case: _is_square(case) and case.dtype == "fp16",
        (("Matrix Size", _matrix), _MEDIAN, _TFLOPS),
    ),
    Section(
        "Precision Comparison",
        lambda case: _is_square(case) and (case.dtype != "fp16" or param(case, "m") == "8192"),
        (("Matrix Size", _matrix), _PRECISION, _MEDIAN, _TFLOPS),
        versus="fp32",
    ),
    Section(
        "GEMM, other shapes",
        lambda case: case.family == "gemm" and not _is_square(case),
        (("Matrix Size", _matrix), _PRECISION, _MEDIAN, _TFLOPS),
    ),
    Section(
        "Batched GEMM", _is("bmm"), (("Batch", _named("batch")), ("Matrix Size", _matrix), _PRECISION, _MEDIAN, _TFLOPS)
    ),
    Section("Conv2D (cuDNN)", _is("conv2d"), (("Configuration", _convolution), _MEDIAN)),
    Section("Depthwise Conv2D", _is("depthwise"), (("Configuration", _convolution), _MEDIAN)),
    Section("Scaled Dot-Product Attention (SDPA)", _is("sdpa"), (("Configuration", _attention), _MEDIAN, _TFLOPS)),
    Section("Linear Layers", _is("linear"), (("Configuration", _linear), _MEDIAN)),
    Section(
        "LayerNorm & Softmax",
        _is("layernorm", "softmax"),
        (("Operation", _operation), ("Configuration", _shape), _MEDIAN),
    ),
    Section(
        "ResNet-50 Inference",
        _is("resnet50"),
        (_PRECISION, ("Batch", _named("batch")), _MEDIAN, ("Throughput", throughput), _RUN),
    ),
    Section(
        "Transformer Encoder",
        _is("encoder"),
        (
            _PRECISION,
            ("Batch", _named("batch")),
            ("Seq Len", _named("seq")),
            _MEDIAN,
            ("Throughput", throughput),
            ("Layers", _named("layers")),
            ("d", _named("width")),
            ("ff", _named("ff")),
            _RUN,
        ),
    ),
    Section(
        "Decoder",
        _is("decoder"),
        (
            ("Configuration", _decoder),
            ("Batch", _named("batch")),
            ("Seq Len", _named("seq")),
            _MEDIAN,
            ("Throughput", throughput),
            _RUN,
        ),
    ),
    Section("Memory Bandwidth", _is("bandwidth"), (("Operation", _stream), _MEDIAN, ("Bandwidth", bandwidth))),
    Section(
        "Transfers",
        _is("transfer"),
        (("Direction", _direction), ("Size", _transfer_size), _MEDIAN, ("Bandwidth", bandwidth)),
    ),
    Section(
        "Collectives",
        _is("collective"),
        (
            ("Operation", _named("operation")),
            ("Ranks", _named("ranks")),
            ("Pair", _named("pair")),
            ("Size", _collective_size),
            _MEDIAN,
            ("algbw", _algorithm_bandwidth),
            ("busbw", _bus_bandwidth),
            ("Link", _named("link")),
        ),
    ),
)


def sections_of(cases: Sequence[CaseResult]) -> Iterator[tuple[Section, list[CaseResult]]]:
    """Each table with its cases; a family that no table knows gets one of its own."""
    taken: set[str] = set()
    for section in SECTIONS:
        inside = [case for case in cases if section.takes(case)]
        taken.update(case.id for case in inside)
        if inside:
            yield section, inside
    for family in dict.fromkeys(case.family for case in cases if case.id not in taken):
        inside = [case for case in cases if case.family == family]
        columns: tuple[tuple[str, Cell], ...] = (("Case", lambda case, figure: case.id), _MEDIAN)
        yield Section(family, _is(family), columns), inside
