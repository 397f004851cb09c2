#!/bin/sh
# What the system tests need from the distribution; they skip with a reason what is missing.
set -eu
missing=""
for pair in sshd:openssh-server gpg:gnupg strace:strace ip:iproute2 gcc:gcc patch:patch; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || [ -x "/usr/sbin/${pair%%:*}" ] || missing="$missing ${pair##*:}"
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
