"""The documents of `emit agents`, `guard test` and `mcp`: what coding agents are given, and what gets past it."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from firstlight.report.documents.words import Count, Said, Sha256


class AgentsWritten(TypedDict):
    schema: str
    folder: Said
    files: list[str]  # Files that were written or changed, below the folder.


class AgentsRemoved(TypedDict):
    schema: str
    folder: Said
    removed: list[str]  # Files that our part was taken out of.


class AgentsFile(TypedDict):
    """A file as `emit agents` found it, so that --remove can put it back."""

    before: str | None  # Base64; null: it was not there.
    after: Sha256
    mode: int
    folders: list[str]  # Folders that were made for it.


class AgentsRecord(TypedDict):
    """What is kept in the project, in .firstlight/agents.json."""

    schema: str
    files: dict[str, AgentsFile]


class WrongAnswer(TypedDict):
    """An action that a hook let through or stopped wrongly."""

    tool: Said
    way: Said
    text: str
    expect: Annotated[str, {"enum": ["allow", "deny"]}]
    answer: Said  # allow, deny, or exit N, which the tool takes for go on.


class BrokenHook(TypedDict):
    """A hook with a part of it gone: does it still deny."""

    tool: Said
    broken: Said
    answer: Said
    then: str  # What the tool does then; empty where it denies.


class GuardTestDocument(TypedDict):
    schema: str
    fired: Count
    wrong: list[WrongAnswer]
    broken: list[BrokenHook]


class McpToolShown(TypedDict):
    name: Said
    about: Said
    arguments: dict[str, Any]  # JSON Schema of its arguments.
    answer: Said  # The schema that its answer follows, e.g. diagnosis-2.


class McpDocument(TypedDict):
    schema: str
    firstlight: Said  # The version.
    tools: Annotated[list[McpToolShown], {"minItems": 1}]
