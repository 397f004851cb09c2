"""Digests that are taken while the driver is asked are those that would be taken later."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from firstlight.lock.ahead import file_digest, taken_ahead
from firstlight.lock.packages import record_digest
from firstlight.machine.live import LiveMachine

WHEELS_OWN = (
    "pkg/a.py,sha256=x,1",
    "pkg/odd,name.pyc,,",  # no quotes: the path ends at the first comma
    'pkg/b.py,"sha256=.pyc",2',
    "pkg-1.0.dist-info/METADATA,sha256=y,3",
    "pkg-1.0.dist-info/licenses/RECORD,sha256=z,4",
    ".hidden/c.py,sha256=u,5",
    '"pkg/d,e.py",sha256=v,6',
    "pkg/INSTALLER,,",
)
OF_THE_PLACE = (
    "",
    "pkg/__pycache__/a.cpython-312.pyc,,",
    '"pkg/__pycache__/f.pyc",,',
    "../../../bin/pkg,sha256=w,7",
    "/etc/pkg.conf,,",
    '"../../../share/x",,',
    *(f"pkg-1.0.dist-info/{name},," for name in ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")),
)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A folder that looks like an environment, with one distribution and a compat library."""
    record = tmp_path / "lib/python3.12/site-packages/pkg-1.0.dist-info/RECORD"
    record.parent.mkdir(parents=True)
    record.write_text("\n".join((*OF_THE_PLACE, *WHEELS_OWN, *OF_THE_PLACE)) + "\n")
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.3\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to("/usr/bin/true")
    (tmp_path / "cuda-compat").mkdir()
    (tmp_path / "cuda-compat/libcuda.so.580.95.05").write_bytes(b"\x7fELF" + bytes(range(256)) * 40_000)
    return tmp_path


def test_the_digest_is_over_the_rows_that_are_the_wheels_own(environment: Path) -> None:
    record = str(environment / "lib/python3.12/site-packages/pkg-1.0.dist-info")
    rows = "\n".join(sorted(WHEELS_OWN)).encode()
    assert record_digest(LiveMachine(), record) == f"sha256:{hashlib.sha256(rows).hexdigest()}"
    assert record_digest(LiveMachine(), record + "-gone") == ""
    assert record_digest(None, record) == ""


def test_what_is_taken_ahead_is_what_would_be_taken_later(environment: Path) -> None:
    machine = LiveMachine()
    taken = taken_ahead(machine, python=str(environment))
    record = str(environment / "lib/python3.12/site-packages/pkg-1.0.dist-info")
    library = str(environment / "cuda-compat/libcuda.so.580.95.05")
    assert taken.records[record] == record_digest(machine, record) != ""
    whole = hashlib.sha256(Path(library).read_bytes()).hexdigest()
    assert taken.libraries[library] == file_digest(machine, library) == f"sha256:{whole}"


def test_where_there_is_no_environment_nothing_is_taken(tmp_path: Path) -> None:
    taken = taken_ahead(LiveMachine(root=str(tmp_path), environ={"PATH": "/usr/bin"}))
    assert not taken.records
    assert not taken.libraries
