"""Unpacks an sdist: a member that leads out of the folder is refused before anything is written."""

from __future__ import annotations

import os
import posixpath
import tarfile
import zipfile

from firstlight.errors import BadInput


def unpack(archive: str, folder: str) -> None:
    """Unpack an sdist into a new folder; BadInput names the member that is refused."""
    os.makedirs(folder)
    try:
        if archive.endswith(".zip"):
            _unpack_zip(archive, folder)
        else:
            _unpack_tar(archive, folder)
    except tarfile.ReadError as error:
        accepted = "neither tar, plain or packed by gzip, bzip2 or xz, nor a whole one"
        raise BadInput(f"{archive}: no archive that can be read ({accepted}). Fetch it again.") from error
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise BadInput(f"{archive}: no archive that can be read ({error}). Fetch it again.") from error


def _unpack_zip(archive: str, folder: str) -> None:
    """zipfile makes no links: a member that is one becomes a file with its target as text."""
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            _require_inside(name, archive)
        file.extractall(folder)  # noqa: S202 every name was looked at


def _unpack_tar(archive: str, folder: str) -> None:
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        links = frozenset(_plain(each.name) for each in members if each.issym() or each.islnk())
        seen: set[str] = set()
        for member in members:
            _require_member(member, links, archive)
            if _plain(member.name) in links and _plain(member.name) in seen:
                raise _refused(archive, member.name, "is there twice, once as a link")
            seen.add(_plain(member.name))
        for member in members:
            member.uid = member.gid = os.geteuid()
            member.mode = (member.mode | 0o600) & 0o755
        if not hasattr(tarfile, "data_filter"):  # 3.10 before 3.10.12: what was looked at above has to do
            tar.extractall(folder, members=members)  # noqa: S202 every member was looked at
            return
        try:
            tar.extractall(folder, members=members, filter="data")
        except tarfile.FilterError as error:
            raise _refused(archive, error.tarinfo.name, f"is refused by tarfile ({error})") from error


def _require_member(member: tarfile.TarInfo, links: frozenset[str], archive: str) -> None:
    _require_inside(member.name, archive)
    if under := _link_above(_plain(member.name), links):
        raise _refused(archive, member.name, f"lies below the link {under!a}")
    if member.issym() or member.islnk():
        base = "" if member.islnk() else posixpath.dirname(_plain(member.name))
        _require_target(member, base, links, archive)
    elif not (member.isfile() or member.isdir()):
        raise _refused(archive, member.name, "is neither a file nor a folder")


def _require_target(member: tarfile.TarInfo, base: str, links: frozenset[str], archive: str) -> None:
    """A target that stays inside at every step of its way, without going through another link.

    x/d -> . and x/e -> d/.. are both inside as they are spelt, and x/e leads out when it is followed.
    """
    if member.linkname.startswith("/"):
        raise _leads_out(archive, member.name)
    at = [each for each in base.split("/") if each]
    words = [each for each in member.linkname.split("/") if each not in ("", ".")]
    for number, word in enumerate(words):
        if word == "..":
            if not at:
                raise _leads_out(archive, member.name)
            at.pop()
        else:
            at.append(word)
        if "/".join(at) in links and number < len(words) - 1:
            raise _refused(archive, member.name, f"is a link through another link, {'/'.join(at)!a}")


def _link_above(name: str, links: frozenset[str]) -> str:
    parts = name.split("/")
    return next((above for at in range(1, len(parts)) if (above := "/".join(parts[:at])) in links), "")


def _plain(name: str) -> str:
    return posixpath.normpath(name)


def _require_inside(name: str, archive: str) -> None:
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
        raise _leads_out(archive, name)


def _leads_out(archive: str, name: str) -> BadInput:
    return _refused(archive, name, "leads out of the folder it is unpacked in")


def _refused(archive: str, name: str, why: str) -> BadInput:
    return BadInput(f"{archive}: its member {name!a} {why}. Do not use this archive.")


def only_folder_in(folder: str) -> str:
    """The one folder that an sdist has at its top."""
    names = os.listdir(folder)
    if len(names) == 1 and os.path.isdir(os.path.join(folder, names[0])):
        return os.path.join(folder, names[0])
    return folder
