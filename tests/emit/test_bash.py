"""pod_setup.sh as a text: what it holds, that shells read it, and that nothing from outside gets in."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.emit.bash import NAME, emit_bash, environment_key, wiring_in
from firstlight.emit.subject import Choices, Subject
from firstlight.errors import BadInput
from firstlight.ways.start_script import wire_script
from tests.emit.made_subjects import for_machine, for_words
from tests.emit.subjects import write
from tests.programs import SHELLCHECK

SHAPES = {
    "compat": ("H100, driver >= 550", ("torch==2.9.0+cu130",)),
    "plain": ("H100, driver >= 550", ()),
    "two-indexes": ("H100, driver 580", ("vllm",)),
    "cpu": ("H100, driver 580", ("torch==2.13.0+cpu",)),
}


def _subject(shape: str, volume: str = "/workspace") -> Subject:
    text, wants = SHAPES[shape]
    return for_words(text, *wants, choices=Choices(volume=volume))


def _text(subject: Subject) -> str:
    [file] = emit_bash(subject).files
    assert (file.name, file.mode) == (NAME, 0o755)
    return file.text


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("volume", ["/workspace", "/my disk/ünï"])
def test_shells_read_it(shape: str, volume: str, tmp_path: Path) -> None:
    script = tmp_path / NAME
    script.write_text(_text(_subject(shape, volume)))
    for shell in (("sh",), ("bash", "--posix"), ("bash",)):
        done = subprocess.run([*shell, "-n", str(script)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("shape", SHAPES)
def test_shellcheck_has_nothing_to_say(shape: str, tmp_path: Path) -> None:
    script = tmp_path / NAME
    script.write_text(_text(_subject(shape, "/my disk")))
    done = subprocess.run([SHELLCHECK, "--shell=sh", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_same_subject_gives_the_same_bytes() -> None:
    assert _text(_subject("compat")) == _text(_subject("compat"))


def test_the_header_says_tool_plan_and_gates() -> None:
    subject = _subject("compat")
    head = _text(subject).partition("set -eu")[0]
    assert "# Written by firstlight " in head
    assert f"# plan {subject.plan.digest}\n" in head
    assert "driver 580.65.06 or newer" in head
    assert "cuda-compat-13-0 takes driver branches 535, 550" in head


def test_compat_is_decided_at_start_and_never_exported_for_good() -> None:
    subject = _subject("compat")
    text = _text(subject)
    assert wire_script(wiring_in(subject, "/workspace/firstlight")) in text
    assert not re.search(r"^\s*export .*LD_LIBRARY_PATH=/", text, re.MULTILINE)
    assert "ld.so.conf.d/firstlight" not in text
    assert "apt-get install --yes cuda-compat" not in text  # unpacked on the volume, not installed


def test_without_compat_in_the_plan_there_is_none_in_the_file() -> None:
    assert "compat" not in _text(_subject("plain")).partition("set -eu")[2]


def test_later_parts_name_the_torch_of_the_first_again() -> None:
    text = _text(for_machine("h200-no-torch", "torch==2.9.0+cu130", "triton"))
    fetches = re.findall(r"^    fetch (.*)$", text, re.MULTILINE)
    assert len(fetches) == 2
    assert fetches[1].startswith("'' triton==")
    assert "torch==2.9.0+cu130" in fetches[1].split()


def test_two_plans_with_the_same_packages_share_the_environment() -> None:
    one = for_words("H100, driver >= 550", "torch==2.9.0+cu130")
    two = for_words("H100, driver 580", "torch==2.9.0+cu130")
    assert one.plan.digest != two.plan.digest
    assert environment_key(one) == environment_key(two)
    assert environment_key(one) != environment_key(_subject("plain"))


HOSTILE = (
    "a; touch owned",
    "$(touch owned)",
    "`touch owned`",
    "x\ntouch owned\n",
    "x\r\ntouch owned\r\n",
    "'; touch owned; '",
    '"; touch owned; "',
    "END-OF-FIRSTLIGHT-FILE\ntouch owned",
    "\u2028touch owned",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_of_the_machine_or_want_stays_a_comment(text: str, tmp_path: Path) -> None:
    subject = replace(_subject("compat"), made_for=text, wants=(text,), left_out=(text,))
    script = tmp_path / NAME
    written = _text(subject)
    assert written.partition("set -eu")[2] == _text(_subject("compat")).partition("set -eu")[2]
    assert all(line.startswith("#") for line in written.partition("set -eu")[0].split("\n") if line)
    script.write_text(written, newline="")
    done = subprocess.run(["sh", str(script), "--no-such"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_requirement_or_index_stays_one_word(text: str, tmp_path: Path) -> None:
    """No want can be that; what reaches the emitter by another way is quoted all the same."""
    subject = _subject("plain")
    part = replace(subject.parts[0], index=text, requirements=(text,))
    written = _text(replace(subject, parts=(part,)))
    functions = written[: written.index("main() {")]
    calls = 'fetch() { for each; do printf "%s\\0" "$each"; done; }; wheels=.; fetch_packages 2> /dev/null'
    done = subprocess.run(["sh", "-c", f"{functions}\n{calls}"], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == [text, text]
    assert (tmp_path / "requirements.txt").read_bytes().decode() == f"{text}\n"
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("volume", ["relative", "/a b/$(id)", "/x\ny", "/a'b", "/a:b", ""])
def test_a_volume_that_could_mean_something_else_is_refused(volume: str) -> None:
    with pytest.raises(BadInput, match=r"--volume|path"):
        emit_bash(_subject("plain", volume))


def _functions(tmp_path: Path, calls: str, *tools: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run functions of the script with nothing on PATH but some tools and stand-ins, and the state in the folder."""
    written = _text(_subject("compat"))
    functions = written[: written.index("main() {")].replace(
        "state=/workspace/firstlight\n", f"state={tmp_path}/state\n"
    )
    here = tmp_path / "bin"
    here.mkdir()
    for tool in ("sh", "cat", "mkdir", "chmod", "mv", "rm", "grep", "id", "readlink", "cp", *tools):
        (here / tool).symlink_to(str(shutil.which(tool)))
    for name, text in programs.items():
        (here / name).write_text(f"#!/bin/sh\n{text}\n")
        (here / name).chmod(0o755)
    command = ["sh", "-c", f"{functions}\n{calls}"]
    env = {"PATH": str(here), "HOME": str(tmp_path)}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=env)


_NINE = """[ "$*" = "python install --quiet --install-dir $HOME/state/python 9.9" ] || exit 3
mkdir -p "$HOME/state/python/cpython-9.9.1/bin"
printf '#!/bin/sh\\necho 9.9\\n' > "$HOME/state/python/cpython-9.9.1/bin/python9.9"
chmod +x "$HOME/state/python/cpython-9.9.1/bin/python9.9"
"""


def test_uv_brings_python_where_no_package_manager_does(tmp_path: Path) -> None:
    done = _functions(tmp_path, 'pythons=9.9; need_python; echo "$python_minor $python"', uv=_NINE)
    assert done.stdout == f"9.9 {tmp_path}/state/python/cpython-9.9.1/bin/python9.9\n", done.stderr


def test_without_any_way_to_a_python_it_says_which_are_taken(tmp_path: Path) -> None:
    done = _functions(tmp_path, "pythons='9.9 9.8'; need_python; echo never")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Python that torch has wheels for (9.9 9.8)" in done.stderr


def test_a_compiler_that_cannot_be_had_stops_nothing(tmp_path: Path) -> None:
    calls = 'python=fake python_minor=3.12; need_compiler; echo "went on"'
    programs = {"fake": "echo /nowhere", "apt-get": "exit 100", "env": 'shift; exec "$@"'}
    done = _functions(tmp_path, calls, **programs)
    assert done.stdout == "went on\n"
    assert "continuing without g++ python3.12-dev" in done.stderr


def test_a_line_is_put_first_once_and_the_file_stays_what_it_was(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles"
    real.write_text("return\n")
    real.chmod(0o600)
    (tmp_path / ".bashrc").symlink_to(real)
    done = _functions(tmp_path, "for each in 1 2; do begin_with .//.bashrc 'a line'; done")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".bashrc").is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == ("a line\nreturn\n", 0o600)


def test_a_file_that_is_as_it_should_be_is_not_written_again(tmp_path: Path) -> None:
    done = _functions(tmp_path, "for each in 1 2; do printf 'two\\n\\n' | put ./deep/file 755; chmod 555 deep; done")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "deep/file"
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("two\n\n", 0o755)
    file.parent.chmod(0o755)


@pytest.mark.parametrize(
    ("index", "bundle", "words"),
    [
        ("", False, "--find-links w torch==1"),
        ("https://index.invalid", False, "--find-links w --index-url https://index.invalid torch==1"),
        ("https://index.invalid", True, "--no-index --find-links {here}/wheels torch==1"),
    ],
)
def test_a_bundle_beside_the_script_takes_the_place_of_every_index(
    tmp_path: Path,
    index: str,
    bundle: bool,  # noqa: FBT001 a parameter of the test
    words: str,
) -> None:
    (tmp_path / "wheels").mkdir()
    if bundle:
        (tmp_path / "wheels/bundle.json").write_text("{}")
    calls = f"pip=fake wheels=w beside={tmp_path}; fetch '{index}' torch==1"
    done = _functions(tmp_path, calls, fake='echo "$*"')
    assert done.stdout.strip() == f"-m pip download --quiet --dest w {words.format(here=tmp_path)}", done.stderr


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_says_how_it_is_called(shell: str, tmp_path: Path) -> None:
    write(emit_bash(_subject("compat", str(tmp_path / "volume"))), tmp_path)
    done = subprocess.run(
        [shell, str(tmp_path / "pod_setup.sh"), "--help"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n--no-verify leaves out the proof at the end." in done.stdout
    assert "set -eu" not in done.stdout
    assert not (tmp_path / "volume").exists()
