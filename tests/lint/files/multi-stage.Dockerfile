# syntax=docker/dockerfile:1.7
ARG CUDA=12.4.1
ARG PYTHON=3.12

FROM nvidia/cuda:${CUDA}-devel-ubuntu22.04 AS builder
ARG PYTHON
COPY --from=ghcr.io/astral-sh/uv:0.5 /uv /usr/local/bin/uv
ENV UV_CACHE_DIR=/root/.cache/uv
RUN uv venv --python ${PYTHON} /opt/venv
ENV VIRTUAL_ENV=/opt/venv
RUN <<EOF
set -eux
uv pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124
TORCH_CUDA_ARCH_LIST="9.0 10.0" uv pip install --no-build-isolation -v .
EOF

FROM nvidia/cuda:${CUDA}-runtime-ubuntu22.04
COPY --from=builder /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH HF_HOME=/root/hf
RUN useradd --create-home app
USER app
ENTRYPOINT ["python", "-m", "app"]
