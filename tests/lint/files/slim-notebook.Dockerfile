FROM python:3.13-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends nvidia-cuda-toolkit libcuda1 \
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir jupyterlab "torch>=2.4,<2.5"
RUN python -c "import torch; assert torch.cuda.is_available(), 'no GPU'"
