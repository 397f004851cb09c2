"""A plan: deterministic, one digest, printed as exact commands and diffs, and as a document that fits its schema."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from firstlight.diagnosis.finding import Goal
from firstlight.errors import BadInput
from firstlight.facts.document import from_document_text, to_text
from firstlight.plan.option import Kind
from firstlight.plan.plan import choose, plan_for
from firstlight.report.layout import plain
from firstlight.report.plan_json import no_plan_document, plan_document
from firstlight.report.plan_text import no_plan_text, plan_text
from firstlight.report.steps_lines import command_lines
from firstlight.ways.diffs import FileText, unified_diff
from firstlight.ways.extras import Extras, Setting
from firstlight.ways.step import FileChange
from tests.plan.planning import NAMES, option_of, patched, question_of, ranked_of

SCHEMAS = Path(__file__).parents[2] / "src/firstlight/schemas"
SCHEMA = jsonschema.Draft202012Validator(json.loads((SCHEMAS / "plan-2.json").read_text()))


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_fits_its_schema_and_says_the_same_in_text(name: str) -> None:
    question, ranked = question_of(name), ranked_of(name)
    extras = Extras((Setting("NCCL_DEBUG", "WARN"),))
    for option in ranked.options:
        plan = plan_for(question, option, extras=extras)
        document: dict[str, Any] = json.loads(json.dumps(plan_document(question, plan, ranked)))
        SCHEMA.validate(document)
        assert next(iter(document)) == "schema"
        text = plain(plan_text(question, plan, ranked))
        for step in document["steps"]:
            assert f"[{step['id']}]" in text
            for argv in step["commands"]:
                own = step["kind"] == "manual" and argv[:2] == ["sh", "-c"]
                assert f"   {argv[2]}\n" if own else command_lines(tuple(argv), 3) in text
        assert plan.digest in text
        assert "verified" not in text
        assert "\x1b" not in text
        assert all(line == line.rstrip() for line in text.splitlines())


def test_a_machine_without_an_option_has_a_document_and_reasons() -> None:
    question, ranked = question_of("h100-driver-570"), ranked_of("h100-driver-570")
    nothing = replace(ranked, options=())
    document = no_plan_document(question, nothing)
    SCHEMA.validate(document)
    assert document["option"] is None
    text = no_plan_text(question, nothing)
    for option in nothing.rejected:
        assert option.title in text


@pytest.mark.parametrize("name", ["h100-driver-570", "uv-lock-would-undo", "cuda-lib64-first", "v100-torch-cu130"])
def test_the_same_machine_gives_the_same_digest_also_from_its_document(name: str) -> None:
    question, ranked = question_of(name), ranked_of(name)
    plan = plan_for(question, ranked.options[0], extras=Extras())
    again = plan_for(question, ranked.options[0], extras=Extras())
    assert plan == again
    facts = from_document_text(json.loads(to_text(question.facts)), "facts.json")
    replayed = plan_for(replace(question, facts=facts), ranked.options[0], extras=Extras())
    assert replayed.digest == plan.digest


def test_the_digest_changes_with_what_would_be_done() -> None:
    question, option = question_of("h100-driver-570"), ranked_of("h100-driver-570").options[0]
    digests = {
        plan_for(question, option, extras=extras).digest
        for extras in (
            Extras(),
            Extras((Setting("NCCL_DEBUG", "WARN"),)),
            Extras((Setting("NCCL_DEBUG", "INFO"),)),
            Extras(state="/elsewhere"),
        )
    }
    assert len(digests) == 4


def test_an_option_is_chosen_by_place_by_id_or_as_the_best() -> None:
    ranked = ranked_of("h100-driver-570")
    assert choose(ranked, "") is ranked.options[0]
    assert choose(ranked, "2") is ranked.options[1]
    assert choose(ranked, ranked.options[-1].id) is ranked.options[-1]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("0", "accepted: 1 to 7, or an id"),
        ("99", "accepted: 1 to 7, or an id"),
        ("no-such-option", "no option is called that; accepted: a number, or one of forward-compat:"),
        ("not:driver-580", "it cannot work here: a container cannot change the driver"),
    ],
)
def test_an_option_that_is_not_there_or_cannot_work_is_refused(wanted: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        choose(ranked_of("h100-driver-570"), wanted)
    assert said in str(caught.value)


def test_nothing_to_do_is_a_plan_without_steps() -> None:
    question, ranked = question_of("h200"), ranked_of("h200")
    plan = plan_for(question, choose(ranked, ""), extras=Extras())
    assert plan.steps == ()
    assert plain(plan_text(question, plan, ranked)).endswith("\nnothing to do\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "a\nb\n"),
        ("a\nb\n", "a\nc\n"),
        ("a", "a\n"),
        ("a\n", "a"),
        ("a\nb", "b"),
        ("\n\n\n", "\n\n"),
        ("a\r\nb\r\n", "a\r\nc\r\n"),
        ("".join(f"{n}\n" for n in range(40)), "".join(f"{n}\n" for n in range(40) if n not in (3, 30))),
    ],
)
def test_patch_makes_of_our_diff_exactly_the_text_that_was_planned(before: str, after: str, tmp_path: Path) -> None:
    assert patched(FileChange("/x", before, after), tmp_path) == after


def test_a_diff_of_a_new_and_of_a_removed_file_names_the_null_device() -> None:
    assert unified_diff(FileChange("/x", "", "a\n")).startswith("--- /dev/null\n+++ /x\n")
    assert unified_diff(FileChange("/x", "a\n", "", removes=True)).startswith("--- /x\n+++ /dev/null\n")
    assert unified_diff(FileChange("/x", "a\n", "a\n")) == ""


def test_a_home_that_was_not_given_is_guessed_from_the_folders_that_were_looked_at() -> None:
    assert Extras().home_for(question_of("uv-lock-would-undo").facts) == "/home/user"
    assert Extras().home_for(question_of("h200-compat-first").facts) == "/root"
    assert Extras(home="/data/me/").home_for(question_of("h200").facts) == "/data/me"
    assert Extras(home="/h").state_for(question_of("h200").facts) == "/h/.local/state/firstlight"


def test_a_file_that_is_written_already_shows_no_diff_and_is_done() -> None:
    question = question_of("h200")
    asked = Extras((Setting("NCCL_DEBUG", "WARN"),), home="/h")
    first = plan_for(question, option_of(Kind.NOTHING), extras=asked).steps[0].files[0]
    written = replace(asked, files=(FileText(first.path, first.after),))
    second = plan_for(question, option_of(Kind.NOTHING), extras=written).steps[0].files[0]
    assert unified_diff(second) == ""
    assert second.after == first.after


def test_options_for_building_extensions_are_planned_too() -> None:
    question, ranked = (
        question_of("h100-nvcc-13-torch-cu128", Goal.BUILD_EXTENSIONS),
        ranked_of("h100-nvcc-13-torch-cu128", Goal.BUILD_EXTENSIONS),
    )
    kinds = {option.kind for option in ranked.options}
    assert Kind.TOOLKIT in kinds
    for option in ranked.options:
        assert plan_for(question, option, extras=Extras()).steps


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_removed_before_what_is_installed_after_it_was_fetched(name: str) -> None:
    for option in ranked_of(name).options:
        fetched: set[str] = set()
        removed = False
        plan = plan_for(question_of(name), option, extras=Extras())
        for argv in (argv for step in plan.steps for argv in step.commands):
            fetches = "download" in argv or "--target" in argv
            removed = removed or "uninstall" in argv
            pins = {word for word in argv if "==" in word}
            fetched |= pins if fetches else set()
            if removed and "install" in argv and not fetches and "--no-build-isolation" not in argv:
                assert pins <= fetched, f"{option.title}: {argv}"


@pytest.mark.parametrize("name", NAMES)
def test_no_way_back_installs_whatever_fits_a_pattern(name: str) -> None:
    for option in ranked_of(name).options:
        for step in plan_for(question_of(name), option, extras=Extras()).steps:
            for argv in step.undo:
                assert not ("install" in argv and any("*" in word.partition("=")[0] for word in argv)), (
                    f"{option.title}: {argv}"
                )
