"""What closes a chain: which packages, which links, and when a second look is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from firstlight.cli.plan_files import machine_looked_at
from firstlight.errors import BadInput, CouldNotAct
from firstlight.facts.known import Known
from firstlight.facts.look import Look
from firstlight.libraries.analysis import analyse
from firstlight.libraries.closing import ComesFrom, Loading
from firstlight.libraries.fixing import Fix, work_out
from firstlight.libraries.local_wheels import wheels_in
from firstlight.libraries.proof import prove
from firstlight.libraries.steps import Source, check_environment, closing_steps, steps_of
from firstlight.libraries.target import find_target
from firstlight.tables import load
from firstlight.ways.step import StepKind
from tests.diagnosis.rule_case import MACHINES
from tests.libraries.trees import CU13, Tree


def _fix(tree: Tree, *, shelf: Path | None = None, target: str = "torch") -> Fix:
    around, found = find_target(tree.around(), target)
    at_hand = None if shelf is None else wheels_in(str(shelf), arch="x86_64")
    return work_out(around, analyse(around, found), load(), shelf=at_hand)


def test_cudss_of_soname_0_is_taken_from_below_1_and_its_folder_is_searched(tree: Tree) -> None:
    tree.torch(lacks=("libcudss.so.0",), rpath=CU13)
    [need] = tree.close().needs
    assert (need.way, need.loading) == (ComesFrom.INSTALL, Loading.REACHED)
    assert need.provided[0].requirement.startswith("nvidia-cudss-cu13>=0.7")
    assert need.provided[0].version.startswith("0.")


def test_a_library_outside_the_search_path_gets_a_link_beside_the_one_who_asks(tree: Tree) -> None:
    tree.torch(lacks=("libcudss.so.0",), rpath="$ORIGIN")
    [need] = tree.close().needs
    assert (need.loading, need.link) == (Loading.LINK, str(tree.lib / "libcudss.so.0"))


def test_one_that_asks_without_a_search_path_gets_it_opened_beforehand(tree: Tree) -> None:
    tree.library("extra/libcudss_user.so")
    from tests.libraries.add_needed import add_needed

    add_needed(tree.site / "extra/libcudss_user.so", "libcudss.so.0")
    blas_lt = tree.library("nvidia/cu13/lib/libcublasLt.so.13")
    blas = tree.library("nvidia/cu13/lib/libcublas.so.13", needs=(blas_lt,))
    tree.library("nvidia/cu13/lib/libcudss.so.0", needs=(blas,))
    tree.installed("nvidia-cudss-cu13", "0.8.0.10")
    tree.installed("nvidia-cublas", "13.1.0.3")
    around, found = find_target(tree.around(), str(tree.site / "extra/libcudss_user.so"))
    fix = work_out(around, analyse(around, found), load())
    # Each after what it needs itself: a library that is opened before its own needs does not open.
    assert [Path(path).name for path in fix.preloads] == ["libcublasLt.so.13", "libcublas.so.13", "libcudss.so.0"]
    [step] = steps_of(around, found, fix, source=Source())
    assert step.kind is StepKind.FILE
    [change] = step.files
    Path(change.path).write_text(change.after)
    again, found = find_target(tree.around(), str(tree.site / "extra/libcudss_user.so"))
    assert analyse(again, found).sound, "what firstlight-preload.pth opens counts as loaded"
    (tree.site / "sitecustomize.py").write_text("import atexit; print('hello'); atexit.register(print, 'bye')\n")
    [proof] = prove(again, found, analyse(around, found))
    assert proof.ok, proof.error


def test_a_wheel_that_is_installed_and_not_searched_is_linked_with_all_it_needs(tree: Tree) -> None:
    lt = tree.library("nvidia/cu13/lib/libcublasLt.so.13")
    blas = tree.library("nvidia/cu13/lib/libcublas.so.13", needs=(lt,), runpath="$ORIGIN")
    tree.library("nvidia/cu13/lib/libcudss.so.0", needs=(blas,), rpath="$ORIGIN")
    tree.installed("nvidia-cudss-cu13", "0.8.0.10")
    tree.installed("nvidia-cublas", "13.1.0.3")
    tree.torch(lacks=("libcudss.so.0",), runpath="$ORIGIN")
    fix = _fix(tree)
    assert fix.picks == ()
    # A linked library takes the link's folder for its $ORIGIN, so its neighbours are linked too.
    assert [Path(link.path).name for link in fix.links] == ["libcudss.so.0", "libcublas.so.13", "libcublasLt.so.13"]


def test_an_installed_wheel_whose_file_is_gone_is_installed_again(tree: Tree) -> None:
    tree.installed("nvidia-cudss-cu13", "0.8.0.10")
    tree.torch(lacks=("libcudss.so.0",), rpath=CU13)
    [need] = tree.close().needs
    assert need.way is ComesFrom.REINSTALL
    around, found = find_target(tree.around(), "torch")
    [step] = steps_of(around, found, _fix(tree), source=Source())
    assert "--force-reinstall" in step.commands[0]
    assert "--no-deps" in step.commands[0]


def test_an_installed_wheel_of_the_next_soname_is_replaced(tree: Tree) -> None:
    tree.library("nvidia/cu13/lib/libcudss.so.1")
    tree.installed("nvidia-cudss-cu13", "1.0.0.35")
    tree.torch(lacks=("libcudss.so.0",), rpath=CU13)
    [need] = tree.close().needs
    assert need.way is ComesFrom.INSTALL
    assert need.provided[0].installed == "1.0.0.35"


def test_wheels_at_hand_are_read_before_they_are_installed(tree: Tree, wheels: Path) -> None:
    tree.torch(lacks=("libcudss.so.0",), runpath="$ORIGIN", cuda="")
    fix = _fix(tree, shelf=wheels)
    assert {(pick.project, pick.version) for pick in fix.picks} == {
        ("nvidia-cudss-cu13", "0.8.0.10"),
        ("nvidia-cublas", "13.1.0.3"),
    }
    assert [Path(link.path).name for link in fix.links] == ["libcudss.so.0", "libcublas.so.13", "libcublasLt.so.13"]
    assert all(isinstance(pick.bytes, Known) and pick.bytes.value > 0 for pick in fix.picks)


def test_a_folder_that_has_only_the_wrong_version_is_refused_with_what_it_has(tree: Tree, wheels: Path) -> None:
    next(wheels.glob("nvidia_cudss_cu13-0.8*")).unlink()
    tree.torch(lacks=("libcudss.so.0",), rpath=CU13)
    with pytest.raises(BadInput, match=r"nvidia-cudss-cu13>=0\.7.* is needed, and it has 1\.0\.0\.35"):
        _fix(tree, shelf=wheels)


def test_a_folder_of_wheels_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--find-links .*: no such file or directory; accepted: a folder of wheels"):
        wheels_in(str(tmp_path / "gone"), arch="x86_64")
    with pytest.raises(BadInput, match="no wheel for x86_64 is in it"):
        wheels_in(str(tmp_path), arch="x86_64")


def test_the_driver_and_the_system_are_left_to_those_who_have_them(tree: Tree) -> None:
    tree.torch(lacks=("libcuda.so.1", "libibverbs.so.1", "libnobody.so.7"), rpath=CU13)
    ways = {need.missing.name: need.way for need in tree.close().needs}
    assert ways == {
        "libcuda.so.1": ComesFrom.DRIVER,
        "libibverbs.so.1": ComesFrom.SYSTEM,
        "libnobody.so.7": ComesFrom.UNKNOWN,
    }
    fix = _fix(tree)
    assert fix.is_empty
    around, found = find_target(tree.around(), "torch")
    [step] = steps_of(around, found, fix, source=Source())
    # root installs it with the rest; a user's sudo might ask for a password, and the rest would be taken back
    root = os.getuid() == 0 and os.path.exists("/usr/bin/apt-get")
    assert step.kind is (StepKind.APT if root else StepKind.MANUAL)
    assert step.commands[0][-4:] == ("apt-get", "install", "--yes", "libibverbs1")


def test_a_recorded_machine_with_missing_libraries_gets_the_steps_that_close_the_chain() -> None:
    machine = machine_looked_at(Look(facts_file=str(MACHINES / "thor-missing-libraries")))
    assert machine is not None
    install, link = closing_steps(machine, load())
    assert (install.kind, link.kind) == (StepKind.PIP, StepKind.FILE)
    assert "nvpl-lapack==0.4.0.1" in install.commands[0]
    assert {Path(change.path).name for change in link.files} == {
        "libnvpl_lapack_lp64_gomp.so.0", "libnvpl_blas_lp64_gomp.so.0", "libcudss.so.0",
    }  # fmt: skip
    assert install.id == "install-nvpl-lapack-0.4.0.1", "a plan numbers its steps itself"
    assert "nvidia-cublas comes because cuda-toolkit requires it" in install.note
    assert install.undo == (
        ("/home/user/venv/bin/python3", "-m", "pip", "uninstall", "--yes", "nvpl-lapack", "nvpl-blas",
         "nvidia-cudss-cu13", "cuda-toolkit", "nvidia-cublas", "nvidia-cuda-nvrtc"),
    )  # fmt: skip


def test_nothing_is_installed_into_a_python_that_its_distribution_manages(tree: Tree) -> None:
    tree.torch(lacks=("libcudss.so.0",), rpath=CU13)
    stdlib = Path(str(tree.around().environment[0].prefix)) / "lib"
    around = tree.around()
    assert stdlib.exists()
    from dataclasses import replace

    managed = replace(around, environment=(replace(around.environment[0], externally_managed=True),))
    with pytest.raises(CouldNotAct, match="is managed by the distribution"):
        check_environment(managed)
