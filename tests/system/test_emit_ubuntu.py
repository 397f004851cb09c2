"""The image of `emit dockerfile` built by buildah on an Ubuntu made by debootstrap from its archive, and started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.emit.subject import Choices
from firstlight.own_wheel import own_wheel
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.emit.subjects import OLD_H100, subject, with_own_wheel
from tests.system.builder import BASE, Builder, image_on, torch_for

_NEEDED = ("buildah", "debootstrap", "apt-get", "gpg", "gcc")
pytestmark = [
    pytest.mark.system,
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(not all(map(shutil.which, _NEEDED)), reason=f"needs {', '.join(_NEEDED)}"),
]
_ARCHIVE = "http://archive.ubuntu.com/ubuntu"
_KEYRING = f"{_ARCHIVE}/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"  # of noble
_KEY = "F6ECB3762474EDA9D21B7022871920D1991BC93C"  # Ubuntu Archive Automatic Signing Key (2018)
# A Debian's debootstrap has no file for a release later than itself; all of Ubuntu's are links to this one.
_SCRIPT = "/usr/share/debootstrap/scripts/gutsy"


def _keyring(folder: Path) -> Path:
    """Ubuntu's keys out of its own package, which is taken where the key of the archive is among them."""
    package = folder / "keyring.deb"
    with urllib.request.urlopen(_KEYRING, timeout=60) as answer:
        package.write_bytes(answer.read())
    subprocess.run(["dpkg-deb", "--extract", str(package), str(folder / "keys")], check=True)
    keys = folder / "keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"
    argv = ["gpg", "--homedir", str(folder), "--show-keys", "--with-colons"]
    seen = subprocess.run([*argv, str(keys)], capture_output=True, text=True, check=True).stdout
    assert f":{_KEY}:" in seen
    return keys


def _wheels_of_its_python(folder: Path) -> None:
    """Noble's Python is 3.12: what firstlight needs comes from an index, compiled for that."""
    tags = [
        word for tag in ("manylinux2014", "manylinux_2_28") for word in ("--platform", f"{tag}_{os.uname().machine}")
    ]
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--only-binary=:all:",
        "--python-version",
        "3.12",
        *tags,
    ]
    subprocess.run([*argv, "--dest", str(folder), str(folder / own_wheel().name)], check=True)
    torch_for(folder)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    folder = tmp_path_factory.mktemp("ubuntu")
    try:
        keys = _keyring(folder)
    except urllib.error.HTTPError:
        raise
    except OSError as error:
        pytest.skip(f"Ubuntu's archive does not answer here: {error}")
    root = folder / "base"
    argv = ["debootstrap", "--variant=minbase", f"--keyring={keys}", "--include=ca-certificates", "noble", str(root)]
    done = subprocess.run([*argv, _ARCHIVE, _SCRIPT], capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    # as Ubuntu's own image has it: python3-venv is in universe
    (root / "etc/apt/sources.list").write_text(f"deb {_ARCHIVE} noble main universe\n")
    made = with_own_wheel(subject(OLD_H100, choices=Choices(base=BASE)))
    with image_on(root, made, folder, wheels=_wheels_of_its_python) as built:
        yield built


def test_it_has_ubuntus_python_torch_firstlight_and_a_compiler(image: Builder) -> None:
    script = (
        "sed -n 's/^VERSION_CODENAME=//p' /etc/os-release; id -u; "
        "python -c 'import sys; print(*sys.version_info[:2])'; python -c 'import torch; print(torch.VERSION)'; "
        "firstlight --version; "
        'echo "#include <Python.h>" | g++ -x c++ -fsyntax-only $(python3-config --includes) - && echo compiled'
    )
    done = image.run("sh", "-c", script)
    lines = done.stdout.splitlines()
    assert lines[:4] == ["noble", "10001", "3 12", "2.9.0+cu130"], done.stderr
    assert (lines[4].startswith("firstlight"), lines[5:]) == (True, ["compiled"]), done.stderr


@pytest.mark.parametrize(
    ("driver", "code", "path"),
    [
        ("570.133.20", 0, "/opt/firstlight/compat/cuda-13.0\n"),
        ("580.95.05", 0, "none\n"),
        ("560.35.03", 1, ""),
    ],
)
def test_its_entrypoint_judges_the_driver_that_is_loaded(image: Builder, driver: str, code: int, path: str) -> None:
    done = image.run("sh", "-c", 'echo "${LD_LIBRARY_PATH:-none}"', driver=driver)
    assert (done.returncode, done.stdout) == (code, path), done.stderr
    assert ("driver 560.35.03 is loaded" in done.stderr) == bool(code)
