"""What `firstlight explain` says of the first ten CUDA threads that a look-up gave for each of fifteen projects.

The queries and the threads were written down before the rows (results/explain/queries.json). A thread without an error
line in what could be read of it has nothing to explain; each that is not answered is named with why.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from firstlight.diagnosis.explain import explain_text

FOLDER = Path(__file__).parents[1] / "results" / "explain"
SETS = ("open.json", "held-out.json", "second.json")


def threads() -> dict[str, list[str]]:
    """Project -> its threads, as the look-ups gave them: {'vllm-project/vllm': ['vllm-project/vllm#27430', ...]}."""
    found: dict[str, dict[str, None]] = {}
    for query in json.loads((FOLDER / "queries.json").read_text()):
        found.setdefault(query["project"].partition(" ")[0], {}).update(dict.fromkeys(query["threads"]))
    return {project: list(each) for project, each in found.items()}


def table() -> str:
    """How many threads of each project are answered, then why the others are not."""
    texts = _texts()
    head = "| Project | Threads | Answered | Only 'the cause stands above' | No error text to read | Not answered |\n"
    rows, others = [head + "|---|---|---|---|---|---|\n"], []
    for project, names in threads().items():
        kinds = {name: _kind(texts[name]) for name in names}
        counts = [sum(kind == each for kind in kinds.values()) for each in ("answered", "above", "nothing", "silent")]
        rows.append(f"| {project} | {len(names)} | {' | '.join(map(str, counts))} |\n")
        others += [_why(name, texts[name], kind) for name, kind in kinds.items() if kind != "answered"]
    return "".join(rows) + "\n| Thread | What stands in the way |\n|---|---|\n" + "".join(others)


def _texts() -> dict[str, dict[str, Any]]:
    found = {}
    for name in SETS:
        for text in json.loads((FOLDER / name).read_text()):
            owner, repository, _, number = text["link"].removeprefix("https://github.com/").split("/")[:4]
            found[f"{owner}/{repository}#{number}"] = text
    return found


def _kind(text: dict[str, Any]) -> str:
    if not text["explainable"]:
        return "nothing"
    said = explain_text(text["text"]).explanations
    if not said:
        return "silent"
    return "above" if all(each.signature.wraps for each in said) else "answered"


def _why(name: str, text: dict[str, Any], kind: str) -> str:
    words = {"nothing": "", "above": "The line with the cause is not in the text: ", "silent": "No row: "}[kind]
    why = textwrap.shorten(words + text["cause"], 150, placeholder=" ...").replace("|", "\\|").replace("<", "&lt;")
    return f"| [{name}]({text['link']}) | {why} |\n"
