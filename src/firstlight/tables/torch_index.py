"""Where PyTorch's own wheels are: the folders of its index, from the table torch_indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.tables import load

if TYPE_CHECKING:
    from firstlight.tables.torch_rows import TorchIndex


def index_of_build(build: str, channel: str = "stable") -> str:
    """The folder of a build, e.g. https://download.pytorch.org/whl/cu128; nightly/cu128 with the channel nightly."""
    return f"{_row(channel).address}{build}"


def index_of_version(version: str) -> str:
    """The folder that has 2.9.0+cu128, or its nightly one; "" where the local part names none, e.g. of 2.9.0+nv25."""
    public, _, local = version.partition("+")
    row = _row("nightly" if ".dev" in public else "stable")
    return f"{row.address}{local}" if local.startswith(row.builds) else ""


def _row(channel: str) -> TorchIndex:
    return next(row for row in load().torch_indexes if row.channel.value == channel)
