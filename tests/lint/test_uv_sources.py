"""What lint says of uv's indexes is what the real uv does with a stand-in for PyTorch's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lint.linting import found
from tests.plan.planning import write_index, write_wheel

UV = Path(sys.executable).with_name("uv")
OLD, NEW = "https://download.pytorch.org/whl/cu130", "https://download.pytorch.org/whl/cu128"
H100_550 = "H100, driver 550"


def project(local: str, index: str, *, sources: tuple[str, ...] = ("torch",)) -> str:
    named = "".join(f'{each} = {{ index = "pytorch" }}\n' for each in sources)
    return (
        '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.10"\n'
        f'dependencies = [\n  "torch==2.9.0{local}",\n  "torchvision==0.24.0{local}",\n]\n'
        f"[tool.uv.sources]\n{named}"
        f'[[tool.uv.index]]\nname = "pytorch"\nurl = "{index}"\nexplicit = true\n'
    )


def test_the_answer_names_the_source_of_all_that_comes_from_that_index() -> None:
    (hit,) = found(project("", OLD), H100_550, file="pyproject.toml")
    assert (
        "torchvision==0.24.0+cu128 among the dependencies, the index of torch for torchvision too"
        in hit.answers[0].title
    )
    (hit,) = found(project("", OLD, sources=("torch", "torchvision")), H100_550, file="pyproject.toml")
    assert "too under" not in hit.answers[0].title


@pytest.mark.parametrize(("sources", "solves"), [(("torch",), False), (("torch", "torchvision"), True)])
def test_lint_and_uv_agree_about_what_an_explicit_index_is_for(
    sources: tuple[str, ...], solves: object, tmp_path: Path
) -> None:
    hits = found(project("+cu128", NEW, sources=sources), H100_550, file="pyproject.toml")
    index, pypi = tmp_path / "whl" / "cu128", tmp_path / "simple"
    there = ((name, version) for name, version in (("torch", "2.9.0"), ("torchvision", "0.24.0")))
    for name, version in there:
        write_index(index, (write_wheel(tmp_path / "w", name, f"{version}+cu128"),))
        write_index(pypi, (write_wheel(tmp_path / "w", name, version),))
    (tmp_path / "pyproject.toml").write_text(project("+cu128", index.as_uri(), sources=sources))
    words = [str(UV), "lock", "--no-config", "--default-index", pypi.as_uri(), "--python", sys.executable]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is solves, done.stderr
    assert (hits == ()) is solves
    if hits:
        assert hits[0].error in " ".join(done.stderr.split())
