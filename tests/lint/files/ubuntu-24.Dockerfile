FROM nvidia/cuda:12.8.1-runtime-ubuntu24.04
RUN apt-get update && apt-get install -y python3 python3-pip && apt-get clean
RUN pip3 install torch==2.8.0 vllm==0.10.2
ENV NVIDIA_DRIVER_CAPABILITIES=graphics,video
EXPOSE 8000
CMD ["vllm", "serve", "Qwen/Qwen3-0.6B"]
