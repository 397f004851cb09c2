"""firstlight from Python gives what the verbs give, and its surface is what its page says."""

from __future__ import annotations

import json
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import firstlight
from firstlight import api, kernels
from firstlight.cli.main import run
from firstlight.errors import BadInput
from tools import make_library_page

MACHINES = Path(__file__).parent / "machines"
NAMES = (
    "h100-driver-570",
    "h200-healthy",
    "gpu-less",
    "thor-missing-libraries",
    "v100-torch-cu130",
    "wsl2-linux-libcuda",
)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    run([*words, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_is_judged_and_planned_for_as_by_the_verbs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    machine = str(MACHINES / name)
    looked = api.look(machine)
    assert looked.to_dict() == printed(capsys, "facts", "--facts", machine)
    found = api.diagnose(looked)
    assert found.to_dict() == printed(capsys, "doctor", "--facts", machine)
    planned = api.plan(looked)
    assert planned.to_dict() == printed(capsys, "plan", "--facts", machine)
    assert (found.blocked, found.primary) == (planned.blocked, planned.primary)


def test_a_want_an_option_and_a_pretended_fact_are_those_of_the_command_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("--facts", "example:h100-driver-570", "--set", "driver=550.54.14", "--want", "torch==2.9.0+cu130")
    looked = api.look("example:h100-driver-570", pretend=["driver=550.54.14"])
    planned = api.plan(looked, wants="torch==2.9.0+cu130", option="2")
    assert planned.to_dict() == printed(capsys, "plan", *given, "--option", "2")
    assert planned.steps


def test_this_machine_can_be_looked_at() -> None:
    found = api.diagnose()
    assert found.looked.summary
    assert found.to_dict()["schema"] == "firstlight.diagnosis/2"


def test_a_text_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = "ImportError: libcudss.so.0: cannot open shared object file: No such file or directory"
    told = api.explain(text)
    assert told.known
    assert told.primary is not None
    assert told.to_dict() == printed(capsys, "explain", text)
    assert api.explain("all is well").primary is None


def test_a_claim_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    judged = api.check_claim("gemm", "8192x8192x8192", gpu="H100", tflops=1075)
    words = ("--case", "gemm", "--shape", "8192x8192x8192", "--gpu", "H100", "--tflops", "1075")
    assert judged.to_dict() == printed(capsys, "bench", "check-claim", *words)
    assert judged.can_be_true is False


def test_a_proof_says_what_was_proved() -> None:
    proof = api.verify(only=["so"])  # a check that there is nothing to prove by here: asked for, it has to be proved
    assert [result.check for result in proof.results] == ["so"]
    assert (proof.proved, proof.blocked, proof.primary) == (False, True, None)
    assert proof.to_dict()["schema"] == "firstlight.verify/1"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: api.diagnose(goal="win"), "accepted: infer, train, build-extensions, kernels"),
        (lambda: api.look("example:nothing"), "no such example; accepted: "),
        (lambda: api.look("/no/such/file"), "no such file or directory"),
        (lambda: api.verify(only=["cpus"]), "there is no check called 'cpus'"),
        (lambda: api.check_claim("gemm", "8192", gpu="H100", flops=3), "flops is not a figure; accepted: ms, tflops"),
        (lambda: api.check_claim("gemm", "8192", gpu="H100"), "a claim needs a number"),
    ],
)
def test_a_call_that_cannot_be_used_raises_bad_input(call: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        call()


def test_the_page_of_the_kernels_has_every_name_of_theirs() -> None:
    page = make_library_page.KERNELS.read_text()
    assert make_library_page.filled(page, kernels) == page, "run: python -m tools.generate library-page"
    assert [name for name in kernels.__all__ if f"### `{name}" not in page] == []


def test_the_page_has_the_surface_and_nothing_else_is_public() -> None:
    page = make_library_page.PAGE.read_text()
    assert make_library_page.filled(page) == page, "run: python -m tools.generate library-page"
    public = {
        name for name in vars(api) if not name.startswith("_") and vars(api)[name].__class__.__module__ != "__future__"
    }
    assert public - {"annotations", "TYPE_CHECKING", "Any", "Iterable", "dataclass"} == set(api.__all__)


def test_the_example_of_the_page_runs() -> None:
    code = (
        make_library_page.PAGE.read_text()
        .split("```python\n")[1]
        .split("```")[0]
        .replace('"import", "cpu"', '"import"')
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-3:] == ["cudss-missing", "False", "True"]


def test_importing_it_brings_neither_torch_nor_click() -> None:
    asked = "import sys, firstlight.api; print([name for name in ('torch', 'click', 'rich') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True).stdout == "[]\n"


def test_firstlight_itself_has_every_call_also_where_a_package_has_its_name() -> None:
    functions = {name for name in api.__all__ if name.islower()}
    assert set(firstlight.__all__) == {"__version__"} | functions
    assert [firstlight.look, firstlight.diagnose, firstlight.check_claim] == [api.look, api.diagnose, api.check_claim]
    shown = pydoc.plain(pydoc.render_doc(firstlight))
    assert "firstlight.api: look, diagnose, plan, explain, verify, check_claim" in shown
    with pytest.raises(AttributeError, match="no attribute 'judge'"):
        firstlight.__getattr__("judge")


@pytest.mark.parametrize("before", ["", "import firstlight.plan.steps, firstlight.verify.check, firstlight.explain; "])
def test_a_package_with_the_name_of_a_call_is_called_like_it(before: str) -> None:
    code = (
        f"{before}import firstlight; machine = firstlight.look('example:h100-driver-570'); "
        "print(firstlight.plan(machine).blocked, firstlight.explain('libcudss.so.0: cannot open shared object file: "
        "No such file or directory').primary.signature.code, firstlight.verify(only=['so']).proved); "
        "from firstlight.plan.option import Option; import firstlight.plan as package; print(package.__path__ != [])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True cudss-missing False\nTrue\n", "")


def test_importing_firstlight_brings_no_module_that_python_had_not_anyway() -> None:
    asked = (
        f"import sys; sys.path.insert(0, {str(Path(firstlight.__file__).parents[1])!r}); before = set(sys.modules); "
        "import firstlight; print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-S", "-E", "-c", asked], capture_output=True, text=True)
    assert done.stdout == "['firstlight']\n"
