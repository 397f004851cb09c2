"""A file of cases that cannot be used: one line with what was given, what is accepted and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.bench.user_cases.load import load_cases
from firstlight.cli import main
from firstlight.errors import BadInput

HEAD = "import torch\nfrom firstlight.bench.user_cases import CudaFile, Grid, UserCase\n"
MADE = "inputs=lambda make: (make.normal((64,)),), run=torch.abs, reference=torch.abs"
CUDA = MADE.replace("run=torch.abs", "run=CudaFile('a.cu', 'f', Grid)")


def refused(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_text(HEAD + text)
    with pytest.raises(BadInput) as caught:
        load_cases(str(file))
    said = str(caught.value)
    assert said.startswith(str(file))
    assert "\n" not in said
    return said.removeprefix(str(file))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no CASES; accepted: CASES = (UserCase(name="),
        ("CASES = ()", "CASES is tuple, or empty"),
        ("CASES = (torch.add,)", "CASES holds a builtin_function_or_method; accepted: CASES ="),
        ("x = 1\nraise KeyError('weights')", ":4: could not be read: KeyError: 'weights'. Repair the file"),
        ("CASES = (", ":3: could not be read: SyntaxError"),
        ("raise SystemExit(3)", "could not be read: SystemExit: 3"),
        (f"CASES = [UserCase(name='a b', {MADE}, bytes=1)]", "case a b: name is 'a b'; accepted: letters"),
        (f"CASES = [UserCase(name='a', {MADE})]", "case a: neither flops nor bytes are counted"),
        (f"CASES = [UserCase(name='a', {MADE}, bytes=1.5)]", "bytes is 1.5; accepted: a whole number"),
        (f"CASES = [UserCase(name='a', {MADE}, flops=-1)]", "flops is -1; accepted: a whole number"),
        (f"CASES = [UserCase(name='a', {MADE}, bytes=8, dtype='fp12')]", "dtype is 'fp12'; accepted: fp64, fp32"),
        (f"CASES = [UserCase(name='a', {MADE}, bytes=8, peak='none')]", "peak is 'none'; accepted: fp64, fp32"),
        (f"CASES = [UserCase(name='a', {MADE}, bytes=8, peak='fp16')]", "peak is fp16 and flops is 0; count the flops"),
        (f"CASES = [UserCase(name='a', {MADE}, bytes=8, tolerance=0.1)]", "accepted for fp32: up to 0.0005, beyond"),
        (f"CASES = [UserCase(name='a', {MADE}, bytes=8, cache='cold')]", "cache is not a Cache"),
        (f"CASES = [UserCase(name='a', {MADE}, bytes=8)] * 2", "2 cases are called 'a'; give each a name"),
        (f"CASES = [UserCase(name='a', {MADE.replace('run=torch.abs', 'run=7')}, bytes=8)]", "run is 7; accepted: a"),
        (f"CASES = [UserCase(name='a', {MADE.replace('e=torch.abs', 'e=None')}, bytes=8)]", "reference is None"),
        (f"CASES = [UserCase(name='a', {CUDA}, bytes=8)]", "a CudaFile returns nothing, so outputs="),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, text)


def test_a_cu_file_needs_its_description_beside_it(tmp_path: Path) -> None:
    kernel = tmp_path / "scale.cu"
    with pytest.raises(BadInput, match="there is no such file"):
        load_cases(str(kernel))
    kernel.write_text("")
    with pytest.raises(BadInput, match=r"inputs, work and reference are not known; write .*scale\.py beside it"):
        load_cases(str(kernel))
    (tmp_path / "scale.py").write_text(HEAD + f"CASES = [UserCase(name='a', {MADE}, bytes=8)]")
    with pytest.raises(BadInput, match=r"no case runs scale\.cu"):
        load_cases(str(kernel))


def test_a_missing_kernel_is_named(tmp_path: Path) -> None:
    made = f"{CUDA}, outputs=lambda make: (make.empty((64,)),)"
    assert f"there is no a.cu in {tmp_path}" in refused(tmp_path, f"CASES = [UserCase(name='a', {made}, bytes=8)]")


def test_files_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "shapes_of_mine.py").write_text("N = 64\n")
    file = tmp_path / "mine.py"
    file.write_text(HEAD + f"from shapes_of_mine import N\nCASES = [UserCase(name='a', {MADE}, bytes=8 * N)]")
    assert [case.bytes for case in load_cases(str(file)).cases] == [512]


def test_without_a_gpu_not_a_line_of_the_file_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    ran = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"open({str(ran)!r}, 'w')\nCASES = ()\n")
    assert main.run(["bench", str(tmp_path / "mine.py")]) == 4
    assert "no CUDA device is usable" in capsys.readouterr().err
    assert not ran.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cpu", "nowhere.py"], "nowhere.py: there is no such file"),
        (["my_kernels.py", "--estimate"], "--estimate"),
        (["--estimate", "nowhere.py"], "--estimate is for the suite"),
        (["kernels.txt"], "or a file of your own cases (.py, .cu)"),
    ],
)
def test_a_wrong_call_ends_with_two(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["bench", *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
