FROM --platform=linux/amd64 pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel

WORKDIR /app
ENV TORCH_CUDA_ARCH_LIST="7.0;7.5;8.0;8.6" \
    MAX_JOBS=8

COPY requirements.txt .
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install -U pip setuptools wheel && \
    pip install -r requirements.txt && \
    # built from source
    pip install --no-build-isolation flash-attn==2.7.4 && \
    pip install -U torchvision torchaudio

COPY . .
CMD ["python", "train.py"]
