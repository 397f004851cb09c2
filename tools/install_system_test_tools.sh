#!/bin/sh
# What the system tests need beyond the venv: Debian or Ubuntu, as root. Installs nothing that is already there.
set -eu
packages=""
command -v debootstrap >/dev/null 2>&1 || packages="$packages debootstrap"
[ -z "$packages" ] && exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "make test-system needs root to install:$packages" >&2
    exit 1
fi
apt-get update -qq
# shellcheck disable=SC2086  # a list of package names
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $packages
