"""The start file in site-packages: every start of that Python loads the compat libcuda, where it was seen to work.

It starts no process and asks no cuInit: that was done by the start script or the shell hook, whose proof it believes
only for the same driver, the same GPUs and the same library. What it costs is in results/start-file-cost.json.
"""

from __future__ import annotations

from firstlight.ways.back import START_MODULE
from firstlight.ways.start_script import DRIVER_FOLDERS, Wiring

LINE_FILE, MODULE = "firstlight_compat.pth", START_MODULE
START_LINE = f"import {MODULE}\n"

# os and sys are there when it is read. Importing _ctypes takes 0.6 ms and ctypes 4.3 (-X importtime, Python 3.11).
_TEXT = '''\
"""Written by firstlight; `firstlight undo` takes it back. Read at every start of this Python by firstlight_compat.pth.

Loads the forward-compat libcuda of CUDA {cuda} before anything asks for libcuda.so.1, if the start script or the shell
hook saw it start: with this driver, these GPUs and this very file. It never keeps a program from starting.
FIRSTLIGHT_COMPAT=off never loads it; FIRSTLIGHT_COMPAT=on says why not.
"""
import os
import sys

FOLDER = {folder}
HERE = {here}
DRIVER_FOLDERS = {driver_folders}
NAME = "libcuda.so.1"
# They install and make environments; a libcuda in them does nothing but take time and keep a file in use.
TOOLS = ("pip", "uv", "uvx", "pipx", "venv", "ensurepip", "virtualenv", "get-pip", "__pip-runner__")


def wire():
    mode = os.environ.get("FIRSTLIGHT_COMPAT") or "auto"
    if mode not in ("auto", "on"):
        return
    try:
        path = os.environ.get("LD_LIBRARY_PATH", "").split(":")
        if FOLDER in path or is_tool(getattr(sys, "orig_argv", ())):
            return
        why_not = reason_against(path) or load()
    except Exception as error:
        why_not = "%s: %s" % (type(error).__name__, error)
    if why_not and mode == "on":
        try:
            sys.stderr.write("firstlight: compat is not used: %s\\n" % why_not)
        except Exception:
            pass


def is_tool(words):
    """Whether this Python was started for pip, uv or venv: as a script, or with -m."""
    rest = iter(words[1:])
    for word in rest:
        if word[:2] == "--":
            if word == "--check-hash-based-pycs":
                next(rest, "")
            continue
        if word[:1] != "-" or word == "-":
            name = word.rpartition("/")[2]
            name = name[:-3] if name.endswith(".py") else name
            return name in TOOLS or name.rstrip("0123456789.") == "pip"
        for place, letter in enumerate(word[1:], 2):
            if letter == "m":
                return (word[place:] or next(rest, "")).partition(".")[0] in TOOLS
            if letter == "c":  # what uv asks an interpreter about itself
                return "get_interpreter_info" in (word[place:] or next(rest, ""))
            if letter in "WX":
                if not word[place:]:
                    next(rest, "")
                break
    return False


def reason_against(path):
    """Why nothing is loaded, "" where it may be."""
    for folder in path:
        for part in folder.split("/"):
            if part in ("compat", "cuda-compat") or part.startswith(("compat-", "compat_")):
                return "LD_LIBRARY_PATH has another one, %s" % folder
    driver = driver_version()
    if not driver:
        return "the version of the kernel driver cannot be read"
    proof = text_of(HERE + "/works-" + driver, trusted=True)
    if not proof:
        return "it was not seen to work on driver %s; %s/run asks" % (driver, HERE)
    library = os.stat(FOLDER + "/" + NAME)
    if library.st_mode & 0o170000 != 0o100000:
        return "%s/%s is not a file" % (FOLDER, NAME)
    now = "%d %d%s" % (library.st_size, library.st_mtime_ns // 10**9, gpus())
    if proof != now:
        return "the library or the GPUs changed since it was seen to work; %s/run asks again" % HERE
    return used_already()


def used_already():
    """What got there before: a container runtime, or a program that has libcuda in it."""
    real = os.path.realpath(FOLDER + "/" + NAME)
    conf = wired_by_toolkit(real)
    if conf:
        return "the container toolkit wired one that is as new (%s)" % conf
    for folder in DRIVER_FOLDERS:
        own = os.path.realpath(folder + "/" + NAME).rpartition("/")[2]
        if own == real.rpartition("/")[2] != NAME:
            return "the container runtime put it in the driver's place already"
    if "/libcuda.so" in text_of("/proc/self/maps", 1 << 22):
        return "libcuda is loaded already"
    return ""


def wired_by_toolkit(real):
    """The file by which the container toolkit wired one as new, "" where its is older: it takes that of the image."""
    try:
        names = os.listdir("/etc/ld.so.conf.d")
    except OSError:
        return ""
    for name in names:
        if not name.startswith("00-compat") or not name.endswith(".conf"):
            continue
        for line in text_of("/etc/ld.so.conf.d/" + name).split("\\n"):
            folder = line.strip()
            if folder[:1] != "/" or not os.path.isfile(folder + "/" + NAME):
                continue
            wired = os.path.realpath(folder + "/" + NAME)
            if wired == real or branch_of(wired) >= branch_of(real) > 0:
                return "/etc/ld.so.conf.d/" + name
    return ""


def branch_of(library):
    """The driver branch in the name of a library, 580 of libcuda.so.580.95.05; 0 where the name does not tell."""
    branch, dot, _ = library.rpartition("/libcuda.so.")[2].partition(".")
    return int(branch) if dot and branch.isdecimal() else 0


def driver_version():
    """The version of the loaded kernel driver, e.g. 570.133.20; "" without one."""
    words = text_of("/sys/module/nvidia/version").split()
    if not words:
        words = text_of("/proc/driver/nvidia/version").partition("\\n")[0].split()
    for word in words:
        if word[:3].isdigit() and word[3:4] == "." and word.replace(".", "").isdigit():
            return word
    return ""


def gpus():
    """The PCI device numbers of the GPUs, e.g. " 0x2330 0x2330"."""
    try:
        found = sorted(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return ""
    return "".join(" " + text_of("/sys/bus/pci/devices/%s/device" % each) for each in found)


def is_ours(found):
    """Whether a file belongs to this user, to root or to whoever wrote this one, and no other can write to it."""
    return found.st_uid in (0, os.geteuid(), os.stat(__file__).st_uid) and not found.st_mode & 0o002


def text_of(path, limit=4096, trusted=False):
    """The text of a small file without the last newline, "" where it cannot be read, or must be ours and is not."""
    parts = []
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if trusted and not is_ours(os.fstat(file)):
                return ""
            while limit > 0:
                part = os.read(file, min(limit, 65536))
                if not part:
                    break
                parts.append(part)
                limit -= len(part)
        finally:
            os.close(file)
    except OSError:
        return ""
    return b"".join(parts).decode("utf-8", "replace").rstrip("\\n")


def load():
    """Load it by its path: who asks for libcuda.so.1 afterwards gets this one."""
    from _ctypes import dlopen

    dlopen(FOLDER + "/" + NAME, os.RTLD_NOW | os.RTLD_GLOBAL)
    return ""


wire()
'''


def start_module(wiring: Wiring) -> str:
    """The text of _firstlight_compat.py: decides and loads without starting a process; never raises."""
    return _TEXT.format(
        cuda=wiring.cuda, folder=ascii(wiring.folder), here=ascii(wiring.here), driver_folders=ascii(DRIVER_FOLDERS)
    )
