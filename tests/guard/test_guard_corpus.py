"""The corpus: every forbidden action is denied and every allowed one goes through, in each tool's own form."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from firstlight.guard.corpus import Action, Section, lay_out, load_corpus
from firstlight.guard.hooks import TOOLS, asked_in, decide_call, read_call
from firstlight.guard.judge import decide_edit, decide_shell
from firstlight.guard.place import Place
from firstlight.guard.policy import read_policy
from tests.guard.projects import ENV

SECTIONS = load_corpus()
NAMED = (
    "sh -c", "env", "sudo", "nice", "timeout", "xargs", "find -exec", "$( )", "pipe into a shell", "heredoc",
    "variables", "python -m pip", "uv pip", "pip3", "conda mamba pixi", "apt-get dnf", "requirements", "make",
    "package.json",
    "eval", "base64", "downloaded script", "python -c", "public reports",
)  # fmt: skip


def _wrong(section: Section, folder: Path, tool: str) -> list[str]:
    lay_out(section, str(folder))
    policy = read_policy(str(folder / "firstlight.toml"))
    place = Place(str(folder), str(folder), ENV, section.container)

    def allowed(action: Action) -> bool:
        if tool:
            call = read_call(tool, asked_in(tool, action.kind, action.text, str(folder)))
            return decide_call(call.action, policy, place).allowed
        decide = decide_edit if action.kind == "edit" else decide_shell
        return decide(action.text, policy, place).allowed

    return [
        f"{action.expect}: {action.text!r}"
        for action in section.actions
        if allowed(action) != (action.expect == "allow")
    ]


@pytest.mark.parametrize("tool", ["", *TOOLS])
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_nothing_forbidden_goes_through_and_nothing_allowed_is_stopped(
    section: Section, tool: str, tmp_path: Path
) -> None:
    assert _wrong(section, tmp_path / "a folder with spaces", tool) == []


def test_the_corpus_is_as_large_as_it_says() -> None:
    actions = [action for section in SECTIONS for action in section.actions]
    counts = Counter(action.expect for action in actions)
    assert len(actions) >= 250
    assert counts["deny"] >= len(actions) / 2
    forbidden = Counter(action.way for action in actions if action.expect == "deny")
    assert {way: forbidden[way] for way in NAMED if forbidden[way] < 10} == {}
    assert len({(section.name, action.text) for section in SECTIONS for action in section.actions}) == len(actions)
