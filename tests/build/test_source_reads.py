"""What a tree reads: setup.py and its helpers by their syntax, flags judged against them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from firstlight.build.backend import Backend
from firstlight.build.flags import Flag, FlagVerdict, Through, judge_flag, near_names, parse_flag, what_reads
from firstlight.build.reads import DECLARED, ReadKind
from firstlight.build.source_reads import options_of_file, read_source, read_when_it_runs
from firstlight.errors import BadInput
from tests.build.trees import read_tree

SETUP = """
import os
from os import environ, getenv
from tools.flags import check_env_flag, Flags
NAME = "BY_CONSTANT"
A = os.environ.get("A_FLAG", "1")
B = os.environ["B_FLAG"]
C = getenv("C_FLAG") or environ.get("D_FLAG")
if "E_FLAG" in os.environ: pass
F = os.getenv(NAME)
G = check_env_flag("G_FLAG")
H = Flags().wanted(name="H_FLAG")
os.environ["SET_NOT_READ"] = "1"
print("OS_FREE_TEXT")
"""
HELPER = """
import os
def check_env_flag(name, default=""):
    return os.getenv(name, default).upper() in ("ON", "1")
class Flags:
    def wanted(self, name):
        return check_env_flag(name)
def to_cmake(my_env, args):
    for var, val in my_env.items():
        if var.startswith(("USE_", "BUILD_")): args[var] = val
    args.update({var: my_env.get(var) for var in ("BLAS", "MKL_THREADING")})
    other = {"LIB_DIR": "LIBRARY"}
    if var.endswith(("EXITCODE", "TRYRUN")) or args["SYSTEM"] == "ARM64": pass
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tools").mkdir()
    (tmp_path / "setup.py").write_text(SETUP)
    (tmp_path / "tools/flags.py").write_text(HELPER)
    (tmp_path / "tools/unused.py").write_text("import os\nos.getenv('NEVER_IMPORTED')\n")
    (tmp_path / "CMakeLists.txt").write_text('option(USE_FAST "f" ON)\noption(OWN_ONLY "o" OFF)\n')
    (tmp_path / "run.cpp").write_text('const char* x = std::getenv("SEEN_WHEN_IT_RUNS");\n')
    return tmp_path


def test_variables_are_seen_directly_through_helpers_and_by_constants(tree: Path) -> None:
    found = {each.name for each in read_source(str(tree)).reads if each.kind is ReadKind.ENVIRONMENT}
    letters = {f"{letter}_FLAG" for letter in "ABCDEGH"}
    assert found == {*letters, "BY_CONSTANT"}


def test_a_flag_goes_in_by_the_door_that_is_read(tree: Path) -> None:
    source = read_source(str(tree))
    names = ("A_FLAG", "USE_FAST", "CUDAHOSTCXX", "Eigen3_ROOT")
    doors = {name: judge_flag(Flag(name, "1"), source, Backend.SETUPTOOLS).through for name in names}
    assert doors == dict.fromkeys(names, Through.ENVIRONMENT)
    assert judge_flag(Flag("OWN_ONLY", "1"), source, Backend.SKBUILD).through is Through.DEFINE
    assert source.passed.prefixes == ("USE_", "BUILD_")


def test_what_is_handed_on_is_told_from_what_it_becomes(tree: Path) -> None:
    """PyTorch hands CUDNN_LIB_DIR on as CUDNN_LIBRARY: the second name in the environment is lost."""
    assert read_source(str(tree)).passed.names == ("LIB_DIR", "BLAS", "MKL_THREADING")


@pytest.mark.parametrize("backend", [Backend.SETUPTOOLS, Backend.PYTORCH, Backend.TORCH_EXTENSION, Backend.OTHER])
def test_a_flag_that_nobody_hands_to_cmake_is_refused(tree: Path, backend: Backend) -> None:
    source = read_source(str(tree))
    judged = judge_flag(Flag("OWN_ONLY", "1"), source, backend)
    assert (judged.verdict, judged.through) == (FlagVerdict.NO_DOOR, Through.NONE)
    assert what_reads(judged).startswith("CMake reads it (CMakeLists.txt:2), and what starts CMake here does not")
    assert judge_flag(Flag("CMAKE_CXX_STANDARD", "20"), source, backend).verdict is FlagVerdict.NO_DOOR


def test_a_flag_that_cmake_reads_both_ways_is_given_both_ways(tree: Path) -> None:
    (tree / "CMakeLists.txt").write_text('option(USE_FAST "f" ON)\nmessage($ENV{USE_FAST})\n')
    judged = judge_flag(Flag("USE_FAST", "0"), read_source(str(tree)), Backend.SKBUILD)
    assert (judged.verdict, judged.through) == (FlagVerdict.READ, Through.BOTH)


def test_a_name_that_nothing_reads_is_refused_with_the_nearest(tree: Path) -> None:
    judged = judge_flag(Flag("USE_FSAT", "1"), read_source(str(tree)), Backend.SETUPTOOLS)
    assert (judged.verdict, judged.near) == (FlagVerdict.UNREAD, ("USE_FAST",))
    assert what_reads(judged) == "no file of this source reads it; the nearest that is: USE_FAST"


def test_a_name_that_the_program_reads_when_it_runs_is_no_flag_of_the_build(tree: Path) -> None:
    judged = judge_flag(Flag("SEEN_WHEN_IT_RUNS", "1"), read_source(str(tree)), Backend.SETUPTOOLS)
    assert judged.verdict is FlagVerdict.RUN_TIME
    assert judged.reads[0].where == "run.cpp:1"
    assert read_when_it_runs(str(tree), "NOWHERE") == ()


@pytest.mark.parametrize("text", ["USE_X", "=1", "1X=2", "A B=1", "USE_X=\x1b"])
def test_a_flag_is_a_name_and_a_value(text: str) -> None:
    with pytest.raises(BadInput, match="NAME=VALUE"):
        parse_flag(text)


REPORTED = {
    "USE_FBGEMM": FlagVerdict.READ,
    "USE_CUDNN": FlagVerdict.READ,
    "USE_NCCL": FlagVerdict.READ,
    "TORCH_CUDA_ARCH_LIST": FlagVerdict.READ,
    "USE_FLASH_ATTENTION": FlagVerdict.READ,
    "USE_MEM_EFF_ATTENTION": FlagVerdict.READ,
    "USE_TENSOREXPR": FlagVerdict.UNREAD,
    "USE_CUDNN_FRONTEND": FlagVerdict.UNREAD,
    "USE_MSLK": FlagVerdict.UNREAD,
    "CUDNN_ALLOW_TF32_CUBLAS_OVERRIDE": FlagVerdict.UNREAD,
}


@pytest.mark.parametrize("name", REPORTED)
def test_the_flags_of_the_cuda_13_fork_judged_by_pytorch_2_6(name: str) -> None:
    """The tree as kept, which has no sources: what torch reads when it runs cannot be shown on it."""
    _, source = read_tree("torch-2.6.0")
    assert judge_flag(Flag(name, "1"), source, Backend.PYTORCH).verdict is REPORTED[name]


def misspelt(name: str, chosen: random.Random) -> str:
    """One slip of the kind that fingers make, never in the first letter and never in a number."""
    places = [at for at in range(5, len(name) - 1) if name[at].isalpha() and name[at + 1].isalpha()]
    at = chosen.choice(places)
    swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
    return chosen.choice([swapped, name[:at] + name[at + 1 :], name[:at] + name[at] + name[at:]])


def test_forty_misspelt_options_of_pytorch_are_corrected() -> None:
    _, source = read_tree("torch-2.6.0")
    chosen = random.Random(28)
    declared = [each.name for each in source.reads if each.kind in DECLARED and each.name.startswith("USE_")]
    names = [each for each in dict.fromkeys(declared) if len(each) >= 9]
    tried = 0
    for name in chosen.sample(names, k=min(60, len(names))):
        wrong = misspelt(name, chosen)
        if wrong in source.names:
            continue
        assert name in near_names(wrong, source), (wrong, near_names(wrong, source))
        tried += 1
    assert tried >= 40, tried


def test_options_of_one_file_are_counted_once(tree: Path) -> None:
    (tree / "CMakeLists.txt").write_text('option(A "a" ON)\nif(X)\noption(A "a" OFF)\nendif()\noption(B "b" ON)\n')
    assert [each.name for each in options_of_file(str(tree / "CMakeLists.txt"))] == ["A", "B"]


def test_the_kept_tree_of_pytorch_2_6_has_every_option_of_its_top_file() -> None:
    """77 by option(), 41 by cmake_dependent_option(), each name once."""
    _, source = read_tree("torch-2.6.0")
    of_top = [each for each in source.reads if each.where.startswith("CMakeLists.txt:")]
    plain = {each.name for each in of_top if each.kind is ReadKind.OPTION}
    dependent = {each.name for each in of_top if each.kind is ReadKind.DEPENDENT_OPTION}
    assert (len(plain), len(dependent), len(plain | dependent)) == (77, 41, 118)
