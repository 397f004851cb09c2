"""A fleet to look at: the table of hosts, then each odd row with what it differs in; the document is inside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstlight.fleet.folding import folded
from firstlight.fleet.judged import Fleet, Row, Verdict
from firstlight.numerals import counted
from firstlight.report.fleet_json import handed_on
from firstlight.report.fleet_rows import HEADINGS, against_words, cells_of, difference_words, verdicts_counted
from firstlight.report.host_names import HostNames
from firstlight.report.html.markup import Markup, el, section
from firstlight.report.html.page import Page, lead, page_text, sections_of, table

_TONES = {0: "good", 1: "bad", 3: "warn", 4: "bad"}


def fleet_page(fleet: Fleet, names: HostNames, document: Mapping[str, Any]) -> str:
    """The whole file; `names` says what each host is called in it."""
    odd = [row for row in fleet.rows if row.is_odd or row.reason]
    sections = sections_of(
        section("hosts", "Hosts", _table(fleet, names)),
        section("odd", "What is odd", *(_odd(row, names) for row in odd)) if odd else Markup(""),
        section("blocked", "What blocks", *blocks) if (blocks := _blocked(fleet, names)) else Markup(""),
    )
    said = verdicts_counted(fleet)
    verdict = f"{counted(sum(len(row.hosts) for row in fleet.rows), 'host')}: {said}."
    entries = (("hosts", "Hosts"), ("odd", "What is odd"), ("blocked", "What blocks"))
    there = "".join(sections)
    return page_text(
        Page(
            title=verdict,
            header=lead("fleet doctor", verdict, (), tone=_TONES[fleet.exit_code]),
            sections=sections,
            menu=tuple((anchor, name) for anchor, name in entries if f'<section id="{anchor}"' in there),
            documents=(document,),
            made=max((row.state.facts.collected_at for row in fleet.rows if row.state is not None), default=""),
        )
    )


def _table(fleet: Fleet, names: HostNames) -> Markup:
    rows = []
    for row in fleet.rows:
        cells = cells_of(row)
        rows.append((_hosts(row.hosts, names), cells.gpus, cells.driver, cells.cuda, cells.torch, cells.verdict))
    return table(HEADINGS, rows, caption="Equal hosts share a row; the odd ones come first.")


def _hosts(hosts: tuple[str, ...], names: HostNames) -> str:
    listed = folded(names[host] for host in hosts)
    return listed if len(hosts) == 1 else f"{listed} ({len(hosts)})"


def _odd(row: Row, names: HostNames) -> Markup:
    head = el("h3", _hosts(row.hosts, names))
    if row.reason:
        do = (el("pre", names.apply(row.do)),) if row.do else ()
        return el("article", head, el("p", names.apply(row.reason)), *do)
    said = against_words(handed_on(row, names), lambda hosts: folded(names[host] for host in hosts))
    lines = tuple(el("li", difference_words(drift)) for drift in row.differs)
    return el("article", head, el("p", said), *((el("ul", *lines),) if lines else ()))


def _blocked(fleet: Fleet, names: HostNames) -> list[Markup]:
    told = []
    for row in fleet.rows:
        state = row.state if row.verdict is Verdict.BLOCKED else None
        if state is not None and (primary := state.primary) is not None:
            seen = [el("p", names.of_machine(state.name, state.names, each)) for each in (*primary.saw, primary.means)]
            told.append(el("article", el("h3", f"{_hosts(row.hosts, names)}: {primary.title}"), *seen))
    return told
