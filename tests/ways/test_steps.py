"""Ways become ordered steps: exact commands, exact files, a condition and a way back."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.facts.ability import Sudo
from firstlight.facts.known import Known, Unknown
from firstlight.plan.option import Kind
from firstlight.plan.steps import steps_for
from firstlight.report.steps_lines import commands_of
from firstlight.versions import ComputeCapability, CudaVersion
from firstlight.ways.diffs import FileText
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import (
    BuildFromSource,
    CloseLibraries,
    FetchCompat,
    Flavour,
    InstallConda,
    InstallDriver,
    InstallPackages,
    InstallWheels,
    LinkFile,
    OtherMachine,
    Package,
    Restart,
    Scope,
    SetUpRepository,
    SetVariables,
    UnsetVariables,
    Unwire,
    UseImage,
    Variable,
    WireCompat,
    WiredBy,
)
from firstlight.ways.platform import Manager, platform_of
from firstlight.ways.step import CheckKind, Step, StepKind
from firstlight.ways.way import Way
from tests.diagnosis.rule_case import facts_of
from tests.plan.planning import option_of, patched, question_of
from tests.ways.machines import TABLES, at, made, on

REPOS = "https://developer.download.nvidia.com/compute/cuda/repos"
COMPAT = "/usr/local/cuda-13.0/compat"
PACKAGE = InstallPackages(("cuda-compat-13-0",), brings=(f"{COMPAT}/libcuda.so.1",))
WIRE = WireCompat(COMPAT, CudaVersion(13, 0), (535, 550, 565, 570, 575))
STALE = Unwire(("/usr/local/cuda/compat",), WiredBy.LIBRARY_PATH)


def _in_order(machine: str, *ways: Way) -> tuple[Step, ...]:
    """The steps of a chain without their numbers, those that are optional left out."""
    made_of = steps_for(question_of(machine), option_of(Kind.COMPAT, *ways), Extras())
    return tuple(replace(step, id=step.id[3:]) for step in made_of if not step.optional)


def test_field_report_000s_machine_gets_the_repository_the_package_and_the_wiring() -> None:
    repository, package, wiring, told = _in_order("h100-driver-570", SetUpRepository(), PACKAGE, WIRE)
    folder = "/root/.local/state/firstlight/keyring"
    assert repository.commands[0] == ("install", "-d", "-m", "700", folder), "no other user may write there"
    assert repository.commands[1][-1] == f"{REPOS}/ubuntu2404/x86_64/cuda-keyring_1.1-1_all.deb"
    assert repository.commands[2] == ("dpkg", "--install", f"{folder}/cuda-keyring_1.1-1_all.deb")
    assert repository.commands[-1] == ("rm", "-r", folder)
    assert "No checksum of cuda-keyring_1.1-1_all.deb is known here" in repository.note
    assert package.commands == (("apt-get", "install", "--yes", "cuda-compat-13-0"),)
    assert package.undo == (("apt-get", "remove", "--yes", "cuda-compat-13-0"),)
    assert [each.kind for each in package.done_when] == [CheckKind.APT_PACKAGE, CheckKind.FILE_EXISTS]
    assert wiring.kind is StepKind.COMPAT
    assert "535 550 565 570 575 " in wiring.files[0].after
    assert wiring.files[1].mode == 0o755
    assert (told.kind, told.commands[0][0]) == (StepKind.MANUAL, wiring.files[1].path)


def test_only_the_start_script_sets_the_library_path_and_only_after_it_has_asked() -> None:
    steps = made(at("h100-driver-570", FileText("/root/.profile", ""), extras=Extras(state="/s")), PACKAGE, WIRE)
    told = [word for step in steps for argv in step.commands for word in argv if "LD_LIBRARY_PATH=" in word]
    asked = [change for step in steps for change in step.files if "LD_LIBRARY_PATH=" in change.after]
    assert not told
    assert [(change.path, "cuInit" in change.after) for change in asked] == [("/s/compat/wire.sh", True)]


def test_a_user_with_sudo_gets_it_in_the_argv_and_files_of_their_own_do_not_need_it() -> None:
    facts = facts_of("h100-driver-570")
    ability = replace(facts.ability, is_root=False, uid=1000, sudo=Sudo.ADMIN_GROUP)
    package, wiring, _ = made(at(replace(facts, ability=ability)), PACKAGE, WIRE)
    assert package.commands[0][0] == "sudo"
    assert not wiring.needs_root


@pytest.mark.parametrize(
    ("system", "version", "arch", "expected"),
    [
        ("ubuntu", "22.04", "x86_64", "ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb"),
        ("ubuntu", "24.04", "aarch64", "ubuntu2404/sbsa/cuda-keyring_1.1-1_all.deb"),
        ("debian", "12", "x86_64", "debian12/x86_64/cuda-keyring_1.1-1_all.deb"),
        ("rocky", "9.4", "x86_64", "rhel9/x86_64/cuda-rhel9.repo"),
    ],
)
def test_the_repository_is_that_of_the_system(system: str, version: str, arch: str, expected: str) -> None:
    facts = facts_of("h100-driver-570")
    place = replace(facts.place, os_id=Known(system, "t"), os_version=Known(version, "t"), arch=arch)
    [step] = made(at(replace(facts, place=place)), SetUpRepository())
    [fetch] = [argv for argv in step.commands if argv[0] == "curl"]
    assert fetch[-1] == f"{REPOS}/{expected}"


def test_a_system_that_nvidia_has_no_repository_for_is_left_to_a_person() -> None:
    facts = facts_of("h100-driver-570")
    alpine = at(replace(facts, place=replace(facts.place, os_id=Known("alpine", "t"))))
    first, package = made(alpine, SetUpRepository(), PACKAGE)
    assert (first.kind, first.id) == (StepKind.MANUAL, "set-up-repository")
    assert "not known" in first.note
    assert package.kind is StepKind.MANUAL
    assert "cuda-compat-13-0" in package.note, "a package manager that is not known gets no command, and the name"


def test_dnf_is_told_its_own_words_and_undo_runs_them() -> None:
    where = at("fedora-44-cuda-12-8")
    where = on(where, replace(where.platform, manager=Manager.DNF))
    [step] = made(where, InstallPackages(("cuda-toolkit-12-8",), version="12.8.1"))
    assert step.commands[0][-4:] == ("dnf", "install", "--assumeyes", "cuda-toolkit-12-8-12.8.1")
    assert step.done_when[0].argv == ("rpm", "--query", "cuda-toolkit-12-8-12.8.1")
    assert step.undo[0][-4:] == ("dnf", "remove", "--assumeyes", "cuda-toolkit-12-8")


def test_without_root_the_archive_is_checked_and_unpacked_flat_into_a_folder_of_the_users(tmp_path: Path) -> None:
    row = TABLES.compat_downloads("NVIDIA redist", "x86_64")[0]
    folder = "~/.local/share/firstlight/cuda-compat-13.1"
    where = at("h100-driver-570", extras=Extras(home=str(tmp_path)))
    fetch = FetchCompat(row.file, row.cuda, row.driver, folder)
    archive, wiring, _ = made(where, fetch, replace(WIRE, folder=folder))
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
    row = TABLES.compat_downloads("NVIDIA redist", "x86_64")[0]
    [archive] = made(at("h100-driver-570"), FetchCompat("cuda_compat-other.tar.xz", row.cuda, row.driver, "~/compat"))
    assert not any(argv[0] == "sha256sum" for argv in archive.commands)
    assert "No checksum" in archive.note


def test_login_shells_are_wired_only_where_the_profile_was_read_and_only_as_an_option(tmp_path: Path) -> None:
    home = Extras(home="/root")
    profile = FileText("/root/.profile", "umask 022")
    wiring, _, line = made(at("h100-driver-570-compat-unused", profile, extras=home), WIRE)
    assert line.optional
    wire = wiring.files[0].path
    assert line.files[0].after == f"umask 022\n[ ! -r {wire} ] || . {wire}\n"
    assert patched(line.files[0], tmp_path) == line.files[0].after
    again = FileText("/root/.profile", line.files[0].after)
    assert len(made(at("h100-driver-570-compat-unused", again, extras=home), WIRE)) == 2


def test_the_h200_with_a_stale_path_gets_a_diff_of_the_file_that_sets_it(tmp_path: Path) -> None:
    text = 'CUDA_HOME=/usr/local/cuda\nexport LD_LIBRARY_PATH="$CUDA_HOME/compat:/usr/local/nvidia/lib64"\necho hi\n'
    files = (FileText("/root/.bashrc", text), FileText("/etc/environment", 'PATH="/bin"\n'))
    edit, shell = made(at("h200-compat-stale", *files, extras=Extras(home="/root")), STALE)
    assert shell.optional
    [change] = edit.files
    assert change.after == 'CUDA_HOME=/usr/local/cuda\nexport LD_LIBRARY_PATH="/usr/local/nvidia/lib64"\necho hi\n'
    assert patched(change, tmp_path) == change.after
    assert edit.done_when[0].kind is CheckKind.FILE_LACKS_LINE
    assert shell.commands == (("export", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64"),)


def test_where_no_file_sets_the_path_new_shells_leave_it_out_and_a_person_may_look_for_who_does() -> None:
    bashrc = FileText("/root/.bashrc", "alias ll='ls -l'\n")
    where = at("h200-compat-stale", FileText("/root/.profile", "umask 022\n"), bashrc, extras=Extras(home="/root"))
    profile, rc, *others = made(where, STALE)
    assert (profile.files[0].path, rc.files[0].path) == ("/root/.profile", "/root/.bashrc")
    assert profile.files[0].takes_out == ("/usr/local/cuda/compat", "/usr/local/cuda-13.0/compat")
    assert profile.files[0].after.startswith('umask 022\ncase ":${LD_LIBRARY_PATH-}:" in *:/usr/local/cuda/compat:*)')
    [find] = [step for step in others if step.id == "find-who-sets-it"]
    assert (find.kind, find.optional) == (StepKind.MANUAL, True)
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
    where = at("h200-compat-stale", FileText("/root/.bashrc", text), extras=Extras(home="/root"))
    [find] = [step for step in made(where, STALE) if step.id == "find-who-sets-it"]
    assert f"These lines name it: /root/.bashrc, line {line}: " in find.note


def test_an_ldconfig_file_is_removed_with_a_backup_and_the_cache_made_anew() -> None:
    conf, machine = "/etc/ld.so.conf.d/cuda-compat.conf", "h100-driver-595-compat-580"
    way = Unwire((COMPAT,), WiredBy.LOADER_CONF, conf)
    [step] = made(at(machine, FileText(conf, f"{COMPAT}\n")), way)
    assert step.files[0].removes
    assert step.commands == (("ldconfig",),)
    assert step.done_when[0].kind is CheckKind.FILE_ABSENT
    [more] = made(at(machine, FileText(conf, f"# ours\n/opt/lib\n{COMPAT}/\n")), way)
    assert (more.files[0].after, more.files[0].removes) == ("# ours\n/opt/lib\n", False)
    [unread] = made(at(machine), way)
    assert unread.commands[0] == ("mv", "--backup=numbered", conf, f"{conf}.before-firstlight")
    assert unread.undo[0] == ("mv", "--force", f"{conf}.before-firstlight", conf)


def test_a_preloaded_library_is_taken_out_of_the_file_and_of_open_shells() -> None:
    facts = facts_of("h200-compat-stale")
    library = "/usr/local/cuda/compat/libcuda.so.1"
    facts = replace(facts, libcuda=replace(facts.libcuda, ld_preload=(library, "/opt/other.so")))
    bashrc = FileText("/root/.bashrc", f"umask 022\nexport LD_PRELOAD={library}\n")
    edit, shell = made(at(facts, bashrc), Unwire((library,), WiredBy.PRELOAD))
    assert edit.files[0].after == "umask 022\n"
    assert edit.files[0].variables == ("LD_PRELOAD",)
    assert shell.commands == (("export", "LD_PRELOAD=/opt/other.so"),)
    assert shell.undo == (("export", f"LD_PRELOAD={library}:/opt/other.so"),)


def test_a_toolkit_is_linked_and_named_for_builds_alone() -> None:
    root = "/opt/venv/lib/python3.12/site-packages/nvidia/cu13"
    link, home, _ = made(
        at("h100-driver-570", extras=Extras(home="/root")),
        LinkFile(f"{root}/lib64", "lib"),
        SetVariables((Variable("CUDA_HOME", root),), Scope.BUILD),
    )
    assert (link.files[0].path, link.files[0].links_to) == (f"{root}/lib64", "lib")
    assert not link.needs_root
    assert f"export CUDA_HOME={root}\n" in home.files[0].after
    assert 'export PATH="$CUDA_HOME/bin:$PATH"\n' in home.files[0].after
    assert "LD_LIBRARY_PATH" not in home.files[0].after


def test_the_shell_that_builds_is_given_one_line_to_read_the_file_with(tmp_path: Path) -> None:
    state = tmp_path / "it's state"
    state.mkdir()
    where = at("nvcc-wrapper", extras=Extras(state=str(state)))
    written, told = made(where, SetVariables((Variable("CUDA_HOME", "/opt/cuda 13"),), Scope.BUILD))
    assert (told.kind, told.optional, told.awaited) == (StepKind.MANUAL, False, False)
    Path(written.files[0].path).write_text(written.files[0].after, encoding="utf-8")
    line = commands_of(told, 5).strip()
    for shell in ("sh", "bash"):
        said = subprocess.run(
            [shell, "-c", f'{line}; printf %s "$CUDA_HOME"'], capture_output=True, text=True, check=True
        )
        assert said.stdout == "/opt/cuda 13"
    assert not any(". /" in step.note for step in (written, told)), "a command stands alone on its line"


def test_in_a_uv_project_the_compiler_becomes_a_group_that_sync_keeps() -> None:
    [first] = made(at("uv-lock-would-undo"), InstallWheels((Package("cuda-toolkit", "13.0.2", ("nvcc",)),)))
    assert first.kind is StepKind.PROJECT
    assert first.commands[-1] == (
        "uv", "add", "--project", "/home/user/sleap-nn", "--group", "cuda-build", "cuda-toolkit[nvcc]==13.0.2",
    )  # fmt: skip


def test_a_prefix_of_conda_is_its_own_and_the_judged_one_keeps_its_revisions() -> None:
    where = at("h100-driver-570", extras=Extras(home="/root"))
    own, judged = made(
        where,
        InstallConda("cuda-toolkit=12.8", "conda-forge", "~/cuda-12.8", brings="bin/nvcc"),
        InstallConda("libstdcxx-ng", "conda-forge", ""),
    )
    assert own.commands[0][:5] == ("conda", "create", "--yes", "--prefix", "/root/cuda-12.8")
    assert own.done_when[0].target == "/root/cuda-12.8/bin/nvcc"
    assert judged.commands[0][:5] == ("conda", "install", "--yes", "--prefix", "/usr")


def test_a_driver_is_installed_on_a_machine_of_ones_own_and_the_restart_is_a_persons() -> None:
    ways = (InstallDriver(580, Flavour.OPEN, ("nvidia-driver-580-server-open",)), Restart())
    driver, reboot = made(at("a100-no-driver"), *ways)
    assert driver.commands[0][-3:] == ("install", "--yes", "nvidia-driver-580-server-open")
    assert (reboot.kind, reboot.id) == (StepKind.MANUAL, "reboot")
    assert reboot.commands[0][-2:] == ("systemctl", "reboot")
    elsewhere = made(at("h100-driver-570"), ways[0])[0]
    assert elsewhere.kind is StepKind.MANUAL, "in a container nobody changes the driver"


def test_another_machine_is_asked_for_by_the_providers_own_command() -> None:
    argv = ("runpodctl", "pod", "create", "--gpu-id", "NVIDIA H100 80GB HBM3", "--min-cuda-version", "13.0")
    [step] = made(at("h100-driver-570"), OtherMachine(580, CudaVersion(13, 0), ComputeCapability(9, 0), argv))
    assert step.commands == (argv,)
    assert step.title == "use another machine: driver >= 580, CUDA 13.0, sm_90"


def test_a_container_image_is_pulled_and_tried_where_docker_is_in_reach() -> None:
    facts = facts_of("a100-no-driver")
    runtime = replace(facts.container.runtime, docker_socket=Known(value=True, seen_in="/var/run/docker.sock"))
    way = UseImage("nvidia/cuda:13.0.2-devel")
    [by_hand] = made(at(facts), way)
    assert by_hand.kind is StepKind.MANUAL
    pull, try_it = made(at(replace(facts, container=replace(facts.container, runtime=runtime))), way)
    assert pull.commands == (("docker", "pull", "nvidia/cuda:13.0.2-devel"),)
    assert pull.undo == (("docker", "image", "rm", "nvidia/cuda:13.0.2-devel"),)
    assert try_it.commands[0][:5] == ("docker", "run", "--rm", "--gpus", "all")


def test_a_source_build_is_firstlight_build_for_the_architectures_that_are_here() -> None:
    [build] = made(
        at("h100-driver-570", extras=Extras(home="/root")),
        BuildFromSource("torch", "2.9.0", (ComputeCapability(9, 0),)),
    )
    assert build.commands[0][:5] == ("firstlight", "build", "torch==2.9.0", "--archs", "9.0")
    assert build.commands[0][-1] == "--yes", "apply has asked for the whole plan"
    assert build.kind is StepKind.BUILD
    assert build.done_when[0].expected == "torch==2.9.0*fl.*sm90", "another build of that number does not do"
    assert "GiB" in build.note


def test_jobs_of_a_build_in_a_plan_follow_memory_and_say_so() -> None:
    facts = facts_of("h100-driver-570")
    gib = 1 << 30
    resources = replace(
        facts.resources, processors=Known(16.0, "test"), memory_bytes=Known(40 * gib, "test"),
        memory_available_bytes=Unknown("not told"), memory_limit_bytes=Known(30 * gib, "cgroup"),
    )  # fmt: skip
    way = BuildFromSource("torch", "2.9.0", ())
    [build] = made(at(replace(facts, resources=resources)), way)
    assert "c++ 13 at a time (2.0 GiB each), cuda 6 at a time (4.0 GiB each), attention 5 at a time" in build.note
    assert "27.0 GiB for compilers (cgroup, less what the rest needs); 16 processors" in build.note
    unknown = replace(resources, memory_bytes=Unknown("no"), memory_limit_bytes=Unknown("no"))
    [build] = made(at(replace(facts, resources=unknown)), way)
    assert "which are not known here (c++ 2.0 GiB, cuda 4.0 GiB, attention 5.3 GiB for a unit)" in build.note


def test_libraries_are_closed_by_the_steps_that_were_worked_out_on_the_machine() -> None:
    way = CloseLibraries(("libcudss.so.0",))
    [unread] = made(at("thor-missing-libraries"), way)
    assert (unread.kind, unread.commands) == (StepKind.LIBRARIES, (("firstlight", "libs", "--fix"),))
    there = made(at("h100-driver-570"), InstallWheels((Package("nvidia-cudss-cu13", "0.7.1.4"),)))
    [read] = made(at("thor-missing-libraries", extras=Extras(closing=there)), way)
    assert read == there[0]
    assert made(at("thor-missing-libraries", extras=Extras(closing=())), way) == ()


def test_a_machine_that_nobody_asked_for_managers_has_the_one_of_its_distribution() -> None:
    facts = facts_of("h100-driver-570")
    assert facts.ability.package_managers == ()
    assert platform_of(facts).manager is Manager.APT
    for name, manager in (("arch", Manager.PACMAN), ("sles", Manager.ZYPPER), ("azurelinux", Manager.TDNF)):
        other = replace(facts, place=replace(facts.place, os_id=Known(name, "t")))
        assert platform_of(other).manager is manager
    gentoo = replace(facts, place=replace(facts.place, os_id=Known("gentoo", "t")))
    assert platform_of(gentoo).manager is Manager.NONE


def test_two_ways_that_edit_one_file_do_it_one_after_the_other() -> None:
    profile = "export CUDA_VISIBLE_DEVICES=0\nexport LD_LIBRARY_PATH=/usr/local/cuda/compat\n"
    extras = Extras(files=(FileText("/root/.profile", profile),), home="/root")
    ways = (
        STALE,
        UnsetVariables(("CUDA_VISIBLE_DEVICES",)),
        SetVariables((Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),)),
    )
    steps = steps_for(question_of("h200-compat-stale"), option_of(Kind.REMOVE, *ways), extras)
    changes = [change for step in steps for change in step.files]
    assert [change.path for change in changes] == ["/root/.profile"] * 3
    assert changes[0].before == profile
    assert (changes[1].before, changes[2].before) == (changes[0].after, changes[1].after)
    assert changes[2].after == "export CUDA_DEVICE_ORDER=PCI_BUS_ID\n"


def test_variables_that_no_file_sets_go_by_one_line() -> None:
    where = at("h200", FileText("/root/.profile", "umask 022\n"), extras=Extras(home="/root"))
    edit = made(where, UnsetVariables(("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")))[0]
    assert edit.files[0].after == "umask 022\nunset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER\n"


def test_a_mask_is_left_out_only_where_it_is_the_one_that_hides_the_gpus() -> None:
    where = at("devices-masked", FileText("/root/.profile", "umask 022\n"), extras=Extras(home="/root"))
    edit = made(where, UnsetVariables(("CUDA_VISIBLE_DEVICES",)))[0]
    line = edit.files[0].after.removeprefix("umask 022\n")
    for shell in ("sh", "bash"):
        for value, left in (("2", "unset"), ("0", "0"), ("", "")):
            script = f'set -eu\n{line}printf %s "${{CUDA_VISIBLE_DEVICES-unset}}"'
            env = {"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": value}
            done = subprocess.run([shell, "-c", script], env=env, capture_output=True, text=True, check=True)
            assert done.stdout == left, "what a scheduler sets later stays"
    assert "CUDA_VISIBLE_DEVICES=2 is the only value removed" in edit.note


def test_a_mask_that_leaves_gpus_may_be_meant_and_no_file_is_changed_for_it() -> None:
    where = at("one-of-two-masked", FileText("/root/.profile", "umask 022\n"), extras=Extras(home="/root"))
    steps = made(where, UnsetVariables(("CUDA_VISIBLE_DEVICES",)))
    assert [(step.kind, step.files, step.optional) for step in steps] == [
        (StepKind.MANUAL, (), False),
        (StepKind.MANUAL, (), True),
    ]
    assert steps[0].commands == (("unset", "CUDA_VISIBLE_DEVICES"),)


def test_a_program_is_given_a_path_in_front_of_the_one_that_it_has() -> None:
    way = SetVariables((Variable("LD_LIBRARY_PATH", "/usr/lib/wsl/lib"),), Scope.PROGRAM)
    where = at("h100-driver-570-compat")
    assert where.facts.libcuda.ld_library_path
    (step,) = made(where, way)
    behind = ":".join(each for each in where.facts.libcuda.ld_library_path if each)
    assert step.commands == (("env", f"LD_LIBRARY_PATH=/usr/lib/wsl/lib:{behind}", "/usr/bin/python3", "PROGRAM.py"),)
