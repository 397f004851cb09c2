"""A bundle filled by real pip from a folder of small wheels, carried, damaged, refused, and installed from."""

from __future__ import annotations

import json
import platform
from pathlib import Path

import pytest

from firstlight.apply.bundle import MANIFEST, check_files, check_place, plan_digest, read_bundle
from firstlight.apply.bundle_download import LOG, Chosen, Part, Source, download_command, fill, refuse_folder
from firstlight.apply.conditions import installed_distributions
from firstlight.apply.session import Asked, act, newest_to_undo
from firstlight.apply.undo import undo
from firstlight.errors import BadInput, CouldNotAct
from firstlight.ways.offline import PIP_FLAGS, offline
from firstlight.ways.shelf import Shelf
from firstlight.ways.step import CheckKind, Condition, StepKind
from firstlight.ways.wheel_target import Target
from tests.apply.acting import acting, step
from tests.apply.wheels import make_wheel
from tests.environments import environment_with_pip
from tests.schemas import fits
from tools.generate import SCHEMAS

HERE = ".".join(platform.python_version_tuple()[:2])
INTEL, ARM = Target("x86_64", HERE, "2.28"), Target("aarch64", HERE, "2.28")
OTHER_PYTHON = Target("x86_64", "3.13" if HERE != "3.13" else "3.12", "2.28")
ON_INTEL, ON_ARM = 'platform_machine == "x86_64"', 'platform_machine == "aarch64"'


def _tagged(wheel: Path, tags: str) -> None:
    wheel.rename(wheel.with_name(wheel.name.replace("py3-none-any", tags)))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """torch for two processors and two Pythons, with what each of them pulls."""
    folder = tmp_path / "index"
    needs = (
        f"nvidia-cublas==12.8; {ON_INTEL}",
        f"nvpl==1.0; {ON_ARM}",
        "cuda-toolkit[nvrtc]==12.8",
        'backport==1.0; python_version < "3.4"',
        f'newer==1.0; python_version >= "{OTHER_PYTHON.python}"',
    )
    for target in (INTEL, ARM, OTHER_PYTHON):
        tag = "cp" + target.python.replace(".", "")
        _tagged(make_wheel(folder, "torch", "2.9.0", requires=needs), f"{tag}-{tag}-manylinux_2_28_{target.machine}")
    _tagged(make_wheel(folder, "nvidia-cublas", "12.8", size=50_000), "py3-none-manylinux_2_27_x86_64")
    _tagged(make_wheel(folder, "nvpl", "1.0"), "py3-none-manylinux2014_aarch64")
    extra = 'nvrtc==12.8; extra == "nvrtc"\nProvides-Extra: nvrtc'
    make_wheel(folder, "cuda-toolkit", "12.8", requires=(extra, 'nvcc; extra == "nvcc"'))
    for name, version in (("nvrtc", "12.8"), ("newer", "1.0")):
        make_wheel(folder, name, version)
    return folder


def _chosen(index: Path, target: Target = INTEL, *wanted: str) -> Chosen:
    part = Part(wanted or ("torch==2.9.0",), Source(folders=(str(index),)))
    return Chosen("H100, driver >= 550", "another-wheel:torch-2.9.0", target, (part,))


def _filled(tmp_path: Path, index: Path, target: Target = INTEL) -> Path:
    out = tmp_path / "bundle"
    fill(str(out), _chosen(index, target), watch=lambda line: None)
    return out


def _projects(out: Path) -> list[str]:
    return sorted(wheel.project for wheel in read_bundle(str(out)).wheels)


def test_a_bundle_holds_what_is_wanted_and_what_that_needs_each_file_with_its_sum(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index)
    bundle = read_bundle(str(out))
    assert _projects(out) == ["cuda-toolkit", "nvidia-cublas", "nvrtc", "torch"]
    assert bundle.bytes == sum(path.stat().st_size for path in out.glob("*.whl"))
    assert {wheel.source for wheel in bundle.wheels} == {str(index)}
    assert (bundle.requirements, bundle.target) == (("torch==2.9.0",), INTEL)
    document = json.loads((out / MANIFEST).read_text())
    fits(document, json.loads((SCHEMAS / "bundle-1.json").read_text()))
    assert next(iter(document)) == "schema"
    check_files(bundle, str(out))
    check_place(bundle, INTEL)


def test_what_only_the_other_machine_needs_is_there_though_pip_reads_markers_for_this_one(
    tmp_path: Path, index: Path
) -> None:
    other, own = (ARM, "nvpl") if platform.machine() == "x86_64" else (INTEL, "nvidia-cublas")
    out = _filled(tmp_path, index, other)
    assert _projects(out) == sorted(["cuda-toolkit", "nvrtc", "torch", own])
    assert all(other.machine in path.name for path in out.glob("torch-*"))


def test_what_only_the_other_python_needs_is_there(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index, OTHER_PYTHON)
    assert "newer" in _projects(out)
    assert "backport" not in _projects(out)


def test_filled_again_it_is_the_same_and_nothing_is_fetched_twice(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index)
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.glob("*.whl")}
    manifest = json.loads((out / MANIFEST).read_text())
    said: list[str] = []
    fill(str(out), _chosen(index), watch=said.append)
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in out.glob("*.whl")} == before
    again = json.loads((out / MANIFEST).read_text())
    assert [wheel["sha256"] for wheel in again["wheels"]] == [wheel["sha256"] for wheel in manifest["wheels"]]
    assert again["plan_digest"] == manifest["plan_digest"]


def test_a_wheel_that_cannot_be_had_is_named_and_leaves_no_bundle(tmp_path: Path, index: Path) -> None:
    next(index.glob("nvrtc-*")).unlink()
    with pytest.raises(CouldNotAct, match=r"nvrtc==12\.8.*whole output is in .*download\.log"):
        _filled(tmp_path, index)
    with pytest.raises(BadInput, match="no bundle"):
        read_bundle(str(tmp_path / "bundle"))
    make_wheel(index, "nvrtc", "12.8")
    assert "nvrtc" in _projects(_filled(tmp_path, index))  # the same command goes on


@pytest.mark.parametrize("how", ["one byte", "cut short", "gone", "empty"])
def test_a_damaged_wheel_is_refused_by_its_name(tmp_path: Path, index: Path, how: str) -> None:
    out = _filled(tmp_path, index)
    [wheel] = out.glob("nvidia_cublas-*")
    data = bytearray(wheel.read_bytes())
    data[100] ^= 1
    if how == "gone":
        wheel.unlink()
    else:
        wheel.write_bytes({"one byte": bytes(data), "cut short": bytes(data[:-10]), "empty": b""}[how])
    with pytest.raises(BadInput, match=r"nvidia_cublas-12\.8-.*opy") as caught:
        check_files(read_bundle(str(out)), str(out))
    assert str(out) in str(caught.value)


def test_a_folder_that_goes_while_it_is_read_is_bad_input(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index)
    bundle = read_bundle(str(out))
    out.rename(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="No such file or directory"):
        check_files(bundle, str(out))


def test_a_wheel_that_is_not_in_the_manifest_is_refused(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index)
    make_wheel(out, "nvrtc", "99.0")
    with pytest.raises(BadInput, match=r"nvrtc-99\.0-py3-none-any\.whl is not in bundle\.json"):
        check_files(read_bundle(str(out)), str(out))


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (Target("aarch64", HERE, "2.28"), "is for x86_64; this machine is aarch64"),
        (Target("x86_64", "3.9", "2.28"), f"is for Python {HERE}; the environment has Python 3.9"),
        (Target("x86_64", HERE, "2.17"), r"is for glibc 2\.28 or newer; this machine has 2\.17"),
    ],
)
def test_a_bundle_for_another_machine_is_refused_with_what_is_accepted(
    tmp_path: Path, index: Path, here: Target, said: str
) -> None:
    bundle = read_bundle(str(_filled(tmp_path, index)))
    with pytest.raises(BadInput, match=said) as caught:
        check_place(bundle, here)
    assert f"firstlight bundle --platform {here.machine} --python {here.python} --glibc {here.glibc}" in str(
        caught.value
    )
    check_place(bundle, Target("x86_64", HERE, "2.39"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "accepted is the schema firstlight.bundle/1"),
        ('{"schema": "firstlight.bundle/2"}', "accepted is the schema"),
        ('{"schema": "firstlight.bundle/1"}', "missing"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(BadInput, match=said):
        read_bundle(str(tmp_path))


def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index)
    document = json.loads((out / MANIFEST).read_text())
    document["wheels"][0]["file"] = "../../etc/passwd.whl"
    (out / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(BadInput, match="is not the name of a wheel"):
        read_bundle(str(out))


def test_a_folder_with_something_else_in_it_is_not_filled(tmp_path: Path) -> None:
    refuse_folder(str(tmp_path / "new"))
    refuse_folder(str(tmp_path))
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(BadInput, match=r"it holds 'thesis\.tex'"):
        refuse_folder(str(tmp_path))
    with pytest.raises(BadInput, match="it is not a folder"):
        refuse_folder(str(tmp_path / "thesis.tex"))


def test_a_password_in_an_index_is_in_no_command_and_no_manifest() -> None:
    source = Source("https://user:secret@pypi.example/simple")
    argv = download_command("/out", INTEL, Part(("torch",), source))
    assert "secret" not in " ".join(argv)
    assert source.environ["PIP_INDEX_URL"] == "https://user:secret@pypi.example/simple"
    assert source.name == "https://pypi.example/simple"
    digest = plan_digest(("torch",), index=source.index, target=INTEL)
    assert digest == plan_digest(("torch",), index=source.name, target=INTEL)
    plain = download_command("/out", INTEL, Part(("torch",), Source("https://pypi.example/simple")))
    assert plain[plain.index("--index-url") :][:2] == ("--index-url", "https://pypi.example/simple")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="installs the wheels of x86_64")
def test_a_step_made_offline_installs_from_the_bundle_alone_and_is_taken_back(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index)
    environment_with_pip(tmp_path / "venv")
    python = str(tmp_path / "venv/bin/python")
    before = installed_distributions(python)
    online = step(
        "01-install", kind=StepKind.PIP,
        commands=((python, "-m", "pip", "install", "torch==2.9.0", "--index-url", "https://nowhere.invalid/whl"),),
        undo=((python, "-m", "pip", "uninstall", "--yes", "torch"),),
        done_when=(Condition(CheckKind.DISTRIBUTIONS, python, "torch==2.9.0"),),
    )  # fmt: skip
    shelf = Shelf(str(out), check_files(read_bundle(str(out)), str(out)), INTEL, str(tmp_path / "lists"))
    planned = offline(online, shelf)
    assert planned.commands == ((python, "-m", "pip", "install", *PIP_FLAGS, str(out), "-r", planned.files[0].path),)
    assert planned.undo == online.undo
    act(acting(tmp_path), Asked((planned,), "d", "o", "t"))
    after = installed_distributions(python)
    assert {"torch==2.9.0", "nvidia-cublas==12.8", "nvrtc==12.8"} <= set(after or ())
    doing = acting(tmp_path)
    for run in newest_to_undo(doing):
        undo(doing, run)
    assert installed_distributions(python) == before


def test_a_step_that_fetches_something_else_cannot_be_made_offline() -> None:
    fetches = step("01-compat", kind=StepKind.APT, commands=(("apt-get", "install", "cuda-compat-13-0"),))
    with pytest.raises(BadInput, match=r"--offline /bundle: the step '01-compat' fetches from the network"):
        offline(fetches, Shelf("/bundle", (), INTEL, "/lists"))
    assert offline(fetches, None) == fetches


def test_the_log_stays_in_the_folder(tmp_path: Path, index: Path) -> None:
    out = _filled(tmp_path, index)
    assert (out / LOG).read_text().startswith("$ ")
