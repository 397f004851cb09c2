"""`firstlight bench`: measure, and hold every number against what the silicon can do."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.given import refuse_json, refuse_nothing
from firstlight.cli.printing import raw

if TYPE_CHECKING:
    from firstlight.bench.case import Case
    from firstlight.bench.choice import Choice
    from firstlight.bench.compare import Comparison
    from firstlight.bench.peaks import Peaks
    from firstlight.bench.results import RunResult
    from firstlight.bench.runner import Round

# subcommand -> (module under firstlight.cli, one line)
SUBCOMMANDS = {
    "compare": ("bench_compare", "two runs: what became slower or faster, and what caused it"),
    "report": ("bench_report", "runs to look at: one HTML file with charts and the data inside"),
    "check-claim": ("bench_claim", "can this number be true: recompute it, compare it with the silicon"),
    "export": ("bench_export", "a run for CI and dashboards: pytest-benchmark, OpenMetrics, JUnit"),
}
_EPILOG = "Example: firstlight bench --effort quick --only gemm,bandwidth --out before.json"
NOTHING_MEASURED = 4
INTERRUPTED = 130
CASE_FILES = (".py", ".cu")  # `bench my_kernels.py`: cases of the user's own


class BenchGroup(click.Group):
    """Subcommands are imported on use; without one the suite is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUBCOMMANDS:
            return None
        module = importlib.import_module(f"firstlight.cli.{SUBCOMMANDS[cmd_name][0]}")
        return refuse_nothing(module.command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in SUBCOMMANDS and args[0].endswith(CASE_FILES):
            return args[0], refuse_nothing(importlib.import_module("firstlight.cli.bench_user").command), args[1:]
        if args and args[0] not in SUBCOMMANDS:
            ctx.fail(
                f"{args[0]!r} is not a subcommand of bench; accepted: {', '.join(SUBCOMMANDS)}, or a file of your own "
                f"cases (.py, .cu). To choose cases: firstlight bench --only {args[0]}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Subcommands"):
            own = ("FILE.py, FILE.cu", "cases of your own, timed and judged alike: firstlight bench my_kernels.py")
            formatter.write_dl([*((name, line) for name, (_, line) in SUBCOMMANDS.items()), own])


@click.group(
    cls=BenchGroup,
    invoke_without_command=True,
    short_help="measure: the suite, each number with its limit",
    epilog=_EPILOG,
)
@click.option(
    "--effort",
    type=click.Choice(["quick", "standard", "rigorous"]),
    default="standard",
    show_default=True,
    help="quick: under 45 s; standard: under 3 minutes; rigorous: 10. Making inputs and compiling not counted.",
)
@click.option(
    "--only",
    default="",
    metavar="PATTERN,..",
    help="Families, starts of ids or patterns: gemm,sdpa/*/causal. Between GPUs: collective.",
)
@click.option("--list", "lists", is_flag=True, help="Print the ids of the cases and stop.")
@click.option("--estimate", is_flag=True, help="Print about how long each family would take and stop.")
@click.option("--device", default="cuda:0", show_default=True, help="cuda:0 (or another number), all, or cpu.")
@click.option("--out", default="", metavar="FILE", help="Write the result (schema firstlight.bench/1) to FILE.")
@click.option("--json", "style", flag_value="json", help="Print the result document.")
@click.option("--markdown", "style", flag_value="markdown", help="Print tables for a report.")
@click.option("--csv", "style", flag_value="csv", help="Print one line per figure.")
@click.option("--no-compile", is_flag=True, help="Leave the torch.compile rows out.")
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse to measure on a shared GPU or a busy processor; with --baseline, unclear is a failure.",
)
@click.option("--baseline", default="", metavar="FILE",
              help="Compare with an earlier result, looking twice at what differs; exit 1 when slower.")  # fmt: skip
@click.option(
    "--max-size", default="", metavar="SIZE", help="collective: at most this size, e.g. 16MiB. Default: 1GiB."
)
@click.option("--timeout", type=click.IntRange(1, 3600), default=None, metavar="S",
              help="collective: a rank that does not answer for S seconds has hung. Default: 60.")  # fmt: skip
@click.option("--processes", type=click.IntRange(2, 64), default=None, metavar="N",
              help="collective, with --device cpu: this many processes. Default: 4.")  # fmt: skip
@click.option("--nodes", type=click.IntRange(1, 1024), default=None, metavar="N",
              help="collective: this many nodes, each of which calls the same command.")  # fmt: skip
@click.option("--rendezvous", default="", metavar="HOST:PORT", help="collective: where several nodes meet.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Run the benchmark suite and put every number beside what the GPU can do.

    Needs no root, no docker and no locked clocks. A number above what the silicon can do at the clock measured
    meanwhile is refused. Exit code 0: measured; 1: a case is wrong, invalid or impossible, or slower than the
    baseline; 2: usage; 3: not comparable with the baseline, or no figure is clear; 4: no GPU to measure, or no case
    that runs on it; 130: interrupted, finished cases are kept and the file is written.
    """  # fmt: skip
    if ctx.invoked_subcommand is not None:
        return
    if given["lists"] or given["estimate"]:
        refuse_json("--list" if given["lists"] else "--estimate", as_json=given["style"] == "json")
    from firstlight.bench.case import Effort
    from firstlight.bench.choice import COMPILE, Choice
    from firstlight.cli.bench_collective import device_of, is_collective, print_collective_plan

    only = tuple(part.strip() for part in given["only"].split(",") if part.strip())
    choice = Choice(Effort(given["effort"]), only, (COMPILE,) if given["no_compile"] else ())
    if is_collective(only, given):
        given = {**given, "device": device_of(ctx, given["device"]), "collective": True}
        if given["lists"] or given["estimate"]:
            print_collective_plan(choice, given)
            return
    if given["lists"] or given["estimate"]:
        _print_plan(choice, device=given["device"], estimates=given["estimate"])
        return
    ctx.exit(measure(choice, given))


def _print_plan(choice: Choice, *, device: str, estimates: bool) -> None:
    """Ids, or seconds by family."""
    from firstlight.bench.choice import chosen, estimated_run_s, estimated_s
    from firstlight.report.bench_plan_text import estimate_text, list_text

    cases, peaks = _cases_of(device)
    picked = chosen(cases, choice)
    if not estimates:
        click.echo(list_text(picked), nl=False)
        if not choice.only:
            click.echo("firstlight: cases between GPUs: firstlight bench --only collective --list", err=True)
        return
    seconds = {case.id: estimated_s(case, choice.effort, peaks) for case in picked}
    total = estimated_run_s(picked, choice.effort, peaks)
    click.echo(estimate_text(picked, seconds, total_s=total, model=peaks.name or "processor"), nl=False)


def _cases_of(device: str) -> tuple[tuple[Case, ...], Peaks]:
    """Every case of a device, and its peaks; without a GPU those of an H100, which is said."""
    from firstlight.bench.cases.suite import ALL_CASES
    from firstlight.bench.peaks import NO_PEAKS, peaks_named, peaks_of
    from firstlight.bench.place import ASSUMED, describe, device_names, place_of
    from firstlight.errors import CouldNotLook
    from firstlight.tables import load

    try:
        described = describe(device_names(device)[0])
    except CouldNotLook as error:
        click.echo(f"firstlight: {str(error).partition('. ')[0]}; the list is for an H100", err=True)
        return ALL_CASES(ASSUMED), peaks_named(load(), "h100-sxm")
    peaks = NO_PEAKS if described.gpu is None else peaks_of(described.gpu, load())
    return ALL_CASES(place_of(described)), peaks


def keep_what_is_read(given: dict[str, Any]) -> None:
    """Refuse --out, or a file that stands beside it, where it is the baseline or the file of cases."""
    from firstlight.cli.written_over import refuse_as_output

    read = [(name, given[key]) for name, key in (("--baseline", "baseline"), ("", "file")) if given.get(key)]
    for ending in ("", ".part", ".again") if given["out"] else ():
        refuse_as_output(f"{given['out']}{ending}", read)


def measure(choice: Choice, given: dict[str, Any]) -> int:
    """Run, print, write, compare; the exit code. `given` holds the options, and a suite where it is not ours."""
    import sys

    from firstlight.bench.results import read_run, to_text
    from firstlight.bench.saving import RUN, save, unfinished, writable

    keep_what_is_read(given)
    baseline = read_run(given["baseline"]) if given["baseline"] else None
    if given["out"]:
        writable(given["out"], RUN)
    run = _run(choice, given)
    if not given["only"] and "suite" not in given and not run.run.interrupted:
        from firstlight.cli.kept import keep

        keep("bench", to_text(run))  # the whole suite stays with the machine, for `firstlight handover`
    if given["out"]:
        save(given["out"], _document(run))
        unfinished(given["out"]).forget()
        click.echo(f"firstlight: wrote {given['out']}", err=True)
    click.echo(_shown(run, given["style"] or "text"), nl=False)
    sys.stdout.flush()
    if run.why_nothing:
        said = f"nothing was measured: {run.why_nothing}; choose others with --only, or another --device"
        click.echo(f"firstlight: {said}", err=True)
    code = _exit_code(run)
    return code if baseline is None or code == INTERRUPTED else max(code, _compared(baseline, run, given))


def _run(choice: Choice, given: dict[str, Any], *, look: Round | None = None) -> RunResult:
    """The run; with Round.AGAIN it is a second look at cases in this process."""
    import sys

    from firstlight.bench.attempts import unheard
    from firstlight.bench.cases.suite import ALL_CASES
    from firstlight.bench.place import device_names
    from firstlight.bench.progress import Progress
    from firstlight.bench.runner import BenchSetting, Request, Round, run_bench
    from firstlight.bench.saving import is_plain, unfinished
    from firstlight.facts.look import Look, look_at
    from firstlight.tables import load

    if "collective" in given:
        from firstlight.cli.bench_collective import refuse_early, run_together

        refuse_early(given)
    else:
        device_names(given["device"])  # a device that is not there is said before anything is looked at
    progress = Progress(raw(sys.stderr))
    if look is None:
        progress.say(f"effort {choice.effort.value}; --list names the cases, Ctrl-C keeps what is finished")
    request = Request(
        choice,
        given["device"],
        _arguments(given),
        refuses_contention=given["strict"],
        round=look or Round.FIRST,
    )
    keep = unfinished(given["out"]).keep if look is None and is_plain(given["out"]) else unheard
    world = BenchSetting(given.get("suite", ALL_CASES), look_at(Look()), load(), progress.tell, progress.say, keep)
    try:
        if "collective" in given:
            return run_together(request, world, given)
        return run_bench(request, world)
    finally:
        progress.clear()


def _arguments(given: dict[str, Any]) -> tuple[str, ...]:
    """The file of cases and the options that shape a run; names of other files stay out of the result."""
    shaping = ("effort", "only", "device", "max_size", "processes", "nodes")
    told = [f"--{name.replace('_', '-')}={given[name]}" for name in shaping if given.get(name)]
    return (
        "bench",
        *([_below_here(given["file"])] if "file" in given else []),
        *told,
        *(["--no-compile"] if given["no_compile"] else []),
        *(["--strict"] if given["strict"] else []),
    )


def _below_here(path: str) -> str:
    """A path as it can be typed again; of one that leads elsewhere the last part: folders tell who somebody is."""
    import os.path

    shown = os.path.relpath(path)
    return os.path.basename(path) if shown.startswith(os.pardir) else shown


def _shown(run: RunResult, style: str) -> str:
    if style == "json":
        return _document(run)
    if style == "csv":
        from firstlight.report.bench_csv import bench_csv

        return bench_csv(run)
    from firstlight.tables import load

    if style == "markdown":
        from firstlight.report.bench_markdown import bench_markdown

        return bench_markdown(run, load())
    from firstlight.report.bench_text import bench_text

    return bench_text(run, load())


def _document(run: RunResult) -> str:
    from firstlight.bench.judgement import judged
    from firstlight.bench.results import to_text
    from firstlight.tables import load

    return to_text(run, judgement=judged(run, load()).to_dict())


def _exit_code(run: RunResult) -> int:
    from firstlight.bench.results import Verdict

    if run.run.interrupted:
        return INTERRUPTED
    bad = (Verdict.FAILED, Verdict.INVALID, Verdict.IMPOSSIBLE)
    is_ill = any(finding.severity == "blocks" for finding in run.health.findings)
    if is_ill or any(case.verdict in bad for case in run.cases):
        return 1
    return NOTHING_MEASURED if run.why_nothing else 0


def _compared(baseline: RunResult, run: RunResult, given: dict[str, Any]) -> int:
    """Print the comparison, after a second look at what is not the same: on stderr where stdout carries a document."""
    from firstlight.bench.compare import Strictness, compare_runs, exit_code
    from firstlight.bench.second_look import with_second_look
    from firstlight.report.bench_compare_text import compare_text

    comparison = compare_runs(baseline, run)
    again = _second_look(comparison, run, given)
    if again is not None:
        comparison = with_second_look(comparison, compare_runs(baseline, again))
    code = exit_code(comparison, Strictness.STRICT if given["strict"] else Strictness.LENIENT)
    click.echo(compare_text(comparison, baseline, run, code), nl=False, err=given["style"] in ("json", "csv"))
    return INTERRUPTED if again is not None and again.run.interrupted else code


def _second_look(comparison: Comparison, run: RunResult, given: dict[str, Any]) -> RunResult | None:
    """Five more passes of what changed or is unclear, in this process; None where nothing is."""
    from firstlight.bench.case import Effort
    from firstlight.bench.choice import Choice
    from firstlight.bench.results import to_text
    from firstlight.bench.runner import Round
    from firstlight.bench.saving import is_plain, save
    from firstlight.bench.second_look import second_look_ids

    ids = second_look_ids(comparison, run)
    if not ids:
        return None
    named = "1 case" if len(ids) == 1 else f"{len(ids)} cases"
    click.echo(f"firstlight: a second look at {named} that changed or are unclear", err=True)
    again = _run(Choice(Effort(given["effort"]), ids), {**given, "only": ",".join(ids)}, look=Round.AGAIN)
    if is_plain(given["out"]):
        save(f"{given['out']}.again", to_text(again))
        click.echo(f"firstlight: wrote {given['out']}.again, for `bench compare --again`", err=True)
    return again
