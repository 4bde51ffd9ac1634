"""Where the layers stand in the models of transformers, and that what they hand on is what transformers says."""

import pytest
import torch
import transformers
from conftest import equal, load

import hsx_capture

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "pad_token_id": 0,
}
FAMILIES = {
    "Llama": {},
    "Mistral": {},
    "Qwen2": {},
    "Qwen3": {},
    "Qwen3Moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "Gemma2": {},  # scales its embedding
    "Phi": {},
    "Olmo2": {},
    "GPT2": {},
    "GPTNeoX": {},
    "Falcon": {},
    "Bloom": {},
    "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 32},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_states(family, tmp_path):
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**SMALL, **FAMILIES[family])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.arange(1, 8)
    with hsx_capture.Capture(model, ["embedding", 0, 1, 2], final="post", to=f"spool:{tmp_path}") as cap:
        with torch.inference_mode():
            want = model(ids[None], output_hidden_states=True).hidden_states
        cap.sample("a", ids)
    tensors, metadata = load(tmp_path / "a.safetensors")
    for k in range(-1, 2):
        equal(tensors[f"layer_{k}"], want[k + 1][0])
    equal(tensors["final"], want[3][0])
    assert not torch.equal(tensors["layer_2"], tensors["final"])
    facts = [metadata[f"hsx.{name}"] for name in ("target", "target_layers", "hidden_size", "vocab_size")]
    assert facts == [type(model).__name__, "3", "32", "100"]


def test_a_model_that_also_sees(tmp_path):
    text = {**SMALL, "model_type": "qwen2"}
    vision = {"model_type": "clip_vision_model", "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2}
    vision |= {"intermediate_size": 16, "image_size": 8, "patch_size": 4}
    config = transformers.LlavaConfig(text_config=text, vision_config=vision)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    ids = torch.arange(1, 8)
    with hsx_capture.Capture(model, [0, 2], final="pre", to=f"spool:{tmp_path}") as cap:
        with torch.inference_mode():
            want = model(ids[None], output_hidden_states=True).hidden_states
        cap.sample("a", ids)
    tensors, metadata = load(tmp_path / "a.safetensors")
    equal(tensors["layer_0"], want[1][0])
    equal(tensors["final"], tensors["layer_2"])
    assert metadata["hsx.target_layers"] == "3"
