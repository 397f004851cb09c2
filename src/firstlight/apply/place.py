"""Where the journal lives and which machine it belongs to."""

from __future__ import annotations

import os
import re
import stat

from firstlight.errors import BadInput, NotOurs
from firstlight.frozen import dataclass
from firstlight.machine.interface import Machine, Stat
from firstlight.owned import name_of, our_folder

# A pod's own disk is wiped when it stops; the volume stays. RunPod and most templates mount it here.
VOLUMES = ("/workspace",)
ON_VOLUME = ".firstlight"
# They show every file with the owner and mode that the mount was given, whoever made it.
_KEEPS_NO_MODES = ("vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk", "cifs", "smb3", "9p", "vboxsf", "drvfs")
_CONTAINER_ID = re.compile(r"/containers/([0-9a-f]{64})/")


@dataclass(frozen=True, slots=True)
class Place:
    """Where state is kept; `note` says why it is not on the volume, "" where that needs no word.

    `refusal` says that this machine's journal lies on the volume all the same, where it cannot be used as it is.
    """

    path: str
    note: str = ""
    refusal: str = ""


def state_folder(machine: Machine, *, home: str = "") -> str:
    """FIRSTLIGHT_STATE_DIR, else a pod's persistent volume, else $XDG_STATE_HOME/firstlight."""
    return state_place(machine, home=home).path


def state_place(machine: Machine, *, home: str = "") -> Place:
    """The state folder, and why it is not on the volume where others could change what is kept there."""
    home = home or machine.host.home
    if home and not home.startswith("/"):
        raise BadInput(f"HOME is {home!a}: accepted is an absolute path. Set HOME to your home folder.")
    given = machine.env("FIRSTLIGHT_STATE_DIR")
    if given and not given.startswith("/"):  # from another folder the journal would not be found
        raise BadInput(
            f"FIRSTLIGHT_STATE_DIR is {given!a}: accepted is an absolute path. Set it to the whole path of a folder."
        )
    if given:
        return Place(os.path.normpath(given))
    local = _local_folder(machine, home=home)
    for volume in VOLUMES:
        found = machine.stat(volume)
        if found is None or not _is_mounted(machine, volume):
            continue
        on_volume = Place(f"{volume}/{ON_VOLUME}")
        journal = machine.stat(machine_part(machine, on_volume))
        ours = journal is not None and journal.uid in (0, machine.host.uid)  # another user's would never be read
        if fault := _fault(machine, volume, found):
            if ours:
                return Place(local, refusal=_refusal(machine, volume, found, fault))
            return Place(local, _note(local, volume, fault) if found.writable else "")
        begun = machine.stat(machine_part(machine, Place(local))) is not None
        if ours or (found.writable and not begun):
            return on_volume
    return Place(local)


def _local_folder(machine: Machine, *, home: str) -> str:
    """A relative XDG_STATE_HOME is to be ignored, says its specification; a home has to be somewhere."""
    base = machine.env("XDG_STATE_HOME") or ""
    if base.startswith("/"):
        return f"{base.rstrip('/')}/firstlight"
    if not home:
        raise BadInput(
            "this user has no home folder, and HOME is not set. Set HOME, or FIRSTLIGHT_STATE_DIR to a folder for what "
            "firstlight keeps."
        )
    return f"{home.rstrip('/')}/.local/state/firstlight"


def _fault(machine: Machine, volume: str, found: Stat) -> str:
    """Why others could change what is kept on a volume; "" where they cannot."""
    if found.uid not in (0, machine.host.uid):
        return f"belongs to {name_of(found.uid)}"
    if found.mode & 0o022 and not (found.mode & 0o1000 and found.uid == 0):
        return f"can be changed by others (mode {found.mode:04o})"
    kind = _file_system(machine, volume)
    return f"is {kind}, which keeps no owners or modes" if kind in _KEEPS_NO_MODES else ""


def _note(local: str, volume: str, fault: str) -> str:
    return (
        f"what firstlight keeps goes to {local}: {volume} {fault}, and what lies there would be carried out with your "
        f"rights. To keep it on the volume, make {volume} root's with mode 1777, or set FIRSTLIGHT_STATE_DIR."
    )


def _refusal(machine: Machine, volume: str, found: Stat, fault: str) -> str:
    """Why a journal that lies on the volume is not used, and how to make it usable."""
    if found.uid not in (0, machine.host.uid):
        how = f"Give it to root again with `chown root {volume}` "
    elif found.mode & 0o022:
        how = f"Close it to others with `chmod {'1777' if found.uid == 0 else 'go-w'} {volume}` "
    else:
        how = "Copy the folder to a file system that keeps them, set FIRSTLIGHT_STATE_DIR to the copy of .firstlight, "
    return (
        f"this machine's journal is in {machine_part(machine, Place(f'{volume}/{ON_VOLUME}'))}, and {volume} {fault}: "
        "what lies there would be carried out with your rights. Nothing was read or changed, and without that journal "
        f"nothing can be finished or undone. {how}and run the same command again. To begin without it, set "
        "FIRSTLIGHT_STATE_DIR to a folder of your own."
    )


def _usable(place: Place) -> Place:
    """The same place; NotOurs where the journal lies elsewhere, so that nobody is told that there is none."""
    if place.refusal:
        raise NotOurs(place.refusal)
    return place


def ready_place(machine: Machine) -> Place:
    """The same for one who is about to write: a volume that does not keep the mode of a new folder is not used."""
    place = _usable(state_place(machine))
    volume, name = os.path.split(place.path)
    if volume not in VOLUMES or name != ON_VOLUME or machine.env("FIRSTLIGHT_STATE_DIR"):
        return place
    try:
        with our_folder(place.path, make=0o700) as folder:
            kept = os.fstat(folder.handle)
            if not folder.made or (kept.st_uid, stat.S_IMODE(kept.st_mode)) == (os.geteuid(), 0o700):
                return place
    except (NotOurs, OSError):
        return place  # told by whoever opens the journal there
    os.rmdir(place.path)
    local = _local_folder(machine, home=machine.host.home)
    fault = f"keeps no owners or modes (a new folder of mode 0700 has {stat.S_IMODE(kept.st_mode):04o} there)"
    return Place(local, _note(local, volume, fault))


def machine_folder(machine: Machine) -> str:
    """This machine's part of the state folder: two pods may share a volume, each has its own journal."""
    return machine_part(machine, _usable(state_place(machine)))


def machine_part(machine: Machine, place: Place) -> str:
    """The folder of this machine's journal in a state folder."""
    return f"{place.path}/machines/{machine_identity(machine)}"


def machine_identity(machine: Machine) -> str:
    """Sixteen hex digits that stay through reboots and change when a container is made anew, e.g. 9f86d081884c7d65.

    A container made anew has lost what was done to it, so the journal of the one before is not its journal.
    """
    mounts = machine.read("/proc/self/mountinfo") or ""
    container = _CONTAINER_ID.search(mounts)
    pieces = (
        (machine.read("/etc/machine-id") or "").strip(),
        container.group(1) if container else "",
        machine.env("RUNPOD_POD_ID") or "",
        machine.host.hostname,
    )
    import hashlib  # OpenSSL: a hundredth of a second, and most who import this ask no digest

    return hashlib.sha256("\n".join(pieces).encode()).hexdigest()[:16]


def _is_mounted(machine: Machine, folder: str) -> bool:
    return bool(_file_system(machine, folder))


def _file_system(machine: Machine, folder: str) -> str:
    """The kind of file system that is mounted on a folder, e.g. ext4; "" where none is."""
    mounts = machine.read("/proc/self/mountinfo") or ""
    found = [line for line in mounts.splitlines() if line.split()[4:5] == [folder]]
    return next((line.partition(" - ")[2].split(" ")[0] or "unknown" for line in reversed(found)), "")
