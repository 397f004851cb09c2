"""`firstlight rules`: what doctor can find, and one rule in full."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

_SEVERITIES = click.Choice(["blocks", "degrades", "note"])


def _codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from firstlight.diagnosis.rules import RULES

    return [rule.code for rule in RULES if rule.code.startswith(incomplete)]


@click.command(
    short_help="what doctor can find: every rule, or one in full",
    epilog="Examples: firstlight rules; firstlight rules driver-too-old-for-wheel; firstlight rules --severity blocks. "
    "Why a rule did not fire on a machine: firstlight doctor --why-not CODE",
)
@click.option("--severity", type=_SEVERITIES, default=None, help="List the rules of this severity alone.")
@click.option("--json", "as_json", is_flag=True,
              help="One JSON document (schema firstlight.rules/1; with CODE firstlight.rule/2).")  # fmt: skip
@click.argument("code", required=False, default="", shell_complete=_codes)
def command(*, code: str, severity: str | None, as_json: bool) -> None:
    """List the rules that doctor judges a machine by, or explain the one with this CODE.

    Nothing is looked at. A rule says when it fires, what follows, the error you meet, and where that is documented.
    """
    from firstlight.errors import BadInput

    if code and severity:
        raise BadInput(f"--severity {severity} and {code} were both given; one rule needs no list. Leave one out.")
    click.echo(_one(code, as_json=as_json) if code else _all(severity, as_json=as_json), nl=False)


def _one(code: str, *, as_json: bool) -> str:
    from firstlight.diagnosis.rules import rule_named

    rule = rule_named(code)
    if as_json:
        from firstlight.report.rule_json import rule_document

        return _document(rule_document(rule))
    from firstlight.report.doctor_text import rule_text

    return rule_text(rule)


def _all(severity: str | None, *, as_json: bool) -> str:
    from firstlight.diagnosis.rules import RULES
    from firstlight.report.rules_text import rules_document, rules_text

    rules = tuple(rule for rule in RULES if severity in (None, rule.severity.value))
    return _document(rules_document(rules)) if as_json else rules_text(rules)


def _document(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1) + "\n"
