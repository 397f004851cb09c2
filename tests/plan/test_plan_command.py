"""`firstlight plan` as a person or a script meets it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from firstlight.cli import main
from firstlight.cli.plan_files import extras_of, machine_looked_at
from firstlight.diagnosis.finding import Question
from firstlight.facts.collect import collect
from firstlight.facts.look import Look
from firstlight.machine import Host
from firstlight.machine.live import LiveMachine
from firstlight.plan.option import Kind
from firstlight.plan.plan import plan_for
from firstlight.ways.kinds import InstallWheels, Package, Unwire, WiredBy
from tests.diagnosis.rule_case import MACHINES
from tests.plan.planning import TABLES, option_of
from tests.schemas import fits

SCHEMA = json.loads((Path(__file__).parents[2] / "src/firstlight/schemas/plan-2.json").read_text())


def _plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(["plan", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def _at(name: str) -> str:
    return str(MACHINES / name)


def test_an_option_is_printed_as_commands_and_nothing_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _plan(capsys, "--facts", _at("h100-driver-570"), "--option", "forward-compat:cuda-compat-13-0")
    assert code == 0
    assert "   apt-get install --yes cuda-compat-13-0\n" in out
    assert "nothing is changed yet" in out
    assert err == ""


def test_the_same_call_prints_the_same_text(capsys: pytest.CaptureFixture[str]) -> None:
    first = _plan(capsys, "--facts", _at("h100-driver-550-cu130"), "--tuning", "all")
    assert _plan(capsys, "--facts", _at("h100-driver-550-cu130"), "--tuning", "all") == first


def test_another_option_by_number_and_by_id(capsys: pytest.CaptureFixture[str]) -> None:
    code, by_number, _ = _plan(capsys, "--facts", _at("h100-driver-570"), "--option", "2", "--json")
    assert code == 0
    identity = json.loads(by_number)["option"]["id"]
    _, by_id, _ = _plan(capsys, "--facts", _at("h100-driver-570"), "--option", identity, "--json")
    assert by_id == by_number


def test_a_want_is_planned_with_its_packages(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--facts", _at("h200-no-torch"), "--want", "torch==2.9.0+cu130", "--rate", "2.69", "--json")
    code, out, _ = _plan(capsys, *arguments)
    document = json.loads(out)
    fits(document, SCHEMA)
    assert code == 0
    commands = [argv for step in document["steps"] for argv in step["commands"]]
    assert any("torch==2.9.0+cu130" in argv for argv in commands)
    assert document["wants"] == ["torch==2.9.0+cu130"]


def test_options_prints_all_of_them_and_those_that_cannot_work(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _plan(capsys, "--facts", _at("h100-driver-570"), "--options")
    assert code == 0
    assert "cuda-compat-13-0" in out
    code, out, _ = _plan(capsys, "--facts", _at("h100-driver-570"), "--options", "--json")
    assert json.loads(out)["schema"] == "firstlight.options/2"


def test_a_healthy_machine_has_nothing_to_do_and_still_takes_settings_and_checkouts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _plan(capsys, "--facts", _at("h200"))[:2][0] == 0
    asked = ("--tuning", "NCCL_DEBUG=WARN", "--checkout", "cutlass@v4.2.1")
    code, out, _ = _plan(capsys, "--facts", _at("h200"), *asked, "--json")
    assert code == 0
    assert [step["kind"] for step in json.loads(out)["steps"]] == ["git", "tuning"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--option", "99"), "--option 99: accepted: 1 to "),
        (("--option", "x"), "no option is called that"),
        (("--rate", "-1"), "--rate -1.0: accepted is the price of an hour"),
        (("--rate", "cheap"), "--rate"),
        (("--want", "numpy"), "--want 'numpy'"),
        (("--goal", "mine"), "--goal"),
        (("--channel", "beta"), "--channel"),
        (("--tuning", "CUDNN_ALLOW_TF32_CUBLAS_OVERRIDE=1"), "torch and NCCL do not read"),
        (("--checkout", "cutlass"), "accepted is PROJECT@TAG"),
    ],
)
def test_bad_input_is_refused_in_one_line_with_exit_code_2(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _plan(capsys, "--facts", _at("h100-driver-570"), *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def _live(root: Path, home: str, **environ: str) -> LiveMachine:
    """A machine made of files: a uv project whose .bashrc poisons the path."""
    host = Host(
        "h", "me", home, f"{home}/app", os.getuid(), "6.8", "x86_64", "3.12.3", "", "", "", "2026-11-15T00:00:00Z"
    )
    return LiveMachine(root=str(root), environ={"PATH": "/usr/bin", **environ}, host=host)


def _written(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_texts_of_start_up_and_project_files_reach_the_plan(tmp_path: Path) -> None:
    home = "/home/me"
    _written(tmp_path, f"{home}/.bashrc", "export LD_LIBRARY_PATH=/usr/local/cuda/lib64\n")
    _written(tmp_path, "/etc/profile.d/cuda.sh", "export LD_LIBRARY_PATH=/usr/local/cuda/lib64:/opt/x\n")
    _written(
        tmp_path, f"{home}/app/pyproject.toml", '[project]\nname = "a"\ndependencies = ["torch>=2.8"]\n[tool.uv]\n'
    )
    _written(tmp_path, f"{home}/app/uv.lock", 'name = "torch"\nversion = "2.8.0"\n')
    _written(tmp_path, f"{home}/app/.venv/pyvenv.cfg", "home = /usr/bin\nuv = 0.9\nversion_info = 3.12.3\n")
    _written(tmp_path, f"{home}/app/.venv/bin/python3", "")
    (tmp_path / "home/me/app/.venv/lib/python3.12/site-packages").mkdir(parents=True)
    machine = _live(tmp_path, home, LD_LIBRARY_PATH="/usr/local/cuda/lib64", XDG_STATE_HOME="/data/state")
    question = Question(collect(machine), TABLES)
    extras = extras_of(machine, question.facts)
    assert extras.state == "/data/state/firstlight"
    removal = plan_for(
        question, option_of(Kind.REMOVE, Unwire(("/usr/local/cuda/lib64",), WiredBy.LIBRARY_PATH)), extras=extras
    )
    assert [step.files[0].path for step in removal.steps if step.files] == [f"{home}/.bashrc", "/etc/profile.d/cuda.sh"]
    assert [step.needs_root for step in removal.steps if step.files] == [False, True]
    torch = InstallWheels((Package("torch", "2.9.0+cu128"),), "https://download.pytorch.org/whl/cu128")
    wheel = option_of(Kind.WHEEL, torch)
    [step] = plan_for(question, wheel, extras=extras).steps
    assert step.files[0].path == f"{home}/app/pyproject.toml"
    assert "torch==2.9.0" in step.files[0].after


def test_a_recorded_machine_gives_the_texts_that_were_recorded_and_a_document_of_facts_none() -> None:
    assert machine_looked_at(Look(facts_file="example:h100-driver-570")) is None
    recorded = machine_looked_at(Look(facts_file=_at("h100-driver-595-compat-580")))
    assert recorded is not None
    paths = {file.path for file in extras_of(recorded, collect(recorded)).files}
    assert "/etc/ld.so.conf.d/cuda-compat.conf" in paths


def test_this_machine_itself_can_be_planned_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _plan(capsys, "--json")
    document = json.loads(out)
    fits(document, SCHEMA)
    assert code == (1 if document["option"] is None else 0)


def test_an_impossible_want_says_which_part_and_what_comes_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    wants = ("--want", "torch==2.9.0", "--want", "python==3.15")
    code, out, err = _plan(capsys, *wants, "--facts", _at("h100-driver-570"))
    assert (code, out) == (2, "")
    assert "torch 2.9.0 has wheels for Python 3.10" in err
    assert "an environment of Python 3.14 takes torch 2.9.0" in err
    assert "--option another-wheel:torch-2.15.0" in err


def test_another_python_than_the_environments_is_not_planned_into_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = _plan(capsys, "--want", "python==3.11", "--facts", _at("h100-driver-570"))
    assert code == 2
    assert "the environment has Python 3.12.3" in err
    assert "uv venv --python 3.11" in err


def test_another_build_of_the_wanted_release_is_not_taken_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _plan(capsys, "--want", "torch==2.9.0", "--facts", _at("h100-driver-570"))
    assert code == 0
    assert "torch 2.9.0 on PyPI has CUDA 12.8" in out
    assert "   /usr/bin/python3 -m pip install torch==2.9.0 --find-links " in out


def test_a_torch_wanted_on_a_jetson_comes_from_one_index_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _plan(capsys, "--facts", _at("orin-torch-pypi"), "--want", "torch", "--json")
    assert code == 0
    commands = [command for step in json.loads(out)["steps"] for command in step["commands"]]
    [index] = [command[-1] for command in commands if "install" in command]
    assert index == "https://pypi.jetson-ai-lab.io/jp6/cu126"
    own = ("--option", "another-wheel:torch")
    _, text, _ = _plan(capsys, "--facts", _at("orin-torch-pypi"), "--want", "vllm", *own)
    assert "download.pytorch.org" not in text
    assert "  not     vllm: " in text


def test_a_newer_driver_of_a_jetson_is_a_jetpack_and_no_package(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _plan(capsys, "--facts", _at("orin-torch-pypi"), "--want", "torch==2.9.0+cu130", "--option", "1")
    assert code == 0
    assert "PLAN      update JetPack to a release with CUDA 13 (+1 step)\n" in out
    assert out.index("1. update JetPack") < out.index("2. install torch 2.9.0+cu130")
    assert "nvidia-driver" not in out
