"""Settings of akmods, GRUB and the limits on memory: the very lines, put into real files and taken out again."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.apply.executor import is_done
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.tables.system_rows import Family
from firstlight.ways.diffs import FileText
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import AllowLockedMemory, ChooseModules, Flavour, StartKernel
from firstlight.ways.step import Step
from firstlight.ways.traits import by_person
from tests.apply.acting import acting
from tests.ways.machines import at, made, on

_CONF = "# which modules: those of the kernel\nMODULE_VARIANT=kernel\n"


def _done_and_undone(folder: Path, step: Step, file: Path) -> str:
    """The text while the step holds; that of before is back afterwards."""
    before = file.read_bytes() if file.exists() else None
    act(acting(folder), Asked((step,), "d" * 16, "o", "t"))
    during = file.read_text()
    for run in newest_to_undo(acting(folder)):
        undo(acting(folder), run)
    assert (file.read_bytes() if file.exists() else None) == before
    return during


@pytest.mark.parametrize("was_read", [True, False])
def test_the_variant_of_the_modules_is_exchanged_and_comes_back(tmp_path: Path, was_read: bool) -> None:  # noqa: FBT001
    file = tmp_path / "kernel.conf"
    file.write_text(_CONF)
    texts = (FileText(str(file), _CONF),) if was_read else ()
    [step] = made(at("a100-no-driver", *texts), ChooseModules(Flavour.OPEN, str(file), "kernel-open", "kernel"))
    assert _done_and_undone(tmp_path, step, file) == _CONF.replace("=kernel", "=kernel-open")


def test_the_macro_of_akmods_is_added_to_a_file_that_is_there(tmp_path: Path) -> None:
    file = tmp_path / "macros.nvidia-kmod"
    file.write_text("%other 1")
    way = ChooseModules(Flavour.OPEN, str(file), "%_with_kmod_nvidia_open 1")
    [step] = made(at("a100-no-driver", FileText(str(file), "%other 1")), way)
    assert _done_and_undone(tmp_path, step, file) == "%other 1\n%_with_kmod_nvidia_open 1\n"


def test_a_line_that_is_there_is_not_added_a_second_time(tmp_path: Path) -> None:
    """Until the modules are built and the machine is restarted, the same is planned again."""
    file = tmp_path / "macros.nvidia-kmod"
    text = "%_with_kmod_nvidia_open 1\n%other 1\n"
    file.write_text(text)
    way = ChooseModules(Flavour.OPEN, str(file), "%_with_kmod_nvidia_open 1")
    [step] = made(at("a100-no-driver", FileText(str(file), text)), way)
    assert is_done((step,))
    assert _done_and_undone(tmp_path, step, file) == text


def test_grub_is_told_by_a_file_of_its_own_which_its_shell_can_read(tmp_path: Path) -> None:
    [step] = made(at("a100-no-driver"), StartKernel("6.8.0-1029-gcp"))
    [change] = step.files
    assert change.path == "/etc/default/grub.d/90-firstlight-kernel.cfg"
    assert step.commands == (("update-grub",),)
    assert [each.argv[2] for each in step.done_when if each.argv] == [
        "submenu 'Advanced options for Ubuntu'",
        "menuentry 'Ubuntu, with Linux 6.8.0-1029-gcp'",
    ], "GRUB's menu is looked at"
    assert [argv for argv in step.undo if argv[-1] == "update-grub"], "the menu is made again when it is taken back"
    file = tmp_path / "kernel.cfg"
    file.write_text(change.after)
    read = subprocess.run(["sh", "-c", f'. "{file}"; echo "$GRUB_DEFAULT"'], capture_output=True, text=True, check=True)
    assert read.stdout == "Advanced options for Ubuntu>Ubuntu, with Linux 6.8.0-1029-gcp\n"


def test_grub_is_told_by_id_where_its_menu_was_read_because_titles_are_translated() -> None:
    menu = """submenu 'Erweiterte Optionen für Ubuntu' $menuentry_id_option 'gnulinux-advanced-5f1c' {
\tmenuentry 'Ubuntu, mit Linux 6.8.0-1030-gcp' $menuentry_id_option 'gnulinux-6.8.0-1030-gcp-advanced-5f1c' {
\tmenuentry 'Ubuntu, mit Linux 6.8.0-1029-gcp' $menuentry_id_option 'gnulinux-6.8.0-1029-gcp-advanced-5f1c' {
"""
    where = at("a100-no-driver", FileText("/boot/grub/grub.cfg", menu))
    [step] = made(where, StartKernel("6.8.0-1029-gcp"))
    ids = ("gnulinux-advanced-5f1c", "gnulinux-6.8.0-1029-gcp-advanced-5f1c")
    assert step.files[0].after.endswith(f'GRUB_DEFAULT="{ids[0]}>{ids[1]}"\n')
    assert [each.argv[2] for each in step.done_when if each.argv] == [f"'{each}'" for each in ids]
    assert all(f"'{each}'" in menu for each in ids)
    [other] = made(where, StartKernel("6.8.0-1028-gcp"))
    assert "with Linux 6.8.0-1028-gcp" in other.files[0].after, "the menu has no entry of it: update-grub makes one"


def test_a_system_whose_boot_loader_is_not_known_is_left_to_a_person() -> None:
    where = at("a100-no-driver")
    unknown = replace(where.platform, distribution="void", family=Family.OTHER)
    assert "is not known here" in by_person(StartKernel("6.1.0"), on(where, unknown).platform)


def test_grubby_is_asked_by_root_whether_the_kernel_is_chosen_already() -> None:
    where = at("fedora-44-cuda-12-8")
    [step] = made(on(where, replace(where.platform, is_root=True)), StartKernel("6.8.0-200.fc39.x86_64"))
    assert step.commands == (("grubby", "--set-default", "/boot/vmlinuz-6.8.0-200.fc39.x86_64"),)
    [done] = step.done_when
    assert done.argv[-3:] == ("/boot/vmlinuz-6.8.0-200.fc39.x86_64", "grubby", "--default-kernel")


def test_memory_may_be_locked_by_root_too() -> None:
    [step] = made(at("two-gpus-on-a-network", extras=Extras(home="/root")), AllowLockedMemory())
    [change] = step.files
    assert change.path.startswith("/etc/security/limits.d/")
    rules = [line.split() for line in change.after.splitlines() if not line.startswith("#")]
    assert rules == [["*", "-", "memlock", "unlimited"], ["root", "-", "memlock", "unlimited"]]
