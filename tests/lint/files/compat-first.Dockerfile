# A pod image that puts the compat library in front of whatever driver it meets.
FROM nvidia/cuda:13.0.2-cudnn-devel-ubuntu22.04

ENV DEBIAN_FRONTEND=noninteractive \
    LD_LIBRARY_PATH=/usr/local/cuda-13.0/compat:/usr/local/cuda/lib64:${LD_LIBRARY_PATH}

RUN apt-get update && apt-get install -y --no-install-recommends \
        git openssh-server python3.11 python3.11-venv python3-pip \
    && rm -rf /var/lib/apt/lists/*

RUN python3.11 -m venv /workspace/venv
ENV PATH=/workspace/venv/bin:$PATH
RUN pip install --no-cache-dir torch==2.9.0 --index-url https://download.pytorch.org/whl/cu130
