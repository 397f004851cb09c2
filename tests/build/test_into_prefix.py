"""--prefix with the real pip: the environment keeps its copy, and undo leaves the prefix as it was to the byte."""

from __future__ import annotations

import os
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.build.into_prefix import install_into_prefix, ledger_path, take_out
from firstlight.build.keys import digest_of_file, holds, is_installed, mark_done
from firstlight.build.planning import install_step
from firstlight.build.proving import prove
from firstlight.build.spec import BuildSpec, Stage
from firstlight.errors import CouldNotAct
from firstlight.ways.back import BackKind
from tests.build.standin import make_environment
from tests.build.test_build_sources import spec_in


def wheel_of(folder: Path, version: str, text: str) -> Path:
    """A wheel with a module, a package, a program and a data file, as finish_wheel leaves one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"standin-{version}-py3-none-any.whl"
    files = {
        "standin/__init__.py": text,
        f"standin-{version}.data/data/share/standin/table.txt": text,
        f"standin-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: standin\nVersion: {version}\n",
        f"standin-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"standin-{version}.dist-info/entry_points.txt": "[console_scripts]\nstandin-tool = standin:main\n",
        f"standin-{version}.dist-info/firstlight-build.json": f'"{version} {text}"',
    }
    listed = "".join(f"{name},,\n" for name in (*files, f"standin-{version}.dist-info/RECORD"))
    with zipfile.ZipFile(path, "w") as file:
        for name, data in (*files.items(), (f"standin-{version}.dist-info/RECORD", listed)):
            file.writestr(name, data)
    return path


def built(base: Path, python: Path, version: str, text: str) -> BuildSpec:
    """A build whose wheel is finished and that is to go below base/prefix."""
    spec = spec_in(
        base / f"build-{version}", name="standin", version=version, python=str(python), prefix=str(base / "prefix"),
        local="", sms=(),
    )  # fmt: skip
    wheel = wheel_of(Path(spec.wheels), version, text)
    mark_done(spec, Stage.WHEEL, {"file": wheel.name, "sha256": digest_of_file(str(wheel))})
    return spec


def bytes_below(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(each.relative_to(folder)): (each.stat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in folder.rglob("*")
    }


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has standin 0.9 itself, and may not lose it."""
    base = tmp_path_factory.mktemp("env")
    python = make_environment(base / "env")
    wheel = wheel_of(base, "0.9", "own = True\n")
    argv = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(argv, check=True)
    return python


def test_a_prefix_gets_the_wheel_and_the_environment_keeps_its_copy(python: Path, tmp_path: Path) -> None:
    site = python.parent.parent
    before = bytes_below(site)
    spec = built(tmp_path, python, "1.0", "new = 1\n")
    install_into_prefix(spec)
    assert bytes_below(site) == before
    assert is_installed(spec)
    assert (tmp_path / "prefix/bin/standin-tool").exists()
    assert (tmp_path / "prefix/share/standin/table.txt").read_text() == "new = 1\n"
    take_out(ledger_path(spec))
    assert not (tmp_path / "prefix").exists()
    take_out(ledger_path(spec))  # a second time there is nothing to do


def test_what_was_below_the_prefix_comes_back_to_the_byte(python: Path, tmp_path: Path) -> None:
    first, second = built(tmp_path, python, "1.0", "new = 1\n"), built(tmp_path, python, "2.0", "new = 2\n")
    (tmp_path / "prefix/share/standin").mkdir(parents=True)
    (tmp_path / "prefix/share/standin/table.txt").write_text("somebody's own\n")
    (tmp_path / "prefix/share/standin/more.txt").write_text("also theirs\n")
    at_first = bytes_below(tmp_path / "prefix")
    install_into_prefix(first)
    after_first = bytes_below(tmp_path / "prefix")
    install_into_prefix(second)
    assert is_installed(second)
    assert not list((tmp_path / "prefix").rglob("standin-1.0.dist-info/*")), "one copy, not two"
    module = next((tmp_path / "prefix").rglob("standin/__init__.py"))
    subprocess.run([str(python), "-c", "import standin"], env={"PYTHONPATH": str(module.parent.parent)}, check=True)
    assert list(module.parent.rglob("*.pyc"))
    take_out(ledger_path(second))
    assert bytes_below(tmp_path / "prefix") == after_first
    take_out(ledger_path(first))
    assert bytes_below(tmp_path / "prefix") == at_first


def test_killed_at_any_copy_the_old_files_are_not_lost(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = built(tmp_path, python, "1.0", "new = 1\n"), built(tmp_path, python, "2.0", "new = 2\n")
    install_into_prefix(first)
    before = bytes_below(tmp_path / "prefix")
    real, left = os.replace, 0

    def dies(source: str, target: str) -> None:
        nonlocal left
        if not target.endswith("ledger.json"):
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
        real(source, target)

    for at in (3, 14):
        left = at
        monkeypatch.setattr(os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            install_into_prefix(second)
        monkeypatch.setattr(os, "replace", real)
        take_out(ledger_path(second))
        assert bytes_below(tmp_path / "prefix") == before, at


def test_a_file_that_somebody_changed_since_stops_the_way_back(python: Path, tmp_path: Path) -> None:
    spec = built(tmp_path, python, "1.0", "new = 1\n")
    install_into_prefix(spec)
    table = tmp_path / "prefix/share/standin/table.txt"
    table.write_text("edited\n")
    before = bytes_below(tmp_path / "prefix")
    with pytest.raises(CouldNotAct, match="was changed since"):
        take_out(ledger_path(spec))
    assert bytes_below(tmp_path / "prefix") == before
    with pytest.raises(CouldNotAct, match="gone with the folder"):
        take_out(ledger_path(replace(spec, folder="/nowhere")))


def test_the_step_names_its_ledger_as_its_way_back(tmp_path: Path) -> None:
    spec = spec_in(tmp_path, prefix=str(tmp_path / "prefix"))
    step = install_step(spec, "/usr/bin/python3")
    assert [(each.kind, each.words) for each in step.back] == [(BackKind.TAKE_OUT_OF_PREFIX, (ledger_path(spec),))]
    assert not any("pip" in argv for argv in step.commands)


def test_a_proof_is_of_one_installation(python: Path, tmp_path: Path) -> None:
    spec = built(tmp_path, python, "1.0", "new = 1\n")
    install_into_prefix(spec)
    prove(spec)
    assert holds(spec, Stage.PROVE)
    assert not holds(replace(spec, prefix=str(tmp_path / "elsewhere")), Stage.PROVE)
    take_out(ledger_path(spec))
    assert not holds(spec, Stage.PROVE)
    install_into_prefix(spec)
    assert not holds(spec, Stage.PROVE), "another copy, which nobody looked at yet"
    assert holds(replace(spec, wheel_only=True), Stage.PROVE) is False
    prove(replace(spec, wheel_only=True))
    assert holds(replace(spec, wheel_only=True), Stage.PROVE)
