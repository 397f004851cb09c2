"""`python -m firstlight.explain SCRIPT` beside plain `python SCRIPT`: what a program can see of itself is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ABOUT_ITSELF = """
import builtins, sys
names = sorted(name for name in globals() if name.startswith("__"))
print(names)
print([globals()[name] for name in names if name not in ("__annotations__", "__loader__", "__spec__", "__builtins__")])
print(type(__loader__), getattr(__loader__, "path", ""), getattr(__loader__, "name", ""))
print(__spec__ and (__spec__.name, __spec__.origin), __builtins__ is builtins, __annotations__)
print(sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals(), (lambda: 0).__code__.co_filename)
"""
TYPES = """
import dataclasses
size: int = 3
def half(of: int) -> float:
    return of / 2
@dataclasses.dataclass
class Shape:
    rows: int
    names: list[str]
print(__annotations__, half.__annotations__, [field.type for field in dataclasses.fields(Shape)])
"""
MOVED = "import os\nos.chdir('/')\nprint(sorted(os.listdir(os.path.dirname(__file__))))\n"
PROGRAMS = {
    "itself.py": ABOUT_ITSELF,
    "types_of.py": TYPES,
    "moved.py": MOVED,
    "code.py": "import sys\nsys.exit(int(sys.argv[1]))\n",
    "words.py": "raise SystemExit('a word for stderr')\n",
    "bad.py": "x = (\n",
    "imports_bad.py": "import bad\n",
    "raises.py": "try:\n    {}['lost']\nexcept KeyError as error:\n    raise ValueError(3) from error\n",
    "at_end.py": "import atexit\natexit.register(print, 'at the end')\n1 / 0\n",
    "killed.py": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "interrupted.py": "raise KeyboardInterrupt\n",
    "imported.py": "import __main__\nprint(__main__.__file__)\nfrom itself import names\n",
    "a_folder/__main__.py": ABOUT_ITSELF,
    "a_package/__init__.py": "",
    "a_package/__main__.py": ABOUT_ITSELF + "1 / 0\n",
    "empty_folder/note.txt": "",
}
CALLS = (
    ("itself.py", "--help", "-m"),
    ("./a_folder/../itself.py",),
    ("link.py",),
    ("{here}/itself.py", "x"),
    ("-m", "itself", "a", "b"),
    ("-m", "a_package"),
    ("a_folder", "x"),
    ("packed.zip", "x"),
    ("compiled.pyc",),
    ("types_of.py",),
    ("-m", "types_of"),
    ("moved.py",),
    ("code.py", "7"),
    ("words.py",),
    ("bad.py",),
    ("imports_bad.py",),
    ("-m", "bad"),
    ("raises.py",),
    ("-m", "raises"),
    ("at_end.py",),
    ("killed.py",),
    ("interrupted.py",),
    ("imported.py",),
    ("no_such.py",),
    ("-m", "no_such"),
    ("-m", "no_such.child"),
    ("empty_folder",),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("programs")
    for name, text in PROGRAMS.items():
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    (here / "elsewhere").mkdir()
    (here / "elsewhere" / "real.py").write_text(ABOUT_ITSELF)
    (here / "link.py").symlink_to("elsewhere/real.py")
    with zipfile.ZipFile(here / "packed.zip", "w") as packed:
        packed.writestr("__main__.py", ABOUT_ITSELF)
    compiled = "import py_compile; py_compile.compile('itself.py', 'compiled.pyc')"
    subprocess.run((sys.executable, "-c", compiled), cwd=here, check=True)
    return here


def _both_ends(here: Path, *words: str, option: tuple[str, ...] = ()) -> list[tuple[int, str, str]]:
    """How it ends under us and with plain Python: exit code, stdout, stderr; side by side to save time."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    both = [
        subprocess.Popen(
            (sys.executable, *option, *ours, *words),
            cwd=here, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for ours in (("-m", "firstlight.explain"), ())
    ]  # fmt: skip
    said = [each.communicate(timeout=60) for each in both]
    return [(each.returncode, out, err) for each, (out, err) in zip(both, said, strict=True)]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_a_program_sees_and_prints_what_it_does_with_plain_python(programs: Path, call: tuple[str, ...]) -> None:
    ours, plain = _both_ends(programs, *(word.format(here=programs) for word in call))
    assert ours == plain


def test_an_option_of_python_that_keeps_sys_path_safe_is_kept(programs: Path) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("-P is an option since Python 3.11")
    (programs / "path_of.py").write_text("import sys\nprint(sys.path)\n")
    ours, plain = _both_ends(programs, "path_of.py", option=("-P",))
    assert ours == plain
