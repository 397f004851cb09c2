#!/bin/sh
# Written by firstlight 0.1.0 (firstlight emit bash); the same plan gives the same file.
# plan f86a226487f33aa364285efdccdd9cc24319de3695928c4e7cb671a77d5f3a31
# for: the machine of runpod-ssh; wanted: what is installed there; goal: infer
# inside: torch==2.11.0, and numpy<3 where it is available; x86_64, Python 3.12, glibc 2.28 or newer
# torch 2.11.0 is built with CUDA 13.0: driver 580.65.06 or newer runs it (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, 13.4 / R615 edition, 2026-11-15).
# It holds code for sm_75 sm_80 sm_86 sm_90 sm_100 sm_120.
#
# Brings up a machine that has sh and a package manager, as root:   sh pod_setup.sh
# Run it at every start: what is there already is left as it is. Everything that takes time is in
# /workspace/firstlight, which survives a restart if that is a persistent volume.
# firstlight itself comes from its wheel in the folder wheels beside this file; what
# `firstlight bundle --out wheels` puts into that folder takes the place of every index.
# --no-verify leaves out the proof at the end. Exit code: that of `firstlight verify`; 1 where something failed before.
set -eu
umask 022
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
export PIP_NO_CACHE_DIR=1 # what is downloaded is kept on the volume
unset PYTHONHOME PYTHONPATH || :

state=/workspace/firstlight
tool_key=0.1.0-e3b0c44298fc # of firstlight
key=b2535bb0529c # of the packages
pythons='3.12 3.11 3.10 3.13 3.14' # that torch has wheels for, the best first

say() { printf 'firstlight: %s\n' "$*" >&2; }
stop() {
    say "$*"
    exit 1
}

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

# Standard input becomes the file, unless it is that already: put FILE MODE
put() {
    text="$(cat && printf x)"
    if [ ! -f "$1" ] || [ "$(cat "$1" && printf x)" != "$text" ]; then
        mkdir -p "${1%/*}"
        printf '%s' "${text%x}" > "$1.new-firstlight"
        chmod "$2" "$1.new-firstlight"
        mv -f "$1.new-firstlight" "$1"
    fi
}

# A copy of a file beside it, with its owner and mode, to write the new text into; a link stays a link: begin_new FILE
begin_new() {
    real="$(readlink -f "$1")" new="$(readlink -f "$1").new-firstlight"
    cp -p "$real" "$new"
}

# The new text in place at once: killed at any moment, the file is the old one or the new one.
end_new() {
    mv -f "$new" "$real" 2> /dev/null || { # it is mounted by itself: only its bytes can be changed
        cat "$new" > "$real"
        rm -f "$new"
    }
}

# A line at the beginning of a file, once: shells leave their files early where nobody types. begin_with FILE LINE
begin_with() {
    [ -w "${1%/*}" ] || return 0
    [ -f "$1" ] || : > "$1"
    ! grep -qxF -- "$2" "$1" || return 0
    begin_new "$1"
    { printf '%s\n' "$2" && cat "$real"; } > "$new"
    end_new
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo > /dev/null 2>&1; then
        sudo -n "$@"
    else
        stop "not root, and there is no sudo: cannot run $*"
    fi
}

# apt with its lists and packages on the volume: after a restart nothing is downloaded again.
apt() {
    mkdir -p "$state/apt/lists/partial" "$state/apt/archives/partial"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dir::State::lists="$state/apt/lists" \
        -o Dir::Cache::archives="$state/apt/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
        -o APT::Sandbox::User=root -o APT::Keep-Downloaded-Packages=true -o DPkg::Lock::Timeout=300 "$@"
}

# The packages in some of dpkg's states, among those that are to be installed, removed or purged: half_done i HUFWt
half_done() {
    dpkg-query --show --showformat '${db:Status-Abbrev}${binary:Package}\n' 2> /dev/null | sed -n "s/^[$1][$2].//p"
}

# apt install with these words, where on paper it removes nothing: repair --fix-broken
repair() {
    on_paper="$(apt install --simulate "$@" 2>&1)" || {
        apt update || :
        on_paper="$(apt install --simulate "$@" 2>&1)" || {
            say "packages are half installed, and apt cannot finish them: $on_paper"
            return 0
        }
    }
    if printf '%s\n' "$on_paper" | grep -q '^Remv \|^Purg '; then
        say "packages are half installed, and apt would remove others to finish them; decide, then run this again:"
        say "  apt-get install $*"
        return 0
    fi
    apt install --yes "$@" > /dev/null
}

# A start that was killed inside apt: dpkg does nothing for anybody until what it had begun is finished, and a program
# of a package that is half installed looks as if it were there.
finish_packages() {
    command -v apt-get > /dev/null 2>&1 || return 0
    [ -n "$(half_done a-z HUFWt)" ] || find /var/lib/dpkg/updates -name '[0-9]*' | grep -q . || return 0
    say "dpkg was interrupted: finishing that first, with dpkg --configure -a"
    apt check > /dev/null 2>&1 || : # waits while another apt is at work
    as_root dpkg --configure -a > /dev/null || :
    removed="$(half_done rp HUFWt)" torn="$(half_done ih H)"
    # shellcheck disable=SC2086 # names of packages are words
    [ -z "$removed" ] || as_root dpkg --remove --force-remove-reinstreq $removed > /dev/null
    # shellcheck disable=SC2086
    [ -z "$torn" ] || repair --reinstall $torn
    if [ -n "$(half_done a-z HUFWt)" ] || ! apt check > /dev/null 2>&1; then
        repair --fix-broken
    fi
}

install_packages() {
    say "installing $*"
    if command -v apt-get > /dev/null 2>&1; then
        apt install --yes --no-install-recommends --no-download "$@" > /dev/null 2>&1 || {
            apt update
            apt install --yes --no-install-recommends "$@" > "$state/apt/log" 2>&1 || {
                cat "$state/apt/log" >&2
                stop "apt could not install $*"
            }
        }
    elif command -v dnf > /dev/null 2>&1; then
        as_root dnf install --assumeyes --quiet --setopt=keepcache=1 --setopt=cachedir="$state/dnf" "$@"
    else
        stop "no package manager that is known (apt-get, dnf), and this is missing: $*. Install it, then run this again"
    fi
}

# Whether a Python is one that torch has wheels for and can make environments: usable PROGRAM
usable() {
    seen="$("$1" -I -S -c 'import ensurepip, sys, venv; print("%d.%d" % sys.version_info[:2])' 2> /dev/null)" || return 1
    case " $pythons " in *" $seen "*) ;; *) return 1 ;; esac
    python="$1" python_minor="$seen"
}

find_python() {
    for minor in $pythons; do
        for folder in "$state"/python/*"-$minor"*/bin /usr/bin /usr/local/bin; do
            ! usable "$folder/python$minor" || return 0
        done
    done
    ! usable /usr/bin/python3 || return 0
    other="$(command -v python3)" || return 1
    usable "$other"
}

need_python() {
    ! find_python || return 0
    if command -v apt-get > /dev/null 2>&1; then
        install_packages python3 python3-venv ca-certificates
    elif command -v dnf > /dev/null 2>&1; then
        for minor in $pythons; do # which ones a release of RHEL has differs
            ! dnf --quiet list "python$minor" > /dev/null 2>&1 || break
        done
        install_packages "python$minor" ca-certificates
    fi
    ! find_python || return 0
    if command -v uv > /dev/null 2>&1; then
        uv python install --quiet --install-dir "$state/python" "${pythons%% *}"
        ! find_python || return 0
    fi
    stop "no Python that torch has wheels for ($pythons) and that can make environments. Install one with its venv module, or uv"
}

# torch.compile and Triton compile when they run: a C++ compiler, and the headers of Python. Nothing else needs them.
need_compiler() {
    header="$("$python" -I -S -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"
    compiler='' headers=''
    if command -v apt-get > /dev/null 2>&1; then
        command -v g++ > /dev/null 2>&1 || compiler=g++
        [ -f "$header" ] || headers="python$python_minor-dev"
    elif command -v dnf > /dev/null 2>&1; then
        command -v g++ > /dev/null 2>&1 || compiler=gcc-c++
        [ -f "$header" ] || headers="python$python_minor-devel"
    fi
    [ -n "$compiler$headers" ] || return 0
    (install_packages ${compiler:+"$compiler"} ${headers:+"$headers"}) ||
        say "continuing without $compiler $headers: torch.compile and Triton will not work"
}

# A virtual environment with packages, whole or not at all: make_environment FOLDER WHEELS COMMAND, which fills WHEELS
make_environment() {
    ! "$1/bin/python" -I -c '' 2> /dev/null || [ ! -e "$1/.firstlight-ready" ] || return 0
    say "making $1"
    "$python" -m venv --clear "$1"
    mkdir -p "$2"
    pip="$1/bin/python" wheels="$2"
    [ -e "$2/.complete" ] || "$3"
    : > "$2/.complete"
    "$1/bin/python" -m pip install --quiet --no-index --find-links "$2" --requirement "$2/requirements.txt"
    : > "$1/.firstlight-ready"
}

# pip download into $wheels; a bundle beside this file takes the place of every index: fetch INDEX REQUIREMENT...
fetch() {
    index="$1"
    shift
    if [ -f "$beside/wheels/bundle.json" ]; then
        "$pip" -m pip download --quiet --dest "$wheels" --no-index --find-links "$beside/wheels" "$@"
    elif [ -n "$index" ]; then
        "$pip" -m pip download --quiet --dest "$wheels" --find-links "$wheels" --index-url "$index" "$@"
    else
        "$pip" -m pip download --quiet --dest "$wheels" --find-links "$wheels" "$@"
    fi
}

fetch_packages() {
    say downloading torch==2.11.0
    fetch '' torch==2.11.0
    printf '%s\n' torch==2.11.0 > "$wheels/requirements.txt"
}

# torch warns at its first tensor without numpy, which it does not bring; where there is none, it works without.
need_numpy() {
    pip="$environment/bin/python" wheels="$state/wheels/$key-py$python_minor"
    ! "$pip" -I -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("numpy") is None)' || return 0
    for fetches in no yes; do # what was downloaded before lies on the volume
        [ "$fetches" = no ] || (export PIP_RETRIES=1 && fetch '' 'numpy<3') 2> /dev/null || break
        ! "$pip" -m pip install --quiet --no-index --find-links "$wheels" 'numpy<3' 2> /dev/null || return 0
    done
    say "continuing without numpy, which could not be fetched: torch warns of that at its first tensor"
}

fetch_tool() {
    set -- --find-links "$wheels"
    [ ! -d "$beside/wheels" ] || set -- "$@" --find-links "$beside/wheels"
    "$pip" -m pip download --quiet --dest "$wheels" "$@" "$own_wheel" ||
        stop "torch is in $state/env, but what firstlight needs could not be fetched: see what pip says above"
    printf '%s\n' firstlight==0.1.0 > "$wheels/requirements.txt"
}

# firstlight's own wheel to where it is installed from, as it was when this file was written, or not at all: bring_wheel FROM TO
bring_wheel() {
    wheel=firstlight-0.1.0-py3-none-any.whl digest=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 found=
    own_wheel="$2/$wheel"
    ! is_that_wheel "$own_wheel" || return 0
    for place in "$1/$wheel" "$1/wheels/$wheel"; do
        [ ! -f "$place" ] || found="$place"
    done
    [ -n "$found" ] || stop "wheels/$wheel is missing in $1. firstlight emit --out FOLDER writes it beside this file: bring the folder wheels along"
    cp "$found" "$own_wheel.new.$$"
    is_that_wheel "$own_wheel.new.$$" || {
        rm -f "$own_wheel.new.$$"
        stop "$found is not the wheel that this file was written with, so it is not installed. Its SHA-256 should be $digest. Copy both from where firstlight emit wrote them, or emit them again"
    }
    mv -f "$own_wheel.new.$$" "$own_wheel"
}

is_that_wheel() {
    [ -f "$1" ] && seen="$(sha256sum < "$1")" && [ "${seen%% *}" = "$digest" ]
}

# ssh, terminals of Jupyter and editors, and cron: each reads another file.
reach_shells() {
    put "$state/shell.sh" 644 << 'END-OF-FIRSTLIGHT-FILE'
# Written by firstlight 0.1.0: read by shells, so that they have the environment.
case ":$PATH:" in
    *:/workspace/firstlight/env/bin:*) ;;
    *) PATH=/workspace/firstlight/env/bin:"$PATH" && export PATH ;;
esac
END-OF-FIRSTLIGHT-FILE
    line="[ ! -r $state_quoted/shell.sh ] || . $state_quoted/shell.sh # firstlight"
    home="$(cd && pwd)"
    begin_with "$home/.bashrc" "$line" # terminals, and commands that come by ssh
    if [ "$(id -u)" != 0 ]; then
        begin_with "$home/.profile" "$line"
        return
    fi
    printf '%s\n' "$line" | put /etc/profile.d/firstlight.sh 644 # login shells of everybody
    # cron and sshd take their PATH from here, through PAM
    [ -f /etc/environment ] || : > /etc/environment
    ! grep -qF -- "$state/env/bin:" /etc/environment || return 0
    begin_new /etc/environment
    if grep -q '^PATH=' "$real"; then
        sed "s|^PATH=\(\"\{0,1\}\)|PATH=\1$state/env/bin:|" "$real" > "$new"
    else
        printf 'PATH="%s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n' "$state/env/bin" >> "$new"
    fi
    end_new
}

main() {
    proves=yes
    case "$#:${1:-}" in
        0:) ;;
        1:--no-verify) proves=no ;;
        1:--help | 1:-h)
            sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" # the head of this file
            exit 0
            ;;
        *)
            say "$*: accepted is --no-verify, --help, or nothing"
            exit 2
            ;;
    esac
    beside="$(cd "$(dirname "$0")" && pwd)"
    trap '[ "$?" = 0 ] || say "not finished; the same command continues where it stopped"' EXIT
    state_quoted=/workspace/firstlight
    check_gates || {
        trap - EXIT
        stop "nothing was changed"
    }
    mkdir -p "$state" 2> /dev/null || stop "$state cannot be made. Mount the volume there, or emit with --volume FOLDER"
    [ "$(stat -c %d "$state")" != "$(stat -c %d /)" ] ||
        say "$state is on the root disk: if a restart wipes that, everything is fetched again"
    exec 9>> "$state/lock"
    ! command -v flock > /dev/null 2>&1 || flock -w 3600 9 || :
    bring_wheel "$beside" "$state" # before anything is downloaded
    finish_packages || say "what a killed apt left could not be finished; continuing without it"
    need_python
    need_compiler
    environment="$state/env-$key-py$python_minor"
    make_environment "$environment" "$state/wheels/$key-py$python_minor" fetch_packages
    need_numpy
    [ "$(readlink "$state/env" || :)" = "${environment##*/}" ] || ln -sfn "${environment##*/}" "$state/env"
    reach_shells
    tool="$state/tool-$tool_key-py$python_minor"
    make_environment "$tool" "$state/wheels/tool-$tool_key-py$python_minor" fetch_tool
    say "ready: $state/env/bin/python; shells opened from now on have it"
    [ "$proves" = yes ] || exit 0
    exec 9>&-
    # shellcheck source=/dev/null
    . "$state/shell.sh"
    exec "$tool/bin/firstlight" verify --python "$state/env/bin/python"
}

main "$@"
