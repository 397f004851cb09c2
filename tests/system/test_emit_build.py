"""The emitted build.sh run in a throw-away folder and in a bare Debian, the Dockerfile built by buildah.

firstlight comes from its own wheel; an sdist is built, installed and run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apply.stand_ins import can_have_its_own_mounts
from tests.emit.test_build_files import emit, sdist_in
from tests.system.builder import BASE, Builder
from tests.system.test_emit_dockerfile import debian_base

pytestmark = pytest.mark.system
TOTAL = "import standin; print(standin.total())"
PIP = "[global]\ncert = /etc/index.crt\n"  # the index of this machine may have a certificate of its own


def test_the_script_builds_installs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    there = tmp_path / "there"
    assert emit("bash", "--build", str(sdist_in(tmp_path)), "--out", str(there)).exit_code == 0
    env = {name: value for name, value in os.environ.items() if not name.startswith("FIRSTLIGHT_")}
    done = subprocess.run(["sh", "build.sh"], cwd=there, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "built and proved standin-1.0+fl.cpu-" in done.stdout
    asked = [str(there / "env/bin/python"), "-c", TOTAL]
    ran = subprocess.run(asked, capture_output=True, text=True, cwd="/", check=False)
    assert ran.stdout.strip() == "1", ran.stderr
    (there / "sources/standin-1.0.tar.gz").write_bytes(b"another")
    changed = subprocess.run(["sh", "build.sh"], cwd=there, env=env, capture_output=True, text=True, check=False)
    assert changed.returncode == 1
    assert "is not the sdist that this file was written for" in changed.stderr
    shutil.rmtree(there / "wheels")
    (there / next(each.name for each in there.glob("firstlight-*.whl"))).unlink()
    lost = subprocess.run(["sh", "build.sh"], cwd=there, env=env, capture_output=True, text=True, check=False)
    assert (lost.returncode, lost.stderr.startswith("build.sh: ")) == (1, True)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    """buildah with the image of a Debian that has nothing but its smallest set of packages."""
    if not can_have_its_own_mounts() or not all(map(shutil.which, ("buildah", "debootstrap"))):
        pytest.skip("needs root, mounts of its own (unshare -m), buildah and debootstrap")
    folder = tmp_path_factory.mktemp("bare")
    builder, base = Builder(folder / "store"), folder / "base"
    debian_base(base)
    (base / "etc/apt/apt.conf.d/99tests").write_text('APT::Sandbox::User "root";\n')
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", base / "etc/index.crt")
    (base / "etc/pip.conf").write_text(PIP)
    scratch = builder("from", "scratch").stdout.strip()
    builder("add", scratch, str(base), "/")
    builder("commit", "--rm", scratch, BASE)
    shutil.rmtree(base)
    yield builder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.network
def test_the_dockerfile_is_built_from_its_folder_alone_and_its_image_has_the_wheel(
    bare: Builder, tmp_path: Path
) -> None:
    here = tmp_path / "context"
    words = ("dockerfile", "--build", str(sdist_in(tmp_path)), "--archs", "9.0", "--base", BASE, "--out", str(here))
    assert emit(*words).exit_code == 0
    done = bare("bud", "--isolation", "chroot", "--layers=false", "--tag", "built", str(here), check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    container = bare("from", "localhost/built").stdout.strip()
    ran = bare("run", "--isolation", "chroot", container, "--", "python", "-c", TOTAL)
    assert ran.stdout.strip() == "1"
    left = bare("run", "--isolation", "chroot", container, "--", "ls", "/opt/built").stdout.split()
    assert any(each.startswith("standin-1.0+fl.cpu-") for each in left)
    assert not {"state", "tool"} & set(left)


@pytest.mark.slow
@pytest.mark.network
def test_in_a_bare_debian_the_script_names_what_is_missing_and_then_builds(bare: Builder, tmp_path: Path) -> None:
    here = tmp_path / "context"
    assert emit("bash", "--build", str(sdist_in(tmp_path)), "--out", str(here)).exit_code == 0
    container = bare("from", BASE).stdout.strip()
    bare("add", container, str(here), "/build")

    def inside(words: str) -> subprocess.CompletedProcess[str]:
        return bare("run", "--isolation", "chroot", container, "--", "sh", "-c", words, check=False)

    refused = inside("sh /build/build.sh")
    assert "build.sh: python3 is missing. Install it first: apt-get install" in refused.stderr
    command = refused.stderr.partition("Install it first: ")[2].splitlines()[0]
    prepared = inside(f"apt-get update -q && {command} --yes --no-install-recommends")
    assert prepared.returncode == 0, prepared.stdout[-2000:] + prepared.stderr[-2000:]
    done = inside("sh /build/build.sh")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "built and proved standin-1.0+fl.cpu-" in done.stdout
    assert inside(f"/build/env/bin/python -c '{TOTAL}'").stdout.strip() == "1"
