"""This machine for somebody who cannot wait: every child process ends at one moment, whatever limit it was given."""

from __future__ import annotations

import time
from collections.abc import Mapping

from firstlight.machine.interface import CHILD_TIMEOUT_S, COMMAND_TIMEOUT_S, ChildAnswer, ChildScript, Completed
from firstlight.machine.live import LiveMachine

_SHORTEST_S = 0.05


class HurriedMachine(LiveMachine):
    """Looks at this machine until `until` (of time.monotonic); what has not answered by then has timed out."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def run(
        self,
        argv: tuple[str, ...],
        *,
        timeout_s: float = COMMAND_TIMEOUT_S,
        keep: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        return super().run(argv, timeout_s=self._left(timeout_s), keep=keep, env=env)

    def child(
        self,
        script: ChildScript,
        *args: str,
        timeout_s: float = CHILD_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
    ) -> ChildAnswer:
        return super().child(script, *args, timeout_s=self._left(timeout_s), env=env)

    def _left(self, timeout_s: float) -> float:
        return max(_SHORTEST_S, min(timeout_s, self._until - time.monotonic()))
