"""Steps as a journal holds them, and back."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

from firstlight.errors import BadInput
from firstlight.records import decode, encode
from firstlight.ways.back import BackKind
from firstlight.ways.step import Step

TEXT_COMMANDS = 1  # the format of a journal that holds what takes a step back as command lines


def steps_to_json(steps: tuple[Step, ...]) -> list[Any]:
    """Steps for the journal; texts of files travel as base64, so that any byte and any length comes back as it was."""
    documents = []
    for step in steps:
        document = encode(step)
        del document["awaited"], document["lines"]  # of a person's step, and no person's step is ever written down
        for change in document["files"]:
            del change["unread"]  # of a saved machine, and nothing is ever done to one
        for owner, name in _texts(document):
            owner[name] = base64.b64encode(owner[name].encode("utf-8", "surrogateescape")).decode()
        documents.append(document)
    return documents


def steps_from_json(documents: list[Any], *, written_in: int = TEXT_COMMANDS + 1) -> tuple[Step, ...]:
    """The steps back from a journal of that format; BadInput where they are none."""
    try:
        return tuple(_step(document, written_in) for document in documents)
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # not even the shape that is read below
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"steps that cannot be read ({type(error).__name__}: {error})") from None


def _step(document: Any, written_in: int) -> Step:
    empty = {**deepcopy(document), "awaited": False, "lines": []}
    if written_in == TEXT_COMMANDS:
        stored = empty.pop("undo")
        empty["back"] = [{"kind": BackKind.STORED.value, "words": argv, "sudo": False} for argv in stored]
    for owner, name in _texts(empty):
        owner[name] = ""  # read below: the reader of facts takes neither control characters nor long texts
    for change in empty["files"]:
        change.setdefault("links_to", "")  # a journal of before there were links
        change.setdefault("takes_out", [])  # and of before edits were tried
        change["unread"] = False
        change.setdefault("variables", [])  # and of before variables were set in shells
    for condition in empty["done_when"]:
        condition.setdefault("folder", "")  # and of before a condition named a folder
    step = decode(Step, empty, "step")
    if written_in != TEXT_COMMANDS and any(back.kind is BackKind.STORED for back in step.back):
        raise BadInput("step.back: a command line as text, which only a journal of format 1 may hold")
    files = tuple(
        replace(change, before=_text(said["before"]), after=_text(said["after"]))
        for change, said in zip(step.files, document["files"], strict=True)
    )
    conditions = tuple(
        replace(condition, expected=_text(said["expected"]))
        for condition, said in zip(step.done_when, document["done_when"], strict=True)
    )
    return replace(step, files=files, done_when=conditions)


def _texts(document: Any) -> Iterator[tuple[dict[str, str], str]]:
    """Where a step's document holds the text of a file, or a line of one."""
    for change in document["files"]:
        yield change, "before"
        yield change, "after"
    for condition in document["done_when"]:
        yield condition, "expected"


def _text(encoded: str) -> str:
    return base64.b64decode(encoded, validate=True).decode("utf-8", "surrogateescape")
