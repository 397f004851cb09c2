"""What a finding says to do, taken apart: a command is shown as one, and a sentence never is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firstlight.cli.main import run
from firstlight.plan.told_commands import told_command
from tests.diagnosis.rule_case import MACHINES


@pytest.mark.parametrize(
    ("line", "words", "argv"),
    [
        ("sudo modprobe nvidia", "", ("sudo", "modprobe", "nvidia")),
        ("if it comes back: reboot", "if it comes back", ("reboot",)),
        (
            "with every program off the GPU: sudo nvidia-smi --gpu-reset",
            "with every program off the GPU",
            ("sudo", "nvidia-smi", "--gpu-reset"),
        ),
        ("sudo sh -c 'rmmod a && modprobe a'", "", ("sudo", "sh", "-c", "rmmod a && modprobe a")),
        ("sudo dmesg | grep -E 'NVRM|Xid'", "", ("sh", "-c", "sudo dmesg | grep -E 'NVRM|Xid'")),
        ("every node: ls -l /dev/nvidia*", "every node", ("sh", "-c", "ls -l /dev/nvidia*")),
        ("/opt/venv/bin/python3 -m pip install x", "", ("/opt/venv/bin/python3", "-m", "pip", "install", "x")),
    ],
)
def test_a_command_is_found_with_the_words_before_it(line: str, words: str, argv: tuple[str, ...]) -> None:
    told = told_command(f"{line}  # why")
    assert (told.words, told.argv, told.remark) == (words, argv, "why")


@pytest.mark.parametrize(
    "line",
    [
        "reboot; a rented machine: give it back and name the Xid",
        "sudo update-initramfs -u, then reboot",
        "sudo modprobe nvidia: 'Key was rejected by service' proves it",
        "or turn MIG off: nvidia-smi -i 0 -mig 0",
        "or leave the current folder out of the search: python3 -P (Python 3.11 and later)",
        "cut slices: nvidia-smi mig -lgip lists the sizes, nvidia-smi mig -cgi PROFILE -C makes one",
        "start the container with its GPUs: docker run --gpus all ...",
        "sudo sh -c 'unfinished",
        "look at fans, air flow and what else is hot there",
        "",
    ],
)
def test_a_sentence_is_no_command(line: str) -> None:
    assert (told_command(line).words, told_command(line).argv) == (line, ())


def _plan(capsys: pytest.CaptureFixture[str], machine: str, option: str) -> tuple[str, list[dict[str, Any]]]:
    argv = ["plan", "--facts", str(MACHINES / machine), "--option", option]
    assert run(argv) == 0
    text = capsys.readouterr().out
    assert run([*argv, "--json"]) == 0
    return text, json.loads(capsys.readouterr().out)["steps"]


@pytest.mark.parametrize(
    ("machine", "option", "shown"),
    [
        (
            "after-suspend",
            "repair:reload-driver",
            ["sudo sh -c 'rmmod nvidia_uvm && modprobe nvidia_uvm'", "reboot"],
        ),
        (
            "container-empty-libcuda",
            "repair:install-driver-library",
            [
                "rm /usr/lib/x86_64-linux-gnu/libcuda.so.515.43.04",
                "find /usr/lib/x86_64-linux-gnu -maxdepth 1 -name '*.so.*' -size 0 -delete",
            ],
        ),
        (
            "a100-faulty-memory",
            "repair:reset-gpu",
            ["nvidia-smi --gpu-reset -i 2", "nvidia-smi -q -i 2 -d ECC,ROW_REMAPPER"],
        ),
    ],
)
def test_every_command_of_a_step_for_a_person_is_in_the_text_and_in_the_document(
    machine: str, option: str, shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text, steps = _plan(capsys, machine, option)
    assert [line.strip()[2:] for line in text.splitlines() if line.startswith("   $ ")] == shown
    assert sum(len(step["commands"]) for step in steps) == len(shown)
    assert {step["kind"] for step in steps} == {"manual"}
