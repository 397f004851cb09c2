"""What a child script sees and says: evidence as it comes, a verdict at the end."""

from __future__ import annotations

from typing import Any, NoReturn


class Verdict(Exception):
    """Ends a proof with something other than ok."""

    outcome = "failed"

    def __init__(self, says: str, *do: str) -> None:
        super().__init__(says)
        self.says, self.do = says, list(do)


class Fault(Verdict):
    """It does not work."""


class Skipped(Verdict):
    """It could not be looked at."""

    outcome = "skipped"


class NotHere(Verdict):
    """There is nothing here to prove it on."""

    outcome = "not here"


class Witness:
    """Collects evidence, so that what was seen before a failure is not lost."""

    def __init__(self) -> None:
        self.evidence: list[list[Any]] = []
        self.more: dict[str, Any] = {}

    def saw(self, what: str, value: str | int | float) -> None:
        """Keep one thing that was seen, e.g. saw('max error', 3.1e-07)."""
        self.evidence.append([what, value])

    def fault(self, says: str, *do: str) -> NoReturn:
        """End: it does not work; `do` are things to do, one sentence each."""
        raise Fault(says, *do)
