"""The batch script: what sbatch reads of it, what every node is asked, and a compat library that needs no root."""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.emit.document import Emitted
from firstlight.emit.slurm import emit_slurm
from firstlight.emit.subject import BenchJob, Choices
from firstlight.errors import BadInput
from tests.apply.stand_ins import build_libcuda, can_have_its_own_mounts, under_driver
from tests.emit.subjects import HOSTILE, NEW_H100, OLD_H100, recorded, subject, with_package
from tests.programs import SHELLCHECK

HEREDOC = re.compile(r"<< 'END-OF-FIRSTLIGHT-FILE'[^\n]*\n(.*?)END-OF-FIRSTLIGHT-FILE\n", re.DOTALL)


def _script(emitted: Emitted) -> str:
    [file] = emitted.files
    assert file.mode == 0o755
    return file.text


def _directives(text: str) -> list[str]:
    """What sbatch reads: lines that begin with #SBATCH, up to the first line that is no comment."""
    found = []
    for line in text.split("\n"):
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            found.append(line.removeprefix("#SBATCH "))
    return found


def _on_node(text: str) -> str:
    return next(str(each) for each in HEREDOC.findall(text) if "check_gates() {" in each)


def test_sbatch_reads_a_gpu_a_name_and_where_output_goes() -> None:
    directives = _directives(_script(emit_slurm(subject())))
    assert directives == [
        "--job-name=torch-2.9.0-cu130", "--nodes=1", "--ntasks-per-node=1", "--gres=gpu:1", "--time=01:00:00",
        "--output=%x-%j.out",
    ]  # fmt: skip


def _bench(text: str = NEW_H100, *wants: str, nodes: int = 4, gpus: int = 8) -> Emitted:
    return emit_slurm(replace(subject(text, *wants), bench=BenchJob(nodes, gpus)))


def test_a_bench_job_asks_for_its_nodes_and_gpus_and_meets_at_the_first_node() -> None:
    emitted = _bench()
    assert emitted.files[0].name == "bench-torch-2.9.0-cu130.sbatch"
    text = _script(emitted)
    assert {"--nodes=4", "--ntasks-per-node=1", "--gres=gpu:8"} <= set(_directives(text))
    assert 'head="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"' in text
    assert "set -- bench --only collective --device all --out" in text
    assert "--device cpu" in _script(_bench(NEW_H100, "torch==2.9.0+cpu"))


@pytest.mark.parametrize("tasks", ["1", "3"])
def test_what_a_bench_job_starts_on_its_nodes(tasks: str, tmp_path: Path) -> None:
    """The last part of the script with an srun and an scontrol that say what they were called with."""
    text = _script(_bench())
    for name, program in (("srun", 'printf "%s\\n" "$@"'), ("scontrol", "printf 'node07\\nnode08\\n'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    start = "submitted=/sub state=/s key=k tool=/tool python_minor=3.12 environment=/env\nset -eu\n"
    last = text[text.index('tasks="${SLURM_NTASKS:-1}"') :]
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_NTASKS": tasks, "SLURM_JOB_NODELIST": "node[07-08]",
               "SLURM_JOB_ID": "1234567"}  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", start + last, "job", "--effort", "quick"],
        capture_output=True, text=True, check=True, env=environ,
    )  # fmt: skip
    words = done.stdout.splitlines()
    assert words[:6] == ["--export=ALL", "sh", "/s/slurm/on_node-k.sh", "/env", "env",
                         "PYTHONPATH=/tool/lib/python3.12/site-packages"]  # fmt: skip
    called = words[words.index("bench") :]
    assert called[:5] == ["bench", "--only", "collective", "--device", "all"]
    assert called[-2:] == ["--effort", "quick"]
    meets = ["--nodes", "3", "--rendezvous", f"node07:{29500 + 567}"]
    assert (called[7:11] == meets) == (tasks == "3")


def test_a_torch_without_cuda_asks_for_no_gpu() -> None:
    assert "--gres=gpu:1" not in _directives(_script(emit_slurm(subject(NEW_H100, "torch==2.9.0+cpu"))))


def test_without_root_the_compat_library_is_an_archive_with_its_checksum_and_its_own_gates() -> None:
    made, emitted = subject(), emit_slurm(subject())
    text = _script(emitted)
    assert "cuda_compat-linux-x86_64-590.48.01_cuda13.1-archive.tar.xz" in text
    assert "0e8c1ec14c2abbce76943cb32907b39237a41bf267ec6665f04d48b240ae539f" in text
    assert made.gates.compat_branches == (535, 550, 565, 570, 575)
    assert emitted.gates.compat_branches == (535, 550, 570, 575)  # the archive's own list has no 565
    assert "branches=' 535 550 570 575 '" in text
    assert not re.search(r"\b(sudo|apt-get|dpkg)\b", text)


def test_a_driver_that_runs_the_wheels_brings_no_compat() -> None:
    assert "compat" not in "\n".join(
        line for line in _script(emit_slurm(subject(NEW_H100))).split("\n") if line[:1] != "#"
    )


def test_the_header_says_which_plan_and_the_same_subject_gives_the_same_bytes() -> None:
    emitted = emit_slurm(subject())
    assert f"# plan {emitted.digest}\n" in _script(emitted)
    assert emitted == emit_slurm(subject())


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_says_about_the_machine_stays_in_a_comment(text: str) -> None:
    plain, hostile = _script(emit_slurm(subject())), _script(emit_slurm(subject(made_for=text)))
    assert _directives(plain) == _directives(hostile)
    assert [line for line in plain.split("\n") if line[:1] != "#"] == [
        line for line in hostile.split("\n") if line[:1] != "#"
    ]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["name", "volume"])
def test_names_that_could_be_more_than_names_are_refused(field: str, text: str) -> None:
    with pytest.raises(BadInput):
        emit_slurm(subject(choices=Choices(**{field: text})))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_package_of_a_hostile_facts_file_is_one_word(text: str) -> None:
    script = _script(emit_slurm(with_package(f"vllm=={text}")))
    assert _directives(script) == _directives(_script(emit_slurm(subject())))
    line = script[
        script.index("        install \"$environment/bin/python\" ''") : script.index('        : > "$environment/')
    ]
    program = f'environment=e; install() {{ printf "%s\\0" "$@"; }}\n{line}'
    done = subprocess.run(["bash", "-c", program], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[2:4] == [f"vllm=={text}", "torch==2.9.0+cu130"]


def test_outside_of_slurm_it_says_what_it_is_for(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text(_script(emit_slurm(subject(choices=Choices(volume=str(tmp_path))))))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 2
    assert "this is for sbatch" in done.stderr
    assert not (tmp_path / "firstlight").exists()


@pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own, to show another driver")
@pytest.mark.parametrize(
    ("driver", "code", "says"),
    [
        ("580.95.05", 0, ""),
        ("565.57.01", 1, "driver 565.57.01 is loaded"),
        ("570.133.20", 1, "driver 570.133.20 needs the compat library, and"),
    ],
)
def test_every_node_is_asked_for_itself(tmp_path: Path, driver: str, code: int, says: str) -> None:
    text = _on_node(_script(emit_slurm(subject(choices=Choices(volume=str(tmp_path))))))
    run = tmp_path / "firstlight/slurm/run"
    run.parent.mkdir(parents=True)
    run.write_text('exec "$@"\n')
    script = tmp_path / "on_node.sh"
    script.write_text(text)
    environ = {"PATH": os.environ["PATH"]}
    done = under_driver(driver, "sh", str(script), "/an/environment", "sh", "-c", 'echo "${PATH%%:*}"', env=environ)
    assert (done.returncode, done.stdout) == (code, "/an/environment/bin\n" if code == 0 else ""), done.stderr
    assert says in done.stderr


@pytest.mark.skipif(not can_have_its_own_mounts(), reason="needs root and mounts of its own, to show another driver")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc for the stand-in library")
def test_a_node_whose_driver_needs_the_library_gets_it_and_another_does_not(tmp_path: Path) -> None:
    text = _script(emit_slurm(subject(choices=Choices(volume=str(tmp_path)))))
    state = tmp_path / "firstlight"
    build_libcuda(state / "compat/cuda-13.1", version="590.48.01", cuda=13010)
    (state / "slurm").mkdir()
    for name, mark in (("wire.sh", "_firstlight_compat() ("), ("run", "#!/bin/sh"), ("on_node.sh", "check_gates() {")):
        (state / "slurm" / name).write_text(next(each for each in HEREDOC.findall(text) if mark in each))
    asked = ("sh", str(state / "slurm/on_node.sh"), "/e", "sh", "-c", 'echo "${LD_LIBRARY_PATH:-none}"')
    environ = {"PATH": os.environ["PATH"]}
    old, new = (under_driver(driver, *asked, env=environ) for driver in ("550.54.15", "595.45.04"))
    assert (old.stdout, new.stdout) == (f"{state}/compat/cuda-13.1\n", "none\n"), old.stderr + new.stderr


def test_a_node_without_a_driver_is_refused_for_a_build_with_cuda(tmp_path: Path) -> None:
    script = tmp_path / "on_node.sh"
    script.write_text(_on_node(_script(emit_slurm(subject(NEW_H100)))))
    if Path("/sys/module/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    asked = ["sh", str(script), "/e", "echo", "started"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no NVIDIA driver, so no GPU" in done.stderr
    environ = {**os.environ, "NVIDIA_DISABLE_REQUIRE": "1"}
    assert subprocess.run(asked, capture_output=True, text=True, check=False, env=environ).stdout == "started\n"


def _archive(folder: Path) -> Path:
    path = folder / "cuda_compat.tar.xz"
    with tarfile.open(path, "w:xz") as files:
        for name, data in (
            ("a/compat/libcuda.so.590.48.01", b"library"),
            ("a/LICENSE", b"text"),
            ("a/lib.so/../x", b"odd"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            files.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("a/compat/libcuda.so")
        link.type, link.linkname = tarfile.SYMTYPE, "/somewhere/libcuda.so.1"
        files.addfile(link)
    return path


def _unpacked(archive: Path, sha256: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = next(each for each in HEREDOC.findall(_script(emit_slurm(subject()))) if "tarfile" in each)
    argv = [sys.executable, "-I", "-", archive.as_uri(), sha256, str(folder)]
    return subprocess.run(argv, input=program, capture_output=True, text=True, check=False)


def test_the_archive_is_unpacked_flat_once_its_checksum_is_right(tmp_path: Path) -> None:
    archive, folder = _archive(tmp_path), tmp_path / "state/compat/cuda-13.1"
    done = _unpacked(archive, hashlib.sha256(archive.read_bytes()).hexdigest(), folder)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["libcuda.so", "libcuda.so.1", "libcuda.so.590.48.01"]
    assert (folder / "libcuda.so.1").read_bytes() == b"library"
    assert os.readlink(folder / "libcuda.so") == "libcuda.so.1"
    assert [path.name for path in folder.parent.iterdir()] == ["cuda-13.1"]


def test_an_archive_that_was_changed_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "state/compat/cuda-13.1"
    done = _unpacked(_archive(tmp_path), "0" * 64, folder)
    assert done.returncode == 1
    assert "which is on record; it is not used" in done.stderr
    assert list(folder.parent.iterdir()) == []


def test_recorded_machines_are_shipped_too() -> None:
    assert "torch==2.9.0" in _script(emit_slurm(recorded("h100-driver-570", "torch==2.9.0")))


@pytest.mark.parametrize("machine", [OLD_H100, NEW_H100])
def test_it_is_clean_for_shellcheck(machine: str, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(_script(emit_slurm(subject(machine))))
    (tmp_path / "bench.sh").write_text(_script(_bench(machine)))
    (tmp_path / "on_node.sh").write_text("#!/bin/sh\n" + _on_node(_script(emit_slurm(subject(machine)))))
    names = [str(tmp_path / name) for name in ("job.sh", "bench.sh", "on_node.sh")]
    done = subprocess.run([SHELLCHECK, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_another_compat_library_than_that_of_the_plan_has_another_digest() -> None:
    assert emit_slurm(subject()).digest != subject().plan.digest  # an archive in place of the package
    assert emit_slurm(subject(NEW_H100)).digest == subject(NEW_H100).plan.digest
