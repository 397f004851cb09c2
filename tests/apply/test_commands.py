"""Commands of a step: what they print is kept for their owner alone and without secrets, and nothing foreign is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from firstlight.apply.commands import Ended, run_logged
from firstlight.apply.executor import StepFailed
from firstlight.apply.log_masking import PIECE, mask_log
from firstlight.apply.session import Asked, act
from firstlight.apply.surroundings import logins_for, variables_for
from firstlight.ways.offline import PIP_FLAGS
from firstlight.ways.step import StepKind
from tests.apply.acting import acting, step

PASSWORD = "Tr0ub4dor-and-3"


def _run(folder: Path, *argv: str, heard: list[str] | None = None, **env: str) -> Ended:
    said = [] if heard is None else heard
    return run_logged(
        argv, log=str(folder / "log"), env={"PATH": "/usr/bin:/bin", **env}, started=lambda process: None,
        watch=said.append,
    )  # fmt: skip


def test_a_log_is_for_its_owner_alone_also_one_that_was_open_to_all(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    (tmp_path / "log").chmod(0o644)
    _run(tmp_path, "echo", "hello")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "log").read_text() == "before\n$ echo hello\nhello\n"


def test_a_secret_that_a_command_prints_is_in_no_log_and_no_line(tmp_path: Path) -> None:
    heard: list[str] = []
    script = f"echo Looking in https://bob:{PASSWORD}@host/simple; echo export HF_TOKEN={PASSWORD}; echo end; exit 3"
    ended = _run(tmp_path, "sh", "-c", script, heard=heard)
    assert ended.status == 3
    assert ended.tail == ("Looking in https://<redacted>@host/simple", "export HF_TOKEN=<redacted>", "end")
    assert PASSWORD not in (tmp_path / "log").read_text() + "".join(heard)
    assert (tmp_path / "log").read_text().endswith("\nend\n")


def test_a_log_of_several_pieces_keeps_every_line_and_no_secret_of_any(tmp_path: Path) -> None:
    """With a secret at each end, and a key across the border of two pieces."""
    address, log = f"https://bob:{PASSWORD}@host/simple", tmp_path / "log"
    before, filler = f"cut here: {'y' * 30}", "Downloading a wheel of 12 MB\n" * 35_000
    secret = "-----BEGIN PRIVATE KEY-----\n" + f"{PASSWORD}\n" * 3000 + "-----END PRIVATE KEY-----\n"
    text = f"first {address}\n{filler}{secret}{filler}last {address}"
    assert text.index("-----BEGIN") < PIECE < text.index("-----END")
    log.write_text(before + text)
    mask_log(str(log), len(before))
    hidden, key = "https://<redacted>@host/simple", "-----BEGIN PRIVATE KEY-----<redacted>-----END PRIVATE KEY-----\n"
    assert log.read_text() == f"{before}first {hidden}\n{filler}{key}{filler}last {hidden}"
    assert log.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["log"]


def test_what_the_children_of_a_killed_command_write_is_masked_too(tmp_path: Path) -> None:
    address = f"https://bob:{PASSWORD}@host/simple"
    script = f"echo early {address}; (sleep 1; echo late {address}) & sleep 0.2; kill -9 $$"
    killed = step("01-killed", kind=StepKind.GIT, commands=(("sh", "-c", script),))
    with pytest.raises(StepFailed) as failed:
        act(acting(tmp_path), Asked((killed,), "d", "o", "t"))
    text = Path(failed.value.log).read_text()
    assert PASSWORD not in text
    assert text.endswith("early https://<redacted>@host/simple\nlate https://<redacted>@host/simple\n")
    assert failed.value.tail[-1] == "late https://<redacted>@host/simple"


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "log").symlink_to(tmp_path / "theirs")
    with pytest.raises(Exception, match="log"):
        _run(tmp_path, "echo", "hello")
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_pip_of_the_folder_that_we_are_in_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("print('FOREIGN')")
    (tmp_path / "constraints.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    ended = _run(tmp_path, sys.executable, "-m", "pip", "--version", PIP_CONSTRAINT="constraints.txt")
    assert (ended.status, "FOREIGN" in "".join(ended.tail)) == (0, False)


def test_relative_files_of_pips_variables_stay_those_of_the_folder_that_we_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)
    found = variables_for(("python", "-m", "pip"), {"PIP_FIND_LINKS": "wheels https://host/links", "A": "wheels"})
    assert found == {"PIP_FIND_LINKS": f"{tmp_path}/wheels https://host/links", "A": "wheels"}


def test_an_install_from_a_list_has_no_variable_that_names_another_place() -> None:
    given = {
        "PIP_INDEX_URL": "x",
        "UV_FIND_LINKS": "x",
        "pip_no_binary": "x",
        "UV_CACHE_DIR": "/cache",
        "HOME": "/root",
    }
    found = variables_for(("python", "-m", "pip", "install", *PIP_FLAGS, "/wheels"), given)
    assert found == {"UV_CACHE_DIR": "/cache", "HOME": "/root", "PIP_CONFIG_FILE": "/dev/null"}


def test_a_login_goes_through_the_environment_beside_what_is_set_there() -> None:
    address = f"https://bob:{PASSWORD}@host/simple"
    found = logins_for((address,), {"PIP_EXTRA_INDEX_URL": "https://other/simple"})
    assert found == {"PIP_EXTRA_INDEX_URL": f"https://other/simple {address}", "UV_EXTRA_INDEX_URL": address}
    assert logins_for(("https://host/simple",), {}) == {}
