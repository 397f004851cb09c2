#!/bin/sh
# Written by firstlight 0.1.0 (firstlight emit kit); the same plan gives the same file.
# plan e44b4e032d9ebd31167dd520eb96523cb2d7ac4f76d2d3347fbef2e8a8a402e6
# for: the machine of gh200-torch-pypi; wanted: what is installed there; goal: infer
# inside: torch==2.9.0+cu128, and numpy<3 where it is available; aarch64, Python 3.12, glibc 2.28 or newer
# torch 2.9.0+cu128 is built with CUDA 12.8: driver 525.60.13 or newer runs it (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, 13.4 / R615 edition, 2026-11-15).
# A Jetson runs it from Jetson Linux 38 on (CUDA 13.0: jetson-containers, jetson_containers/l4t_version.py, 2026-11-15), whatever its driver's number.
# It holds code for sm_80 sm_90 sm_100 sm_120.
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
