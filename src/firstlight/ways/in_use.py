"""Shell lines that look whether kernel modules and GPUs are free, so that nothing is half taken from a program."""

from __future__ import annotations

from firstlight.ways.back import Argv
from firstlight.ways.building import as_root
from firstlight.ways.platform import Platform

_HOLDERS = (
    'find /proc/[0-9]*/fd -lname "/dev/nvidia*" 2>/dev/null | cut -d/ -f3 | sort -un | '
    'while read -r p; do echo "process $p has a GPU open: $(cat /proc/$p/comm)"; done'
)
# A module is counted in use by those above it too: what is unloaded first does not count.
_MODULES_FREE = (
    "for m; do [ -e /sys/module/$m/refcnt ] || continue; n=$(cat /sys/module/$m/refcnt); "
    'for h in /sys/module/$m/holders/*; do case " $* " in *" ${h##*/} "*) n=$((n - 1));; esac; done; '
    '[ "$n" -gt 0 ] || continue; echo "$m is in use, so nothing was unloaded."; '
    f"ls /sys/module/$m/holders; {_HOLDERS}; exit 1; done"
)
# What is loaded goes; what went comes back, also where one of them would not go. A Ctrl-C must not part the two.
_RELOAD = (
    'trap "" HUP INT TERM; taken=; s=0; for m; do [ -e /sys/module/$m/refcnt ] || continue; '
    'if rmmod "$m"; then taken="$m $taken"; else s=1; break; fi; done; '
    'for m in $taken; do modprobe "$m" || s=1; done; exit $s'
)
_GPU_FREE = (
    'on=$(nvidia-smi -i "$1" --query-compute-apps=pid,process_name --format=csv,noheader) || exit 1; '
    '[ -z "$on" ] || { echo "GPU $1 is in use, so nothing was done. On it are:"; echo "$on"; exit 1; }'
)
_FOR_A_SCREEN = ("nvidia_drm", "nvidia_modeset")  # no CUDA program needs them: loaded again only where they were


def loaded_after(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Of the modules that are loaded again those that must be there afterwards, in order of loading."""
    return tuple(each for each in reversed(modules) if each not in _FOR_A_SCREEN)


def reloading(modules: tuple[str, ...], platform: Platform) -> tuple[Argv, ...]:
    """A look whether all are free; then what is loaded goes and comes again, and what CUDA needs is loaded anyhow."""
    return (
        as_root(platform, "sh", "-c", _MODULES_FREE, "sh", *modules),
        as_root(platform, "sh", "-c", _RELOAD, "sh", *modules),
        *(as_root(platform, "modprobe", each) for each in loaded_after(modules)),
    )


def gpu_free(gpu: str, platform: Platform) -> Argv:
    """A look whether no program computes on a GPU; it names those that do."""
    return as_root(platform, "sh", "-c", _GPU_FREE, "sh", gpu)
