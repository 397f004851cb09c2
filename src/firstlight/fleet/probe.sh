# What a host without a Python 3.10 is asked by its sh (POSIX). Reads only; every answer is one line, contents as
# hexadecimal digits, so that nothing in a file can look like another answer. fleet/sh_probe.py reads it.
export LC_ALL=C

hex() {
    od -An -v -tx1 | tr -d ' \n'
}
text() { # a file's first 64 kB
    if [ -f "$1" ] && [ -r "$1" ]; then
        printf 'T %s ' "$1"
        head -c 65536 "$1" 2>/dev/null | hex
        echo
    elif [ -e "$1" ]; then
        echo "D $1"
    else
        echo "A $1"
    fi
}
names() { # what a folder holds
    if [ -d "$1" ]; then
        printf 'L %s ' "$1"
        for each in "$1"/* "$1"/.[!.]*; do
            [ -e "$each" ] && printf '%s\n' "${each##*/}"
        done | head -n 4096 | hex
        echo
    else
        echo "A $1"
    fi
}
there() { # whether it is there, whether we may write to it, and what ls says of it
    if [ -e "$1" ]; then
        writable=0
        [ -w "$1" ] && writable=1
        # shellcheck disable=SC2012 # POSIX has no stat
        echo "S $1 $writable $(ls -ldnL "$1" | head -n 1)"
    else
        echo "A $1"
    fi
}
asks() { # what a command says, and its exit code
    if command -v "$1" >/dev/null 2>&1; then
        said=$(
            "$@" 2>/dev/null
            echo "x$?"
        )
        printf 'C %s ' "${said##*x}"
        printf '%s' "${said%x*}" | hex
        echo " $*"
    else
        echo "N $*"
    fi
}
about() { # of the host itself
    printf 'H %s ' "$1"
    printf '%s' "$2" | hex
    echo
}
variable() {
    eval "set=\${$1+x} value=\${$1-}"
    # shellcheck disable=SC2154 # set and value are given above
    [ -z "$set" ] || {
        printf 'E %s ' "$1"
        printf '%s' "$value" | hex
        echo
    }
}

echo @BEGIN@
echo firstlight-sh
about hostname "$(uname -n)"
about user "$(id -un 2>/dev/null)"
about uid "$(id -u)"
about home "$HOME"
about kernel_release "$(uname -r)"
about arch "$(uname -m)"
for each in PATH LD_LIBRARY_PATH LD_PRELOAD CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES \
    CUDA_HOME CUDA_PATH KUBERNETES_SERVICE_HOST RUNPOD_POD_ID SLURM_JOB_ID APPTAINER_CONTAINER SINGULARITY_CONTAINER; do
    variable "$each"
done
for each in /etc/os-release /usr/lib/os-release /proc/driver/nvidia/version /proc/driver/nvidia/params /proc/meminfo \
    /proc/cpuinfo /proc/modules /proc/mounts /proc/version /proc/cmdline /proc/1/cgroup /proc/self/cgroup \
    /proc/device-tree/model /proc/sys/kernel/osrelease /etc/nv_tegra_release /sys/module/nvidia/version \
    /sys/module/nvidia_uvm/parameters/uvm_disable_hmm /sys/fs/cgroup/memory.max /sys/class/dmi/id/sys_vendor \
    /sys/class/dmi/id/product_name; do
    text "$each"
done
for each in /dev /sys/bus/pci/devices /usr/local /proc/driver/nvidia/gpus; do
    names "$each"
done
for each in /.dockerenv /run/.containerenv /sys/module /sys/module/nvidia /sys/module/nvidia_uvm /sys/module/nouveau \
    /dev/nvidiactl /dev/nvidia-uvm /dev/dxg /usr/lib/wsl/lib/nvidia-smi /usr/bin/nvidia-smi; do
    there "$each"
done
for card in /sys/bus/pci/devices/*; do
    [ "$(cat "$card/vendor" 2>/dev/null)" = 0x10de ] || continue
    for each in vendor class device; do
        text "$card/$each"
    done
done
for each in /dev/nvidia[0-9]*; do
    [ -e "$each" ] && there "$each"
done
asks @SMI@
echo @END@
