"""How a step is taken back, as data: `undo` carries out what these say and never a command line that was stored."""

from __future__ import annotations

import enum
import posixpath
import sys

from firstlight.frozen import dataclass

Argv = tuple[str, ...]


class BackKind(enum.Enum):
    """What is done to take a step back."""

    REMOVE_FILE = "remove-file"  # a file or a link
    REMOVE_FOLDER = "remove-folder"  # with all that is in it
    MOVE_BACK = "move-back"  # the copy that the step made (first) takes its old place (second)
    SYNC_UV = "sync-uv-project"  # the folder of a project whose manifest and lock file are back
    SYNC_PIXI = "sync-pixi-project"  # the manifest of such a project
    REMOVE_CONDA = "remove-conda-environment"
    REMOVE_RPM = "remove-rpm-packages"  # by dnf
    REMOVE_YUM = "remove-yum-packages"
    REMOVE_TDNF = "remove-tdnf-packages"
    REMOVE_ZYPPER = "remove-zypper-packages"
    REMOVE_PACMAN = "remove-pacman-packages"
    UNLOAD_MODULES = "unload-modules"
    DISABLE_SERVICE = "disable-service"  # it no longer starts with the machine
    STOP_SERVICE = "stop-service"
    RESTART_SERVICE = "restart-service"  # after its settings are back
    UNHOLD = "unhold-packages"
    UNLOCK_RPM = "unlock-rpm-packages"  # by dnf
    UNLOCK_YUM = "unlock-yum-packages"
    UNLOCK_ZYPPER = "unlock-zypper-packages"
    COMPUTE_MODE = "compute-mode"  # of a GPU (first) as it was (second)
    POWER_LIMIT = "power-limit"  # of a GPU (first) in watts as it was (second)
    BOOT_MENU = "boot-menu"  # GRUB's made anew, after its settings are back
    MIG_ON = "mig-on"  # of a GPU; its instances are made anew by whoever made them
    REMOVE_IMAGE = "remove-image"  # a container image that was pulled
    EARLY_IMAGE = "early-image"  # what the kernel starts from is made anew, after files in /etc/modprobe.d are back
    RELOAD_LOADER = "reload-loader"  # ldconfig, after its files are back
    FORGET_PROOFS = "forget-proofs"  # what the start script in a folder wrote down of cuInit
    FORGET_COMPILED = "forget-compiled"  # what Python made of the start module in a site-packages folder
    TAKE_OUT_OF_PREFIX = "take-out-of-prefix"  # the files of a ledger of `build --prefix`, and no other
    SHOWN = "shown"  # for a reader: the packages of before, or a person, do it; never run
    STORED = "stored"  # a command line out of a journal of 0.1: run only after somebody read it and agreed


@dataclass(frozen=True, slots=True)
class Back:
    """One thing that takes a step back, e.g. remove-folder /root/firstlight-venv."""

    kind: BackKind
    words: tuple[str, ...] = ()  # paths or packages; of SHOWN and STORED the whole command
    sudo: bool = False


START_MODULE = "_firstlight_compat"
_FORGET_PROOFS = 'rm -f "$1"/works-*'
_FORGET_COMPILED = f'rm -f "$1"/__pycache__/{START_MODULE}.*; rmdir "$1/__pycache__" 2>/dev/null || :'
# undo runs what stands here, never what a table or a journal says; a test compares the tables with it.
EARLY_IMAGE_TOOLS = {
    "update-initramfs": ("update-initramfs", "-u"),
    "dracut": ("dracut", "--force"),
    "mkinitcpio": ("mkinitcpio", "-P"),
}
_BEFORE: dict[BackKind, Argv] = {
    BackKind.REMOVE_FILE: ("rm", "-f"),
    BackKind.REMOVE_FOLDER: ("rm", "-rf"),
    BackKind.MOVE_BACK: ("mv", "--force"),
    BackKind.SYNC_UV: ("uv", "sync", "--frozen", "--project"),
    BackKind.SYNC_PIXI: ("pixi", "install", "--frozen", "--manifest-path"),
    BackKind.REMOVE_CONDA: ("conda", "env", "remove", "--yes", "--prefix"),
    BackKind.REMOVE_RPM: ("dnf", "remove", "--assumeyes"),
    BackKind.REMOVE_YUM: ("yum", "remove", "--assumeyes"),
    BackKind.REMOVE_TDNF: ("tdnf", "remove", "--assumeyes"),
    BackKind.REMOVE_ZYPPER: ("zypper", "--non-interactive", "remove"),
    BackKind.REMOVE_PACMAN: ("pacman", "--remove", "--noconfirm"),
    BackKind.UNLOAD_MODULES: ("modprobe", "--remove"),
    BackKind.DISABLE_SERVICE: ("systemctl", "disable"),
    BackKind.STOP_SERVICE: ("systemctl", "stop"),
    BackKind.RESTART_SERVICE: ("systemctl", "restart"),
    BackKind.UNHOLD: ("apt-mark", "unhold"),
    BackKind.UNLOCK_RPM: ("dnf", "versionlock", "delete"),
    BackKind.UNLOCK_YUM: ("yum", "versionlock", "delete"),
    BackKind.UNLOCK_ZYPPER: ("zypper", "removelock"),
    BackKind.REMOVE_IMAGE: ("docker", "image", "rm"),
    BackKind.RELOAD_LOADER: ("ldconfig",),
    BackKind.BOOT_MENU: ("update-grub",),
    BackKind.FORGET_PROOFS: ("sh", "-c", _FORGET_PROOFS, "sh"),
    BackKind.FORGET_COMPILED: ("sh", "-c", _FORGET_COMPILED, "sh"),
    BackKind.TAKE_OUT_OF_PREFIX: (sys.executable, "-m", "firstlight.build.into_prefix"),
    BackKind.SHOWN: (),
    BackKind.STORED: (),
}


def argv_of(back: Back) -> Argv:
    """The command that does it, as a reader sees it: rm -rf /root/firstlight-venv."""
    sudo = ("sudo",) if back.sudo else ()
    if back.kind is BackKind.COMPUTE_MODE:
        return (*sudo, "nvidia-smi", "-i", back.words[0], "-c", back.words[1])
    if back.kind is BackKind.POWER_LIMIT:
        return (*sudo, "nvidia-smi", "-i", back.words[0], "-pl", back.words[1])
    if back.kind is BackKind.MIG_ON:
        return (*sudo, "nvidia-smi", "-i", *back.words, "-mig", "1")
    if back.kind is BackKind.EARLY_IMAGE:
        return (*sudo, *EARLY_IMAGE_TOOLS[back.words[0]])
    return (*sudo, *_BEFORE[back.kind], *back.words)


def removed_file(path: str) -> Back:
    return Back(BackKind.REMOVE_FILE, (path,))


def removed_folder(path: str) -> Back:
    return Back(BackKind.REMOVE_FOLDER, (path,))


def moved_back(copy: str, path: str) -> Back:
    return Back(BackKind.MOVE_BACK, (copy, path))


def shown(*commands: Argv) -> tuple[Back, ...]:
    """Commands for a reader alone."""
    return tuple(Back(BackKind.SHOWN, argv) for argv in commands)


def through(argv: Argv, back: Back) -> Back:
    """The same through sudo, where the command it takes back goes through sudo."""
    return Back(back.kind, back.words, sudo=argv[:1] == ("sudo",))


def paths_of(back: Back) -> tuple[str, ...]:
    """The paths it touches; () for packages, the loader and what is not run."""
    return back.words if back.kind in _OF_PATHS else ()


def removes(back: Back) -> tuple[str, ...]:
    """The paths it takes away."""
    if back.kind is BackKind.STORED:
        words = back.words[1:] if back.words[:1] == ("sudo",) else back.words
        return tuple(word for word in words[1:] if not word.startswith("-")) if words[:1] == ("rm",) else ()
    return back.words if back.kind in (BackKind.REMOVE_FILE, BackKind.REMOVE_FOLDER) else ()


def copy_of(back: Back) -> tuple[str, ...]:
    """The copy that takes its old place again, and is gone from where it lay; () for all else."""
    return back.words[:1] if back.kind is BackKind.MOVE_BACK else ()


def state_of(kind: BackKind, word: str) -> Argv:
    """The question whether what undo would end was so before the step: a module loaded, a service enabled; () none."""
    return tuple(each.format(word=word) for each in _STATES.get(kind, ()))


def lock_of(back: Back) -> str:
    """The lock file by which a project is synced: without it there is nothing to sync by; "" for all else."""
    if back.kind is BackKind.SYNC_UV:
        return f"{back.words[0]}/uv.lock"
    return f"{posixpath.dirname(back.words[0])}/pixi.lock" if back.kind is BackKind.SYNC_PIXI else ""


_STATES: dict[BackKind, Argv] = {
    BackKind.UNLOAD_MODULES: ("test", "-e", "/sys/module/{word}"),
    BackKind.DISABLE_SERVICE: ("systemctl", "is-enabled", "--quiet", "{word}"),
    BackKind.STOP_SERVICE: ("systemctl", "is-active", "--quiet", "{word}"),
    BackKind.UNHOLD: ("sh", "-c", "apt-mark showhold | grep -Fxq -- '{word}'"),
    BackKind.REMOVE_IMAGE: ("docker", "image", "inspect", "{word}"),
    BackKind.REMOVE_RPM: ("rpm", "--query", "{word}"),
    BackKind.REMOVE_YUM: ("rpm", "--query", "{word}"),
    BackKind.REMOVE_TDNF: ("rpm", "--query", "{word}"),
    BackKind.REMOVE_ZYPPER: ("rpm", "--query", "{word}"),
    BackKind.REMOVE_PACMAN: ("pacman", "--query", "{word}"),
}
_OF_PATHS = (
    BackKind.REMOVE_FILE,
    BackKind.REMOVE_FOLDER,
    BackKind.MOVE_BACK,
    BackKind.SYNC_UV,
    BackKind.SYNC_PIXI,
    BackKind.REMOVE_CONDA,
    BackKind.FORGET_PROOFS,
    BackKind.FORGET_COMPILED,
    BackKind.TAKE_OUT_OF_PREFIX,
)
