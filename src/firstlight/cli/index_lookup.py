"""Asks package indexes how large wheels are, before the plan of this machine is shown; never of a saved one."""

from __future__ import annotations

import functools
import http.client
import json
import os
import queue
import re
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable
from contextlib import suppress

from firstlight.facts.collect import Facts
from firstlight.facts.known import Known
from firstlight.frozen import dataclass
from firstlight.versions import canonical
from firstlight.ways.index_sizes import IndexSize, IndexSizes
from firstlight.ways.kinds import InstallWheels, Package
from firstlight.ways.way import Way

PATIENCE_S = 3.0  # for all of them together: a plan does not wait for an index that does not answer
_DEFAULT = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_MOST_BYTES = 20_000_000  # of a page; the longest on PyPI has 3 MB
_LINK = re.compile(r"<a\s[^>]*?href=[\"']([^\"'#]+)", re.IGNORECASE)
_NO_INDEX = ("PIP_NO_INDEX", "UV_OFFLINE", "UV_NO_INDEX")


@dataclass(frozen=True, slots=True)
class _File:
    url: str
    bytes: int  # 0 = the page does not say


def index_sizes(ways: Iterable[Way], facts: Facts) -> IndexSizes:
    """What the indexes say of the packages of some ways within three seconds; what they do not say is not there."""
    packages = {(each, way.index) for way in ways if isinstance(way, InstallWheels) for each in way.packages}
    wanted = [(package, index) for package, index in packages if package.version]
    if not wanted or facts.network.offline or any(os.environ.get(name) for name in _NO_INDEX):
        return IndexSizes()
    deadline, answers = time.monotonic() + PATIENCE_S, queue.SimpleQueue[IndexSize | None]()
    for package, index in wanted:
        # Daemons: a name that is not resolved has no time limit, and the end of the program must not wait for it.
        asking = functools.partial(_put, answers, package, index, facts, deadline)
        try:
            threading.Thread(target=asking, daemon=True).start()
        except RuntimeError:  # no more threads allowed here, as under a container's pid limit
            answers.put(None)
    found: list[IndexSize] = []
    for _ in wanted:
        with suppress(queue.Empty):
            answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            found.extend([answer] if answer is not None else [])
    return IndexSizes(tuple(sorted(found, key=lambda each: (each.project, each.version, each.index))))


def _put(
    answers: queue.SimpleQueue[IndexSize | None], package: Package, index: str, facts: Facts, deadline: float
) -> None:
    try:
        answers.put(_asked(package, index, facts=facts, deadline=deadline))
    except (OSError, ValueError, http.client.HTTPException):
        answers.put(None)  # the tables or a neighbour speak then, and say so


def _asked(package: Package, index: str, *, facts: Facts, deadline: float) -> IndexSize | None:
    base = index or os.environ.get("PIP_INDEX_URL") or _DEFAULT
    name = canonical(package.project)
    file = _file_for(_page(f"{base.rstrip('/')}/{name}/", deadline), package, facts)
    if file is None:
        return None
    size = file.bytes or _length(file.url, deadline)
    return IndexSize(package.project, package.version, index, size, "as the index says") if size > 0 else None


def _page(url: str, deadline: float) -> tuple[_File, ...]:
    """The files of a project: with sizes where the index answers in JSON (PEP 691, 700)."""
    with _opened(url, "GET", deadline) as answer:
        body, kind, base = answer.read(_MOST_BYTES), answer.headers.get_content_type(), answer.url
    if not kind.endswith("json"):
        links = _LINK.findall(body.decode("utf-8", "replace"))
        return tuple(_File(urllib.parse.urljoin(base, link.replace("&amp;", "&")), 0) for link in links)
    document = json.loads(body)
    files = document.get("files") if isinstance(document, dict) else None
    found = []
    for each in files if isinstance(files, list) else ():
        address, size = (each.get(key) if isinstance(each, dict) else None for key in ("url", "size"))
        if isinstance(address, str):
            found.append(_File(urllib.parse.urljoin(base, address), size if isinstance(size, int) else 0))
    return tuple(found)


def _length(url: str, deadline: float) -> int:
    with _opened(url, "HEAD", deadline) as answer:
        return int(answer.headers.get("Content-Length") or 0)


def _opened(url: str, method: str, deadline: float) -> http.client.HTTPResponse:
    """The answer to a question; an index may name any address, and a file of this machine is none."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url} is not the address of an index")
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT}, method=method)  # noqa: S310 seen above
    answer: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=_left(deadline))  # noqa: S310
    return answer


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the index did not answer in time")
    return left


def _file_for(files: tuple[_File, ...], package: Package, facts: Facts) -> _File | None:
    """The wheel that pip would take: of that version, for this Python and processor."""
    environment = facts.environment
    version = environment.python_version if environment is not None else None
    python = "cp" + "".join(version.value.split(".")[:2]) if isinstance(version, Known) else ""
    fitting = []
    for file in files:
        name = urllib.parse.unquote(urllib.parse.urlsplit(file.url).path.rpartition("/")[2])
        parts = name.removesuffix(".whl").split("-")
        if not name.endswith(".whl") or len(parts) < 5 or parts[1] != package.version:
            continue
        tags, platform = parts[-3], parts[-1]
        runs = not python or python in tags.split(".") or "py3" in tags.split(".") or "abi3" in parts[-2]
        if runs and (platform == "any" or (facts.place.arch in platform and "linux" in platform)):
            fitting.append(file)
    return fitting[-1] if fitting else None
