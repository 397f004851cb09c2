"""A Debian root with a shell, apt and nothing else, and an apt repository beside it; made of this machine's packages.

What dpkg lists of an installed package is copied: no mirror is needed, and apt and dpkg in the root are the real ones.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.apply.debs import Repository

_INFO = Path("/var/lib/dpkg/info")
_SCRIPTS = ("preinst", "postinst", "prerm", "postrm", "triggers", "config", "templates")
_NOT_COPIED = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/")
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")  # links into /usr since Debian 12


def closure(names: Iterable[str], *, without: Iterable[str] = ()) -> tuple[str, ...]:
    """The installed packages that some packages need, themselves included; sorted."""
    fields = _fields()
    real = {word: name for name, each in fields.items() for word, *_ in _relations(each.get("Provides", ""))}
    real |= {name: name for name in fields}
    todo: list[tuple[str, ...]] = [(name,) for name in names]
    found = set(without)
    while todo:
        name = next((real[each] for each in todo.pop() if each in real), "")  # of alternatives the one that is here
        if name and name not in found:
            found.add(name)
            todo += [*_relations(fields[name].get("Depends", "")), *_relations(fields[name].get("Pre-Depends", ""))]
    return tuple(sorted(found - set(without)))


def essential() -> tuple[str, ...]:
    """What a root cannot do without, and apt."""
    base = [name for name, each in _fields().items() if each.get("Essential") == "yes"]
    return closure([*base, "apt", "bash"])


def copy_packages(root: Path, packages: tuple[str, ...]) -> None:
    """The files of these packages and nothing else, as an image without a package manager has them."""
    _merge(root)
    for name in packages:
        _copy_files(name, root, without=_NOT_COPIED)


def _merge(root: Path) -> None:
    for name in _MERGED:
        if os.path.islink(f"/{name}"):
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")


def make_root(root: Path, packages: tuple[str, ...]) -> None:
    """A root that holds these packages, installed as dpkg knows it."""
    _merge(root)
    for folder in (
        "dev",
        "proc",
        "sys",
        "tmp",
        "root",
        "etc/alternatives",
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name in packages:
        _copy_files(name, root, without=_NOT_COPIED)
        for file in _info_files(name):
            shutil.copy2(file, root / "var/lib/dpkg/info" / file.name)
    text = Path("/var/lib/dpkg/status").read_text()
    kept = [each for each in text.split("\n\n") if _name_of(each) in packages]
    (root / "var/lib/dpkg/status").write_text("\n\n".join(kept) + "\n\n")
    shutil.copy2("/var/lib/dpkg/info/format", root / "var/lib/dpkg/info/format")
    for name in ("passwd", "group", "shadow", "nsswitch.conf", "ld.so.conf"):
        if os.path.exists(f"/etc/{name}"):
            shutil.copy2(f"/etc/{name}", root / "etc" / name)
    # made by their packages' scripts, and so in no list of files
    shutil.copy2("/usr/share/base-files/profile", root / "etc/profile")
    for file in Path("/etc/pam.d").glob("common-*"):
        shutil.copy2(file, root / "etc/pam.d" / file.name)
    for link in Path("/etc/alternatives").iterdir():
        if link.is_symlink() and (root / os.readlink(link).lstrip("/")).exists():
            (root / "etc/alternatives" / link.name).symlink_to(os.readlink(link))
            known = Path("/var/lib/dpkg/alternatives", link.name)
            if known.exists():  # its second line is where programs look for it: /usr/bin/awk
                (root / known.read_text().splitlines()[1].lstrip("/")).symlink_to(link)
    (root / "root/.bashrc").write_text("case $- in *i*) ;; *) return ;; esac\n")  # as Ubuntu's begins
    chroot(root, "ldconfig")


def chroot(root: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the root with /proc and /dev of its own, and an environment that is not this one."""
    script = (
        'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" && root="$1" && shift && exec chroot "$root" "$@"'
    )
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(root), *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **environ},
    )


def add_packages(repository: Repository, names: tuple[str, ...]) -> None:
    """Put installed packages into a repository, packed again from their files."""
    for name in names:
        tree = repository.folder / f"again-{name}"
        _copy_files(name, tree)
        control = tree / "DEBIAN"
        control.mkdir(parents=True)
        kept = [line for line in _control(name) if not line.startswith(("Status:", "Conffiles:"))]
        (control / "control").write_text("\n".join(kept) + "\n")
        for file in _info_files(name):
            kind = file.name.rpartition(".")[2]
            if kind in _SCRIPTS:
                shutil.copy2(file, control / kind)
        deb = repository.packages / f"{name}.deb"
        subprocess.run(
            ["dpkg-deb", "-Znone", "--root-owner-group", "--build", str(tree), str(deb)],
            check=True, capture_output=True,
        )  # fmt: skip
        shutil.rmtree(tree)
    repository._index()


def _fields() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for entry in Path("/var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"(?m)^([A-Za-z-]+): (.*(?:\n .*)*)", entry))
        if fields.get("Status") == "install ok installed":
            found.setdefault(fields["Package"], fields)
    return found


def _name_of(entry: str) -> str:
    match = re.search(r"(?m)^Package: (\S+)", entry)
    return match[1] if match and "install ok installed" in entry else ""


def _relations(text: str) -> list[tuple[str, ...]]:
    """Names without versions, alternatives together: 'a (>= 1), b | c' is (a), (b, c)."""
    parts = [part.split("|") for part in text.split(",") if part.strip()]
    return [tuple(re.split(r"[\s(:]", each.strip())[0] for each in alternatives) for alternatives in parts]


def _control(name: str) -> list[str]:
    text = subprocess.run(["dpkg-query", "--status", name], check=True, capture_output=True, text=True).stdout
    lines: list[str] = []
    skipping = False
    for line in text.rstrip().splitlines():
        skipping = line.startswith("Conffiles:") or (skipping and line.startswith(" "))
        if not skipping:
            lines.append(line)
    return lines


@functools.cache
def _all_info() -> dict[str, list[Path]]:
    """Package -> its files among dpkg's notes; libc6:amd64.list is of libc6."""
    found: dict[str, list[Path]] = {}
    for file in _INFO.iterdir():
        found.setdefault(re.sub(r"(:[a-z0-9]+)?\.\w+$", "", file.name), []).append(file)
    return found


def _info_files(name: str) -> list[Path]:
    return _all_info()[name]


def _copy_files(name: str, root: Path, *, without: tuple[str, ...] = ()) -> None:
    [listed] = [file for file in _info_files(name) if file.name.endswith(".list")]
    for path in sorted(listed.read_text().splitlines()):
        if path == "/." or path.startswith(without):
            continue
        target = root / path.lstrip("/")
        if os.path.isdir(path) and (not os.path.islink(path) or path[1:] in _MERGED):
            target.mkdir(parents=True, exist_ok=True)
        elif os.path.lexists(path) and not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
