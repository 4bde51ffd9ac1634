"""Where states are found in models of other makes, and what is refused."""

from types import SimpleNamespace

import pytest
import torch
from conftest import Toy, equal, load
from torch import nn

import hsx_capture


def states(n=5, batch=None):
    x = torch.arange(n * 8, dtype=torch.float32).reshape(n, 8)
    return x if batch is None else x.repeat(batch, 1, 1)


def capture(model, tmp_path, layers=(1, 3), **options):
    return hsx_capture.Capture(model, layers, to=f"spool:{tmp_path}", **options)


PATHS = {
    "model.layers": "norm",
    "model.language_model.layers": "norm",
    "language_model.model.layers": "norm",
    "base_model.model.model.layers": "norm",
    "transformer.h": "ln_f",
    "transformer.blocks": "norm_f",
    "gpt_neox.layers": "final_layer_norm",
    "model.decoder.layers": "final_layer_norm",
    "backbone.layers": "norm_f",
    "transformer.encoder.layers": "final_layernorm",
    "layers": "norm",
    "h": "ln_f",
}


@pytest.mark.parametrize("path", PATHS)
def test_families(path, tmp_path):
    model, x = Toy(path, PATHS[path]), states()
    with capture(model, tmp_path, final="post") as cap:
        model(x)
        cap.sample("a", range(5))
    tensors, metadata = load(tmp_path / "a.safetensors")
    equal(tensors["layer_1"], x + 3)
    equal(tensors["layer_3"], x + 10)
    equal(tensors["final"], model.norms[0](x + 10))
    assert "loss_mask" not in tensors
    assert (metadata["hsx.target"], metadata["hsx.norm"], metadata["hsx.target_layers"]) == ("Toy", "post", "4")
    assert "hsx.vocab_size" not in metadata


@pytest.mark.parametrize("form", ["tuple", "list"])
def test_outputs_that_are_tuples(form, tmp_path):
    model, x = Toy(form=form), states(batch=1)
    with capture(model, tmp_path, layers=["embedding", 2], final="pre") as cap:
        model(x)
        cap.sample("a", range(5))
    tensors, _ = load(tmp_path / "a.safetensors")
    equal(tensors["layer_-1"], x[0])
    equal(tensors["layer_2"], x[0] + 1 + 2 + 3)
    equal(tensors["final"], x[0] + 1 + 2 + 3 + 4)


def test_layers_that_work_in_place(tmp_path):
    class InPlace(nn.Module):
        def forward(self, x):
            return x.add_(1)

    model, x = nn.Module(), torch.zeros(5, 8)
    model.layers = nn.ModuleList(InPlace() for _ in range(3))
    with capture(model, tmp_path, ["embedding", 0, 1]) as cap:
        for layer in model.layers:
            layer(x)
        cap.sample("a", range(5))
    tensors, _ = load(tmp_path / "a.safetensors")
    for k in (-1, 0, 1):
        equal(tensors[f"layer_{k}"], torch.full((5, 8), k + 1.0))


def test_a_list_of_names(tmp_path):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)

        def forward(self, x):
            return self.last(self.second(self.first(x)))

    model, x = Odd(), states()
    with capture(model, tmp_path, [1], final="pre", modules=["first", "second"], norm="last", target="odd") as cap:
        model(x)
        cap.sample("a", range(5))
    tensors, metadata = load(tmp_path / "a.safetensors")
    equal(tensors["layer_1"], model.second(model.first(x)).detach())
    equal(tensors["final"], tensors["layer_1"])
    assert metadata["hsx.target"] == "odd"
    for options, message in {
        "no names": ({}, r"no list of decoder layers has a known name: no list of modules at all; name each layer"),
        "no module": ({"modules": ["first", "third"]}, r"no module 'third'; its own are first, second, last"),
        "twice": ({"modules": ["first", "first"]}, "modules names a layer twice"),
        "no norm": ({"modules": ["first", "second"], "final": "post"}, "name it with norm="),
    }.values():
        with pytest.raises(hsx_capture.CaptureError, match=message):
            capture(model, tmp_path, [1], **options)


class Norm(nn.Module):
    """An engine's norm: it adds the residual, and writes over both."""

    def forward(self, hidden, residual=None):
        if residual is None:
            return hidden / 2
        residual.add_(hidden)
        hidden.copy_(residual / 2)
        return hidden, residual


class EngineLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Norm()

    def forward(self, positions, hidden, residual):
        if residual is None:
            hidden, residual = self.norm(hidden), hidden.clone()
        else:
            hidden, residual = self.norm(hidden, residual)
        return hidden.add_(positions[:, None]), residual


class Engine(nn.Module):
    """A model as vLLM and SGLang run it: flat, in place, with the residual beside the state."""

    def __init__(self, by_name=False):
        super().__init__()
        self.model = nn.Module()
        self.model.layers = nn.ModuleList(EngineLayer() for _ in range(3))
        self.model.norm = Norm()
        self.by_name = by_name

    def forward(self, positions, hidden):
        residual, want = None, [hidden.clone()]
        for layer in self.model.layers:
            if self.by_name:
                hidden, residual = layer(positions=positions, hidden=hidden, residual=residual)
            else:
                hidden, residual = layer(positions, hidden, residual)
            want.append(hidden + residual)
        hidden, _ = self.model.norm(hidden, residual)
        return [*want, hidden.clone()]


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("final", ["pre", "post"])
def test_residual_pairs(tmp_path, final, by_name):
    model = Engine(by_name)
    with capture(model, tmp_path, ["embedding", 0, 1, 2], final=final) as cap:
        want = model(torch.arange(6), torch.randn(6, 8, dtype=torch.bfloat16))
        cap.sample("a", range(6))
    tensors, _ = load(tmp_path / "a.safetensors")
    for k in range(-1, 3):
        equal(tensors[f"layer_{k}"], want[k + 1])
    equal(tensors["final"], want[3] if final == "pre" else want[4])


def test_states_that_are_not_whole_yet(tmp_path):
    class Fused(nn.Module):
        def forward(self, x):
            x = x + 1
            x._sglang_needs_allreduce_fusion = True
            return x, x

    model = nn.Module()
    model.layers = nn.ModuleList([Fused()])
    with (
        capture(model, tmp_path, [0]),
        pytest.raises(hsx_capture.CaptureError, match="layer_0 is not summed over the ranks yet"),
    ):
        model.layers[0](states())


def test_chunks_of_a_sample(tmp_path):
    model, x = Toy(), states(70)
    with capture(model, tmp_path) as cap:
        cap.start()
        for chunk in x.split([32, 1, 32, 5]):
            model(chunk)
        cap.sample("a", range(70), [1] * 70)
        model(x[:9])
        cap.sample("b", range(9))  # start was for the sample before
        batch = torch.randint(100, (2, 70, 8)).float()
        cap.start()
        for chunk in batch.split([32, 1, 32, 5], dim=1):
            model(chunk)
        real = (torch.arange(70) >= 33).int()
        cap.batch(["c", "d"], torch.arange(140).reshape(2, 70), torch.stack([real, 1 - real]))
    for id, want, ids in (
        ("a", x, range(70)),
        ("b", x[:9], range(9)),
        ("c", batch[0, 33:], range(33, 70)),
        ("d", batch[1, :33], range(70, 103)),
    ):
        tensors, _ = load(tmp_path / f"{id}.safetensors")
        equal(tensors["layer_3"], want + 10)
        assert tensors["input_ids"].tolist() == list(ids)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes(tmp_path, dtype):
    model, x = Toy(), torch.randn(5, 8, dtype=torch.float64)
    with capture(model, tmp_path, dtype=dtype) as cap:
        model(x)
        cap.sample("a", range(5))
    tensors, metadata = load(tmp_path / "a.safetensors")
    equal(tensors["layer_3"], (x + 1 + 2 + 3 + 4).to(dtype))
    assert metadata["hsx.dtype"] == str(dtype).removeprefix("torch.")
    with capture(model, tmp_path) as cap:
        model(x)
        with pytest.raises(hsx_capture.CaptureError, match=r"is torch.float64: pass dtype="):
            cap.sample("b", range(5))


def test_what_becomes_of_the_last_forward(tmp_path):
    """Only a whole forward is a sample: nothing is taken twice, and one that failed leaves nothing behind."""
    model, x = Toy(), states()
    with capture(model, tmp_path) as cap:
        with pytest.raises(hsx_capture.CaptureError, match="no forward has run since"):
            cap.sample("a", range(5))
        model(x)
        model(x + 1)
        cap.sample("a", range(5))
        with pytest.raises(hsx_capture.CaptureError, match="no forward has run since"):
            cap.sample("b", range(5))
        model.stack[1](x)
        with pytest.raises(hsx_capture.CaptureError, match=r"left layers out; .*\{'layer_1': 1, 'layer_3': 0\}"):
            cap.sample("b", range(5))
        model(x + 2)
        cap.sample("b", range(5))
    equal(load(tmp_path / "a.safetensors")[0]["layer_1"], x + 4)
    equal(load(tmp_path / "b.safetensors")[0]["layer_1"], x + 5)
    assert len(list(tmp_path.iterdir())) == 2
    model(x)
    with pytest.raises(hsx_capture.CaptureError, match="use it in a with statement"):
        cap.sample("c", range(5))


REFUSED = {
    "the convention": ({"layers": [1], "convention": "hf"}, "convention is 'hf', want 'post' or 'boundary'"),
    "the order": ({"layers": [2, 1]}, r"layers \[2, 1\] are not strictly increasing"),
    "a repeat": ({"layers": [1, 1]}, "not strictly increasing"),
    "an embedding after": ({"layers": [1, "embedding"]}, "not strictly increasing"),
    "beyond": ({"layers": [4]}, r"layer 4 \(post\) is P_4, but the model has P_0 to P_3"),
    "boundary beyond": ({"layers": [5], "convention": "boundary"}, r"layer 5 \(boundary\) is P_4"),
    "below": ({"layers": [-2]}, "is P_-2"),
    "the embedding": ({"layers": [-1]}, "layer -1 is the embedding: write 'embedding'"),
    "boundary embedding": ({"layers": [0], "convention": "boundary"}, "layer 0 is the embedding"),
    "no layer": ({"layers": ["first"]}, "layer 'first' is neither"),
    "nothing": ({"layers": []}, "nothing would be captured"),
    "the norm state": ({"layers": [1], "final": "yes"}, "final is 'yes', want 'post', 'pre' or None"),
    "the dtype": ({"layers": [1], "dtype": torch.int8}, "dtype is torch.int8, want"),
    "the place": ({"layers": [1], "to": "/dir"}, "to is '/dir', want 'spool:DIR'"),
    "no place": ({"layers": [1], "to": "spool:"}, "to is 'spool:', want 'spool:DIR'"),
    "the url": ({"layers": [1], "to": "http://host:port"}, "to is 'http://host:port'"),
    "no host": ({"layers": [1], "to": "http:///x"}, "want http://host:port"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_arguments(what, tmp_path):
    options, message = REFUSED[what]
    with pytest.raises(hsx_capture.CaptureError, match=message):
        hsx_capture.Capture(Toy(), **{"to": f"spool:{tmp_path}", **options})


def test_the_embedding_by_number(tmp_path):
    model, x = Toy(), states()
    for convention, layers in (("post", [-1, 0]), ("boundary", [0, 1])):
        with capture(model, tmp_path / convention, layers, convention=convention, allow_embedding=True) as cap:
            model(x)
            cap.sample("a", range(5))
        equal(load(tmp_path / convention / "a.safetensors")[0]["layer_-1"], x)


def test_refused_models(tmp_path):
    text = SimpleNamespace(num_hidden_layers=3, hidden_size=8, vocab_size=9)
    with pytest.raises(hsx_capture.CaptureError, match=r"model.\* holds 4 decoder layers, but .*layers is 3"):
        capture(Toy(config=text), tmp_path)
    with pytest.raises(hsx_capture.CaptureError, match=r"modules names 2 decoder layers, but .*layers is 3"):
        capture(Toy(config=text), tmp_path, modules=["model.layers.0", "model.layers.1"])
    two = Toy()
    two.draft = Toy("model.layers", layers=1)
    with pytest.raises(
        hsx_capture.CaptureError, match=r"several .*: model.layers \(4 modules\), draft.model.layers \(1 m"
    ):
        capture(two, tmp_path)
    with pytest.raises(
        hsx_capture.CaptureError, match=r"has a known name: tower.stages \(4 modules\); name each layer"
    ):
        capture(Toy("tower.stages"), tmp_path)
    with pytest.raises(hsx_capture.CaptureError, match=r"model has no module .* final norm \(seen: layers, end\)"):
        capture(Toy(norm="end"), tmp_path, final="post")
    both = Toy()
    both.model.final_norm = nn.LayerNorm(8)
    with pytest.raises(hsx_capture.CaptureError, match="model has norm and final_norm"):
        capture(both, tmp_path, final="post")
    wide = SimpleNamespace(text_config=SimpleNamespace(num_hidden_layers=4, hidden_size=16))
    for model, shape, message in (
        (Toy(config=wide), (5, 8), r"layer_1 has shape \[5, 8\], want \[samples, tokens, 16\]"),
        (Toy(), (1, 2, 5, 8), r"layer_1 has shape \[1, 2, 5, 8\]"),
        (Toy(form="dict"), (5, 8), r"layer_0: its module hands on \(dict\), want a tensor first"),
    ):
        with (
            capture(model, tmp_path, [0] if "layer_0" in message else [1]),
            pytest.raises(hsx_capture.CaptureError, match=message),
        ):
            model(torch.zeros(shape))


def batch(cap, **change):
    cap.batch(**{"ids": ["a", "b"], "input_ids": torch.arange(10).reshape(2, 5), **change})


SAMPLES = {
    "too few tokens": (lambda c: c.sample("a", range(4)), "layer_1 has 5 rows in a batch of 2, input_ids has 4"),
    "a batch": (lambda c: c.sample("a", range(5)), "in a batch of 2, input_ids has 5 tokens in a batch of 1"),
    "ids of a batch": (lambda c: c.sample("a", torch.zeros(2, 5, dtype=torch.int64)), "batch takes several samples"),
    "no tokens": (lambda c: c.sample("a", []), r"input_ids has shape \[0\]"),
    "floats": (lambda c: c.sample("a", [1.0]), "is torch.float32, want integers"),
    "words": (lambda c: c.sample("a", ["x"]), "input_ids: "),
    "a long mask": (lambda c: c.sample("a", range(5), [1] * 6), r"loss mask has shape \[1, 6\], input_ids \[1, 5\]"),
    "a negative mask": (lambda c: c.sample("a", range(5), [1, 1, -1, 1, 1]), "beyond 0 to 255"),
    "an empty id": (lambda c: c.sample("", range(5)), "id is '', want a string of 1 to 4096 bytes"),
    "a long id": (lambda c: c.sample("é" * 2049, range(5)), "want a string of 1 to 4096 bytes"),
    "a number": (lambda c: c.sample(7, range(5)), "id is 7, want a string"),
    "a line": (lambda c: c.sample("a\nb", range(5)), "holds a control character"),
    "no text": (lambda c: c.sample("\ud800", range(5)), "holds a control character"),
    "ids": (lambda c: batch(c, ids=["a"]), "1 ids, 1 of them different, for 2 samples"),
    "an id twice": (lambda c: batch(c, ids=["a", "a"]), "2 ids, 1 of them different"),
    "ragged": (lambda c: batch(c, input_ids=[[1, 2], [3]]), "input_ids: "),
    "a flat batch": (lambda c: batch(c, input_ids=range(10)), r"shape \[10\], want \[samples, positions\]"),
    "a short batch": (lambda c: batch(c, input_ids=torch.zeros(2, 4, dtype=torch.int64)), "layer_1 has 5 rows"),
    "a mask of causes": (lambda c: batch(c, attention_mask=torch.ones(2, 1, 5, 5)), "want integers"),
    "a mask of holes": (
        lambda c: batch(c, attention_mask=[[1, 1, 0, 1, 1], [1] * 5]),
        "'a' marks 4 positions, want one",
    ),
    "an empty mask": (lambda c: batch(c, attention_mask=[[1] * 5, [0] * 5]), "'b' marks 0 positions"),
    "the masks": (lambda c: batch(c, loss_masks=[[1] * 4] * 2), r"loss mask has shape \[2, 4\]"),
}


@pytest.mark.parametrize("what", SAMPLES)
def test_refused_samples(what, tmp_path):
    call, message = SAMPLES[what]
    model, x = Toy(), torch.randn(2, 5, 8)
    with capture(model, tmp_path) as cap:
        model(x)
        with pytest.raises(hsx_capture.CaptureError, match=message):
            call(cap)
        batch(cap)  # the states are still there for whoever corrects the call
    equal(load(tmp_path / "b.safetensors")[0]["layer_1"], x[1] + 1 + 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_masks_of_other_kinds(tmp_path):
    model = Toy()
    with capture(model, tmp_path) as cap:
        for id, mask in (("bool", torch.tensor([True, False])), ("numbers", [255, 0]), ("row", torch.ones(1, 2).int())):
            model(states(2))
            cap.sample(id, torch.tensor([[3, 4]]), mask)
    for id, want in (("bool", [1, 0]), ("numbers", [255, 0]), ("row", [1, 1])):
        tensors, _ = load(tmp_path / f"{id}.safetensors")
        equal(tensors["loss_mask"], torch.tensor(want, dtype=torch.uint8))
        assert tensors["input_ids"].tolist() == [3, 4]


def test_other_ranks_do_nothing(tmp_path, monkeypatch):
    model = Toy()

    def take(**options):
        with capture(model, tmp_path, **options) as cap:
            model(states())
            cap.start()
            model(states())
            cap.sample("a", range(5))
            cap.batch(["a"], [range(3)])
            cap.flush()
            return any(m._forward_hooks for m in model.modules())

    assert not take(rank=1)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    assert not take()
    assert not list(tmp_path.iterdir())
    with pytest.raises(hsx_capture.CaptureError, match="no forward has run"):  # rank 0 looks for its second sample
        take(rank=0)
