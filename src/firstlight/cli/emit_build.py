"""`firstlight emit bash|dockerfile --build TARGET`: a build from source as files for another machine."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from firstlight.errors import BadInput
from firstlight.opening import open_regular

if TYPE_CHECKING:
    from firstlight.build.archs import Arch
    from firstlight.emit.build_files import BuildOrder

_READ = ("build", "archs", "flags", "features_on", "features_off", "base", "force", "as_json")
_SPECIAL = {"features_on": "--with", "features_off": "--without", "flags": "--flag", "wants": "--want"}
_MOST = 500 << 20


def emit_the_build(kind: str, class_text: str | None, facts_file: str, out: str, given: dict[str, Any]) -> None:
    """Write build.sh, or a Dockerfile with it, and what they need beside them."""
    from firstlight.cli.emit import write_files
    from firstlight.emit.build_files import KINDS, emit_build
    from firstlight.report.emit_build_text import emit_build_document, emit_build_text

    if kind not in KINDS:
        raise BadInput(f"--build with {kind}: accepted: with {' or '.join(KINDS)}. The others carry wheels alone.")
    _refuse_unread(given, facts_file)
    if given["base"] and kind != "dockerfile":
        raise BadInput(f"--base does not apply to {kind} --build; accepted: with dockerfile. Leave it out.")
    order = order_of(kind, class_text, given)
    emitted = emit_build(kind, order)
    files = [(each.name, each.text.encode(), each.mode) for each in emitted.files]
    files.append((emitted.wheel.name, emitted.wheel.data, 0o644))
    if emitted.sdist is not None:
        files.append((emitted.sdist.name, emitted.sdist.data, 0o644))
    if out:
        write_files(files, out, replaces="yes" if given["force"] else "no")
    elif given["force"]:
        raise BadInput("--force replaces files; it goes with --out FOLDER.")
    if given["as_json"]:
        click.echo(json.dumps(emit_build_document(emitted, order), indent=1))
        return
    click.echo(emit_build_text(emitted, order), nl=False, err=True)
    if not out:
        click.echo(emitted.files[0].text, nl=False)
        others = ", ".join(name for name, _, _ in files[1:])
        click.echo(f"firstlight: this is {emitted.files[0].name}; --out FOLDER writes {others} too", err=True)


def order_of(kind: str, class_text: str | None, given: dict[str, Any]) -> BuildOrder:
    """What is to be built there, refused here where it cannot be meant."""
    from firstlight.build.archs import AUTO, parse_archs
    from firstlight.build.flags import parse_flag
    from firstlight.build.libraries_needed import feature_called
    from firstlight.build.request import parse_target
    from firstlight.emit.build_files import BuildOrder, Carried
    from firstlight.own_wheel import own_wheel

    target = parse_target(given["build"])
    if target.folder:
        raise BadInput(
            f"--build {given['build']}: a folder is not carried along; accepted is NAME==VERSION, an sdist or "
            f"git+URL@REF. Make an sdist: python -m build --sdist {given['build']}"
        )
    if target.url and "@" in target.url.partition("://")[2].partition("/")[0]:
        raise BadInput("--build: a login in an address would be written into a file. Leave it out of the address.")
    archs = parse_archs(given["archs"] or AUTO) or _archs_of(class_text)
    if kind == "dockerfile" and not archs:
        raise BadInput(
            "no GPU is seen while an image is built: give --archs, e.g. --archs 9.0, or --for 'H100, driver >= 580'."
        )
    options = ["--archs", ",".join(map(str, archs))] if archs else []
    for text in given["flags"]:
        flag = parse_flag(text)
        options += ["--flag", f"{flag.name}={flag.value}"]
    for key, option in (("features_on", "--with"), ("features_off", "--without")):
        for name in filter(None, given[key].replace(" ", ",").split(",")):
            options += [option, feature_called(name, option).name]
    sdist = None
    if target.archive:
        with open_regular(target.archive) as file:
            sdist = Carried(f"sources/{os.path.basename(target.archive)}", file.read(_MOST))
    named = os.path.basename(target.archive) or given["build"]
    return BuildOrder(named, tuple(options), sdist, own_wheel(), given["base"])


def _archs_of(class_text: str | None) -> tuple[Arch, ...]:
    """The architectures of the machines that --for names; () where it names none."""
    if class_text is None:
        return ()
    from firstlight.build.archs import archs_here
    from firstlight.emit.imagined import parse_machine
    from firstlight.facts.known import Known
    from firstlight.tables import load

    found = archs_here(parse_machine(class_text, load(), arch=""))
    return found.value if isinstance(found, Known) else ()


def _refuse_unread(given: dict[str, Any], facts_file: str) -> None:
    """What a plan is told says nothing to a build: whoever typed it believes that it did."""
    unread = [name for name, value in given.items() if value and name not in _READ and name != "goal"]
    if facts_file:
        unread.append("facts")
    if unread:
        typed = _SPECIAL.get(unread[0], "--" + unread[0].replace("_", "-"))
        raise BadInput(f"{typed} does not apply to --build; accepted: with a plan. Leave it out.")
