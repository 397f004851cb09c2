"""The stages fetch, submodules and patch: a tree in the build's own folder, whole or not there."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

from packaging.version import InvalidVersion, Version

from firstlight.build.patching import applied_patches, forget_patches, patch, take_patches_out
from firstlight.build.remote_ref import RemoteRef, commit_of_build, require_not_a_tag
from firstlight.build.running import say
from firstlight.build.spec import Source, SourceSpec, Stage, read_document, write_document
from firstlight.build.unpacking import only_folder_in, unpack
from firstlight.errors import BadInput, CouldNotAct, CouldNotLook
from firstlight.secrets import masked
from firstlight.ways.names import normal

_DEFAULT = "https://pypi.org/simple"
_LINK = re.compile(r"<a\s[^>]*?href=[\"']([^\"']+)", re.I)
_ENDINGS = (".tar.gz", ".zip", ".tar.bz2", ".tar.xz")
_MOST = 200 << 20
_PATIENCE_S = 60


def fetch(spec: SourceSpec) -> None:
    """Bring the tree into its place; a folder of the user stays where it is."""
    source = spec.source
    if source.folder:
        _record(spec, Stage.FETCH, {"from": "a folder that is here"})
        return
    if source.url:
        _clone(spec)
        return
    archive = source.archive or _download(spec)
    half = f"{spec.tree}.half"
    shutil.rmtree(half, ignore_errors=True)
    unpack(archive, half)
    shutil.rmtree(spec.tree, ignore_errors=True)
    forget_patches(spec.folder)
    os.rename(only_folder_in(half), spec.tree)
    shutil.rmtree(half, ignore_errors=True)
    _record(spec, Stage.FETCH, {"from": os.path.basename(archive), "sha256": _digest(archive)})


def source_holds(spec: SourceSpec, stage: Stage) -> bool:
    """Whether a stage of the source is done."""
    if stage is Stage.SUBMODULES:
        return not missing_submodules(spec.tree)
    record = read_document(f"{spec.folder}/done/{stage.value}.json")
    same = isinstance(record, dict) and record.get("key") == source_key(spec.source, stage)
    if stage is Stage.PATCH and not set(applied_patches(spec.folder)) <= set(spec.source.patch_sums):
        return False  # one is in the tree that nobody asks for
    return same and os.path.isdir(spec.tree)


def source_key(source: Source, stage: Stage) -> str:
    parts = [source.target, source.archive and _stamp(source.archive)]
    if stage is Stage.PATCH:
        parts += source.patch_sums
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _stamp(path: str) -> str:
    found = os.stat(path)
    return f"{found.st_size}:{found.st_mtime_ns}"


def _record(spec: SourceSpec, stage: Stage, about: dict[str, object]) -> None:
    os.makedirs(f"{spec.folder}/done", exist_ok=True)
    write_document(f"{spec.folder}/done", f"{stage.value}.json", {"key": source_key(spec.source, stage), **about})


def _download(spec: SourceSpec) -> str:
    """The sdist of a release from the index that pip would ask; nothing of it is run, as `pip download` would."""
    name, _, version = spec.source.release.partition("==")
    base = _index().rstrip("/")
    page = f"{base}/{normal(name)}/"
    url, digest = _sdist_on(page, normal(name), version)
    path = f"{spec.folder}/{os.path.basename(urllib.parse.urlsplit(url).path)}"
    if not os.path.isfile(path) or (digest and _digest(path) != digest):
        say(f"fetching {os.path.basename(path)}")
        data = _get(url)
        if digest and hashlib.sha256(data).hexdigest() != digest:
            raise CouldNotLook(f"{os.path.basename(path)}: its bytes are not those that the index names. Try again.")
        with open(f"{path}.new", "wb") as file:
            file.write(data)
        os.replace(f"{path}.new", path)
    return path


def _index() -> str:
    """The index that pip would ask: PIP_INDEX_URL, else what its own files say."""
    if given := os.environ.get("PIP_INDEX_URL"):
        return given
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    found = re.findall(r"(?m)^(?:global|download|install)\.index-url='([^']+)'$", asked.stdout)
    return found[0] if found else _DEFAULT


def _sdist_on(page: str, name: str, version: str) -> tuple[str, str]:
    text = _get(page).decode("utf-8", "replace")
    there: list[str] = []
    for link in _LINK.findall(text):
        address, _, fragment = urllib.parse.urljoin(page, link.replace("&amp;", "&")).partition("#")
        file = urllib.parse.unquote(os.path.basename(urllib.parse.urlsplit(address).path))
        ending = next((each for each in _ENDINGS if file.endswith(each)), "")
        stem, _, found = file.removesuffix(ending).rpartition("-") if ending else ("", "", "")
        if ending and normal(stem) == name and found == version:
            return address, fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else ""
        if ending and normal(stem) == name:
            there.append(found)
    near = near_releases(version, there)
    has = f"It has those of {', '.join(near)}." if near else "It has none of any release."
    raise BadInput(f"{name}=={version}: the index has no sdist of it. {has} Name an archive, a folder or git+URL@REF.")


def near_releases(version: str, there: list[str]) -> list[str]:
    """Of the releases that have an sdist those below and above the one asked for, and the newest."""
    known = sorted(each for text in set(there) if (each := _version(text)) is not None)
    finals = [each for each in known if not each.is_prerelease] or known
    wanted = _version(version)
    if wanted is None or not finals:
        return [str(each) for each in finals[-1:]]
    below, above = [each for each in finals if each < wanted], [each for each in finals if each > wanted]
    return [str(each) for each in dict.fromkeys((*below[-1:], *above[:1], finals[-1]))]


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _get(url: str) -> bytes:
    if not url.startswith(("https://", "http://")):
        raise BadInput(
            f"{masked(url)!a} is not the address of an index; accepted is http or https. Look at PIP_INDEX_URL."
        )
    try:
        with urllib.request.urlopen(_asking(url), timeout=_PATIENCE_S) as answer:  # noqa: S310 seen above
            data: bytes = answer.read(_MOST)
    except urllib.error.HTTPError as error:
        if error.code in (404, 410):
            raise BadInput(f"{masked(url)}: the index has no such page ({error.code}). Look at the name.") from error
        raise CouldNotLook(f"the index answered {error.code} {error.reason} for {masked(url)}.") from error
    except OSError as error:
        raise CouldNotLook(
            f"no network, or no index there: {error}. Give --source a tree or an sdist that is here."
        ) from error
    return data


def _asking(url: str) -> urllib.request.Request:
    """A request that carries the login of an address in its header: urllib takes it for a part of the host."""
    parts = urllib.parse.urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    asking = urllib.request.Request(parts._replace(netloc=host).geturl())  # noqa: S310 seen by the caller
    if login:
        words = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
        asking.add_unredirected_header("Authorization", f"Basic {words}")
    return asking


def _clone(spec: SourceSpec) -> None:
    """A checkout at its commit; a tag that moved since is refused."""
    source = spec.source
    if not os.path.isdir(f"{spec.tree}/.git"):
        shutil.rmtree(spec.tree, ignore_errors=True)
        forget_patches(spec.folder)
        half = f"{spec.tree}.half"
        shutil.rmtree(half, ignore_errors=True)
        _git(None, "clone", "--no-checkout", source.url, half)
        os.rename(half, spec.tree)
    take_patches_out(spec)  # a checkout leaves files that a patch brought
    _git(spec.tree, "fetch", "--tags", "--force", "origin")  # else a tag that moved ends as a network that is not there
    name = _named(spec.tree, source.ref)
    commit = _git(spec.tree, "rev-parse", "--verify", name).strip()
    if (began := commit_of_build(spec.folder)) and began != commit:
        require_not_a_tag(RemoteRef(name.removesuffix("^{commit}"), commit), began, spec.id)
        commit = began
    write_document(spec.folder, "commit.json", {"commit": commit})
    _git(spec.tree, "checkout", "--force", commit)
    _record(spec, Stage.FETCH, {"commit": commit})


def _named(tree: str, ref: str) -> str:
    """A ref as the remote has it: a branch of origin before a local name."""
    for name in (
        (f"refs/tags/{ref}^{{commit}}", f"refs/remotes/origin/{ref}", f"{ref}^{{commit}}") if ref else ("origin/HEAD",)
    ):
        asked = subprocess.run(
            ["git", "-C", tree, "rev-parse", "--verify", "--quiet", name], capture_output=True, check=False
        )
        if asked.returncode == 0:
            return name
    raise BadInput(f"{ref!a}: this repository has no such tag, branch or commit.")


def _git(tree: str | None, *words: str) -> str:
    argv = ["git", *(("-C", tree) if tree else ()), *words]
    say("$ " + " ".join(argv))
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    for line in done.stderr.splitlines():
        say(line)
    if done.returncode != 0:
        said = next(
            (line for line in done.stderr.splitlines() if line.startswith(("fatal", "error"))), "no reason given"
        )
        if words[0] in ("clone", "fetch") or words[:2] == ("submodule", "update"):
            raise CouldNotLook(
                f"git {words[0]} did not get the source: {masked(said)}. Without a network, give --source a tree that "
                "is here."
            )
        raise CouldNotAct(f"git {words[0]} ended with status {done.returncode}: {masked(said)}")
    return done.stdout


def missing_submodules(tree: str) -> tuple[str, ...]:
    """Submodules that are not there or at another commit than the tree names."""
    if not os.path.exists(f"{tree}/.git") or not os.path.isfile(f"{tree}/.gitmodules"):
        return ()
    asked = subprocess.run(
        ["git", "-C", tree, "submodule", "status", "--recursive"], capture_output=True, text=True, check=False
    )
    return tuple(
        line[1:].split()[1] for line in asked.stdout.splitlines() if line[:1] in "-+U" and len(line.split()) > 1
    )


def submodules(spec: SourceSpec) -> None:
    """Every submodule at the commit that the tree names."""
    if missing_submodules(spec.tree):
        _git(spec.tree, "submodule", "sync", "--recursive")
        _git(spec.tree, "submodule", "update", "--init", "--recursive", "--force")
    if left := missing_submodules(spec.tree):
        raise CouldNotAct(f"submodules are not at their commits: {', '.join(left[:5])}.")


def patch_tree(spec: SourceSpec) -> None:
    """Bring the tree to exactly the patches asked for, and write that down."""
    patch(spec)
    _record(spec, Stage.PATCH, {"patches": [os.path.basename(each) for each in spec.source.patches]})


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
