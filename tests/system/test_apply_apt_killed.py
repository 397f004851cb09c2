"""kill -9 inside apt, at every turn of a package: the next apply finishes it, and undo brings exactly back what was."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace

import pytest

from firstlight.apply.executor import Acting, StepFailed
from firstlight.apply.package_sets import manual_packages
from firstlight.apply.session import Asked, act, finish, interrupted, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.errors import CouldNotAct
from firstlight.ways.step import CheckKind, Condition, Step, StepKind
from tests.apply.acting import Quiet, acting, killed_at, step, tree
from tests.apply.debs import Repository
from tests.apply.stand_ins import can_have_its_own_mounts
from tests.system.apt_room import FILES, HOME, add_package, in_a_room, sign, states

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own"),
    pytest.mark.skipif(shutil.which("apt-get") is None or shutil.which("gpg") is None, reason="needs apt and gpg"),
]


class Room:
    """What a test needs inside: a repository with `main`, which needs `part`, and a state folder."""

    def __init__(self) -> None:
        self.repository = Repository(HOME / "repository")
        os.environ["APT_CONFIG"] = str(self.repository.config)
        add_package(self.repository, "part")
        add_package(self.repository, "main", depends="part")
        add_package(self.repository, "other")
        self.apt("update")

    def apt(self, *words: str) -> None:
        """apt-get by somebody else; killed or not."""
        argv = ["apt-get", *words, "--yes"]
        subprocess.run(argv, env=self.repository.env, capture_output=True, check=False)

    def let_unpacking_kill(self) -> None:
        """A dpkg-deb in front of the real one: told to, it hands dpkg the first files and kills it and apt."""
        program = HOME / "bin/dpkg-deb"
        program.parent.mkdir()
        program.write_text(
            f"""#!/bin/sh
case "$*" in *--fsys-tarfile*) ;; *) exec /usr/bin/dpkg-deb "$@" ;; esac
[ -e {HOME}/kill/unpacking ] || exec /usr/bin/dpkg-deb "$@"
rm {HOME}/kill/unpacking
/usr/bin/dpkg-deb "$@" | head -c 40000
sleep 0.3
read -r _ _ _ apt _ < /proc/$PPID/stat
kill -9 $PPID $apt
"""
        )
        program.chmod(0o755)
        with self.repository.config.open("a") as config:
            config.write(f'DPkg::Path "{program.parent}:/usr/sbin:/usr/bin:/sbin:/bin";\n')

    def doing(self) -> Acting:
        return replace(acting(HOME), env=self.repository.env)

    def apply(self, *steps: Step) -> Acting:
        doing = self.doing()
        for run in interrupted(doing):
            finish(doing, run)
        act(doing, Asked(steps, "d", "o", "t"))
        return doing

    def undo(self) -> None:
        doing = self.doing()
        for run in newest_to_undo(doing):
            undo(doing, run)


def _install(name: str = "main") -> Step:
    return step(
        f"01-install-{name}", kind=StepKind.APT, commands=(("apt-get", "install", "--yes", name),),
        done_when=(Condition(CheckKind.APT_PACKAGE, name),),
    )  # fmt: skip


def _remove(name: str) -> Step:
    return step(
        f"01-remove-{name}", kind=StepKind.APT, commands=(("apt-get", "remove", "--yes", name),),
        done_when=(Condition(CheckKind.FILE_ABSENT, f"{FILES}/{name}/one"),),
    )  # fmt: skip


def _seen() -> tuple[str, dict[str, tuple[int, bytes]]]:
    return states(), tree(FILES)


def _killed(room: Room, asked: Step, name: str, script: str) -> None:
    sign(name, script).touch()
    with pytest.raises(StepFailed, match="ended with status"):
        room.apply(asked)
    assert not sign(name, script).exists(), "it was not killed where it was meant to be"


def _heard(doing: Acting) -> str:
    watcher = doing.watcher
    assert isinstance(watcher, Quiet)
    return "\n".join(watcher.heard)


TURNS = [(name, script) for name in ("part", "main") for script in ("preinst", "postinst")]


def test_an_install_killed_at_any_turn_is_finished_by_the_next_apply_and_undone_exactly() -> None:
    def work() -> None:
        room = Room()
        before = _seen()
        room.apply(_install())
        whole = _seen()
        room.undo()
        assert _seen() == before
        for name, script in TURNS:
            _killed(room, _install(), name, script)
            doing = room.apply(_install())
            assert "dpkg was interrupted" in _heard(doing)
            assert _seen() == whole, (name, script)
            room.undo()
            assert _seen() == before, (name, script)

    in_a_room(work)


def test_an_install_killed_at_any_turn_is_undone_without_finishing_it() -> None:
    def work() -> None:
        room = Room()
        before = _seen()
        for name, script in TURNS:
            _killed(room, _install(), name, script)
            room.undo()
            assert _seen() == before, (name, script)

    in_a_room(work)


def test_files_that_dpkg_had_only_begun_to_unpack_go_with_undo() -> None:
    """Killed inside the unpacking itself, where no script of a package runs: dpkg has no list of the files yet."""

    def work() -> None:
        room = Room()
        before = _seen()
        room.let_unpacking_kill()
        for goes_on in (True, False):
            (HOME / "kill/unpacking").touch()
            with pytest.raises(StepFailed):
                room.apply(_install("part"))
            assert list(FILES.rglob("*.dpkg-new")), "it was not killed inside the unpacking"
            if goes_on:
                room.apply(_install("part"))
            room.undo()
            assert _seen() == before, goes_on

    in_a_room(work)


def test_an_undo_killed_at_any_turn_is_finished_by_the_next() -> None:
    def work() -> None:
        room = Room()
        before = _seen()
        for name in ("main", "part"):
            for script in ("prerm", "postrm"):
                room.apply(_install())
                sign(name, script).touch()
                with pytest.raises(CouldNotAct, match="ended with status"):
                    room.undo()
                room.undo()
                assert _seen() == before, (name, script)

    in_a_room(work)


def test_a_removal_killed_at_any_turn_is_finished_and_undone_exactly() -> None:
    def work() -> None:
        room = Room()
        room.apt("install", "other")
        before = _seen()
        for script in ("prerm", "postrm"):
            for goes_on in (True, False):
                _killed(room, _remove("other"), "other", script)
                if goes_on:
                    room.apply(_remove("other"))
                    assert not (FILES / "other").exists()
                room.undo()
                assert _seen() == before, script

    in_a_room(work)


def test_an_upgrade_killed_at_any_turn_comes_back_in_its_old_version() -> None:
    def work() -> None:
        room = Room()
        room.apt("install", "main")
        before = _seen()
        add_package(room.repository, "part", "2.0")
        add_package(room.repository, "main", "2.0", depends="part (>= 2.0)")
        room.apt("update")
        newer = replace(_install(), done_when=(Condition(CheckKind.APT_PACKAGE, "main", "2.0"),))
        goes_on = False
        for name in ("part", "main"):
            for script in ("prerm", "preinst", "postrm", "postinst"):
                _killed(room, newer, name, script)
                goes_on = not goes_on  # both for each package
                if goes_on:
                    room.apply(newer)
                    assert (FILES / "main/one").read_text() == "main 2.0\n"
                room.undo()
                assert _seen() == before, (name, script, goes_on)

    in_a_room(work)


@pytest.mark.parametrize("script", ["preinst", "postinst"])
def test_what_somebody_else_was_killed_in_is_finished_first_and_stays_theirs(script: str) -> None:
    def work() -> None:
        room = Room()
        sign("other", script).touch()
        room.apt("install", "other")
        assert " other 1.0" in states()
        doing = room.apply(_install())
        assert "dpkg was interrupted" in _heard(doing)
        room.undo()
        assert "install ok installed other 1.0\nmanual: other\n" in states(), states()
        assert " main" not in states()
        events = [record.event for record in doing.journal.records]
        assert "recovery-started" in events
        assert events.index("recovery-ended") < events.index("set-saved"), "undo must not take theirs away"

    in_a_room(work)


def test_a_repair_that_would_remove_a_package_is_left_to_a_person() -> None:
    """`needy` was unpacked by hand and what it needs is in no repository: apt would take it away again."""

    def work() -> None:
        room = Room()
        add_package(room.repository, "needy", depends="nowhere")
        deb = str(room.repository.packages / "needy_1.0_all.deb")
        subprocess.run(["dpkg", "--install", deb], capture_output=True, check=False)
        before = _seen()
        with pytest.raises(CouldNotAct) as caught:
            room.apply(_install())
        assert "finishing them would remove needy" in str(caught.value)
        assert "\n  apt-get install --fix-broken\n" in str(caught.value)
        assert _seen() == before
        room.undo()
        assert _seen() == before

    in_a_room(work)


def _held(seconds: str) -> subprocess.Popen[str]:
    """Another process that holds dpkg's lock for some seconds, with a package half-way."""
    code = (
        "import fcntl, sys, time; lock = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(lock, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(float(sys.argv[1]))"
    )
    process = subprocess.Popen(["python3", "-c", code, seconds], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_nothing_is_recovered_under_another_apt_at_work() -> None:
    def work() -> None:
        room = Room()
        sign("other", "postinst").touch()
        room.apt("install", "other")
        holder = _held("1.5")
        doing = room.apply(_install())
        heard = _heard(doing).splitlines()
        waiting = next(i for i, line in enumerate(heard) if "waiting for another package manager" in line)
        assert waiting < next(i for i, line in enumerate(heard) if "dpkg was interrupted" in line)
        assert holder.wait(10) == 0

    in_a_room(work)


def test_settings_that_a_removed_package_had_left_are_there_after_undo() -> None:
    def work() -> None:
        room = Room()
        room.apt("install", "other")
        room.apt("remove", "other")
        before = _seen()
        assert (FILES / "etc/other.conf").exists()
        room.apply(_install("other"))
        room.undo()
        assert _seen() == before

    in_a_room(work)


def test_what_somebody_installed_after_firstlight_was_killed_stays_and_keeps_its_mark() -> None:
    def work() -> None:
        room = Room()
        before = _seen()

        def die(at: str) -> None:
            if at.endswith("command ended") and " main " in states():
                os.kill(os.getpid(), 9)

        def killed(passing: object) -> None:
            act(replace(acting(HOME, die), env=room.repository.env), Asked((_install(),), "d", "o", "t"))

        assert killed_at(10**6, killed)
        room.apt("install", "other")
        with pytest.raises(CouldNotAct, match=": other may be somebody's own"):
            room.undo()
        assert (" main " in states(), " part " in states(), " other 1.0" in states()) == (False, False, True)
        assert "other" in manual_packages()
        room.apt("purge", "other")
        room.undo()
        assert _seen() == before

    in_a_room(work)


def test_a_package_that_somebody_upgraded_since_is_named_and_stops_the_undo() -> None:
    def work() -> None:
        room = Room()
        room.apply(_install())
        add_package(room.repository, "part", "2.0")
        room.apt("update")
        room.apt("install", "part")
        kept = states()
        with pytest.raises(CouldNotAct, match=r"part==2\.0 is installed, and the step left part==1\.0"):
            room.undo()
        assert states() == kept

    in_a_room(work)
