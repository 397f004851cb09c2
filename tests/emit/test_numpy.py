"""torch comes with a numpy that fits it, as far as one can be had: it warns without, and does not bring it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from firstlight.emit.kinds import NAMES, emit
from tests.emit.made_subjects import for_words
from tests.emit.subjects import NEW_H100, subject

# A stand-in for the Python of the environment: numpy is there once pip could install it.
_PYTHON = """#!/bin/sh
case "$*" in
    *find_spec*) [ -e {here}/numpy ] ;;
    *"pip download"*) echo "download $*" >> {here}/log && [ -e {here}/index ] ;;
    *"pip install"*) echo "install $*" >> {here}/log && [ -e {here}/index ] && : > {here}/numpy ;;
esac
"""


# k8s takes an image that was built; kit has the files of dockerfile, and is for Hopper alone
@pytest.mark.parametrize("kind", [name for name in NAMES if name not in ("k8s", "kit")])
@pytest.mark.parametrize(("machine", "want", "numpy"), [
    (NEW_H100, "torch==2.9.0+cu130", "numpy<3"), ("T4, driver >= 470", "torch==2.0.1", "numpy<2")
])  # fmt: skip
def test_every_kind_that_sets_up_torch_asks_for_numpy(kind: str, machine: str, want: str, numpy: str) -> None:
    text = "".join(file.text for file in emit(kind, for_words(machine, want)).files)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert set(re.findall(r"numpy<\d", "\n".join(lines))) == ({numpy} if re.search(r"\bpip\b", text) else set())


@pytest.mark.parametrize("kind", ["bash", "slurm"])
def test_a_start_that_could_not_have_numpy_goes_on_and_the_next_tries_again(kind: str, tmp_path: Path) -> None:
    text = emit(kind, subject(NEW_H100)).files[0].text
    if kind == "bash":
        step = text.removesuffix('main "$@"\n') + "\nneed_numpy"
    else:
        block = text.partition("    # torch warns at its first tensor")[2].partition("    if [")[0].partition("\n")[2]
        step = text.partition("\nproves=no\n")[0] + f"\n{block}"
    python = tmp_path / "env/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(_PYTHON.format(here=tmp_path))
    python.chmod(0o755)
    settings = f"environment={tmp_path}/env python_minor=3.12 beside={tmp_path}"

    def start() -> subprocess.CompletedProcess[str]:
        argv = ["bash", "-c", step.replace("set -eu\n", f"set -eu\n{settings}\n", 1)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    without = start()
    assert without.returncode == 0, without.stderr
    assert "continuing without numpy" in without.stderr
    (tmp_path / "index").touch()
    assert (start().returncode, (tmp_path / "numpy").exists()) == (0, True)
    (tmp_path / "log").unlink()
    quiet = start()
    assert (quiet.returncode, quiet.stderr, (tmp_path / "log").exists()) == (0, "", False)
