"""pip and uv steps in throw-away environments: applied, proved, applied again without a change, taken back exactly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from firstlight.apply.conditions import Met, all_met, installed_distributions
from firstlight.apply.executor import StepFailed
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import acting, step
from tests.apply.wheels import make_wheel
from tests.environments import environment_with_pip


def _environment(folder: Path) -> str:
    """An environment with demo 1.0, which wants part 1.0."""
    environment_with_pip(folder / "venv")
    wheels = folder / "wheels"
    for version in ("1.0", "2.0"):
        make_wheel(wheels, "demo", version, requires=(f"part=={version}", *(("extra",) if version == "2.0" else ())))
        make_wheel(wheels, "part", version)
    make_wheel(wheels, "extra", "0.1")
    interpreter = str(folder / "venv/bin/python")
    install = [interpreter, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(wheels), "demo==1.0"]
    subprocess.run(install, check=True)
    return interpreter


@pytest.fixture
def python(tmp_path: Path) -> str:
    return _environment(tmp_path)


@pytest.fixture(scope="module")
def python_looked_at(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all tests that change nothing in it."""
    return _environment(tmp_path_factory.mktemp("looked-at"))


def _install(python: str, wheels: Path, *wanted: str) -> Step:
    argv = (python, "-m", "pip", "install", "--no-index", "--find-links", str(wheels), *wanted)
    done = Condition(CheckKind.DISTRIBUTIONS, python, "\n".join(wanted))
    return step("01-install", kind=StepKind.PIP, commands=(argv,), done_when=(done,))


def _with_uv(python: str, wheels: Path, *wanted: str) -> Step:
    uv = str(Path(sys.executable).with_name("uv"))
    argv = (uv, "pip", "install", "--python", python, "--no-index", "--find-links", str(wheels), *wanted)
    done = Condition(CheckKind.DISTRIBUTIONS, python, "\n".join(wanted))
    return step("01-install", kind=StepKind.UV, commands=(argv,), done_when=(done,))


@pytest.mark.parametrize("install", [_install, _with_uv], ids=["pip", "uv"])
def test_a_step_upgrades_is_skipped_the_second_time_and_is_taken_back_exactly(
    tmp_path: Path, python: str, install: Callable[..., Step]
) -> None:
    before = installed_distributions(python)
    asked = Asked((install(python, tmp_path / "wheels", "demo==2.0"),), "d", "o", "t")
    [run] = act(acting(tmp_path), asked)
    assert run.done
    after = installed_distributions(python)
    assert after is not None
    assert {"demo==2.0", "part==2.0", "extra==0.1"} <= set(after)
    assert act(acting(tmp_path), asked) == ()
    doing = acting(tmp_path)
    for each in newest_to_undo(doing):
        undo(doing, each)
    assert installed_distributions(python) == before
    version = subprocess.run(
        [python, "-c", "import demo; print(demo.VERSION)"], capture_output=True, text=True, check=True
    )
    assert version.stdout == "1.0\n"


@pytest.mark.parametrize(
    ("expected", "holds", "saw"),
    [
        ("", False, "no package is named that could be looked at"),
        ("demo", True, "demo installed"),
        ("demo==1.*", True, "demo==1.* installed"),
        ("demo==*.dev*", False, "demo is 1.0, not *.dev*"),
        ("demo==*+cu132", False, "demo is 1.0, not *+cu132"),
        ("demo\ntorch", False, "torch is not installed"),
        ("torch==*.dev*+cu132", False, "torch is not installed, not *.dev*+cu132"),
    ],
)
def test_a_package_without_a_version_is_looked_for_by_its_form(
    python_looked_at: str,
    expected: str,
    holds: bool,  # noqa: FBT001 a table of cases
    saw: str,
) -> None:
    assert all_met((Condition(CheckKind.DISTRIBUTIONS, python_looked_at, expected),)) == Met(holds, saw)


def test_a_failing_step_says_the_command_and_its_last_lines_and_is_resumed(tmp_path: Path, python: str) -> None:
    wheels = tmp_path / "wheels"
    asked = Asked((_install(python, wheels, "demo==3.0"),), "d", "o", "t")
    with pytest.raises(StepFailed, match="command 1 of 1 ended with status 1") as caught:
        act(acting(tmp_path), asked)
    assert "No matching distribution found for demo==3.0" in "\n".join(caught.value.tail)
    assert Path(caught.value.log).read_text().startswith("$ ")
    make_wheel(wheels, "demo", "3.0", requires=("part==1.0",))
    doing = acting(tmp_path)
    [run] = interrupted(doing)
    finish(doing, run)
    assert "demo==3.0" in (installed_distributions(python) or ())


def test_a_step_whose_condition_does_not_hold_afterwards_has_failed(tmp_path: Path, python: str) -> None:
    lying = step(
        "01-lie", kind=StepKind.PIP, commands=(("true",),),
        done_when=(Condition(CheckKind.DISTRIBUTIONS, python, "demo==9.9"),),
    )  # fmt: skip
    with pytest.raises(StepFailed, match=r"every command ended well, and yet demo is 1\.0, not 9\.9"):
        act(acting(tmp_path), Asked((lying,), "d", "o", "t"))
