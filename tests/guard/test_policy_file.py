"""The policy file: every key is known or refused with its line and the nearest one."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.errors import BadInput
from firstlight.guard.policy import parse_policy, read_policy
from tests.guard.projects import decide, project


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[bann]\npackages = ["triton"]\n', "Did you mean ban?"),
        ('[ban]\npackage = ["triton"]\n', "firstlight.toml:2: '[ban] package' is not a key"),
        ('[commands]\nmode = "allowlist"\n', "accepted: deny-list or allow-list. Did you mean allow-list?"),
        ('[commands]\nmode = "allow-list"\n', "without `allow`: nothing could run"),
        ('[ban]\npackages = "triton"\n', "[ban] packages is a text; accepted: a list"),
        ("[ban]\npackages = [3]\n", "holds '3'"),
        ('[ban]\npackages = ["tri ton"]\n', "is not a requirement"),
        ('[pin]\narchs = ["hopper"]\n', "accepted: sm_90a"),
        ('[pin]\ntoolkit = "thirteen"\n', "a release such as 13.0"),
        ('[commands]\ncontainer = "yes"\n', "accepted: true or false"),
        ("[ban\n", "not TOML"),
        ("<<<<<<< HEAD\n[ban]\n=======\n[pin]\n>>>>>>> b\n", "firstlight.toml:1: two versions of the policy"),
        ('require = "nowhere.toml"\n', "nowhere.toml cannot be read"),
        ("[" * 5000, "firstlight.toml: n"),
    ],
)
def test_a_policy_that_is_wrong_is_refused_with_what_is_right(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refused:
        parse_policy(text, str(tmp_path / "firstlight.toml"))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_windows_line_ends_are_fine(tmp_path: Path) -> None:
    assert (
        parse_policy('[ban]\r\npackages = ["triton"]\r\n', str(tmp_path / "firstlight.toml")).bans[0].name == "triton"
    )


def test_a_deny_names_the_line_of_the_policy(tmp_path: Path) -> None:
    where = project(tmp_path, '[pin]\ntoolkit = "13.0"\n\n[ban]\npackages = [\n  "xformers",\n  "triton",\n]\n')
    assert decide("pip install triton", where).denied[0].line == 7
    assert decide("apt install cuda-toolkit-12-8", where).denied[0].line == 2


def test_versions_may_be_a_list_or_a_table(tmp_path: Path) -> None:
    for text in ('versions = ["numpy>=2.3"]', 'versions = { numpy = ">=2.3" }', 'packages = ["numpy>=2.3"]'):
        where = project(tmp_path, f"[ban]\n{text}\n")
        assert not decide("pip install numpy==2.3.1", where).allowed
        assert not decide("pip install 'numpy>=2'", where).allowed
        assert not decide("pip install numpy", where).allowed
        assert decide("pip install 'numpy<2.3'", where).allowed
        assert decide("pip install numpy==2.2.6", where).allowed


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[ban]\n\0", b"x" * (2 << 20)])
def test_a_policy_that_is_no_text_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "firstlight.toml"
    path.write_bytes(data)
    with pytest.raises(BadInput):
        read_policy(str(path))
