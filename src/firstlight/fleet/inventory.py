"""Which hosts: a list, a plain file, an Ansible inventory read by Ansible itself, a partition of Slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from firstlight.errors import BadInput, CouldNotLook
from firstlight.fleet.target import Target, checked, parse_target
from firstlight.opening import open_given

_LIMIT = 16 << 20
_WAIT_S = 60
INSTALL = "pip install 'ansible-core>=2.16'"
_LOOP = "creates a recursive dependency loop."  # the end of Ansible's sentence
_WHAT_HELPS = (  # part of a complaint of Ansible's, and what to do then
    ("no vault secrets found", " Give the password of the vault in a file: --vault-password-file FILE"),
    ("Decryption failed", " Another password is in the file of --vault-password-file"),
    (
        "failed to parse inventory source",
        "; accepted: an inventory of Ansible, or one host a line, its name without spaces",
    ),
)
_PLAIN_LINE = re.compile(r"[A-Za-z0-9_.@:\[\]%+-]+")


def from_file(path: str, *, vault: str = "") -> tuple[Target, ...]:
    """The hosts of an inventory: one name a line is read here, all else by ansible-inventory."""
    if not os.path.isdir(path) and (plain := _plain_names(path)) is not None:
        return checked(tuple(parse_target(name) for name in plain))
    return checked(tuple(_of_ansible(path, vault=vault)))


def is_plain(path: str) -> bool:
    """Whether a file has one host a line, so that Ansible is not needed to read it."""
    return not os.path.isdir(path) and _plain_names(path) is not None


def selected(path: str, *, limit: str = "", vault: str = "") -> tuple[Target, ...]:
    """The hosts that Ansible selects of an inventory; `limit` is a pattern of its own, `vault` the password's file."""
    found = tuple(_of_ansible(path, limit=limit, vault=vault))
    if limit and not found:
        raise BadInput(f"--limit {limit!a} selects no host of the inventory; `--limit all` takes every one")
    return checked(found)


def ansible_program(name: str) -> str:
    """A program of ansible-core: that beside our own Python first; "" where there is none."""
    return shutil.which(name, path=f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', '')}") or ""


def of_slurm(partition: str) -> tuple[Target, ...]:
    """The nodes of a partition, as sinfo lists them."""
    if not re.fullmatch(r"[A-Za-z0-9_.,-]{1,200}", partition) or partition.startswith("-"):
        raise BadInput(f"--slurm {partition!a}: accepted is the name of a partition, e.g. gpu")
    done = _run(
        ("sinfo", "--noheader", "--Node", f"--partition={partition}", "--format=%N"), needs="Slurm's client tools"
    )
    names = dict.fromkeys(done.split())
    if not names:
        raise BadInput(f"--slurm {partition}: sinfo names no node of it; `sinfo --summarize` lists the partitions")
    return checked(tuple(parse_target(name) for name in names))


def _plain_names(path: str) -> list[str] | None:
    """The names of a file with one host a line; None where it is another kind of inventory."""
    text = _read(path)
    names = [line.split("#", 1)[0].strip() for line in text.splitlines()]
    names = [name for name in names if name]
    if os.access(path, os.X_OK) or path.endswith((".yml", ".yaml", ".json", ".toml", ".ini", ".cfg")):
        return None
    return names if all(_PLAIN_LINE.fullmatch(name) and not name.startswith("[") for name in names) else None


def _read(path: str) -> str:
    try:
        with open_given(path) as file:
            data = file.read(_LIMIT + 1)
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput(
            f"-i {path!a}: {why}; accepted: an inventory of Ansible, or a file with one host a line"
        ) from None
    if len(data) > _LIMIT:
        raise BadInput(f"-i {path!a}: larger than {_LIMIT >> 20} MiB; not an inventory")
    return data.decode("utf-8", "replace")


def _of_ansible(path: str, *, limit: str = "", vault: str = "") -> Iterator[Target]:
    program = ansible_program("ansible-inventory")
    if not program:
        raise BadInput(
            f"-i {path!a} is read by Ansible, which is not installed; install it with: {INSTALL}. "
            "Or give a file with one host a line"
        )
    # A file of a folder that cannot be read would leave its hosts out, and the answer would look whole.
    env = {"ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True", **os.environ}
    more = (*((f"--limit={limit}",) if limit else ()), *((f"--vault-password-file={vault}",) if vault else ()))
    document = _parsed(_run((program, "--inventory", path, "--list", *more), needs="ansible-core", env=env), path)
    variables = _inside(_inside(document, "_meta"), "hostvars")
    for name in dict.fromkeys(_hosts(document)):
        yield _target(name, _inside(variables, name))


def _parsed(text: str, path: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise BadInput(
            f"-i {path!a}: ansible-inventory did not print JSON; try: ansible-inventory -i {path} --list"
        ) from None
    if not isinstance(document, dict):
        raise BadInput(f"-i {path!a}: ansible-inventory printed no groups; try: ansible-inventory -i {path} --list")
    return document


def _hosts(document: dict[str, Any]) -> Iterator[str]:
    for group, content in document.items():
        if group != "_meta" and isinstance(content, dict):
            yield from (name for name in content.get("hosts", ()) if isinstance(name, str))


def _inside(document: dict[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _target(name: str, variables: dict[str, Any]) -> Target:
    """The name that the team uses, and where its variables say that ssh goes."""
    host = str(variables.get("ansible_host") or name)
    user = str(variables.get("ansible_user") or variables.get("ansible_ssh_user") or "")
    port = str(variables.get("ansible_port") or variables.get("ansible_ssh_port") or "")
    bracketed = f"[{host}]" if ":" in host and port else host
    whole = (f"{user}@" if user else "") + bracketed + (f":{port}" if port else "")
    parse_target(name)  # what stands in tables and files is held to the same letters
    reached = parse_target(whole)
    return Target(name, reached.host, reached.user, reached.port)


def _run(argv: tuple[str, ...], *, needs: str, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_WAIT_S, env=env
        )
    except FileNotFoundError:
        raise BadInput(f"{argv[0]} is not here; it comes with {needs}") from None
    except subprocess.TimeoutExpired:
        raise CouldNotLook(f"{os.path.basename(argv[0])} gave no answer within {_WAIT_S} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        loop = next((line for line in lines if line.endswith(_LOOP)), "")
        if loop:
            raise BadInput(f"the inventory is cyclic, a group is inside itself; ansible-inventory says: {loop[:300]}")
        said = next(
            (line for line in lines if line.startswith(("ERROR", "[ERROR]", "sinfo"))), lines[-1] if lines else ""
        )
        more = next((more for words, more in _WHAT_HELPS if words in said), "")
        raise BadInput(f"{os.path.basename(argv[0])} ended with {done.returncode}: {said[:300]}{more}")
    return done.stdout.decode("utf-8", "replace")
