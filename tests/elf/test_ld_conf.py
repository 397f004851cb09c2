"""/etc/ld.so.conf without ldconfig; tests/system/test_ld_conf_by_ldconfig.py has it as the referee."""

from __future__ import annotations

from pathlib import Path

from firstlight.elf.ld_conf import configured
from firstlight.machine.live import LiveMachine


def test_each_folder_says_which_file_names_it(tmp_path: Path) -> None:
    for name, text in {
        "ld.so.conf": "hwcap 0 nosegneg\n/opt/a b=libc6\ninclude m*/*.conf\n/opt/last",
        "m1/one.conf": "/opt/b # why\n",
        "m1/.hidden.conf": "/opt/hidden\n",
        "more/one.conf": "/opt/e/\n",
    }.items():
        path = tmp_path / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert [tuple(each) for each in configured(LiveMachine(root=str(tmp_path)))] == [
        ("/opt/a b", "/etc/ld.so.conf"),
        ("/opt/b", "/etc/m1/one.conf"),
        ("/opt/e", "/etc/more/one.conf"),
        ("/opt/last", "/etc/ld.so.conf"),
    ]
