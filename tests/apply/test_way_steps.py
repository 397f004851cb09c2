"""Ways of files, shells and packages, carried out by apply with real shells and a real pip, and taken back."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.conditions import look
from firstlight.apply.edit_proof import with_tried_edits
from firstlight.apply.parts import parted
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.facts.known import Known
from firstlight.plan.option import Kind
from firstlight.plan.steps import steps_for
from firstlight.ways.diffs import FileText
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import (
    InstallWheels,
    LinkFile,
    Manner,
    Package,
    ReadEnvironment,
    RemoveDistributions,
    RemoveFiles,
    SetModuleOption,
    SetVariables,
    UnsetVariables,
    Unwire,
    Variable,
    WiredBy,
)
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from firstlight.ways.way import Way
from tests.apply.acting import acting, tree
from tests.apply.pip_environments import Pip
from tests.diagnosis.rule_case import facts_of
from tests.plan.planning import option_of, question_of
from tests.ways.machines import at, made, on

COMPAT = "/usr/local/cuda/compat"


class Home:
    """A home folder whose start-up files were read."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        for name, text in files.items():
            (self.home / f".{name}").write_text(text)

    def steps(self, *ways: Way) -> tuple[Step, ...]:
        read = [FileText(str(path), path.read_text()) for path in sorted(self.home.iterdir()) if path.is_file()]
        where = at("h200-compat-stale", *read, extras=Extras(home=str(self.home), state=str(self.folder / "own")))
        parts = with_tried_edits(parted(made(where, *ways)))
        assert not parts.not_written
        return tuple(replace(step, id=f"{n:02d}-{step.id}") for n, step in enumerate(parts.ours, 1))

    def apply(self, steps: tuple[Step, ...]) -> None:
        act(acting(self.folder), Asked(steps, "d" * 16, "o", "t"))

    def undo(self) -> None:
        doing = acting(self.folder)
        for run in newest_to_undo(doing):
            undo(doing, run)

    def in_login_shell(self, name: str, **env: str) -> str:
        code = f'echo "${{{name}-unset}}"'
        given = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"} | env
        return subprocess.run(
            ["bash", "-lc", code], env=given, capture_output=True, text=True, check=True
        ).stdout.strip()


MASK, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
SHELLS: dict[str, tuple[Way, dict[str, str], str, dict[str, str], str, str]] = {
    # the way; start-up files; the variable; what a shell starts with; the variable before and after
    "set": (SetVariables((Variable(ORDER, "PCI_BUS_ID"),)), {"profile": "umask 022"}, ORDER, {}, "unset", "PCI_BUS_ID"),
    "set where nothing is": (SetVariables((Variable(ORDER, "a b"),)), {}, ORDER, {}, "unset", "a b"),
    "unset": (UnsetVariables((MASK,)), {"profile": f"export A=1 {MASK}=0\n"}, MASK, {}, "0", "unset"),
    "unset what a parent sets": (UnsetVariables((MASK,)), {"bash_profile": "A=1\n"}, MASK, {MASK: "3"}, "3", "unset"),
    "leave out what an image sets": (
        Unwire((COMPAT,), WiredBy.LIBRARY_PATH), {"profile": "umask 022\n"}, "LD_LIBRARY_PATH",
        {"LD_LIBRARY_PATH": f"/a:{COMPAT}"}, f"/a:{COMPAT}", "/a",
    ),
    "take out of the file": (
        Unwire((COMPAT,), WiredBy.LIBRARY_PATH), {"profile": f"export LD_LIBRARY_PATH={COMPAT}:/b\n"},
        "LD_LIBRARY_PATH", {}, f"{COMPAT}:/b", "/b",
    ),
    "take out of a preload": (
        Unwire(("/gone.so",), WiredBy.PRELOAD), {"profile": "export LD_PRELOAD=/gone.so\n"}, "LD_PRELOAD", {},
        "/gone.so", "unset",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHELLS)
def test_new_login_shells_have_it_as_the_way_says_and_as_before_once_it_is_taken_back(
    tmp_path: Path, name: str
) -> None:
    way, files, variable, env, before, after = SHELLS[name]
    home = Home(tmp_path, **files)
    was = tree(home.home)
    assert home.in_login_shell(variable, **env) == before
    steps = home.steps(way)
    home.apply(steps)
    assert home.in_login_shell(variable, **env) == after
    assert all(look(condition).holds for step in steps for condition in step.done_when)
    home.undo()
    assert tree(home.home) == was
    assert home.in_login_shell(variable, **env) == before


def test_three_edits_of_one_file_are_all_there_and_all_taken_back(tmp_path: Path) -> None:
    text = f"export {MASK}=0\nexport LD_LIBRARY_PATH={COMPAT}:/b\nalias ll='ls -l'\n"
    home = Home(tmp_path, profile=text)
    was = tree(home.home)
    extras = Extras(files=(FileText(f"{home.home}/.profile", text),), home=str(home.home), state=f"{tmp_path}/own")
    unwire = Unwire((COMPAT,), WiredBy.LIBRARY_PATH)
    ways = (unwire, UnsetVariables((MASK,)), SetVariables((Variable(ORDER, "PCI_BUS_ID"),)))
    steps = parted(steps_for(question_of("h200-compat-stale"), option_of(Kind.REMOVE, *ways), extras)).ours
    home.apply(steps)
    seen = [home.in_login_shell(name) for name in ("LD_LIBRARY_PATH", MASK, ORDER)]
    assert seen == ["/b", "unset", "PCI_BUS_ID"]
    home.undo()
    assert tree(home.home) == was


def test_what_the_container_was_started_with_reaches_login_shells(tmp_path: Path) -> None:
    home = Home(tmp_path, profile="umask 022\n")
    handed = tmp_path / "rp_environment"
    handed.write_text('export RUNPOD_POD_ID="abc"\n')
    home.apply(home.steps(ReadEnvironment(str(handed), ("RUNPOD_POD_ID",))))
    assert home.in_login_shell("RUNPOD_POD_ID") == "abc"
    home.undo()
    assert home.in_login_shell("RUNPOD_POD_ID") == "unset"


def test_a_line_that_would_land_in_an_open_body_is_a_persons(tmp_path: Path) -> None:
    home = Home(tmp_path)
    text = "if true; then\n"
    where = at("h200", FileText(f"{home.home}/.profile", text), extras=Extras(home=str(home.home)))
    step = made(where, SetVariables((Variable(ORDER, "PCI_BUS_ID"),)))[0]
    assert step.kind is StepKind.MANUAL
    assert f"Add: export {ORDER}=PCI_BUS_ID" in step.note


def test_a_file_is_moved_aside_under_a_name_that_ldconfig_passes_over_and_a_link_is_made(tmp_path: Path) -> None:
    home = Home(tmp_path)
    library = home.home / "libcuda.so.1"
    library.write_bytes(b"\x7fELF stub")
    was = tree(home.home)
    home.apply(home.steps(RemoveFiles((str(library),)), LinkFile(str(library), "/proc/version")))
    assert library.read_text().startswith("Linux")
    assert [path.name for path in home.home.iterdir() if path.name.startswith("lib")] == ["libcuda.so.1"]
    home.undo()
    assert tree(home.home) == was


def test_an_option_of_a_module_is_put_behind_what_is_there_and_the_early_image_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, made_anew = tmp_path / "bin", tmp_path / "made-anew"
    programs.mkdir()
    (programs / "update-initramfs").write_text(f"#!/bin/sh\necho once >> {made_anew}\n")  # a stand-in
    (programs / "update-initramfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    home = Home(tmp_path)
    conf = home.home / "nvidia.conf"
    conf.write_text("options nvidia NVreg_OpenRmEnableUnsupportedGpus=1")
    where = at("a100-no-driver", FileText(str(conf), conf.read_text()))
    where = on(where, replace(where.platform, is_root=True))
    [step] = made(where, SetModuleOption("nvidia_uvm", "uvm_disable_hmm=1", str(conf)))
    step = replace(step, needs_root=False)  # of a file in a folder of the test's own
    home.apply((step,))
    assert conf.read_text().splitlines()[1] == "options nvidia_uvm uvm_disable_hmm=1"
    home.undo()
    assert conf.read_text() == "options nvidia NVreg_OpenRmEnableUnsupportedGpus=1"
    assert made_anew.read_text() == "once\nonce\n", "after the file is back"


def _of_pip(pip: Pip, *ways: Way) -> tuple[Step, ...]:
    """The steps for an environment whose pip has a folder of wheels alone."""
    facts = facts_of("h100-driver-570")
    chosen = facts.python.environments[0]
    names = {"demo": "1.0", "part": "1.0"}
    here = tuple(replace(chosen.distributions[0], name=name, version=version) for name, version in names.items())
    chosen = replace(chosen, interpreter=Known(pip.python, "test"), prefix=f"{pip.folder}/venv", distributions=here)
    steps = made(at(replace(facts, python=replace(facts.python, environments=(chosen,)))), *ways)
    offline = ("--no-index", "--find-links", str(pip.wheels))
    return tuple(
        replace(step, commands=tuple((*argv, *offline) if "install" in argv else argv for argv in step.commands))
        for step in steps
    )


def test_packages_that_were_taken_out_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(pip.wheels))
    was = pip.files()
    [step] = _of_pip(pip, RemoveDistributions(("demo",)))
    doing = acting(tmp_path)
    doing = replace(doing, env={**doing.env, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(pip.wheels)})
    act(doing, Asked((step,), "d", "o", "t"))
    assert not any(path.startswith("demo") for path in pip.files())
    assert look(step.done_when[0]).holds
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert pip.files() == was
    assert look(step.done_when[0]).saw == "demo 1.0 is installed"


def test_the_same_number_is_installed_again_where_a_file_is_gone_and_bounds_are_held(tmp_path: Path) -> None:
    pip = Pip(tmp_path)
    lost = pip.site / "demo/__init__.py"
    again, newer = _of_pip(
        pip,
        InstallWheels((Package("demo", "1.0"),), manner=Manner.AGAIN),
        InstallWheels((Package("part", bounds=">=1.5,<3"),)),
    )
    assert not look(newer.done_when[0]).holds, "part 1.0 is there"
    assert look(newer.done_when[0]).saw == "part is 1.0, not >=1.5,<3"
    lost.unlink()
    act(acting(tmp_path), Asked((again, newer), "d", "o", "t"))
    assert lost.exists()
    assert look(Condition(CheckKind.DISTRIBUTIONS, pip.python, "part>=1.5,<3")).holds
