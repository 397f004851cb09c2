"""A compat library that every program had is wired for every program again; else it is said how one is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from firstlight.apply.parts import parted
from firstlight.plan.plan import plan_for
from firstlight.ways.diffs import FileText
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import Unwire, WireCompat
from firstlight.ways.step import Step, StepKind
from tests.plan.planning import question_of, ranked_of

COMPAT = "/usr/local/cuda-13.0/compat"
# What wire.sh does where the driver takes the library; what it asks before is tested on its own.
WIRES = f'LD_LIBRARY_PATH="{COMPAT}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"; export LD_LIBRARY_PATH\n'


def _by_apply(home: Path, *names: str) -> tuple[Step, ...]:
    """What apply does of the first option of the machine whose shells all have a compat library."""
    [option] = ranked_of("h100-driver-570-compat").options
    assert [type(way) for way in option.ways] == [Unwire, WireCompat]
    files = tuple(FileText(f"{home}/{name}", "umask 022\n") for name in names)
    extras = Extras(files=files, home=str(home), state=f"{home}/state")
    return parted(plan_for(question_of("h100-driver-570-compat"), option, extras=extras).steps).ours


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ((), ("-l",)),
        ((".profile",), ("-l",)),
        ((".bash_profile", ".profile"), ("-l",)),
        ((".profile", ".bashrc"), ("-i",)),
    ],
)
def test_a_new_shell_has_the_library_after_apply_took_it_out_of_the_path(
    names: tuple[str, ...], options: tuple[str, ...], tmp_path: Path
) -> None:
    for step in _by_apply(tmp_path, *names):
        for change in step.files:
            if change.path.startswith(str(tmp_path)):
                Path(change.path).parent.mkdir(parents=True, exist_ok=True)
                Path(change.path).write_text(change.after, encoding="utf-8")
    (tmp_path / "state/compat/wire.sh").write_text(WIRES, encoding="utf-8")
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": f"/opt/lib:{COMPAT}"}
    said = subprocess.run(
        ["bash", *options, "-c", 'printf %s "$LD_LIBRARY_PATH"'],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert said.stdout == f"{COMPAT}:/opt/lib"


def test_a_plain_start_of_that_python_has_it_too(tmp_path: Path) -> None:
    ids = [step.id.partition("-")[2] for step in _by_apply(tmp_path, ".profile")]
    assert ids.index("wire-compat-at-start") < ids.index("wire-compat-in-login-shells")
    assert "wire-compat-in-python" in ids


@pytest.mark.parametrize("machine", ["h100-driver-570", "h100-driver-570-compat-unused"])
def test_where_programs_get_it_only_through_the_start_script_that_is_a_command_of_its_own(machine: str) -> None:
    [option] = [each for each in ranked_of(machine).options[:1] if isinstance(each.ways[-1], WireCompat)]
    steps = plan_for(question_of(machine), option, extras=Extras(state="/root/state")).steps
    [told] = [step for step in steps if step.kind is StepKind.MANUAL]
    assert not told.optional
    assert [argv[0] for argv in told.commands] == ["/root/state/compat/run"]
    assert parted(steps).ours
    assert not parted(steps).unfinished
