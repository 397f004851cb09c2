"""The bytes that Python packs are the structs that the kernels read."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from firstlight.kernels.sm90 import arguments
from firstlight.kernels.sm90.arguments import (
    AttentionFields,
    GradientFields,
    GradientOnceFields,
    GradientRowsFields,
    ListsFields,
    MaskListsFields,
    MultiplyFields,
    PitchFields,
    SampleFields,
    TurnFields,
)
from firstlight.kernels.sm90.compile import Variant, compile_variant
from firstlight.kernels.sm90.failures import KernelBuildFailed
from tests.kernels.sm90.cases import needs_nvcc
from tests.kernels.sm90.structs import SOURCES, fields_of, struct_text

STRUCTS = [
    ("multiply", "MultiplyArgs", 4, 704), ("sample", "SampleArgs", 2, 384), ("turn", "TurnArgs", 0, 32),
    ("pitch", "PitchArgs", 0, 32), ("lists", "ListsArgs", 0, 208), ("mask_lists", "MaskListsArgs", 0, 80),
    ("attention", "AttentionArgs", 4, 640),
    ("gradient", "GradientArgs", 6, 896), ("gradient_once", "GradientOnceArgs", 4, 768),
    ("gradient_rows", "GradientRowsArgs", 0, 128),
]  # fmt: skip
KINDS: dict[str, Any] = {
    "multiply": MultiplyFields, "sample": SampleFields, "turn": TurnFields, "pitch": PitchFields,
    "lists": ListsFields, "mask_lists": MaskListsFields, "attention": AttentionFields,
    "gradient": GradientFields, "gradient_once": GradientOnceFields, "gradient_rows": GradientRowsFields,
}  # fmt: skip
FLOATS = ("alpha", "beta", "scale", "scale_log2")


def packed(source: str) -> tuple[bytes, dict[str, float]]:
    """Arguments whose fields are all different, as bytes and by name."""
    kind = KINDS[source]
    given = kind(*(float(k + 1) if name in FLOATS else k + 1 for k, name in enumerate(kind._fields)))
    if source in ("multiply", "attention", "gradient_once"):
        maps = tuple(bytes([200 + k]) * 128 for k in range(4))
        write: Any = getattr(arguments, f"{source}_bytes")
        return write((maps[0], maps[1], maps[2], maps[3]), given), given._asdict()
    if source == "gradient":
        six = tuple(bytes([200 + k]) * 128 for k in range(6))
        return arguments.gradient_bytes((six[0], six[1], six[2], six[3], six[4], six[5]), given), given._asdict()
    if source == "gradient_rows":
        return arguments.gradient_rows_bytes(given), given._asdict()
    if source == "sample":
        return arguments.sample_bytes((b"\xc8" * 128, b"\xc9" * 128), given), given._asdict()
    if source == "lists":
        return arguments.lists_bytes(given), given._asdict()
    if source == "mask_lists":
        return arguments.mask_lists_bytes(given), given._asdict()
    named = given._asdict()
    named["from"] = named.pop("source")
    return (arguments.turn_bytes if source == "turn" else arguments.pitch_bytes)(given), named


@pytest.mark.parametrize(("source", "name", "maps", "size"), STRUCTS)
def test_every_field_lies_where_the_source_declares_it(source: str, name: str, maps: int, size: int) -> None:
    written, given = packed(source)
    declared = fields_of(source, name)
    assert len(written) == size
    assert {field for field, told in declared.items() if told.kind != "m"} == set(given)
    for number, told in enumerate(list(declared.values())[:maps]):
        assert written[told.offset : told.offset + 128] == bytes([200 + number]) * 128
    for told in list(declared.values())[maps:]:
        assert struct.unpack_from(f"<{told.kind}", written, told.offset)[0] == given[told.name], told


@needs_nvcc  # NVRTC has no offsetof
def test_the_compiler_lays_the_structs_out_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FIRSTLIGHT_JIT", "nvcc")
    shutil.copy(SOURCES / "ptx.cuh", tmp_path)
    lines = ['#include "ptx.cuh"']
    for source, name, _, size in STRUCTS:
        lines += [struct_text(source, name), f"static_assert(sizeof({name}) == {size});"]
        lines += [
            f"static_assert(__builtin_offsetof({name}, {told.name}) == {told.offset});"
            for told in fields_of(source, name).values()
        ]
    lines.append('extern "C" __global__ void nothing() {}\n')
    (tmp_path / "layout.cu").write_text("\n".join(lines))
    variant = Variant("layout", (("BF16", 0),))
    assert compile_variant(variant, folder=tmp_path).cubin
    (tmp_path / "layout.cu").write_text("\n".join([*lines[:-1], "static_assert(sizeof(TurnArgs) == 28);", lines[-1]]))
    with pytest.raises(KernelBuildFailed, match=r"static assertion|static_assert"):
        compile_variant(variant, folder=tmp_path)
