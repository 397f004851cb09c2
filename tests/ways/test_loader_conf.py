"""A folder goes out of a file for ldconfig; what stands beside it stays."""

from __future__ import annotations

import pytest

from firstlight.ways.loader_conf import without_conf_folders

C = "/usr/local/cuda/compat"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{C}\n/b\n", "/b\n"),
        (f"/b\n{C}/  # old\n", "/b\n"),
        (f"/b {C}:/d\n", "/b /d\n"),
        (f"/b,{C}=libc6  # kept\n", "/b  # kept\n"),
        (f"# {C}\ninclude {C}/*.conf\n{C}-old\n", None),
        (f"/b\r\n{C}\r\n", "/b\r\n"),
    ],
)
def test_only_the_folder_goes(before: str, after: str | None) -> None:
    assert without_conf_folders(before, (C,)) == (before if after is None else after)
