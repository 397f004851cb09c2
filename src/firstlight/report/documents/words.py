"""Words that the types of documents share."""

from __future__ import annotations

from typing import Annotated, Any

from firstlight.ways.way import Way

Count = Annotated[int, {"minimum": 0}]
Positive = Annotated[int, {"minimum": 1}]
Said = Annotated[str, {"minLength": 1}]
Code = Annotated[str, {"pattern": "^[a-z0-9]+(-[a-z0-9]+)+$"}]
Sha256 = Annotated[str, {"pattern": "^[0-9a-f]{64}$"}]
Digest = Annotated[str, {"pattern": "^sha256:[0-9a-f]{64}$"}]
Day = Annotated[str, {"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}]
WayShown = Annotated[dict[str, Any], Way]  # with its type and its arguments
WayType = Annotated[str, Way]  # by name alone
Command = list[str]  # as argument list
