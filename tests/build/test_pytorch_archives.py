"""PyTorch's real sources, from Debian's archives by apt's own index: options, flags and the committed names hold.

Run by hand (20 MB of index, 45 MB of archives, some minutes): pytest -m network tests/build/test_pytorch_archives.py
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from firstlight.build.backend import Backend
from firstlight.build.flags import Flag, FlagVerdict, judge_flag, near_names
from firstlight.build.reads import DECLARED, ReadKind
from firstlight.build.source_reads import options_of_file, read_source
from firstlight.build.unpacking import only_folder_in, unpack
from firstlight.tables import load
from tests.build.test_source_reads import REPORTED, misspelt
from tests.build.trees import read_tree

pytestmark = [
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get, whose index names the archives"),
]
SUITES = {"1.13.1": "bookworm", "2.6.0": "trixie"}
OPTIONS = {"1.13.1": 129, "2.6.0": 118}  # of the top CMakeLists.txt, each name once
APT = """Dir::State "{0}/state"; Dir::State::status "{0}/status"; Dir::Cache "{0}/cache";
Dir::Etc::sourcelist "{0}/sources.list"; Dir::Etc::sourceparts "-";
"""


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both releases' trees, fetched by an apt that has its own lists and changes nothing of this machine."""
    base = tmp_path_factory.mktemp("apt")
    for name in ("state/lists/partial", "cache/archives/partial"):
        (base / name).mkdir(parents=True)
    (base / "status").touch()
    lines = [f"deb-src http://deb.debian.org/debian {suite} main\n" for suite in SUITES.values()]
    (base / "sources.list").write_text("".join(lines))
    (base / "apt.conf").write_text(APT.format(base))
    apt = ("apt-get", "--config-file", str(base / "apt.conf"), "--quiet")
    if subprocess.run([*apt, "update"], check=False).returncode:
        pytest.skip("no Debian mirror answers here")
    found = {}
    for release, suite in SUITES.items():
        words = [*apt, "source", "--download-only", "--tar-only", "--target-release", suite, "pytorch"]
        subprocess.run(words, check=True, cwd=base)
        (archive,) = base.glob(f"pytorch_{release}*.orig.tar.xz")
        unpack(str(archive), str(base / release))
        found[release] = Path(only_folder_in(str(base / release)))
    return found


@pytest.mark.parametrize("release", SUITES)
def test_every_option_of_the_top_file_is_found_and_stands_in_the_table(trees: dict[str, Path], release: str) -> None:
    """118 in 2.6.0, 77 by option() and 41 by cmake_dependent_option(): one of its 119 calls names USE_CUFILE again."""
    top = trees[release] / "CMakeLists.txt"
    by_eye = re.findall(r"(?mi)^[ \t]*(?:cmake_dependent_)?option\s*\(\s*(\w+)", top.read_text())
    names = {each.name for each in options_of_file(str(top))}
    assert names == set(by_eye)
    assert len(names) == OPTIONS[release]
    rows = {row.name for row in load().build_options if row.project == "torch" and row.first <= release <= row.last}
    assert names <= rows


@pytest.mark.parametrize("release", SUITES)
def test_the_trees_that_tests_are_kept_with_are_these(trees: dict[str, Path], release: str) -> None:
    _, kept = read_tree(f"torch-{release}")
    now = {each.name for each in read_source(str(trees[release])).reads if each.kind is not ReadKind.VARIABLE}
    assert now == set(kept.names)


def test_the_flags_of_the_cuda_13_fork_judged_by_the_whole_of_pytorch_2_6(trees: dict[str, Path]) -> None:
    source = read_source(str(trees["2.6.0"]))
    judged = {name: judge_flag(Flag(name, "1"), source, Backend.PYTORCH).verdict for name in REPORTED}
    assert judged == REPORTED
    when_it_runs = judge_flag(Flag("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"), source, Backend.PYTORCH)
    assert when_it_runs.verdict is FlagVerdict.RUN_TIME


@pytest.mark.parametrize("release", SUITES)
def test_forty_misspelt_options_are_corrected(trees: dict[str, Path], release: str) -> None:
    source = read_source(str(trees[release]))
    chosen = random.Random(117)
    names = sorted({each.name for each in source.reads if each.kind in DECLARED and len(each.name) >= 9})
    wrong = [(misspelt(name, chosen), name) for name in chosen.sample(names, k=60)]
    tried = [(slip, name) for slip, name in wrong if slip not in source.names][:40]
    assert len(tried) == 40
    missed = [(slip, name) for slip, name in tried if name not in near_names(slip, source)]
    assert not missed
