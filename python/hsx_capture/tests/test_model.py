"""The states of a real model."""

import pytest
import torch
from conftest import equal, load

import hsx_capture

EVERY = ["embedding", 0, 1, 2, 3, 4]


def run(model, *args, **kwargs):
    with torch.inference_mode():
        model(*args, **kwargs)


def check(directory, texts, final):
    assert sorted(p.name for p in directory.iterdir()) == sorted(f"{t.id}.safetensors" for t in texts)
    for text in texts:
        tensors, metadata = load(directory / f"{text.id}.safetensors")
        assert metadata["hsx.id"] == text.id
        assert set(tensors) == {"input_ids", "loss_mask", "final", *(f"layer_{k}" for k in range(-1, 5))}
        equal(tensors["input_ids"], text.tokens.to(torch.int64))
        equal(tensors["loss_mask"], text.mask)
        for k in range(-1, 5):
            equal(tensors[f"layer_{k}"], text.states[f"P{k}"])
        equal(tensors["final"], text.states["N" if final == "post" else "P4"])


@pytest.mark.parametrize("final", ["post", "pre"])
def test_one_by_one(truth, tmp_path, final):
    with hsx_capture.Capture(truth.model, EVERY, final=final, to=f"spool:{tmp_path}") as cap:
        for text in truth.texts:
            run(truth.model, text.tokens[None])
            cap.sample(text.id, text.tokens, text.mask)
    check(tmp_path, truth.texts, final)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches(truth, tmp_path, side):
    texts = truth.texts[2:]
    n = max(len(t.tokens) for t in texts)

    def pad(t):
        more = n - len(t)
        return torch.nn.functional.pad(t, (more, 0) if side == "left" else (0, more))

    ids, mask = torch.stack([pad(t.tokens) for t in texts]), torch.stack([pad(t.mask) for t in texts])
    real = torch.stack([pad(torch.ones_like(t.tokens)) for t in texts])
    with hsx_capture.Capture(truth.model, EVERY, final="post", to=f"spool:{tmp_path}") as cap:
        run(truth.model, ids, attention_mask=real, position_ids=(real.cumsum(1) - 1).clamp(min=0))
        cap.batch([t.id for t in texts], ids, real, mask)
    check(tmp_path, texts, "post")


def test_conventions_name_the_same_layers(truth, tmp_path):
    text = truth.texts[3]
    for convention, layers in (("post", [0, 2, 4]), ("boundary", [1, 3, 5])):
        to = tmp_path / convention
        with hsx_capture.Capture(truth.model, layers, convention=convention, to=f"spool:{to}") as cap:
            run(truth.model, text.tokens[None])
            cap.sample("x", text.tokens)
        tensors, metadata = load(to / "x.safetensors")
        assert set(tensors) == {"input_ids", "layer_0", "layer_2", "layer_4"}
        equal(tensors["layer_4"], text.states["P4"])
        assert metadata == {
            "hsx.id": "x",
            "hsx.producer": "hsx_capture",
            "hsx.layers": "P_0 P_2 P_4 (post 0,2,4; boundary 1,3,5)",
            "hsx.convention": convention,
            "hsx.dtype": "bfloat16",
            "hsx.target": metadata["hsx.target"],
            "hsx.target_layers": "5",
            "hsx.hidden_size": "64",
            "hsx.vocab_size": "512",
        }
        assert metadata["hsx.target"]


def test_nothing_changes_the_model(truth, tmp_path):
    def hooks():
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in truth.model.modules())

    text, before = truth.texts[4], hooks()
    with torch.inference_mode():
        want = truth.model(text.tokens[None]).logits
        with hsx_capture.Capture(truth.model, EVERY, final="post", to=f"spool:{tmp_path}"):
            equal(truth.model(text.tokens[None]).logits, want)
            assert hooks() == before + 7
    assert hooks() == before


def test_generated_tokens(truth, tmp_path):
    """A prefill and decode steps are one sample; the last token that was generated has no states."""
    text = truth.texts[2]
    with hsx_capture.Capture(truth.model, [1, 3], final="pre", to=f"spool:{tmp_path}") as cap:
        cap.start()
        with torch.inference_mode():
            out = truth.model.generate(text.tokens[None], max_new_tokens=6, min_new_tokens=6, do_sample=False)
        with pytest.raises(
            hsx_capture.CaptureError, match=r"layer_1 has 9 \+ 1 \+ 1 \+ 1 \+ 1 \+ 1 rows .* has 15 tok"
        ):
            cap.sample("all", out[0])
        cap.sample("x", out[0, :-1])
        run(truth.model, out[:, :-1])
        cap.sample("again", out[0, :-1])
    (steps, _), (again, _) = (load(tmp_path / f"{name}.safetensors") for name in ("x", "again"))
    for name, states in again.items():
        torch.testing.assert_close(steps[name], states, rtol=0.05, atol=0.05)
