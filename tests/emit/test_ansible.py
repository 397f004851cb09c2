"""The playbook: read by Ansible itself, gates before the first change, and no word of a user as a template."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from firstlight.emit.ansible import emit_ansible
from firstlight.emit.preflight import preflight_functions
from firstlight.emit.quoting import yaml_text
from tests.emit.subjects import HOSTILE, NEW_H100, OLD_H100, recorded, subject, text_of, with_package, write

PROGRAM = shutil.which("ansible-playbook", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


def _tasks(text: str) -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="PyYAML comes with ansible-core")

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        """Reads !unsafe as the text it marks."""

    Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))
    [play] = yaml.load(text, Loader)
    assert (play["hosts"], play["become"], play["gather_facts"]) == ("all", True, False)
    tasks: list[dict[str, Any]] = play["tasks"]
    return tasks


def _modules(tasks: list[dict[str, Any]]) -> list[str]:
    return [next(key for key in task if key.startswith("ansible.")) for task in tasks]


def test_the_gates_come_before_the_first_change() -> None:
    tasks = _tasks(text_of(emit_ansible(subject()), "playbook.yml"))
    names = [task["name"] for task in tasks]
    first = names.index("Install what makes environments")
    assert names.index("Ask whether the host fits") < names.index("Refuse a host that does not fit") < first


def test_the_host_is_asked_what_every_other_kind_asks() -> None:
    made = subject()
    asked = text_of(emit_ansible(made), "files/gates.sh")
    assert str(preflight_functions(made.gates, made.target.machine)) in asked
    assert asked.endswith('check_gates\n[ "$needs_compat" = no ] || echo "needs compat"\n')


def test_modules_are_those_of_ansible_core() -> None:
    modules = _modules(_tasks(text_of(emit_ansible(subject()), "playbook.yml")))
    assert all(re.fullmatch(r"ansible\.builtin\.[a-z]+", module) for module in modules)


def test_files_that_are_copied_are_emitted() -> None:
    emitted = emit_ansible(subject())
    tasks = _tasks(text_of(emitted, "playbook.yml"))
    copied = {task["ansible.builtin.copy"]["src"] for task in tasks if "ansible.builtin.copy" in task} - {"{{ item }}"}
    others = {"playbook.yml", "files/gates.sh", "files/finish_packages.sh"}  # read where the play is started
    assert {f"files/{name}" for name in copied} == {file.name for file in emitted.files} - others


def test_a_driver_that_runs_the_wheels_needs_no_compat_tasks() -> None:
    emitted = emit_ansible(subject(NEW_H100))
    assert [file.name for file in emitted.files] == [
        "playbook.yml",
        "files/firstlight.sh",
        "files/gates.sh",
        "files/finish_packages.sh",
    ]
    assert not any("compat" in task["name"] for task in _tasks(text_of(emitted, "playbook.yml")))


def test_a_torch_without_cuda_asks_nothing_of_a_driver() -> None:
    asked = text_of(emit_ansible(subject(NEW_H100, "torch==2.9.0+cpu")), "files/gates.sh")
    assert "check_driver" not in asked
    assert "capability" not in asked


def test_the_packages_are_pinned_and_come_from_their_index() -> None:
    tasks = _tasks(text_of(emit_ansible(subject()), "playbook.yml"))
    task = next(task for task in tasks if task["name"] == "Install torch==2.9.0+cu130")
    argv = task["ansible.builtin.command"]["argv"]
    assert argv[:4] == ["/opt/firstlight/env/bin/python", "-m", "pip", "install"]
    assert argv[-3:] == ["--index-url", "https://download.pytorch.org/whl/cu130", "torch==2.9.0+cu130"]


def test_a_compiler_and_the_headers_are_installed_where_they_are_missing_and_before_the_proof() -> None:
    tasks = _tasks(text_of(emit_ansible(subject()), "playbook.yml"))
    names = [task["name"] for task in tasks]
    asked, compiler, headers = (
        tasks[names.index(name)]
        for name in ("Ask whether torch can compile", "Install a C++ compiler", "Install Python's headers")
    )
    assert names.index("Install Python's headers") < names.index("Prove it")
    assert (asked["changed_when"], asked["check_mode"]) == (False, False)
    assert "'g++' if ansible_facts.pkg_mgr == 'apt'" in compiler["ansible.builtin.package"]["name"]
    assert headers["ansible.builtin.package"]["name"].startswith("python{{ firstlight_version.stdout }}-")
    assert [task["when"] for task in (compiler, headers)] == [
        "'no compiler' in firstlight_compiles.stdout",
        "'no headers' in firstlight_compiles.stdout",
    ]


def test_what_is_asked_about_the_compiler_sees_one_that_is_there(tmp_path: Path) -> None:
    tasks = _tasks(text_of(emit_ansible(subject()), "playbook.yml"))
    task = next(task for task in tasks if task["name"] == "Ask whether torch can compile")
    argv = [sys.executable, *task["ansible.builtin.command"]["argv"][1:]]
    said = []
    for _ in range(2):
        done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)})
        said.append(done.stdout)
        (tmp_path / "g++").touch(mode=0o755)
    assert said[0].startswith("no compiler ")
    assert said[1].startswith(f"{tmp_path}/g++ ")


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_user_says_about_the_machine_stays_in_a_comment(text: str) -> None:
    plain, hostile = emit_ansible(subject()), emit_ansible(subject(made_for=text))
    assert _tasks(text_of(plain, "playbook.yml")) == _tasks(text_of(hostile, "playbook.yml"))
    assert plain.files[1:] == hostile.files[1:]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_package_of_a_hostile_facts_file_is_one_word_that_is_no_template(text: str) -> None:
    emitted = text_of(emit_ansible(with_package(f"vllm=={text}")), "playbook.yml")
    tasks = _tasks(emitted)
    argv = next(task for task in tasks if task["name"].startswith("Install vllm"))["ansible.builtin.command"]["argv"]
    assert argv[-2:] == [f"vllm=={text}", "torch==2.9.0+cu130"]
    assert not any("{{" in task["name"] for task in tasks)
    assert f"!unsafe {yaml_text(f'vllm=={text}')}" in emitted


def test_the_same_subject_gives_the_same_bytes_and_says_which_plan() -> None:
    emitted = emit_ansible(subject())
    assert emitted == emit_ansible(subject())
    assert f"# plan {emitted.digest}\n" in text_of(emitted, "playbook.yml")


def test_recorded_machines_are_shipped_too() -> None:
    assert "torch==2.9.0" in text_of(emit_ansible(recorded("h100-driver-570", "torch==2.9.0")), "playbook.yml")


@pytest.mark.skipif(PROGRAM is None, reason="needs ansible-core")
@pytest.mark.parametrize("machine", [OLD_H100, NEW_H100])
def test_ansible_reads_it(machine: str, tmp_path: Path) -> None:
    folder = write(emit_ansible(subject(machine, made_for="{{ lookup('pipe', 'false') }}")), tmp_path)
    done = subprocess.run(
        [str(PROGRAM), "--syntax-check", "--inventory", "localhost,", str(folder / "playbook.yml")],
        capture_output=True, text=True, check=False, env={**os.environ, "ANSIBLE_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
