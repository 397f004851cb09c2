"""/etc/ld.so.conf in a root of its own: the real ldconfig says which folders it reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from firstlight.elf.ld_conf import configured_folders
from firstlight.machine.live import LiveMachine

pytestmark = pytest.mark.system

LDCONFIG = "/sbin/ldconfig"
FOLDERS = ("a", "b", "c d", "e", "f", "g=h", "deep/x1/lib", "deep/x2/lib", "hidden")
FILES = {
    "plain": "/opt/a\n/opt/b\n",
    "no final newline": "/opt/a\n/opt/b",
    "comments": "# /opt/e\n/opt/a # and why\n/opt/b#near\n  #\n",
    "blanks": "  /opt/a  \n\t/opt/b\t\n\n   \n",
    "a blank in a name": "/opt/c d\n/opt/a\n",
    "carriage returns": "/opt/a\r\n/opt/b\r\n",
    "slashes": "/opt/a///\n/opt/b/\n",
    "the same twice": "/opt/b\n/opt/a\n/opt/b/\n",
    "libc6": "/opt/a=libc6\n/opt/b =libc6\n/opt/e=libc5\n/opt/f=\n",
    "an equals sign in a name": "/opt/g=h\n/opt/a\n",
    "hwcap": "hwcap 0 nosegneg\nhwcap\t1 other\n/opt/a\n",
    "not hwcap": "hwcap\n/opt/a\n",
    "relative folder": "opt/a\n/opt/b\n",
    "include": "include /etc/more/*.conf\n/opt/a\n",
    "include in the middle": "/opt/a\ninclude /etc/more/one.conf\n/opt/b\n",
    "relative include": "include more/*.conf\n/opt/a\n",
    "two patterns": "include /etc/more/two.conf\tmore/one.conf\n",
    "wildcard in a folder": "include /etc/m*/one.conf\n",
    "wildcards in two parts": "include /etc/?ore/sub*/*.conf\n",
    "sets and questions": "include /etc/more/[ot]?[eo].conf\n",
    "hidden files": "include /etc/more/*\n",
    "include of nothing": "include /etc/none/*.conf\ninclude /etc/none.conf\n/opt/a\n",
    "include without a word": "include\n/opt/a\n",
    "included twice": "include /etc/more/one.conf\ninclude /etc/more/one.conf\n",
    "includes something": "includes /etc/more/one.conf\n/opt/a\n",
    "nested": "include /etc/nested.conf\n/opt/a\n",
    "tabs behind include": "include\t \t/etc/more/one.conf\n",
    "comment behind include": "include /etc/more/one.conf # not /etc/more/two.conf\n",
    "nothing": "",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    more = tmp_path / "etc" / "more"
    for folder in (
        more / "sub1",
        more / "sub2",
        tmp_path / "etc" / "m2",
        *(tmp_path / "opt" / each for each in FOLDERS),
    ):
        folder.mkdir(parents=True)
    (more / "one.conf").write_text("/opt/e\n")
    (more / "two.conf").write_text("/opt/f")
    (more / ".hidden.conf").write_text("/opt/hidden\n")
    (more / "sub1" / "s.conf").write_text("/opt/deep/x1/lib\n")
    (more / "sub2" / "s.conf").write_text("/opt/deep/x2/lib\n")
    (tmp_path / "etc" / "m2" / "one.conf").write_text("/opt/b\n")
    (tmp_path / "etc" / "nested.conf").write_text("/opt/b\ninclude more/one.conf\n")
    return tmp_path


def _told(root: Path) -> list[str]:
    """The folders that ldconfig looks into, in its order, those of the system left out."""
    done = subprocess.run([LDCONFIG, "-r", str(root), "-v", "-N", "-X"], capture_output=True, text=True, check=False)
    lines = [line.rpartition(": (from ")[0] for line in done.stdout.splitlines() if ": (from " in line]
    return [line for line in lines if line.startswith("/opt")]


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_is_read_as_ldconfig_reads_it(root: Path, name: str) -> None:
    (root / "etc" / "ld.so.conf").write_text(FILES[name])
    ours = configured_folders(LiveMachine(root=str(root)))
    assert [each for each in ours if (root / each[1:]).is_dir()] == _told(root)
