"""Names of images, hosts and folders: what could be an option, a path out of a folder or a control is refused."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from firstlight.cli.main import run
from firstlight.errors import BadInput
from firstlight.ship.cache import cached
from firstlight.ship.naming import Name, parse_folder, parse_image, parse_name

BAD_NAMES = (
    "-v", "--privileged", "a/../b", "..", "a..b", "a\x1b[2J", "a\nb", "a b", "A/b", "a:", "a:-x", "a/", "/a",
    "a@sha256:00", "$(id)", "a;b", "a" * 300, "\u202ea", "a/-b", "",
)  # fmt: skip


@pytest.mark.parametrize("given", BAD_NAMES)
def test_a_name_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(BadInput):
        parse_name(given)


def test_a_name_as_engines_have_it() -> None:
    assert parse_name("train") == Name("", "train", "latest")
    assert parse_name("team/train:3").qualified == "localhost/team/train:3"
    assert parse_name("team/train:3").in_containerd == "docker.io/team/train:3"
    assert parse_name("train").in_containerd == "docker.io/library/train:latest"
    for name in ("localhost/train:3", "ghcr.io/team/train:v1.2_x", "node:5000/train:3", "10.0.0.7:5000/a/b__c:1"):
        assert parse_name(name).given == parse_name(name).qualified == parse_name(name).in_containerd == name


@pytest.mark.parametrize("given", ["-x", "/a/../b", "a b", "a;b", "/a\n", "~/x", "$HOME", "a:b", ""])
def test_a_folder_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(BadInput):
        parse_folder(given)


def test_where_an_image_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout/oci-layout").write_text("{}")
    _tar(tmp_path / "docker.tar", "manifest.json", "repositories")
    _tar(tmp_path / "oci.tar", "./oci-layout", "./index.json")
    where = {
        "train": ("containers-storage:localhost/train:latest", "containers-storage:docker.io/library/train:latest"),
        "ghcr.io/a/b:1": ("containers-storage:ghcr.io/a/b:1",),
        "docker-daemon:a/b": ("docker-daemon:a/b:latest",),
        "layout": (f"oci:{tmp_path}/layout",),
        "oci:layout:a/b:3": (f"oci:{tmp_path}/layout:a/b:3",),
        f"{tmp_path}/docker.tar": (f"docker-archive:{tmp_path}/docker.tar",),
        "./oci.tar": (f"oci-archive:{tmp_path}/oci.tar",),
    }
    assert {given: parse_image(given).tried for given in where} == where
    assert parse_image("layout").name is None


def test_a_path_that_holds_no_image_is_refused(tmp_path: Path) -> None:
    _tar(tmp_path / "other.tar", "readme")
    (tmp_path / "text").write_text("no archive")
    os.mkfifo(tmp_path / "fifo")
    for name in ("other.tar", "text", "fifo", "missing", "."):
        with pytest.raises(BadInput, match="accepted"):
            parse_image(str(tmp_path / name))


@pytest.mark.parametrize(
    "words",
    [
        ("-v", "--host", "node"),
        ("a/../b", "--host", "node"),
        ("a\x1b[2J", "--host", "node"),
        ("train", "--host", "-oProxyCommand=x"),
        ("train", "--host", "a/../b"),
        ("train", "--host", "a\x07"),
        ("train", "--host", "node", "--name", "-x"),
        ("train", "--host", "node", "--name", "../x"),
        ("train", "--host", "node", "--folder", "a/../b"),
        ("train", "--host", "node", "--rate", "0"),
        ("train",),
    ],
)
def test_bad_input_ends_with_2_before_anything_is_started(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ssh", "skopeo", "rsync"):
        (tmp_path / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(["ship", *words]) == 2
    assert not (tmp_path / "started").exists()
    said = capsys.readouterr()
    assert said.out == ""
    assert "\x1b" not in said.err
    assert "\x07" not in said.err


def test_tools_that_are_missing_here_are_all_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["ship", "train", "--host", "node"]) == 4
    said = capsys.readouterr().err
    for name, package in (("skopeo", "skopeo"), ("rsync", "rsync"), ("ssh", "openssh-client")):
        assert f"{name} (apt-get install {package}" in said


def _tar(path: Path, *names: str) -> None:
    with tarfile.open(path, "w") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())


def test_what_is_missing_here_is_not_said_of_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["ship", "team/train:3", "--host", "h"]) == 4
    assert capsys.readouterr().err.startswith("firstlight: missing on this machine: ")
    assert run(["ship", "team/train:3", "--host", "h", "--ssh-config", "/nonexistent"]) == 2
    assert "--ssh-config '/nonexistent': cannot be read" in capsys.readouterr().err


def test_a_cache_that_cannot_be_made_is_said_with_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("FIRSTLIGHT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(BadInput, match=r"file/ship: images cannot be kept there \(.*\); set FIRSTLIGHT_CACHE_DIR"):
        cached(parse_image("train:3"))
