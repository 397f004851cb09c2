"""An edit of a shell file is tried by its shell before it is written; what would break it is left to a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.apply.edit_proof import why_not, with_tried_edits
from firstlight.apply.parts import Parts
from firstlight.apply.runs import STEP_BEGUN
from firstlight.apply.session import Asked, act
from firstlight.errors import CouldNotAct
from firstlight.ways.building import written
from firstlight.ways.step import FileChange, Step
from tests.apply.acting import acting, step

C = "/usr/local/cuda/compat"
SET = f"export LD_LIBRARY_PATH={C}:/b"


def _change(folder: Path, before: str, after: str, *, name: str = ".bashrc") -> FileChange:
    return FileChange(str(folder / name), before, after, takes_out=(C,))


def _step(change: FileChange) -> Step:
    return step("edit-it", files=(change,), done_when=(written(change),))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (f"if true; then\n{SET}\nfi\n", "if true; then\nfi\n", "would not parse it any more"),
        (f"if true; then\n{SET}\n", "if true; then\nexport LD_LIBRARY_PATH=/b\n", "it does not parse as it is"),
        (f"{SET}\n", "", "LD_LIBRARY_PATH would be empty in a new shell, not /b"),
        (f"{SET}\n", "export LD_LIBRARY_PATH=/b:/c\n", "LD_LIBRARY_PATH would be /b:/c in a new shell, not /b"),
        (f"{SET}\n", "export LD_LIBRARY_PATH=:/b\n", "would have an empty element"),
        (f"{SET}\nexport A=1\n", "export LD_LIBRARY_PATH=/b\nexport A=2\n", "A would change with it"),
        (f"{SET}\necho hello\n", "export LD_LIBRARY_PATH=/b\n", "a new bash would print something else"),
        (f"{SET}\n", "export LD_LIBRARY_PATH=/b\nexit 3\n", "a new bash would end before it is ready"),
        (f"{SET}\nexit\n", "export LD_LIBRARY_PATH=/b\nexit\n", "a new bash that reads it ends before it can be asked"),
    ],
)
def test_an_edit_that_breaks_the_file_is_refused(before: str, after: str, reason: str, tmp_path: Path) -> None:
    assert reason in why_not(_change(tmp_path, before, after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"if true; then\n{SET}\nfi\n", "if true; then\nexport LD_LIBRARY_PATH=/b\nfi\n"),
        (f"export NOW=$RANDOM$$\n{SET}\necho $$\n", "export NOW=$RANDOM$$\nexport LD_LIBRARY_PATH=/b\necho $$\n"),
        (f". ~/.profile\n. ~/tools/env\n{SET}\n", ". ~/.profile\n. ~/tools/env\nexport LD_LIBRARY_PATH=/b\n"),
    ],
)  # fmt: skip
def test_an_edit_that_says_what_it_should_may_be_written(before: str, after: str, tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("exit 1\n")  # read by itself; beside the file on trial it is empty
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/env").write_text("export TOOLS=1\n")
    change = _change(tmp_path, before, after)
    assert why_not(change) == ""


def test_the_executor_writes_nothing_and_begins_nothing_where_the_edit_breaks_the_file(tmp_path: Path) -> None:
    before = f"if true; then\n{SET}\nfi\n"
    (tmp_path / ".bashrc").write_text(before)
    doing = acting(tmp_path)
    with pytest.raises(CouldNotAct, match=f"edit line 2 by hand.*Line 2: {SET}"):
        act(doing, Asked((_step(_change(tmp_path, before, "if true; then\nfi\n")),), "d" * 16, "remove:x", "x"))
    assert (tmp_path / ".bashrc").read_text() == before
    assert STEP_BEGUN not in [record.event for record in doing.journal.records]


def test_a_plan_goes_on_without_the_edit_that_was_refused(tmp_path: Path) -> None:
    bad = _step(_change(tmp_path, f"A=1\n{SET}\n", "A=1\n"))
    good = _step(_change(tmp_path, f"{SET}\n", "export LD_LIBRARY_PATH=/b\n"))
    parts = with_tried_edits(Parts((bad, good), (), (), ()))
    assert parts.ours == (good,)
    assert parts.unfinished
    (told,) = parts.persons
    assert told.commands == (("sed", "-n", "2p", str(tmp_path / ".bashrc")),)
    assert "Not written: LD_LIBRARY_PATH would be empty" in told.note


def test_a_file_of_names_and_values_is_read_as_pam_reads_it(tmp_path: Path) -> None:
    before = f'A=1\nLD_LIBRARY_PATH="{C}:/b"\n'
    assert why_not(_change(tmp_path, before, 'A=1\nLD_LIBRARY_PATH="/b"\n', name=".pam_environment")) == ""
    assert why_not(_change(tmp_path, before, "A=1\n", name=".pam_environment")) != ""
    assert "A would change" in why_not(_change(tmp_path, before, "LD_LIBRARY_PATH=/b\n", name=".pam_environment"))


def test_a_script_of_our_own_has_to_parse(tmp_path: Path) -> None:
    path = str(tmp_path / "state/tuning.sh")
    assert why_not(FileChange(path, "", "export A='1\n")) != ""
    assert why_not(FileChange(path, "export B=1\n", "export A=1\n")) == ""
    assert why_not(FileChange(str(tmp_path / "pyproject.toml"), "", "a = '1\n")) == ""


def test_a_file_that_others_can_write_is_not_run(tmp_path: Path) -> None:
    file = tmp_path / ".bashrc"
    before = f"touch {tmp_path}/ran\nexport LD_LIBRARY_PATH=/c/compat:/b\n"
    file.write_text(before)
    file.chmod(0o666)
    change = FileChange(str(file), before, before.replace("/c/compat:", ""), takes_out=("/c/compat",))
    assert why_not(change) == "others can write to it (mode 0666), and what others wrote is not run here"
    assert not (tmp_path / "ran").exists()
