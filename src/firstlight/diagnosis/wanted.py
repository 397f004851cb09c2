"""`--want torch==2.9.0+cu130`: the machine as it would be with that wheel, from what the tables know of it."""

from __future__ import annotations

import re
from dataclasses import replace

from firstlight.diagnosis.wheel_bounds import variants_of, why_no_variant
from firstlight.errors import BadInput, BadVersion
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Origin, Unknown
from firstlight.tables import Tables
from firstlight.versions import TorchVersion
from firstlight.ways.wheels_on_paper import torch_wheel

_WANT = re.compile(r"\s*torch\s*==\s*(\S+?)\s*")
_NOT_YET = Unknown("not installed yet")
_RELEASE = 2  # the stage of a TorchVersion that is neither nightly nor a pre-release


def with_wanted(facts: Facts, tables: Tables, wants: tuple[str, ...]) -> Facts:
    """The facts with the wanted torch in the place of the installed one; the companions stay as they are."""
    for want in wants:
        match = _WANT.fullmatch(want)
        if match is None:
            raise BadInput(f'--want {want[:80]!r}: accepted is torch==VERSION, e.g. --want "torch==2.9.0+cu130"')
        try:
            version = TorchVersion.parse(match.group(1))
        except BadVersion as error:
            raise BadInput(f"--want {want[:80]!r}: {error}") from None
        _refuse_what_is_not_there(facts, tables, version)
        torch = torch_wheel(facts, tables, version, asked_by="--want")
        seen = Known(torch, f"--want {want.strip()[:80]}", Origin.WANTED)
        facts = replace(facts, torch=seen, torch_libraries=_NOT_YET)
    return facts


def _refuse_what_is_not_there(facts: Facts, tables: Tables, version: TorchVersion) -> None:
    """A release newer than the tables, or a CUDA variant that a release they know cannot have.

    Nightlies and pre-releases pass: the tables do not list them.
    """
    if version.stage < _RELEASE:
        return
    arch = facts.place.arch
    newest = tables.newest_torch(arch) or tables.newest_torch()
    if newest is not None and version > newest.torch:
        raise BadInput(
            f"--want torch=={version}: the newest torch that the tables know is {newest.torch} (they are of "
            f"{tables.newest_date()}). Give that or an older one, or upgrade firstlight."
        )
    if version.cuda is None:
        return
    if why_not := why_no_variant(tables, version, version.cuda, machine=arch):
        newest_tag = max(variants_of(tables, version, machine=arch)).tag
        raise BadInput(
            f"--want torch=={version}: {why_not} "
            f'Give one that it has, e.g. --want "torch=={version.public}+{newest_tag}".'
        )
