"""Rows as a document: what is read, what is refused, whose file comes first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstlight.errors import BadInput
from firstlight.kernels.autotune import write_whole
from firstlight.kernels.choice import rows
from firstlight.kernels.choice.cases import AttentionCase, ProductCase
from firstlight.kernels.choice.models import Models, models_for
from firstlight.kernels.choice.rows import SHIPPED, Machine, Row, cache_file, document, own, parsed
from tests.kernels.choice.measured import H100, UNKNOWN

PRODUCT = ProductCase("multiply", "tokens", 64, "float16", 8192, 8192, 1638, 4096, "silu", 1)
PASS = AttentionCase("forward", "listed", 128, "bfloat16", 128, 2, 16, 4, 4096, 4096, 1, 102, 1)
MACHINE = Machine(
    UNKNOWN, "2.11.0", "3.6.0", "2026-11-16", "a test",
    (Row(PRODUCT, (("triton", 83.2), ("copy", 20.0))), Row(PASS, (("dense", 900.0),))),
)  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path))
    models_for.cache_clear()
    return cache_file(UNKNOWN.gpu)


def test_a_document_is_read_back_as_it_was_written() -> None:
    machines = (MACHINE, Machine(H100, "", "", "", "", ()))
    assert parsed(document(machines), "text") == machines
    json.loads(document(machines))


def test_the_shipped_rows_are_whole_and_name_every_backend() -> None:
    for machine in parsed(SHIPPED.read_text(encoding="utf-8"), str(SHIPPED)):
        assert machine.card.gpu
        assert machine.date
        assert len(machine.rows) > 1000
        names = {name for row in machine.rows for name, _ in row.us}
        assert {"sm90", "triton", "dense", "copy", "new sm90"} <= names
        assert all(us > 0 for row in machine.rows for name, us in row.us if not name.startswith("new "))
        assert {row.case.operation for row in machine.rows} == {"multiply", "turned", "sample", "forward", "backward"}


def test_the_users_rows_are_read_for_their_own_gpu_alone(cache: Path) -> None:
    assert own(UNKNOWN.gpu) is None
    write_whole(cache, document((MACHINE,)))
    assert own(UNKNOWN.gpu) == MACHINE
    assert own("NVIDIA Other") is None


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", '{"schema": "firstlight.choice/9"}', '{"schema": "firstlight.choice/1"}',
        document((MACHINE,)).replace('"sms": 108', '"sms": 0'), document((MACHINE,)).replace('"silu", 1, ', '"silu", '),
        document((MACHINE,)).replace('{"dense": 900.0}', "{}"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named(text: str) -> None:
    with pytest.raises(BadInput, match=r"^here.*autotune"):
        parsed(text, "here.json")


def test_a_broken_file_of_the_users_is_told_with_the_choice(cache: Path) -> None:
    write_whole(cache, '{"schema": "firstlight.choice/1", "machines": [{"gpu": "NVIDIA Test"}]}')
    said = models_for(UNKNOWN)
    assert isinstance(said, str)
    assert str(cache) in said
    write_whole(cache_file(H100.gpu), "{}")
    models_for.cache_clear()
    models = models_for(H100)
    assert isinstance(models, Models)
    assert str(cache_file(H100.gpu)) in models.trouble
    models_for.cache_clear()


def test_without_the_shipped_file_there_are_no_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rows, "SHIPPED", tmp_path / "none.json")
    assert rows.shipped() == ()
