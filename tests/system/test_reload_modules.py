"""Modules are unloaded only where nothing uses them, and come back where one of them would not go.

/sys/module and /dev are this test's own, in a mount namespace; rmmod and modprobe are stand-ins that edit that /sys.
"""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.containers import ContainerKind
from firstlight.ways.argv import commands
from firstlight.ways.kinds import ReloadModules
from firstlight.ways.platform import platform_of
from tests.diagnosis.rule_case import facts_of

pytestmark = pytest.mark.system
ALL = ("nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia")
ABOVE = {"nvidia": ("nvidia_uvm", "nvidia_modeset"), "nvidia_modeset": ("nvidia_drm",)}
STAND_INS = {
    "rmmod": """
for each; do
    echo "rmmod $each" >> "$LOG"
    [ "$each" != "$STUCK" ] || { echo "rmmod: ERROR: Module $each is in use" >&2; exit 1; }
    rm -r "/sys/module/$each"
done""",
    "modprobe": 'echo "modprobe $1" >> "$LOG"; mkdir -p "/sys/module/$1/holders"; echo 0 > "/sys/module/$1/refcnt"',
}


def _reloaded(folder: Path, *, loaded: tuple[str, ...] = ALL, users: str = "", stuck: str = "") -> tuple[int, str, str]:
    """Status, what was said and what rmmod and modprobe were told; a program has a GPU open for `users`."""
    (folder / "bin").mkdir()
    log = folder / "log"
    log.touch()
    for name, text in STAND_INS.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\nLOG={log}\nSTUCK={stuck}\n{text.strip()}\n")
        program.chmod(0o755)
    lines = ["set -e", "mount -t tmpfs t /sys/module", "mount -t tmpfs t /dev", "touch /dev/null /dev/nvidia0"]
    for module in loaded:
        above = tuple(each for each in ABOVE.get(module, ()) if each in loaded)
        lines += [f"mkdir -p /sys/module/{module}/holders/{each}" for each in ("", *above)]
        lines.append(f"echo {len(above) + (module == users)} > /sys/module/{module}/refcnt")
    lines.append("exec 9< /dev/nvidia0" if users else ":")
    platform = replace(platform_of(facts_of("a100-no-driver")), is_root=True, container=ContainerKind.NONE)
    lines += [shlex.join(argv) for argv in commands(ReloadModules(ALL), platform)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", "\n".join(lines)], env={"PATH": f"{folder}/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, log.read_text()


def test_free_modules_go_in_order_and_come_back(tmp_path: Path) -> None:
    status, said, told = _reloaded(tmp_path)
    assert status == 0, said
    assert told.split("\n")[:8] == [
        *(f"rmmod {each}" for each in ALL), *(f"modprobe {each}" for each in reversed(ALL)),
    ]  # fmt: skip


def test_nothing_is_unloaded_while_a_program_uses_one_of_them(tmp_path: Path) -> None:
    status, said, told = _reloaded(tmp_path, users="nvidia_drm")
    assert (status, told) == (1, ""), "nvidia_uvm, the first, is free: it must not go either"
    assert "nvidia_drm is in use, so nothing was unloaded." in said
    assert "has a GPU open: sh" in said


def test_a_module_that_is_not_loaded_is_left_out(tmp_path: Path) -> None:
    status, said, told = _reloaded(tmp_path, loaded=("nvidia_uvm", "nvidia"))
    assert status == 0, said
    assert "nvidia_drm" not in told
    assert told.split("\n")[:4] == ["rmmod nvidia_uvm", "rmmod nvidia", "modprobe nvidia", "modprobe nvidia_uvm"]


def test_what_was_unloaded_comes_back_where_the_next_would_not_go(tmp_path: Path) -> None:
    status, _, told = _reloaded(tmp_path, stuck="nvidia_drm")
    assert status == 1
    assert told.split() == ["rmmod", "nvidia_uvm", "rmmod", "nvidia_drm", "modprobe", "nvidia_uvm"]
