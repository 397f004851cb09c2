"""Compare the tables with NVIDIA's own pages on GPUs, container images and Jetson releases; change nothing.

    python -m tools.refresh_vendors                                  all three
    python -m tools.refresh_vendors gpus                             one of them
    python -m tools.refresh_vendors gpus --at http://127.0.0.1:8000  another address, e.g. a mirror

Exit: 0 the tables have everything, 1 something is missing, 2 bad usage, 4 a page could not be reached.
"""

from __future__ import annotations

import argparse
import html
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from firstlight.errors import CouldNotLook
from firstlight.tables import Tables, load
from firstlight.tables.gpu_rows import JetPack
from firstlight.versions import CudaVersion
from tools.refresh_tables import fetch

_NAME = re.compile(r"(?:NVIDIA|GeForce|Quadro|Tesla|Jetson) [A-Z0-9][A-Za-z0-9() -]{1,60}")
_NO_NAMES = re.compile(r"NVIDIA (?:GPU|Corporation|Developer|Jetson Modules|CUDA|Data Center)\b")
_RELEASE = re.compile(
    r"JetPack (?P<jetpack>\d+(?:\.\d+){1,2})\D{0,80}?(?:L4T|Jetson Linux) R?(?P<l4t>3\d\.\d+(?:\.\d+)?)"
)
_IMAGE = re.compile(r"(?P<cuda>\d+\.\d+\.\d+)-base-")
_OLDEST_IMAGE = CudaVersion(12, 1)


def missing_gpus(tables: Tables, text: str) -> Iterator[str]:
    """Products of NVIDIA's list of capabilities that no row finds by name."""
    cells = re.split(r"<[^>]*>|\n", html.unescape(text))
    names = dict.fromkeys(" ".join(each.split()) for each in cells)
    for name in names:
        if _NAME.fullmatch(name) and not _NO_NAMES.match(name) and tables.gpu_named(name) is None:
            yield name


def missing_images(tables: Tables, text: str) -> Iterator[str]:
    """CUDA releases that nvidia/cuda has images of and the tables have no gate of, newest patch of each minor."""
    try:
        tags = [str(each["name"]) for each in json.loads(text)["results"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CouldNotLook(f"the list of image tags is not what was expected ({error}).") from error
    newest: dict[CudaVersion, CudaVersion] = {}
    for tag in tags:
        if match := _IMAGE.match(tag):
            cuda = CudaVersion.parse(match["cuda"])
            newest[cuda.release] = max(cuda, newest.get(cuda.release, cuda))
    for release, cuda in sorted(newest.items()):
        if release >= _OLDEST_IMAGE and tables.image(cuda) is None:
            yield f"nvidia/cuda:{cuda}"


def missing_jetpacks(tables: Tables, text: str) -> Iterator[str]:
    """Jetson Linux releases of NVIDIA's archive that no row names."""
    known = {row.l4t for row in tables.rows("jetpacks") if isinstance(row, JetPack)}
    plain = " ".join(re.sub(r"<[^>]*>", " ", html.unescape(text)).split())
    for match in _RELEASE.finditer(plain):
        l4t = match["l4t"] if match["l4t"].count(".") == 2 else f"{match['l4t']}.0"
        if l4t not in known:
            yield f"Jetson Linux {l4t}, JetPack {match['jetpack']}"


@dataclass(frozen=True, slots=True)
class Page:
    """One page of NVIDIA's and what is looked for on it."""

    name: str
    address: str
    missing: Callable[[Tables, str], Iterator[str]]


PAGES = (
    Page("gpus", "https://developer.nvidia.com/cuda-gpus", missing_gpus),
    Page(
        "images",
        "https://hub.docker.com/v2/repositories/nvidia/cuda/tags?page_size=100&name=base-ubuntu",
        missing_images,
    ),
    Page("jetpacks", "https://developer.nvidia.com/embedded/jetpack-archive", missing_jetpacks),
)


def main(argv: list[str] | None = None) -> int:
    """Print what each page has and the tables lack; 0 nothing, 1 something."""
    parser = argparse.ArgumentParser(description="Compare the tables with NVIDIA's pages; change nothing.")
    parser.add_argument("page", nargs="?", choices=[page.name for page in PAGES], help="default: all")
    parser.add_argument("--at", help="another address of that page")
    options = parser.parse_args(argv)
    if options.at and not options.page:
        parser.error("--at is the address of one page; name it: gpus, images or jetpacks")
    tables, lacking, unreached = load(), 0, 0
    for page in PAGES:
        if options.page not in (None, page.name):
            continue
        try:
            text = fetch(options.at or page.address, {}).body.decode("utf-8", errors="replace")
            found = list(dict.fromkeys(page.missing(tables, text)))
        except CouldNotLook as error:
            print(f"{page.name}: {urlsplit(options.at or page.address).netloc}: {error}", file=sys.stderr)
            unreached += 1
            continue
        print(f"{page.name}: {len(found)} not in the tables" if found else f"{page.name}: all in the tables")
        print("".join(f"  {each}\n" for each in found), end="")
        lacking += len(found)
    return 4 if unreached else int(lacking > 0)


if __name__ == "__main__":
    sys.exit(main())
