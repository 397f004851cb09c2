"""The list of allowed commands: its words in the project's folder, and nothing that leads elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guard.projects import decide, project

ALLOWS = '[commands]\nmode = "allow-list"\nallow = ["make build", "python bench.py"]\n'


@pytest.mark.parametrize(
    "text",
    [
        "make build -sf/tmp/evil.mk", "make build -kC/tmp", "make build -wC/tmp", "make build -Bf /tmp/evil.mk",
        "make build -j8f/tmp/evil.mk", "make build --jobserver-auth=x", "make build -Oline -Itmp", "make build 8",
        "cd /tmp; make build", "cd /tmp && make build", "cd /tmp && python bench.py", "cd sub && make build",
        "cd $X; make build", "(cd /tmp; make build)", "make build -sw evil", "make -s -C /tmp build",
    ],
)  # fmt: skip
def test_a_listed_command_with_other_flags_or_in_another_folder_is_another_command(text: str, tmp_path: Path) -> None:
    where = project(
        tmp_path, ALLOWS, Makefile="build:\n\techo\n", **{"bench.py": "", "sub/Makefile": "build:\n\techo\n"}
    )
    assert not decide(text, where).allowed


@pytest.mark.parametrize(
    "text",
    [
        "make build", "make -j8 build", "make -j 8 build", "make build -sk", "make -kj4 build",
        "make build --jobs=4 N=4",
        "cd . && make build", "cd sub; cd .. && make build", "make -Otarget build", "python bench.py --n 4",
    ],
)  # fmt: skip
def test_a_listed_command_with_its_own_flags_runs(text: str, tmp_path: Path) -> None:
    where = project(
        tmp_path, ALLOWS, Makefile="build:\n\techo\n", **{"bench.py": "", "sub/Makefile": "build:\n\techo\n"}
    )
    assert decide(text, where).allowed
