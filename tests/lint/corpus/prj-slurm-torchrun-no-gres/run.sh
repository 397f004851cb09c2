#!/bin/bash
#SBATCH -o train.out
#SBATCH -N 1
#SBATCH --cpus-per-task=16
#SBATCH -p gpu

source .venv/bin/activate
torchrun --standalone --nnodes=1 --nproc_per_node=2 train.py --backend nccl
