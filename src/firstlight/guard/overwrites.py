"""What a call overwrites without naming it: a work tree by git, the files of a patch, an archive or another folder."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Mapping

from firstlight.frozen import dataclass
from firstlight.guard.call import HOLE, Call
from firstlight.guard.place import really, text_of
from firstlight.guard.protect import git_folder

_NAMES_A_FILE = re.compile(
    r"(?:\+\+\+|---|rename (?:from|to)|copy (?:from|to)) (\"?)([^\t\r\n]+?)\1\s*(?:\t.*)?$", re.M
)
_LARGEST_ARCHIVE = 16 << 20  # bytes; a hook has no time to unpack more
_COPY_VALUED = {"-t", "--target-directory", "-e", "--exclude", "--include", "-S", "--rsh", "-i", "-f", "--filter"}
_PATHS = "Name the paths that it should change."
_FOLDER = "Unpack or copy it into a folder of its own."


@dataclass(frozen=True, slots=True)
class Swath:
    """A folder of which a call overwrites something: `names` under it, what lies in `source` too, or else whatever."""

    by: str  # git reset
    folder: str
    instead: str
    names: tuple[str, ...] | None = None
    source: str = ""

    def covers(self, shield: str) -> bool:
        """Whether a protected path, which may be a pattern, is in reach."""
        return any(
            self._covers(os.path.normpath(folder), each)
            for folder in {self.folder, really(self.folder)}
            for each in {os.path.normpath(shield), really(shield)}
        )

    def _covers(self, folder: str, shield: str) -> bool:
        if shield == folder or folder.startswith(f"{shield}/") or fnmatch.fnmatch(folder, shield):
            return self.names is None or bool(self.names)
        if not shield.startswith(f"{folder.rstrip('/')}/"):
            return False
        under = shield[len(folder.rstrip("/")) + 1 :]
        if self.source:
            return bool(glob.glob(os.path.join(glob.escape(self.source), under)))
        if self.names is None:
            return True
        names = (name.removeprefix("./").rstrip("/") for name in self.names)
        return any(fnmatch.fnmatch(each, under) or fnmatch.fnmatch(each, f"{under}/*") for each in names)


Written = Mapping[str, str | None]


def overwritten(call: Call, name: str, written: Written) -> Iterator[Swath]:
    """Every swath of a call; `written` are the files that the text itself makes, with their text."""
    words = list(call.words[1:])
    for cwd in call.cwds:
        if name == "git":
            yield from _git(words, cwd, call, written)
        elif name == "patch":
            yield from _patch(words, cwd, call, written)
        elif name in ("tar", "bsdtar", "unzip"):
            yield from _archive(name, words, cwd, written)
        else:
            yield from _copied(name, words, cwd, written)


def _git(words: list[str], cwd: str, call: Call, written: Written) -> Iterator[Swath]:
    inside, rest = git_folder(words)
    base = os.path.normpath(os.path.join(cwd, inside))
    verb, given = (rest[0], rest[1:]) if rest else ("", [])
    options = {word for word in given if word.startswith("-")}
    if verb in ("apply", "am"):
        if not options & {"--check", "--stat", "--numstat", "--summary", "--cached", "--abort", "--skip", "--continue"}:
            files = [word for word in given if not word.startswith("-")]
            names = _of_patches(files, base, call.stdin, written=written, strip=_strip(given, usual=1))
            for folder in {base, _work_tree(base, written)}:
                yield Swath(f"git {verb}", _joined(folder, given, "--directory"), "Save the patch as a file.", names)
        return
    if (verb == "reset" and any(len(word) > 3 and "--hard".startswith(word) for word in options)) or (
        (verb, bool(options & {"-a", "--all"})) == ("checkout-index", True)
        or (verb == "read-tree" and options & {"-u", "--reset"})
    ):
        yield Swath(f"git {verb}", _work_tree(base, written), "Restore single files: git restore PATH.")
    for path in _git_paths(verb, given, base):
        yield Swath(
            f"git {verb}", _work_tree(base, written) if path.startswith(":") else os.path.join(base, path), _PATHS
        )


def _git_paths(verb: str, given: list[str], base: str) -> Iterator[str]:
    """The paths whose work tree a verb overwrites; ':/' for all of it."""
    after = given[given.index("--") + 1 :] if "--" in given else []
    before = given[: given.index("--")] if "--" in given else given
    short = {letter for word in before if re.fullmatch(r"-\w+", word) for letter in word[1:]}
    staged_alone = ("--staged" in before or "S" in short) and "--worktree" not in before and "W" not in short
    if verb == "restore" and not staged_alone:
        yield from after or _operands(before, {"-s", "--source", "--conflict"})
    elif verb == "checkout" and not short & {"b", "B"} and "--orphan" not in before:
        operands = _operands(before, {"--conflict"})
        yield from after or [word for word in operands[1:] or operands if os.path.exists(os.path.join(base, word))]
        yield from (":/" for word in before if word.startswith("--pathspec-from-file"))
    elif verb == "clean" and not ("n" in short or "--dry-run" in before):
        yield from after or _operands(before, {"-e", "--exclude"}) or ["."]
    elif verb == "stash":
        operands = _operands(before, {"-m", "--message"})
        if not operands or operands[0] in ("push", "save"):
            paths = after or (operands[1:] if operands[:1] == ["push"] else [])
            yield from paths or ([":/"] if "S" not in short and "--staged" not in before else [])


def _operands(words: list[str], valued: set[str]) -> list[str]:
    return [
        word for at, word in enumerate(words) if not word.startswith("-") and (at == 0 or words[at - 1] not in valued)
    ]


def _work_tree(folder: str, written: Written) -> str:
    """The top of the work tree that a folder is in, a clone of the same text too; the folder where none is found."""
    top = folder
    while top not in written and not os.path.exists(os.path.join(top, ".git")):
        above = os.path.dirname(top)
        if above == top:
            return folder
        top = above
    return top


def _patch(words: list[str], cwd: str, call: Call, written: Written) -> Iterator[Swath]:
    if "--dry-run" in words or "--help" in words or "--version" in words:
        return
    files = [words[at + 1] for at, word in enumerate(words[:-1]) if word in ("-i", "--input")]
    files += [word.partition("=")[2] for word in words if word.startswith("--input=")]
    files += _operands(words, {"-p", "-d", "-i", "-o", "-F", "-B", "-z", "-D", "-r", "-g", "-V", "-Y"})[1:2]
    folder = _joined(_joined(cwd, words, "-d"), words, "--directory")
    names = _of_patches(files, cwd, call.stdin, written=written, strip=_strip(words, usual=-1))
    yield Swath("patch", folder, "Save the patch as a file.", names)


def _joined(folder: str, words: list[str], option: str) -> str:
    """The folder with the one that an option names."""
    for at, word in enumerate(words):
        if word == option and at + 1 < len(words):
            return os.path.normpath(os.path.join(folder, words[at + 1]))
        if option.startswith("--") and word.startswith(f"{option}="):
            return os.path.normpath(os.path.join(folder, word.partition("=")[2]))
    return folder


def _strip(words: list[str], *, usual: int) -> int:
    """How many parts of a path -p takes off; -1: any number of them."""
    for at, word in enumerate(words):
        number = words[at + 1] if word == "-p" and at + 1 < len(words) else word[2:] if word.startswith("-p") else ""
        if number.isdigit():
            return int(number)
    return usual


def _of_patches(
    files: list[str], base: str, stdin: str | None, *, written: Written, strip: int
) -> tuple[str, ...] | None:
    """The paths that patches name; None where one cannot be read."""
    texts = [_text(os.path.normpath(os.path.join(base, file)), written) for file in files] if files else [stdin]
    found: list[str] = []
    for text in texts:
        if text is None or HOLE in text:
            return None if files or stdin is not None else ()
        for path in (match[2] for match in _NAMES_A_FILE.finditer(text)):
            parts = path.split("/")
            if path != "/dev/null":
                found += [
                    "/".join(parts[at:]) for at in ((min(strip, len(parts) - 1),) if strip >= 0 else range(len(parts)))
                ]
    return tuple(dict.fromkeys(found))


def _text(path: str, written: Written) -> str | None:
    return written[path] if path in written else text_of(path)


def _archive(name: str, words: list[str], cwd: str, written: Written) -> Iterator[Swath]:
    if name == "unzip":
        letters = {letter for word in words if re.fullmatch(r"-\w+", word) for letter in word[1:]}
        if letters & set("ltpvzZ"):
            return
        files, folder = _operands(words, {"-d", "-x", "-P"})[:1], _joined(cwd, words, "-d")
    else:
        first = words[0] if words and not words[0].startswith("-") else ""
        bundles = [first, *(word[1:] for word in words if re.fullmatch(r"-\w+", word))]
        if not any("x" in each for each in bundles) and not {"--extract", "--get"} & set(words):
            return
        files = [words[at + 1] for at, word in enumerate(words[:-1]) if word == first or re.fullmatch(r"-\w*f", word)]
        files += [word.partition("=")[2] for word in words if word.startswith("--file=")]
        folder = _joined(_joined(cwd, words, "-C"), words, "--directory")
        if any("O" in each for each in bundles) or "--to-stdout" in words:
            return
    path = os.path.normpath(os.path.join(cwd, files[0])) if files[:1] not in ([], ["-"]) else ""
    yield Swath(name, folder, _FOLDER, _listed(name, path) if path and path not in written else None)


def _listed(name: str, path: str) -> tuple[str, ...] | None:
    """The names in an archive; None where it is not there, not readable or too large to be listed in time."""
    import tarfile  # most actions unpack nothing
    import zipfile
    import zlib

    try:
        if os.path.getsize(path) > _LARGEST_ARCHIVE:
            return None
        if name == "unzip":
            with zipfile.ZipFile(path) as archive:
                return tuple(archive.namelist())
        with tarfile.open(path) as tar:
            return tuple(tar.getnames())
    except (OSError, ValueError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile):
        return None


def _copied(name: str, words: list[str], cwd: str, written: Written) -> Iterator[Swath]:
    """A folder that is copied over another one."""
    letters = {letter for word in words if re.fullmatch(r"-\w+", word) for letter in word[1:]}
    if not (letters & set("rRa") or {"--recursive", "--archive"} & set(words)):
        return
    if name == "rsync" and ("n" in letters or "--dry-run" in words):
        return
    if name == "cp":  # of rsync -t means the times
        words = ["-t" if re.fullmatch(r"-\w+t", word) else word for word in words]
    operands = _operands(words, _COPY_VALUED if name == "cp" else _COPY_VALUED - {"-t", "-S"})
    into = "" if name == "rsync" else _joined("", words, "-t") or _joined("", words, "--target-directory")
    sources, target = (operands, into) if into else (operands[:-1], operands[-1] if operands else "")
    if not target or ":" in target.split("/")[0]:
        return
    whole = name == "cp" and ("T" in letters or "--no-target-directory" in words)
    folder = os.path.normpath(os.path.join(cwd, os.path.expanduser(target)))
    for source in sources:
        contents = whole or source.endswith(("/.", "/..")) or source in (".", "..") or (
            source.endswith("/") and name == "rsync"
        )  # fmt: skip
        there = folder if contents else os.path.join(folder, os.path.basename(source.rstrip("/")))
        if not contents and not os.path.isdir(folder):
            there = folder  # the copy is given that name
        start = os.path.normpath(os.path.join(cwd, os.path.expanduser(source)))
        seen = os.path.isdir(start) and start not in written and "--delete" not in words
        yield Swath(f"{name} of a folder", there, _FOLDER, source=start if seen else "")
