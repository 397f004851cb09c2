"""Which files a call writes, moves or removes, and whether one of them is protected."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Mapping

from firstlight.frozen import dataclass
from firstlight.guard.call import HOLE, Call
from firstlight.guard.place import Place, really
from firstlight.guard.policy import Policy

_ALL = {"rm", "rmdir", "unlink", "shred", "truncate", "tee", "touch", "chmod", "chown", "chgrp", "chattr", "setfacl",
        "sponge", "vim", "vi", "nvim", "nano", "emacs", "ed", "ex", "patch", "mv", "setfattr", "split"}  # fmt: skip
_TAKES_PARENTS = {
    "rm",
    "rmdir",
    "mv",
    "shred",
    "chmod",
    "chown",
    "chgrp",
    "rsync",
    "git clean",
    "git rm",
    "git mv",
    "find",
}
_OF_LINKS = {"ln", "rm", "unlink", "mv"}  # what they do to the name of a link, they do to the link
_LAST = {"cp", "ln", "install", "rsync", "scp"}
_OUT = {"curl": ("-o", "--output"), "wget": ("-O", "--output-document", "-P"), "sort": ("-o", "--output"),
        "gcc": ("-o",),
        "g++": ("-o",), "nvcc": ("-o",), "tar": ("-C", "--directory"), "unzip": ("-d",), "openssl": ("-out",),
        "patch": ("-o", "-d", "-i"), "jq": (), "clang": ("-o",), "yq": ()}  # fmt: skip
_GIT_PATHS = {"rm", "mv", "restore", "checkout", "apply", "update-index"}
_CONFIG_WITHOUT_A_VALUE = {"--unset", "--unset-all", "unset", "--edit", "-e", "edit"}
_VALUED = {
    "-m",
    "--mode",
    "-o",
    "-g",
    "-s",
    "-t",
    "--target-directory",
    "-S",
    "--suffix",
    "-r",
    "--reference",
    "-i",
    "-e",
    "-n",
}


@dataclass(frozen=True, slots=True)
class Touched:
    """One path that a call would change; `with_parents` where a folder above goes with it."""

    path: str
    with_parents: bool = False


def touched(call: Call) -> Iterator[Touched]:
    """The paths that a call changes, as far as its words say it."""
    for path in call.writes:
        yield Touched(path)
    name = call.words[0].rsplit("/", 1)[-1]
    words = list(call.words[1:])
    if name == "mentions":
        yield from (Touched(word) for word in words if len(word) < 400)
        return
    operands = _operands(name, words)
    wide = name in _TAKES_PARENTS
    if name in _ALL:
        yield from (Touched(path, wide) for path in operands)
    if name in _LAST or name == "mv":
        yield from _destination(words, operands)
    if (name in ("sed", "gsed") and any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in words)) or (
        name in ("perl", "ruby") and any(re.match(r"-[a-zA-Z]*i", word) for word in words)
    ):
        yield from (Touched(word) for word in words if not word.startswith("-"))
    if name in ("awk", "gawk") and "inplace" in words:
        yield from (Touched(path) for path in operands)
    if name == "dd":
        yield from (Touched(word[3:]) for word in words if word.startswith("of="))
    yield from _outputs(name, words)
    if name == "git":
        yield from _git(words)


def _operands(name: str, words: list[str]) -> list[str]:
    """Words that are no options; of rm all of them, since what follows an option of its own is a path too."""
    valued = _VALUED if name in (*_LAST, "truncate", "split") else set()
    return [
        word for at, word in enumerate(words) if not word.startswith("-") and (at == 0 or words[at - 1] not in valued)
    ]


def _destination(words: list[str], operands: list[str]) -> Iterator[Touched]:
    into = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-t", "--target-directory")]
    into += [word.partition("=")[2] for word in words if word.startswith("--target-directory=")]
    for target in into or operands[-1:]:
        yield Touched(target)
        for source in operands if into else operands[:-1]:
            yield Touched(os.path.join(target, os.path.basename(source.rstrip("/"))))


def _outputs(name: str, words: list[str]) -> Iterator[Touched]:
    options = _OUT.get(name, ())
    for at, word in enumerate(words):
        for option in options:
            if word == option and at + 1 < len(words):
                yield Touched(words[at + 1])
            elif option.startswith("--") and word.startswith(f"{option}="):
                yield Touched(word.partition("=")[2])
            elif len(option) == 2 and word.startswith(option) and len(word) > 2 and not word.startswith("--"):
                yield Touched(word[2:])
    if name == "wget":
        yield from (Touched(word.split("?")[0].rsplit("/", 1)[-1]) for word in words if "://" in word)


def _git(words: list[str]) -> Iterator[Touched]:
    folder, rest = git_folder(words)
    if not rest:
        return
    verb, operands = rest[0], [word for word in rest[1:] if not word.startswith("-")]
    if verb in _GIT_PATHS:
        if verb == "checkout" and "--" in rest:
            operands = rest[rest.index("--") + 1 :]
        elif verb == "checkout" and not any("/" in word or "." in word for word in operands[-1:]):
            operands = []
        for path in operands:
            yield Touched(os.path.join(folder, path), with_parents=verb in ("rm", "mv"))
    keys = [at for at, word in enumerate(operands) if word.lower() == "core.hookspath" or word.startswith("alias.")]
    if verb == "config" and keys and (operands[keys[0] + 1 :] or set(rest) & _CONFIG_WITHOUT_A_VALUE):
        yield Touched(".git/config")
    if (
        verb in ("checkout", "switch", "reset", "pull", "merge", "rebase", "clean", "stash", "am", "cherry-pick")
        and folder
    ):
        yield Touched(os.path.join(folder, ".git-tree"))


def git_folder(words: list[str]) -> tuple[str, list[str]]:
    """The folder that git works in by -C, and the words from its verb on."""
    folder, rest = "", list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word in ("-C", "-c", "--git-dir", "--work-tree") and rest:
            value = rest.pop(0)
            folder = os.path.join(folder, value) if word == "-C" else folder
    return folder, rest


def protected_by(touch: Touched, call: Call, policy: Policy, place: Place, *, links: Mapping[str, str]) -> str:
    """The entry of the policy that protects a path, '' for none; `links` are those that the same text makes."""
    for entry in policy.protected:
        shield = os.path.join(place.root, os.path.expanduser(entry))
        if any(_hits(path, shield, touch) for path in _full(touch.path, call, place, links)):
            return entry
    return ""


def _full(path: str, call: Call, place: Place, links: Mapping[str, str]) -> list[str]:
    """A path as absolute ones: by each folder that the call may run in, its links followed, its patterns expanded."""
    found: list[str] = []
    for cwd in call.cwds or (place.cwd,):
        full = os.path.normpath(os.path.join(cwd, os.path.expanduser(path)))
        of_links = call.words[0].rsplit("/", 1)[-1] in _OF_LINKS
        found += _through(full, {link: to for link, to in links.items() if not (of_links and link == full)})
        if HOLE in full or len(full) > 4000:
            continue
        found.append(really(full))
        if any(letter in full for letter in "*?["):
            found += list(glob.glob(full)[:500])
    return list(dict.fromkeys(found))


def _through(path: str, links: Mapping[str, str]) -> list[str]:
    """A path, and what it comes to through links that are made by the text itself: /p/a/x to /p/b/x by ln -s b a."""
    found = [path]
    for _ in range(4):  # a link to a link
        at = found[-1]
        step = next((f"{to}{at[len(link) :]}" for link, to in links.items() if f"{at}/".startswith(f"{link}/")), "")
        if not step or step in found:
            break
        found.append(step)
    return found


def _hits(path: str, shield: str, touch: Touched) -> bool:
    shields = {os.path.normpath(shield), really(shield)}
    for each in shields:
        if path == each or path.startswith(f"{each}/"):
            return True
        if touch.with_parents and (each.startswith(f"{path.rstrip('/')}/")):
            return True
        if any(letter in each for letter in "*?[") and (
            fnmatch.fnmatch(path, each) or fnmatch.fnmatch(path, f"{each}/*")
        ):
            return True
        if (HOLE in path or any(letter in path for letter in "*?[")) and _may_be(path, each, touch):
            return True
    return False


def _may_be(path: str, shield: str, touch: Touched) -> bool:
    """Whether a path with holes or patterns may be a protected one, or lie under it."""
    pattern = "".join(
        ".*" if letter == HOLE else "[^/]*" if letter == "*" else "[^/]" if letter == "?" else re.escape(letter)
        for letter in path
    )
    if re.fullmatch(pattern, shield):
        return True
    head = re.split(f"[{HOLE}*?\\[]", path, maxsplit=1)[0]
    if (
        touch.with_parents
        and head
        and shield.startswith(head)
        and path.endswith((HOLE, "*"))
        and re.match(pattern, shield)
    ):
        return True
    return bool(head) and head.startswith(f"{shield}/")
