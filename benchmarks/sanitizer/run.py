"""The Hopper kernels under compute-sanitizer: results/kernels-sanitizer-<machine>.json.

    python -m benchmarks.sanitizer --out results/kernels-sanitizer-h200.json --commit HASH
        [--tool memcheck,racecheck,synccheck,initcheck] [--what multiply,sample,turn,attention,gradient]
        [--budget-s 240]
    python -m benchmarks.sanitizer --dry                    the cases on the processor, by the reference
    python -m benchmarks.sanitizer --judge FILE             names the races of a result again, without a GPU

Each tool runs a child that launches the cases of cases.py and checks every number. Its output is kept whole.
A race is named by orders.py or UNNAMED. Exit: 0 all cases clean or every race named, 1 not, 2 it could not be run.
A file of the same commit is added to, so tools may run at different times. The budget is shared: three parts for
racecheck, two for memcheck, one for each other tool, and what one leaves the next ones get.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.sanitizer.orders import ORDERS, UNNAMED, grouped
from benchmarks.sanitizer.reports import ABOUT, BEGIN, END, Output, Report, read_output

from firstlight.frozen import dataclass
from firstlight.kernels.sm90.compile import SOURCES
from firstlight.machine.spawn import run_bounded
from firstlight.profile.children import Ended, run_kept

SCHEMA = "firstlight.kernels-sanitizer/1"
TOOLS = {"memcheck": 2, "racecheck": 3, "synccheck": 1, "initcheck": 1}  # with their shares of the time
KERNELS = ("multiply", "epilogue", "sample", "turn", "pitch", "lists", "mask_lists", "attention", "gradient")
NAMES = {"epilogue": "multiply"}  # of kernels that are not called as their cases are
ERROR_STATUS, WRONG_STATUS = 86, 3
BARRIERS = 64  # mbarriers of a thread block that the tools make room for; our kernels have up to 36
ENDING_S = 20.0  # from the child's last case to the tool's summary
CHILD = ("-m", "benchmarks.sanitizer.run", "--child")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One run of one tool: racecheck, over these kernels, no case begun after that time; most 0: all cases."""

    tool: str
    what: tuple[str, ...]
    until: float  # seconds since the epoch
    most: int = 0
    races: str = "analysis"  # hazard: a report for every byte, with its address


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    tools, what = (
        _listed(parser, "--tool", options.tool, tuple(TOOLS)),
        _listed(parser, "--what", options.what, KERNELS),
    )
    if options.child or options.dry:
        until = options.until or time.time() + options.budget_s
        return child(what, "cpu" if options.dry else "cuda", until=until, most=options.most)
    if options.judge is not None:
        return judge_again(parser, options.judge)
    if options.out is None or not options.commit:
        parser.error("--out FILE and --commit HASH are needed: a result without the code that gave it proves nothing")
    path = find_sanitizer(os.environ)
    if not path:
        parser.exit(2, f"{MISSING}\n")
    return run(path, tools, what, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sanitizer", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="of the code that runs")
    parser.add_argument("--tool", default=",".join(TOOLS), help=f"some of {','.join(TOOLS)}")
    parser.add_argument("--what", default=",".join(KERNELS), help=f"some of {','.join(KERNELS)}")
    parser.add_argument("--budget-s", type=float, default=240.0, help="for everything; what does not fit is listed")
    parser.add_argument("--most", type=int, default=0, help="cases of each tool, in order; 0: all")
    parser.add_argument(
        "--jobs", type=int, default=min(14, os.cpu_count() or 2), help="processes that compile first; 0: none"
    )
    races = ("analysis", "hazard")
    parser.add_argument("--races", choices=races, default=races[0], help="hazard: every byte, with its address")
    parser.add_argument("--dry", action="store_true", help="the cases on the processor by the reference; no GPU needed")
    parser.add_argument("--judge", type=Path, help="a result whose races are named again by the table as it is now")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    return parser


def _listed(parser: argparse.ArgumentParser, option: str, given: str, accepted: tuple[str, ...]) -> tuple[str, ...]:
    words = given.split(",")
    if unknown := [word for word in words if word not in accepted]:
        parser.error(f"{option}: {', '.join(unknown) or 'nothing'} is not known; accepted: {','.join(accepted)}")
    return tuple(word for word in accepted if word in words)


MISSING = (
    "compute-sanitizer was not found on PATH, in CUDA_HOME or CUDA_PATH, nor under /usr/local/cuda*. It comes with the "
    "CUDA toolkit (package cuda-sanitizer-<version>). Put its folder on PATH."
)


def find_sanitizer(environ: Mapping[str, str], root: Path = Path("/")) -> str:
    """The path of compute-sanitizer, e.g. /usr/local/cuda/bin/compute-sanitizer; empty: there is none."""
    if found := shutil.which("compute-sanitizer", path=environ.get("PATH", "")):
        return found
    homes = [Path(home) for name in ("CUDA_HOME", "CUDA_PATH") if (home := environ.get(name))]
    homes += sorted((root / "usr/local").glob("cuda*"), reverse=True)
    places = (home / folder / "compute-sanitizer" for home in homes for folder in ("bin", "compute-sanitizer"))
    return next((str(place) for place in places if place.is_file() and os.access(place, os.X_OK)), "")


# ---------------------------------------------------------------------------------------------------------- the child


def child(what: tuple[str, ...], device: str, *, until: float, most: int = 0) -> int:
    """Runs the cases, a line before and after each; stops in time for the tool to write its summary."""
    import torch
    from benchmarks.sanitizer import cases as small
    from benchmarks.sanitizer.where import DRY, GPU

    where = DRY if device == "cpu" else GPU
    about = {"torch": torch.__version__, "gpu": "none"}
    if device != "cpu":
        small.use_lines_and_two_thread_blocks()
        about["gpu"] = torch.cuda.get_device_name(0)
    print(ABOUT, json.dumps(about), flush=True)
    status = 0
    chosen = small.cases(what)
    for number, case in enumerate(chosen[:most] if most else chosen):
        if number and time.time() > until:
            print(f"not reached: {case.id}", flush=True)
            continue
        start = time.monotonic()
        print(BEGIN, case.id, flush=True)
        try:
            fault = small.run_case(case, where)
            if device != "cpu":
                torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 the cases after it are run, and what it said is kept
            fault = f"{type(error).__name__}: {error}"
        said = "ok" if not fault else "WRONG: " + " ".join(fault.split())[:300]
        print(f"{END} {case.id} | {time.monotonic() - start:.2f} s | {said}", flush=True)
        status = status or (WRONG_STATUS if fault else 0)
    return status


_ENDED = re.compile(rf"^{re.escape(END)} (\S+) \| ([0-9.]+) s \| (.*)$")


def cases_of(output: Output) -> tuple[list[Row], list[str]]:
    """The cases that were run with what became of them, and those that were not reached."""
    begun = [line[len(BEGIN) :].strip() for line in output.said if line.startswith(BEGIN)]
    ended = {found.group(1): found for line in output.said if (found := _ENDED.match(line))}
    rows = [
        {"id": name, "seconds": float(ended[name].group(2)), "verdict": ended[name].group(3)}
        if name in ended
        else {"id": name, "seconds": None, "verdict": "cut off"}
        for name in begun
    ]
    return rows, [line.partition(": ")[2] for line in output.said if line.startswith("not reached: ")]


# --------------------------------------------------------------------------------------------------------- the parent


def command_of(path: str, ask: Ask) -> tuple[str, ...]:
    """The tool with its options and the child.

    initcheck has to see the writes of all kernels: what torch's wrote would be taken for never written.
    """
    # products by token turn X over first
    names = () if ask.tool == "initcheck" else dict.fromkeys((*(NAMES.get(name, name) for name in ask.what), "turn"))
    ours = tuple(word for name in names for word in ("--kernel-name", f"kne={name}"))
    barriers = ("--num-cuda-barriers", str(BARRIERS)) if ask.tool in ("racecheck", "synccheck") else ()
    reports = ("--report-api-errors", "no") if ask.tool == "memcheck" else ()
    races = ("--racecheck-report", ask.races) if ask.tool == "racecheck" else ()
    return (
        path, "--tool", ask.tool, *reports, *races, *barriers, *ours, "--print-limit", "10000",
        "--show-backtrace", "no", "--error-exitcode", str(ERROR_STATUS), sys.executable, *CHILD,
        "--what", ",".join(ask.what), "--until", f"{ask.until:.0f}", "--most", str(ask.most),
    )  # fmt: skip


def run(path: str, tools: tuple[str, ...], what: tuple[str, ...], options: argparse.Namespace) -> int:
    """All tools one after the other; the file is written after each."""
    began = time.monotonic()
    compiled = compile_first(what, options.jobs)
    found: Row = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": options.commit,
        "argv": sys.argv[1:],
        "sanitizer": version_of(path),
        "driver": _said(("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")),
        "compiled": {"kernels": len(compiled), "failed": [each for each in compiled if each[2]]},
        "gpu": "",
        "torch": "",
        "tools": earlier(options.out, options.commit).get("tools", {}),
    }
    print(f"{len(compiled)} kernels with line numbers after {time.monotonic() - began:.0f} s", flush=True)
    for place, tool in enumerate(tools):
        left = options.budget_s - (time.monotonic() - began)
        share = left * TOOLS[tool] / sum(TOOLS[each] for each in tools[place:])
        if share < ENDING_S:
            found["tools"][tool] = {"verdict": f"not run: {share:.0f} s were left for it"}
            continue
        ask = Ask(tool, what, time.time() + share - ENDING_S, options.most, options.races)
        with tempfile.TemporaryDirectory(prefix="firstlight-sanitizer-") as folder:
            out, start = Path(folder) / "output.txt", time.monotonic()
            ended = run_kept(command_of(path, ask), limit_s=share, out=out)
            text = out.read_text(encoding="utf-8", errors="replace")
        found["tools"][tool] = row = tool_row(tool, text, ended)
        row["command"], row["seconds"] = list(command_of("compute-sanitizer", ask)), round(time.monotonic() - start, 1)
        for key in ("gpu", "torch"):
            found[key] = found[key] or row["about"].get(key, "")
        write(options.out, found)
        print("\n".join(told(tool, row)), flush=True)
    write(options.out, found)
    return _status(found)


def earlier(path: Path, commit: str) -> Row:
    """A result of the same code, to which this run adds; {} where there is none."""
    try:
        found: Row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and (found.get("schema"), found.get("commit")) == (SCHEMA, commit) else {}


def compile_first(what: tuple[str, ...], jobs: int) -> list[tuple[str, float, str]]:
    """Fills the cache with the kernels of all cases, with line numbers."""
    from benchmarks.sanitizer import cases as small

    if jobs < 1:
        return []
    variants = tuple(dict.fromkeys(variant for case in small.cases(what) for variant in case.variants))
    try:
        with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(small.compile_with_lines, variants))
    except Exception as error:  # noqa: BLE001 then they are compiled when their turn comes
        return [("a child", 0.0, f"{type(error).__name__}: {error}"[:200])]


def version_of(path: str) -> str:
    """E.g. '2025.3.1.0 (build 36398880)'."""
    found = re.search(r"Version\s+(.*?)(?:\s*\(public.*)?$", _said((path, "--version")), re.MULTILINE)
    return found.group(1) if found else "unknown"


def _said(argv: tuple[str, ...]) -> str:
    return run_bounded(argv, timeout_s=30.0, env=os.environ).stdout.strip()


# -------------------------------------------------------------------------------------------------------- the verdict


def tool_row(tool: str, text: str, ended: Ended) -> Row:
    """What one tool found, judged; `output` is all that was printed."""
    output = read_output(text)
    cases, not_reached = cases_of(output)
    about: Row = next((json.loads(line[len(ABOUT) :]) for line in output.said if line.startswith(ABOUT)), {})
    row: Row = {
        "status": ended.status if ended.in_time else "its time was up",
        "about": about,
        "cases": cases,
        "not_reached": not_reached,
        "summaries": list(output.summaries),
        "trouble": list(output.trouble),
        "notices": list(output.notices),
        "output": text.splitlines(),
    }
    return {**row, **judged(tool, row)}


def is_ours(report: Report) -> bool:
    """Whether a report is of our kernels: by the file of its line, else by the name of the kernel."""
    return (
        any(
            (bool(place.file) and (SOURCES / place.file).is_file()) or place.function.partition("(")[0] in KERNELS
            for place in report.places
        )
        or not report.places
    )


def judged(tool: str, row: Row) -> Row:
    """Reports, groups and the verdict from the kept output; so a result can be judged again later."""
    output = read_output("\n".join(row["output"]))
    ours = [report for report in output.reports if is_ours(report)]
    groups = grouped((report.case, race) for report in ours for race in report.races)
    errors = [report for report in ours if not report.races]
    wrong = [case["id"] for case in row["cases"] if case["verdict"] not in ("ok", "cut off")]
    unnamed = [group for group in groups if not group.is_named]
    faults = [
        *([f"{len(errors)} errors"] if errors else []),
        *([f"{len(unnamed)} UNNAMED races"] if unnamed else []),
        *([f"wrong numbers in {len(wrong)} cases"] if wrong else []),
        *(["no case was run"] if not row["cases"] else []),
        *([f"{len(row['not_reached'])} cases not reached"] if row["not_reached"] else []),
        *([f"the tool's own trouble: {output.trouble[0][:120]}"] if output.trouble and not wrong else []),
        *([] if output.is_whole or groups or errors else ["no summary: its time was up or it failed"]),
    ]
    ran = sum(case["verdict"] == "ok" for case in row["cases"])
    clean = f"clean: {ran} cases" + (f", {len(groups)} races, each named" if groups else ", no report")
    return {
        "reports": [asdict(report) for report in ours],
        "elsewhere": [report.text for report in output.reports if not is_ours(report)],
        "groups": [asdict(group) for group in groups],
        "orders": [asdict(order) for order in ORDERS if order.name in {group.order for group in groups}],
        "hazards": sum(group.hazards for group in groups),
        "verdict": "; ".join(faults) if faults else clean,
        "is_clean": not faults,
    }


def told(tool: str, row: Row) -> list[str]:
    """What is printed of one tool."""
    lines = [f"{tool}: {row['verdict']} ({row.get('seconds', '?')} s, {len(row['not_reached'])} cases not reached)"]
    for group in row["groups"]:
        write, other = group["write"], group["other"]
        mark = f"** {UNNAMED} **" if group["order"] == UNNAMED else group["order"]
        lines.append(
            f"  {mark}: write in {write['function']} ({write['where']}), {other['access'].lower()} in "
            f"{other['function']} ({other['where']}): {group['hazards']} hazards, {len(group['cases'])} cases"
        )
    lines += [
        f"  {report['text'].splitlines()[0]} ({report['case']})" for report in row["reports"] if not report["races"]
    ][:10]
    lines += [f"  {case['id']}: {case['verdict']}" for case in row["cases"] if case["verdict"] != "ok"][:10]
    return lines + [f"  the tool: {line}" for line in row["trouble"][:5]]


def judge_again(parser: argparse.ArgumentParser, path: Path) -> int:
    """Names the races of a kept result by the table as it is now, and writes them back."""
    try:
        found: Row = json.loads(path.read_text(encoding="utf-8"))
        tools = found["tools"]
    except (OSError, ValueError, KeyError, TypeError):
        parser.error(f"--judge {path}: no result of this script; accepted: a file that --out has written")
    for tool, row in tools.items():
        if "output" in row:
            row.update(judged(tool, row))
            print("\n".join(told(tool, row)))
    write(path, found)
    return _status(found)


def _status(found: Row) -> int:
    return 0 if found["tools"] and all(row.get("is_clean") for row in found["tools"].values()) else 1


def write(path: Path, found: Row) -> None:
    """The result, whole or not at all."""
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    scratch.replace(path)


if __name__ == "__main__":
    sys.exit(main())
