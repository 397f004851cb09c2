#!/bin/sh
# Prolog= of slurm.conf: Slurm drains a node where this ends with another code than 0.
# The lock is written once, on a node that works: firstlight lock --out /etc/firstlight.lock
# It answers within two seconds and calls no Slurm command; its one line is the reason, in slurmd's log.
set -u
PATH=/opt/firstlight/bin:/usr/sbin:/usr/bin:/sbin:/bin
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0 # a job without GPUs
exec firstlight doctor --gate --lock /etc/firstlight.lock
