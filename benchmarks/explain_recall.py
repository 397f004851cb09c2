"""How many of the posted errors that nobody fitted to are explained, and how many of the answers are right.

    python -m benchmarks.explain_recall              count, with the judgements that are kept
    python -m benchmarks.explain_recall --answers F  write every answer beside the true cause, to be judged by reading
    python -m benchmarks.explain_recall --misses     write what was missed or answered wrongly into docs/explain.md

A judgement is of one link: right, wrong, a miss, or a wrapper (it says only that the cause stands above). A set is
opened once; what is mended after it is measured on the next set.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import explain_famous

from firstlight.diagnosis.explain import explain_text
from tools.generate import with_part

PAGE = Path(__file__).parents[1] / "docs" / "explain.md"
FOLDER = Path(__file__).parents[1] / "results" / "explain"
SETS = {  # texts nobody had fitted to, oldest first
    "held-out.json": "judged.json",
    "second.json": "second-judged.json",
    "third.json": "third-judged.json",
    "sixth.json": "sixth-judged.json",
    "seventh.json": "seventh-judged.json",
    "eighth.json": "eighth-judged.json",
    "ninth.json": "ninth-judged.json",
    "tenth.json": "tenth-judged.json",
    "eleventh.json": "eleventh-judged.json",
    "twelfth.json": "twelfth-judged.json",
    "thirteenth.json": "thirteenth-judged.json",
}
# Of these only links, hashes of the texts and judgements are kept: what is said today cannot be counted.
LINKS_ALONE = {"fourth-links.json": "fourth-judged.json", "fifth-links.json": "fifth-judged.json"}


def answers(name: str) -> list[dict[str, Any]]:
    """What `firstlight explain` says of each text that can be explained, e.g. of held-out.json."""
    found = []
    for text in json.loads((FOLDER / name).read_text()):
        if not text["explainable"]:
            continue
        said = explain_text(text["text"]).explanations
        found.append(
            {
                "link": text["link"],
                "product": text["product"],
                "text": text["text"],
                "true_cause": text["cause"],
                "answers": [
                    {
                        "code": each.signature.code,
                        "title": each.signature.title,
                        "cause": each.signature.cause,
                        "ways_out": [" ".join((way.say, *way.run)) for way in each.signature.ways_out],
                    }
                    for each in said[:3]
                ],
            }
        )
    return found


def report(name: str, document: dict[str, Any]) -> str:
    """Recall and precision as they were read, and how many first answers are others since."""
    judged: dict[str, dict[str, str]] = document["judged"]
    rows = [row for row in answers(name) if row["link"] not in document.get("left_out", {})]
    spoken = [row for row in rows if row["answers"]]
    lines = [f"{name}: {len(rows)} texts that can be explained, {len(spoken)} answered ({len(spoken) / len(rows):.2f})"]
    counts = Counter(each["verdict"] for each in judged.values())
    if read := counts["right"] + counts["wrong"]:
        first = {row["link"]: row["answers"][0]["code"] if row["answers"] else "" for row in rows}
        others = sum(each["code"] != first.get(link, "") for link, each in judged.items())
        lines += [f"  judged by reading, when the set was opened: {dict(counts)}"]
        lines += [f"  recall {counts['right'] / len(rows):.2f}, precision {counts['right'] / read:.2f}"]
        lines += _of_unknown_threads(judged)
        lines += [f"  first answers that are others since, by rows that may have been fitted to it: {others}"]
    return "\n".join(lines) + "\n"


def _of_unknown_threads(judged: dict[str, dict[str, str]]) -> list[str]:
    """The same of the threads that no row cites and no earlier list holds, where a set has others too."""
    counts = Counter(each["verdict"] for each in judged.values() if not each.get("known"))
    total, read = sum(counts.values()), counts["right"] + counts["wrong"]
    if total == len(judged) or not read:
        return []
    recall, precision = counts["right"] / total, counts["right"] / read
    return [f"  in no row and in no earlier list: {total}, recall {recall:.2f}, precision {precision:.2f}"]


def report_of_links(name: str) -> str:
    """Recall and precision of a set whose texts are not kept, as they were read; '' where no judgements are there."""
    file = FOLDER / LINKS_ALONE[name]
    if not file.exists():
        return ""
    counts = Counter(each["verdict"] for each in json.loads(file.read_text())["judged"].values())
    total, read = sum(counts.values()), counts["right"] + counts["wrong"]
    answered = total - counts["miss"]
    return (
        f"{name}: {total} texts that can be explained, {answered} answered ({answered / total:.2f})\n"
        f"  judged by reading, when the set was opened: {dict(counts)}\n"
        f"  recall {counts['right'] / total:.2f}, precision {counts['right'] / read:.2f}\n"
        "  the texts are in the threads alone: what is said today is not counted\n"
    )


def filled(page: str) -> str:
    """docs/explain.md with its tables of misses made anew."""
    for name in _opened():
        page = with_part(page, f"misses of {name}", functools.partial(misses, name))
    for name in LINKS_ALONE:
        page = with_part(page, f"misses of {name}", functools.partial(misses_of_links, name))
    return with_part(page, "famous threads", explain_famous.table)


def _opened() -> dict[str, str]:
    """The sets that were opened and judged, e.g. {'third.json': 'third-judged.json'}."""
    return {name: judged for name, judged in SETS.items() if (FOLDER / judged).exists()}


def misses(name: str) -> str:
    """A table of the texts that were not answered rightly when the set was opened, the wrong answers first."""
    document = json.loads((FOLDER / SETS[name]).read_text())
    reasons = {**document.get("missed", {}), **document.get("wrong", {})}
    reasons |= {link: each["why"] for link, each in document["judged"].items() if each.get("why")}
    rows: dict[str, list[str]] = {"wrong": [], "miss": [], "wrapper": []}
    for row in answers(name):
        if row["link"] in document.get("left_out", {}):
            continue
        judged = document["judged"].get(
            row["link"], {"verdict": "miss", "code": ""}
        )  # the first set lists answers only
        if judged["verdict"] == "right":
            continue
        said = f"`{judged['code']}`" if judged["code"] else "nothing"
        why = reasons.get(row["link"], row["true_cause"]).removeprefix("No answer: ")
        today = f"`{row['answers'][0]['code']}`" if row["answers"] else "nothing"
        cells = (_short_link(row["link"]), said, _cell(why), "the same" if today == said else today)
        rows[judged["verdict"]].append(f"| {' | '.join(cells)} |\n")
    head = "| Thread | It said | Why that is wrong, or what it should have known | Today it says |\n|---|---|---|---|\n"
    return head + "".join(line for lines in rows.values() for line in lines)


def misses_of_links(name: str) -> str:
    """The same of a set whose texts are not kept, with the reason where the judge wrote one down."""
    judged = json.loads((FOLDER / LINKS_ALONE[name]).read_text())["judged"]
    rows: dict[str, list[str]] = {"wrong": [], "wrapper": [], "miss": []}
    for link, each in judged.items():
        if each["verdict"] == "right":
            continue
        said = f"`{each['code']}`" if each.get("code") else "nothing"
        cells = (_short_link(link), said, each["verdict"], _cell(each.get("why", "")) or "not written down")
        rows[each["verdict"]].append(f"| {' | '.join(cells)} |\n")
    head = "| Thread | It said | Judged | Why |\n|---|---|---|---|\n"
    return head + "".join(line for lines in rows.values() for line in lines)


def _short_link(link: str) -> str:
    if not link.startswith("https://github.com/") or len(link.split("/")) < 7:
        return f"<{link}>"
    owner, repository, _, number = link.removeprefix("https://github.com/").split("/")[:4]
    return f"[{owner}/{repository}#{number}]({link})"


def _cell(text: str) -> str:
    return textwrap.shorten(text, 170, placeholder=" ...").replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    parser = argparse.ArgumentParser(description="Recall and precision of `firstlight explain` on posted errors.")
    parser.add_argument("--answers", metavar="FILE", help="write the answers to the texts of --set to FILE, and stop")
    parser.add_argument("--set", default=list(SETS)[-1], choices=("open.json", *SETS), help="default: the newest")
    parser.add_argument(
        "--misses", action="store_true", help="write the tables of misses into docs/explain.md, and stop"
    )
    options = parser.parse_args()
    if options.misses:
        PAGE.write_text(filled(PAGE.read_text()))
        return
    if options.answers:
        Path(options.answers).write_text(json.dumps(answers(options.set), indent=1, ensure_ascii=False) + "\n")
        return
    said = [report("open.json", {"judged": {}})]
    said += [report(name, json.loads((FOLDER / file).read_text())) for name, file in _opened().items()]
    said += [report_of_links(name) for name in LINKS_ALONE]
    sys.stdout.write("".join(said))


if __name__ == "__main__":
    main()
