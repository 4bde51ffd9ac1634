"""A tiny EAGLE-3 draft: one decoder layer over a few states of the target and the next token."""

import torch
import torch.nn.functional as F
from llama import rope
from torch import nn

STEPS = 3  # tokens that the draft learns to be ahead of the target


class Draft(nn.Module):
    """Begins with the target's embedding, which stays, and with its norm and head, which are trained on."""

    def __init__(self, target, layers):
        super().__init__()
        c, width = target.config, target.config["hidden_size"]
        self.heads, self.theta = c["num_attention_heads"], c["rope_theta"]
        self.embedding = target.embedding
        self.fc = nn.Linear(layers * width, width, bias=False)
        self.token_norm, self.state_norm, self.mlp_norm, self.norm = (nn.RMSNorm(width) for _ in range(4))
        self.qkv = nn.Linear(2 * width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * c["intermediate_size"], bias=False)
        self.down = nn.Linear(c["intermediate_size"], width, bias=False)
        self.head = nn.Linear(width, len(target.embedding), bias=False)
        self.norm.weight.data.copy_(target.norm)
        self.head.weight.data.copy_(target.embedding)

    def forward(self, ids, aux):
        """Return the logits [B, T, V] of each step, of ids [B, T] and the target's states [B, T, layers * H].

        At step k and position t the draft has the states up to t and the tokens up to t+1+k, the last k of them its own
        guesses when it serves, and says which token comes next.
        """
        tokens = ids.shape[1]
        positions = torch.arange(tokens).float()
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
        state, keys, values, logits = self.fc(aux), [], [], []
        for step in range(STEPS):
            newest = self.embedding[F.pad(ids[:, 1 + step :], (0, 1 + step))]
            x = torch.cat([self.token_norm(newest), self.state_norm(state)], dim=-1)
            q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
            q, k = (rope(t, positions + step, self.theta) for t in (q, k))
            keys.append(k)
            values.append(v)
            # All positions up to t are seen as the first step left them; what the draft added, at t alone.
            scores = [
                (q @ keys[0].mT).masked_fill(later, -torch.inf),
                *((q * k).sum(-1, keepdim=True) for k in keys[1:]),
            ]
            weights = (torch.cat(scores, dim=-1) * q.shape[-1] ** -0.5).softmax(-1)
            seen = weights[..., :tokens] @ values[0]
            for i, v in enumerate(values[1:]):
                seen = seen + weights[..., tokens + i, None] * v
            state = state + self.out(seen.transpose(1, 2).flatten(2))
            gate, up = self.gate_up(self.mlp_norm(state)).chunk(2, dim=-1)
            state = state + self.down(F.silu(gate) * up)
            logits.append(self.head(self.norm(state)))
        return logits

    def compare(self, batch):
        """Yield, for each step, the target's logits and the draft's, [n, V] of the n positions that count."""
        final, mask = batch["target"].float(), batch["loss_mask"].bool()
        for k, logits in enumerate(self(batch["input_ids"], batch["hidden_state"].float()), start=1):
            keep = mask[:, :-k]  # the target chose the token after t+k by its final state at t+k
            yield final[:, k:][keep] @ self.embedding.T, logits[:, :-k][keep]

    def loss(self, batch):
        """Return the cross entropy in nats a token, later steps counting less."""
        parts = [-(q.log_softmax(-1) * p.softmax(-1)).sum(-1).mean() for p, q in self.compare(batch)]
        weights = [0.8**k for k in range(STEPS)]
        return sum(w * part for w, part in zip(weights, parts, strict=True)) / sum(weights)

    @torch.no_grad()
    def accept(self, batch):
        """Return, for each step, how probable it is that speculative sampling accepts the token: sum of min(p, q)."""
        return [torch.minimum(p.softmax(-1), q.softmax(-1)).sum(-1).mean().item() for p, q in self.compare(batch)]
