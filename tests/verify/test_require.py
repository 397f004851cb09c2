"""A team's list: what it may say, what is refused with its line, and what is held against the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from firstlight.errors import BadInput
from firstlight.verify.check import Met, RequirementResult
from firstlight.verify.require_file import RequirementKind, read_require_file
from firstlight.verify.requirements import results_of_requirements
from tests.verify.standing_in import case_of, facts_of, said

WHOLE = """\
# a team's list
gpus = 1
gpu_name = "H100|H200"
min_driver = "580.65.06"
min_capability = "9.0"
toolkit = ">=13.0,<14"
commands = ["sh", "nosuch-command"]
files = ["/etc/passwd"]

[versions]
torch = ">=2.9,<3"
python = ">=3.10"
click = "==1.0"
nothing-of-this-name = ">=1"

[env]
FIRSTLIGHT_TEST_SET = true
FIRSTLIGHT_TEST_VALUE = "yes"
FIRSTLIGHT_TEST_UNSET = false
"""


def rows(tmp_path: Path, text: str, machine: str = "h200") -> dict[str, RequirementResult]:
    path = tmp_path / "team.toml"
    path.write_text(text)
    done = {"import": said(version="2.11.0+cu130"), "gpus": said(capabilities=[[9, 0]])}
    held = results_of_requirements(read_require_file(str(path)), case_of(tmp_path / "work", facts_of(machine)), done)
    return {row.requirement: row for row in held}


def test_every_requirement_is_a_row_with_needed_and_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTLIGHT_TEST_SET", "a-secret")
    monkeypatch.setenv("FIRSTLIGHT_TEST_VALUE", "no")
    found = rows(tmp_path, WHOLE)
    met = {name: row.met for name, row in found.items()}
    assert [name for name, value in met.items() if value is not Met.YES] == [
        "nosuch-command",
        "click",
        "nothing-of-this-name",
        "FIRSTLIGHT_TEST_VALUE",
    ]
    assert (found["torch"].needed, found["torch"].given) == (">=2.9,<3", "2.11.0+cu130")
    assert found["min_driver"].given.startswith("580.")
    assert found["nothing-of-this-name"].given == "not installed"
    assert found["click"].line == 13
    assert found["FIRSTLIGHT_TEST_SET"].given == "set"
    assert "a-secret" not in str(found)


def test_a_machine_without_a_gpu_meets_none_of_its_requirements(tmp_path: Path) -> None:
    text = 'gpus = 1\ngpu_name = "H100"\nmin_driver = "580"\nmin_capability = "9.0"\n'
    path = tmp_path / "team.toml"
    path.write_text(text)
    held = results_of_requirements(read_require_file(str(path)), case_of(tmp_path, facts_of("gpu-less")), {})
    assert [row.met for row in held] == [Met.NO] * 4


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_a_checkout_is_held_to_its_tag_and_its_commit(tmp_path: Path) -> None:
    tree = tmp_path / "cutlass"
    tree.mkdir()
    git(tree, "init", "-q")
    git(tree, "commit", "-q", "--allow-empty", "-m", "one")
    git(tree, "tag", "v4.3.0")
    git(tree, "tag", "-a", "-m", "annotated", "v4.3.0-signed")
    first = subprocess.run(["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    text = (
        "[checkouts]\n"
        f'good = {{ path = "{tree}", tag = "v4.3.0" }}\n'
        f'annotated = {{ path = "{tree}", tag = "v4.3.0-signed" }}\n'
        f'unknown = {{ path = "{tree}", tag = "v9.9.9" }}\n'
        f'commit = {{ path = "{tree}", commit = "{first.stdout[:10]}" }}\n'
        f'absent = {{ path = "{tree}-not", tag = "v4.3.0" }}\n'
        f'plain = {{ path = "{tmp_path}", tag = "v4.3.0" }}\n'
    )
    found = {name.split(" at ")[0]: row for name, row in rows(tmp_path, text).items()}
    assert {name: row.met for name, row in found.items()} == {
        "good": Met.YES,
        "annotated": Met.YES,
        "unknown": Met.NO,
        "commit": Met.YES,
        "absent": Met.NO,
        "plain": Met.NO,
    }
    git(tree, "commit", "-q", "--allow-empty", "-m", "two")
    moved = {name.split(" at ")[0]: row for name, row in rows(tmp_path, text).items()}
    assert (moved["good"].met, moved["commit"].met) == (Met.NO, Met.NO)
    assert "no tag" in moved["good"].given


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gpus = 1\nmin_driver = \n", "line 2: Invalid value"),
        ("gpus = 1\ngpus = 2\n", "line 2: Cannot overwrite a value"),
        ("gpus = 1\n[versions\n", "line 2:"),
        ('gpus = 1\nname = "unfinished', "line 2"),
        ("\n\ngpu = 1\n", "line 3: 'gpu' is not a requirement; accepted: gpus, "),
        ('gpus = "1"\n', "line 1: gpus is '1'; accepted: a whole number"),
        ("gpus = true\n", "line 1: gpus is True"),
        ('min_driver = "new"\n', "line 1: 'new' is not a driver version"),
        ('min_capability = "hopper"\n', "line 1: 'hopper' is not a compute capability"),
        ('gpu_name = "H100("\n', "line 1: gpu_name is not a regular expression"),
        ('commands = "git"\n', "line 1: commands is 'git'; accepted: a list"),
        ('[versions]\ntorch = "2.9"\ntriton = ">> 3"\n', "line 3: triton is '>> 3'; accepted: version bounds"),
        ("[versions]\n\ntorch = 2.9\n", "line 3: torch is 2.9; accepted: version bounds in quotes"),
        ('gpus = 1\nversions = "torch"\n', "line 2: versions is 'torch'; accepted: a table"),
        ('[checkouts]\ncutlass = { path = "/opt/cutlass" }\n', "line 2: cutlass is"),
        ('[checkouts.cutlass]\npath = "/opt"\ncommit = "main"\n', "line 1: commit is 'main'; accepted: 7 to 40"),
        ("[env]\nHOME = 1\n", "line 2: HOME is 1; accepted: a value in quotes, true or false"),
        ('[binaries]\n"a.so" = "hopper"\n', "line 2: a.so is 'hopper'; accepted: an architecture"),
        ("", "no requirement in it"),
        ("x = " + "[" * 3000 + "]" * 3000, "team.toml"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "team.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as refused:
        read_require_file(str(path))
    assert told in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"gpus = 1\n\xff\xfe\n")
    with pytest.raises(BadInput, match="line 2: not UTF-8"):
        read_require_file(str(tmp_path / "bytes.toml"))
    with pytest.raises(BadInput, match="No such file"):
        read_require_file(str(tmp_path / "none.toml"))
    with pytest.raises(BadInput, match="it is a folder, not a file"):
        read_require_file(str(tmp_path))


def test_a_bare_version_means_exactly_that_version(tmp_path: Path) -> None:
    path = tmp_path / "team.toml"
    path.write_text('[versions]\ntorch = "2.9.0"\n')
    [requirement] = read_require_file(str(path))
    assert (requirement.kind, requirement.needed) == (RequirementKind.VERSION, "==2.9.0")
    assert rows(tmp_path, '[versions]\ntorch = "2.11.0"\n')["torch"].met is Met.YES
    assert rows(tmp_path, '[versions]\ntorch = "==2.11.0+cu128"\n')["torch"].met is Met.NO


def test_a_binary_must_hold_the_code_named(tmp_path: Path) -> None:
    found = rows(tmp_path, '[binaries]\n"/proc/self/exe" = "sm_90a"\n')
    assert found["/proc/self/exe"].met is Met.NO
    assert "no CUDA code" in found["/proc/self/exe"].given
