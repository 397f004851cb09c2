#!/bin/sh
# Written by firstlight 0.1.0 (firstlight emit kit); the same plan gives the same file.
# plan 3d2cf0d687a19e80bab16cdbc0b8e3cf40d4b2ab0a287fd78cbcee2baf1c7a62
# for: the machine of h200-healthy; wanted: what is installed there; goal: infer
# inside: torch==2.11.0, and numpy<3 where it is available; x86_64, Python 3.12, glibc 2.28 or newer
# torch 2.11.0 is built with CUDA 13.0: driver 580.65.06 or newer runs it (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, 13.4 / R615 edition, 2026-11-15).
# It holds code for sm_75 sm_80 sm_86 sm_90 sm_100 sm_120.
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
