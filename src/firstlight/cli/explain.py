"""`firstlight explain`: an error line or a whole log -> cause, a command that proves it, ways out."""

from __future__ import annotations

import codecs
import difflib
import io
import os
import re
import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from firstlight.diagnosis.explain import Explained, explain_given, explain_stream
from firstlight.diagnosis.signatures import signatures
from firstlight.errors import BadInput
from firstlight.opening import open_given
from firstlight.report.explain_text import (
    NOT_LOOKED,
    Here,
    explained_json,
    explained_text,
)

if TYPE_CHECKING:
    from firstlight.diagnosis.finding import Diagnosis, Question
    from firstlight.facts.look import Look

LOG_ENDINGS = (".log", ".txt", ".out", ".err")
LOOKS_LIKE_PATH = re.compile(r"(?:~?/|\.\.?/)\S+")
COMPRESSED = ((b"\x1f\x8b", "gzip", "zcat"), (b"\xfd7zXZ", "xz", "xzcat"), (b"\x28\xb5\x2f\xfd", "zstd", "zstdcat"))
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_ACCEPTED = "accepted: an error text, the name of a log file, or - for standard input"
_ASK_HERE = "With --here it also says whether that is so on this machine, and what to do."
OPTIONS = ("--json", "--list", "--here", "--facts", "--help")


@click.command(
    "explain",
    # An error text may hold words such as -lcuda: they are text here, not options of ours.
    context_settings={"ignore_unknown_options": True},
    epilog="Examples: firstlight explain build.log; make 2>&1 | firstlight explain -; "
    'firstlight explain "Error 803: system has unsupported display driver / cuda driver combination"; '
    "firstlight explain --list vllm. "
    "Exit 0: recognised; 1: not recognised.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (schema firstlight.explain/2).")
@click.option(
    "--list", "list_all", is_flag=True, help="List what is known: the products; with a product's name its errors."
)
@click.option("--here", is_flag=True, help="Look at this machine too: whether the cause is found here, and what to do.")
@click.option(
    "--facts", "facts_file", metavar="PATH", default="", help="With --here: a saved machine instead of this one."
)
@click.argument("text", nargs=-1, type=click.UNPROCESSED, metavar="[TEXT...|FILE|-]")
@click.pass_context
def command(ctx: click.Context, /, *, text: tuple[str, ...], facts_file: str, **asked: bool) -> None:
    """Explain error text: what caused it, a command that proves it, ways out.

    TEXT is the error itself; a single argument that names a file is read; - reads standard input.
    """
    as_json = asked["as_json"]
    if asked["list_all"]:
        click.echo((_listed_json if as_json else _listed_text)(text), nl=False)
        return
    if facts_file and not asked["here"]:
        raise BadInput(f"--facts {facts_file} works only with --here; add --here, or leave it out.")
    explained = _explained(ctx, text)
    here = NOT_LOOKED
    if asked["here"]:
        explained, here = _seen_here(explained, facts_file)
    width = shutil.get_terminal_size((88, 24)).columns
    click.echo(explained_json(explained, here) if as_json else explained_text(explained, here, width=width), nl=False)
    if not asked["here"] and not as_json and any(each.signature.related for each in explained.explanations):
        click.echo(_ASK_HERE)
    ctx.exit(0 if explained.explanations else 1)


def _listed_text(names: tuple[str, ...]) -> str:
    """The products, or the errors of the one that is named."""
    from firstlight.report.explain_list import chosen, errors_text, products_text

    if names:
        return errors_text(chosen(signatures(), "-".join(names)))
    return products_text(signatures(), width=shutil.get_terminal_size((88, 24)).columns)


def _listed_json(names: tuple[str, ...]) -> str:
    """The errors, all or those of the product that is named, with the counts of the products."""
    from firstlight.report.explain_list import ALL, chosen, errors_json

    return errors_json(chosen(signatures(), "-".join(names) or ALL))


def _seen_here(explained: Explained, facts_file: str) -> tuple[Explained, Here]:
    """The ways out that fit the machine, and what it shows of the text, judged and answered as doctor does."""
    from firstlight.cli.looking import look_patiently
    from firstlight.diagnosis.explain_platform import for_platform, for_saved_machine
    from firstlight.diagnosis.finding import Question
    from firstlight.diagnosis.judge import judge
    from firstlight.diagnosis.rules import RULES
    from firstlight.facts.look import Look, Names
    from firstlight.tables import load
    from firstlight.ways.platform import platform_of

    look = Look(facts_file, names=Names.PSEUDONYMS if facts_file else Names.REAL)  # commands are pasted
    question = Question(look_patiently(look), load())
    diagnosis = judge(question, RULES)
    here = replace(_shown_there(explained, look, question, diagnosis), facts_file=facts_file)
    fitted = for_platform(explained, platform_of(question.facts))
    return for_saved_machine(fitted, facts_file) if facts_file else fitted, here


def _shown_there(explained: Explained, look: Look, question: Question, diagnosis: Diagnosis) -> Here:
    """The causes on the machine and the way out of the first one: doctor's first option where it is the primary."""
    from firstlight.diagnosis.explain_here import shown_here
    from firstlight.report.doctor_text import answers_text
    from firstlight.report.summary import machine_summary
    from firstlight.ways.platform import platform_of

    found = shown_here(explained, diagnosis)
    machine = f"this machine: {machine_summary(question.facts)[0]}"
    if not found:
        return Here((machine, *_not_here(explained, question, diagnosis)))
    sentences = (machine, *(f"it is so on this machine: {each.code}: {each.saw[0]}" for each in found))
    if found[0].code == diagnosis.primary:
        return _with_first_option(Here(sentences, found), look, question, diagnosis)
    return Here(sentences, found, answers_text(found[0].answers, platform_of(question.facts)))


def _not_here(explained: Explained, question: Question, diagnosis: Diagnosis) -> tuple[str, ...]:
    """That what a text says does not show on the machine, could not be looked at, or is nothing that is checked."""
    from firstlight.diagnosis.explain_here import not_looked_at
    from firstlight.diagnosis.rules import RULES

    rest = (f"doctor's primary finding on this machine is {diagnosis.primary}",) if diagnosis.primary else ()
    if not explained.explanations:
        return rest
    related = {code for each in explained.explanations for code in each.signature.related}
    rules = tuple(rule for rule in RULES if rule.code in related)
    unseen = not_looked_at(question.facts, rules)
    looked = sorted({rule.code for rule in rules} - {each.code for each in unseen})
    reasons = tuple(f"could not be looked at here: {each.code}: {each.why}" for each in unseen)
    if not rules:
        return ("whether it is so here is not known: no check of the machine belongs to this error", *rest)
    if reasons:
        return (*((f"no sign of it here now: {', '.join(looked)}",) if looked else ()), *reasons, *rest)
    return (f"not on this machine: no sign of it is here now (looked for {', '.join(looked)})", *rest)


def _with_first_option(here: Here, look: Look, question: Question, diagnosis: Diagnosis) -> Here:
    """The first option of doctor, with the commands that it shows."""
    from firstlight.cli.planning import Ranking, Wanted, plan_of
    from firstlight.plan.options import rank_options
    from firstlight.plan.request import Request
    from firstlight.report.layout import plain
    from firstlight.report.options_text import options_list

    wanted = Wanted(Request(), "1", (), (), question.tables)
    ranked = rank_options(question, diagnosis, wanted.request)
    steps = plan_of(look, Ranking(question, ranked), wanted).steps if ranked.options else ()
    return replace(here, way_out=plain(options_list(ranked, steps, most=1)), option=ranked.options[:1])


def _explained(ctx: click.Context, text: tuple[str, ...]) -> Explained:
    if text == ("-",) or (not text and not sys.stdin.isatty()):
        explained = _explained_stream(sys.stdin.buffer, "standard input")
        if not explained.size_bytes:
            ctx.fail(f"standard input is empty; {_ACCEPTED}")
        return explained
    if not "".join(text).strip():
        ctx.fail(f"nothing to explain; {_ACCEPTED}")
    for word in text:
        if near := difflib.get_close_matches(word, OPTIONS, n=1, cutoff=0.8):
            ctx.fail(f"{word} is not an option; did you mean {near[0]}?")
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
            raise BadInput(
                f"{given} {_why_not_seen(given)}; accepted: a log file, an error text, or - for standard input."
            )
        return explained
    try:
        with open_given(given) as file:
            explained = _explained_stream(file, given)
    except OSError as error:
        raise BadInput(f"{given} cannot be read: {error.strerror}. Give a readable log file or the text.") from None
    if not explained.size_bytes:
        raise BadInput(f"{given} is empty; accepted: a log file with the error in it, or the text itself.")
    return explained


def _why_not_seen(given: str) -> str:
    """Why there is no such file for us: it is not there, or a folder on the way to it may not be entered."""
    try:
        os.stat(given)
    except OSError as error:
        return "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
    return "does not exist"


def _explained_stream(stream: BinaryIO, name: str) -> Explained:
    """What is known of a log; one in UTF-16 (Windows tools write it) is decoded, a compressed one is refused."""
    head = stream.peek(8) if isinstance(stream, io.BufferedReader) else b""
    for magic, kind, unpack in COMPRESSED:
        if head.startswith(magic):
            raise BadInput(f"{name} is {kind} data, not plain text. Unpack it: {unpack} FILE | firstlight explain -")
    if head.startswith(UTF_16):
        stream = cast("BinaryIO", codecs.EncodedFile(stream, "utf-8", "utf-16", errors="replace"))
    return explain_stream(stream)
