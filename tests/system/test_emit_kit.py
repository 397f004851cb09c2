"""The kit's image built by buildah on a Debian base that is pinned by its digest, with the nvcc of this machine in it.

torch and CUTLASS are stand-ins; nvcc, make, git, Python and the program are real.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from firstlight.emit.kit import emit_kit
from firstlight.emit.subject import Choices
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.emit.subjects import NEW_H100, TABLES, subject, with_own_wheel, write
from tests.system.builder import Builder, wheels_for
from tests.system.test_emit_dockerfile import debian_base

_NEEDED = ("buildah", "debootstrap", "apt-get", "git")
TOOLKIT = Path("/usr/local/cuda")
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own (unshare -m)"),
    pytest.mark.skipif(not all(map(shutil.which, _NEEDED)), reason=f"needs {', '.join(_NEEDED)}"),
    pytest.mark.skipif(not (TOOLKIT / "bin/nvcc").exists(), reason=f"needs a toolkit in {TOOLKIT}"),
]
NAME = "localhost/debian-cuda"


def _stand_in_cutlass(folder: Path) -> str:
    """A repository of one commit where the image looks for NVIDIA's; the commit."""
    git = ("git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.com")
    folder.mkdir(parents=True)
    for words in (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "--message", "stands for CUTLASS")):
        subprocess.run([*git, *words], check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Builder, str]]:
    row = TABLES.source_tag("cutlass", "v4.3.0")
    assert row is not None
    folder = tmp_path_factory.mktemp("kit")
    builder, base = Builder(folder / "store"), folder / "base"
    debian_base(base)
    commit = _stand_in_cutlass(base / "srv/cutlass")
    (base / "etc/gitconfig").write_text(f'[url "file:///srv/cutlass"]\n\tinsteadOf = {row.address}\n')
    (base / "etc/apt/apt.conf.d/99tests").write_text('APT::Sandbox::User "root";\n')
    shutil.copytree(os.path.realpath(TOOLKIT), base / "usr/local/cuda", symlinks=True)
    scratch = builder("from", "scratch").stdout.strip()
    builder("add", scratch, str(base), "/")
    builder("commit", "--rm", scratch, NAME)
    shutil.rmtree(base)
    [listed] = json.loads(builder("images", "--json", NAME).stdout)
    pinned = f"{NAME}@{listed['digest']}"
    context = write(emit_kit(with_own_wheel(subject(NEW_H100, choices=Choices(base=pinned)))), folder / "a kit")
    for file in (context / "Dockerfile", context / "team.toml"):
        file.write_text(file.read_text().replace(row.commit, commit))
    wheels_for(context / "wheels")
    words = ("--isolation", "chroot", "--layers=false", "--build-arg", "BUILDS=128-0-256-0", "--tag", "kit")
    built = builder("bud", *words, str(context), check=False)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    builder.container = builder("from", "localhost/kit").stdout.strip()
    yield builder, commit
    shutil.rmtree(folder)


def test_the_image_has_the_program_and_cutlass_at_its_commit_and_no_root(image: tuple[Builder, str]) -> None:
    builder, commit = image
    script = (
        "id -u; pwd; git -C /opt/cutlass -c safe.directory=/opt/cutlass rev-parse HEAD; ./build/sparse_bsr_gemm_h100"
    )
    done = builder.run("sh", "-c", script)
    assert done.stdout.splitlines() == ["10001", "/opt/kit", commit], done.stderr
    assert "no GPU can be used here" in done.stderr


def test_the_list_of_the_team_is_held_against_what_is_inside(image: tuple[Builder, str]) -> None:
    builder, _ = image
    words = ("verify", "--only", "require", "--require", "team.toml", "--json")
    done = builder.run("firstlight", *words, "--python", "/opt/firstlight/env/bin/python")
    met = {row["requirement"]: row["met"] for row in json.loads(done.stdout)["requirements"]}
    assert {name for name, held in met.items() if held == "met"} >= {
        "make", "git", "toolkit", "torch", "cutlass at /opt/cutlass", "build/sparse_bsr_gemm_h100",
    }, done.stdout  # fmt: skip
    assert met["gpus"] == "not met"


def test_preflight_without_a_lock_ends_with_2(image: tuple[Builder, str]) -> None:
    done = image[0].run("./preflight.sh", environ=("PYTHON=/opt/firstlight/env/bin/python",))
    assert (done.returncode, "firstlight.lock: no such file" in done.stderr) == (2, True), done.stderr
