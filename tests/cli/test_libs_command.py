"""`firstlight libs` as a person calls it: looks, fixes from a folder of wheels, and takes it back."""

from __future__ import annotations

import json
import re
import shutil
import signal
import zipfile
from pathlib import Path
from typing import Any

import pytest

from firstlight.apply.conditions import installed_distributions
from tests.apply.commanding import Person, make_environment
from tests.apply.private_index import PASSWORD, private_index
from tests.apply.wheels import make_wheel
from tests.libraries.library_wheels import cuda_wheels, library_wheel
from tests.libraries.trees import CU13, small_torch
from tests.schemas import fits

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/libs-1.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a small torch that lacks cuDSS, and wheels that have it; copied for each test."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("libs")
    venv = make_environment(folder / "venv")
    site = next((venv / "lib").glob("python3*/site-packages"))
    small_torch(site, lacks=("libcudss.so.0",), runpath="$ORIGIN", cuda="")
    cuda_wheels(folder / "cuda", folder / "built")
    return folder


@pytest.fixture
def person(tmp_path: Path, made: Path) -> Person:
    venv = tmp_path / "venv"
    shutil.copytree(made / "venv", venv, symlinks=True)
    someone = Person(tmp_path, venv)
    shutil.rmtree(someone.wheels)
    shutil.copytree(made / "cuda", someone.wheels)
    return someone


def _site(person: Person) -> Path:
    return next((person.venv / "lib").glob("python3*/site-packages"))


def _files(person: Person) -> set[str]:
    """Every file, link and folder under site-packages, caches aside."""
    site = _site(person)
    return {str(path.relative_to(site)) for path in site.rglob("*") if "__pycache__" not in path.parts}


def _document(text: str) -> Any:
    document = json.loads(text)
    fits(document, SCHEMA)
    return document


def _fix(person: Person, *words: str, **more: str) -> Any:
    return person.run(
        "libs", "--fix", "--yes", "--python", person.python, "--find-links", str(person.wheels), *words, **more
    )


def test_it_says_what_is_wrong_first_and_ends_with_the_command_that_helps(person: Person) -> None:
    done = person.run("libs", "--python", person.python)
    assert done.returncode == 1, done.stderr
    said = " ".join(done.stdout.split())
    assert " BLOCKED: 1 library is missing; loading ends with: libcudss.so.0: cannot open shared object file" in said
    assert "libcudss.so.0" in done.stdout.partition("tree")[2]
    assert f"firstlight libs --fix --python {person.python}" in done.stdout


def test_the_document_keeps_to_its_schema_and_changes_nothing(person: Person) -> None:
    before = _files(person)
    done = person.run("libs", "--python", person.python, "--json")
    document = _document(done.stdout)
    assert done.returncode == 1
    assert [each["name"] for each in document["missing"]] == ["libcudss.so.0"]
    assert document["missing"][0]["provided"]["requirement"].startswith("nvidia-cudss-cu13>=0.7")
    assert document["fix"] is None
    assert _files(person) == before
    assert not person.state.exists()


def test_fix_installs_links_and_proves_and_undo_restores(person: Person) -> None:
    before, packages = _files(person), installed_distributions(person.python)
    done = _fix(person, "--json")
    assert done.returncode == 0, done.stderr
    document = _document(done.stdout)
    assert document["sound"]
    assert document["fix"]["ending"] == "done"
    [proof] = document["fix"]["proofs"]
    assert proof["ok"]
    site = _site(person)
    assert proof["loaded"] == [{"name": "libcudss.so.0", "path": str(site / "nvidia/cu13/lib/libcudss.so.0")}]
    installed = installed_distributions(person.python)
    assert installed is not None
    assert {"nvidia-cudss-cu13==0.8.0.10", "nvidia-cublas==13.1.0.3"} <= set(installed)
    assert sorted(path.name for path in (site / "torch/lib").iterdir() if path.is_symlink()) == [
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcudss.so.0",
    ]
    again = _fix(person)
    assert (again.returncode, again.stdout) == (0, "nothing to do: the loader finds everything\n")
    _refuses_to_lose_a_file(person, site / "torch/lib/libcudss.so.0")
    back = person.run("undo", "--yes")
    assert back.returncode == 0, back.stderr
    assert _files(person) == before
    assert installed_distributions(person.python) == packages


def _refuses_to_lose_a_file(person: Person, link: Path) -> None:
    """Somebody put a file of their own in the place of a link: undo names it and stops."""
    link.unlink()
    link.write_text("mine")
    back = person.run("undo", "--yes")
    assert back.returncode == 1
    assert "is no longer the link that firstlight made" in back.stderr
    assert link.read_text() == "mine"
    link.unlink()


def test_a_dry_run_shows_every_step_and_its_size_and_changes_nothing(person: Person) -> None:
    before = _files(person)
    done = _fix(person, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "2 packages, " in done.stdout
    assert "link 3 libraries into" in done.stdout
    assert done.stdout.endswith("--dry-run: nothing was changed\n")
    assert _files(person) == before


def test_a_project_that_is_gone_from_the_index_ends_clearly_and_leaves_nothing(person: Person) -> None:
    before, packages = _files(person), installed_distributions(person.python)
    empty = person.folder / "index"
    empty.mkdir()
    done = person.run(
        "libs", "--fix", "--yes", "--json", "--python", person.python, "--index-url", empty.as_uri(),
        PIP_CONFIG_FILE="/dev/null",
    )  # fmt: skip
    assert done.returncode == 1
    fix = _document(done.stdout)["fix"]
    assert (fix["ending"], fix["runs"], fix["taken_back"]) == ("failed", [], [1])
    assert "No matching distribution found for nvidia-cudss-cu13" in "\n".join(fix["failure"]["tail"])
    assert "taken back" in done.stderr
    assert _files(person) == before
    assert installed_distributions(person.python) == packages
    assert _fix(person).returncode == 0, "another source works at once: nothing unfinished is in the way"


def _have_what_the_tables_name(person: Person) -> None:
    """From an index the newest versions on record are asked for, not those at hand."""
    shown = person.run("libs", "--fix", "--dry-run", "--python", person.python).stdout
    [wheel] = person.wheels.glob("nvidia_cublas-*")
    with zipfile.ZipFile(wheel) as archive:
        cublas = {name: archive.read(name) for name in archive.namelist() if name.startswith("nvidia/")}
    for project, version in set(re.findall(r"([a-z0-9-]+)(?:\[[a-z]+\])?==([\d.]+)", shown)):
        if project == "nvidia-cublas":
            library_wheel(person.wheels, project, version, files=cublas)
        elif project != "nvidia-cudss-cu13":
            make_wheel(person.wheels, project, version)


def test_a_password_of_the_index_does_its_work_and_is_kept_and_shown_nowhere(person: Person) -> None:
    _have_what_the_tables_name(person)
    with private_index(person.wheels, person.folder / "index") as address:
        words = ("libs", "--fix", "--yes", "--python", person.python, "--index-url", address)
        done = person.run(*words, PIP_CONFIG_FILE="/dev/null")
        assert done.returncode == 0, done.stderr
        assert "--index-url http://127.0.0.1:" in done.stdout
        assert "PIP_EXTRA_INDEX_URL (pip)" in " ".join(done.stdout.split())
        assert person.run("undo", "--yes").returncode == 0
    assert PASSWORD not in done.stdout + done.stderr
    kept = [path for path in (*person.state.rglob("*"), *person.home.rglob("*")) if path.is_file()]
    assert [path for path in kept if PASSWORD.encode() in path.read_bytes()] == []
    logs = [path for path in kept if path.suffix == ".log"]
    assert logs
    assert {path.stat().st_mode & 0o777 for path in logs} == {0o600}


def test_an_index_and_a_folder_together_are_refused(person: Person) -> None:
    done = _fix(person, "--index-url", f"https://alice:{PASSWORD}@host/simple")
    assert (done.returncode, "Give one." in done.stderr, PASSWORD in done.stderr) == (2, True, False)


def test_killed_while_pip_runs_the_same_command_finishes_and_undo_restores(person: Person) -> None:
    before = _files(person)
    words = ("libs", "--fix", "--yes", "--python", person.python, "--find-links", str(person.wheels))
    process = person.start(*words, HOLD_PIP=str(person.hold))
    person.wait_for("started")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (person.hold / "go").touch()
    done = _fix(person)
    assert done.returncode == 0, done.stderr
    assert "UNFINISHED" in done.stdout
    assert person.run("libs", "--python", person.python).returncode == 0
    assert person.run("undo", "--yes").returncode == 0
    assert _files(person) == before


def test_what_does_not_go_together_is_refused(person: Person, made: Path) -> None:
    wheel = next(person.wheels.glob("nvidia_cudss_cu13-0.8*"))
    cases: tuple[tuple[tuple[str, ...], str], ...] = (
        (("libs", "--yes"), "--yes works only with --fix"),
        (("libs", str(wheel), "--fix", "--yes"), "is not installed. Install it"),
        (("libs", "--fix", "--python", person.python, "--find-links", str(person.wheels)), "is not a terminal"),
        (
            ("libs", "--fix", "--yes", "--python", person.python, "--find-links", "/no/such"),
            "accepted: a folder of wheels",
        ),
        (("libs", "--fix", "--yes", "--python", person.python, "--index-url", "pypi"), "accepted is an address"),
        (("libs", "--python", "/no/such/python"), "no such file"),
    )
    for words, says in cases:
        done = person.run(*words)
        assert done.returncode == 2, (words, done.stderr)
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1 or "not a terminal" in says


def test_a_chain_that_only_a_driver_closes_is_said_to_be_so(tmp_path: Path, made: Path) -> None:
    venv = tmp_path / "venv"
    shutil.copytree(made / "venv", venv, symlinks=True)
    site = next((venv / "lib").glob("python3*/site-packages"))
    shutil.rmtree(site / "torch")
    shutil.rmtree(site / "torch-2.11.0.dist-info")
    small_torch(site, lacks=("libcuda.so.1",), rpath=CU13)
    someone = Person(tmp_path, venv)
    done = someone.run("libs", "--fix", "--yes", "--python", someone.python)
    assert done.returncode == 1
    assert "it comes with the NVIDIA driver, never with a package" in done.stdout
    assert "firstlight can do none of this" in done.stdout
    assert not someone.state.exists()
