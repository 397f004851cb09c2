#!/bin/sh
# What the system tests need from the distribution; they skip with a reason what is missing.
set -eu
missing=""
for pair in sshd:openssh-server gpg:gnupg strace:strace ip:iproute2 gcc:gcc git:git curl:curl xz:xz-utils patch:patch shellcheck:shellcheck buildah:buildah debootstrap:debootstrap sbatch:slurm-client \
    slurmctld:slurmctld slurmd:slurmd munged:munge chromium:chromium podman:podman docker-compose:docker-compose crun:crun skopeo:skopeo rsync:rsync newuidmap:uidmap lxc-start:lxc systemd-nspawn:systemd-container zsh:zsh fish:fish ksh:ksh tcsh:tcsh; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || [ -x "/usr/sbin/${pair%%:*}" ] || missing="$missing ${pair##*:}"
done
# no program to look for: packages of their own, packed again into the roots that emitted scripts bring up
for package in musl python3-venv python3-apt python3.11-dev g++ fonts-dejavu-core; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$missing (needs root and apt); the tests that use them are skipped" >&2
    exit 0
fi
echo "installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 the list is meant to be split
apt-get install --yes --quiet --no-install-recommends $missing >/dev/null 2>&1 || {
    apt-get update --quiet >/dev/null
    apt-get install --yes --quiet --no-install-recommends $missing >/dev/null
}
