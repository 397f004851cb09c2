"""Secrets that are pasted with a log are in no answer: rows x kinds of secrets x where they stand."""

from __future__ import annotations

import io
import re
import string
import subprocess
import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.diagnosis.explain import explain_stream, explain_text
from firstlight.explain import known_cause
from firstlight.explain.saying import why_it_failed
from firstlight.explain.watching import Ended
from firstlight.report.explain_text import explained_json, explained_text
from tests.diagnosis.test_product_errors import ROWS

# what stands around the secret letters, as it is found in logs
KINDS = (
    "hf_{}", "sk-{}", "sk-proj-{}", "ghp_{}", "github_pat_{}", "glpat-{}", "nvapi-{}", "xoxb-{}", "npm_{}9",
    "AKIA{upper}",
    "aws_secret_access_key={}", "AWS_SECRET_ACCESS_KEY={}", "AccountKey={}", "https://user:{}@files.example/simple",
    "https://{}@files.example/simple", "postgresql://bob:{}@db.example:5432/x", "Authorization: Bearer {}",
    "Authorization: Basic {}", "Proxy-Authorization: Basic {}", "password={}", "--password {}", "HF_TOKEN={}",
    "WANDB_API_KEY={}", "X-Api-Key: {}", "curl -u bob:{} https://files.example/", "?X-Amz-Signature={}",
)  # fmt: skip
PLACES = ("{0} {1}", "{1} {0}", "{1}\n{0}", "{0}\n{1}", "{1} 'a' {0} 'b'", "\x1b[31m{0}\x1b[0m {1}")
# At least 32 letters, as real ones have: shorter ones cannot be told from words. One digit and one capital are in it.
letters = st.text(string.ascii_letters + string.digits, min_size=30, max_size=60).map(lambda text: f"a7{text}Q3")


def said_of(text: str) -> str:
    """Every answer that a text can get, without the guard that the command line has around its streams."""
    explained = explain_text(text)
    ended = Ended(1, text.encode(), is_cut=False)
    return "\n".join(
        (
            explained_text(explained),
            explained_json(explained),
            known_cause(text),
            why_it_failed(ended, 88),
            repr(explained),
        )
    )


def shown_of(secret: str, said: str, size: int = 10) -> list[str]:
    """The parts of a secret that are said."""
    return [secret[at : at + size] for at in range(len(secret) - size + 1) if secret[at : at + size] in said]


@settings(max_examples=120, deadline=None)
@given(row=st.sampled_from(ROWS), kind=st.sampled_from(KINDS), place=st.sampled_from(PLACES), secret=letters)
def test_a_secret_beside_an_error_is_in_no_answer(row: dict[str, str], kind: str, place: str, secret: str) -> None:
    secret = secret.upper() if "{upper}" in kind else secret
    text = place.format(kind.format(secret, upper=secret), row["text"])
    said = said_of(text)
    # A wrapper is no answer where its last line, longer by the secret, reads like an error of its own.
    assert row["code"] in said or "\n" not in text.strip() or row.get("wraps")
    assert shown_of(secret, said) == []


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(KINDS), secret=letters, wide=st.integers(0, 300))
def test_a_secret_is_not_in_the_line_that_is_shown_where_nothing_is_known(kind: str, secret: str, wide: int) -> None:
    secret = secret.upper() if "{upper}" in kind else secret
    text = "x" * wide + " WidgetError: " + kind.format(secret, upper=secret) + " was refused"
    assert not explain_text(text).explanations
    assert shown_of(secret, said_of(text)) == []


def test_a_secret_that_a_row_captures_is_masked() -> None:
    """The longest word of each text is given a login, so that paths, addresses and packages in slots carry one."""
    secret = "a7Zk1Tr0ub4dorAndThreeMoreQ3"
    told = []
    for row in ROWS:
        longest = max(re.findall(r"[\w./:@-]{6,}", row["text"]), key=len, default="")
        text = row["text"].replace(longest, f"https://user:{secret}@files.example/x", 1)
        told += [row["code"]] if shown_of(secret, repr(explain_text(text))) else []
    assert told == []


def test_a_line_that_is_cut_for_the_screen_does_not_show_the_rest_of_a_token() -> None:
    token = "hf_" + "aB3" * 20
    text = f"GET /models?x={token} " + "y" * 40 + " libcudss.so.0: cannot open shared object file: No such file"
    [found] = explain_stream(io.BytesIO(text.encode())).explanations
    assert "aB3aB3" not in repr(found)


def test_the_pytest_plug_in_and_the_hook_of_scripts_mask_what_they_say(tmp_path: Path) -> None:
    secret = "hf_" + "aB3" * 12
    script = tmp_path / "test_fails.py"
    script.write_text(
        "def test_it():\n"
        "    key = ''.join(('hf_', 'aB3' * 12))\n"
        "    raise RuntimeError(f'{key} No CUDA GPUs are available')\n"
        "if __name__ == '__main__': test_it()\n"
    )
    for command in (("-m", "pytest", "-p", "firstlight.explain"), ("-m", "firstlight.explain")):
        done = subprocess.run(
            [sys.executable, *command, script.name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        theirs, _, ours = (done.stdout + done.stderr).partition("no-cuda-device-100: ")
        assert secret in theirs  # what the program prints is its own
        assert "No CUDA GPUs are available" in ours
        assert secret not in ours.partition("short test summary")[0]  # pytest's own words again
