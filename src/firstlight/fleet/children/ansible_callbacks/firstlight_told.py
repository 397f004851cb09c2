"""Loaded by ansible-playbook in its own process: writes what becomes of each host, one JSON object a line."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

_LIMIT = 8 << 20


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Tells of hosts that are asked, that answered, and that could not be reached."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "firstlight_told"
    CALLBACK_NEEDS_ENABLED = True

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        self._tell("asked", host.get_name(), task.get_name(), {})

    def v2_runner_on_ok(self, result: Any) -> None:
        self._of(result, "answered")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:  # noqa: FBT001, FBT002 Ansible's
        self._of(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._of(result, "unreachable")

    def v2_runner_retry(self, result: Any) -> None:
        self._of(result, "at work")

    def _of(self, result: Any, what: str) -> None:
        self._tell(what, result._host.get_name(), result._task.get_name(), result._result)

    def _tell(self, what: str, host: str, task: str, found: Any) -> None:
        said = {name: str(found.get(name) or "")[: _LIMIT + 1] for name in ("stdout", "stderr", "msg")}
        if what == "at work":
            said = {}
        line = {"what": what, "host": host, "task": task, "rc": found.get("rc"), **said}
        with open(os.environ["FIRSTLIGHT_TOLD"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
