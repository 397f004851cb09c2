"""`firstlight explain`: an error line or a whole log -> cause, a command that proves it, ways out."""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import shutil
import sys
from typing import BinaryIO, cast

import click

from firstlight.diagnosis.explain import Explained, explain_given, explain_stream
from firstlight.diagnosis.signatures import signatures
from firstlight.errors import BadInput
from firstlight.opening import open_given
from firstlight.report.explain_text import explained_json, explained_text, signatures_json, signatures_text

LOG_ENDINGS = (".log", ".txt", ".out", ".err")
LOOKS_LIKE_PATH = re.compile(r"(?:~?/|\.\.?/)\S+")
COMPRESSED = ((b"\x1f\x8b", "gzip", "zcat"), (b"\xfd7zXZ", "xz", "xzcat"), (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"))
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
OPTIONS = ("--json", "--list", "--here", "--help")


@click.command(
    "explain",
    # An error text may hold words such as -lcuda: they are text here, not options of ours.
    context_settings={"ignore_unknown_options": True},
    epilog="Examples: firstlight explain build.log; make 2>&1 | firstlight explain -; "
    'firstlight explain "Error 803: system has unsupported display driver / cuda driver combination". '
    "Exit 0: recognised; 1: not recognised.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (schema firstlight.explain/1).")
@click.option("--list", "list_all", is_flag=True, help="List every signature we know, most basic first.")
@click.option("--here", is_flag=True, help="Look at this machine too, and say what of it shows here.")
@click.argument("text", nargs=-1, type=click.UNPROCESSED, metavar="[TEXT...|FILE|-]")
@click.pass_context
def command(ctx: click.Context, *, as_json: bool, list_all: bool, here: bool, text: tuple[str, ...]) -> None:
    """Explain error text: what caused it, a command that proves it, ways out.

    TEXT is the error itself; a single argument that names a file is read; - reads standard input.
    """
    if list_all:
        click.echo(signatures_json(signatures()) if as_json else signatures_text(signatures()), nl=False)
        return
    explained = _explained(ctx, text)
    context = _seen_here(explained) if here else ()
    width = shutil.get_terminal_size((88, 24)).columns
    told = (
        explained_json(explained, context=context)
        if as_json
        else explained_text(explained, width=width, context=context)
    )
    click.echo(told, nl=False)
    ctx.exit(0 if explained.explanations else 1)


def _seen_here(explained: Explained) -> tuple[str, ...]:
    """What this machine shows of it: the machine, then each finding that goes with an explanation."""
    from firstlight.diagnosis.finding import Question
    from firstlight.diagnosis.judge import judge
    from firstlight.diagnosis.rules import RULES
    from firstlight.facts.look import Look, look_at
    from firstlight.report.summary import machine_summary
    from firstlight.tables import load

    facts = look_at(Look())
    diagnosis = judge(Question(facts, load()), RULES)
    related = {code for each in explained.explanations for code in each.signature.related}
    seen = [finding for finding in diagnosis.findings if finding.code in related]
    sentences = [f"here: {finding.code}: {finding.saw[0]}" for finding in seen]
    if not sentences:
        sentences = [
            "here: nothing of it shows on this machine now"
            + (f"; its primary finding is {diagnosis.primary}" if diagnosis.primary else "")
        ]
    return (f"this machine: {machine_summary(facts)[0]}", *sentences)


def _explained(ctx: click.Context, text: tuple[str, ...]) -> Explained:
    if text == ("-",) or (not text and not sys.stdin.isatty()):
        return _explained_stream(sys.stdin.buffer, "standard input")
    if not text:
        ctx.fail("nothing to explain; accepted: an error text, the name of a log file, or - for standard input")
    for word in text:
        if near := difflib.get_close_matches(word, OPTIONS, n=1, cutoff=0.8):
            ctx.fail(f"{word} is not an option; did you mean {near[0]}")
    if len(text) == 1:
        explained = _file_or_text(text[0])
    elif all(os.path.exists(word) for word in text):
        raise BadInput(f"{len(text)} files were given, one is accepted. Join them: cat FILES | firstlight explain -")
    else:
        explained = explain_given(" ".join(text))
    if text[0].startswith("-") and " " not in text[0] and not explained.explanations:
        ctx.fail(f"{text[0]} is not an option; accepted: {', '.join(OPTIONS)}")
    return explained


def _file_or_text(given: str) -> Explained:
    if os.path.isdir(given):
        raise BadInput(f"{given} is a folder; accepted: a log file, an error text, or - for standard input.")
    if not os.path.exists(given):
        explained = explain_given(given)
        names_a_file = LOOKS_LIKE_PATH.fullmatch(given) or (
            given.endswith(LOG_ENDINGS) and not any(map(str.isspace, given))
        )
        if names_a_file and not explained.explanations:
            raise BadInput(f"{given} does not exist; accepted: a log file, an error text, or - for standard input.")
        return explained
    try:
        with open_given(given) as file:
            return _explained_stream(file, given)
    except OSError as error:
        raise BadInput(f"{given} cannot be read: {error.strerror}. Give a readable log file or the text.") from None


def _explained_stream(stream: BinaryIO, name: str) -> Explained:
    """What is known of a log; one in UTF-16 (Windows tools write it) is decoded, a compressed one is refused."""
    head = stream.peek(8) if isinstance(stream, io.BufferedReader) else b""
    for magic, kind, unpack in COMPRESSED:
        if head.startswith(magic):
            raise BadInput(f"{name} is {kind} data, not plain text. Unpack it: {unpack} FILE | firstlight explain -")
    if head.startswith(UTF_16):
        stream = cast("BinaryIO", codecs.EncodedFile(stream, "utf-8", "utf-16", errors="replace"))
    return explain_stream(stream)
