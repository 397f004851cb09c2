"""Field report 002 replayed: the libraries that showed up one by one are told at once, on another architecture."""

from __future__ import annotations

import zipfile
from pathlib import Path

from firstlight.facts.known import Known
from tests.libraries.trees import Tree

WHEEL = Path(__file__).parent / "data" / "torch-2.9.0-cp312-cp312-manylinux_2_28_aarch64.whl"


def test_the_wheel_says_that_it_is_reconstructed() -> None:
    with zipfile.ZipFile(WHEEL) as archive:
        [name] = [each for each in archive.namelist() if each.endswith("METADATA")]
        assert "Summary: RECONSTRUCTED from field report 002" in archive.read(name).decode()


def test_all_three_libraries_are_told_in_one_pass_with_the_right_versions(tree: Tree) -> None:
    seen = tree.look(str(WHEEL))
    assert seen.target.arch == "aarch64"
    assert [each.name for each in seen.missing] == [
        "libnvpl_lapack_lp64_gomp.so.0",
        "libnvpl_blas_lp64_gomp.so.0",
        "libcudss.so.0",
    ]
    closing = tree.close(str(WHEEL))
    chosen = {need.missing.name: need.provided[0] for need in closing.needs}
    assert chosen["libnvpl_lapack_lp64_gomp.so.0"].project == "nvpl-lapack"
    assert chosen["libnvpl_blas_lp64_gomp.so.0"].project == "nvpl-blas"
    assert chosen["libcudss.so.0"].project == "nvidia-cudss-cu13"
    assert chosen["libcudss.so.0"].version == "0.8.0.10"
    assert chosen["libnvpl_blas_lp64_gomp.so.0"].folder == "nvpl/lib"
    assert isinstance(closing.download_bytes, Known)


def test_what_the_system_has_is_not_judged_for_another_architecture(tree: Tree) -> None:
    assert "libc.so.6" in tree.look(str(WHEEL)).not_judged
