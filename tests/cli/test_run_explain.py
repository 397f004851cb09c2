"""`firstlight run --explain`, the plug-in of pytest and the hook for scripts, in real processes."""

from __future__ import annotations

import hashlib
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUN = (sys.executable, "-m", "firstlight", "run", "--explain", "--")
PLAIN = {**os.environ, "FIRSTLIGHT_COMPAT": "off"}
MISSING = "ImportError: libcudss.so.0: cannot open shared object file: No such file or directory"


def _run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*RUN, *words), capture_output=True, text=True, timeout=60, env=PLAIN, check=False)


def test_a_failure_is_explained_under_its_own_output_with_its_own_code() -> None:
    done = _run("sh", "-c", f"echo out; echo '{MISSING}' >&2; exit 3")
    assert done.returncode == 3
    assert done.stdout == "out\n"
    assert done.stderr.startswith(f"{MISSING}\n\ncudss-missing: ")


def test_what_ends_well_is_left_as_it_is() -> None:
    done = _run("sh", "-c", f"echo '{MISSING}'")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{MISSING}\n", "")


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("exit 4", 4, "firstlight: exit code 4, and it printed nothing\n"),
        ("echo no; exit 1", 1, "firstlight: exit code 1; no error that is known is in 1 line of output\n"),
        (
            "echo 'KeyError: b'; exit 1",
            1,
            "firstlight: exit code 1; no error that is known is in 1 line of output\nThe most telling line:\n"
            "  line 1: KeyError: b\nIt reads like a fault in the program or its data.\n",
        ),
        ("kill -9 $$", -9, "firstlight: signal 9, and it printed nothing\n"),
        ("kill -TERM $$", -15, ""),  # somebody wanted it to end
    ],
)
def test_where_nothing_is_known_that_and_the_line_that_tells_most_are_said_and_it_ends_as_the_command_did(
    script: str, code: int, said: str
) -> None:
    done = _run("sh", "-c", script)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_program_that_is_not_there_is_127() -> None:
    done = _run("no-such-program")
    assert done.returncode == 127
    assert done.stderr.count("\n") == 1


def test_ten_megabytes_come_through_whole_and_two_outputs_that_are_one_file_keep_their_order(tmp_path: Path) -> None:
    script = (
        "import sys, os\nfor n in range(200000):\n os.write(1 + n % 2, b'line %06d and some words to fill it\\n' % n)"
    )
    file = tmp_path / "out"
    with file.open("wb") as both:
        subprocess.run(
            (*RUN, sys.executable, "-c", script), stdout=both, stderr=both, timeout=60, env=PLAIN, check=True
        )
    expected = b"".join(b"line %06d and some words to fill it\n" % n for n in range(200000))
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(expected).digest()


def test_a_grandchild_that_keeps_the_pipe_is_not_waited_for() -> None:
    started = time.monotonic()
    done = _run("sh", "-c", "sleep 30 & echo done; exit 5")
    assert (done.returncode, done.stdout) == (5, "done\n")
    assert time.monotonic() - started < 20


def test_a_reader_that_goes_away_ends_the_command() -> None:
    shell = f"{' '.join(RUN)} yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(("bash", "-c", shell), capture_output=True, text=True, timeout=60, env=PLAIN, check=True)
    assert done.stdout == "y\n141\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_signal_to_us_alone_reaches_the_command(number: signal.Signals) -> None:
    script = (
        f"import signal, sys, time\nsignal.signal({int(number)}, lambda *_: sys.exit(7))\nprint('on', flush=True)\n"
    )
    script += "time.sleep(30)"
    with subprocess.Popen((*RUN, sys.executable, "-c", script), stdout=subprocess.PIPE, env=PLAIN) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        process.send_signal(number)
        assert process.wait(timeout=20) == 7


def test_a_terminal_stays_a_terminal_of_the_same_size_and_colours_come_through() -> None:
    child, terminal = pty.fork()
    if child == 0:
        script = "test -t 1 && test -t 2 && stty size <&1; printf '\\033[31mred\\033[0m\\n'; exit 2"
        os.execve(RUN[0], [*RUN, "sh", "-c", f"stty rows 33 cols 101; {script}"], PLAIN)
    seen = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert b"\x1b[31mred\x1b[0m\r\n" in seen
    assert seen.split()[0].isdigit(), "stty answered: the output is a terminal"


def test_the_keyboard_ends_the_command_and_us() -> None:
    script = "import time\nprint('on', flush=True)\ntime.sleep(30)"
    process = subprocess.Popen(
        (*RUN, sys.executable, "-c", script), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=PLAIN,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode in (-signal.SIGINT, 130)
    assert b"KeyboardInterrupt" in err


SCRIPT = """import sys
def load():
    raise ImportError("libcudss.so.0: cannot open shared object file: No such file or directory")
print(sys.argv, __name__, __file__)
if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
load()
"""


def test_a_script_is_explained_under_its_traceback_and_is_otherwise_as_with_python(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    plain = subprocess.run((sys.executable, str(script)), capture_output=True, text=True, check=False)
    ours = subprocess.run(
        (sys.executable, "-m", "firstlight.explain", str(script)), capture_output=True, text=True, check=False
    )
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ours.stderr.startswith(plain.stderr)
    assert "cudss-missing: " in ours.stderr.removeprefix(plain.stderr)


def test_a_script_keeps_its_exit_code_and_a_module_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    explain = (sys.executable, "-m", "firstlight.explain")
    assert subprocess.run((*explain, "job.py", "9"), cwd=tmp_path, capture_output=True, check=False).returncode == 9
    done = subprocess.run((*explain, "-m", "job"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cudss-missing: " in done.stderr
    assert subprocess.run(explain, capture_output=True, check=False).returncode == 2
    assert subprocess.run((*explain, "no.py"), cwd=tmp_path, capture_output=True, check=False).returncode == 2


def test_pytest_shows_the_cause_under_a_failure_and_counts_as_before(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_known():\n    raise ImportError('libcudss.so.0: cannot open shared object file: No such file')\n"
        "def test_other():\n    assert 1 == 2\ndef test_good():\n    pass\n"
    )
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "firstlight.explain", "test_it.py")
    done = subprocess.run((sys.executable, *words), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout
    assert done.stdout.count("explained by firstlight") == 1


NOT_EXPLAINED = """import pytest
TEXT = "no kernel image is available for execution on the device"
def test_that_does_not_raise():
    with pytest.raises(RuntimeError, match="no kernel image is available for execution on the device"):
        pass
def test_that_raises_another():
    with pytest.raises(RuntimeError, match="no kernel image is available for execution on the device"):
        raise RuntimeError("frob")
def test_that_looks_for_it():
    assert "no kernel image is available for execution on the device" in "frob"
def test_that_has_it_beside_it():
    words = "no kernel image is available for execution on the device"
    assert not words.strip(), "it has words"
"""
EXPLAINED = """import pytest
def test_chained():
    try:
        raise ImportError('libcudss.so.0: cannot open shared object file: No such file')
    except ImportError as error:
        raise RuntimeError('frob') from error
def test_assertion():
    raise AssertionError('Torch not compiled with CUDA enabled')
"""
NOT_IMPORTED = "import ctypes\nctypes.CDLL('libcudss.so.0')\n"
MISSING_MODULE = "import flash_attn\n"


def _pytest(folder: Path, *words: str) -> str:
    call = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "firstlight.explain", *words)
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_pytest_explains_what_an_exception_says_and_not_the_source_of_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_not.py").write_text(NOT_EXPLAINED)
    (tmp_path / "test_so.py").write_text(EXPLAINED)
    out = _pytest(tmp_path)
    assert "6 failed" in out
    assert out.count("explained by firstlight") == 2
    assert "cudss-missing: " in out
    assert "cpu-only-torch: " in out
    assert _pytest(tmp_path, "--tb=native").count("explained by firstlight") == 2


def test_pytest_explains_a_file_of_tests_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "test_library.py").write_text(NOT_IMPORTED)
    (tmp_path / "test_module.py").write_text(MISSING_MODULE)
    out = _pytest(tmp_path)
    assert "2 errors" in out
    assert out.count("explained by firstlight") == 2
    assert "cudss-missing: " in out


def test_an_option_that_is_misspelt_is_refused_with_those_there_are() -> None:
    words = (sys.executable, "-m", "firstlight", "run", "--explian", "--", "true")
    done = subprocess.run(words, capture_output=True, text=True, env=PLAIN, check=False)
    assert done.returncode == 2
    assert "accepted: --why, --explain" in done.stderr
