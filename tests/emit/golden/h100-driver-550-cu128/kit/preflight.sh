#!/bin/sh
# Written by firstlight 0.1.0 (firstlight emit kit); the same plan gives the same file.
# plan dc4fe42c0713bf01a9e07f8c1450d58c212d7712ba5c9465f9c4ecf6fbf16578
# for: the machine of h100-driver-550-cu128; wanted: what is installed there; goal: infer
# inside: torch==2.8.0, and numpy<3 where it is available; x86_64, Python 3.12, glibc 2.28 or newer
# torch 2.8.0 is built with CUDA 12.8: driver 525.60.13 or newer runs it (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, 13.4 / R615 edition, 2026-11-15).
# It holds code for sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120.
#
# Nothing has changed since the lock, and the machine is proved and as the team's list has it. FIRSTLIGHT: the program,
# where it is not in PATH; PYTHON: the interpreter of torch's environment, where it is another than firstlight's.
# Exit code: that of what refused (check: 3 drift, 2 no lock; verify: 1), 4 without firstlight.
set -u
cd "$(dirname "$0")" || exit 4
firstlight="${FIRSTLIGHT:-firstlight}"
if ! command -v "$firstlight" > /dev/null; then
    echo "preflight.sh: no $firstlight in PATH; README.md says how to install the wheel beside it" >&2
    exit 4
fi
"$firstlight" check --locked ${PYTHON:+--python "$PYTHON"} \
    && "$firstlight" verify --require team.toml ${PYTHON:+--python "$PYTHON"}
