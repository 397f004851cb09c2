"""Which rows know a line of a log: the patterns that its anchors lead to, tried on it and over the ends of lines."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from firstlight.diagnosis.explain_lookup import known_error, messages_of
from firstlight.diagnosis.explain_scan import Spot, Stretch, without_prefix
from firstlight.diagnosis.signatures import Signature, decoded, rows, signature_at
from firstlight.frozen import dataclass
from firstlight.secrets import masked, without_credentials

A_CAUSE = 3  # what _worth says of one; a fallback is worth 2, a wrapper 1
RARE_CHARACTERS = 16  # an anchor of this length is met in few lines that are not its row's
CODE_LOOKUP = "cuda-error"  # the row of all codes: what it finds is given to the code's own row where there is one

# In a traceback and under a compiler's message the source line is printed as well: the message itself is what counts.
_SOURCE_LINE = re.compile(r"\s*(?:\d+ \| |>?\s*(?:raise|assert|return|throw) |(?:warnings\.|logger\.|logging\.)\w+\()")
# What shows that a text is of a program that uses a GPU: a path, module or class of one. Words that any program prints
# are its errors only there; that a text speaks of CUDA is not enough.
_GPU_PACKAGE = (
    r"(?:torch(?:vision|audio|tune)?|transformers?|transformer_engine|accelerate|peft|trl|diffusers|vllm|sglang|sgl_kernel"
    r"|flashinfer|flash_attn|xformers|bitsandbytes|deepspeed|triton|jax(?:lib)?|tensorflow|keras|unsloth\w*|axolotl|llama_cpp"
    r"|llamafactory|mm(?:cv|det|det3d|engine|seg|pose)|detectron2|ultralytics|onnxruntime|tensorrt\w*|tvm|megatron\w*|nemo"
    r"|apex|cupy\w*|numba|cudf|cuml|(?:pytorch_)?lightning|comfy\w*|custom_nodes|faster_whisper|ctranslate2|gptqmodel"
    r"|auto_gptq|timm|open_clip|huggingface_hub|safetensors|nvidia)"
)
_GPU_PROGRAM = (
    rf"[\\/]{_GPU_PACKAGE}[\\/]|\b{_GPU_PACKAGE}\.[a-z]\w|\b(?:EngineCore|VllmWorker|ProcessGroupNCCL|ComfyUI|DeepSpeed)"
    r"|\w+For(?:CausalLM|ConditionalGeneration|\w*Classification)\b|BitsAndBytes|Capture cuda graph"
)
_GPU_PROGRAM_BYTES = 2000  # before and behind the line: a traceback's frames
_ENDED = re.compile(r"\A(\S*\w)\.+\Z")  # a number or a path at the end of a sentence, with the full stop
_NOTHING = re.compile("")  # where the secret was part of what matched


@dataclass(frozen=True, slots=True)
class _Form:
    """One pattern of one row, found by its anchor; `order` is its place among the row's patterns."""

    row: dict[str, Any]
    anchor: str
    regex: str
    order: int

    @property
    def code(self) -> str:
        return str(self.row["code"])

    @property
    def fallback(self) -> bool:
        """Whether it is tried only where no other knows the line."""
        return bool(self.row["fallback"])

    @property
    def gpu_only(self) -> bool:
        """Whether it is heard only in a text that shows a program which uses a GPU."""
        return bool(self.row.get("gpu_only"))

    @property
    def wraps(self) -> bool:
        """Whether it says only that something failed above."""
        return bool(self.row.get("wraps"))

    @property
    def signature(self) -> Signature:
        """The row itself, made at first need."""
        return signature_at(self.code)


@dataclass(frozen=True, slots=True)
class Hit:
    """A row that knows a line, by which pattern and with which values; `quoted`: in a line of source."""

    signature: Signature
    regex: str
    line: int
    quoted: bool
    values: tuple[tuple[str, str], ...]
    match: re.Match[str]


def hits(spot: Spot) -> Iterator[Hit]:
    """The signatures on one line; what none knows as it is written is tried without regard to capital letters."""
    if spot.in_diff():
        return
    wanted = _heard(_wanted(spot.anchors), spot)
    text = spot.text()
    quoted = _SOURCE_LINE.match(text) is not None
    for known, regex, raw in _known_at(spot, wanted, text) or _known_at(spot, _in_any_case(wanted, text), text):
        values, match = _without_secrets(known, regex, raw)
        yield Hit(known.signature, regex, spot.line, quoted, values, match)


def _heard(forms: tuple[_Form, ...], spot: Spot) -> tuple[_Form, ...]:
    """The forms without those of words that any program prints, where the text shows none that uses a GPU."""
    if not any(form.gpu_only for form in forms):
        return forms
    if _compiled(_GPU_PROGRAM).search(spot.near(_GPU_PROGRAM_BYTES)):
        return forms
    return tuple(form for form in forms if not form.gpu_only)


def is_wrapper(text: str) -> bool:
    """Whether a line is one that says only that something failed: 'Engine core initialization failed'."""
    data = text.encode().lower()
    forms = (form for anchor, forms in _forms().items() if anchor in data for form in forms if form.wraps)
    return any(_compiled(form.regex).search(text) for form in forms)


def _known_at(spot: Spot, wanted: tuple[_Form, ...], text: str) -> list[_Match]:
    """What is known of one line; where that is nothing, or only a fallback, it is tried with its neighbours."""
    if not wanted:
        return []
    found = list(_known_in(wanted, text, begin=0, end=len(text)))
    if _worth(found) < A_CAUSE:
        joined = _across_lines(spot, wanted, text)
        found = joined if _worth(joined) > _worth(found) else found
    return _across_cuts(spot, wanted, found)


def _without_secrets(known: KnownError, regex: str, raw: re.Match[str]) -> tuple[_Values, re.Match[str]]:
    """The same match in the text without secrets: masked whole, as a part of a token has no sign of its own."""
    text = without_credentials(raw.string)
    match = raw
    if text != raw.string:
        match = _compiled(regex).search(text) or _NOTHING.search(text) or raw
    values = known.values
    if match is not raw and values == _values(known.signature, raw):
        values = _values(known.signature, match) if match.re is not _NOTHING else ()
    return tuple((name, masked(value)) for name, value in values), match


def _across_lines(spot: Spot, wanted: Iterable[_Form], text: str) -> list[_Match]:
    """What is known of a message that is wrapped over this line and its neighbours."""
    before, after = spot.neighbours()
    line = without_prefix(text)
    found: list[_Match] = []
    for glue in (" ", ""):  # wrapped at a space by the program, or anywhere by a terminal
        found = _known_across(wanted, Stretch(before, line, after, glue)) or found
        if _worth(found) == A_CAUSE:
            break
    return found


def _known_across(wanted: Iterable[_Form], stretch: Stretch) -> list[_Match]:
    head, whole = stretch.parts()
    found = list(_known_in(wanted, whole, begin=len(head), end=len(head) + len(stretch.line)))
    if not found or (safe := stretch.without_secrets()) == stretch:
        return found
    head, whole = safe.parts()
    return list(_known_in(wanted, whole, begin=len(head), end=len(head) + len(safe.line)))


def _across_cuts(spot: Spot, wanted: Iterable[_Form], found: list[_Match]) -> list[_Match]:
    """What is known of a line that a terminal cut at its width, wherever that is in its words."""
    before, after = spot.uncut()
    if not before and not after:
        return found
    stretch = Stretch(before, spot.text(), after, "")
    uncut = _known_across(wanted, stretch)
    told = {each[0].signature.code for each in found if not _touches_a_cut(each[2], cut_before=bool(before))}
    uncut = [each for each in uncut if each[0].signature.code not in told]
    said = {known.signature.code for known, _, _ in uncut}
    both = [*(each for each in found if each[0].signature.code not in said), *uncut]
    if not any(known.signature.fallback for known, _, _ in both):
        return both
    _, whole = stretch.parts()
    data = whole.encode().lower()
    forms = _wanted(frozenset(anchor for anchor in _forms() if anchor in data))
    if _worth(list(_known_in(forms, whole, begin=0, end=len(whole)))) < A_CAUSE:
        return both
    return [each for each in both if not each[0].signature.fallback]


def _touches_a_cut(match: re.Match[str], *, cut_before: bool) -> bool:
    """Whether a match begins or ends where its line may have been cut; one that does not has nothing to gain."""
    return (cut_before and match.start() == 0) or match.end() >= len(match.string.rstrip())


def _worth(found: list[_Match]) -> int:
    """How much is known: nothing, that something failed, what kind of failure it was, or its cause."""
    told = [1 if known.signature.wraps else 2 if known.signature.fallback else A_CAUSE for known, _, _ in found]
    return max(told, default=0)


def _known_in(forms: Iterable[_Form], text: str, *, begin: int, end: int) -> Iterator[_Match]:
    """What matches, an error code replaced by the signature it leads to; a code that no table knows is dropped."""
    for form, match in _matches(forms, text, begin=begin, end=end):
        values = _values(form.signature, match)
        if form.signature.lookup != CODE_LOOKUP or not values:
            yield KnownError(form.signature, values), form.regex, match
        elif (error := known_error(dict(values))) is not None:
            for known in signatures_of(messages_of(error)) or (KnownError(form.signature, values),):
                yield known, form.regex, match


@dataclass(frozen=True, slots=True)
class KnownError:
    """The signature an error code leads to, with the values of its printed form."""

    signature: Signature
    values: tuple[tuple[str, str], ...]


_Values: TypeAlias = tuple[tuple[str, str], ...]
_Match: TypeAlias = tuple[KnownError, str, re.Match[str]]  # what, by which pattern, where


@functools.lru_cache(maxsize=64)
def signatures_of(messages: tuple[str, ...]) -> tuple[KnownError, ...]:
    """The one signature that knows an error by the forms CUDA prints; the row of error codes where no other does."""
    forms = _wanted(frozenset(_forms()))
    generic: tuple[KnownError, ...] = ()
    for message in messages:
        for form, match in _matches(forms, message, begin=0, end=len(message)):
            known = (KnownError(form.signature, _values(form.signature, match)),)
            if form.signature.lookup != CODE_LOOKUP:
                return known
            generic = generic or known
    return generic


@functools.lru_cache(maxsize=512)
def _wanted(anchors: frozenset[bytes]) -> tuple[_Form, ...]:
    """The forms to try on a line with these anchors: fallbacks last, each signature's forms in the order of its row."""
    forms = _forms()
    return tuple(
        sorted(
            (form for anchor in anchors for form in forms[anchor]),
            key=lambda form: (
                form.fallback,
                form.gpu_only,
                form.row["depth"],
                form.code,
                form.order,
            ),
        )
    )


def _in_any_case(forms: Iterable[_Form], text: str) -> tuple[_Form, ...]:
    """The forms to try in other letters: 'failed to initialize nvml'. A short anchor as it is written is too common."""
    others = (form for form in forms if len(form.anchor) >= RARE_CHARACTERS or form.anchor not in text)
    return tuple(replace(form, regex="(?i)" + form.regex.removeprefix("(?i)")) for form in others)


def _matches(forms: Iterable[_Form], text: str, *, begin: int, end: int) -> Iterator[tuple[_Form, re.Match[str]]]:
    """The first form of each signature that matches across text[begin:end]; fallbacks only where all others fail.

    A wrapper does not silence a fallback: 'runner terminated: CUDA error: out of memory' names its cause.
    """
    done: set[str] = set()
    caused = False
    for form in forms:
        if form.code in done or (form.fallback and caused):
            continue
        for match in _compiled(form.regex).finditer(text):
            if match.start() < end and match.end() > begin:
                done.add(form.code)
                caused = caused or not form.wraps
                yield form, match
                break


@functools.cache
def _forms() -> dict[bytes, tuple[_Form, ...]]:
    """Anchor -> the forms it may belong to, in the order of the rows."""
    forms: dict[bytes, tuple[_Form, ...]] = {}
    for row in rows():
        for order, pattern in enumerate(row["patterns"]):
            anchor = pattern["anchor"].encode().lower()
            forms[anchor] = (*forms.get(anchor, ()), _Form(row, pattern["anchor"], pattern["regex"], order))
    return forms


def anchors() -> tuple[bytes, ...]:
    """The fixed strings of all rows in small letters, one of which a line must hold before a pattern is tried on it."""
    return tuple(_forms())


@functools.cache
def _compiled(regex: str) -> re.Pattern[str]:
    """Compiled on first need: a log touches few of them, and compiling all takes longer than reading a short one."""
    return re.compile(regex)


def _values(signature: Signature, match: re.Match[str]) -> tuple[tuple[str, str], ...]:
    groups = match.groupdict()
    return tuple(
        (captured.name, decoded(captured.decode, _ENDED.sub(r"\1", value)))
        for captured in signature.captures
        if (value := groups.get(captured.name)) is not None
    )
