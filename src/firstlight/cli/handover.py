"""`firstlight handover`: one page that goes with a machine, made from what there is of it."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput, CouldNotAct
from firstlight.frozen import dataclass

if TYPE_CHECKING:
    from firstlight.apply.journal import Record
    from firstlight.bench.results import RunResult
    from firstlight.facts.collect import Facts
    from firstlight.facts.pseudonyms import Pseudonyms
    from firstlight.plan.plan import Plan
    from firstlight.report.handover import Handover, Missing, Proof
    from firstlight.report.handover_match import Named
    from firstlight.report.handover_parts import Given, Looked

_EPILOG = "Example: firstlight handover --bench before.json --bench after.json --out handover.html"
_MOST = 64 << 20
_HERE = {
    "journal": "firstlight plan\nfirstlight apply",
    "verify": "firstlight verify\nfirstlight handover",
    "bench": "firstlight bench\nfirstlight handover",
}
_THERE = {
    "journal": "firstlight handover --facts FACTS --journal journal.jsonl",
    "verify": "firstlight verify --json > verify.json\nfirstlight handover --facts FACTS --verify verify.json",
    "bench": "firstlight bench --out bench.json\nfirstlight handover --facts FACTS --bench bench.json",
}
_ANOTHER_JOURNAL = "Give a journal.jsonl as `firstlight apply` wrote it, or leave --journal out."
_PAGE = "handover.html"
_FILES = {"facts": "facts_file", "before": "before", "journal": "journal", "verify": "verify"}
_KEPT = "what was kept on this machine"
_PARTS = {"journal": "journal", "verify": "proof", "bench": "measurement"}
_NAMES = {"journal": "what was done", "verify": "what is proved", "bench": "how fast it is"}


@click.command(
    "handover", epilog=_EPILOG, short_help="one page that goes with a machine, made from what there is of it"
)
@click.option("--facts", "facts_file", default="", metavar="FILE",
              help="Facts of another machine; nothing of this one is added. Default: look at this one.")  # fmt: skip
@click.option("--before", default="", metavar="FILE",
              help="Facts from before the work: what was wrong then, and what changed.")  # fmt: skip
@click.option("--journal", default="", metavar="FILE", help="What apply did; default: this machine's journal.")
@click.option("--verify", default="", metavar="FILE",
              help="What verify --json printed; default: the last whole proof on this machine.")  # fmt: skip
@click.option("--bench", "benches", multiple=True, metavar="FILE",
              help="A run of bench; default: the last whole one here. May be repeated, oldest first.")  # fmt: skip
@click.option("--rate", type=float, default=None, metavar="MONEY",
              help="What an hour of the machine costs, e.g. 2.69: the page says what the steps cost.")  # fmt: skip
@click.option("--out", default=_PAGE, show_default=True, metavar="FILE", help="Where to write it. -: stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print what the page says (schema firstlight.handover/1).")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Write one page about a machine: what it is, what was wrong and done, what is proved, how fast it is.

    A part that is not there is named on the page, with the command that makes it. The page is one file: it needs no
    network and no script, prints well, and has pseudonyms in place of names. Exit code 0: written; 1: written, and it
    says that the machine is not ready; 2: a file cannot be read or written, or is of another machine.
    """
    from firstlight.bench.saving import PAGE, save, writable
    from firstlight.report.handover import Colour, handover_document

    out = options["out"]
    if out == "-" and options["as_json"]:
        raise BadInput("--json and --out -: both print to stdout; name a file with --out.")
    if out != "-":
        writable(out, PAGE)
    handed = _handed(options)
    if out == "-":
        click.echo(handed.page, nl=False)
    else:
        save(out, handed.page)
        if options["as_json"]:
            click.echo(json.dumps(handover_document(handed.handover, file=out), indent=1))
        else:
            click.echo(_told(handed, out), nl=False)
    ctx.exit(1 if handed.handover.tone is Colour.BAD else 0)


@dataclass(frozen=True, slots=True)
class _Handed:
    handover: Handover
    page: str


def _handed(options: dict[str, Any]) -> _Handed:
    from firstlight.facts.document import to_text
    from firstlight.facts.pseudonyms import rename_all
    from firstlight.report.handover import handover_document
    from firstlight.report.handover_parts import handover_of
    from firstlight.report.html.bench_page import without_samples
    from firstlight.report.html.handover_page import handover_page
    from firstlight.tables import load

    tables = load()
    given, names, documents = _given(options)
    handover = rename_all(handover_of(given, tables), names.apply)
    from firstlight.bench.results import to_json

    runs = [*map(without_samples, given.runs[:-1]), *given.runs[-1:]]
    name = names.apply(_page_name(options["out"]))
    held = [handover_document(handover, file=name), json.loads(to_text(given.now.facts)), *documents,
            *map(to_json, runs)]  # fmt: skip
    return _Handed(handover, handover_page(handover, given.runs, tables, held, file=name))


def _given(options: dict[str, Any]) -> tuple[Given, Pseudonyms, list[dict[str, Any]]]:
    """What there is, whose names are replaced, and the documents that go along."""
    from firstlight.cli.looking import look_patiently
    from firstlight.cli.planning import price
    from firstlight.facts.document import pseudonyms_of, renamed
    from firstlight.facts.known import Known
    from firstlight.facts.look import Look, Names
    from firstlight.machine.live import LiveMachine
    from firstlight.report.handover_parts import Given

    elsewhere = options["facts_file"]
    rate = price(options["rate"])
    seen = look_patiently(Look(elsewhere) if elsewhere else Look(names=Names.REAL))
    names = pseudonyms_of(seen, LiveMachine().host)
    facts = seen if elsewhere else renamed(seen, LiveMachine().host)
    before = tuple(_before(path, facts) for path in (options["before"],) if path)
    missing: list[Missing] = []
    journal = _journal(options, missing)
    proofs, documents = _proof(options, facts, missing)
    runs = _runs(options, facts, missing)
    now = _looked(facts)
    way_out = _way_out(now)
    hour = rate.value if isinstance(rate, Known) else 0.0
    return Given(now, way_out, before, journal, proofs, runs, tuple(missing), _again(options), hour), names, documents


def _again(options: dict[str, Any]) -> str:
    """The command that makes the page again: where the files lie is nobody's business, what they are called is."""
    given = [(f"--{name}", [options[key]]) for name, key in _FILES.items() if options[key]]
    given += [("--bench", list(options["benches"]))]
    words = [word for option, paths in given for path in paths for word in (option, os.path.basename(path))]
    words += ["--rate", f"{options['rate']:g}"] if options["rate"] else []
    words += ["--out", name] if (name := _page_name(options["out"])) != _PAGE else []
    return shlex.join(("firstlight", "handover", *words))


def _page_name(out: str) -> str:
    return _PAGE if out == "-" else os.path.basename(out)


def _before(path: str, facts: Facts) -> Looked:
    from firstlight.facts.document import read_machine_or_facts
    from firstlight.report.handover_match import other_before

    before = read_machine_or_facts(path)
    if why := other_before(facts, before):
        raise BadInput(
            f"{path} comes from another machine: {why}. Give facts of the same machine, or leave --before out."
        )
    return _looked(before)


def _looked(facts: Facts) -> Looked:
    from firstlight.diagnosis.finding import Goal, Question
    from firstlight.diagnosis.judge import judge
    from firstlight.diagnosis.rules import RULES
    from firstlight.report.handover_parts import Looked
    from firstlight.tables import load

    return Looked(facts, judge(Question(facts, load(), Goal.INFER), RULES))


def _way_out(now: Looked) -> tuple[Plan, ...]:
    """The plan of the first option, by the facts alone: files here have real names."""
    from firstlight.diagnosis.finding import Goal, Question
    from firstlight.plan.options import rank_options
    from firstlight.plan.plan import plan_for
    from firstlight.plan.request import Request
    from firstlight.tables import load
    from firstlight.ways.extras import Extras

    if not now.diagnosis.primary:
        return ()
    question = Question(now.facts, load(), Goal.INFER)
    options = rank_options(question, now.diagnosis, Request(())).options
    return tuple(plan_for(question, option, extras=Extras()) for option in options[:1])


def _lacks(part: str, why: str) -> Missing:
    from firstlight.report.handover import Missing

    return Missing(_NAMES[part], why, _HERE[part])


def _not_given(part: str) -> Missing:
    from firstlight.report.handover import Missing

    return Missing(_NAMES[part], f"no {_PARTS[part]} was given for this page (--{part})", _THERE[part])


def _journal(options: dict[str, Any], missing: list[Missing]) -> tuple[Record, ...]:
    from firstlight.apply.journal import parse, read_journal
    from firstlight.cli.acting import journal_path
    from firstlight.machine.live import LiveMachine

    if path := options["journal"]:
        records = tuple(parse(_read(path), path, advice=_ANOTHER_JOURNAL)[0])
        if not records:
            raise BadInput(f"{path}: empty; accepted: a journal.jsonl that `firstlight apply` wrote")
        return records
    if options["facts_file"]:
        missing.append(_not_given("journal"))
        return ()
    try:
        records = read_journal(journal_path(LiveMachine()))
    except (BadInput, CouldNotAct) as error:
        missing.append(_lacks("journal", f"this machine's journal could not be read ({error})"))
        return ()
    if not records:
        missing.append(_lacks("journal", "nothing was applied here with `firstlight apply`"))
    return records


def _proof(
    options: dict[str, Any], facts: Facts, missing: list[Missing]
) -> tuple[tuple[Proof, ...], list[dict[str, Any]]]:
    from firstlight.cli.kept import kept
    from firstlight.report.handover_match import Named
    from firstlight.report.verify_reading import proof_of

    path = options["verify"]
    if not path and options["facts_file"]:
        missing.append(_not_given("verify"))
        return (), []
    text = _read(path).decode("utf-8", errors="replace") if path else kept("verify")
    if not text:
        if path:
            raise BadInput(f"{path}: empty; accepted: what `firstlight verify --json` printed")
        missing.append(_lacks("verify", "no whole proof was made on this machine"))
        return (), []
    try:
        proof, document = proof_of(text, path or _KEPT)
    except BadInput as error:
        if path:
            raise
        missing.append(_lacks("verify", str(error)))  # damaged, or of another version
        return (), []
    if path:
        _require_same_machine(path, facts, Named(machine=proof.machine))
    return (proof,), [document]


def _runs(options: dict[str, Any], facts: Facts, missing: list[Missing]) -> tuple[RunResult, ...]:
    from firstlight.cli.bench_report import read_runs
    from firstlight.report.handover_match import named_by_run
    from firstlight.report.handover_parts import has_gpu

    named = [(path, run) for path in options["benches"] for run in read_runs(path)]
    for path, run in named:
        _require_same_machine(path, facts, named_by_run(run))
    runs = tuple(run for _, run in named)
    lack = _not_given("bench") if options["facts_file"] else _lacks("bench", "the whole suite was not measured here")
    if not runs and not options["facts_file"]:
        runs, lack = _kept_run(lack)
    if not has_gpu(facts):
        lack = replace(lack, make=lack.make.replace("firstlight bench", "firstlight bench --device cpu"))
    elif runs and not runs[-1].gpus:
        missing.append(replace(lack, part="how fast the GPU is", why="the run measured the processor alone"))
    if not runs:
        missing.append(lack)
    return runs


def _kept_run(lack: Missing) -> tuple[tuple[RunResult, ...], Missing]:
    """The run that was kept here, and what to say where it cannot be read."""
    from firstlight.bench.results import from_json
    from firstlight.cli.kept import kept

    if not (text := kept("bench")):
        return (), lack
    try:
        return (from_json(json.loads(text), _KEPT),), lack
    except (ValueError, RecursionError, BadInput) as error:  # damaged, or of another version
        return (), _lacks("bench", f"{_KEPT} cannot be read ({error})")


def _require_same_machine(path: str, facts: Facts, named: Named) -> None:
    from firstlight.report.handover_match import other_machine

    if why := other_machine(facts, named):
        raise BadInput(
            f"{path} comes from another machine: {why}. Give the documents of one machine; where a card was changed or "
            "is gone, make this one again there."
        )


def _read(path: str) -> bytes:
    from firstlight.opening import open_given

    try:
        with open_given(path) as file:
            raw: bytes = file.read(_MOST + 1)
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or 'cannot be read').lower()}; name a file that is there") from None
    if len(raw) > _MOST:
        raise BadInput(f"{path}: larger than {_MOST >> 20} MiB; no document of firstlight is")
    return raw


def _told(handed: _Handed, out: str) -> str:
    from firstlight.report.layout import labelled

    handover = handed.handover
    lines = [f"{handover.verdict}\n", labelled("machine", (handover.machine, handover.place))]
    lines += [labelled("missing", (f"{each.part}: {each.why}",)) for each in handover.missing]
    lines += [labelled("changed", (f"{each.what}, since {each.since}",)) for each in handover.changed[:5]]
    size = len(handed.page.encode("utf-8")) / 1000
    return "".join([*lines, labelled("wrote", (f"{out} ({size:.0f} kB); open it in a browser",))])
