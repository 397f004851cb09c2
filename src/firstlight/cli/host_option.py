"""--host: another machine in the place of this one, looked at over ssh; nothing is left there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput, CouldNotLook
from firstlight.facts.look import Look
from firstlight.machine.recorded import RecordedMachine

if TYPE_CHECKING:
    from firstlight.diagnosis.finding import Rule


def host_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --host and --ssh-config; `look` is then of that host. Stands below `look_options`."""

    @functools.wraps(function)
    def with_host(look: Look, host: str, ssh_config: str, **rest: Any) -> Any:
        return function(look=_over_ssh(look, host, ssh_config), **rest)

    for option in (
        click.option("--ssh-config", metavar="FILE", default="",
                     help="With --host: this ssh_config file instead of your own."),
        click.option("--host", metavar="[USER@]HOST[:PORT]", default="",
                     help="Another machine, over ssh: the same answer, and nothing is left there."),
    ):  # fmt: skip
        with_host = option(with_host)
    return with_host


def _over_ssh(look: Look, host: str, config: str) -> Look:
    if not host:
        if config:
            raise BadInput(f"--ssh-config {config} works only with --host; add --host, or leave it out.")
        return look
    if look.facts_file:
        raise BadInput(
            f"--host {host} and --facts {look.facts_file} were both given; each names a machine. Leave one out."
        )
    from firstlight.fleet.ssh import require_config
    from firstlight.fleet.target import parse_target

    target = parse_target(host)
    require_config(config)

    @functools.cache
    def reached() -> RecordedMachine:
        from firstlight.cli.zipapp import zipapp_bytes
        from firstlight.fleet.look import Asking, look_over_ssh

        try:
            return look_over_ssh(target, Asking(zipapp_bytes(), config, look.python)).machine()
        except CouldNotLook as error:
            raise CouldNotLook(f"{host}: {error}") from None

    return replace(look, host=host, ssh_config=config, reached=reached)


def is_asked_by_sh(look: Look) -> bool:
    """Whether another machine is looked at that has no Python for the facts."""
    if look.reached is None:
        return False
    from firstlight.facts.by_sh import is_by_sh

    return is_by_sh(look.reached())


def rules_for(look: Look) -> tuple[Rule, ...]:
    """All rules; of a host that was asked by its sh those that look at nothing else than it was asked for."""
    from firstlight.diagnosis.rules import RULES

    if not is_asked_by_sh(look):
        return RULES
    from firstlight.fleet.sh_probe import rules_for_sh

    return rules_for_sh(RULES)


def refuse_by_sh(look: Look, what: str) -> None:
    """Stop where a host was asked by its sh, and what is wanted needs more."""
    if is_asked_by_sh(look):
        raise CouldNotLook(
            f"{look.host} has no Python 3.10 or newer: its sh says too little for {what}. Install python3 there, or "
            f"see what it says: firstlight facts --host {look.host}"
        )
