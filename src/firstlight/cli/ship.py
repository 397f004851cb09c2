"""`firstlight ship`: an image to another machine over ssh, without a registry between them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from firstlight.cli.printing import tell
from firstlight.errors import BadInput, CouldNotLook

if TYPE_CHECKING:
    from firstlight.report.host_names import HostNames
    from firstlight.ship.shipping import Told, Wish

FOLDER = ".cache/firstlight/ship"
_FIRST_S, _EVERY_S = 2.0, 5.0


@click.command(
    short_help="an image to another machine over ssh: only the layers that are missing there",
    epilog="Example: firstlight ship team/train:3 --host root@203.0.113.7:22022",
)
@click.argument("image")
@click.option(
    "--host", metavar="[USER@]HOST[:PORT]", required=True, help="Where to send it; may be a name of your ssh_config."
)
@click.option("--name", metavar="NAME[:TAG]", default="", help="The name that it gets there. Default: the one it has.")
@click.option("--engine", type=click.Choice(["podman", "docker", "skopeo"]), default=None,
              help="What loads it there. Default: the first of these that answers.")  # fmt: skip
@click.option("--verify/--no-verify", "verify", default=None,
              help=(
                  "Run `firstlight verify` in it there; an image with Python and without firstlight gets it for that. "
                  "Default: if firstlight is in the image."
              ))  # fmt: skip
@click.option("--folder", metavar="PATH", default=FOLDER, show_default=True,
              help="The folder there for its blobs; a relative path starts in the home folder.")  # fmt: skip
@click.option("--rate", "rate_kib", type=click.IntRange(1, 100_000_000), default=None, metavar="KIB",
              help="Send at most this many KiB a second.")  # fmt: skip
@click.option("--ssh-config", metavar="FILE", default="", help="This ssh_config file instead of your own.")
@click.option("--dry-run", is_flag=True, help="Ask the host, say what would be sent, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print the document (schema firstlight.ship/1).")
@click.option("--identify", is_flag=True, help="With --json: keep real names of the host and of people.")
def command(image: str, **given: Any) -> None:
    """Send IMAGE to a machine, load it there and prove it; layers that are there are not sent again.

    IMAGE: a name in the storage of podman and buildah, docker-daemon:NAME, the folder of an OCI layout, or an archive.
    If the connection breaks, the same command continues where it stopped. Every blob is checked there by its sha256
    before it is loaded, and the digest of the loaded image is compared with ours. Exit code 0: it is there; 1: it is
    there, and verify failed; 2: bad input; 4: the host is not reached, has no room, or a tool is missing.
    """
    wish = _wish(image, given)
    from firstlight.report.ship_text import dry_text, ship_document, shipped_text
    from firstlight.ship.shipping import fetch, prepare, ship

    with _progress() as told:
        ours = fetch(wish, told)
        try:
            prepared = prepare(wish, ours, told)
            shipped = None if given["dry_run"] else ship(prepared, told)
        except CouldNotLook as error:
            raise CouldNotLook(f"{wish.target.name}: {error}") from None
    if given["as_json"]:
        click.echo(json.dumps(ship_document(prepared, shipped, _names(wish, given)), indent=1))
    else:
        tell(dry_text(prepared) if shipped is None else shipped_text(shipped))
    click.get_current_context().exit(0 if shipped is None else shipped.exit_code)


def _wish(image: str, given: dict[str, Any]) -> Wish:
    """What was given, refused here where it cannot be used: nothing was connected to yet."""
    from firstlight.fleet.ssh import require_config
    from firstlight.fleet.target import parse_target
    from firstlight.ship.deciding import Engine
    from firstlight.ship.naming import parse_folder, parse_image, parse_name
    from firstlight.ship.shipping import Proof, Wish

    target = parse_target(given["host"])
    require_config(given["ssh_config"])
    name = parse_name(given["name"]) if given["name"] else None
    folder = parse_folder(given["folder"])
    source = parse_image(image)
    named = name or source.name
    if named is None:
        raise BadInput(
            f"{image} is a path, which says no name for the image; give one with --name, e.g. --name team/train:3"
        )
    proof = {None: Proof.WHERE_IT_CAN, True: Proof.ALWAYS, False: Proof.NEVER}[given["verify"]]
    engine = Engine(given["engine"]) if given["engine"] else None
    return Wish(source, named, target, folder, given["ssh_config"], engine, proof, given["rate_kib"] or 0)


def _names(wish: Wish, given: dict[str, Any]) -> HostNames:
    from firstlight.fleet.ssh import where_ssh_goes
    from firstlight.report.host_names import pseudonyms_for, real_names

    if given["identify"]:
        return real_names([wish.target.name])
    return pseudonyms_for([wish.target.name], [where_ssh_goes(wish.target, config=given["ssh_config"])])


@contextmanager
def _progress() -> Iterator[Told]:
    """Says on stderr what is being done: after 2 s of it, then every 5 s."""
    doing = [("", time.monotonic())]  # what, and since when
    over = threading.Event()

    def told(text: str) -> None:
        before, since = doing[0]
        goes_on = before.partition(":")[0] == text.partition(":")[0]
        doing[0] = (text, since if goes_on else time.monotonic())

    def speak() -> None:
        said = 0.0
        while not over.wait(0.25):
            at, (text, since) = time.monotonic(), doing[0]
            lasted = at - since
            if lasted >= _FIRST_S and at - said >= _EVERY_S:
                said = at
                click.echo(f"{text} ({lasted:.0f} s)", err=True)

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield told
    finally:
        over.set()
        speaker.join()
