"""The corpus: actions and what the guard has to say to each, with the small projects that they happen in."""

from __future__ import annotations

import json
import os
from importlib import resources

from firstlight.frozen import dataclass
from firstlight.guard.policy import NAME


@dataclass(frozen=True, slots=True)
class Action:
    """One action: kind 'shell' or 'edit', its text, 'allow' or 'deny', and the way around that it stands for."""

    expect: str
    way: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """Actions that happen in one project: its policy, its files, its links."""

    name: str
    container: bool
    policy: str
    files: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    actions: tuple[Action, ...]


def load_corpus(text: str = "") -> tuple[Section, ...]:
    """The sections of the corpus that comes with firstlight, or of a text in its form."""
    found = json.loads(text or (resources.files("firstlight.guard") / "data" / "corpus.json").read_text("utf-8"))
    return tuple(
        Section(
            each["name"],
            each["container"],
            each["policy"],
            tuple(each["files"].items()),
            tuple(each["links"].items()),
            tuple(Action(*row) for row in each["actions"]),
        )
        for each in found["sections"]
    )


def lay_out(section: Section, folder: str) -> None:
    """Write the project of a section into a folder."""
    for name, text in (*section.files, (NAME, section.policy)):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    for name, target in section.links:
        if not os.path.lexists(os.path.join(folder, name)):
            os.symlink(target, os.path.join(folder, name))
