"""A bundle that somebody changed is refused before anything is begun; a folder of wheels gives its wheels alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from firstlight.cli.offline import shelf_for
from firstlight.errors import BadInput
from firstlight.ways.listed import listed_in
from tests.apply.hostile import REFUSED, TARGET, evil_source, evil_wheel, good_bundle
from tests.apply.wheels import make_wheel


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return good_bundle(tmp_path_factory.mktemp("good"))


def test_a_bundle_that_nobody_touched_lists_its_wheels(bundle: Path) -> None:
    shelf = shelf_for(str(bundle), TARGET)
    assert [each.wheel.name for each in shelf.wheels] == sorted(path.name for path in bundle.glob("*.whl"))


@pytest.mark.parametrize("change", REFUSED)
def test_a_changed_bundle_is_refused_by_the_name_of_the_file(tmp_path: Path, bundle: Path, change: str) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    REFUSED[change](folder)
    with pytest.raises(BadInput, match=str(folder)):
        shelf_for(str(folder), TARGET)


def test_of_a_plain_folder_the_wheels_are_listed_as_they_lie_there_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    make_wheel(folder, "demo", "1.0", requires=("part",))
    make_wheel(folder, "part", "1.0")
    evil_source(folder, "part-99.tar.gz")
    (folder / "no-wheel.whl").write_text("not even its name is one")
    shelf = shelf_for(str(folder), TARGET)
    lines = tuple(shelf.line(wheel.project, wheel.version) for wheel in shelf.taken_for(("demo==1.0",)))
    assert set(listed_in(shelf.file_for(lines)[1])) == {"demo==1.0", "part==1.0"}


def test_a_page_of_links_in_a_plain_folder_is_refused(tmp_path: Path) -> None:
    make_wheel(tmp_path, "demo", "1.0")
    (tmp_path / "index.html").write_text("<html></html>")
    with pytest.raises(BadInput, match="pip follows the links of such a page"):
        shelf_for(str(tmp_path), TARGET)


def test_a_damaged_wheel_in_a_plain_folder_is_refused_by_its_name(tmp_path: Path) -> None:
    evil_wheel(tmp_path, "other", "1.0", file="demo-1.0-py3-none-any.whl")
    with pytest.raises(BadInput, match=r"says inside that it is 'other' '1\.0', and its name says demo 1\.0"):
        shelf_for(str(tmp_path), TARGET)
