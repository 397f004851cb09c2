"""Every kind of option becomes ordered steps: exact commands, exact files, a condition and a way back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.diagnosis.finding import Goal
from firstlight.elf.loader import Rule as Search
from firstlight.errors import BadInput
from firstlight.facts.ability import Sudo
from firstlight.facts.known import Known
from firstlight.plan.diffs import FileText
from firstlight.plan.extras import Extras
from firstlight.plan.option import Kind
from firstlight.plan.step import CheckKind, Condition, Step, StepKind
from firstlight.plan.steps import steps_for
from tests.plan.planning import (
    NAMES,
    TABLES,
    option_of,
    patched,
    question_of,
    ranked_of,
    write_index,
    write_wheel,
)

REPOS = "https://developer.download.nvidia.com/compute/cuda/repos"


def _of_kind(steps: tuple[Step, ...], kind: StepKind) -> list[Step]:
    return [step for step in steps if step.kind is kind]


BUILDERS = [name for name in NAMES if re.search("nvcc|toolkit|driver-570|uv-|gb10|fedora", name)]


@pytest.mark.parametrize(
    ("name", "goal"), [*((name, Goal.INFER) for name in NAMES), *((name, Goal.BUILD_EXTENSIONS) for name in BUILDERS)]
)
def test_every_option_of_every_machine_becomes_steps_that_can_be_carried_out(name: str, goal: Goal) -> None:
    question = question_of(name, goal)
    for option in ranked_of(name, goal).options:
        steps = steps_for(question, option, Extras())
        assert bool(steps) == (option.kind is not Kind.NOTHING), option.id
        assert len({step.id for step in steps}) == len(steps)
        for number, step in enumerate(steps, 1):
            assert step.id.startswith(f"{number:02d}-"), step.id
            assert step.title, step.id
            assert step.because, step.id
            assert step.done_when, step.id
            assert step.commands or step.files or step.kind is StepKind.MANUAL, step.id
            for argv in (*step.commands, *step.undo):
                assert argv, step.id
                assert all(isinstance(word, str) and word for word in argv), argv
                assert not any(word.startswith("~") or "$HOME" in word for word in argv), argv
            assert step.undo or step.files or step.kind is StepKind.MANUAL, f"{step.id} cannot be taken back"
            assert all(change.path.startswith("/") for change in step.files), step.id
            assert not _sets_the_library_path_for_good(step), step.id


def _sets_the_library_path_for_good(step: Step) -> bool:
    """An unconditional LD_LIBRARY_PATH breaks a newer driver: only wire.sh may set it, after it has asked."""
    if step.kind is StepKind.MANUAL:  # what a person types into one open shell
        return False
    told = any("LD_LIBRARY_PATH=" in word for argv in step.commands for word in argv)
    asked = [change for change in step.files if "LD_LIBRARY_PATH=" in change.after]
    return told or any(not change.path.endswith("/compat/wire.sh") or "cuInit" not in change.after for change in asked)


def test_field_report_000s_machine_gets_the_repository_the_package_and_the_wiring() -> None:
    question = question_of("h100-driver-570")
    option = option_of(Kind.COMPAT, "cuda-compat-13-0", folder="/usr/local/cuda-13.0/compat")
    repository, package, wiring = steps_for(question, option, Extras())
    assert repository.commands[0][-1] == f"{REPOS}/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb"
    assert repository.commands[1] == ("dpkg", "--install", "/tmp/cuda-keyring_1.1-1_all.deb")
    assert package.commands == (("apt-get", "install", "--yes", "cuda-compat-13-0"),)
    assert package.undo == (("apt-get", "remove", "--yes", "cuda-compat-13-0"),)
    assert package.bytes == Known(65_400_000, "NVIDIA/cuda-repo-management#48, 2026-11-15")
    assert wiring.kind is StepKind.COMPAT
    assert "535 550 565 570 575 " in wiring.files[0].after, "580 and later run CUDA 13 by themselves"
    assert wiring.files[1].mode == 0o755


def test_a_user_with_sudo_gets_it_in_the_argv_and_files_of_their_own_do_not_need_it() -> None:
    question = question_of("h100-driver-570")
    ability = replace(question.facts.ability, is_root=False, uid=1000, sudo=Sudo.ADMIN_GROUP)
    question = replace(question, facts=replace(question.facts, ability=ability))
    option = option_of(Kind.COMPAT, "cuda-compat-13-0", folder="/usr/local/cuda-13.0/compat")
    _, package, wiring = steps_for(question, option, Extras())
    assert package.commands[0][0] == "sudo"
    assert not wiring.needs_root


@pytest.mark.parametrize(
    ("os_id", "version", "arch", "expected"),
    [
        ("ubuntu", "22.04", "x86_64", "ubuntu2204/x86_64"),
        ("ubuntu", "24.04", "aarch64", "ubuntu2404/sbsa"),
        ("debian", "12", "x86_64", "debian12/x86_64"),
    ],
)
def test_the_repository_is_that_of_the_system(os_id: str, version: str, arch: str, expected: str) -> None:
    question = question_of("h100-driver-570")
    place = replace(question.facts.place, os_id=Known(os_id, "t"), os_version=Known(version, "t"), arch=arch)
    question = replace(question, facts=replace(question.facts, place=place))
    option = option_of(Kind.COMPAT, "cuda-compat-13-0", folder="/usr/local/cuda-13.0/compat")
    assert steps_for(question, option, Extras())[0].commands[0][-1].startswith(f"{REPOS}/{expected}/")


def test_a_system_that_nvidia_has_no_repository_for_is_left_to_a_person() -> None:
    question = question_of("h100-driver-570")
    place = replace(question.facts.place, os_id=Known("alpine", "t"))
    question = replace(question, facts=replace(question.facts, place=place))
    option = option_of(Kind.COMPAT, "cuda-compat-13-0", folder="/usr/local/cuda-13.0/compat")
    first = steps_for(question, option, Extras())[0]
    assert first.kind is StepKind.MANUAL
    assert "not known" in first.note


def test_without_root_the_archive_is_checked_and_unpacked_flat_into_a_folder_of_the_users(tmp_path: Path) -> None:
    question = question_of("h100-driver-570")
    row = TABLES.compat_downloads("NVIDIA redist", "x86_64")[0]
    folder = "~/.local/share/firstlight/cuda-compat-13.1"
    option = option_of(Kind.COMPAT, row.file, folder=folder)
    archive, wiring = steps_for(question, option, Extras(home=str(tmp_path)))
    assert archive.kind is StepKind.ARCHIVE
    assert not archive.needs_root
    assert archive.files[0].after == f"{row.sha256}  {tmp_path}/.local/share/firstlight/{row.file}\n"
    assert archive.bytes == Known(row.download_bytes, f"{row.source}, {row.date}")
    assert f"{tmp_path}/.local/share/firstlight/cuda-compat-13.1" in wiring.files[0].after
    _unpacked(archive, tmp_path, row.file, driver=str(row.driver))


def _unpacked(step: Step, home: Path, name: str, *, driver: str) -> None:
    """The commands after the download, run on an archive that is laid out in two folders."""
    inside = home / "made" / "cuda_compat-archive" / "compat"
    inside.mkdir(parents=True)
    (inside / f"libcuda.so.{driver}").write_text("a library")
    (inside / f"libnvidia-ptxjitcompiler.so.{driver}").write_text("another")
    (inside.parent / "LICENSE").write_text("text")
    target = home / ".local/share/firstlight" / name
    target.parent.mkdir(parents=True)
    subprocess.run(["tar", "-cJf", str(target), "-C", str(inside.parents[1]), inside.parent.name], check=True)
    for argv in step.commands:
        if argv[0] in ("curl", "sha256sum"):
            continue
        subprocess.run(argv, check=True)
    for condition in step.done_when:
        assert condition.kind is CheckKind.FILE_EXISTS
        assert Path(condition.target).exists(), condition.target
    assert not (target.parent / "cuda-compat-13.1" / "LICENSE").exists()
    for argv in step.undo:
        subprocess.run(argv, check=True)
    assert not (target.parent / "cuda-compat-13.1").exists()


def test_an_archive_without_a_checksum_on_record_says_so() -> None:
    name = "cuda_compat-linux-x86_64-580.95.05_cuda13.0-archive.tar.xz"
    option = option_of(Kind.COMPAT, name, folder="~/compat")
    archive = steps_for(question_of("h100-driver-570"), option, Extras(home="/home/u"))[0]
    assert not any(argv[0] == "sha256sum" for argv in archive.commands)
    assert "No checksum" in archive.note


def test_a_library_that_is_here_needs_the_wiring_alone() -> None:
    option = option_of(Kind.COMPAT, folder="/usr/local/cuda-13.0/compat")
    [step] = steps_for(question_of("h100-driver-570-compat-unused"), option, Extras())
    assert step.kind is StepKind.COMPAT
    assert 'case " 535 550 565 570 575 " in' in step.files[0].after, "by the library's own note"


def test_a_compat_library_that_was_baked_in_is_taken_out_of_the_path_beside_the_wiring() -> None:
    bashrc = "alias ll='ls -l'\nexport LD_LIBRARY_PATH=/usr/local/cuda-13.0/compat:$LD_LIBRARY_PATH\n"
    extras = Extras(files=(FileText("/root/.bashrc", bashrc),), home="/root")
    option = option_of(Kind.COMPAT, folder="/usr/local/cuda-13.0/compat")
    wiring, edit, shell = steps_for(question_of("h100-driver-570-compat"), option, extras)
    assert wiring.kind is StepKind.COMPAT
    assert edit.files[0].after == "alias ll='ls -l'\n"
    [(word, value)] = shell.commands
    assert word == "export"
    assert value.startswith("LD_LIBRARY_PATH=/usr/local/cuda-13.0/lib64:")


def test_login_shells_are_wired_only_where_the_profile_was_read_and_only_as_an_option(tmp_path: Path) -> None:
    question = question_of("h100-driver-570-compat-unused")
    option = option_of(Kind.COMPAT, folder="/usr/local/cuda-13.0/compat")
    extras = Extras(files=(FileText("/root/.profile", "umask 022"),), home="/root")
    wiring, line = steps_for(question, option, extras)
    assert line.optional
    wire = wiring.files[0].path
    assert line.files[0].after == f"umask 022\n[ ! -r {wire} ] || . {wire}\n"
    assert patched(line.files[0], tmp_path) == line.files[0].after
    again = Extras(files=(FileText("/root/.profile", line.files[0].after),), home="/root")
    assert len(steps_for(question, option, again)) == 1


def test_the_h200_with_a_stale_path_gets_a_diff_of_the_file_that_sets_it(tmp_path: Path) -> None:
    text = 'CUDA_HOME=/usr/local/cuda\nexport LD_LIBRARY_PATH="$CUDA_HOME/compat:/usr/local/nvidia/lib64"\necho hi\n'
    extras = Extras(
        files=(FileText("/root/.bashrc", text), FileText("/etc/environment", 'PATH="/bin"\n')), home="/root"
    )
    question = question_of("h200-compat-stale")
    option = option_of(Kind.REMOVE, folder="/usr/local/cuda/compat")
    edit, package, shell = steps_for(question, option, extras)
    assert shell.optional
    [change] = edit.files
    assert change.after == 'CUDA_HOME=/usr/local/cuda\nexport LD_LIBRARY_PATH="/usr/local/nvidia/lib64"\necho hi\n'
    assert patched(change, tmp_path) == change.after
    assert edit.done_when[0].kind is CheckKind.FILE_LACKS_LINE
    assert shell.commands == (("export", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64"),)
    assert package.optional
    assert package.commands == (("apt-get", "remove", "--yes", "cuda-compat-13-0"),)


def test_where_no_file_sets_the_path_a_person_is_told_where_to_look() -> None:
    option = option_of(Kind.REMOVE, folder="/usr/local/cuda/compat")
    steps = steps_for(question_of("h200-compat-stale"), option, Extras(home="/root"))
    [find] = [step for step in steps if step.id.endswith("find-who-sets-it")]
    assert find.kind is StepKind.MANUAL
    assert find.commands[0][:4] == ("grep", "-rn", "/usr/local/cuda/compat", "/root/.bashrc")
    assert "ENV line of the image" in find.note


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('DIRS=(\n  /usr/local/cuda/compat\n)\nexport LD_LIBRARY_PATH=$(IFS=:; echo "${DIRS[*]}")\n', 2),
        ("while read -r d; do\n  export LD_LIBRARY_PATH=$d\ndone <<EOF\n/usr/local/cuda/compat\nEOF\n", 4),
        (". /dev/stdin <<'EOF'\nexport LD_LIBRARY_PATH=/usr/local/cuda/compat\nEOF\n", 2),
    ],
)
def test_lines_that_name_the_folder_are_told_where_none_sets_it_plainly(text: str, line: int) -> None:
    option = option_of(Kind.REMOVE, folder="/usr/local/cuda/compat")
    extras = Extras(home="/root", files=(FileText("/root/.bashrc", text),))
    steps = steps_for(question_of("h200-compat-stale"), option, extras)
    [find] = [step for step in steps if step.id.endswith("find-who-sets-it")]
    assert f"These lines name it: /root/.bashrc, line {line}: " in find.note


def test_a_poisoned_path_without_compat_is_found_by_the_findings_own_command() -> None:
    extras = Extras(files=(FileText("/home/user/.bashrc", "export LD_LIBRARY_PATH=/usr/local/cuda-12.2/lib64\n"),))
    [option] = ranked_of("cuda-lib64-first").options
    edit, shell = steps_for(question_of("cuda-lib64-first"), option, extras)
    assert edit.files[0].after == ""
    assert shell.commands == (("unset", "LD_LIBRARY_PATH"),)


def test_an_ldconfig_file_is_removed_with_a_backup_and_the_cache_made_anew() -> None:
    conf = "/etc/ld.so.conf.d/cuda-compat.conf"
    extras = Extras(files=(FileText(conf, "/usr/local/cuda-13.0/compat\n"),))
    option = option_of(Kind.REMOVE, folder="/usr/local/cuda-13.0/compat")
    question = question_of("h100-driver-595-compat-580")
    step = steps_for(question, option, extras)[0]
    assert step.files[0].removes
    assert step.commands == (("ldconfig",),)
    assert step.done_when[0].kind is CheckKind.FILE_ABSENT
    more = Extras(files=(FileText(conf, "# ours\n/opt/lib\n/usr/local/cuda-13.0/compat/\n"),))
    [change] = steps_for(question, option, more)[0].files
    assert (change.after, change.removes) == ("# ours\n/opt/lib\n", False)
    unread = steps_for(question, option, Extras())[0]
    assert unread.commands[0] == ("mv", "--no-clobber", conf, f"{conf}.before-firstlight")
    assert unread.undo[0] == ("mv", "--force", f"{conf}.before-firstlight", conf)


def test_a_preloaded_library_is_taken_out_of_the_variable() -> None:
    question = question_of("h200-compat-stale")
    loads = question.facts.libcuda.would_load
    assert isinstance(loads, Known)
    preloaded = Known(replace(loads.value, found_by=Search.PRELOAD, entry="libcuda.so.1"), "test")
    libcuda = replace(
        question.facts.libcuda,
        would_load=preloaded,
        ld_library_path=(),
        ld_preload=("/usr/local/cuda/compat/libcuda.so.1",),
    )
    question = replace(question, facts=replace(question.facts, libcuda=libcuda))
    step = steps_for(question, option_of(Kind.REMOVE, folder="/usr/local/cuda/compat"), Extras())[-1]
    assert step.commands == (("unset", "LD_PRELOAD"),)
    assert step.undo == (("export", "LD_PRELOAD=/usr/local/cuda/compat/libcuda.so.1"),)


def test_wheels_go_into_the_judged_environment_from_their_index_as_one_set() -> None:
    index = "https://download.pytorch.org/whl/cu128"
    option = option_of(Kind.WHEEL, "torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "vllm==0.12.0", index=index)
    [step] = steps_for(question_of("h100-driver-570"), option, Extras())
    assert step.kind is StepKind.PIP
    first, second = step.commands
    assert first[4:] == ("torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "--index-url", index)
    assert second[4:] == ("vllm==0.12.0", "torch==2.9.0+cu128", "torchvision==0.24.0+cu128")
    assert step.done_when[0].expected.split("\n") == ["torch==2.9.0+cu128", "torchvision==0.24.0+cu128", "vllm==0.12.0"]


def test_taking_wheels_back_names_what_was_there_and_where_it_came_from() -> None:
    index = "https://download.pytorch.org/whl/"
    option = option_of(Kind.WHEEL, "torch==2.9.0+cu128", "flash-attn==2.8.3", index=f"{index}cu128")
    [step] = steps_for(question_of("h100-driver-570"), option, Extras())
    assert step.undo[0][3:] == ("uninstall", "--yes", "flash-attn")
    assert step.undo[1][3:] == ("install", "--no-deps", "torch==2.9.0+cu130", "--index-url", f"{index}cu130")
    assert "triton==3.4.0" in step.undo[2], "what torch pins changes with it and comes back with it"


def test_another_build_of_the_same_number_goes_first_because_pip_takes_one_for_the_other() -> None:
    [step] = steps_for(question_of("h100-driver-570"), option_of(Kind.WHEEL, "torch==2.9.0"), Extras())
    assert [argv[3:] for argv in step.commands] == [("uninstall", "--yes", "torch"), ("install", "torch==2.9.0")]


def test_a_package_that_is_compiled_sees_the_torch_that_is_installed() -> None:
    option = option_of(
        Kind.WHEEL, "torch==2.9.0+cu128", "flash-attn==2.8.3", index="https://download.pytorch.org/whl/cu128"
    )
    [step] = steps_for(question_of("h100-driver-570"), option, Extras())
    assert step.commands[1][4:] == ("--no-build-isolation", "flash-attn==2.8.3", "torch==2.9.0+cu128")


def test_the_newest_nightly_is_taken_as_a_pre_release() -> None:
    index = "https://download.pytorch.org/whl/nightly/cu130"
    [step] = steps_for(question_of("h100-driver-570"), option_of(Kind.WHEEL, "torch", index=index), Extras())
    assert step.commands[0][4:] == ("--upgrade", "--pre", "torch", "--index-url", index)


@pytest.mark.parametrize(
    ("channel", "known_by"),
    [
        ("nightly", "torch==*.dev*+cu130\ntorchvision==*.dev*\ntriton\nflash-attn"),
        ("test", "torch==*+cu130\ntorchvision\ntriton\nflash-attn"),
    ],
)
def test_an_early_build_without_a_number_is_known_by_its_form(channel: str, known_by: str) -> None:
    index = f"https://download.pytorch.org/whl/{channel}/cu130"
    option = option_of(Kind.WHEEL, "torch", "torchvision", "triton", "flash-attn", index=index)
    [step] = steps_for(question_of("h100-driver-570"), option, Extras())
    assert step.done_when == (Condition(CheckKind.DISTRIBUTIONS, "/usr/bin/python3", known_by),)


def test_a_project_keeps_exact_versions_and_is_not_given_a_nightly_without_one() -> None:
    option = option_of(Kind.WHEEL, "torch", index="https://download.pytorch.org/whl/nightly/cu130")
    with pytest.raises(BadInput, match=r"torch: no version is given, and the uv project .* --want torch==VERSION"):
        steps_for(question_of("uv-lock-would-undo"), option, Extras())


def test_packages_that_are_there_already_take_no_step() -> None:
    index = "https://download.pytorch.org/whl/cu130"
    option = option_of(Kind.COMPAT, "torch==2.9.0+cu130", index=index, folder="/usr/local/cuda-13.0/compat")
    [step] = steps_for(question_of("h100-driver-570-compat-unused"), option, Extras())
    assert step.kind is StepKind.COMPAT


def test_an_environment_of_uv_has_no_pip_and_is_filled_by_uv() -> None:
    option = option_of(Kind.WHEEL, "torch==2.9.0+cu128", index="https://download.pytorch.org/whl/cu128")
    [step] = steps_for(question_of("h200-compat-first"), option, Extras())
    assert step.kind is StepKind.UV
    assert step.commands[0][:5] == ("uv", "pip", "install", "--python", "/opt/torch/.venv/bin/python3")


def test_a_system_python_that_its_distribution_manages_gets_a_new_environment() -> None:
    question = question_of("h100-driver-570")
    chosen = question.facts.python.environments[0]
    managed = replace(question.facts.python, environments=(replace(chosen, externally_managed=True),))
    question = replace(question, facts=replace(question.facts, python=managed))
    option = option_of(Kind.WHEEL, "torch==2.9.0+cu128", index="https://download.pytorch.org/whl/cu128")
    made, install = steps_for(question, option, Extras(home="/root"))
    assert made.kind is StepKind.VENV
    assert made.commands == (("/usr/bin/python3", "-m", "venv", "/root/firstlight-venv"),)
    assert "PEP 668" in made.note
    assert install.commands[0][0] == "/root/firstlight-venv/bin/python"
    assert install.undo == (("/root/firstlight-venv/bin/python", "-m", "pip", "uninstall", "--yes", "torch"),)


def test_pip_really_installs_the_set_and_takes_it_back(tmp_path: Path) -> None:
    """The planned commands run by a real pip in a throw-away environment, against folders of little wheels."""
    old, new = tmp_path / "cu130", tmp_path / "cu128"
    before = write_wheel(tmp_path / "w", "torchvision", "0.24.0+cu130", requires=("torch==2.9.0",))
    write_index(old, (write_wheel(tmp_path / "w", "torch", "2.9.0+cu130"), before))
    vision = write_wheel(tmp_path / "w", "torchvision", "0.24.0+cu128", requires=("torch==2.9.0",))
    write_index(new, (write_wheel(tmp_path / "w", "torch", "2.9.0+cu128"), vision))
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(venv)], check=True)
    python = f"{venv}/bin/python"
    env = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")} | {
        "PIP_CONFIG_FILE": os.devnull
    }
    base = [python, "-m", "pip", "install", "--quiet", "--ignore-installed"]
    subprocess.run([*base, "torch==2.9.0+cu130", "--index-url", old.as_uri()], check=True, env=env)
    question = question_of("h100-driver-570")
    chosen = question.facts.python.environments[0]
    here = tuple(each for each in chosen.distributions if each.name in ("torch", "torchvision"))
    chosen = replace(chosen, interpreter=Known(python, "test"), prefix=str(venv), distributions=here)
    question = replace(
        question, facts=replace(question.facts, python=replace(question.facts.python, environments=(chosen,)))
    )
    option = option_of(Kind.WHEEL, "torch==2.9.0+cu128", "torchvision==0.24.0+cu128", index=new.as_uri())
    [step] = steps_for(question, option, Extras())
    for argv in step.commands:
        subprocess.run(argv, check=True, env=env, capture_output=True)
    assert _version(python, "torch") == "2.9.0+cu128"
    assert _version(python, "torchvision") == "0.24.0+cu128"
    for argv in step.undo:
        back = [word.replace("https://download.pytorch.org/whl/cu130", old.as_uri()) for word in argv]
        subprocess.run(back, check=True, env=env, capture_output=True)
    assert _version(python, "torch") == "2.9.0+cu130"
    assert _version(python, "torchvision") == "0.24.0+cu130"


def _version(python: str, name: str) -> str:
    """What is installed in the environment itself, not what it sees of the one around it."""
    code = (
        "import importlib.metadata as m, sys;"
        f"print(*[d.version for d in m.distributions(path=[p for p in sys.path if p.startswith(sys.prefix)])"
        f" if d.name == {name!r}])"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_toolkit_wheels_get_the_links_that_nvcc_wants_and_a_cuda_home() -> None:
    option = option_of(Kind.TOOLKIT, "cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.2")
    wheels, links, home = steps_for(question_of("h100-driver-570"), option, Extras(home="/root"))
    assert wheels.commands[0][-1] == "cuda-toolkit[nvcc,cudart,cccl,crt,nvvm]==13.0.2"
    assert wheels.done_when[0].expected == "cuda-toolkit==13.0.2"
    root = "/usr/local/lib/python3.12/dist-packages/nvidia/cu13"
    assert links.commands == (
        ("ln", "-sfn", "lib", f"{root}/lib64"),
        ("ln", "-sfn", "libcudart.so.13", f"{root}/lib/libcudart.so"),
    )
    assert f"export CUDA_HOME={root}\n" in home.files[0].after
    assert "LD_LIBRARY_PATH" not in home.files[0].after


def test_in_a_uv_project_the_toolkit_becomes_a_group_that_sync_keeps() -> None:
    option = option_of(Kind.TOOLKIT, "cuda-toolkit[nvcc]==13.0.2")
    first = steps_for(question_of("uv-lock-would-undo"), option, Extras())[0]
    assert first.kind is StepKind.PROJECT
    assert first.commands[-1] == (
        "uv", "add", "--project", "/home/user/sleap-nn", "--group", "cuda-build", "cuda-toolkit[nvcc]==13.0.2",
    )  # fmt: skip


def test_a_toolkit_from_the_system_or_conda_and_one_that_is_here() -> None:
    question = question_of("h100-driver-570")
    repository, package, home = steps_for(question, option_of(Kind.TOOLKIT, "cuda-toolkit-12-8"), Extras())
    assert repository.id.endswith("set-up-repository")
    assert repository.note == "The CUDA images of NVIDIA have it set up already."  # conda-forge has compat too
    assert package.commands == (("apt-get", "install", "--yes", "cuda-toolkit-12-8"),)
    assert "CUDA_HOME=/usr/local/cuda-12.8\n" in home.files[0].after
    conda, _ = steps_for(
        question, option_of(Kind.TOOLKIT, "conda-forge::cuda-toolkit=12.8", folder="~/cuda-12.8"), Extras(home="/root")
    )
    assert conda.commands[0][:5] == ("conda", "create", "--yes", "--prefix", "/root/cuda-12.8")
    [here] = steps_for(question, option_of(Kind.TOOLKIT, folder="/usr/local/cuda-13.0"), Extras())
    assert "CUDA_HOME=/usr/local/cuda-13.0\n" in here.files[0].after


def test_a_driver_is_installed_on_a_machine_of_ones_own_and_then_it_is_rebooted() -> None:
    option = option_of(Kind.DRIVER, "nvidia-driver-580-server-open")
    driver, reboot = steps_for(question_of("a100-no-driver"), option, Extras())
    assert driver.commands[0][-3:] == ("install", "--yes", "nvidia-driver-580-server-open")
    assert reboot.kind is StepKind.MANUAL
    [elsewhere] = steps_for(question_of("h100-driver-570"), option, Extras())
    assert elsewhere.kind is StepKind.MANUAL, "in a container nobody changes the driver"


def test_another_machine_is_asked_for_by_the_providers_own_command() -> None:
    piece = "runpodctl pod create --gpu-id 'NVIDIA H100 80GB HBM3' --min-cuda-version 13.0"
    [step] = steps_for(question_of("h100-driver-570"), option_of(Kind.MACHINE, piece, "torch==2.9.0+cu130"), Extras())
    assert step.commands == (
        ("runpodctl", "pod", "create", "--gpu-id", "NVIDIA H100 80GB HBM3", "--min-cuda-version", "13.0"),
    )
    assert step.note == "There: torch==2.9.0+cu130."


def test_a_container_image_is_pulled_and_tried_where_docker_is_in_reach() -> None:
    question = question_of("a100-no-driver")
    runtime = replace(question.facts.container.runtime, docker_socket=Known(value=True, seen_in="/var/run/docker.sock"))
    container = replace(question.facts.container, runtime=runtime)
    option = option_of(Kind.CONTAINER, "nvidia/cuda:13.0.2-devel")
    [by_hand] = steps_for(question, option, Extras())
    assert by_hand.kind is StepKind.MANUAL
    pull, try_it = steps_for(replace(question, facts=replace(question.facts, container=container)), option, Extras())
    assert pull.commands == (("docker", "pull", "nvidia/cuda:13.0.2-devel"),)
    assert try_it.commands[0][:5] == ("docker", "run", "--rm", "--gpus", "all")


def test_a_source_build_names_the_tag_and_the_architectures_that_are_here() -> None:
    checkout, build = steps_for(question_of("h100-driver-570"), option_of(Kind.SOURCE), Extras(home="/root"))
    assert "v2.9.0" in checkout.commands[0]
    assert build.commands[1][:2] == ("env", "TORCH_CUDA_ARCH_LIST=9.0")


def test_a_wheel_option_that_also_names_a_removal_has_steps_for_both() -> None:
    option = option_of(
        Kind.WHEEL,
        "torch==2.9.0+cu128",
        index="https://download.pytorch.org/whl/cu128",
        title="torch==2.9.0+cu128; and take /usr/local/cuda/compat out of LD_LIBRARY_PATH",
    )
    steps = steps_for(question_of("h200-compat-stale"), option, Extras(home="/root"))
    assert _of_kind(steps, StepKind.PIP)
    assert any(step.id.endswith("this-shell") for step in steps)
