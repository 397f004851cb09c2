"""The facts without click: what the zipapp runs on a host that has nothing but Python."""

from __future__ import annotations

import argparse
import sys

from firstlight import __version__
from firstlight.cli.printing import guarded_streams
from firstlight.cli.streams import drop, keep_writable, nowhere_to_write
from firstlight.errors import FirstlightError
from firstlight.facts.document import to_text
from firstlight.facts.look import Look, Names, look_at
from firstlight.report.facts_text import Detail, facts_text


def main(arguments: list[str] | None = None) -> int:
    """Print the facts; the exit code is that of `firstlight facts`."""
    keep_writable()
    with guarded_streams(sys.argv[1:] if arguments is None else arguments):
        return _main(arguments)


def answer(token: str, options: list[str]) -> None:
    """Print the evidence of this machine between the lines of a token, for the firstlight at the other end of ssh."""
    import json

    from firstlight.facts.collect import collect
    from firstlight.machine.evidence import marks, to_document
    from firstlight.machine.live import LiveMachine
    from firstlight.machine.recorded import RecordingMachine
    from firstlight.secrets import without_credentials

    python = next((option.partition("=")[2] for option in options if option.startswith("--python=")), "")
    recording = RecordingMachine(LiveMachine())
    environment = collect(recording, python=python).environment
    for site in () if environment is None else environment.site_packages:
        recording.list(site, "*-info")  # every package by name and version: hosts are compared by them
        for name in recording.list(site, "*.pth"):
            recording.read(f"{site}/{name}")
    recording.evidence.recorded_by = f"firstlight {__version__}"
    document = to_document(recording.evidence, without_credentials, lambda data: data)
    begin, end = marks(token)
    sys.stdout.write(f"{begin}\n{json.dumps(document, ensure_ascii=True)}\n{end}\n")
    sys.stdout.flush()


def _main(arguments: list[str] | None) -> int:
    parser = argparse.ArgumentParser(
        prog="firstlight-facts", description="Look at this machine and print what it is. Changes nothing."
    )
    parser.add_argument("--version", action="version", version=f"firstlight {__version__}")
    parser.add_argument("--json", action="store_true", help="print the shareable document")
    parser.add_argument("--record", metavar="DIR", default="", help="also keep the raw evidence in DIR")
    parser.add_argument("--identify", action="store_true", help="keep real names instead of pseudonyms")
    parser.add_argument("--all", action="store_true", help="text: every fact, unknown ones with their reason")
    parser.add_argument("--facts", metavar="PATH", default="", help="a saved document or recorded machine")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="pretend one fact")
    parser.add_argument("--python", metavar="PATH", default="", help="judge the environment of this interpreter")
    given = parser.parse_args(arguments)
    names = Names.REAL if given.identify else Names.PSEUDONYMS
    try:
        facts = look_at(Look(given.facts, tuple(given.set), given.python, given.record, names))
    except FirstlightError as error:
        print(f"firstlight: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return _printed(to_text(facts) if given.json else facts_text(facts, Detail.ALL if given.all else Detail.FOUND))


def _printed(text: str) -> int:
    why = "stdout is not open for writing"
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
        if not nowhere_to_write():
            return 0
    except OSError as error:
        drop(sys.stdout.fileno())
        why = error.strerror or str(error)
    print(f"firstlight: the output could not be written: {why}", file=sys.stderr)  # noqa: T201
    return 4
