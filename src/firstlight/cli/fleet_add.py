"""`firstlight fleet add`: one host more, in files of the project."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

import click

from firstlight.errors import BadInput
from firstlight.fleet.adding import Added, config_with, inventory_with, parse_added, with_pod_of
from firstlight.opening import open_given

SCHEMA = "firstlight.fleet-add/1"
_LIMIT = 4 << 20


@click.command(
    "add",
    short_help="write a host into an ssh_config and an inventory of the project",
    epilog="Example: firstlight fleet add pod1 root@203.0.113.7:22022 --pod a1b2c3d4e5",
)
@click.argument("name")
@click.argument("address", metavar="[USER@]HOST[:PORT]")
@click.option("--pod", metavar="ID", default="", help="Keep its key under this id, not under its name: a pod that "
              "starts again has another address and the same key.")  # fmt: skip
@click.option("--folder", metavar="DIR", default="fleet", show_default=True, help="Where the files are.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written (schema firstlight.fleet-add/1).")
def command(name: str, address: str, **given: Any) -> None:
    """Write a block of ssh_config and a line of an inventory to a folder of the project; add it again to change it.

    No connection is made. Keys of hosts are strict: the command that is printed shows the key of the host, asks, and
    keeps it in the folder. Exit code 0: written; 2: nothing was.
    """
    added = parse_added(name, address, given["pod"])
    folder = given["folder"]
    if any(letter in os.path.abspath(folder) for letter in '"\n\r%'):
        raise BadInput(f"--folder {ascii(folder)[:80]}: ssh cannot be given a path with quotes, percent or newlines")
    config, inventory = os.path.join(folder, "ssh_config"), os.path.join(folder, "hosts")
    known = os.path.join(os.path.abspath(folder), "known_hosts")
    before = _text(config)
    added = with_pod_of(before, added)
    _write(folder, {config: config_with(before, added, known), inventory: inventory_with(_text(inventory), added)})
    asks = ("ssh", "-F", config, "-o", "StrictHostKeyChecking=ask", name, "true")
    doctor = ("firstlight", "fleet", "doctor", "-i", inventory, "--ssh-config", config)
    if given["as_json"]:
        click.echo(json.dumps(_document(added, (config, inventory), (asks, doctor)), indent=1))
        return
    click.echo(f"{name} is in {config} and {inventory}.")
    if added.pod and not given["pod"]:
        click.echo(f"It is pod {added.pod} as before, and its key stays; another pod is given with --pod.")
    click.echo(
        f"Its key is asked for once. Compare it with what the provider shows, then say yes:\n  {shlex.join(asks)}"
    )
    click.echo(f"next\n  {shlex.join(doctor)}")


def _document(added: Added, files: tuple[str, str], calls: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    target = added.target
    return {
        "schema": SCHEMA,
        "name": added.name,
        "host": target.host,
        "user": target.user,
        "port": target.port or 22,
        "key_alias": added.key_alias,
        "files": list(files),
        "calls": [list(call) for call in calls],
    }


def _text(path: str) -> str:
    try:
        with open_given(path) as file:
            return file.read(_LIMIT).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: cannot be read ({error}); give another --folder") from None


def _write(folder: str, files: dict[str, str]) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
        for path, text in files.items():
            with open(f"{path}.part", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{path}.part", path)
    except OSError as error:
        raise BadInput(f"--folder {folder}: {error.strerror}; give a folder you can write to") from None
