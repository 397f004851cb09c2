"""`firstlight verify` as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from firstlight.cli import main
from firstlight.verify.checks import CHECKS
from tests.verify.standing_in import facts_here, stand_in

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "src/firstlight/schemas/verify-1.json").read_text())


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(main.VERBS, "verify", ("verify", "prove it"))


def test_this_machine_is_proved_as_far_as_it_goes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Everything for real: torch.compile and an extension with cold caches, fresh shells, libraries, the table."""
    if facts_here().gpus.devices:
        pytest.skip("a machine with a GPU is proved by hand: minutes, and it may be in use")
    out = tmp_path / "verify.xml"
    code = main.run(["verify", "--json", "--junit", str(out), "--python", sys.executable])
    said = capsys.readouterr()
    document = json.loads(said.out)
    Draft202012Validator(SCHEMA).validate(document)
    outcomes = {result["check"]: result["outcome"] for result in document["results"]}
    assert [check.name for check in CHECKS] == list(outcomes)
    assert code == 0, document["summary"]
    proved = {name for name, outcome in outcomes.items() if outcome == "ok"}
    assert proved >= {"import", "cpu", "compile", "extension", "libraries", "here", "cron", "features"}
    assert outcomes["gpus"] == "not here"
    assert document["summary"][0].startswith("the CPU part is proved; there is no GPU here, and that is all")
    root = ET.parse(out).getroot()
    assert root.get("tests") == str(len(CHECKS))
    assert root.get("failures") == "0"
    assert f"wrote {out}" in said.err
    assert main.run(["handover", "--json", "--out", str(tmp_path / "handover.html")]) == 0
    handed = json.loads(capsys.readouterr().out)
    assert handed["proved"][0]["started_at"] == document["started_at"]
    assert "what is proved" not in [each["part"] for each in handed["missing"]]


def test_the_list_names_every_check_with_its_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["verify", "--list"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for check in CHECKS:
        assert f"{check.name} {check.title}; needs" in text
        assert f"at most {check.limit_s:g} s" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--only", "cublass"], "there is no check called 'cublass'; accepted: import, cpu, gpus"),
        (["--only", "gpu"], "Did you mean gpus?"),
        (["--skip", "nothing"], "there is no check called 'nothing'"),
        (["--only", "require"], "--require FILE"),
        (["--require", "/nowhere/team.toml"], "--require /nowhere/team.toml: No such file"),
        (["--junit", "/nowhere/out.xml"], "--junit /nowhere/out.xml: there is no folder /nowhere"),
        (["--python", "/nowhere/python"], "--python /nowhere/python: no such file"),
    ],
)
def test_bad_input_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert main.run(["verify", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
    assert said.err.count("\n") == 1


def test_a_torch_that_does_not_import_fails_and_the_rest_is_skipped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", stand_in(tmp_path, "raise ImportError('libcudart.so.13: cannot open')"))
    assert main.run(["verify", "--python", sys.executable, "--skip", "ssh"]) == 1
    text = capsys.readouterr().out
    assert "FAILED    import" in text
    assert "libcudart.so.13: cannot open" in text
    assert "skipped   compile            torch cannot be imported: see `import`" in text
    assert "skipped   ssh                you said --skip" in text
    assert "\nproved: none\n" in text


def test_a_check_asked_for_by_name_must_be_proved(capsys: pytest.CaptureFixture[str]) -> None:
    if facts_here().gpus.devices:
        pytest.skip("this machine has a GPU")
    assert main.run(["verify", "--only", "gpus", "--python", sys.executable]) == 1
    assert "nothing was proved" in capsys.readouterr().out


def test_requirements_alone_start_no_check(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "team.toml").write_text('[versions]\npython = ">=3.10"\nclick = ">=8"\n')
    arguments = ["verify", "--only", "require", "--require", str(tmp_path / "team.toml"), "--python", sys.executable]
    assert main.run(arguments) == 0
    text = capsys.readouterr().out
    assert "2 of 2 requirements" in text
    assert "import" not in text
    (tmp_path / "team.toml").write_text('[versions]\n\ntorch = "<1"\n')
    assert main.run([*arguments, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator(SCHEMA).validate(document)
    [row] = document["requirements"]
    assert (row["met"], row["line"], row["needed"]) == ("not met", 3, "<1")


def test_the_temporary_folder_is_gone_afterwards(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", stand_in(tmp_path / "mine", "raise ImportError('no')"))
    main.run(["verify", "--only", "import", "--python", sys.executable])
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "a CI's time limit"])
def test_an_interrupted_run_ends_its_children_too(tmp_path: Path, number: int) -> None:
    mark = tmp_path / "pid"
    slow = stand_in(
        tmp_path / "mine", f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    code = (
        "import sys; from firstlight.cli import main; main.VERBS['verify'] = ('verify', '');"
        "sys.exit(main.run(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "verify", "--only", "import", "--python", sys.executable],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{slow}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(200):
        if mark.exists() and mark.read_text():
            break
        time.sleep(0.1)
    child = int(mark.read_text())
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130
    assert error.strip() == "firstlight: interrupted"
    assert not os.path.exists(f"/proc/{child}") or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"
