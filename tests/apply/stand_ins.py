"""A driver and compat libraries that are not NVIDIA's: real ELF files with the real note, loaded by the real loader."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NOTE = '{"format":1,"CUDA version":"13.0","driver":[535,550,565,570,575,580],"device":[1,2,7,8,9,10,11,12,13,14]}'
SOURCE = Path(__file__).with_name("stand_in_libcuda.c")


def build_libcuda(folder: Path, *, version: str, cuda: int, answer: str = "0") -> Path:
    """libcuda.so.VERSION with its links, its note and its answer to cuInit."""
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"libcuda.so.{version}"
    bytes_of_note = ",".join(str(byte) for byte in NOTE.encode())
    note = folder / "note.s"
    note.write_text(
        '.section .note.cuda.fwd_compatibility, "a", @note\n'
        f'.long 19, {len(NOTE)}, 0\n.asciz "NVIDIA Corporation"\n.balign 4\n.byte {bytes_of_note}\n.balign 4\n'
        '.section .note.GNU-stack, "", @progbits\n'
    )
    command = ["gcc", "-shared", "-fPIC", f"-DCUDA={cuda}", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run([*command, str(SOURCE), str(note), "-ldl"], check=True)
    note.unlink()
    (folder / "libcuda.so.1").symlink_to(library.name)
    (folder / "answer").write_text(answer)
    return library


def fake_torch(site_packages: Path, *, version: str = "2.9.0", cuda: str = "13.0") -> None:
    """What is looked at of a torch built for a CUDA; it cannot be imported for real work."""
    tag = "cu" + cuda.replace(".", "")
    (site_packages / "torch").mkdir(parents=True)
    (site_packages / "torch/version.py").write_text(
        f"__version__ = '{version}+{tag}'\ndebug = False\ncuda = '{cuda}'\ngit_version = '{'0' * 40}'\nhip = None\n"
    )
    (site_packages / "torch/__init__.py").write_text("from torch.version import __version__\n")
    info = site_packages / f"torch-{version}+{tag}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}+{tag}\n")
    (info / "RECORD").write_text("")
    (info / "INSTALLER").write_text("pip\n")


def can_have_its_own_mounts() -> bool:
    """Whether a process here may have mounts of its own, which is how it is shown another kernel driver."""
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return False
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "t", "/sys/module"], capture_output=True, check=False
    )
    return tried.returncode == 0


def under_driver(version: str, *argv: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command that sees a kernel driver of this version; only its own mounts differ."""
    script = (
        "mount -t tmpfs t /sys/module && mkdir /sys/module/nvidia && "
        f'echo {version} > /sys/module/nvidia/version && exec "$@"'
    )
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *argv],
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=120,
    )
