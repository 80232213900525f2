"""Hugging Face models without a network: a problem file that asks for a published model by name gets what the local cache holds, else
the published configuration (the table below) with random weights. Nothing is downloaded unless HF_HUB_OFFLINE=0 says so."""

import functools
import importlib.util
import os

# Differences from each configuration class's defaults.
_CONFIGS = {
    "gpt2": ("GPT2Config", {}),
    "facebook/opt-1.3b": ("OPTConfig", {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "ffn_dim": 8192,
                                         "word_embed_proj_dim": 2048, "vocab_size": 50272, "max_position_embeddings": 2048}),
    "EleutherAI/gpt-neo-2.7B": ("GPTNeoConfig", {"hidden_size": 2560, "num_layers": 32, "num_heads": 20, "vocab_size": 50257,
                                                  "attention_types": [[["global", "local"], 16]], "max_position_embeddings": 2048,
                                                  "window_size": 256}),
    "facebook/bart-large": ("BartConfig", {}),
    "google/electra-small-discriminator": ("ElectraConfig", {}),
    "google/bigbird-roberta-base": ("BigBirdConfig", {}),
    "google/reformer-enwik8": ("ReformerConfig", {
        "attention_head_size": 128, "attn_layers": ["local", "local", "lsh", "local"] * 3, "axial_pos_embds": True,
        "axial_pos_embds_dim": [256, 768], "axial_pos_shape": [128, 512], "feed_forward_size": 4096, "hidden_size": 1024,
        "is_decoder": True, "lsh_attn_chunk_length": 256, "local_attn_chunk_length": 128, "max_position_embeddings": 65536,
        "num_attention_heads": 8, "num_buckets": 512, "num_hashes": 4, "vocab_size": 258, "hidden_dropout_prob": 0.2,
        "lsh_attention_probs_dropout_prob": 0.1, "local_attention_probs_dropout_prob": 0.2}),
}


def wanted_by(source):
    """Whether a problem file uses Hugging Face models and they are installed here."""
    return "transformers" in source and importlib.util.find_spec("transformers") is not None


def install():
    """Makes from_pretrained() of configurations and models fall back to the table. Idempotent."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    if getattr(transformers, "_stitch_offline", False):
        return
    transformers._stitch_offline = True
    transformers.AutoConfig.from_pretrained = _or_table(transformers, transformers.AutoConfig.from_pretrained)
    for name in dir(transformers):
        if name.startswith("AutoModel"):
            auto = getattr(transformers, name)
            if hasattr(auto, "from_config"):
                auto.from_pretrained = _or_random(auto, auto.from_pretrained)


def _or_table(transformers, original):
    @functools.wraps(original)
    def from_pretrained(name, *args, **kwargs):
        try:
            return original(name, *args, **kwargs)
        except (OSError, ValueError):
            if name not in _CONFIGS:
                raise
            cls, arguments = _CONFIGS[name]
            return getattr(transformers, cls)(**arguments)

    return from_pretrained


def _or_random(auto, original):
    @functools.wraps(original)
    def from_pretrained(name, *args, config=None, **kwargs):
        try:
            return original(name, *args, config=config, **kwargs)
        except (OSError, ValueError):
            if config is None:
                if name not in _CONFIGS:
                    raise
                import transformers
                config = transformers.AutoConfig.from_pretrained(name)
            return auto.from_config(config).eval()  # from_pretrained() gives modules in evaluation mode

    return from_pretrained
