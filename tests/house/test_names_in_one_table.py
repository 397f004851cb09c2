"""Names of packages, repositories, keys, folders and boot tools stand in one table, and nowhere else in the rooms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from firstlight.facts import driver as driver_facts
from firstlight.tables import load
from firstlight.tables.system_rows import Role, RowKind
from firstlight.ways.back import EARLY_IMAGE_TOOLS
from firstlight.ways.nvidia_repository import REPOSITORIES

SOURCES = Path(__file__).parents[2] / "src" / "firstlight"
ROOMS = ("diagnosis", "ways", "plan", "emit", "lint", "facts")
NAME = re.compile(
    r"\b(?:nvidia-(?:driver|dkms|kernel|open|compute|utils|headless|fabric-?manager|persistenced|imex|lts)\b"
    r"|nvidia-container-toolkit|libnvidia-|k?mod-nvidia|akmod-|linux-(?:headers|modules)|kernel-(?:devel|headers)"
    r"|build-essential|gcc-c\+\+|ninja-build|base-devel|cuda-(?:toolkit-|compat-(?!mode)|keyring|drivers)|libcudnn\d"
    r"|libstdc\+\+6|update-initramfs|dracut|mkinitcpio|epel-release|nvlsm)"
    r"|/var/lib/(?:dkms|shim-signed)|/etc/pki/akmods|developer\.download\.nvidia|rpmfusion\.org|updates/dkms|extra/nvidia"
)
_READS = "recognises a name that lies on the machine, or that the user wrote; hands none out"
# (file, what the string begins with) -> why it may stand there
ALLOWED = {
    ("diagnosis/compat_answers.py", "cuda-compat-"): _READS,
    ("diagnosis/compat_answers.py", "{_HOME}/cuda-compat-"): "a folder of our own",
    ("diagnosis/driver_module_answers.py", "akmod-"): _READS,
    ("diagnosis/module_build_answers.py", "akmod-"): _READS,
    ("diagnosis/libcuda_rules.py", "/etc/ld.so.conf.d/nvidia-driver.conf"): "a file of our own",
    ("diagnosis/provider_choice.py", "libnvidia-"): "names of libraries, which are the same everywhere",
    ("ways/back.py", "update-initramfs"): "undo runs what stands in the code; compared with the table below",
    ("ways/back.py", "dracut"): "the same",
    ("ways/back.py", "mkinitcpio"): "the same",
    ("ways/compat_steps.py", "https://developer.download.nvidia.com/compute/cuda/redist"): "an archive for all",
    ("ways/driver_effects.py", "akmod-"): _READS,
    ("ways/fetched.py", "nvidia-driver-"): "a key of the table downloads",
    ("ways/fetched.py", "cuda-compat-"): _READS,
    ("ways/nvidia_repository.py", "https://developer.download.nvidia.com/compute/cuda/repos"): "the "
    "beginning that emitted scripts take, and add their own system to; compared with the table below",
    ("ways/system_effects.py", "cuda-toolkit-"): _READS,
    ("ways/system_effects.py", "libnvidia-"): _READS,
    ("lint/brings_python.py", "build-essential"): _READS,
    ("lint/driver_rules.py", "cuda-compat-"): _READS,
    ("lint/library_path_rules.py", ""): "reads apt lines of a Dockerfile, and answers with apt's name for the same",
    ("diagnosis/place_rules.py", "libnvidia-"): _READS,
    ("facts/driver.py", ""): _READS,
    ("diagnosis/toolkit_answers.py", "https://developer.download.nvidia.com/compute/cuda/"): "an installer for all",
    ("facts/module_builds.py", "/var/lib/dkms"): "the program's own folder, which is the same everywhere",
    ("facts/nvml.py", "libnvidia-ml"): "the name of a library, which is the same everywhere",
    ("facts/children/nvml.py", "/libnvidia-ml"): "the same",
    ("facts/compat.py", "cuda-compat"): _READS,
    ("facts/health.py", "/run/nvidia-"): "sockets and pid files of the daemons, which are the same everywhere",
    ("facts/boot_system.py", ""): "looks for the tools",
    ("facts/boot_trust.py", ""): "looks for certificates in every folder that a family signs from",
    ("facts/fabric.py", ""): "looks for NVIDIA's own programs and their units, which are the same everywhere",
    ("facts/pseudonyms.py", "developer.download.nvidia.com"): "a public address that is not masked",
}  # fmt: skip


def _docstrings(tree: ast.AST) -> set[int]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, owners))
    return {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        return f"{{{ast.unparse(node.value)}}}"
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String constants that are no docstrings and no sources of a rule, f-strings with {name} for what is filled in."""
    skipped = _docstrings(tree)
    sources = (node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in ("source", "by"))
    skipped |= {id(part) for source in sources for part in ast.walk(source)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and id(node) not in skipped:
            skipped |= {id(part) for part in node.values}
            parts = (_part(each) for each in node.values)
            yield node.lineno, "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


def test_pytorchs_own_index_is_one_table_and_no_source_has_its_address() -> None:
    found = [
        f"{path.relative_to(SOURCES).as_posix()}:{line}: {text!r}"
        for path in sorted(SOURCES.rglob("*.py"))
        for line, text in _texts(ast.parse(path.read_text()))
        if "download.pytorch.org/" in text
    ]
    assert not found, "ask tables/torch_index.py, which has it from tables/data/torch_indexes.json"


def _is_a_sentence(text: str) -> bool:
    """What is read by people: a rule's words about NVIDIA's own programs, never the argument of a way."""
    return " " in text.strip() and not text.startswith(("RUN ", "sudo ", "apt-get ", "dnf "))


@cache
def _found(room: str) -> list[tuple[str, int, str]]:
    return list(_names(room))


def _names(room: str) -> Iterator[tuple[str, int, str]]:
    for path in sorted((SOURCES / room).rglob("*.py")):
        file = path.relative_to(SOURCES).as_posix()
        for line, text in _texts(ast.parse(path.read_text())):
            if (
                NAME.search(text)
                and not _is_a_sentence(text)
                and not text.startswith(("docs.", "github.com", "pypi.org"))
            ):
                yield file, line, text


@pytest.mark.parametrize("room", ROOMS)
def test_no_name_of_a_system_stands_outside_the_table(room: str) -> None:
    wrong = [
        f"{file}:{line}: {text!r}"
        for file, line, text in _found(room)
        if not any(file == where and text.startswith(start) for where, start in ALLOWED)
    ]
    assert not wrong, "put it into tables/data/system_names.json and ask ways/system_names.py for it"


def test_every_exception_is_still_needed() -> None:
    found = [(file, text) for room in ROOMS for file, _, text in _found(room)]
    stale = [each for each in ALLOWED if not any(file == each[0] and text.startswith(each[1]) for file, text in found)]
    assert not stale


def test_the_pattern_finds_what_rules_used_to_write() -> None:
    for text in (
        "nvidia-driver-{branch}-server-open", "linux-headers-{release}", "/var/lib/shim-signed/mok/MOK.der",
        "libnvidia-compute-{branch}", "build-essential", "nvidia-container-toolkit", "gcc-c++", "update-initramfs",
    ):  # fmt: skip
        assert NAME.search(text), text
    tree = ast.parse(
        'def f(b):\n    """nvidia-open in a docstring."""\n    return f"nvidia-driver-{b}", "kernel-devel"\n'
    )
    assert [text for _, text in _texts(tree)] == ["nvidia-driver-{b}", "kernel-devel"]


def test_what_undo_runs_for_an_early_image_is_what_the_table_has() -> None:
    rows = [row.names for row in load().system_name_rows if row.role is Role.EARLY_IMAGE]
    assert set(rows) == set(EARLY_IMAGE_TOOLS.values())


def test_every_folder_of_modules_in_the_table_is_looked_into() -> None:
    rows = [row for row in load().system_name_rows if row.role is Role.MODULE_FOLDER]
    looked = driver_facts._MODULE_FOLDERS
    for row in rows:
        [folder] = row.names
        assert folder in looked or folder.startswith("kernel/nvidia-"), row


def test_every_repository_of_nvidia_lies_where_emitted_scripts_look() -> None:
    rows = [row for row in load().system_name_rows if row.role is Role.REPOSITORY and row.of.startswith("nvidia")]
    assert len(rows) > 15
    assert all(row.kind is RowKind.ADDRESS and row.names[0].startswith(f"{REPOSITORIES}/") for row in rows)
