"""firstlight: GPU bring-up. Diagnose, fix, prove and measure a PyTorch + CUDA machine.

The command is `firstlight`; from Python use firstlight.api (look, diagnose, plan, explain, verify, check_claim) and
firstlight.kernels (block-sparse products and attention).
"""

__version__ = "0.1.0"
