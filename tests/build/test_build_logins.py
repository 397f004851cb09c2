"""The login of an address reaches the host and no file: tried with a server that wants one."""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

from firstlight.build.fetching import fetch
from firstlight.build.logins import git_variables
from firstlight.build.planning import id_of, source_of, source_spec
from firstlight.build.request import parse_target
from firstlight.build.spec import Setting, Source, write_spec
from firstlight.build.wheel_finish import finish_wheel
from firstlight.errors import BadInput
from tests import http_server
from tests.build.standin import git, make_part
from tests.build.test_build_sources import raw_wheel_in, spec_in

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
WANTED = "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()


class Closed(SimpleHTTPRequestHandler):
    """Files for whoever has the login."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == WANTED:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="closed"')
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder that is served, and the host with the login."""
    folder = tmp_path / "served"
    folder.mkdir()
    with http_server.served(functools.partial(Closed, directory=str(folder))) as port:
        yield folder, f"http://me:{TOKEN}@127.0.0.1:{port}"


def everything_below(folder: Path) -> bytes:
    return b"\n".join(each.read_bytes() for each in folder.rglob("*") if each.is_file())


def test_a_token_clones_and_is_in_no_file(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, host = served
    part = make_part(tmp_path / "part")
    git(part, "clone", "--bare", ".", str(folder / "part.git"))
    subprocess.run(["git", "-C", str(folder / "part.git"), "update-server-info"], check=True)
    target = parse_target(f"git+{host}/part.git@main")
    source = source_of(target, "", ())
    spec = source_spec(id_of(target, source, "python"), str(tmp_path / "b"), source)
    write_spec(spec)
    for name, value in git_variables(target.url, os.environ).items():
        monkeypatch.setenv(name, value)
    fetch(spec)
    assert (Path(spec.tree) / "part.h").exists()
    assert TOKEN.encode() not in everything_below(tmp_path / "b")
    assert TOKEN not in capfd.readouterr().out
    built = spec_in(tmp_path / "b", source=source, settings=(Setting("API_TOKEN", TOKEN), Setting("USE_X", "1")))
    os.makedirs(built.wheels)
    with zipfile.ZipFile(finish_wheel(str(raw_wheel_in(tmp_path)), built)) as file:
        (about,) = (json.loads(file.read(each)) for each in file.namelist() if each.endswith("firstlight-build.json"))
    assert TOKEN not in json.dumps(about)
    assert (about["source"], about["flags"]) == (source.url, {"USE_X": "1"})


@pytest.mark.parametrize("named_by", ["PIP_INDEX_URL", "a file of pip"])
def test_an_index_with_a_login_is_asked_with_it(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str
) -> None:
    folder, host = served
    (folder / "x-1").mkdir()
    (folder / "x-1/setup.py").write_text("")
    (folder / "simple/x").mkdir(parents=True)
    subprocess.run(["tar", "-C", str(folder), "-czf", str(folder / "simple/x/x-1.tar.gz"), "x-1"], check=True)
    (folder / "simple/x/index.html").write_text('<a href="x-1.tar.gz">x-1.tar.gz</a>')
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    if named_by == "PIP_INDEX_URL":
        monkeypatch.setenv("PIP_INDEX_URL", f"{host}/simple")
    else:
        (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {host}/simple\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    spec = source_spec("x-1", str(tmp_path / "b"), Source("x==1", release="x==1"))
    write_spec(spec)
    fetch(spec)
    assert (Path(spec.tree) / "setup.py").exists()
    assert TOKEN.encode() not in everything_below(tmp_path / "b")
    missing = source_spec("y-1", str(tmp_path / "c"), Source("y==1", release="y==1"))
    write_spec(missing)
    with pytest.raises(BadInput, match="/simple/y/: the index has no such page") as refused:
        fetch(missing)
    assert TOKEN not in str(refused.value)


def test_an_ssh_user_is_no_secret_and_stays() -> None:
    source = source_of(parse_target("git+ssh://git@github.com/a/b@v1"), "", ())
    assert source.url == "ssh://git@github.com/a/b"
    assert git_variables(source.url, {}) == {}
