"""Lines that set LD_LIBRARY_PATH are taken apart and put together; anything that is not one plain line stays."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from firstlight.shells.library_path import without_folders

COMPAT = "/usr/local/cuda-13.0/compat"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"export LD_LIBRARY_PATH={COMPAT}:$LD_LIBRARY_PATH\n", ""),
        (f"export LD_LIBRARY_PATH={COMPAT}\n", ""),
        (f'LD_LIBRARY_PATH="{COMPAT}:/opt/lib"\n', 'LD_LIBRARY_PATH="/opt/lib"\n'),
        (f"LD_LIBRARY_PATH=/a:{COMPAT}/:$LD_LIBRARY_PATH  # c\n", "LD_LIBRARY_PATH=/a:$LD_LIBRARY_PATH  # c\n"),
        (f"export LD_LIBRARY_PATH={COMPAT}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\n", ""),
        (
            f"export LD_LIBRARY_PATH=/a:{COMPAT}${{LD_LIBRARY_PATH:+:${{LD_LIBRARY_PATH}}}}\n",
            "export LD_LIBRARY_PATH=/a${LD_LIBRARY_PATH:+:${LD_LIBRARY_PATH}}\n",
        ),
        ("H=/usr/local/cuda-13.0\nLD_LIBRARY_PATH=$H/compat:/b\n", "H=/usr/local/cuda-13.0\nLD_LIBRARY_PATH=/b\n"),
        ("H=/usr/local\nC=${H}/cuda-13.0\nLD_LIBRARY_PATH=$C/compat\n", "H=/usr/local\nC=${H}/cuda-13.0\n"),
        (f"LD_LIBRARY_PATH={COMPAT}:/b", "LD_LIBRARY_PATH=/b"),
        (f"LD_LIBRARY_PATH={COMPAT}:/b\r\nx=1\r\n", "LD_LIBRARY_PATH=/b\r\nx=1\r\n"),
    ],
)  # fmt: skip
def test_the_folder_goes_and_the_rest_of_the_line_stays(before: str, after: str) -> None:
    assert without_folders(before, (COMPAT,)).text == after


@pytest.mark.parametrize(
    "line",
    [
        f"# export LD_LIBRARY_PATH={COMPAT}\n",
        f"LD_LIBRARY_PATH={COMPAT} python train.py\n",
        f"setenv LD_LIBRARY_PATH {COMPAT}\n",
        f"export LD_LIBRARY_PATH={COMPAT}-old\n",
        f"export LIBRARY_PATH={COMPAT}\n",
        "export LD_LIBRARY_PATH=$UNKNOWN/compat\n",
    ],
)
def test_a_line_that_is_not_one_plain_assignment_of_it_is_left_alone(line: str) -> None:
    edited = without_folders(line, (COMPAT,))
    assert edited.text == line
    assert edited.lines_taken_out == ()


_FOLDERS = st.lists(st.sampled_from([COMPAT, "/a", "/b/lib", "/c"]), min_size=1, max_size=5)
_TAILS = st.sampled_from(["", ":$LD_LIBRARY_PATH", "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"])


@given(folders=_FOLDERS, tail=_TAILS, mark=st.sampled_from(["", '"']))
def test_a_real_shell_sees_the_same_path_without_the_folder(folders: list[str], tail: str, mark: str) -> None:
    assume(tail or set(folders) != {COMPAT})  # a line that set nothing else goes whole: what was before it holds again
    before = f"export LD_LIBRARY_PATH={mark}{':'.join(folders)}{tail}{mark}\n"
    after = without_folders(before, (COMPAT,)).text
    kept = [each for each in _seen_by_sh(before) if each != COMPAT]
    assert [each for each in _seen_by_sh(after) if each] == [each for each in kept if each]


def _seen_by_sh(text: str) -> list[str]:
    done = subprocess.run(
        ["sh", "-c", f'{text}\nprintf %s "$LD_LIBRARY_PATH"'],
        env={"LD_LIBRARY_PATH": "/there"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split(":")
