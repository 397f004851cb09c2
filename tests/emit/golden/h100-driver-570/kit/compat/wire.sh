# Written by firstlight; `firstlight undo` takes it back. To be read by a shell: . /opt/firstlight/compat/wire.sh
# Puts the forward-compat libcuda of CUDA 13.0 in front of the driver's own, if that is right for the driver that is
# loaded at this moment: an older library on a newer driver makes cuInit return 803. FIRSTLIGHT_COMPAT=off never does,
# FIRSTLIGHT_COMPAT=on says why not. What cuInit said is kept in works-<driver version> beside this file and holds for
# that driver, those GPUs and that very library.
_firstlight_compat() (
    [ -z "${ZSH_VERSION:-}" ] || emulate -R sh
    set +eufC
    LC_ALL=C
    here=/opt/firstlight/compat folder=/opt/firstlight/compat/cuda-13.0 mode="${FIRSTLIGHT_COMPAT:-auto}"
    leave() { [ "$mode" != on ] || echo "firstlight: compat is not used: $1" >&2; exit 0; }
    complain() { echo "firstlight: $1; started without it${2:+ ($2)}" >&2; exit 0; }
    case "$mode" in auto | on) ;; *) exit 0 ;; esac
    case ":${LD_LIBRARY_PATH:-}:" in *":$folder:"*) exit 0 ;; esac
    driver=
    [ ! -r /sys/module/nvidia/version ] || read -r driver < /sys/module/nvidia/version
    [ -n "$driver" ] ||
        driver="$(sed -n '1s/.* \([0-9]\{3\}\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null)"
    case "$driver" in "" | *[!0-9.]*) leave "the version of the kernel driver cannot be read" ;; esac
    case " 535 550 565 570 575 " in
        *" ${driver%%.*} "*) ;;
        *) leave "driver $driver has CUDA 13 by itself, or this library does not take it" ;;
    esac
    [ -f "$folder/libcuda.so.1" ] || complain "no libcuda.so.1 in $folder"
    # The container toolkit wires the library of the image, whatever its CUDA is: libcuda.so.570.* does not run CUDA 13.
    as_new() {
        ours="$(readlink -f "$folder/libcuda.so.1")" theirs="$(readlink -f "$1/libcuda.so.1")"
        [ "$theirs" != "$ours" ] || return 0
        ours="${ours##*/libcuda.so.}" theirs="${theirs##*/libcuda.so.}"
        case "$ours" in *.*) ours="${ours%%.*}" ;; *) return 1 ;; esac
        case "$theirs" in *.*) theirs="${theirs%%.*}" ;; *) return 1 ;; esac
        case "$ours:$theirs" in *[!0-9:]* | :* | *:) return 1 ;; esac
        [ "$theirs" -ge "$ours" ]
    }
    for conf in /etc/ld.so.conf.d/00-compat*.conf; do
        [ -f "$conf" ] || continue
        [ -r "$conf" ] || continue
        while read -r named || [ -n "$named" ]; do
            case "$named" in /*) ;; *) continue ;; esac
            [ -f "$named/libcuda.so.1" ] || continue
            ! as_new "$named" || leave "the container toolkit wired one that is as new ($conf)"
        done < "$conf"
    done
    for own in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64; do
        [ -e "$own/libcuda.so.1" ] || continue
        own="$(readlink -f "$own/libcuda.so.1")" real="$(readlink -f "$folder/libcuda.so.1")"
        case "${own##*/}" in
            libcuda.so.1) ;;
            "${real##*/}") leave "the container runtime put it in the driver's place already" ;;
        esac
    done
    seen="$(stat -L -c '%s %Y' "$folder/libcuda.so.1" 2>/dev/null)" gpus='' said=''
    for gpu in /proc/driver/nvidia/gpus/*; do
        [ -e "$gpu" ] || continue
        id=
        [ ! -r "/sys/bus/pci/devices/${gpu##*/}/device" ] || read -r id < "/sys/bus/pci/devices/${gpu##*/}/device"
        gpus="$gpus $id"
    done
    proof="$here/works-$driver"
    [ ! -f "$proof" ] || [ ! -r "$proof" ] || read -r said < "$proof"
    if [ -z "$seen" ] || [ "$said" != "$seen$gpus" ]; then
        code="$(FIRSTLIGHT_COMPAT=off LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
            timeout -k 2 10 /opt/firstlight/env/bin/python -I -S -c 'import ctypes, sys; code = ctypes.CDLL('"'"'libcuda.so.1'"'"').cuInit(0); print('"'"'cuInit gives'"'"', code); sys.exit(code != 0)' 2>/dev/null < /dev/null)"
        case "$?" in
            0) code= ;;
            124 | 137) code="cuInit hangs" ;;
            126 | 127) code="timeout or python is missing" ;;
            *) code="${code:-it crashes}" ;;
        esac
        [ -z "$code" ] || complain "the compat library in $folder does not start on driver $driver" "$code"
        if [ -n "$seen" ] && [ ! -d "$proof" ]; then
            { printf '%s\n' "$seen$gpus" > "$proof.$$" && mv -f "$proof.$$" "$proof"; } 2>/dev/null
        fi
    fi
    printf '%s' "$folder"
)
_firstlight_wire() {
    set -- "$(_firstlight_compat)"
    [ -n "$1" ] || return 0
    LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_LIBRARY_PATH
}
_firstlight_wire
unset -f _firstlight_wire _firstlight_compat
