#!/bin/bash
#SBATCH --job-name=eval-sweep
#SBATCH --array=0-9
#SBATCH --gpus=1
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00

module load python/3.11
python -m venv "$SLURM_TMPDIR/env"
source "$SLURM_TMPDIR/env/bin/activate"
pip install --no-cache-dir torch==2.7.1 --index-url https://download.pytorch.org/whl/cu118
pip install --no-cache-dir -e .

python -m evalkit.run --shard "$SLURM_ARRAY_TASK_ID" --num-shards 10
