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
    from firstlight.emit.subject import Choices, Subject
    from firstlight.tables import Tables

_FILES_OF_OTHERS = ("agents",)  # kinds that are made of the policy, not of a plan
# Which kinds read an option; given with another kind it would be dropped in silence.
_READ_BY = {
    "volume": ("bash", "runpod", "slurm"),
    "python": ("bash", "dockerfile", "devcontainer", "runpod", "slurm", "compose"),
    "base": ("dockerfile", "devcontainer", "compose", "kit"),
    "image": ("runpod", "devcontainer", "compose", "k8s"),
    "user": ("dockerfile", "devcontainer", "compose", "kit"),
    "name": ("dockerfile", "devcontainer", "runpod", "slurm", "compose", "k8s", "kit"),
    "runtime_class": ("k8s",),
    "bench": ("slurm", "k8s"),
    "nodes": ("slurm", "k8s"),
    "gpus": ("slurm", "k8s"),
    "firstlight_from_index": tuple(name for name in NAMES if name != "k8s"),
    "tools": ("agents",),
    "remove": ("agents",),
    "mcp": ("agents",),
}
_OF_A_PLAN = (
    "wants",
    "option",
    "machine",
    "force",
    *(name for name, kinds in _READ_BY.items() if "agents" not in kinds),
)
_OF_A_BUILD = ("archs", "flags", "features_on", "features_off")
_INSTEAD = {  # where a kind has its own way to say it
    "volume": "Images and the playbook keep everything in /opt/firstlight. Leave it out.",
    "python": "An image has its own; the playbook takes python3 of each host, or another: "
    "-e firstlight_python=python3.12. Leave it out.",
}
# No volume is there: the distribution's files, the kernel's, or what a restart empties.
_OF_THE_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys", "usr")
_GOALS = click.Choice([goal.value for goal in Goal])


@click.command(
    short_help=f"the plan as files: {', '.join(NAMES)}; hooks for coding tools: agents",
    epilog='\b\nExample: firstlight emit bash --for "H100, driver >= 550" --want "torch==2.9.0+cu130" --out pod\n'
    'Example: firstlight emit kit --for "H100, driver >= 580" --base none --out kit',
)
@click.argument("kind", metavar="KIND", type=click.Choice((*NAMES, *_FILES_OF_OTHERS)))
@click.option("--want", "wants", metavar="SPEC", multiple=True,
              help='What is wanted, e.g. "torch==2.9.0+cu130"; default: what is installed, or the newest.')  # fmt: skip
@click.option("--for", "class_text", metavar="CLASS", default=None,
              help='The machines it is for: GPUs and their oldest driver, e.g. "H100, driver >= 550".')  # fmt: skip
@click.option("--facts", "facts_file", metavar="PATH", default="",
              help="Instead of --for: facts of a machine, a recording or example:NAME. Default: this one.")  # fmt: skip
@click.option("--option", "option", metavar="ID|N", default="", help="Take this option of `firstlight plan --options`.")
@click.option("--goal", type=_GOALS, default=Goal.INFER.value, show_default=True, help="What the machine is for.")
@click.option(
    "--python",
    default="",
    metavar="X.Y",
    help="The Python there. Default: that of the facts, else the newest that torch and what goes with it work in.",
)
@click.option(
    "--platform",
    "machine",
    default="",
    help="x86_64 or aarch64. Default: that of the facts; aarch64 for GH200, GB200, GB10 and Jetson, else x86_64.",
)
@click.option("--volume", metavar="FOLDER", default="",
              help="bash, runpod, slurm: the folder there that survives a restart. Default: /workspace.")  # fmt: skip
@click.option(
    "--base",
    metavar="IMAGE",
    default="",
    help=(
        "dockerfile, devcontainer, compose: the base, best with @sha256:...; kit: needs @sha256:..., or `none` for no "
        "image."
    ),
)
@click.option(
    "--image", metavar="IMAGE", default="", help="runpod, devcontainer, compose, k8s: the image that was built."
)
@click.option(
    "--user", metavar="NAME", default="", help="dockerfile, devcontainer, compose, kit: who runs in the image."
)
@click.option("--runtime-class", metavar="NAME", default="", help="k8s: the RuntimeClass, e.g. nvidia. Default: none.")
@click.option("--bench", is_flag=True, help="slurm, k8s: a job that measures collectives between GPUs.")
@click.option("--nodes", type=click.IntRange(1, 1024), default=None, help="With --bench: nodes of the job. Default: 1.")
@click.option("--gpus", type=click.IntRange(1, 64), default=None, help="With --bench: GPUs of each node. Default: 1.")
@click.option(
    "--name", metavar="NAME", default="", help="A name for the image, template or job; not for bash and ansible."
)
@click.option(
    "--firstlight-from-index", is_flag=True,
    help="Let the files install firstlight from pip's index. Default: its own wheel, written into wheels/.",
)  # fmt: skip
@click.option("--build", metavar="TARGET", default="",
              help="bash, dockerfile: instead of a plan, a build from source, e.g. flash-attn==2.8.3.")  # fmt: skip
@click.option("--archs", metavar="LIST", default="", help="With --build: GPUs to compile for, e.g. 9.0a,12.0+PTX.")
@click.option(
    "--flag", "flags", multiple=True, metavar="NAME=VALUE", help="With --build: a flag of the source's build."
)
@click.option("--with", "features_on", default="", metavar="LIST", help="With --build: features to have, e.g. nccl.")
@click.option("--without", "features_off", default="", metavar="LIST", help="With --build: features to leave out.")
@click.option("--tool", "tools", type=click.Choice(("claude", "cursor", "codex", "pre-commit")), multiple=True,
              help="agents: for this tool alone. Default: all.")  # fmt: skip
@click.option("--mcp", is_flag=True, help="agents: also the entry of `firstlight mcp` for each tool.")
@click.option("--remove", is_flag=True, help="agents: take everything out again, to the byte.")
@click.option("--out", metavar="FOLDER", default="", help="Write the files there. Default: print the first one.")
@click.option("--force", is_flag=True, help="With --out: replace files that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print the files and their gates (schema firstlight.emit/1).")
def command(kind: str, class_text: str | None, facts_file: str, out: str, **given: Any) -> None:
    """Write the plan as files for other machines: the same packages, gates computed from the wheels inside.

    \b
    bash          one script that brings up a pod or a bare machine
    dockerfile    an image, and what it is built from
    devcontainer  the same for an editor
    runpod        a pod and a template of RunPod
    slurm         a batch script; --bench --nodes N: one that measures GPUs together
    ansible       a playbook
    compose       an image as a service of Docker Compose
    k8s           a Job and a Pod of Kubernetes; --bench --nodes N: a Job that measures
    kit           a Makefile, a pinned image, a preflight and the sources of bsr_bench, for H100 and H200
    agents        hooks and texts by which Claude Code, Cursor, Codex and pre-commit ask `firstlight guard`

    Nothing is changed but the folder of --out. The same machine, request and version give the same bytes. Exit code 0:
    written; 1: the disk refused; 2: those machines cannot have what was asked for, or such a file or folder cannot
    hold it.
    """
    if given["build"] or kind in _FILES_OF_OTHERS:
        without_a_plan = _a_build if given["build"] else _agents
        without_a_plan(kind, class_text, facts_file, out, given)
        return
    from firstlight.emit.kinds import emit
    from firstlight.emit.subject import Asked, BenchJob, subject_of
    from firstlight.own_wheel import own_wheel
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
    if kind in _READ_BY["firstlight_from_index"] and not (given["firstlight_from_index"] or given["image"]):
        subject = replace(subject, wheel=own_wheel())
    if given["bench"]:
        subject = replace(subject, bench=BenchJob(given["nodes"] or 1, given["gpus"] or 1))
    emitted = emit(kind, subject)
    if out:
        _write(emitted, out, replaces="yes" if given["force"] else "no")
    if given["as_json"]:
        from firstlight.report.emit_json import emit_document

        click.echo(json.dumps(emit_document(subject, emitted), indent=1))
        return
    _print(subject, emitted, out)


def _print(subject: Subject, emitted: Emitted, out: str) -> None:
    """What was made, for people; the first file itself where no folder is given."""
    from firstlight.report.emit_text import emit_text

    click.echo(emit_text(subject, emitted), nl=False, err=True)
    if not out:
        click.echo(emitted.files[0].text, nl=False)
        wheel = () if emitted.wheel is None else (emitted.wheel,)
        if others := ", ".join(file.name for file in (*emitted.files[1:], *emitted.sources, *wheel)):
            click.echo(f"firstlight: this is {emitted.files[0].name}; --out FOLDER writes {others} too", err=True)


def _a_build(kind: str, class_text: str | None, facts_file: str, out: str, given: dict[str, Any]) -> None:
    from firstlight.cli.emit_build import emit_the_build

    emit_the_build(kind, class_text, facts_file, out, given)


def _refuse_of_a_build(given: dict[str, Any]) -> None:
    """Flags and architectures say nothing to a plan."""
    for name in _OF_A_BUILD:
        if given[name]:
            raise BadInput(f"{_typed(name)} belongs to a build; accepted: with --build TARGET.")


def _agents(kind: str, class_text: str | None, facts_file: str, out: str, given: dict[str, Any]) -> None:
    """The kinds that have nothing to do with a plan."""
    from firstlight.cli.emit_agents import asked_of, emit_agents, remove_agents

    _refuse_of_a_build(given)
    plan = {**{name: given[name] for name in _OF_A_PLAN}, "for": class_text is not None, "facts": facts_file}
    if unread := [name for name, value in plan.items() if value]:
        raise BadInput(
            f"{_typed(unread[0])} does not apply to {kind}, which is made from firstlight.toml. Leave it out."
        )
    as_json = "yes" if given["as_json"] else "no"
    if given["remove"]:
        if given["tools"] or given["mcp"]:
            raise BadInput("--remove takes everything out; accepted without --tool and --mcp.")
        remove_agents(out, as_json=as_json)
        return
    emit_agents(out, asked_of(given["tools"], mcp="yes" if given["mcp"] else "no"), as_json=as_json)


def _typed(name: str) -> str:
    """The option as it is typed: --want of `wants`."""
    return "--" + {
        "wants": "want",
        "machine": "platform",
        "tools": "tool",
        "flags": "flag",
        "features_on": "with",
        "features_off": "without",
    }.get(name, name.replace("_", "-"))


def _refuse_unread(kind: str, out: str, given: dict[str, Any]) -> None:
    """Refuse what would change nothing: whoever typed it believes that it did."""
    _refuse_of_a_build(given)
    for name, kinds in _READ_BY.items():
        if given[name] and kind not in kinds:
            instead = _INSTEAD.get(name, "Leave it out.")
            raise BadInput(f"{_typed(name)} does not apply to {kind}; accepted: with {' or '.join(kinds)}. {instead}")
    for name in ("nodes", "gpus"):
        if given[name] and not given["bench"]:
            raise BadInput(f"--{name} {given[name]}: accepted with --bench, the job that measures several nodes.")
    if given["firstlight_from_index"] and given["image"]:
        raise BadInput("--firstlight-from-index beside --image: the image that was built has firstlight. Leave it out.")
    for name in ("user", "name"):
        if kind == "compose" and given[name] and given["image"]:
            raise BadInput(f"--{name} beside --image: that image was built and named already. Leave --{name} out.")
    for name in ("image", "base"):
        if given["python"] and given[name]:
            raise BadInput(f"--python and --{name}: accepted is one of them. That image has its Python already.")
    if given["force"] and not out:
        raise BadInput("--force replaces files; it goes with --out FOLDER.")


def _choices(given: dict[str, Any]) -> Choices:
    from firstlight.emit.quoting import absolute_path
    from firstlight.emit.subject import Choices

    volume = absolute_path(given["volume"] or Choices().volume, what="--volume")
    if volume == "/" or volume.split("/")[1] in _OF_THE_SYSTEM:
        raise BadInput(f"--volume {volume}: that is the system's own; accepted is a folder of yours, e.g. /workspace.")
    if any(letter.isspace() for letter in volume):
        # seen with torch 2.13.0: Inductor splits the command of its C++ compiler at spaces, ld cannot find -ltorch then
        raise BadInput(
            f"--volume {volume!a}: torch.compile does not work below a folder with a space in its name. Give another."
        )
    return Choices(volume, given["base"], given["image"], given["user"], given["name"], given["runtime_class"])


def _machine(class_text: str | None, facts_file: str, *, machine: str, tables: Tables) -> tuple[Facts, str]:
    """The facts to plan with, and whom the files are for, in words; names stay pseudonyms: files travel."""
    if class_text is not None and facts_file:
        raise BadInput("--for and --facts both say which machine is meant. Give one of them.")
    from firstlight.ways.wheel_target import processor_called

    machine = processor_called(machine) if machine else ""
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
    """Every file of a plan's kind."""
    written = [(file.name, masked(file.text).encode(), file.mode) for file in emitted.files]
    written += [(file.name, file.text.encode(), file.mode) for file in emitted.sources]
    if emitted.wheel is not None:
        written.append((emitted.wheel.name, emitted.wheel.data, 0o644))
    write_files(written, folder, replaces=replaces)


def write_files(written: list[tuple[str, bytes, int]], folder: str, *, replaces: str) -> None:
    """Every file, or none: one that is there and differs is not replaced without --force."""
    from firstlight.apply.disk import Disk

    disk = Disk()
    if odd := [name for name, _, _ in written if name.startswith("/") or ".." in name.split("/")]:
        raise BadInput(f"{odd[0][:80]!a} would be written outside of --out. Give another --name.")
    if odd_place := _why_no_folder(os.path.abspath(folder)):
        raise BadInput(f"--out {folder}: {odd_place}; accepted: a folder, which is made where it is missing.")
    paths = [os.path.join(os.path.abspath(folder), name) for name, _, _ in written]
    for path, (_, data, _) in zip(paths, written, strict=True):
        if replaces == "no" and os.path.lexists(path) and _bytes_of(path) != data:
            raise BadInput(f"{path} is there already and differs. Give --force to replace it, or another --out.")
    for path, (_, data, mode) in zip(paths, written, strict=True):
        disk.make_folders(os.path.dirname(path))
        disk.write(path, data, mode=mode)
        click.echo(f"firstlight: wrote {path}", err=True)


def _why_no_folder(folder: str) -> str:
    """Why files cannot be put there, '' where nothing speaks against it: what is there of the path is a folder."""
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"{there} is a file"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} is not yours to write to"


def _bytes_of(path: str) -> bytes | None:
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError:
        return None
