"""firstlight: GPU bring-up. Diagnose, fix, prove and measure a PyTorch + CUDA machine."""

__version__ = "0.1.0"
