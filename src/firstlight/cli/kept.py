"""The newest results of this machine, kept beside its journal for `firstlight handover`."""

from __future__ import annotations

import os
from contextlib import suppress

from firstlight.apply.place import machine_identity, state_place
from firstlight.errors import BadInput
from firstlight.machine.live import LiveMachine
from firstlight.owned import open_ours, our_folder, read_ours
from firstlight.secrets import masked


def keep(name: str, text: str) -> None:
    """Keep a document, e.g. 'verify', in the place of the one before; a folder that cannot be written keeps nothing."""
    with suppress(OSError, BadInput), our_folder(_folder(), make=0o700) as folder:
        handle = open_ours(folder, f".{name}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(masked(text))
        os.replace(f".{name}.part", f"{name}.json", src_dir_fd=folder.handle, dst_dir_fd=folder.handle)


def kept(name: str) -> str:
    """The text of a document that was kept; "" where there is none that is ours."""
    with suppress(OSError, BadInput), our_folder(_folder()) as folder:
        return read_ours(folder, f"{name}.json").decode("utf-8", errors="replace")
    return ""


def _folder() -> str:
    """Two pods may share a volume: each has its own results, as each has its own journal."""
    machine = LiveMachine()
    return f"{state_place(machine).path}/results/{machine_identity(machine)}"
