"""Kernels that another user put into the cache, or could have, are not loaded; nothing is written through its links."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.second_user import EVE, as_eve, snapshot

pytest.importorskip("torch", reason="needs torch")

from firstlight.kernels.choice.rows import cache_file, own
from firstlight.kernels.sm90 import cache
from firstlight.kernels.sm90.compile import Compiled
from firstlight.kernels.sm90.place import keep_log

pytestmark = [pytest.mark.system, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
KEY = "a" * 64
MADE = Compiled(b"\x7fELF eve's", "log", "compiler", "command")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of root's with mode 1777 that holds the cache."""
    folder = Path(tempfile.mkdtemp(prefix="firstlight-cache-", dir="/var/tmp"))
    folder.chmod(0o1777)
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(folder / "cache"))
    cache._warn_once.cache_clear()
    yield folder
    shutil.rmtree(folder)


def _base(shared: Path) -> Path:
    return shared / "cache/kernels/sm90"


def _whole_cache_of_another_user(shared: Path) -> None:
    cache.write_entry(KEY, MADE)
    for path in (shared / "cache", *(shared / "cache").rglob("*")):
        os.chown(path, EVE, EVE)
        path.chmod(0o777)


def _entry_of_another_user(shared: Path) -> None:
    cache.write_entry(KEY, MADE)
    os.chown(_base(shared) / KEY, EVE, EVE)


def _file_of_another_user(shared: Path) -> None:
    cache.write_entry(KEY, MADE)
    os.chown(_base(shared) / KEY / "kernel.cubin", EVE, EVE)


def _entry_that_everybody_writes(shared: Path) -> None:
    cache.write_entry(KEY, MADE)
    (_base(shared) / KEY).chmod(0o777)


def _entry_that_is_a_link(shared: Path) -> None:
    cache.write_entry(KEY, MADE)
    shutil.copytree(_base(shared) / KEY, shared / "eves")
    shutil.rmtree(_base(shared) / KEY)
    _base(shared).chmod(0o777)
    as_eve(lambda: (_base(shared) / KEY).symlink_to(shared / "eves"))
    _base(shared).chmod(0o755)


PLANTED = (
    _whole_cache_of_another_user, _entry_of_another_user, _file_of_another_user, _entry_that_everybody_writes,
    _entry_that_is_a_link,
)  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__.strip("_"))
def test_a_kernel_that_another_user_could_have_put_there_is_not_loaded(
    shared: Path, plant: Callable[[Path], None]
) -> None:
    plant(shared)
    with pytest.warns(cache.KernelsNotKept, match=r"owner (0|4001).*Set FIRSTLIGHT_CACHE_DIR to a folder of your own"):
        assert cache.read_entry(KEY) is None


def test_our_own_entry_in_a_shared_folder_is_loaded_whatever_the_umask(shared: Path) -> None:
    before = os.umask(0)
    try:
        cache.write_entry(KEY, MADE)
    finally:
        os.umask(before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read_entry(KEY) == MADE


def test_nothing_is_written_into_a_cache_of_another_user_or_through_its_links(shared: Path) -> None:
    secrets = shared / "roots"
    secrets.mkdir(mode=0o755)
    (secrets / "secret").write_text("root's\n")
    as_eve(lambda: (_base(shared) / "locks").mkdir(parents=True))
    as_eve(lambda: (_base(shared) / "locks" / KEY[0]).symlink_to(secrets / "secret"))
    as_eve(lambda: (_base(shared) / "failed").mkdir())
    as_eve(lambda: (_base(shared) / "failed/multiply.txt").symlink_to(secrets / "secret"))
    before = snapshot(shared)
    with pytest.raises(OSError, match="another user"):
        cache.write_entry(KEY, MADE)
    with cache._waiting_for_others(KEY):
        pass
    written = keep_log("multiply", "a log")
    assert not written.startswith(str(shared))
    os.unlink(written)
    assert snapshot(shared) == before


def test_measured_rows_of_another_user_are_not_used(shared: Path) -> None:
    path = cache_file("NVIDIA H200")
    as_eve(lambda: path.parent.mkdir(parents=True))
    as_eve(lambda: path.write_text("{}"))
    with pytest.warns(UserWarning, match="its rows are not used"):
        assert own("NVIDIA H200") is None
