"""Block-sparse attention inside of Hugging Face transformers' models.

    from firstlight.kernels.models import register_attention
    register_attention()
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="firstlight")

register.py enters two functions into transformers' own registries: masks.py, which makes a BlockMask of what the model
says about its mask, by recognising the parts of it (recognised.py), and attention.py, which computes attention under it
or says why it leaves that to torch (plain.py where torch has no kernel either). transformers is imported when
register_attention is called; nothing else here needs it.
"""

from __future__ import annotations

from firstlight.kernels.models.attention import attention_calls, forget_attention_calls
from firstlight.kernels.models.register import register_attention

__all__ = ["attention_calls", "forget_attention_calls", "register_attention"]
