#!/bin/bash
#SBATCH --job-name=seg
#SBATCH --partition=gpu
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --mem=50G
#SBATCH --time=24:00:00
#SBATCH --output=logs/%j.out

source "$HOME/miniconda3/etc/profile.d/conda.sh"
conda activate seg

nvidia-smi
srun python -u train.py "$@"
