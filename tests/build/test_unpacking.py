"""Archives that lead out of the folder they are unpacked in: refused, and nothing is written outside."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from firstlight.build.unpacking import unpack
from firstlight.errors import BadInput


@pytest.mark.parametrize("name", ["../out", "/etc/out", "x/../../out"])
def test_an_archive_that_leads_out_of_its_folder_is_refused_before_anything_is_written(
    name: str, tmp_path: Path
) -> None:
    for ending in (".tar.gz", ".zip"):
        path = tmp_path / f"bad{ending}"
        if ending == ".zip":
            with zipfile.ZipFile(path, "w") as file:
                file.writestr("x/fine.txt", "fine")
                file.writestr(name, "bad")
        else:
            with tarfile.open(path, "w:gz") as tar:
                for each in ("x/fine.txt", name):
                    tar.addfile(tarfile.TarInfo(each), io.BytesIO())
        folder = tmp_path / f"to{ending}"
        with pytest.raises(BadInput, match="leads out of the folder"):
            unpack(str(path), str(folder))
        assert os.listdir(folder) == []
        assert not (tmp_path / "out").exists()


def test_links_out_and_devices_in_an_archive_are_refused(tmp_path: Path) -> None:
    for kind, target in ((tarfile.SYMTYPE, "../../etc"), (tarfile.LNKTYPE, "/etc/passwd"), (tarfile.CHRTYPE, "")):
        path = tmp_path / "bad.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            member = tarfile.TarInfo("x/link")
            member.type, member.linkname = kind, target
            tar.addfile(member)
        with pytest.raises(BadInput, match="Do not use this archive"):
            unpack(str(path), str(tmp_path / f"to-{kind!r}"))


def test_half_an_archive_is_no_source(tmp_path: Path) -> None:
    path = tmp_path / "x-1.tar.gz"
    path.write_bytes(b"\x1f\x8b no archive")
    with pytest.raises(BadInput, match="Fetch it again"):
        unpack(str(path), str(tmp_path / "to"))


def tar_of(path: Path, *members: tuple[str, str]) -> Path:
    """(name, text) is a file; (name, '-> target') a link; (name, '= target') a hard link."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members:
            member = tarfile.TarInfo(name)
            kind, _, target = text.partition(" ")
            if kind in ("->", "="):
                member.type, member.linkname = tarfile.SYMTYPE if kind == "->" else tarfile.LNKTYPE, target
                tar.addfile(member)
            else:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
    return path


HOSTILE = {
    "a link through a link": (("x/d", "-> ."), ("x/e", "-> d/.."), ("x/f", "-> e/.."), ("x/f/out", "bad")),
    "a link through a folder's link": (("x/a/b/c", "fine"), ("x/d", "-> a/b"), ("x/e", "-> d/../../..")),
    "below a link": (("x/d", "-> ."), ("x/d/y", "bad")),
    "below a link that comes later": (("x/d/y", "bad"), ("x/d", "-> .")),
    "below a link, spelt otherwise": (("x/d", "-> ."), ("x/./d//y", "bad")),
    "a file in place of a link": (("x/f", "fine"), ("x/d", "-> f"), ("x/d", "bad")),
    "a hard link to a link": (("x/d", "-> .."), ("x/h", "= x/d"), ("x/h/out", "bad")),
    "a hard link out": (("x/h", "= ../out"),),
    "out behind a way in": (("x/d", "-> a/../../../out"),),
    "absolute": (("x/d", "-> /etc/passwd"),),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_links_cannot_be_put_together_to_a_way_out(case: str, tmp_path: Path) -> None:
    path = tar_of(tmp_path / "bad.tar.gz", *HOSTILE[case])
    folder = tmp_path / "deep/to"
    with pytest.raises(BadInput, match="Do not use this archive"):
        unpack(str(path), str(folder))
    assert os.listdir(folder) == []
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["bad.tar.gz", "deep", "to"]


def test_links_of_honest_archives_are_made(tmp_path: Path) -> None:
    path = tar_of(
        tmp_path / "x.tar.gz", ("x/lib/a.so.1.2", "code"), ("x/lib/a.so.1", "-> a.so.1.2"), ("x/lib/a.so", "-> a.so.1"),
        ("x/bin/tool", "-> ../lib/a.so"), ("x/copy", "= x/lib/a.so.1.2"),
    )  # fmt: skip
    unpack(str(path), str(tmp_path / "to"))
    assert {(tmp_path / "to/x" / each).read_text() for each in ("lib/a.so", "bin/tool", "copy")} == {"code"}


def test_a_link_in_a_zip_is_no_link(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as file:
        link = zipfile.ZipInfo("x/d")
        link.external_attr = 0o120777 << 16
        file.writestr(link, "../..")
        file.writestr("x/f", "fine")
    unpack(str(tmp_path / "x.zip"), str(tmp_path / "to"))
    assert not (tmp_path / "to/x/d").is_symlink()
    assert (tmp_path / "to/x/f").read_text() == "fine"
