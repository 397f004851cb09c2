"""`firstlight explain` as it is typed: text, files, pipes, JSON, exit codes."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from firstlight.diagnosis.explain import explain_text
from firstlight.diagnosis.signatures import signatures
from firstlight.report.explain_text import Here, explained_json, explained_text, printable
from tests.schemas import fits

SCHEMA = Path(__file__).parents[2] / "src" / "firstlight" / "schemas" / "explain-2.json"
LOGS = Path(__file__).parent / "logs" / "known"
TOO_OLD = "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver"


def explain(*args: str, stdin: bytes | None = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", "explain", *args],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "88"},
        timeout=60,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def valid(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    fits(document, json.loads(SCHEMA.read_text()))
    return document


def test_an_error_text_is_explained_with_cause_proof_and_ways_out() -> None:
    done = explain(TOO_OLD)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("driver-too-old: The driver is too old for this torch\n  line 1: The NVIDIA driver")
    for part in (
        "offers CUDA 12.4",
        "prove it:",
        "cat /sys/module/nvidia/version",
        "ways out:",
        "1. Update the driver",
    ):
        assert part in done.stdout
    assert "source: " in done.stdout


@pytest.mark.parametrize("log", sorted(LOGS.glob("*.log")), ids=lambda log: log.stem)
def test_one_error_fits_on_one_screen_and_no_prose_is_wider_than_asked(log: Path) -> None:
    text = explained_text(explain_text(log.read_text(errors="replace")), width=88)
    for block in text.split("\n\n"):
        assert len(block.splitlines()) <= 30
    prose = [row for row in text.splitlines() if not row.startswith("       ")]
    assert all(len(row) <= 88 or " " not in row.strip() for row in prose)


def test_words_need_no_quotes_and_may_look_like_options() -> None:
    done = explain("/usr/bin/ld:", "cannot", "find", "-lcuda")
    assert done.returncode == 0
    assert done.stdout.startswith("libcuda-not-found: ")


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "build.log").write_text("one\n" + TOO_OLD + "\n")
    done = explain("build.log", cwd=tmp_path)
    assert done.returncode == 0
    assert "  line 2: The NVIDIA driver" in done.stdout


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_decoded(tmp_path: Path, encoding: str) -> None:
    mark = "" if encoding == "utf-16" else "\ufeff"
    (tmp_path / "build.log").write_bytes((mark + "one\r\n" * 70_000 + TOO_OLD + "\r\n").encode(encoding))
    done = explain("build.log", cwd=tmp_path)
    assert done.returncode == 0
    assert "  line 70001: The NVIDIA driver" in done.stdout


def test_text_that_begins_like_an_option_is_still_text() -> None:
    assert explain("-lcuda:", "cannot find -lcuda").stdout.startswith("libcuda-not-found: ")


def test_an_error_code_alone_is_looked_up() -> None:
    done = explain("error", "46")
    assert done.returncode == 0
    assert done.stdout.startswith("device-busy-46: ")
    assert explain("-", stdin=b"error 46\n").returncode == 1


@pytest.mark.parametrize("args", [("-",), ()])
def test_standard_input_is_read_with_a_dash_and_where_nothing_is_given(args: tuple[str, ...]) -> None:
    done = explain(*args, stdin=b"\x1b[31mlibcudss.so.0: cannot open shared object file\x1b[0m\r\n")
    assert done.returncode == 0
    assert done.stdout.startswith("cudss-missing: ")


@pytest.mark.parametrize("library", ["libcudss.so.0", "libcudss.so.1", "libnvpl_lapack_lp64_gomp.so.0"])
def test_a_library_that_libs_can_fix_names_that_verb_first(library: str) -> None:
    done = explain(f"ImportError: {library}: cannot open shared object file: No such file or directory", "--json")
    [explanation] = json.loads(done.stdout)["explanations"]
    assert explanation["ways_out"][0]["run"] == ["firstlight libs --fix"]


def test_nothing_given_at_a_terminal_is_a_usage_error() -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "firstlight", "explain"], stdin=theirs, capture_output=True, timeout=60, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert b"nothing to explain; accepted: an error text, the name of a log file, or -" in done.stderr


def test_unknown_text_says_so_and_what_to_do_next() -> None:
    done = explain(stdin=b"start\nValueError: shapes differ\nend\n")
    assert done.returncode == 1
    assert done.stdout.startswith("Not recognised: no signature we know is in these 3 lines.\n")
    assert "line 2: ValueError: shapes differ" in done.stdout
    assert "firstlight facts --record DIR" in done.stdout


def test_binary_garbage_is_not_recognised() -> None:
    assert explain("-", stdin=bytes(range(256)) * 1000).returncode == 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("folder",), "folder is a folder; accepted: a log file"),
        (("missing.log",), "missing.log does not exist; accepted: a log file"),
        (("a.log", "a.log"), "2 files were given, one is accepted"),
        (("--jsno", "text"), "--jsno is not an option; did you mean --json? See "),
        (("",), "nothing to explain; accepted: an error text"),
        (("-",), "standard input is empty; accepted: an error text"),
        (("--nope",), "--nope is not an option; accepted: --json"),
        (("--nope", "text"), "--nope is not an option; accepted: --json"),
        (("/nonexistent/file",), "/nonexistent/file does not exist; accepted: a log file"),
        (("./x",), "./x does not exist"),
        (("~/x",), "~/x does not exist"),
        (("a.log/x.log",), "a.log/x.log cannot be read: Not a directory; accepted"),
        (("empty.log",), "empty.log is empty; accepted: a log file with the error in it"),
        (("a.log.gz",), "a.log.gz is gzip data, not plain text. Unpack it: zcat FILE | firstlight explain -"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(TOO_OLD.encode()))
    done = explain(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_an_unreadable_file_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "a.log").chmod(0)
    assert explain("a.log", cwd=tmp_path).returncode == 2


def test_a_file_that_fails_while_it_is_read_is_one_line_and_exit_2() -> None:
    done = explain("/proc/self/mem")  # opens, and reading its first page fails
    assert (done.returncode, done.stdout) == (2, "")
    assert "/proc/self/mem cannot be read: " in done.stderr


def test_json_follows_the_shipped_schema() -> None:
    document = valid(explain("--json", TOO_OLD).stdout)
    assert next(iter(document)) == "schema"
    [found] = document["explanations"]
    assert (found["code"], found["count"], found["sightings"][0]["values"]) == (
        "driver-too-old",
        1,
        {"driver_cuda": "12.4"},
    )


def test_json_of_unknown_text_follows_the_schema_and_exits_1() -> None:
    done = explain("--json", "KeyError: 'x'")
    assert done.returncode == 1
    document = valid(done.stdout)
    assert (document["recognised"], document["explanations"]) == (False, [])
    assert document["last_error"] == [
        {"line": 1, "text": "KeyError: 'x'", "looks_like": "a fault in the program or its data"}
    ]


def test_the_list_has_every_product_with_its_count() -> None:
    done = explain("--list")
    assert (done.returncode, done.stderr) == (0, "")
    counts = Counter(signature.product for signature in signatures())
    general = counts.pop("")
    assert done.stdout.startswith(f"{len(signatures())} errors are known: {general} of CUDA, torch and the system")
    listed = {
        name: int(count)
        for count, name in re.findall(r"(?<!\S)(\d+) ([a-z0-9][a-z0-9.+-]*)(?=  |$)", done.stdout, re.M)
    }
    assert listed == counts


@pytest.mark.parametrize(
    ("asked", "product"), [(("vllm",), "vllm"), (("Flash", "Attention"), "flash-attention"), (("general",), "")]
)
def test_the_list_of_a_product_has_its_errors_as_text_and_as_json(asked: tuple[str, ...], product: str) -> None:
    mine = [signature.code for signature in signatures() if signature.product == product]
    rows = explain("--list", *asked).stdout.splitlines()
    assert rows[0] == f"{product or 'general'}: {len(mine)} errors, the most basic first"
    assert [row.split()[0] for row in rows[1:] if not row.startswith("   ")] == mine  # a long title goes on below
    document = valid(explain("--list", *asked, "--json").stdout)
    assert document["products"] == [{"product": product or "general", "count": len(mine)}]
    assert [each["code"] for each in document["signatures"]] == mine


def test_the_list_of_all_has_every_signature() -> None:
    document = valid(explain("--list", "--json").stdout)
    assert [each["code"] for each in document["signatures"]] == [signature.code for signature in signatures()]
    assert sum(each["count"] for each in document["products"]) == len(signatures())
    rows = explain("--list", "all").stdout.splitlines()
    assert sum(row.startswith("  ") and not row.startswith("   ") for row in rows) == len(signatures())


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("vlm", "Did you mean vllm?"),
        ("torch", "Did you mean torchao or pytorch?"),
        ("weather", "that `firstlight explain --list` prints.\n"),
    ],
)
def test_a_product_that_there_is_not_names_the_nearest(asked: str, says: str) -> None:
    done = explain("--list", asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"no product is called '{asked}'" in done.stderr
    assert says in done.stderr


def test_sentences_about_the_machine_at_hand_have_a_place_in_text_and_json() -> None:
    found = explain_text(TOO_OLD)
    context = ("This machine has driver 550.54.14, which offers CUDA 12.4.",)
    assert context[0] in explained_text(found, Here(context))
    assert valid(explained_json(found, Here(context)))["context"] == list(context)


def test_a_log_cannot_repaint_the_terminal() -> None:
    assert printable("a\x1b[2Jb\x07\u202ec\ttext") == "a\\x1b[2Jb\\x07\\u202ec\\ttext"
    done = explain(stdin=b"\x9b31m\x08\x07 libcudss.so.0: cannot open shared object file \xe2\x80\xae\n")
    assert all(character.isprintable() or character == "\n" for character in done.stdout)


def test_a_terminal_that_knows_only_ascii_still_gets_an_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "firstlight", "explain", "libcudss.so.0: cannot open shared object file caf\u00e9"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert b"object file caf" in done.stdout


def test_the_example_in_the_documentation_is_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    done = explain(f"RuntimeError: {TOO_OLD}")
    assert "".join(f"    {row}".rstrip() + "\n" for row in done.stdout.splitlines()) in page
    done = explain("ValueError: operands could not be broadcast together")
    assert "".join(f"    {row}".rstrip() + "\n" for row in done.stdout.splitlines()) in page


def test_one_line_is_one_line() -> None:
    assert explain(f"{TOO_OLD.strip()} libcudart.so.12: cannot open shared object file").stdout.startswith(
        "2 signatures in 1 line, the most basic first"
    )
