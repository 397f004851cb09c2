"""Every row that ships: who says so, since when, how it is known, and how the tables agree with each other."""

from __future__ import annotations

import datetime
import itertools
import re

import pytest

from firstlight.tables import load
from firstlight.tables.compat_rows import CompatEvidence
from firstlight.tables.row import Confidence, Row
from firstlight.tables.subjects import GROUPS, SUBJECTS, Subject
from firstlight.versions import ComputeCapability, CudaVersion, TorchVersion

TABLES = load()
EVERY_SUBJECT = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)


@EVERY_SUBJECT
def test_a_table_has_rows_and_says_what_it_is(subject: Subject) -> None:
    assert TABLES.rows(subject.name)
    assert TABLES.about(subject.name).endswith(".")
    assert len(subject.title) <= 45, "the list of tables prints it beside the name"


@EVERY_SUBJECT
def test_every_row_names_its_source_its_date_and_how_it_is_known(subject: Subject) -> None:
    for row in TABLES.rows(subject.name):
        assert len(row.source) >= 10, row
        assert datetime.date(2025, 1, 1) <= row.date <= datetime.date.today(), row
        assert isinstance(row.confidence, Confidence), row
        if row.confidence is Confidence.REPORTED:
            assert row.note.endswith("."), f"a reported row says in its note how it is known: {row}"


@EVERY_SUBJECT
def test_a_source_is_public_and_never_a_path_of_somebodys_machine(subject: Subject) -> None:
    local = re.compile(
        r"(?i)^(?!/usr/local/cuda/compat of the image)[/~.]|\bfile:|localhost|/home/|/tmp/|/opt/|shared/"
    )
    secondary = re.compile(r"(?i)reference|field report|seeds?/|compatibility\.md|bring-up|notes? of ours")
    for row in TABLES.rows(subject.name):
        assert not local.search(row.source), row
        assert not secondary.search(row.source + row.note), row


@EVERY_SUBJECT
def test_what_is_measured_names_the_artifact_it_was_measured_on(subject: Subject) -> None:
    artifact = re.compile(
        r"(?i)wheel|\.h\b|image|ELF note|libcuda|testdata|recipe|package|runfile|PyPI|constants|Contents files|"
        r"refs/tags"
    )
    for row in TABLES.rows(subject.name):
        if row.confidence is Confidence.MEASURED:
            assert artifact.search(row.source), row


def test_the_claims_that_are_known_to_be_wrong_are_nowhere() -> None:
    texts = [f"{row!r}" for subject in SUBJECTS for row in TABLES.rows(subject.name)]
    for wrong in ("535.183.01", "min_driver_same_major=DriverVersion(parts=(580, 95"):
        assert not [text for text in texts if wrong in text], wrong


def test_the_groups_are_those_the_command_line_promises() -> None:
    assert set(GROUPS) >= {"cuda", "torch", "gpu", "compat", "errors", "companions", "compilers"}
    assert not {subject.name for subject in SUBJECTS} & set(GROUPS) - {"companions"}


def test_rows_are_frozen_equal_by_value_and_copied_by_pickle() -> None:
    import pickle

    row = TABLES.cuda_majors[0]
    with pytest.raises(AttributeError):
        row.major = 14  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del row.major
    copy = pickle.loads(pickle.dumps(row))
    assert copy == row
    assert copy is not row
    assert hash(copy) == hash(row)
    assert row != TABLES.cuda_majors[1]
    assert "min_driver_same_major" in repr(row)
    assert not hasattr(row, "__dict__")


def test_a_row_class_refuses_a_missing_and_an_unknown_field() -> None:
    common = {"source": "a public page", "date": datetime.date(2026, 1, 1), "confidence": Confidence.DOCUMENTED}
    with pytest.raises(TypeError, match="needs source"):
        Row()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="has no colour"):
        Row(**common, colour="red")  # type: ignore[arg-type, call-arg]


# Agreement between tables


def test_every_cuda_of_a_torch_wheel_has_its_major_and_a_branch_that_reports_it() -> None:
    for release in TABLES.torch_releases:
        if release.wheel_cuda is not None and release.wheel_cuda.major >= 11:
            assert TABLES.cuda_major(release.wheel_cuda.major) is not None, release
            assert TABLES.branch_of(release.wheel_cuda) is not None, release


def test_the_floor_of_a_major_is_a_driver_of_the_branch_that_brought_it_or_an_older_one() -> None:
    for major in TABLES.cuda_majors:
        first = min(row for row in (b.native_cuda for b in TABLES.driver_branches) if row.major == major.major)
        assert TABLES.native_cuda(major.min_driver_same_major) == first, major


def test_one_major_ends_where_the_next_begins() -> None:
    majors = sorted(TABLES.cuda_majors, key=lambda row: row.major)
    for older, newer in itertools.pairwise(majors):
        assert older.later_major_from_branch == newer.min_driver_same_major.branch
    assert majors[-1].later_major_from_branch is None


def test_the_driver_paired_with_a_toolkit_is_of_the_branch_that_reports_that_cuda() -> None:
    for release in TABLES.cuda_releases:
        assert TABLES.native_cuda(release.driver_in_release_notes) == release.toolkit.release, release
    for runfile in TABLES.cuda_runfiles:
        if runfile.driver_shipped_with is not None:
            assert TABLES.native_cuda(runfile.driver_shipped_with) == runfile.toolkit.release, runfile


def test_every_branch_that_a_compat_list_or_an_image_names_exists() -> None:
    for accepts in TABLES.compat_accepts:
        for branch in (*accepts.accepts, *accepts.refuses):
            assert TABLES.branch(branch) is not None, (accepts, branch)
    for image in TABLES.images:
        for branch in image.branches:
            assert TABLES.branch(branch) is not None, (image, branch)


def test_a_compat_list_accepts_only_branches_up_to_its_own_and_refuses_only_later_ones() -> None:
    for accepts in TABLES.compat_accepts:
        own = TABLES.branch_of(accepts.cuda)
        assert own is not None
        assert all(branch <= own for branch in accepts.accepts), accepts
        assert all(branch > own for branch in accepts.refuses), accepts
        assert list(accepts.accepts) == sorted(accepts.accepts)


def test_a_note_never_refuses_what_nvidias_table_accepts() -> None:
    for note in TABLES.compat_accepts:
        if note.evidence is CompatEvidence.ELF_NOTE:
            [table] = [
                row
                for row in TABLES.compat_accepts
                if row.cuda == note.cuda and row.evidence is CompatEvidence.NVIDIA_TABLE
            ]
            assert set(table.accepts) <= set(note.accepts), note


def test_every_compat_list_belongs_to_a_package() -> None:
    assert {row.cuda for row in TABLES.compat_accepts} == {row.cuda for row in TABLES.compat_packages}


def test_every_capability_in_use_has_an_architecture() -> None:
    known = {row.capability for row in TABLES.capabilities}
    assert {gpu.capability for gpu in TABLES.gpus} <= known
    kepler = {ComputeCapability(3, 5), ComputeCapability(3, 7)}  # compiled for up to torch 2.0; no product row
    assert {rule.code for rule in TABLES.code_rules} <= known | kepler
    for release in TABLES.torch_releases:
        assert set(release.compiled_for) <= known | kepler, release


def test_every_capability_in_a_wheel_has_a_rule_that_says_where_its_code_runs() -> None:
    codes = {rule.code for rule in TABLES.code_rules}
    for release in TABLES.torch_releases:
        assert set(release.compiled_for) <= codes, release


def test_every_architecture_with_an_end_or_a_kernel_module_is_one_of_the_capabilities() -> None:
    architectures = {row.architecture for row in TABLES.capabilities}
    for row in (*TABLES.rows("architecture_limits"), *TABLES.rows("kernel_modules")):
        assert row.architecture in architectures, row  # type: ignore[attr-defined]


def test_each_gpu_pattern_finds_its_own_example_and_no_other() -> None:
    for gpu in TABLES.gpus:
        finders = [other.model for other in TABLES.gpus if re.search(other.pattern, gpu.example)]
        assert finders == [gpu.model], f"{gpu.example} is found by {finders}"


def test_a_wheel_without_cuda_is_compiled_for_nothing_and_pins_nothing_of_cuda() -> None:
    for release in TABLES.torch_releases:
        if release.wheel_cuda is None:
            assert release.compiled_for == (), release
            assert not [pin for pin in release.pins if pin.project.startswith(("nvidia", "cuda"))], release
        else:
            assert release.compiled_for, release


def test_the_arch_list_of_the_default_variant_equals_the_one_of_the_pypi_wheel() -> None:
    for release in TABLES.torch_releases:
        if release.torch >= TorchVersion.parse("2.13.0") and release.wheel_cuda is not None:
            variant = TABLES.variant_targets(release.torch, release.wheel_cuda, machine=release.machine)
            assert variant is not None
            assert variant.compiled_for == release.compiled_for, release


def test_the_pypi_wheel_of_every_release_since_2_11_is_one_of_the_variants() -> None:
    for release in TABLES.torch_releases:
        if release.torch >= TorchVersion.parse("2.11.0"):
            assert release.wheel_cuda in {row.wheel_cuda for row in TABLES.torch_variants(release.torch)}, release


def test_every_cuda_toolkit_that_torch_pins_is_in_the_table_of_toolkit_wheels() -> None:
    for release in TABLES.torch_releases:
        pin = release.pin("cuda-toolkit")
        if pin is not None:
            assert TABLES.toolkit_wheel(CudaVersion.parse(pin.version)) is not None, release


def test_every_torch_release_with_cuda_since_2_0_pins_a_triton_whose_ptxas_is_known() -> None:
    for release in TABLES.torch_releases:
        pin = release.pin("triton")
        if pin is not None:
            programs = TABLES.triton_programs(pin.version or pin.spec.removeprefix("~="))
            assert programs, release
            minor = f"{release.torch.release[0]}.{release.torch.release[1]}"
            assert all(minor in program.torch for program in programs), release


def test_a_companion_that_pins_torch_exactly_pins_one_the_tables_know() -> None:
    for companion in TABLES.companions:
        pin = companion.pin("torch")
        if pin is not None and pin.version:
            assert TABLES.torch_release(pin.version) is not None, companion


def test_a_companion_that_pins_torchvision_pins_the_one_for_its_torch() -> None:
    for companion in TABLES.companions:
        torch, vision = companion.pin("torch"), companion.pin("torchvision")
        if torch is None or vision is None or not vision.version:
            continue
        version = vision.version if vision.version.count(".") == 2 else f"{vision.version}.0"
        row = TABLES.companion("torchvision", version)
        assert row is not None, companion
        required = row.pin("torch")
        assert required is not None
        assert required.admits(TorchVersion.parse(torch.version)), companion


def test_every_toolkit_with_targets_has_a_limit_for_gcc_and_clang() -> None:
    for row in TABLES.toolkit_targets:
        assert TABLES.gcc_limit(row.toolkit) is not None, row
        assert TABLES.clang_limit(row.toolkit) is not None, row


def test_later_toolkits_never_take_an_older_newest_gcc() -> None:
    limits = [row.newest_major for row in TABLES.host_compilers if row.compiler.value == "gcc"]
    assert limits == sorted(limits)


def test_the_pinned_library_of_a_torch_wheel_is_in_the_soname_runs() -> None:
    release = TABLES.torch_release("2.15.0")
    assert release is not None
    cudnn = release.pin("nvidia-cudnn")
    assert cudnn is not None
    [run] = [row for row in TABLES.wheels_with("libcudnn.so.9", machine="x86_64") if row.project == cudnn.project]
    assert _numbers(run.first) <= _numbers(cudnn.version) <= _numbers(run.last)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]
