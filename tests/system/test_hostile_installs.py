"""Real pip and uv install from a bundle that is changed after it was looked at, or beside settings that lead elsewhere.

What is changed before is refused (tests/apply/test_hostile_bundle.py); here nothing refuses but the list of digests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.conditions import installed_distributions
from firstlight.apply.executor import StepFailed
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.cli.offline import shelf_for, with_installed
from firstlight.errors import CouldNotAct
from firstlight.ways.offline import offline
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import acting, step
from tests.apply.hostile import EVIL, GOOD, PART, TARGET, evil_source, evil_wheel, good_bundle
from tests.apply.wheels import make_wheel

pytestmark = pytest.mark.system
UV = str(Path(sys.executable).with_name("uv"))
TOOLS = ("pip", "uv")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return good_bundle(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
    return made


@pytest.fixture
def place(tmp_path: Path, bundle: Path, environment: Path) -> Path:
    """A copy of the bundle and of the environment."""
    shutil.copytree(bundle, tmp_path / "bundle")
    shutil.copytree(environment, tmp_path / "venv", symlinks=True)
    return tmp_path


def _python(place: Path) -> str:
    return str(place / "venv/bin/python")


def _install(python: str, tool: str, *wanted: str) -> Step:
    done = (Condition(CheckKind.DISTRIBUTIONS, python, "\n".join(wanted)),)
    if tool == "uv":
        return step("01-install", kind=StepKind.UV, done_when=done,
                    commands=((UV, "pip", "install", "--python", python, *wanted),))  # fmt: skip
    return step("01-install", kind=StepKind.PIP, done_when=done, commands=((python, "-m", "pip", "install", *wanted),))


def _planned(place: Path, tool: str, *wanted: str) -> Step:
    shelf = with_installed(shelf_for(str(place / "bundle"), TARGET), _python(place))
    return offline(_install(_python(place), tool, *wanted), replace(shelf, lists=str(place / "lists")))


def _act(place: Path, planned: Step, **env: str) -> None:
    doing = replace(acting(place), env={"PATH": os.environ["PATH"], "HOME": str(place), **env})
    act(doing, Asked((planned,), "d", "o", "t"))


def _there(place: Path) -> set[str]:
    """What is installed; code of somebody else ends the test."""
    site = next((place / "venv/lib").glob("python3*/site-packages"))
    assert not (place / "mark").exists(), "an sdist was built"
    assert not [path for path in site.glob("*/__init__.py") if path.read_text().startswith(EVIL)]
    return set(installed_distributions(_python(place)) or ()) & {*GOOD, "part==99", "demo==99", "extra==99"}


def _instead(folder: Path, make: Callable[[], object]) -> None:
    (folder / PART).unlink()
    make()


AFTERWARDS: dict[str, Callable[[Path], object]] = {
    "a wheel swapped": lambda folder: evil_wheel(folder, "part", "1.0"),
    "a build tag": lambda folder: evil_wheel(folder, "part", "1.0", file="part-1.0-7-py3-none-any.whl"),
    "a newer wheel and no old one": lambda folder: _instead(folder, lambda: evil_wheel(folder, "part", "99")),
    "an sdist in its place": lambda folder: _instead(folder, lambda: evil_source(folder, "part-1.0.tar.gz")),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("change", AFTERWARDS)
def test_what_is_changed_after_it_was_listed_is_not_installed(place: Path, change: str, tool: str) -> None:
    planned = _planned(place, tool, "demo==1.0")
    AFTERWARDS[change](place / "bundle")
    with pytest.raises(StepFailed, match="command 1 of 1 ended with status"):
        _act(place, planned, UV_CACHE_DIR=str(place / "cache"))
    assert _there(place) == set()


def _elsewhere(place: Path) -> Path:
    folder = place / "elsewhere"
    folder.mkdir()
    for name in ("demo", "part", "extra"):
        evil_wheel(folder, name, "99")
        evil_wheel(folder, name, "1.0")
    evil_source(folder, "part-1.0.tar.gz")
    return folder


def _variables(place: Path) -> dict[str, str]:
    folder = str(_elsewhere(place))
    return {
        "PIP_FIND_LINKS": folder, "PIP_NO_BINARY": ":all:", "PIP_NO_INDEX": "0", "PIP_REQUIRE_HASHES": "0",
        "PIP_ONLY_BINARY": ":none:", "PIP_PRE": "1", "PIP_UPGRADE": "1", "UV_FIND_LINKS": folder,
        "UV_NO_BINARY": "1", "UV_REQUIRE_HASHES": "0", "UV_INDEX_URL": f"file://{folder}",
    }  # fmt: skip


def _constraints(place: Path) -> dict[str, str]:
    folder = _elsewhere(place)
    file = place / "constraints.txt"
    file.write_text(f"part @ {(folder / PART).as_uri()}\n")
    return {"PIP_CONSTRAINT": str(file), "UV_OVERRIDE": str(file), "UV_CONSTRAINT": str(file), "PIP_REQUIREMENT": "x"}


def _settings(place: Path) -> dict[str, str]:
    folder = _elsewhere(place)
    text = f"[global]\nfind-links = {folder}\nno-binary = :all:\n[install]\nrequirement = {place}/more.txt\n"
    (place / "more.txt").write_text("part==99\n")
    for path in (place / "pip.conf", place / ".config/pip/pip.conf", place / "venv/pip.conf"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (place / ".config/uv").mkdir()
    (place / ".config/uv/uv.toml").write_text(f'[pip]\nfind-links = ["{folder}"]\nno-binary = [":all:"]\n')
    return {"PIP_CONFIG_FILE": str(place / "pip.conf"), "UV_CONFIG_FILE": str(place / ".config/uv/uv.toml")}


def _programs(place: Path) -> dict[str, str]:
    """What python -m pip, and uv, would take from the folder that they are started in."""
    code = f"open({str(place / 'mark')!r}, 'w')\n"
    for name in ("pip.py", "json.py", "re.py", "setup.py", "sitecustomize.py"):
        (place / "bundle" / name).write_text(code)
    (place / "bundle/uv.toml").write_text(f'find-links = ["{_elsewhere(place)}"]\n')
    (place / "bundle/deeper").mkdir()
    evil_wheel(place / "bundle/deeper", "part", "1.0")
    return {}


def _cache(place: Path) -> dict[str, str]:
    """A cache that holds somebody else's build of the same file name."""
    folder, cache = _elsewhere(place), str(place / "cache")
    env = {**os.environ, "UV_CACHE_DIR": cache, "HOME": str(place)}
    argv = (UV, "pip", "install", "--quiet", "--target", str(place / "x"), "--no-index", "--find-links", str(folder))
    subprocess.run([*argv, "part==1.0"], check=True, env=env)
    return {"UV_CACHE_DIR": cache}


BESIDE = {
    "variables": _variables,
    "constraints": _constraints,
    "settings": _settings,
    "programs": _programs,
    "a cache": _cache,
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("beside", BESIDE)
def test_settings_and_folders_of_others_bring_nothing_in(
    place: Path, beside: str, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = BESIDE[beside](place)
    monkeypatch.chdir(place / "bundle")
    _act(place, _planned(place, tool, "demo==1.0"), **env)
    assert _there(place) == GOOD


@pytest.mark.parametrize("tool", TOOLS)
def test_undo_takes_versions_of_before_from_the_same_list_and_refuses_others(place: Path, tool: str) -> None:
    wheels, python = place / "bundle", _python(place)
    (wheels / "bundle.json").unlink()
    (wheels / "download.log").unlink()
    make_wheel(wheels, "demo", "2.0", requires=("part",))
    _act(place, _planned(place, tool, "demo==1.0"))
    before, lists = installed_distributions(python), sorted((place / "lists").glob("*"))
    _act(place, _planned(place, tool, "demo==2.0"))
    assert "demo==2.0" in (installed_distributions(python) or ())
    good = (wheels / "demo-1.0-py3-none-any.whl").read_bytes()
    evil_wheel(wheels, "demo", "1.0")
    doing = acting(place)
    [run] = newest_to_undo(doing)
    with pytest.raises(CouldNotAct, match="ended with status"):
        undo(doing, run)
    _there(place)
    (wheels / "demo-1.0-py3-none-any.whl").write_bytes(good)
    [run] = newest_to_undo(doing)
    undo(doing, run)
    assert installed_distributions(python) == before
    assert sorted((place / "lists").glob("*")) == lists
