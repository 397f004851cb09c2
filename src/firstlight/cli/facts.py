"""`firstlight facts`: look at a machine and print what it is."""

from __future__ import annotations

from dataclasses import replace

import click

from firstlight.cli.host_option import host_option
from firstlight.cli.looking import look_options, look_patiently
from firstlight.facts.document import to_text
from firstlight.facts.look import Look, Names

_ZIPAPP_HELP = "Write one file that prints the same facts on a host with nothing but Python 3.10+, and stop."


@click.command(
    short_help="look: what this machine is",
    epilog="Example: firstlight facts --json > machine.json; elsewhere: firstlight facts --facts machine.json",
)
@click.option("--json", "as_json", is_flag=True, help="Print the shareable document (schema firstlight.facts/1).")
@click.option("--record", metavar="DIR", default="", help="Also keep the raw evidence in DIR, to replay this machine.")
@click.option("--identify", is_flag=True, help="Keep real host, user and device names instead of pseudonyms.")
@click.option("--all", "everything", is_flag=True, help="Text: every fact, also the unknown ones with their reason.")
@click.option("--write-zipapp", metavar="FILE", default="", help=_ZIPAPP_HELP)
@look_options
@host_option
def command(
    look: Look,
    as_json: bool,  # noqa: FBT001 click's flags
    record: str,
    identify: bool,  # noqa: FBT001
    everything: bool,  # noqa: FBT001
    write_zipapp: str,
) -> None:
    """Look at this machine and print what it is: driver, GPUs, libcuda, torch, toolkits, container, limits.

    Changes nothing, does not import torch, and works when half of the machine is broken. Names of people, hosts and
    devices are replaced by pseudonyms unless --identify is given.
    """
    if write_zipapp:
        from firstlight.cli.zipapp import write_zipapp as write

        click.echo(write(write_zipapp), err=True)
        return
    facts = look_patiently(replace(look, record=record, names=Names.REAL if identify else Names.PSEUDONYMS))
    if record:
        click.echo(f"kept the evidence in {record}; replay it with: firstlight facts --facts {record}", err=True)
    if as_json:
        click.echo(to_text(facts), nl=False)
        return
    from firstlight.report.facts_text import Detail, facts_text

    click.echo(facts_text(facts, Detail.ALL if everything else Detail.FOUND), nl=False)
