"""The name and version of a project, wherever its tree states them: the wheel is looked for under that name."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight.build.project import read_project

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
