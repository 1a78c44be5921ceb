"""Makes the checkpoints and golden logits of this folder.

Run in this folder with torch 2.15, transformers 5.23 and safetensors 0.8:

    python make.py            the committed checkpoints: tied, untied
    python make.py --families the committed ones of other families (made with torch 1.13 and transformers 4.45)
    python make.py OUT        more of them, in OUT: other types, one file
    python make.py --check A B  that A and B give equal logits in transformers

The weights are small random numbers with norms away from one, so that every
tensor shows in the logits.
"""

import json
import os
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, Qwen3ForCausalLM

PROMPTS = [[1], [5, 17, 300, 2, 2, 99, 511, 0], list(range(40, 104))]


def make(path, dtype, tied, shards, small):
    torch.manual_seed(7)
    config = Qwen3Config(
        vocab_size=64 if small else 512,
        hidden_size=32 if small else 64,
        intermediate_size=48 if small else 160,
        num_hidden_layers=2 if small else 3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16 if small else 32,
        max_position_embeddings=128,
        rope_theta=1e6,
        tie_word_embeddings=tied,
    )
    model = Qwen3ForCausalLM(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * 0.1 + (1 if "norm" in name else 0))
    model = model.to(dtype)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(path, max_shard_size=size // shards + 8192 if shards > 1 else "5GB")
    golden(path, config.vocab_size)


def families():
    """Small networks of other families, in bfloat16: between them all biases, plain heads, and scaled rotations."""
    common = dict(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
    llama3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
    yarn = dict(rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=0.25)
    for config in [
        LlamaConfig(**common, max_position_embeddings=256, rope_theta=100.0, rope_scaling=llama3, attention_bias=True, mlp_bias=True),
        Qwen2Config(**common, max_position_embeddings=64, rope_theta=100.0, rope_scaling=yarn, tie_word_embeddings=True),
        MistralConfig(**common, max_position_embeddings=128, sliding_window=None, rms_norm_eps=1e-5),
    ]:
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(torch.randn_like(p) * 0.2 + (1 if "norm" in name else 0))
        path = config.model_type
        model.to(torch.bfloat16).save_pretrained(path)
        golden(path, config.vocab_size)


def golden(path, vocab):
    """Stores float32 logits of the weights as they are on disk."""
    model = AutoModelForCausalLM.from_pretrained(path, torch_dtype=torch.float32, attn_implementation="eager").eval()
    out = []
    for ids in PROMPTS:
        ids = [i % vocab for i in ids]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0]
        # Every position of the short prompts, the last of the long one.
        rows = logits[-1:] if len(ids) > 8 else logits
        out.append({"ids": ids, "logits": [[float(f"{x:.8g}") for x in row.tolist()] for row in rows]})
    with open(path.rstrip("/") + ".golden.json", "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


def check(a, b):
    ids = torch.tensor([PROMPTS[1]]) % 64
    models = [AutoModelForCausalLM.from_pretrained(p, dtype=torch.float32).eval() for p in (a, b)]
    with torch.no_grad():
        x, y = (m(ids).logits for m in models)
    print("equal" if torch.equal(x, y) else f"differ by {(x - y).abs().max().item()}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"]:
        check(*sys.argv[2:])
    elif sys.argv[1:2] == ["--families"]:
        families()
    elif len(sys.argv) > 1:
        for name, dtype, tied, shards in [
            ("tied-f32", torch.float32, True, 3),
            ("untied-f32", torch.float32, False, 3),
            ("tied-bf16", torch.bfloat16, True, 3),
            ("untied-bf16", torch.bfloat16, False, 1),
            ("untied-f16", torch.float16, False, 3),
        ]:
            make(os.path.join(sys.argv[1], name), dtype, tied, shards, small=False)
    else:
        make("tied", torch.float32, True, 1, small=True)
        make("untied", torch.bfloat16, False, 3, small=True)
