"""Rules about libcuda.so.1 itself: a stub in its place, none in reach, or a file that is no library."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from firstlight.diagnosis.compat_choice import init_code, where_it_is_set, wired_by
from firstlight.diagnosis.finding import Question, Rule, Seen, Severity
from firstlight.diagnosis.observed import as_root, container, install
from firstlight.elf.loader import Rule as Search
from firstlight.facts.collect import Facts
from firstlight.facts.known import Known, Unknown

_STUB = 34


def stub_libcuda_wins(question: Question) -> Iterator[Seen]:
    """The toolkit's libcuda is for linking: it holds no driver, and every call returns 34."""
    facts = question.facts
    found, code = facts.libcuda.would_load, init_code(facts)
    if isinstance(found, Unknown) or code not in (None, _STUB) or not (found.value.is_stub or code == _STUB):
        return
    library = found.value
    said = "cuInit will give 34 (it was not called here)" if code is None else "cuInit gives 34"
    others = [each.path for each in facts.libcuda.candidates if not each.is_stub and not each.is_damaged]
    behind = f"; the driver's own {others[0]} is behind it" if others else ""
    steps: tuple[str, ...] = (f"rm {shlex.quote(library.path)}  # the stub folder needs libcuda.so alone",)
    if library.found_by is Search.LIBRARY_PATH:
        kept = [each for each in facts.libcuda.ld_library_path if each and "/stubs" not in each]
        now = f"export LD_LIBRARY_PATH={shlex.quote(':'.join(kept))}" if kept else "unset LD_LIBRARY_PATH"
        steps = (now, where_it_is_set(facts, "/stubs"))
    elif library.found_by is Search.CACHE and library.entry != "/etc/ld.so.cache":
        steps = (as_root(facts, f"rm {shlex.quote(library.entry)}"), as_root(facts, "ldconfig"))
    yield Seen(saw=f"{library.path} ({wired_by(library)}) is the toolkit's stub; {said}{behind}", do=steps)


def libcuda_missing(question: Question) -> Iterator[Seen]:
    """A kernel driver is there, but no libcuda.so.1 where the loader looks."""
    facts = question.facts
    libcuda, kernel = facts.libcuda, facts.driver.kernel_version
    later = [each for each in libcuda.candidates if each.found_by is Search.LATER_CACHE_ENTRY]
    if isinstance(libcuda.would_load, Known) or (libcuda.candidates and not later):
        return
    if isinstance(kernel, Unknown) and not libcuda.out_of_reach:
        return  # no driver at all: the rules about the driver speak
    driver = f"kernel driver {kernel.value} ({kernel.seen_in})" if isinstance(kernel, Known) else "a driver"
    if libcuda.candidates and later:
        yield Seen(
            saw=f"{driver} is there; the first libcuda.so.1 of /etc/ld.so.cache is gone, and the loader does not try "
            f"the next one, {later[0].path}",
            do=(as_root(facts, "ldconfig"),),
        )
    elif libcuda.out_of_reach:
        path = libcuda.out_of_reach[0]
        folder = path.rpartition("/")[0]
        yield Seen(
            saw=f"{driver} is there, and {path} too; that folder is neither in LD_LIBRARY_PATH nor known to ldconfig",
            do=(
                f"echo {shlex.quote(folder)} | {as_root(facts, 'tee /etc/ld.so.conf.d/nvidia-driver.conf')}",
                as_root(facts, "ldconfig"),
                f"or without root, in place of both: export LD_LIBRARY_PATH={shlex.quote(folder)}"
                "  # it holds the driver's own libraries",
            ),
        )
    else:
        where = ", ".join(libcuda.ld_library_path) or "not set"
        yield Seen(
            saw=f"{driver} is there; {libcuda.would_load.reason} (LD_LIBRARY_PATH: {where})",
            do=tuple(_how_to_get_libcuda(facts)),
        )


def libcuda_damaged(question: Question) -> Iterator[Seen]:
    """The loader stops at the first file it meets, even one that is empty."""
    facts = question.facts
    libcuda = facts.libcuda
    first = libcuda.candidates[0] if libcuda.candidates else None
    if isinstance(libcuda.would_load, Known) or first is None or not first.is_damaged:
        return
    real = "" if first.real_path == first.path else f"; it is a link to {first.real_path}"
    behind = [each.path for each in libcuda.candidates[1:] if not each.is_damaged and not each.is_stub]
    rest = f"; {behind[0]} behind it is not tried" if behind else ""
    remove = as_root(facts, f"rm {shlex.quote(first.real_path)}")
    folder = shlex.quote(first.real_path.rpartition("/")[0])
    empty = as_root(facts, f"find {folder} -maxdepth 1 -name '*.so.*' -size 0 -delete")
    in_image = (
        remove,
        f"{empty}  # an image built with the NVIDIA runtime keeps empty files",
        "start the container with its GPUs: docker run --gpus all ...",
    )
    yield Seen(
        saw=f"{first.path} ({wired_by(first)}) is not an ELF file{real}{rest}",
        do=in_image if container(facts) else (remove, *_package(facts)),
    )


def _how_to_get_libcuda(facts: Facts) -> Iterator[str]:
    """In a container the runtime brings libcuda, and leaves it out without the capability `compute`; else a package."""
    if container(facts):
        asked = facts.container.driver_capabilities
        now = f" (it is {asked.value})" if isinstance(asked, Known) else ""
        yield f"start the container with --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility{now}"
    else:
        yield from _package(facts)


def _package(facts: Facts) -> Iterator[str]:
    """The package that has libcuda on Debian and Ubuntu; it must be of the loaded module's version."""
    if isinstance(facts.driver.kernel_version, Known):
        version = facts.driver.kernel_version.value
        command = as_root(facts, install(facts, f"libnvidia-compute-{version.branch}"))
        yield f"{command}  # of version {version}, as the loaded module"


LIBCUDA_RULES = (
    Rule(
        code="stub-libcuda-wins",
        check=stub_libcuda_wins,
        severity=Severity.BLOCKS,
        depth=30,
        title="The toolkit's stub libcuda is loaded in place of the driver's.",
        fires_when="The libcuda.so.1 that loads lies in a stubs folder, or cuInit gives 34.",
        looks_at=("libcuda.would_load", "libcuda.candidates", "libcuda.ld_library_path", "libcuda.init_code"),
        means="No CUDA program starts; the stub is there to link against and contains no driver.",
        error="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 34: CUDA driver is a stub library",
        source="NVIDIA/warp#219",
        remedies=("remove-from-library-path",),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
    Rule(
        code="libcuda-missing",
        check=libcuda_missing,
        severity=Severity.BLOCKS,
        depth=30,
        title="The driver's libcuda.so.1 is not where programs look for it.",
        fires_when="A kernel driver is loaded and the loader finds no libcuda.so.1 by any of its rules.",
        looks_at=("libcuda.would_load", "libcuda.candidates", "libcuda.out_of_reach", "driver.kernel_version"),
        means="torch sees no GPU and says that there is no driver, although one is loaded.",
        error="RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a driver from http://www.nvidia.com/Download/index.aspx",
        source="keras-team/kinetic#269",
        remedies=("register-library-folder", "restart-with-gpus", "install-driver-library"),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
    Rule(
        code="libcuda-damaged",
        check=libcuda_damaged,
        severity=Severity.BLOCKS,
        depth=30,
        title="The libcuda.so.1 that programs load first is empty or broken.",
        fires_when="The first libcuda.so.1 that the loader meets is not an ELF file.",
        looks_at=("libcuda.would_load", "libcuda.candidates"),
        means="Every program that needs CUDA stops at this file; the loader does not go on to the next one.",
        error="ImportError: /usr/lib/x86_64-linux-gnu/libcuda.so.1: file too short",
        source="NVIDIA/libnvidia-container#140",
        remedies=("remove-empty-library", "restart-with-gpus", "install-driver-library"),
        explains=("cuinit-fails", "driver-library-mismatch"),
    ),
)
