#!/bin/sh
# The main job, as a newcomer meets it: look at this machine; without a GPU, also at the bundled example machine.
set -u
verb=doctor
look() {
    echo "\$ firstlight $verb $*"
    "$BIN/firstlight" "$verb" "$@"
    code=$?
    case $code in
    0 | 1) echo ;;
    *) echo "firstlight $verb ended with exit code $code" >&2; exit "$code" ;;
    esac
}
look
if [ ! -e /dev/nvidiactl ] && [ ! -e /dev/dxg ] && [ ! -e /dev/nvmap ]; then
    echo "This machine has no NVIDIA GPU. The same on a bundled example: an H100 with driver 570.133.20 and torch 2.9.0+cu130."
    look --facts example:h100-driver-570
fi
