"""`firstlight bundle` as it is typed: what it says before it downloads, what it refuses, and what apply makes of it."""

from __future__ import annotations

import json
import platform
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from firstlight.apply.bundle import MANIFEST, read_bundle
from firstlight.cli.bundle import command
from firstlight.cli.offline import bundle_in, shelf_of, wants_of
from firstlight.diagnosis.judge import judge
from firstlight.diagnosis.rules import RULES
from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.plan.options import rank_options
from firstlight.plan.plan import choose
from firstlight.plan.request import Request
from firstlight.plan.steps import steps_for
from firstlight.plan.want import parse_wants
from firstlight.ways.extras import Extras
from firstlight.ways.kinds import InstallWheels
from firstlight.ways.listed import listed_in
from firstlight.ways.offline import PIP_FLAGS
from tests.apply.wheels import make_wheel
from tests.plan.planning import question_of

H100 = ("--for", "H100, driver >= 550")


@pytest.fixture
def index(tmp_path: Path) -> Path:
    folder = tmp_path / "index"
    make_wheel(folder, "torch", "2.9.0", requires=("sympy",))
    make_wheel(folder, "sympy", "1.14.0")
    return folder


def _bundle(*words: str) -> Result:
    return CliRunner().invoke(command, words)


def _refused(*words: str) -> str:
    result = _bundle(*words)
    assert isinstance(result.exception, BadInput), result.output
    return str(result.exception)


@pytest.mark.parametrize(
    ("words", "python"),
    [
        (H100, "3.12"),
        (("--for", "T4, driver >= 470", "--want", "torch==1.13.1"), "3.11"),  # it has wheels up to 3.11
        ((*H100, "--want", "torch==2.2.2"), "3.11"),  # it has no torch.compile in 3.12
        ((*H100, "--want", "torch==2.2.2", "--python", "3.12"), "3.12"),
    ],
)
def test_the_python_is_the_usual_one_where_all_works_in_it(tmp_path: Path, words: tuple[str, ...], python: str) -> None:
    result = _bundle(*words, "--out", str(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 0, result.output
    assert f"Python {python}, " in result.stderr.splitlines()[0]


def test_what_comes_from_where_and_how_much_is_said_before_the_first_byte(tmp_path: Path, index: Path) -> None:
    out = tmp_path / "out"
    result = _bundle("--want", "torch==2.9.0", *H100, "--out", str(out), "--find-links", str(index))
    assert result.exit_code == 0, result.output
    first, second, third, *rest = result.stderr.splitlines()
    assert first == "for H100, driver >= 550 (x86_64, Python 3.12, glibc 2.28 or newer):"
    assert second == f"  torch==2.9.0 from {index}"
    assert third.startswith("  download: 4.1 GB (sizes on PyPI")
    assert any("torch-2.9.0-py3-none-any.whl" in line for line in rest)
    assert result.stdout.splitlines()[-1] == f"there: firstlight apply --offline {out}"
    bundle = read_bundle(str(out))
    assert (bundle.option, bundle.requirements) == ("another-wheel:torch-2.9.0", ("torch==2.9.0",))
    assert [wheel.project for wheel in bundle.wheels] == ["sympy", "torch"]


def test_a_dry_run_says_it_and_makes_nothing(tmp_path: Path) -> None:
    result = _bundle(*H100, "--out", str(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 0
    assert re.search(r"download: [\d.]+ GB \(size estimated from torch 2\.", result.stderr)
    assert "from https://download.pytorch.org/whl/cu12" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_facts_of_a_machine_say_its_python_processor_and_c_library(tmp_path: Path) -> None:
    recorded = Path(__file__).parents[1] / "machines/h100-driver-570"
    result = _bundle("--facts", str(recorded), "--want", "torch==2.9.0", "--out", str(tmp_path / "out"), "--dry-run")
    assert result.stderr.startswith("for the machine of h100-driver-570 (x86_64, Python 3.12, glibc 2.39 or newer):")
    asked = ("--python", "3.13", "--glibc", "2.28")
    result = _bundle("--facts", str(recorded), *asked, "--out", str(tmp_path / "out"), "--dry-run")
    assert "Python 3.13, glibc 2.28" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give either --for"),
        ((*H100, "--facts", "x.json"), "give either --for"),
        (("--for", "H100"), "no driver in it; accepted: GPUs and the oldest driver"),
        (("--for", "driver >= 550"), "no GPU in it"),
        (("--for", "Voodoo, driver >= 550"), "'Voodoo' is neither a GPU that the tables know"),
        ((*H100, "--platform", "sparc"), "--platform 'sparc': accepted: x86_64, aarch64"),
        ((*H100, "--python", "2.7"), "--python '2.7': accepted is a minor release of Python 3, e.g. 3.12"),
        ((*H100, "--glibc", "musl"), "--glibc 'musl': accepted is a release of glibc 2"),
        (("--for", "RTX 4090, driver >= 550", "--want", "torch==2.9.0+cu130"), "needs a driver that runs CUDA 13"),
        ((*H100, "--glibc", "2.17", "--want", "torch==2.9.0"), "need glibc 2.28 or newer; this machine has 2.17"),
        ((*H100, "--find-links", "/no/such/folder"), "--find-links /no/such/folder: there is no such folder"),
        ((*H100, "--index-url", "notaurl"), "--index-url 'notaurl': accepted: an address that begins with https://"),
        ((*H100, "--index-url", "me:secret@mirror/simple"), "--index-url 'mirror/simple': accepted"),
        (("--for", "GH200, driver 580", "--platform", "x86_64"), "every machine with GH200 is aarch64"),
        (("--for", "H100, GH200, driver 580"), "wheels are for one of the two. Give --platform aarch64"),
        ((*H100, "--want", "python==3.12"), "say it with --python"),
        (("--for", "RTX 5090, driver >= 580", "--want", "torch==2.5.0"), "for RTX 5090, driver >= 580"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    assert said in _refused(*words, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_oldest_driver_of_the_class_decides(tmp_path: Path) -> None:
    asked = ("--want", "torch==2.9.0+cu130", "--out", str(tmp_path / "out"), "--dry-run")
    newer, older = (_bundle("--for", f"H100, driver >= {each}", *asked) for each in ("580", "570.133.20"))
    assert (newer.exit_code, older.exit_code) == (0, 0)
    assert "cuda-compat" not in newer.stderr
    assert "they need cuda-compat-13-0 first, which is not in the bundle" in older.stderr
    assert "`firstlight emit bash`" in older.stderr
    assert "CUDA 13" in _refused("--for", "RTX 5090, driver >= 570.133.20", *asked)


def test_a_bundle_for_a_driver_that_is_too_old_says_what_comes_first_there(tmp_path: Path) -> None:
    folder, out = tmp_path / "index", tmp_path / "out"
    make_wheel(folder, "torch", "2.9.0+cu130")
    asked = ("--want", "torch==2.9.0+cu130", *H100, "--out", str(out), "--find-links", str(folder))
    result = _bundle(*asked)
    assert result.exit_code == 0, result.output
    last = result.stdout.splitlines()[-1]
    assert last == f"there, once cuda-compat-13-0 is installed: firstlight apply --offline {out}"
    bundle = read_bundle(str(out))
    assert bundle.requirements == ("torch==2.9.0+cu130",)
    assert bundle.option.startswith("forward-compat:"), bundle.option


def test_an_old_c_library_takes_the_newest_torch_that_has_wheels_for_it(tmp_path: Path) -> None:
    result = _bundle(*H100, "--glibc", "2.17", "--out", str(tmp_path / "out"), "--dry-run")
    assert "  torch==2.6.0 from the index pip is set to" in result.stderr.splitlines()
    recorded = Path(__file__).parents[1] / "machines/h100-driver-570"
    words = ("--facts", str(recorded), "--glibc", "2.17", "--want", "torch==2.9.0", "--out", str(tmp_path / "out"))
    assert "need glibc 2.28 or newer; this machine has 2.17" in _refused(*words)


@pytest.mark.parametrize("gpu", ["GH200", "GB200", "GB300", "GB10", "Jetson Thor"])
def test_gpus_that_come_with_an_arm_processor_alone_get_wheels_for_it(tmp_path: Path, gpu: str) -> None:
    result = _bundle("--for", f"{gpu}, driver 580", "--out", str(tmp_path / "out"), "--dry-run")
    assert result.stderr.startswith(f"for {gpu}, driver 580 (aarch64, ")


@pytest.mark.parametrize("gpu", ["H100", "B200", "RTX 5090"])
def test_other_gpus_are_in_x86_64_machines_unless_another_platform_is_asked_for(tmp_path: Path, gpu: str) -> None:
    words = ("--for", f"{gpu}, driver 580", "--out", str(tmp_path / "out"), "--dry-run")
    assert "(x86_64, " in _bundle(*words).stderr
    assert "(aarch64, " in _bundle(*words, "--platform", "aarch64").stderr


def test_apply_finds_its_wants_in_a_bundle_for_this_machine_and_plans_from_the_folder(
    tmp_path: Path, index: Path
) -> None:
    out = tmp_path / "out"
    facts = question_of("h100-driver-570").facts
    result = _bundle("--want", "torch==2.9.0", *H100, "--out", str(out), "--find-links", str(index))
    assert result.exit_code == 0, result.output
    bundle, shelf = bundle_in(str(out)), shelf_of(str(out), facts)
    assert bundle is not None
    assert {each.wheel.name: each.sha256 for each in shelf.wheels} == {each.file: each.sha256 for each in bundle.wheels}
    assert wants_of(bundle) == ("torch==2.9.0",)
    question = question_of("h100-driver-570")
    ranked = rank_options(question, judge(question, RULES), Request(parse_wants(wants_of(bundle))))
    option = choose(ranked, bundle.option)
    packages = [each for way in option.ways if isinstance(way, InstallWheels) for each in way.packages]
    assert tuple(each.requirement for each in packages) == bundle.requirements
    [install] = steps_for(question, option, Extras(shelf=shelf))
    [argv] = [argv for argv in install.commands if "install" in argv]
    assert argv[argv.index("install") + 1 :] == (*PIP_FLAGS, str(out), "-r", install.files[0].path)
    assert listed_in(install.files[0].after).keys() == {f"{each.project}=={each.version}" for each in bundle.wheels}
    other = replace(facts, runtime=replace(facts.runtime, glibc=Known("2.17", "a test")))
    with pytest.raises(BadInput, match=r"is for glibc 2\.28 or newer; this machine has 2\.17"):
        shelf_of(str(out), other)
    document = json.loads((out / MANIFEST).read_text())
    document["target"]["machine"] = "aarch64"
    (out / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(BadInput, match="is for aarch64; this machine is x86_64"):
        shelf_of(str(out), facts)


@pytest.mark.network
@pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with what PyPI has for x86_64")
def test_a_real_index_gives_wheels_for_another_python_and_processor(tmp_path: Path) -> None:
    from firstlight.apply.bundle_download import Chosen, Part, Source, fill
    from firstlight.ways.wheel_target import Target

    target = Target("aarch64", "3.13", "2.28")
    chosen = Chosen("a test", "another-wheel:numpy", target, (Part(("numpy==2.3.0", "jinja2==3.1.6"), Source()),))
    bundle = fill(str(tmp_path / "out"), chosen, watch=lambda line: None)
    assert {wheel.project for wheel in bundle.wheels} == {"numpy", "jinja2", "markupsafe"}
    [numpy] = [wheel.file for wheel in bundle.wheels if wheel.project == "numpy"]
    assert "cp313" in numpy
    assert numpy.endswith("aarch64.whl")
