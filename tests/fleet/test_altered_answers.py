"""What a host says is data of others: altered content is judged or refused, and takes no other host with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.cli.main import run
from firstlight.diagnosis.finding import Goal, Seen
from firstlight.diagnosis.rules import RULES
from firstlight.errors import CouldNotLook
from firstlight.fleet.comparing import compared
from firstlight.fleet.judged import HostState, judged_or_why_not, state_of
from firstlight.fleet.look import AskedBy, Looked, NotLooked
from firstlight.fleet.reply import read_evidence
from firstlight.report.fleet_json import fleet_document, fleet_junit
from firstlight.report.fleet_text import fleet_text
from firstlight.report.host_names import pseudonyms_for
from firstlight.tables import load
from tests.fleet.altered import MACHINES, altered

TABLES = load()


def _state(text: str, name: str) -> HostState:
    return state_of(Looked(name, read_evidence(text.encode(), name), AskedBy.PYTHON), TABLES, RULES, goal=Goal.INFER)


@pytest.mark.parametrize("machine", ["h200", "rtx5090-source-build", "l40-seven-of-eight"])
def test_altered_answers_are_judged_or_refused(machine: str) -> None:
    usual = _state((MACHINES / machine / "machine.json").read_text(), "usual")
    for seed in range(50):
        try:
            fleet = compared([usual, _state(altered(machine, seed), f"seed-{seed}")], [])
        except CouldNotLook:
            continue
        names = pseudonyms_for(host for row in fleet.rows for host in row.hosts)
        json.dumps(fleet_document(fleet, names))
        fleet_junit(fleet, names).encode("utf-8")
        list(fleet_text(fleet))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/opt/torch/.venv/lib/python3.12/site-packages/nvidia/cudnn/include/cudnn_version.h", "9"),
        ("/opt/torch/.venv/lib/python3.12/site-packages/nvidia/cu13/include/cuda_runtime_api.h", "#define X 1300\x00"),
        ("/usr/local/cuda-13.0/include/crt/host_config.h", "__GNUC__ > 2\x00"),
        ("/etc/group", "video:x:4:4"),
        ("/opt/torch/.venv/lib/python3.12/site-packages/torch/lib/libtorch_python.so", "sm_\xff"),
    ],
)
def test_what_is_recorded_of_a_search_need_not_be_what_was_searched_for(path: str, said: str) -> None:
    document = json.loads((MACHINES / "h200/machine.json").read_text())
    matches = document["paths"][path]["matches"]
    document["paths"][path]["matches"] = {pattern: [said] for pattern in matches}
    assert _state(json.dumps(document), "h").facts.gpus.devices


def test_a_host_that_cannot_be_judged_is_a_row_that_says_so() -> None:
    def fails(_: object) -> Iterator[Seen]:
        raise ValueError("of a rule")

    broken = (replace(RULES[0], check=fails),)
    looked = Looked("h", read_evidence((MACHINES / "h200/machine.json").read_bytes(), "h"), AskedBy.PYTHON)
    said = judged_or_why_not(looked, TABLES, broken, goal=Goal.INFER)
    assert isinstance(said, NotLooked)
    assert said.name == "h"
    assert said.reason.startswith("its answer could not be judged: it holds what firstlight cannot read (")


def test_half_a_letter_in_a_name_is_spelled_out_on_a_page(tmp_path: Path) -> None:
    text = (MACHINES / "h200/machine.json").read_text()
    for name, said in (("a", text), ("b", text), ("c", text.replace("triton-", "triton-\\ud8009"))):
        (tmp_path / f"{name}.json").write_text(said)
    page = tmp_path / "fleet.html"
    assert run(["fleet", "doctor", "--facts", str(tmp_path), "--html", str(page)]) == 3
    assert "\\ud8009" in page.read_text()
