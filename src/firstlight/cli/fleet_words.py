"""What stands behind `--` in `fleet apply` and `fleet plan`: options of `apply`, checked before a host is asked."""

from __future__ import annotations

from typing import Any

import click

from firstlight.cli.planning import Wanted, plan_options
from firstlight.errors import BadInput
from firstlight.frozen import dataclass
from firstlight.secrets import masked


@dataclass(frozen=True, slots=True)
class Words:
    """What is asked for on every host, and the words that say it to `firstlight apply` there."""

    wanted: Wanted
    python: str
    given: tuple[str, ...]

    @property
    def for_plan(self) -> tuple[str, ...]:
        """Those that `plan` takes too: --with and --no-verify are of `apply` alone."""
        kept: list[str] = []
        skips = False
        for word in self.given:
            if not (skips or word == "--no-verify" or word == "--with" or word.startswith("--with=")):
                kept.append(word)
            skips = word == "--with" and not skips
        return tuple(kept)


@click.command("apply", add_help_option=False)
@plan_options
@click.option("--with", "optional", metavar="ID", multiple=True)
@click.option("--no-verify", is_flag=True)
@click.option("--python", metavar="PATH", default="")
def _behind(wanted: Wanted, **given: Any) -> tuple[Wanted, str]:
    return wanted, given["python"]


def parse_words(words: tuple[str, ...]) -> Words:
    """The options, refused where `apply` would refuse them, and where one holds a secret."""
    for word in words:
        if masked(word) != word:
            raise BadInput(
                f"{masked(word)!a} holds a secret, which would stand in lists of processes on every host; put it into "
                "the pip.conf or the environment there, and leave it out here"
            )
    if "--help" in words:
        raise BadInput("after -- come options of `firstlight apply`; `firstlight apply --help` lists them")
    wanted, python = _behind.main(list(words), prog_name="firstlight apply", standalone_mode=False)
    if python and not python.startswith("/"):
        raise BadInput(f"--python {python!a}: accepted is an absolute path on the hosts, e.g. /opt/venv/bin/python")
    return Words(wanted, python, words)
