"""What Nsight Compute counts in the Hopper kernels, beside what their schedule predicts: results/kernels-nsight-*.json.

    python -m benchmarks.counters --out results/kernels-nsight-h200.json --commit HASH
        [--what multiply,attention] [--budget-s 240] [--most N]
    python -m benchmarks.counters --dry          small cases on the processor, their predictions; no GPU needed

Each kernel's cases run in one child: warmed up, then one marked call each, which Nsight Compute replays, clocks left
alone and caches emptied. The rows of its CSV are kept whole; a file of the same commit is added to.
Figures, names and bars: figures.py.
Exit: 0 all bars met, 1 one is not or is not known, 2 it could not be run. tools/sm90_table.py reads the file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.counters.figures import (
    REGISTERS,
    Names,
    Row,
    Table,
    figures,
    kernel_name,
    names_here,
    read_table,
    table_lines,
    with_counts,
)

from firstlight.facts.known import Unknown
from firstlight.frozen import dataclass
from firstlight.machine.live import LiveMachine
from firstlight.machine.spawn import run_bounded
from firstlight.profile.children import run_kept
from firstlight.profile.ncu import IMPORT_LIMIT_S, OUTPUT_LIMIT, Tool, ask_ncu, find_ncu
from firstlight.profile.trouble import trouble_in

SCHEMA = "firstlight.kernels-nsight/2"  # 1 had no attention, no CSV and fewer figures; its names are unchanged
WHAT = ("multiply", "attention")
PLACES = {"multiply": "cases", "attention": "attention"}  # where each kernel's cases stand in the result
LAUNCHED = {"multiply": "multiply|turn", "attention": "attention"}
WARM_UPS = 2
CHILD = ("-m", "benchmarks.counters.run", "--child")
NOTE = "--clock-control none --cache-control all; one marked call a case after warm-up; csv: every row as printed"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case that is ready to be called, with what its schedule predicts."""

    id: str
    what: str
    kernels: tuple[str, ...]  # launches of one call, in order; the last one is the kernel itself
    shared_bytes: int  # into shared memory
    l2_bytes: int  # read of L2 for it: less, where one read serves two thread blocks
    hbm_bytes: int
    call: Callable[[], object]

    @property
    def row(self) -> Row:
        """What the result says of it before anything was counted."""
        return {
            "id": self.id, "what": self.what, "kernel": self.kernels[-1], "kernels": list(self.kernels),
            "predicted_l2_to_shared_bytes": self.shared_bytes, "predicted_l2_read_bytes": self.l2_bytes,
            "predicted_hbm_bytes": self.hbm_bytes,
        }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    words = options.what.split(",")
    if unknown := [word for word in words if word not in WHAT]:
        parser.error(f"--what: {', '.join(unknown) or 'nothing'} is not known; accepted: {','.join(WHAT)}")
    what = tuple(word for word in WHAT if word in words)
    if options.child is not None:
        return child(what[0], options.child, most=options.most)
    if options.dry:
        for name in what:
            for case in prepared(name, "cpu", most=options.most):
                case.call()
                print(json.dumps(case.row))
        return 0
    if options.out is None or not options.commit:
        parser.error("--out FILE and --commit HASH are needed: figures without the code that gave them prove nothing")
    found = find_ncu(LiveMachine())
    if isinstance(found, Unknown):
        parser.exit(
            2, f"{found.reason}. Install Nsight Compute (package nsight-compute-<version>) or put it on PATH.\n"
        )
    tool = ask_ncu(found.value)
    if isinstance(tool, str):
        parser.exit(2, f"{found.value} cannot be asked for its counters: {tool}\n")
    return run(tool, what, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.counters", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--commit", default="", help="of the code that runs")
    parser.add_argument("--what", default=",".join(WHAT), help=f"some of {','.join(WHAT)}")
    parser.add_argument("--budget-s", type=float, default=240.0, help="for everything")
    parser.add_argument("--most", type=int, default=0, help="cases of each kernel, in order; 0: all")
    parser.add_argument("--dry", action="store_true", help="small cases on the processor by the reference")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser


# -------------------------------------------------------------------------------------------------------------- cases


def prepared(what: str, device: str, *, most: int = 0) -> Iterator[Prepared]:
    """The cases of a kernel one after the other: large on a GPU, small on a processor."""
    made = _products(device) if what == "multiply" else _attentions(device)
    for number, case in enumerate(made):
        if most and number >= most:
            return
        yield case


def _products(device: str) -> Iterator[Prepared]:
    from benchmarks.matmul.products import Product, matrix_of, operand_of
    from benchmarks.matmul.sm90.limits import problem_of, traffic_of

    from firstlight.kernels import linear, matmul
    from firstlight.kernels.product import Layout

    tokens, columns = Layout.TOKENS, Layout.COLUMNS
    side, backend = (256, "reference") if device == "cpu" else (8192, "sm90")
    rows = (
        (128, tokens, 0.5), (128, columns, 0.5), (64, tokens, 0.3), (32, columns, 0.1), (16, columns, 0.1),
        (128, tokens, 0.1), (128, tokens, 0.05), (32, tokens, 0.1), (16, tokens, 0.1), (64, columns, 0.1),
    )  # fmt: skip
    for block, layout, density in rows:
        product = Product(block, layout, "fp16", side, side, side, density)
        matrix, x = matrix_of(product, device), operand_of(product, device)
        traffic = traffic_of(product, matrix)
        turned = problem_of(product, matrix).turns_x

        def call(w: Any = matrix, x: Any = x, function: Any = linear if product.is_linear else None) -> object:
            return matmul(w, x, backend=backend) if function is None else linear(x, w, backend=backend)

        kernels = ("turn", "multiply") if turned else ("multiply",)
        moved = (traffic.tile_bytes, traffic.l2_bytes, traffic.hbm_bytes)
        yield Prepared(product.id, "multiply", kernels, *moved, call)


def _attentions(device: str) -> Iterator[Prepared]:
    import torch
    from benchmarks.attention.limits import traffic_of
    from benchmarks.attention.work import Problem, Sizes, inputs_of

    from firstlight.kernels.block_attention import reference
    from firstlight.kernels.sm90 import attention

    small = device == "cpu"
    sizes = Sizes(1, 2, 2, 512, 64) if small else Sizes(4, 24, 24, 4096, 128)
    forward = reference.forward if small else attention.forward
    problems = (
        Problem("causal", sizes, "causal", 0.0), Problem("full", sizes, "full", 0.0),
        Problem("density 0.5", sizes, "random", 0.5), Problem("density 0.1", sizes, "random", 0.1),
        Problem("64x64 top-32", sizes, "top_k", 0.5, block=64),  # half of the 64 key blocks of 4096 keys
    )  # fmt: skip
    for problem in problems:
        given = inputs_of(problem, device)
        out = torch.empty_like(given.q)
        lse = torch.empty(given.q.shape[:3], device=device)
        traffic = traffic_of(problem, given.mask)

        def call(given: Any = given, out: Any = out, lse: Any = lse) -> object:
            scale = given.q.shape[-1] ** -0.5
            return forward(given.q, given.k, given.v, given.mask, scale=scale, out=out, lse=lse)

        moved = attention_l2_bytes(problem, given.mask)
        yield Prepared(problem.id, "attention", ("attention",), moved, moved, traffic.hbm_bytes, call)


def attention_l2_bytes(problem: Any, mask: Any) -> int:
    """What attention.cu's lists move from L2 into shared memory: a query block once, a block of K and of V an entry."""
    from firstlight.kernels.block_attention.bits import NONE

    sizes, used = problem.sizes, mask.kinds != NONE
    copies = sizes.batch * sizes.heads // (used.shape[0] * used.shape[1])
    entries, items = int(used.sum()) * copies, int(used.any(-1).sum()) * copies
    return int(2 * sizes.head_dim * mask.block * (items + 2 * entries))


def child(what: str, answer: Path, *, most: int) -> int:
    """Warms up and marks one call of each case for Nsight Compute; the answer says which cases in which order."""
    import torch

    rows: list[Row] = []
    for case in prepared(what, "cuda", most=most):
        for _ in range(WARM_UPS):
            case.call()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        case.call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        rows.append(case.row)
        about = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cases": rows}
        answer.write_text(json.dumps(about), encoding="utf-8")  # after each: the time may be up
    return 0


# ----------------------------------------------------------------------------------------------------------- counting


def command_of(tool: Tool, what: str, names: Sequence[str], *, folder: Path, most: int) -> tuple[str, ...]:
    """Nsight Compute over the child: counters, report and log."""
    return (
        tool.path, "--clock-control", "none", "--cache-control", "all", "--profile-from-start", "off",
        "--target-processes", "all", "--kernel-name", f"regex:^({LAUNCHED[what]})$", "--metrics", ",".join(names),
        "--export", str(folder / "report.ncu-rep"), "--force-overwrite", "--log-file", str(folder / "log.txt"),
        sys.executable, *CHILD, str(folder / "answer.json"), "--what", what, "--most", str(most),
    )  # fmt: skip


def run(tool: Tool, what: tuple[str, ...], options: argparse.Namespace) -> int:
    """Counts kernel by kernel; the file is written after each."""
    names, began = names_here(tool.bases), time.monotonic()
    if names.missing:
        print("no counter here for:", "; ".join(names.missing), flush=True)
    found: Row = {
        "schema": SCHEMA, "date": time.strftime("%Y-%m-%d", time.gmtime()), "commit": options.commit,
        "argv": sys.argv[1:], "gpu": "", "driver": _driver(), "ncu": tool.version, "note": NOTE,
        "missing": list(names.missing), "cases": [], "attention": [], "csv": {}, "trouble": {},
    }  # fmt: skip
    before = earlier(options.out, options.commit)
    found.update({key: before[key] for key in ("cases", "attention", "csv", "trouble", "gpu") if key in before})
    for place, name in enumerate(what):
        found["trouble"].pop(name, None)
        left = (options.budget_s - (time.monotonic() - began)) / (len(what) - place)
        about, table, trouble = counted(tool, name, names, limit_s=max(20.0, left), most=options.most)
        found["gpu"] = found["gpu"] or about.get("gpu", "")
        found["csv"][name] = {"units": table.units, "rows": list(table.rows)}
        try:
            found[PLACES[name]] = joined(about.get("cases", []), table)
            if not found[PLACES[name]]:
                trouble = trouble or f"no case has its launches among the {len(table.rows)} that were counted"
        except ValueError as error:
            trouble = trouble or str(error)
        if trouble:
            found["trouble"][name] = trouble
            print(f"{name}: {trouble}", flush=True)
        write(options.out, found)
        print("\n".join(table_lines(found[PLACES[name]])), flush=True)
    rows = [*found["cases"], *found["attention"]]
    met = bool(rows) and all(bar["met"] is True for row in rows for bar in row["bars"])
    return 0 if met and not found["trouble"] else 1


def earlier(path: Path, commit: str) -> Row:
    """A result of the same code, to which this run adds; {} where there is none."""
    found = json.loads(_text(path) or "{}")
    return found if (found.get("schema"), found.get("commit")) == (SCHEMA, commit) else {}


def counted(tool: Tool, what: str, names: Names, *, limit_s: float, most: int) -> tuple[Row, Table, str]:
    """The child's answer, the rows, and what went wrong; once more without the registers where they are refused."""
    until = time.monotonic() + limit_s
    for asked in ((*names.asked, REGISTERS), names.asked):
        with tempfile.TemporaryDirectory(prefix="firstlight-counters-") as name:
            folder = Path(name)
            argv = command_of(tool, what, asked, folder=folder, most=most)
            ended = run_kept(argv, limit_s=max(5.0, until - time.monotonic()), out=folder / "child.txt")
            log = _text(folder / "log.txt")
            about = json.loads(_text(folder / "answer.json") or "{}")
            table = read_table(_imported(tool, folder / "report.ncu-rep"))
        if table.rows or REGISTERS not in log:
            break
    if table.rows:
        return about, table, "" if ended.ok else ended.how
    known = trouble_in(log, LiveMachine())
    last = next((line for line in reversed(log.splitlines()) if "==ERROR==" in line), "")
    return about, table, known.says if known is not None else last or f"nothing was counted: {ended.how}"


def joined(cases: Sequence[Row], table: Table) -> list[Row]:
    """The cases with their launches, taken in order; ValueError where the launches are others than announced."""
    launches = list(table.rows)
    rows = []
    for case in cases:
        mine, launches = launches[: len(case["kernels"])], launches[len(case["kernels"]) :]
        if len(mine) < len(case["kernels"]):
            break  # its time was up
        seen = [kernel_name(row) for row in mine]
        if seen != case["kernels"]:
            raise ValueError(f"{case['id']}: launches {case['kernels']} were announced, {seen} were counted")
        rows.append(with_counts(case, [figures(row, table.units) for row in mine]))
    return rows


def _imported(tool: Tool, report: Path) -> str:
    if not report.is_file():
        return ""
    argv = (tool.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base")
    return run_bounded(argv, timeout_s=IMPORT_LIMIT_S, env={**os.environ, "LC_ALL": "C"}, limit=OUTPUT_LIMIT).stdout


def _driver() -> str:
    argv = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return run_bounded(argv, timeout_s=20.0, env=os.environ).stdout.strip()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def write(path: Path, found: Row) -> None:
    """The result, whole or not at all."""
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    scratch.replace(path)


if __name__ == "__main__":
    sys.exit(main())
