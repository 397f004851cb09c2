"""Where a remote has a tag or a branch now: a build that goes on does not fetch, and would not see it move."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping

from firstlight.build.fault import Fault, note
from firstlight.build.logins import git_variables
from firstlight.build.spec import SourceSpec, read_document
from firstlight.errors import BadInput
from firstlight.facts.known import Fact, Known, Unknown
from firstlight.frozen import dataclass
from firstlight.secrets import masked

_PATIENCE_S = 15
_SHOWN = 12  # of a commit's 40 digits


@dataclass(frozen=True, slots=True)
class RemoteRef:
    """What a name stands for at the remote, e.g. refs/tags/v2.9.1 at 5811a8d7da."""

    name: str
    commit: str

    @property
    def is_tag(self) -> bool:
        return self.name.startswith("refs/tags/")


def commit_of_build(folder: str) -> str:
    """The commit that a build began with; "" where it has none yet."""
    kept = read_document(f"{folder}/commit.json")
    return str(kept.get("commit", "")) if isinstance(kept, dict) else ""


def moved_ref(where: SourceSpec, *, login: str) -> Iterator[Fault]:
    """BadInput where the tag of a build that began is another commit now; a branch may move, which is a note."""
    began = commit_of_build(where.folder)
    if not began or not where.source.url:
        return
    found = ask_remote(where.source.url, where.source.ref, {**os.environ, **git_variables(login, os.environ)})
    if isinstance(found, Unknown):
        yield note("remote-not-asked", f"whether {where.source.ref or 'HEAD'} moved is not known: {found.reason}. The "
                   f"build continues at {began[:_SHOWN]}, where it began")  # fmt: skip
    elif found.value.commit not in ("", began):
        require_not_a_tag(found.value, began, where.id)
        yield note("branch-moved", f"{where.source.ref or 'HEAD'} is at {found.value.commit[:_SHOWN]} now; this build "
                   f"continues at {began[:_SHOWN]}, where it began",
                   "For the newer one:", command=f"firstlight build --clean {where.id}")  # fmt: skip


def require_not_a_tag(found: RemoteRef, began: str, build_id: str) -> None:
    """BadInput for a tag that is another commit than the build began with."""
    if found.is_tag:
        raise BadInput(
            f"the tag {found.name.removeprefix('refs/tags/')} is {found.commit} now and was {began} when this build "
            f"began: it moved. Name the commit you mean behind @, or first run `firstlight build --clean {build_id}`."
        )


def ask_remote(url: str, ref: str, env: Mapping[str, str]) -> Fact[RemoteRef]:
    """What a tag, else a branch of that name is now; a commit "" where it is neither, as for a commit itself."""
    names = (f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}", f"refs/heads/{ref}") if ref else ("HEAD",)
    argv = ["git", "ls-remote", url, *names]
    try:
        asked = subprocess.run(
            argv, env={**env, "GIT_TERMINAL_PROMPT": "0"}, capture_output=True, text=True, errors="replace",
            stdin=subprocess.DEVNULL, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Unknown(f"the remote did not answer within {_PATIENCE_S} s")
    if asked.returncode != 0:
        lines = asked.stderr.strip().splitlines()
        return Unknown(masked(next((each for each in lines if each.startswith("fatal")), "git gave no reason")))
    found = dict(line.split("\t")[::-1] for line in asked.stdout.splitlines() if "\t" in line)
    chosen = next((each for each in names if each in found), names[-1])
    return Known(RemoteRef(chosen.removesuffix("^{}"), found.get(chosen, "")), seen_in="git ls-remote")
