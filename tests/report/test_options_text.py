"""The list of options, from options made by hand: figures, what stays, what only running can tell."""

from __future__ import annotations

from typing import Any

from firstlight.facts.known import Known, Origin, Unknown
from firstlight.plan.option import Cost, Keeps, Kind, Option
from firstlight.plan.request import Ranked
from firstlight.report.layout import drawn_for, plain
from firstlight.report.options_text import options_list, takes
from firstlight.ways.way import Proof, Reversible, Risk

COST = Cost(Known(3.6, "at 50 MB/s", Origin.PLANNED), Known(900_000_000, "table"), Unknown("no table"), Unknown("no"))
FREE = Cost(Known(0.0, "nothing is fetched"), Known(0, "nothing is fetched"), Known(0, ""), Unknown("no"))


def _option(title: str, **more: Any) -> Option:
    usual: dict[str, Any] = {
        "id": "repair:x", "kind": Kind.REPAIR, "title": title, "ways": (), "because": ("a-b",), "stays": (),
        "after": (), "unsure": (), "proof": Proof.DOCUMENTED, "proof_by": "s", "keeps": Keeps.ALL, "satisfies": (),
        "leaves_out": (), "cost": COST, "needs_root": False, "reversible": Reversible.YES, "risk": Risk.LOW,
    }  # fmt: skip
    return Option(**{**usual, **more})


def _listed(*options: Option, columns: int = 110, most: int = 5) -> list[str]:
    with drawn_for(columns):
        return plain(options_list(Ranked(options, (), "rule", ()), (), most=most)).splitlines()


def test_an_option_is_one_line_with_its_figures() -> None:
    _, head, first, second = _listed(
        _option("install torch 2.9.0+cu128"), _option("x" * 70, cost=FREE, needs_root=True)
    )
    assert head.split() == ["options,", "best", "first", "proof", "min", "GB", "root"]
    assert first.split() == ["1.", "install", "torch", "2.9.0+cu128", "documented", "~4", "0.90", "no"]
    assert second.split() == ["2.", "x" * 70, "documented", "0", "0", "yes"]
    assert head.index("proof") == first.index("documented") == second.index("documented")


def test_on_a_narrow_screen_the_title_goes_on_below_and_nothing_is_lost() -> None:
    title = "install torch 2.9.0+cu128 and torchvision 0.24.0+cu128 in its place"
    _, _, *rows = _listed(_option(title), columns=80)
    assert len(rows) == 2
    assert " ".join((rows[0][:47].removeprefix("  1. ").strip(), rows[1].strip())) == title
    assert all(len(row) <= 80 for row in rows)


def test_what_still_blocks_and_what_only_running_can_tell_is_said() -> None:
    lines = _listed(
        _option("one", stays=("driver-not-loaded",), unsure=("libcuda.init_code", "libcuda.init_text", "x.y"))
    )
    assert "     left afterwards: driver-not-loaded" in lines
    assert "     not known until it is done: whether cuInit works, x.y" in lines


def test_what_is_not_known_is_a_question_mark_and_more_options_are_counted() -> None:
    unknown = Cost(Unknown("no size"), Unknown("no size"), Unknown("no size"), Unknown("no"))
    lines = _listed(*(_option(f"option {number}", cost=unknown) for number in range(7)))
    assert lines[2].split()[-3:] == ["?", "?", "no"]
    assert lines[-1] == "  and 2 more, which `plan --options` shows"


def test_an_assumption_is_printed_with_what_it_rests_on() -> None:
    assert takes(COST) == "~4 min, 0.90 GB to download; at 50 MB/s"
    money = Cost(COST.minutes, COST.download_bytes, Known(2_100_000_000, "t"), Known(0.18, "--rate"))
    assert takes(money) == "~4 min, 0.90 GB to download, 2.10 GB on disk, money 0.18; at 50 MB/s"
