"""The start script as a real shell runs it: it asks the driver that is loaded and cuInit, then wires or does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from firstlight.ways.start_script import Wiring, asks_cuda, run_script, wire_script

# cuInit's answer is that of the file beside the library, as a real compat library's depends on the driver below it.
_LIBCUDA = r"""
#include <stdio.h>
int cuInit(unsigned flags) { int code = 999; FILE *f = fopen(ANSWER, "r");
  if (f) { if (fscanf(f, "%d", &code) != 1) code = 999; fclose(f); } return code; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
"""


class Place:
    """A folder with a compat library, a driver version to read and the two scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compat = folder / "compat folder"
        self.compat.mkdir()
        self.wiring = Wiring(str(self.compat), "13.0", (535, 550, 570), sys.executable, str(folder))
        source = folder / "libcuda.c"
        source.write_text(_LIBCUDA)
        library = self.compat / "libcuda.so.580.95.05"
        define = f'-DANSWER="{folder / "answer"}"'
        subprocess.run(["gcc", "-shared", "-fPIC", define, str(source), "-o", str(library)], check=True)
        (self.compat / "libcuda.so.1").symlink_to(library.name)
        self.answers(0)
        self.write()

    def write(self) -> None:
        """The scripts as planned, with the kernel's files in our folder instead."""
        text = wire_script(self.wiring)
        assert "/sys/module/nvidia/version" in text
        text = text.replace("/sys/module/nvidia/version", str(self.folder / "sys"))
        text = text.replace("/proc/driver/nvidia/version", str(self.folder / "proc"))
        text = text.replace("/etc/ld.so.conf.d/", f"{self.folder}/conf.d/")
        Path(self.wiring.wire).write_text(text)
        run = Path(self.wiring.run)
        run.write_text(run_script(self.wiring))
        run.chmod(0o755)

    def driver(self, version: str) -> None:
        (self.folder / "sys").write_text(f"{version}\n")

    def hook(self, *lines: str) -> None:
        """Let the container toolkit have written these lines for ldconfig; the last has no end, as some write it."""
        (self.folder / "conf.d").mkdir()
        (self.folder / "conf.d/00-compat-123.conf").write_text("\n".join(lines))

    def answers(self, code: int) -> None:
        (self.folder / "answer").write_text(str(code))

    def path_of_a_program(self, **environ: str) -> tuple[str, str]:
        """LD_LIBRARY_PATH as a program started by the script sees it, and what was said."""
        argv = [self.wiring.run, "/bin/sh", "-c", 'printf %s "${LD_LIBRARY_PATH-unset}"']
        env = {"PATH": "/usr/bin:/bin", **environ}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_older_driver_that_the_library_takes_gets_it_first(place: Place) -> None:
    place.driver("570.133.20")
    assert place.path_of_a_program() == (str(place.compat), "")
    assert place.path_of_a_program(LD_LIBRARY_PATH="/x:/y") == (f"{place.compat}:/x:/y", "")


@pytest.mark.parametrize("driver", ["580.95.05", "595.58.03", "560.35.03", "470.1"])
def test_a_driver_that_needs_none_or_is_not_on_the_list_gets_none(place: Place, driver: str) -> None:
    place.driver(driver)
    assert place.path_of_a_program() == ("unset", "")


@pytest.mark.parametrize("code", [803, 804])
def test_a_library_whose_cuinit_fails_is_left_out_and_that_is_said(place: Place, code: int) -> None:
    place.driver("570.133.20")
    place.answers(code)
    path, said = place.path_of_a_program()
    assert path == "unset"
    assert "does not start on driver 570.133.20; started without it" in said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sun Mar 30 00:57:11 UTC 2025", "wired"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (dvs@a)  Sun Mar 30",
            "wired",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (dvs@a)", "not"),
    ],
)
def test_without_sys_the_version_is_read_from_proc(place: Place, line: str, expected: str) -> None:
    (place.folder / "proc").write_text(f"{line}\nGCC version:  gcc version 13.3.0 (Ubuntu)\n")
    path, _ = place.path_of_a_program()
    assert ("not" if path == "unset" else "wired") == expected


def test_without_a_driver_nothing_is_wired(place: Place) -> None:
    assert place.path_of_a_program() == ("unset", "")


def test_off_means_off_and_a_missing_library_is_said(place: Place) -> None:
    place.driver("570.133.20")
    assert place.path_of_a_program(FIRSTLIGHT_COMPAT="off") == ("unset", "")
    (place.compat / "libcuda.so.1").unlink()
    path, said = place.path_of_a_program()
    assert path == "unset"
    assert "no libcuda.so.1" in said


@pytest.mark.parametrize("driver", ["580.95.05", "595.58.03", "560.35.03", ""])
def test_a_library_that_is_missing_is_not_missed_where_the_driver_does_not_need_it(place: Place, driver: str) -> None:
    (place.compat / "libcuda.so.1").unlink()
    if driver:
        place.driver(driver)
    assert place.path_of_a_program() == ("unset", "")


def _library(folder: Path, name: str) -> Path:
    """A folder as an image has it: libcuda.so.1 leads to a file whose name says the driver it was made for."""
    folder.mkdir()
    (folder / name).write_text("")
    if name != "libcuda.so.1":
        (folder / "libcuda.so.1").symlink_to(name)
    return folder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcuda.so.580.65.06", "left"),
        ("libcuda.so.590.48.01", "left"),
        ("libcuda.so.1000.10", "left"),
        ("libcuda.so.570.124.06", "wired"),  # of a CUDA 12.8 image: it does not run CUDA 13
        ("libcuda.so.1", "wired"),
        ("libcuda.so.new.1", "wired"),
    ],
)
def test_what_the_container_toolkit_wired_is_left_to_it_if_it_is_as_new(place: Place, name: str, expected: str) -> None:
    place.driver("570.133.20")
    place.hook("# by a hook", f"{_library(place.folder / 'image', name)}/")
    assert place.path_of_a_program() == (("unset" if expected == "left" else str(place.compat)), "")


@pytest.mark.parametrize("lines", [(), ("",), ("# a note", "image"), ("/no/such/folder",)])
def test_a_file_of_the_container_toolkit_that_names_no_library_stops_nothing(
    place: Place, lines: tuple[str, ...]
) -> None:
    place.driver("570.133.20")
    place.hook(*lines)
    assert place.path_of_a_program() == (str(place.compat), "")


def test_the_very_folder_that_the_container_toolkit_wired_is_left_to_it_whatever_its_name_says(place: Place) -> None:
    place.driver("570.133.20")
    (place.compat / "libcuda.so.580.95.05").rename(place.compat / "libcuda.so.1")
    place.hook("/no/such/folder", str(place.compat))
    assert place.path_of_a_program() == ("unset", "")
    assert "(" + str(place.folder / "conf.d/00-compat-123.conf") + ")" in _said(place)


def _said(place: Place) -> str:
    """What the hook says in a shell with FIRSTLIGHT_COMPAT=on."""
    argv = ["sh", "-c", f". '{place.wiring.wire}'"]
    env = {"PATH": "/usr/bin:/bin", "FIRSTLIGHT_COMPAT": "on"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True).stderr


def test_a_folder_that_is_on_the_path_already_is_not_put_there_twice(place: Place) -> None:
    place.driver("570.133.20")
    assert place.path_of_a_program(LD_LIBRARY_PATH=f"/x:{place.compat}")[0] == f"/x:{place.compat}"


def test_reading_it_into_a_shell_leaves_nothing_else_behind(place: Place) -> None:
    place.driver("570.133.20")
    script = f". '{place.wiring.wire}'; . '{place.wiring.wire}'; set | grep -ci firstlight_compat; echo $#; echo \"$1\""
    argv = ["sh", "-c", script, "sh", "one argument"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert done.stdout.split("\n")[:3] == ["0", "1", "one argument"]


def test_the_command_keeps_its_arguments_and_its_exit_code(place: Place) -> None:
    argv = [place.wiring.run, "/bin/sh", "-c", "printf '%s|' \"$@\"; exit 7", "sh", "a b", "", "c"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "a b||c|")


def test_what_proves_the_wiring_fails_without_it(place: Place) -> None:
    place.driver("570.133.20")
    proof = [place.wiring.run, sys.executable, "-c", asks_cuda(13000)]
    assert subprocess.run(proof, check=False, capture_output=True).returncode == 0
    too_new = [place.wiring.run, sys.executable, "-c", asks_cuda(13010)]
    assert subprocess.run(too_new, check=False, capture_output=True).returncode != 0
    place.answers(803)
    assert subprocess.run(proof, check=False, capture_output=True).returncode != 0
