"""How long a build may take, told before and while: what it rests on, what a kind takes that was not built yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.build_eta import replay

from firstlight.build.archs import parse_archs
from firstlight.build.backend import Backend
from firstlight.build.case import BuildCase, BuildPlace, case_of
from firstlight.build.estimate import compile_seconds
from firstlight.build.flags import parse_flag
from firstlight.build.needs import Cuda, needs_of
from firstlight.build.ninja_units import kinds_of
from firstlight.build.progress import Progress, read_status, time_left
from firstlight.build.request import BuildRequest, Target
from firstlight.build.seen_peaks import SeenPeak, seen_peaks
from firstlight.build.spec import Stage, write_document
from firstlight.build.tools import tools_of_saved
from firstlight.facts.known import Known, Unknown
from firstlight.report.build_text import estimate_text
from firstlight.tables import load
from firstlight.tables.build_rows import UnitKind
from tests.build.plans import PLACES, facts_of
from tests.build.test_build_sources import spec_in
from tests.build.trees import read_tree


def case(name: str, *flags: str, archs: str = "9.0", jobs: int = 4, only: str = "") -> BuildCase:
    facts = facts_of(PLACES[0], "13.0.48")
    project, source = read_tree(name)
    request = BuildRequest(
        Target("x"), flags=tuple(map(parse_flag, flags)), archs=parse_archs(archs), jobs=jobs, only=only
    )
    return case_of(request, project, source, BuildPlace(facts, tools_of_saved(facts), load()))


def test_units_seconds_and_jobs_make_the_estimate_and_stand_in_its_basis() -> None:
    tables = load()
    asked = case("lightgbm-4.7.0", "USE_CUDA=ON", jobs=4)
    cxx, cuda = (tables.seconds_of(kind, "lightgbm").seconds for kind in (UnitKind.CXX, UnitKind.CUDA))
    seconds = compile_seconds(asked)
    assert isinstance(seconds, Known)
    assert seconds.value == pytest.approx((60 * cxx + 15 * cuda) / 4)
    assert "15 cuda source files" in seconds.seen_in
    assert "4 at a time" in seconds.seen_in
    two = compile_seconds(case("lightgbm-4.7.0", "USE_CUDA=ON", archs="9.0,12.0", jobs=4))
    assert isinstance(two, Known)
    assert two.value == pytest.approx((60 * cxx + 15 * 2 * cuda) / 4), "each architecture is compiled for"


def test_a_project_of_which_the_whole_is_known_is_not_counted_by_its_files() -> None:
    seconds = compile_seconds(case("flash-attn-2.8.3", jobs=8))
    assert isinstance(seconds, Known)
    assert seconds.value == 15360 / 8
    assert "the whole of flash-attn takes 15360 s of one processor (documented" in seconds.seen_in


def test_money_is_told_before_the_first_build_and_only_where_a_rate_is_given() -> None:
    seconds = Known(3600.0, "60 c++ source files")
    assert estimate_text(seconds, Known(3.0, "--rate")).startswith("about 1 h 0 min of compiling, cost 3.00")
    assert "money" not in estimate_text(seconds, Unknown("no rate"))
    assert estimate_text(compile_seconds(case("torch-2.6.0", only="c10")), Known(3.0, "x")).startswith("not known")


def test_a_kind_that_was_not_built_yet_takes_as_much_longer_as_the_table_says(tmp_path: Path) -> None:
    names = [f"u{n}.cpp.o" for n in range(8)] + [f"k{n}.cu.o" for n in range(4)]
    (tmp_path / "build.ninja").write_text("".join(f"build {each}: CXX x\n" for each in names))
    built = "".join(f"{n * 1000}\t{n * 1000 + 1000}\t0\tu{n}.cpp.o\tx\n" for n in range(8))
    (tmp_path / ".ninja_log").write_text("# ninja log v5\n" + built)
    left, basis = time_left(str(tmp_path), 8, 12, 2)
    ratio = load().seconds_of(UnitKind.CUDA, "").seconds / load().seconds_of(UnitKind.CXX, "").seconds
    assert left == int(4 * ratio * 1.0 / 2)
    assert "of cuda none was built yet" in basis


def test_after_a_quarter_of_a_real_build_the_time_left_is_within_30_percent() -> None:
    folder = Path(__file__).parent / "ninja_logs"
    told = replay(folder / "lightgbm-4.7.0.log", folder / "lightgbm-4.7.0.ninja", 2)
    assert (told[0]["done"], told[0]["of"]) == (18, 74)
    assert abs(told[0]["off_by"]) < 0.3, told[0]
    assert abs(told[2]["off_by"]) < 0.3, "after three quarters too, where the CUDA units so far were the small ones"


# As torch 2.13.0's cpp_extension and CMake 3.31 with Ninja write them.
TORCHS = """rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
rule cuda_compile
  command = $nvcc  $cuda_cflags -c $in -o $out $cuda_post_cflags
build /src/flash/build/temp.linux-x86_64-cpython-311/csrc/api.o: compile /src/flash/csrc/api.cpp
build /src/flash/build/temp.linux-x86_64-cpython-311/csrc/fwd.o: cuda_compile /src/flash/csrc/fwd.cu
build /src/flash/build/temp.linux-x86_64-cpython-311/csrc/fmha_bwd.o: cuda_compile /src/flash/csrc/fmha_bwd.cu
build /src/flash/build/temp.linux-x86_64-cpython-311/csrc/dlink.o: cuda_devlink /src/flash/csrc/fwd.o
"""
CMAKES = """build x.dir/src/a.cpp.o | x.dir/src/a.ddi: CXX_COMPILER__x_unscanned_Release /src/src/a.cpp || d
build CMakeFiles/x.dir/src/k.o: CUDA_COMPILER__x_unscanned_Release /src/src/k.cu
build CMakeFiles/x.dir/cmake_device_link.o: CUDA_DEVICE_LINK__x_Release CMakeFiles/x.dir/src/k.o
build cmake_object_order_depends_target_x: phony || .
"""


def test_the_kind_of_an_object_is_that_of_the_rule_that_makes_it(tmp_path: Path) -> None:
    tmp_path = tmp_path / "flash"
    for name, text in (("torch", TORCHS), ("cmake", CMAKES)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "build.ninja").write_text(text.replace("/src/flash/build", f"{tmp_path}/{name}"))
    found = {Path(output).name: kind for output, kind in kinds_of(str(tmp_path / "torch")).items()}
    wanted = {"api.o": UnitKind.CXX, "fwd.o": UnitKind.CUDA, "fmha_bwd.o": UnitKind.ATTENTION, "dlink.o": None}
    assert found == wanted, "the folder's own name says nothing"
    found = {Path(output).name: kind for output, kind in kinds_of(str(tmp_path / "cmake")).items()}
    assert found == {"a.cpp.o": UnitKind.CXX, "k.o": UnitKind.CUDA, "cmake_device_link.o": None}


def test_the_time_left_of_a_torch_extension_rests_on_the_ninja_below_its_tree(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b", backend=Backend.TORCH_EXTENSION, tree=str(tmp_path / "tree"))
    temp = tmp_path / "tree/build/temp.linux-x86_64-cpython-311"
    temp.mkdir(parents=True)
    (tmp_path / "b").mkdir()
    names = [f"{temp}/fwd_{n}.o" for n in range(8)]
    (temp / "build.ninja").write_text("".join(f"build {each}: cuda_compile /src/fwd.cu\n" for each in names))
    rows = "".join(f"{n * 1000}\t{n * 1000 + 1000}\t0\t{each}\tx\n" for n, each in enumerate(names[:4]))
    (temp / ".ninja_log").write_text("# ninja log v5\n" + rows)
    progress = Progress(spec, Stage.COMPILE)
    progress.heard(4, 8)
    progress.write()
    status = read_status(spec.folder)
    assert status is not None
    assert (status.seconds_left, status.basis) == (2, "mean of each kind so far (cuda 1.0 s) over 2 at a time")


def test_one_small_unit_does_not_speak_for_all_of_its_kind(tmp_path: Path) -> None:
    names = [f"u{n}.cpp.o" for n in range(8)] + [f"k{n}.cu.o" for n in range(5)]
    (tmp_path / "build.ninja").write_text("".join(f"build {each}: CXX x\n" for each in names))
    built = "".join(f"{n * 9000}\t{n * 9000 + 9000}\t0\tu{n}.cpp.o\tx\n" for n in range(8))
    (tmp_path / ".ninja_log").write_text("# ninja log v5\n" + built + "0\t1000\t0\tk0.cu.o\tx\n")
    left, _ = time_left(str(tmp_path), 9, 13, 1)
    expected = 9 * load().seconds_of(UnitKind.CUDA, "").seconds / load().seconds_of(UnitKind.CXX, "").seconds
    assert left == int(4 * (1 + 2 * expected) / 3)


def test_what_units_took_here_decides_the_jobs_of_the_next_time(tmp_path: Path) -> None:
    spec = spec_in(tmp_path / "b", backend=Backend.SKBUILD, tree=str(tmp_path))
    build = tmp_path / "b/build"
    build.mkdir(parents=True)
    names = [f"u{n}.cpp.o" for n in range(4)] + [f"k{n}.o" for n in range(4)]
    rules = ["CXX_COMPILER__x"] * 4 + ["CUDA_COMPILER__x"] * 4
    lines = [f"build {name}: {rule} /src/a\n" for name, rule in zip(names, rules, strict=True)]
    (build / "build.ninja").write_text("".join(lines))
    held = {"u0.cpp.o": 300 << 20, "u1.cpp.o": 200 << 20, "u2.cpp.o": 100 << 20, "k0.o": 1 << 20, "gone.o": 99 << 30}
    write_document(spec.folder, "units.json", [{"unit": name, "bytes": size} for name, size in held.items()])
    seen = seen_peaks(spec)
    assert seen == (SeenPeak(UnitKind.CXX, 3, 4, 300 << 20), SeenPeak(UnitKind.CUDA, 1, 4, 1 << 20))
    project, _ = read_tree("lightgbm-4.7.0")
    cuda = Cuda(compiled=True, archs=1)
    facts = facts_of(PLACES[0], "13.0.48")
    before = {each.kind: each for each in needs_of(project, facts, load(), asked=0, cuda=cuda).by_kind}
    found = {each.kind: each for each in needs_of(project, facts, load(), asked=0, cuda=cuda, seen=seen).by_kind}
    assert found[UnitKind.CXX].peak_bytes == 300 << 20
    assert found[UnitKind.CXX].basis == "measured here: the most of 3 of 4 units of this build"
    assert found[UnitKind.CUDA] == before[UnitKind.CUDA], "one small unit of four speaks for no others"
    large = (SeenPeak(UnitKind.CUDA, 1, 4, 40 << 30),)
    found = {each.kind: each for each in needs_of(project, facts, load(), asked=0, cuda=cuda, seen=large).by_kind}
    assert found[UnitKind.CUDA].jobs < before[UnitKind.CUDA].jobs, "a large one does"
