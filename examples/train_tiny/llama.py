"""A Llama of a few lines: reads a Hugging Face folder, writes text, and tells its hidden states."""

import json
import math
import struct
from pathlib import Path

import torch
import torch.nn.functional as F


def read_safetensors(path):
    """Return the tensors of a safetensors file of fp32 by name."""
    data = bytearray(path.read_bytes())
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    header.pop("__metadata__", None)
    tensors = {}
    for name, t in header.items():
        assert t["dtype"] == "F32", f"{name} is {t['dtype']}, want F32"
        offset, count = 8 + n + t["data_offsets"][0], math.prod(t["shape"])
        tensors[name] = torch.frombuffer(data, dtype=torch.float32, count=count, offset=offset).view(t["shape"])
    return tensors


def rms_norm(x, weight, eps):
    """Normalise the last dimension."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def rope(x, positions, theta):
    """Rotate [B, heads, T, D] by positions [T], the two halves of D against each other as Hugging Face does."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], dim=-1)


class Llama:
    """The target model: embeddings and head are one matrix, and nothing has a bias."""

    def __init__(self, directory):
        self.config = json.loads((Path(directory) / "config.json").read_text())
        self.weights = read_safetensors(Path(directory) / "model.safetensors")
        self.embedding = self.weights["model.embed_tokens.weight"]  # [V, H]
        self.norm = self.weights["model.norm.weight"]  # [H]

    def states(self, ids, past):
        """Return P_-1, P_0, … P_{L-1} and N, each [B, T, H], of ids [B, T] that follow those which `past` holds.

        past is a list of the keys and values of each layer, empty at first; those of ids are added to it.
        """
        c = self.config
        heads, kv, eps = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
        past.extend([None] * (c["num_hidden_layers"] - len(past)))
        batch, tokens = ids.shape
        start = 0 if past[0] is None else past[0][0].shape[2]
        positions = torch.arange(start, start + tokens).float()
        x = self.embedding[ids]
        states = [x]
        for i in range(c["num_hidden_layers"]):
            w = {name.split(".", 3)[3]: t for name, t in self.weights.items() if name.startswith(f"model.layers.{i}.")}
            y = rms_norm(x, w["input_layernorm.weight"], eps)
            q, k, v = (
                (y @ w[f"self_attn.{name}_proj.weight"].T).view(batch, tokens, n, -1).transpose(1, 2)
                for name, n in (("q", heads), ("k", kv), ("v", kv))
            )
            q, k = (rope(t, positions, c["rope_theta"]) for t in (q, k))
            if past[i] is not None:
                k, v = torch.cat([past[i][0], k], dim=2), torch.cat([past[i][1], v], dim=2)
            past[i] = k, v
            k, v = (t.repeat_interleave(heads // kv, dim=1) for t in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=tokens > 1)
            x = x + y.transpose(1, 2).reshape(batch, tokens, -1) @ w["self_attn.o_proj.weight"].T
            y = rms_norm(x, w["post_attention_layernorm.weight"], eps)
            y = F.silu(y @ w["mlp.gate_proj.weight"].T) * (y @ w["mlp.up_proj.weight"].T)
            x = x + y @ w["mlp.down_proj.weight"].T
            states.append(x)
        return [*states, rms_norm(x, self.norm, eps)]

    def write(self, samples, tokens):
        """Return texts of the model's own, [samples, tokens], all beginning with its first token."""
        ids = torch.full((samples, 1), self.config["bos_token_id"])
        past = []
        while ids.shape[1] < tokens:
            logits = self.states(ids[:, -1:], past)[-1][:, 0] @ self.embedding.T
            ids = torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], dim=1)
        return ids
