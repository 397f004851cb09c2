"""The stage patch: exactly the patches that are asked for; one that an earlier build put in and nobody wants is out."""

from __future__ import annotations

import os
import shutil
import subprocess

from firstlight.build.running import say
from firstlight.build.spec import SourceSpec, read_document, write_document
from firstlight.errors import CouldNotAct

IN, APPLIES, CONFLICTS = "is in the tree already", "applies", "conflicts"


def patch(spec: SourceSpec) -> None:
    """Bring the tree to the patches asked for: what we put in before and is no longer wanted goes out first."""
    if applied_patches(spec.folder) != spec.source.patch_sums:
        take_patches_out(spec)
    for path, digest in zip(spec.source.patches, spec.source.patch_sums, strict=True):
        state, hunk = patch_state(spec.tree, path)
        say(f"{os.path.basename(path)}: {state}")
        if state == CONFLICTS:
            raise CouldNotAct(f"{path} does not apply to this tree: {hunk}")
        if state == APPLIES:
            _keep(spec.folder, path, digest)
            _write_applied(spec.folder, (*applied_patches(spec.folder), digest))  # first: killed behind it, it goes out
            _patched(spec.tree, path, "--forward")


def take_patches_out(spec: SourceSpec) -> None:
    """Take out every patch that we put into the tree, the last one first."""
    left = applied_patches(spec.folder)
    while left:
        kept = _kept(spec.folder, left[-1])
        state, hunk = patch_state(spec.tree, kept)
        if state == CONFLICTS:
            raise CouldNotAct(
                f"a patch that an earlier build put into {spec.tree} cannot be taken out, because the tree was changed "
                f"since ({hunk}). Put those files back; the patch is {kept}."
            )
        if state == IN:
            _patched(spec.tree, kept, "--reverse")
        left = left[:-1]
        _write_applied(spec.folder, left)


def applied_patches(folder: str) -> tuple[str, ...]:
    """The digests of the patches that we put into a tree, in order; one that was in it before is not ours."""
    document = read_document(f"{folder}/patches/applied.json")
    return tuple(str(each) for each in document) if isinstance(document, list) else ()


def forget_patches(folder: str) -> None:
    """The tree was unpacked anew: nothing of ours is in it."""
    shutil.rmtree(f"{folder}/patches", ignore_errors=True)


def patch_state(tree: str, path: str) -> tuple[str, str]:
    """('applies' | 'is in the tree already' | 'conflicts', the hunk that does not fit)."""
    if _patched(tree, path, "--reverse", "--dry-run", "--force").returncode == 0:
        return IN, ""
    tried = _patched(tree, path, "--forward", "--dry-run")
    if tried.returncode == 0:
        return APPLIES, ""
    said = [
        line for line in tried.stdout.splitlines() if "FAILED" in line or "can't find" in line or "malformed" in line
    ]
    return CONFLICTS, (said[0] if said else (tried.stdout + tried.stderr).strip()[:200]).rstrip(".")


def _patched(tree: str, path: str, *words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("patch") is None:
        raise CouldNotAct("patch is not installed: install the package patch.")
    quiet = () if "--dry-run" in words else ("--silent",)
    argv = ["patch", "-p1", "--batch", *quiet, *words, "-d", tree, "-i", os.path.abspath(path)]
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)


def _kept(folder: str, digest: str) -> str:
    return f"{folder}/patches/{digest}.diff"


def _keep(folder: str, path: str, digest: str) -> None:
    """A copy of a patch as it was applied: the user's own file may change or go."""
    os.makedirs(f"{folder}/patches", exist_ok=True)
    shutil.copyfile(path, f"{_kept(folder, digest)}.new")
    os.replace(f"{_kept(folder, digest)}.new", _kept(folder, digest))


def _write_applied(folder: str, digests: tuple[str, ...]) -> None:
    os.makedirs(f"{folder}/patches", exist_ok=True)
    write_document(f"{folder}/patches", "applied.json", list(digests))
