"""states.py MODEL < prompts > states: the hidden states of each line's token ids, computed
by transformers in float32: those after the layers 0, 1 and 3, and the last before the final
norm, one after the other, as little-endian float32 [T, H]."""

import json
import sys

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
before_norm = []
model.model.norm.register_forward_pre_hook(lambda _, args: before_norm.append(args[0]))
with torch.no_grad():
    for line in sys.stdin:
        before_norm.clear()
        out = model(torch.tensor([json.loads(line)]), output_hidden_states=True)
        for state in [out.hidden_states[1], out.hidden_states[2], out.hidden_states[4], before_norm[0]]:
            sys.stdout.buffer.write(state[0].contiguous().numpy().tobytes())
