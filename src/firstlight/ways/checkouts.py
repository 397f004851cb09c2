"""Source trees at a pinned commit, e.g. --checkout cutlass@v4.2.1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from firstlight.errors import BadInput
from firstlight.facts.known import Known
from firstlight.tables import Tables
from firstlight.ways.at import At
from firstlight.ways.back import removed_folder
from firstlight.ways.building import NETWORK, NOT_MEASURED, blank, slug, state_of
from firstlight.ways.extras import Checkout
from firstlight.ways.step import CheckKind, Condition, Step, StepKind

_CHECKOUT = re.compile(r"(?P<project>[a-z][a-z0-9-]*)@(?P<release>[A-Za-z0-9][\w.-]*)")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def parse_checkout(text: str, tables: Tables) -> Checkout:
    """A tree and its release or commit: cutlass@v4.2.1, or cutlass@ and the 40 digits of a commit."""
    match = _CHECKOUT.fullmatch(text.strip().lower())
    projects = tuple(dict.fromkeys(row.project for row in tables.source_tags))
    example = f"e.g. --checkout {tables.source_tags[-1].project}@{tables.source_tags[-1].tag}"
    if match is None:
        raise BadInput(f"--checkout {text[:60]!a}: accepted is PROJECT@TAG or PROJECT@COMMIT, {example}.")
    project, release = match["project"], match["release"]
    known = [row for row in tables.source_tags if row.project == project]
    if not known:
        raise BadInput(f"--checkout {text[:60]!a}: {project} is not known; accepted: {', '.join(projects)}, {example}.")
    if _COMMIT.fullmatch(release):
        tag = next((row.tag for row in known if row.commit == release), "")
        return Checkout(project, tag, release, known[0].address)
    row = tables.source_tag(project, release)
    if row is None:
        tags = ", ".join(each.tag for each in known)
        raise BadInput(
            f"--checkout {text[:60]!a}: the commit of {project} {release} is not on record (on record: {tags}), and a "
            f"tag can be moved. Give its commit instead: git ls-remote {known[0].address} {release}"
        )
    return Checkout(project, row.tag, row.commit, row.address)


def checkout_steps(at: At) -> Iterator[Step]:
    """One step for each tree: fetched at its commit alone, without history."""
    for checkout in at.extras.checkouts:
        folder = f"{state_of(at)}/source/{checkout.project}-{checkout.tag or checkout.commit[:12]}"
        here = _already_there(at, checkout)
        yield replace(
            blank(at),
            id=slug(f"check out {checkout.project} {checkout.tag or checkout.commit[:12]}"),
            kind=StepKind.GIT,
            because=f"--checkout {checkout.project}@{checkout.tag or checkout.commit}",
            title=f"check out {checkout.project} {checkout.tag} at {checkout.commit[:12]}".replace("  ", " "),
            commands=(
                ("git", "init", "--quiet", folder),
                ("git", "-C", folder, "fetch", "--depth", "1", checkout.address, checkout.commit),
                ("git", "-C", folder, "checkout", "--quiet", "--detach", checkout.commit),
            ),
            done_when=(Condition(CheckKind.GIT_COMMIT, folder, checkout.commit),),
            back=(removed_folder(folder),),
            seconds=NETWORK,
            bytes=NOT_MEASURED,
            note=f"Into {folder}. {here}".rstrip(),
        )


def _already_there(at: At, checkout: Checkout) -> str:
    """A sentence where a tree at that commit lies on the machine already."""
    if checkout.project != "cutlass":
        return ""
    for tree in at.facts.cutlass.trees:
        if isinstance(tree.commit, Known) and tree.commit.value == checkout.commit:
            return f"{tree.path} stands at this commit already."
    return ""
