"""Holds what the hook takes out of a real vLLM process against the same model in transformers.

python interop/check_vllm.py MODEL_DIR [MODEL_DIR's dtype, default float32]

MODEL_DIR needs no tokenizer. vLLM and transformers round differently, so the states of a row may differ by the
tolerance times its norm.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the model has to be in this process

import safetensors.torch
import torch
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams

import hsx_capture

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.1}


def main(directory: str, dtype: str = "float32") -> None:
    """Capture a few prompts, and one with an answer, in both."""
    llm = LLM(
        model=directory,
        dtype=dtype,
        max_model_len=512,
        enforce_eager=True,  # graphs run no hooks
        enable_prefix_caching=False,  # cached tokens have no states
        skip_tokenizer_init=True,
    )
    inside = llm.llm_engine.model_executor.driver_worker.worker.model_runner.model
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, dtype)).eval()
    last, vocabulary = model.config.num_hidden_layers - 1, model.config.vocab_size
    layers = ["embedding", 0, last // 2, last]
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(3, vocabulary, (n,), generator=generator).tolist() for n in (1, 9, 64, 300)]

    def generate(prompt: list[int], tokens: int) -> list[int]:
        params = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
        return list(llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)[0].outputs[0].token_ids)

    with tempfile.TemporaryDirectory() as work:
        for final in ("pre", "post"):
            samples = dict(zip("abcd", prompts, strict=True))
            with hsx_capture.Capture(inside, layers, final=final, to=f"spool:{work}/vllm-{final}") as cap:
                for id, prompt in samples.items():
                    generate(prompt, 1)
                    cap.sample(id, prompt)
                cap.start()
                samples["answer"] = prompts[1] + generate(prompts[1], 8)[:-1]
                cap.sample("answer", samples["answer"])
            with hsx_capture.Capture(model, layers, final=final, to=f"spool:{work}/hf-{final}") as cap:
                for id, tokens in samples.items():
                    with torch.inference_mode():
                        model(torch.tensor([tokens]))
                    cap.sample(id, tokens)
            worst = max(compare(Path(work), final, id) for id in samples)
            print(f"final {final}: {len(samples)} samples, largest difference {worst:.2g} of a row's norm")
            if not worst < TOLERANCE[dtype]:
                sys.exit(f"want at most {TOLERANCE[dtype]}")


def compare(work: Path, final: str, id: str) -> float:
    """Return the largest difference of two rows, relative to their norm."""
    got, want = (safetensors.torch.load_file(work / f"{side}-{final}/{id}.safetensors") for side in ("vllm", "hf"))
    if got.keys() != want.keys() or not torch.equal(got["input_ids"], want["input_ids"]):
        sys.exit(f"sample {id} holds {list(got)}, want {list(want)} and the same ids")
    pairs = [(got[name].double(), want[name].double()) for name in want if name != "input_ids"]
    return max(float(((a - b).norm(dim=1) / b.norm(dim=1)).max()) for a, b in pairs)


if __name__ == "__main__":
    main(*sys.argv[1:])
