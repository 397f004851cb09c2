"""The name and version of a project, wherever its tree states them: the wheel is looked for under that name."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from firstlight.build.asked_name import ask_name, name_not_stated
from firstlight.build.project import read_project
from firstlight.build.tools import tools_of_saved
from firstlight.facts.known import Known, Unknown
from tests.build.plans import PLACES, facts_of

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import CUDAExtension
VERSION = "1.4.0"
ext = CUDAExtension(name="kernels_cuda", sources=["a.cu"])
setup(name="my-kernels", version=VERSION, ext_modules=[ext])
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"setup.py": SETUP}, ("my-kernels", "1.4.0")),
        ({"setup.py": SETUP.replace("VERSION, ext", "made(), ext")}, ("my-kernels", "")),
        ({"setup.py": "import setuptools\nsetuptools.setup()\n",
          "setup.cfg": "[metadata]\nname = of-config\nversion = attr: x.VERSION\n"}, ("of-config", "")),
        ({"setup.py": "import setuptools\nsetuptools.setup()\n",
          "setup.cfg": "[metadata]\nname = of-config\nversion = 2.1 \n"}, ("of-config", "2.1")),
        ({"pyproject.toml": '[tool.poetry]\nname = "verse"\nversion = "0.3"\n'}, ("verse", "0.3")),
        ({"pyproject.toml": '[project]\nname = "first"\ndynamic = ["version"]\n', "setup.py": SETUP},
         ("first", "1.4.0")),
        ({"setup.py": "from setuptools import setup\nsetup(name=named())\n"}, ("tree", "")),
        ({"setup.py": "print 'of Python 2'\nsetup(name='old')\n"}, ("old", "")),
    ],
)  # fmt: skip
def test_the_name_and_version_of_a_tree(tmp_path: Path, files: dict[str, str], expected: tuple[str, str]) -> None:
    (tmp_path / "tree").mkdir()
    for name, text in files.items():
        (tmp_path / "tree" / name).write_text(text)
    project = read_project(str(tmp_path / "tree"))
    assert (project.name, project.version) == expected


def test_a_name_that_setup_py_makes_up_is_asked_of_it_and_one_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nprint('hello')\nsetup(name='-'.join(['a', 'b']))\n"
    )
    project = read_project(str(tmp_path))
    assert (project.name, project.name_stated) == (tmp_path.name, False)
    tools = replace(tools_of_saved(facts_of(PLACES[0], "13.0.48")), python=Known(sys.executable, "a test"))
    assert ask_name(tools, str(tmp_path)) == Known("a-b", seen_in="setup.py --name")
    (tmp_path / "setup.py").write_text("raise SystemExit('needs a GPU')\n")
    found = ask_name(tools, str(tmp_path))
    assert isinstance(found, Unknown)
    assert "needs a GPU" in name_not_stated(project, found).saw
