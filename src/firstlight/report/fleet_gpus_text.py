"""The GPUs of a run of `fleet bench` as text: the slow ones with their causes, the rest counted. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from firstlight.bench.slow_gpus import GpuClass, HeldAgainst, JudgedGpu, JudgedGpus, LowFigure, State
from firstlight.fleet.folding import folded
from firstlight.numerals import counted
from firstlight.report.layout import Painted, Part, Style, width, wrapped

_FAMILIES = 4  # that are named; the document has all of them
_STYLES = {State.SLOW: Style.BAD, State.NOT_JUDGED: Style.WARN, State.AS_IT_SHOULD: Style.GOOD}


def gpus_text(judged: JudgedGpus) -> Iterator[Part]:
    """One paragraph for each class of equal GPUs."""
    for each in judged.classes:
        yield "\n"
        yield Painted(class_line(each), Style.HEAD)
        yield "\n"
        if each.note:
            yield from _below(each.note, indent=2)
        for gpu in each.gpus:
            if gpu.state is State.SLOW:
                yield from _slow(gpu)
        yield from _rest(each)


def class_line(each: GpuClass) -> str:
    """E.g. "16 x NVIDIA H200, torch 2.11.0+cu130, quick: 1 slow, 15 as they should"."""
    counts = {state: sum(gpu.state is state for gpu in each.gpus) for state in State}
    said = ", ".join(f"{count} {_words(state, count)}" for state, count in counts.items() if count)
    return f"{len(each.gpus)} x {each.sort}: {said}"


def _words(state: State, count: int) -> str:
    return "as they should be" if state is State.AS_IT_SHOULD and count > 1 else state.value


def low_sentence(gpu: JudgedGpu) -> str:
    """E.g. "9.1 % below equal GPUs in 31 of 35 figures (gemm, sdpa), in every run"."""
    if not gpu.low:
        return gpu.reason
    beside = HeldAgainst.CLASS if HeldAgainst.CLASS in gpu.against else HeldAgainst.BASELINE
    more = f"; {gpu.reason}" if gpu.reason else ""
    families = list(dict.fromkeys(figure.family for figure in gpu.low))
    rest = f" and {len(families) - _FAMILIES} more" if len(families) > _FAMILIES else ""
    where = f"{len(gpu.low)} of {counted(gpu.figures, 'figure')} ({', '.join(families[:_FAMILIES])}{rest})"
    return f"{100 * gpu.by:.1f} % below {beside.value} in {where}, in every run{more}"


def lowest_sentence(figure: LowFigure) -> str:
    """E.g. "lowest: gemm/bf16/8192x8192x8192 [sustained], 9.8 % (35 MAD) below"."""
    mads = f" ({figure.mads:.0f} MAD)" if 0 < figure.mads < 1000 else " (over 1000 MAD)" if figure.mads else ""
    return f"lowest: {figure.name}, {100 * figure.by:.1f} %{mads} below"


def _slow(gpu: JudgedGpu) -> Iterator[Part]:
    yield f"  {gpu.host} {gpu.device}  "
    yield Painted(gpu.state.value, _STYLES[gpu.state])
    yield "\n"
    yield from _below(low_sentence(gpu), indent=6)
    for cause in gpu.causes:
        yield from _below(f"{cause.why.value}: {cause.saw}", indent=6)
    for figure in gpu.low[:1]:
        yield from _below(lowest_sentence(figure), indent=6)


def _rest(each: GpuClass) -> Iterator[Part]:
    """Those of which the same is to be said in one row."""
    for gpus in alike(each):
        first = gpus[0]
        yield f"  {counted(len(gpus), 'GPU')} of {folded(dict.fromkeys(gpu.host for gpu in gpus))}  "
        yield Painted(_words(first.state, len(gpus)), _STYLES[first.state])
        yield "\n"
        if first.reason:
            yield from _below(first.reason, indent=6)


def alike(each: GpuClass) -> Iterator[list[JudgedGpu]]:
    """The GPUs that are not slow, those of which the same is to be said together."""
    groups: dict[tuple[State, str], list[JudgedGpu]] = {}
    for gpu in each.gpus:
        if gpu.state is not State.SLOW:
            groups.setdefault((gpu.state, gpu.reason), []).append(gpu)
    yield from groups.values()


def _below(text: str, *, indent: int) -> Iterator[str]:
    for line in wrapped(text, width() - indent):
        yield f"{' ' * indent}{line}\n"
