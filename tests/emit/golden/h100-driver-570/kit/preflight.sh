#!/bin/sh
# Written by firstlight 0.1.0 (firstlight emit kit); the same plan gives the same file.
# plan 1581f64fd84667b85653a9738c832c9fd7ce4c1fd4e0590b0da5740f81140542
# for: the machine of h100-driver-570; wanted: what is installed there; goal: infer
# inside: torch==2.9.0+cu130, torchvision==0.24.0+cu130, and numpy<3 where it is available; x86_64, Python 3.12, glibc 2.28 or newer
# left out: torchaudio==2.8.0+cu128: cannot be installed together with torch==2.9.0+cu130, torchvision==0.24.0+cu130
# left out: vllm==0.11.0: cannot be installed together with torch==2.9.0+cu130, torchvision==0.24.0+cu130
# left out: xformers==0.0.32.post1: cannot be installed together with torch==2.9.0+cu130, torchvision==0.24.0+cu130
# torch 2.9.0+cu130 is built with CUDA 13.0: driver 580.65.06 or newer runs it (docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html, 13.4 / R615 edition, 2026-11-15).
# cuda-compat-13-0 takes driver branches 535, 550, 565, 570, 575, decided when a program starts.
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
