#!/bin/sh
# Written by firstlight 0.1.0: cuda-compat-13-0 from NVIDIA's repository, unpacked into a folder and not installed.
#   sh get_compat.sh FOLDER
set -eu
folder="$1"
command -v apt-get > /dev/null 2>&1 || {
    echo "cuda-compat-13-0 is fetched with apt-get, which this base does not have. Take a Debian or Ubuntu base." >&2
    exit 1
}
work="$(mktemp -d)"
cd "$work"
apt-get update
apt-get download cuda-compat-13-0 2> /dev/null || {
    # shellcheck source=/dev/null
    id="$(. /etc/os-release && echo "$ID")" release="$(. /etc/os-release && echo "${VERSION_ID:-}")"
    case "$id" in
        ubuntu) system="ubuntu$(printf '%s' "$release" | tr -d .)" ;;
        debian) system="debian${release%%.*}" ;;
        *) echo "which of NVIDIA's repositories $id $release takes is not known. Take a Debian or Ubuntu base." >&2; exit 1 ;;
    esac
    machine="$(uname -m)"
    [ "$machine" != aarch64 ] || machine=sbsa
    python3 -I -c 'import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])' \
        "https://developer.download.nvidia.com/compute/cuda/repos/$system/$machine/cuda-keyring_1.1-1_all.deb" keyring.deb
    dpkg --install keyring.deb
    apt-get update
    apt-get download cuda-compat-13-0
}
dpkg-deb --extract cuda-compat-13-0_*.deb root
test -e root/usr/local/cuda-13.0/compat/libcuda.so.1
mv root/usr/local/cuda-13.0/compat "$folder"
cd /
rm -rf "$work"
