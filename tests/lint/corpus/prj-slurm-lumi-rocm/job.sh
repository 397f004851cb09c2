#!/bin/bash
#SBATCH --partition=small-g
#SBATCH --gpus-per-node=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=7
#SBATCH --time=0:15:00

CONTAINER=docker://rocm/pytorch:rocm6.2.4_ubuntu22.04_py3.10_pytorch_release_2.6.0
srun singularity exec $CONTAINER python single_gpu_train.py --num_workers=4
