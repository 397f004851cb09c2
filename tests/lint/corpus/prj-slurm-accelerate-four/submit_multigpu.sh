#!/bin/bash
#SBATCH --job-name=multigpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=64
#SBATCH --time=01:59:00

export GPUS_PER_NODE=4
accelerate launch --num_processes $GPUS_PER_NODE train.py --mixed_precision fp16
