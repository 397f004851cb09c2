"""`firstlight emit`: the plan as files for machines that are not here yet."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from firstlight.diagnosis.finding import Goal
from firstlight.emit.kinds import NAMES
from firstlight.errors import BadInput
from firstlight.facts.collect import Facts
from firstlight.opening import open_regular
from firstlight.secrets import masked

if TYPE_CHECKING:
    from firstlight.emit.document import Emitted
    from firstlight.emit.subject import Choices
    from firstlight.tables import Tables

# Which kinds read an option; given with another kind it would be dropped in silence.
_READ_BY = {
    "base": ("dockerfile", "devcontainer"),
    "image": ("runpod", "devcontainer"),
    "user": ("dockerfile", "devcontainer"),
    "name": ("dockerfile", "devcontainer", "runpod", "slurm"),
}
_GOALS = click.Choice([goal.value for goal in Goal])


@click.command(
    short_help="the plan as files: bash, dockerfile, devcontainer, runpod, slurm, ansible",
    epilog='Example: firstlight emit bash --for "H100, driver >= 550" --want "torch==2.9.0+cu130" --out pod',
)
@click.argument("kind", metavar="|".join(NAMES), type=click.Choice(NAMES))
@click.option("--want", "wants", metavar="SPEC", multiple=True,
              help='What is wanted, e.g. "torch==2.9.0+cu130"; none: what is there, or the newest.')  # fmt: skip
@click.option("--for", "class_text", metavar="CLASS", default=None,
              help='The machines it is for: GPUs and their oldest driver, e.g. "H100, driver >= 550".')  # fmt: skip
@click.option("--facts", "facts_file", metavar="PATH", default="",
              help="Instead of --for: facts of a machine, a recording or example:NAME. Default: this one.")  # fmt: skip
@click.option("--option", "option", metavar="ID|N", default="", help="Take this option of `firstlight plan --options`.")
@click.option("--goal", type=_GOALS, default=Goal.INFER.value, show_default=True, help="What the machine is for.")
@click.option("--python", default="", metavar="X.Y", help="The Python there. Default: of the facts, else 3.12.")
@click.option(
    "--platform",
    "machine",
    default="",
    help="x86_64 or aarch64. Default: of the facts; aarch64 for GH200, GB200, GB10 and Jetson, else x86_64.",
)
@click.option("--volume", metavar="FOLDER", default="/workspace", show_default=True,
              help="The folder there that outlives a restart.")  # fmt: skip
@click.option("--base", metavar="IMAGE", default="", help="dockerfile, devcontainer: the base, best with @sha256:...")
@click.option("--image", metavar="IMAGE", default="", help="runpod, devcontainer: the image that was built.")
@click.option("--user", metavar="NAME", default="", help="dockerfile: who runs in the image.")
@click.option(
    "--name", metavar="NAME", default="", help="dockerfile, devcontainer, runpod, slurm: of the image, template or job."
)
@click.option("--out", metavar="FOLDER", default="", help="Write the files there. Default: print the first one.")
@click.option("--force", is_flag=True, help="With --out: replace files that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print the files and their gates (schema firstlight.emit/1).")
def command(kind: str, class_text: str | None, facts_file: str, out: str, **given: Any) -> None:
    """Write the plan as files for other machines: the same packages, gates computed from the wheels inside.

    Nothing is changed but the folder of --out. The same machine, request and version give the same bytes. Exit code 0:
    written; 2: what was asked for cannot be had there, or cannot be written into such a file or folder.
    """
    from firstlight.emit.kinds import emit
    from firstlight.emit.subject import Asked, subject_of
    from firstlight.plan.request import Request
    from firstlight.plan.want import parse_wants
    from firstlight.tables import load

    _refuse_unread(kind, out, given)
    tables = load()
    request = Request(parse_wants(given["wants"]), Goal(given["goal"]))
    choices = _choices(given)
    facts, made_for = _machine(class_text, facts_file, machine=given["machine"], tables=tables)
    asked = Asked(request, given["option"], given["python"])
    subject = subject_of(facts, asked, made_for=made_for, tables=tables, choices=choices)
    emitted = emit(kind, subject)
    if out:
        _write(emitted, out, replaces="yes" if given["force"] else "no")
    if given["as_json"]:
        from firstlight.report.emit_json import emit_document

        click.echo(json.dumps(emit_document(subject, emitted), indent=1))
        return
    from firstlight.report.emit_text import emit_text

    click.echo(emit_text(subject, emitted), nl=False, err=True)
    if not out:
        click.echo(emitted.files[0].text, nl=False)
        if others := ", ".join(file.name for file in emitted.files[1:]):
            click.echo(f"firstlight: this is {emitted.files[0].name}; --out FOLDER writes {others} too", err=True)


def _refuse_unread(kind: str, out: str, given: dict[str, Any]) -> None:
    """Refuse what would change nothing: whoever typed it believes that it did."""
    for name, kinds in _READ_BY.items():
        if given[name] and kind not in kinds:
            raise BadInput(f"--{name} says nothing to {kind}; accepted: with {' or '.join(kinds)}. Leave it out.")
    if given["force"] and not out:
        raise BadInput("--force replaces files; it goes with --out FOLDER.")


def _choices(given: dict[str, Any]) -> Choices:
    from firstlight.emit.quoting import absolute_path
    from firstlight.emit.subject import Choices

    volume = absolute_path(given["volume"], what="--volume")
    if volume == "/":
        raise BadInput("--volume /: accepted is a folder of its own, e.g. /workspace.")
    if any(letter.isspace() for letter in volume):
        # seen with torch 2.13.0: Inductor splits the command of its C++ compiler at spaces, ld cannot find -ltorch then
        raise BadInput(
            f"--volume {volume!a}: torch.compile does not work below a folder with a space in its name. Give another."
        )
    return Choices(volume, given["base"], given["image"], given["user"], given["name"])


def _machine(class_text: str | None, facts_file: str, *, machine: str, tables: Tables) -> tuple[Facts, str]:
    """The facts to plan with, and whom the files are for, in words; names stay pseudonyms: files travel."""
    if class_text is not None and facts_file:
        raise BadInput("--for and --facts both say which machine is meant. Give one of them.")
    if class_text is not None:
        from firstlight.emit.imagined import parse_machine

        return parse_machine(class_text, tables, arch=machine), class_text.strip()
    from firstlight.cli.looking import look_patiently
    from firstlight.facts.look import Look

    facts = look_patiently(Look(facts_file=facts_file))
    if machine:
        facts = replace(facts, place=replace(facts.place, arch=machine))
    return facts, f"the machine of {os.path.basename(facts_file.rstrip('/'))}" if facts_file else "this machine"


def _write(emitted: Emitted, folder: str, *, replaces: str) -> None:
    """Every file, or none: one that is there and differs is not replaced without --force."""
    from firstlight.apply.disk import Disk

    disk = Disk()
    if odd := [file.name for file in emitted.files if file.name.startswith("/") or ".." in file.name.split("/")]:
        raise BadInput(f"{odd[0][:80]!a} would be written outside of --out. Give another --name.")
    if odd_place := _why_no_folder(os.path.abspath(folder)):
        raise BadInput(f"--out {folder}: {odd_place}; accepted: a folder, which is made where it is missing.")
    paths = [os.path.join(os.path.abspath(folder), file.name) for file in emitted.files]
    for path, file in zip(paths, emitted.files, strict=True):
        if replaces == "no" and os.path.lexists(path) and _text_of(path) != masked(file.text):
            raise BadInput(f"{path} is there already and differs. Give --force to replace it, or another --out.")
    for path, file in zip(paths, emitted.files, strict=True):
        disk.make_folders(os.path.dirname(path))
        disk.write(path, masked(file.text).encode(), mode=file.mode)
        click.echo(f"firstlight: wrote {path}", err=True)


def _why_no_folder(folder: str) -> str:
    """Why files cannot be put there, '' where nothing speaks against it: what is there of the path is a folder."""
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"{there} is a file"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} is not yours to write to"


def _text_of(path: str) -> str | None:
    try:
        with open_regular(path) as file:
            return file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
