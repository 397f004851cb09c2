# Written by firstlight 0.1.0: whether a host runs what the playbook brings; the playbook reads what it prints.
set -eu

# What nvidia-smi says of every GPU, a line each: of_gpus compute_cap. In WSL only a login's PATH has it.
of_gpus() {
    smi="$(command -v nvidia-smi || echo /usr/lib/wsl/lib/nvidia-smi)"
    [ ! -x "$smi" ] || timeout 20 "$smi" --query-gpu="$1" --format=csv,noheader 2> /dev/null || :
}

# The version of the driver, e.g. 570.133.20; nothing where none is loaded. For Windows' own only nvidia-smi knows it.
driver_version() {
    found=
    [ ! -r /sys/module/nvidia/version ] || read -r found < /sys/module/nvidia/version || :
    [ -n "$found" ] || [ ! -r /proc/driver/nvidia/version ] ||
        found="$(sed -n '1s/.* \([0-9]\{3\}\.[0-9.]*\) .*/\1/p' /proc/driver/nvidia/version)"
    [ -n "$found" ] || found="$(of_gpus driver_version | sed -n '/^[0-9][0-9.]*$/{p;q;}')"
    case "$found" in *[!0-9.]*) found= ;; esac
    printf '%s' "$found"
}

# Whether the first of two versions is the second or newer: 580.159.04 is newer than 580.95.05.
at_least() {
    have="$1." need="$2."
    while [ -n "$need" ]; do
        left="${have%%.*}" right="${need%%.*}"
        [ "${left:-0}" -le "${right:-0}" ] || return 0
        [ "${left:-0}" -ge "${right:-0}" ] || return 1
        have="${have#*.}" need="${need#*.}"
    done
}

# What does not fit is printed; NVIDIA_DISABLE_REQUIRE=1, which switches NVIDIA's own check off, lets it pass here too.
misfit() {
    printf 'firstlight: %s\n' "$1" >&2
    case "${NVIDIA_DISABLE_REQUIRE:-}" in 1 | true) ;; *) fits=no ;; esac
}

# shellcheck disable=SC2034 # has_driver is for scripts that need a GPU to be there
check_driver() {
    driver="$(driver_version)" oldest=580.65.06 driver_words='torch 2.11.0 needs 580.65.06 or newer. Take a machine with such a driver (CUDA 13.0 or newer in nvidia-smi), or emit for this one: firstlight emit --for.' has_driver=yes
    if [ -z "$driver" ] && [ -e /dev/dxg ]; then
        echo "firstlight: this is WSL, and no nvidia-smi says which driver Windows has; it is not checked" >&2
    elif [ -z "$driver" ]; then
        has_driver=no
        echo "firstlight: no NVIDIA driver is loaded here; what needs a GPU cannot be proved" >&2
    elif ! at_least "$driver" "$oldest"; then
        what="driver $driver is loaded"
        [ ! -e /dev/dxg ] || what="driver $driver is that of Windows, and a newer one is installed there"
        misfit "$what; $driver_words"
    fi
}

# What the wheels inside need, asked before anything is fetched or started.
check_gates() {
    fits=yes machine="$(uname -m)" wanted_machine=x86_64
    [ "$machine" = "$wanted_machine" ] || misfit "this machine is $machine; the wheels are for $wanted_machine."
    check_driver
    capabilities=' 7.5 8.0 8.6 8.9 9.0 10.0 10.3 10.7 12.0 12.1 ' capability_words='torch 2.11.0 holds code for 7.5 8.0 8.6 8.9 9.0 10.0 10.3 10.7 12.0 12.1. Take another GPU, or emit for this one: firstlight emit --for.'
    for capability in $(of_gpus compute_cap); do
        case "$capability" in *[!0-9.]* | *.*.*) continue ;; esac
        case "$capabilities" in
            *" $capability "*) ;;
            *) misfit "a GPU here has capability $capability; $capability_words" ;;
        esac
    done
    [ "$fits" = yes ]
}

check_gates
