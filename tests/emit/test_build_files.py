"""`emit --build`: what is written, what is refused; the script itself runs in tests/system/test_emit_build.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firstlight.cli.emit import command
from firstlight.errors import BadInput
from tests.build.standin import make_standin
from tests.programs import SHELLCHECK


def emit(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


def sdist_in(folder: Path) -> Path:
    make_standin(folder / "standin-1.0", units=2)
    path = folder / "standin-1.0.tar.gz"
    subprocess.run(["tar", "-C", str(folder), "-czf", str(path), "standin-1.0"], check=True)
    return path


def test_the_script_carries_the_sdist_and_runs_firstlight_build_with_the_same_flags(tmp_path: Path) -> None:
    sdist, out = sdist_in(tmp_path), tmp_path / "out"
    done = emit("bash", "--build", str(sdist), "--archs", "9.0a", "--flag", "USE_LOUD=0", "--out", str(out))
    assert done.exit_code == 0, done.output
    text = (out / "build.sh").read_text()
    assert 'firstlight build "$here"/sources/standin-1.0.tar.gz --archs 9.0a --flag USE_LOUD=0' in text
    assert (out / "sources/standin-1.0.tar.gz").read_bytes() == sdist.read_bytes()
    assert list((out / "wheels").glob("firstlight-*.whl"))
    assert str(tmp_path) not in text, "no path of this machine goes along"
    again = emit("bash", "--build", str(sdist), "--archs", "9.0a", "--flag", "USE_LOUD=0")
    assert text in again.output, "the same order gives the same file"


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    emit("bash", "--build", "flash-attn==2.8.3", "--out", str(tmp_path))
    done = subprocess.run([SHELLCHECK, str(tmp_path / "build.sh")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_its_base_and_archs_and_json_has_the_files(tmp_path: Path) -> None:
    done = emit(
        "dockerfile",
        "--build",
        "flash-attn==2.8.3",
        "--for",
        "H100, driver >= 580",
        "--base",
        "nvidia/cuda:13.0.2-devel-ubi9",
        "--json",
    )
    document = json.loads(done.stdout)
    assert document["options"] == ["--archs", "9.0"]
    assert [each["name"] for each in document["files"]] == ["Dockerfile", "build.sh"]
    image = document["files"][0]["text"].splitlines()
    assert "ARG BASE=nvidia/cuda:13.0.2-devel-ubi9" in image
    assert not any(line.startswith("COPY sources") for line in image)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("slurm", "--build", "x==1"), "--build with slurm: accepted: with bash or dockerfile"),
        (("agents", "--build", "x==1"), "--build with agents"),
        (("dockerfile", "--build", "x==1"), "no GPU is seen while an image is built: give --archs"),
        (("bash", "--build", "x==1", "--want", "torch"), "--want does not apply to --build"),
        (("bash", "--build", "x==1", "--base", "debian:12"), "--base does not apply to bash --build"),
        (("bash", "--build", "x==1", "--volume", "/v"), "--volume does not apply to --build"),
        (("bash", "--build", "x==1", "--archs", "nine"), "'nine' is not an architecture"),
        (("bash", "--build", "x==1", "--with", "ncl"), "Did you mean nccl?"),
        (("bash", "--build", "x==1", "--flag", "A"), "--flag"),
        (("bash", "--build", "."), "a folder is not carried along"),
        (("bash", "--build", "nothing"), "a release is named with its version, nothing==VERSION"),
        (("bash", "--build", "git+https://me:pw@host/x"), "a login in an address"),
        (("bash", "--archs", "9.0"), "--archs belongs to a build; accepted: with --build TARGET"),
        (("bash", "--with", "nccl"), "--with belongs to a build"),
    ],
)
def test_what_is_not_meant_is_refused_in_one_line(words: tuple[str, ...], said: str) -> None:
    error = emit(*words).exception
    assert isinstance(error, BadInput), error
    assert said in str(error)
    assert "pw" not in str(error)
