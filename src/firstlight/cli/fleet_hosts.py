"""Which hosts a verb of the fleet means: the options that name them, and the inventory that Ansible is given."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput
from firstlight.fleet.target import Target

if TYPE_CHECKING:
    from firstlight.fleet.ssh import Reached

_FROM = ("--hosts", "-i", "--slurm")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def host_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add -i, --hosts, --slurm and --ssh-config."""
    for option in (
        click.option("--ssh-config", metavar="FILE", default="", help="This ssh_config file instead of your own."),
        click.option("--slurm", "partition", metavar="PARTITION", default="", help="The nodes of a partition (sinfo)."),
        click.option("--hosts", metavar="A,B,...", default="", help="Hosts: [USER@]HOST[:PORT] or of ssh_config."),
        click.option("-i", "--inventory", metavar="FILE", default="", help="Ansible's inventory, or one host a line."),
    ):  # fmt: skip
        function = option(function)
    return function


def named_from(given: dict[str, Any]) -> tuple[str, ...]:
    """The options that name hosts and were given."""
    values = (given["hosts"], given["inventory"], given["partition"])
    return tuple(name for name, value in zip(_FROM, values, strict=True) if value)


def targets_of(given: dict[str, Any]) -> tuple[Target, ...]:
    """The hosts, each once; refused before the first connection where two names lead to one machine."""
    return tuple(each.target for each in reached_of(given))


def reached_of(given: dict[str, Any]) -> tuple[Reached, ...]:
    """The hosts, each once, with where ssh goes for them."""
    from firstlight.fleet.inventory import of_slurm
    from firstlight.fleet.ssh import require_config, where_ssh_goes
    from firstlight.fleet.target import once_each, parse_targets

    named = named_from(given)
    if len(named) != 1:
        said = f"{' and '.join(named)} were given" if named else "no hosts were named"
        raise BadInput(f"{said}; give one of {', '.join(_FROM)}, e.g. --hosts node01,node02")
    require_config(given["ssh_config"])
    if given["hosts"]:
        targets = parse_targets(given["hosts"])
    else:
        targets = _of_inventory(given) if given["inventory"] else of_slurm(given["partition"])
    reached = tuple(where_ssh_goes(target, config=given["ssh_config"]) for target in targets)
    once_each(tuple((each.target, each.where) for each in reached))
    return reached


def host_words(target: Target, given: dict[str, Any]) -> tuple[str, ...]:
    """What a verb for one machine is given to mean this host, asked in the same way."""
    pairs = (("--host", target.spec), ("--ssh-config", given["ssh_config"]), ("--python", given.get("python", "")))
    return tuple(word for name, value in pairs if value for word in (name, value))


def _of_inventory(given: dict[str, Any]) -> tuple[Target, ...]:
    from firstlight.fleet.inventory import from_file

    return from_file(given["inventory"], vault=given.get("vault_password_file", ""))


def inventory_for(given: dict[str, Any], targets: tuple[Target, ...], folder: str) -> str:
    """The inventory that Ansible reads: the team's own as it is, or one that is written to a folder that is there."""
    from firstlight.fleet.inventory import is_plain

    if given["inventory"] and not is_plain(given["inventory"]):
        return str(os.path.abspath(given["inventory"]))
    odd = next((target.name for target in targets if not _PLAIN.fullmatch(target.name)), "")
    if odd:
        raise BadInput(
            f"{odd!a} cannot be a name in an inventory of Ansible; give it one with: firstlight fleet add NAME {odd}"
        )
    path = os.path.join(folder, "inventory.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"all": {"hosts": {target.name: _variables(target) for target in targets}}}, file, indent=1)
    return path


def _variables(target: Target) -> dict[str, Any]:
    user = {"ansible_user": target.user} if target.user else {}
    port = {"ansible_port": target.port} if target.port else {}
    return {"ansible_host": target.host, **user, **port}
