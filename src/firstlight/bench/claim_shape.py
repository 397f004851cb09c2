"""The work of a claimed case, from what a user types: --case sdpa --shape B=16,H=96,S=4096,D=128,causal."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from firstlight.bench import attention_counts, model_counts, operator_counts
from firstlight.bench.limits import ALGORITHMIC
from firstlight.bench.operator_counts import IN_BYTES, OUT_BYTES, Work
from firstlight.errors import BadInput
from firstlight.frozen import dataclass

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
MOST = 10**12


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape as typed: sizes by name, plain dimensions in order, and words; '32x1024x1024' or 'B=32,M=1024'."""

    text: str
    named: tuple[tuple[str, int], ...] = ()
    plain: tuple[int, ...] = ()
    words: tuple[str, ...] = ()

    def get(self, name: str, default: int) -> int:
        """A size by name, or what it is when it is not said."""
        return dict(self.named).get(name, default)


@dataclass(frozen=True, slots=True)
class CaseKind:
    """A kind of case a claim can be about: what its shape says and how its work is counted."""

    name: str
    accepts: str  # printed in errors and in --help
    names: tuple[str, ...]  # the sizes that may be named
    needs: tuple[str, ...]  # those that must be
    plain: tuple[str, ...]  # what plain dimensions mean, in order
    work: Callable[[Shape, str], Work]
    held_against: str = ""  # '' is the dtype
    flags: tuple[str, ...] = ()
    words: str = ""  # a regular expression of the words it takes


def kind_named(name: str) -> CaseKind:
    """The kind of a case, e.g. 'sdpa'."""
    found = next((kind for kind in KINDS if kind.name == name.strip().lower()), None)
    if found is None:
        raise BadInput(f"--case {name!a}: accepted: {', '.join(kind.name for kind in KINDS)}")
    return found


def work_of(kind: CaseKind, shape: str, dtype: str) -> Work:
    """The work of one call, e.g. 6.5987e12 FLOP."""
    if dtype not in IN_BYTES:
        raise BadInput(f"--dtype {dtype!a}: accepted: {', '.join(IN_BYTES)}")
    return kind.work(_filled(kind, _parse(shape, kind)), dtype)


def parse_size(text: str) -> int:
    """Bytes from a size with its unit: 1000MiB is 1048576000, 1GB is 1000000000."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?i?B?)\s*", text, re.IGNORECASE)
    if match is None or match[2].lower() not in UNITS:
        raise BadInput(f"size {text!a}: accepted: a number and B, kB, MB, GB, KiB, MiB or GiB, e.g. 1000MiB")
    return math.floor(float(match[1]) * UNITS[match[2].lower()])


def _parse(text: str, kind: CaseKind) -> Shape:
    named: list[tuple[str, int]] = []
    plain: list[int] = []
    words: list[str] = []
    for part in (each.strip() for each in text.strip("[]() ").split(",")):
        if match := re.fullmatch(r"([A-Za-z]+)\s*=\s*(\w+(?:\.\d+)?\s*[A-Za-z]*)", part):
            name = match[1].lower()
            if name not in kind.names:
                raise BadInput(f"--shape: {kind.name} has no {match[1]}; accepted: {kind.accepts}")
            named.append((name, _number(match[2], kind)))
        elif re.fullmatch(r"\d+(\s*x\s*\d+)*", part, re.IGNORECASE):
            plain += [_number(each, kind) for each in re.split(r"\s*x\s*", part.lower())]
        elif re.fullmatch(r"\d+(\.\d+)?\s*[KMG]i?B", part, re.IGNORECASE):
            plain.append(parse_size(part))
        elif kind.words and re.fullmatch(kind.words, part.lower()):
            words.append(part.lower())
        else:
            raise BadInput(f"--shape: {part!a} is not understood; accepted for {kind.name}: {kind.accepts}")
    return Shape(text, tuple(named), tuple(plain), tuple(words))


def _number(text: str, kind: CaseKind) -> int:
    value = int(text) if re.fullmatch(r"[0-9]{1,13}", text.strip()) else parse_size(text)
    if not 0 <= value <= MOST:
        raise BadInput(f"--shape: {text!a} is not a size; accepted for {kind.name}: {kind.accepts}")
    return value


def _filled(kind: CaseKind, shape: Shape) -> Shape:
    """The shape with plain dimensions given their names, every needed size present and none of them 0."""
    plain = shape.plain
    if kind.name == "gemm" and len(plain) in (1, 4):  # 8192 is a cube; four dimensions begin with the batch
        plain = plain * 3 if len(plain) == 1 else (*plain[1:], plain[0])
    if plain and kind.plain == ("rows", "columns"):
        plain = (math.prod(plain[:-1]), plain[-1])
    if len(plain) > len(kind.plain):
        raise BadInput(f"--shape {shape.text!a}: {len(plain)} dimensions; accepted for {kind.name}: {kind.accepts}")
    named = (*zip(kind.plain, plain, strict=False), *shape.named)
    given = dict(named)
    missing = [name.upper() for name in kind.needs if name not in given]
    if missing:
        raise BadInput(f"--shape {shape.text!a}: {kind.name} also needs {', '.join(missing)}; accepted: {kind.accepts}")
    zero = [name.upper() for name, value in named if value == 0 and name != "p"]
    if zero:
        raise BadInput(f"--shape {shape.text!a}: {', '.join(zero)} is 0; a size is at least 1")
    return Shape(shape.text, tuple(given.items()), (), shape.words)


def _gemm(shape: Shape, dtype: str) -> Work:
    return operator_counts.gemm(
        shape.get("m", 0),
        shape.get("n", 0),
        shape.get("k", 0),
        in_bytes=IN_BYTES[dtype],
        out_bytes=OUT_BYTES[dtype],
        batch=shape.get("b", 1),
    )


def _linear(shape: Shape, dtype: str) -> Work:
    return operator_counts.linear(
        shape.get("m", 0), shape.get("k", 0), shape.get("n", 0), element_bytes=IN_BYTES[dtype]
    )


def _sdpa(shape: Shape, dtype: str) -> Work:
    seq, heads, size = shape.get("s", 0), shape.get("h", 0), shape.get("d", 0)
    sizes = attention_counts.AttentionShape(
        shape.get("b", 0), heads, shape.get("hkv", heads), seq, shape.get("skv", seq), size, shape.get("dv", size)
    )
    mask = shape.words[-1] if shape.words else "full"
    return attention_counts.attention(sizes, element_bytes=IN_BYTES[dtype], mask=mask)


def _conv2d(shape: Shape, dtype: str) -> Work:
    kernel = shape.get("k", 0)
    conv = operator_counts.ConvShape(
        shape.get("b", 0),
        shape.get("cin", 0),
        shape.get("cout", shape.get("cin", 0)),
        shape.get("hw", 0),
        shape.get("w", shape.get("hw", 0)),
        kernel=kernel,
        stride=shape.get("stride", 1),
        padding=shape.get("p", kernel // 2),
        groups=shape.get("groups", 1),
    )
    if conv.channels_in % conv.groups or conv.channels_out % conv.groups:
        raise BadInput(f"--shape {shape.text!a}: GROUPS must divide CIN and COUT")
    if min(conv.out_height, conv.out_width) < 1:
        raise BadInput(f"--shape {shape.text!a}: the kernel is larger than the padded image")
    return operator_counts.conv2d(conv, element_bytes=IN_BYTES[dtype])


def _rows(count: Callable[..., Work]) -> Callable[[Shape, str], Work]:
    return lambda shape, dtype: count(shape.get("rows", 1), shape.get("columns", 0), element_bytes=IN_BYTES[dtype])


def _stream(count: Callable[..., Work]) -> Callable[[Shape, str], Work]:
    def work(shape: Shape, dtype: str) -> Work:
        return count(int(shape.get("size", 0) / IN_BYTES[dtype]), element_bytes=IN_BYTES[dtype])

    return work


def _link(shape: Shape, _: str) -> Work:
    return operator_counts.transfer(shape.get("size", 0))


def _resnet50(shape: Shape, dtype: str) -> Work:
    return model_counts.resnet50(shape.get("b", 0), element_bytes=IN_BYTES[dtype])


def _encoder(shape: Shape, dtype: str) -> Work:
    sizes = model_counts.EncoderShape(
        shape.get("l", 6), shape.get("d", 1024), shape.get("ff", 2048), shape.get("b", 0), shape.get("s", 0)
    )
    return model_counts.encoder(sizes, element_bytes=IN_BYTES[dtype])


_MASKS = r"full|causal|causal-bottom-right|window-[1-9]\d{0,9}"
_ARRAY = "the size of one array, e.g. 512MiB"
_DIMS = "dimensions, the last one is normalised, e.g. 32x512x4096"
_CONV = "B= CIN= COUT= HW= K= [STRIDE=1] [P=K/2] [GROUPS=1], e.g. B=32,CIN=64,COUT=128,HW=112,K=3"

KINDS = (
    CaseKind("gemm", "MxNxK, one number for a cube, or B= M= N= K=, e.g. 8192x8192x8192", ("b", "m", "n", "k"),
             ("m", "n", "k"), ("m", "n", "k", "b"), _gemm),
    CaseKind("sdpa", "B= H= S= D= [SKV=] [HKV=] [DV=] and full, causal, causal-bottom-right or window-N",
             ("b", "h", "s", "d", "skv", "hkv", "dv"), ("b", "h", "s", "d"), ("b", "h", "s", "d"), _sdpa, words=_MASKS),
    CaseKind("linear", "M= (rows) K= (inputs) N= (outputs), e.g. M=4096,K=4096,N=11008", ("m", "k", "n"),
             ("m", "k", "n"), ("m", "k", "n"), _linear),
    CaseKind("conv2d", _CONV, ("b", "cin", "cout", "hw", "w", "k", "stride", "p", "groups"),
             ("b", "cin", "hw", "k"), (), _conv2d, flags=(ALGORITHMIC,)),
    CaseKind("layernorm", _DIMS, ("rows", "columns"), ("columns",), ("rows", "columns"),
             _rows(operator_counts.layernorm), "bandwidth"),
    CaseKind("softmax", _DIMS, ("rows", "columns"), ("columns",), ("rows", "columns"),
             _rows(operator_counts.softmax), "bandwidth"),
    CaseKind("add", _ARRAY, ("size",), ("size",), ("size",), _stream(operator_counts.add), "bandwidth"),
    CaseKind("copy", _ARRAY, ("size",), ("size",), ("size",), _stream(operator_counts.copy), "bandwidth"),
    CaseKind("triad", _ARRAY, ("size",), ("size",), ("size",), _stream(operator_counts.triad), "bandwidth"),
    CaseKind("fill", _ARRAY, ("size",), ("size",), ("size",), _stream(operator_counts.fill), "bandwidth"),
    CaseKind("link", "what one direction carries, e.g. 1000MiB", ("size",), ("size",), ("size",), _link, "link"),
    CaseKind("resnet50", "B= images of 224 x 224, e.g. B=64", ("b",), ("b",), ("b",), _resnet50,
             flags=(ALGORITHMIC,)),
    CaseKind("encoder", "B= S= [L=6] [D=1024] [FF=2048], e.g. B=8,S=512", ("b", "s", "l", "d", "ff"), ("b", "s"),
             ("b", "s"), _encoder),
)  # fmt: skip
