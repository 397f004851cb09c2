"""Small random models of transformers, and one pass of them under two attention implementations."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

VOCABULARY = 97
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,  # attention sharp enough that a wrong mask shows
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
WINDOW = 48
BART = {"layers": 2, "attention_heads": 4, "ffn_dim": 64}


def small(family: str, *, kv_heads: int = 2, seed: int = 0, **more: Any) -> Any:
    """A model in eval mode with random weights, e.g. small("llama", kv_heads=1)."""
    import transformers

    sizes = {**SIZES, "num_key_value_heads": kv_heads, **more}
    torch.manual_seed(seed)
    with_windows = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 16}
    if family == "llama":
        made: Any = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    elif family == "mistral":
        made = transformers.MistralForCausalLM(transformers.MistralConfig(**sizes, sliding_window=WINDOW))
    elif family == "qwen2":
        layers = {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": with_windows["layer_types"]}
        made = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**sizes, **layers))
    elif family == "gemma2":
        capped = {**with_windows, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16}
        made = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**sizes, **capped))
    elif family == "gemma3":
        scaled = {**with_windows, "query_pre_attn_scalar": 16}
        scaled["tie_word_embeddings"] = False  # tied, it says its last word for ever
        made = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**sizes, **scaled))
    elif family == "gpt_oss":
        experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
        made = transformers.GptOssForCausalLM(transformers.GptOssConfig(**sizes, **with_windows, **experts))
    elif family == "llama4":
        chunks = {"attention_chunk_size": 40, "head_dim": 16, "layer_types": ["chunked_attention", "full_attention"]}
        one_expert = {"num_local_experts": 2, "intermediate_size_mlp": 96, "moe_layers": list[int]()}
        made = transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(**{**sizes, **chunks, **one_expert}))
    elif family == "bert":
        for name in ("num_key_value_heads", "bos_token_id", "eos_token_id"):
            del sizes[name]
        made = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False)
    elif family == "bart":
        halves = {f"{half}_{what}": number for half in ("encoder", "decoder") for what, number in BART.items()}
        of_bart = {"d_model": 64, "init_std": 0.3, "decoder_start_token_id": 1, "eos_token_id": None}
        sizes = {name: sizes[name] for name in ("vocab_size", "max_position_embeddings", "pad_token_id")}
        made = transformers.BartForConditionalGeneration(transformers.BartConfig(**sizes, **halves, **of_bart))
    elif family == "modernbert":
        marks = dict.fromkeys(("eos_token_id", "sep_token_id", "cls_token_id"), 2)
        local = {"local_attention": 40, "global_attn_every_n_layers": 2}
        del sizes["num_key_value_heads"]
        made = transformers.ModernBertModel(transformers.ModernBertConfig(**{**sizes, **marks, **local}))
    else:
        raise AssertionError(family)
    return made.eval()


class Batch(NamedTuple):
    """Tokens and which of them are real."""

    ids: Tensor
    real: Tensor  # int64 [batch, length]

    def inputs(self) -> dict[str, Tensor]:
        return {"input_ids": self.ids, "attention_mask": self.real}


def batch(length: int, padding: tuple[int, ...], *, side: str = "left", seed: int = 1) -> Batch:
    """One sequence for each number of padded places, e.g. (0, 30)."""
    ids = torch.randint(2, VOCABULARY, (len(padding), length), generator=torch.Generator().manual_seed(seed))
    places = torch.arange(length)
    lengths = torch.tensor(padding)[:, None]
    real = places >= lengths if side == "left" else places < length - lengths
    return Batch(torch.where(real, ids, 0), real.long())


def output(model: Any, attention: str, **inputs: Any) -> Tensor:
    """Logits, or the hidden states of an encoder."""
    model.set_attn_implementation(attention)
    with torch.no_grad():
        made = model(**inputs)
    found: Tensor = made.logits if hasattr(made, "logits") else made.last_hidden_state
    return found


def gradients(model: Any, attention: str, given: Batch, **inputs: Any) -> dict[str, Tensor]:
    """Gradients of a random weighing of the outputs at real places, by parameter."""
    model.set_attn_implementation(attention)
    model.zero_grad()
    made = model(**given.inputs(), **inputs)
    out = made.logits if hasattr(made, "logits") else made.last_hidden_state
    real = out[given.real.bool()].float()
    (real * torch.randn(real.shape, generator=torch.Generator().manual_seed(2)).to(real.device)).mean().backward()
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def tokens(model: Any, attention: str, given: Batch, **how: Any) -> Tensor:
    """Twelve greedy tokens for each sequence."""
    model.set_attn_implementation(attention)
    with torch.no_grad():
        made: Tensor = model.generate(**given.inputs(), max_new_tokens=12, do_sample=False, **how)
    return made


def in_parts(model: Any, attention: str, given: Batch, first: int) -> Tensor:
    """Logits of what follows the first tokens, which went into a cache before."""
    from transformers import DynamicCache

    model.set_attn_implementation(attention)
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=given.ids[:, :first], attention_mask=given.real[:, :first], past_key_values=cache)
        made = model(input_ids=given.ids[:, first:], attention_mask=given.real, past_key_values=cache)
    logits: Tensor = made.logits
    return logits
