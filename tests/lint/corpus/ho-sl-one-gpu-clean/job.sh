#!/bin/bash
#SBATCH --partition=gpu
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=60G
#SBATCH --gres=gpu:1
#SBATCH --time=04:00:00

module purge
module load python/3.11
source "$HOME/envs/gender/bin/activate"

nvidia-smi
srun python train.py --device cuda --epochs 20
