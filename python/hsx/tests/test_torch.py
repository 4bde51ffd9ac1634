import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

import hsx
from hsx import _arena
from hsx._arena import Arena


def items_of_dump(ds, fixtures):
    for sample in ds:
        yield torch.load(fixtures / "dumps/specforge_eagle3" / sample["source"], weights_only=True)


def equal(got, want):
    assert list(got) == list(want)
    for key in want:
        assert got[key].dtype == want[key].dtype, key
        assert torch.equal(got[key], want[key]), key


def test_items_are_those_of_the_dump(eagle3, fixtures):
    ds = hsx.open(eagle3)
    data = ds.torch(layers=[0, 2, 3])
    assert len(data) == len(ds)
    for got, want in zip(data, items_of_dump(ds, fixtures), strict=True):
        equal(got, {key: value.squeeze(0) if value.ndim == 3 else value for key, value in want.items()})


@pytest.mark.parametrize(("dump", "dtype"), [("specforge_eagle3_fp16", torch.float16), ("npy_fp32", torch.float32)])
def test_dtypes(dataset, dump, dtype):
    ds = hsx.open(dataset(dump, "--layers", "0,2,3", "--final", "post"))
    item, sample = ds.torch([0, 3])[0], ds[0]
    assert item["aux_hidden_state"].dtype == item["hidden_state"].dtype == dtype
    np.testing.assert_array_equal(item["aux_hidden_state"].numpy(), np.hstack([sample["P_0"], sample["P_3"]]))


def test_conventions_name_the_same_layers(eagle3):
    ds = hsx.open(eagle3)
    for post, boundary in (([0, 2, 3], [1, 3, 4]), ([2], [3]), ([0, 3], [1, 4])):
        equal(ds.torch(post)[3], ds.torch(boundary, convention="boundary")[3])
    aux = ds.torch([0, 3])[3]["aux_hidden_state"]
    assert torch.equal(aux[:, 64:].view(torch.int16), torch.from_numpy(ds[3]["P_3"].view(np.int16).copy()))


def test_parts_that_are_left_out(eagle3):
    data = hsx.open(eagle3).torch([], final=None, loss_mask=False)
    assert list(data[0]) == ["input_ids"]
    assert list(data.collate([data[0], data[2]])) == ["input_ids", "attention_mask"]


def test_max_tokens(eagle3):
    ds = hsx.open(eagle3)
    long, short = ds.torch([0, 2])[3], ds.torch([0, 2], max_tokens=3)[3]
    equal(short, {key: value[:3] for key, value in long.items()})
    assert len(ds.torch([0, 2], max_tokens=1000)[3]["input_ids"]) == len(long["input_ids"])


REFUSED = {
    "a layer": ([0, 1], {}, r"no P_1 \(post 1, boundary 2\); it holds P_0 P_2 P_3 \(post 0,2,3; boundary 1,3,4\)"),
    "the convention": ([0, 2, 3], {"convention": "boundary"}, r"no P_-1 \(post -1, boundary 0\)"),
    "the order": ([2, 0], {}, "2,0 are not strictly increasing"),
    "a repeat": ([2, 2], {}, "2,2 are not strictly increasing"),
    "convention": ([0], {"convention": "hf"}, "convention is 'hf', want 'post' or 'boundary'"),
    "norm": ([0], {"final": "pre"}, "is after the norm and final='pre' was asked for: no norm can be undone"),
    "final": ([0], {"final": "yes"}, "final is 'yes', want 'pre', 'post' or None"),
    "tokens": ([0], {"max_tokens": 0}, "max_tokens is 0, want at least 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what, eagle3):
    layers, options, message = REFUSED[what]
    with pytest.raises(hsx.HsxError, match=message):
        hsx.open(eagle3).torch(layers, **options)


def test_refusals_of_other_datasets(dataset):
    vllm = hsx.open(dataset("vllm_connector", "--layers", "1,3,4,5", "--convention", "boundary"))
    with pytest.raises(hsx.HsxError, match="is before the norm and final='post' was asked for"):
        vllm.torch([0])
    with pytest.raises(hsx.HsxError, match="has no loss mask"):
        vllm.torch([0], final="pre")[0]
    assert "loss_mask" not in vllm.torch([0], final="pre", loss_mask=False)[0]
    with pytest.raises(hsx.HsxError, match="nobody said which layers it holds"):
        hsx.open(dataset("specforge_eagle3")).torch([0])
    with pytest.raises(hsx.HsxError, match="nobody said whether the final state"):
        hsx.open(dataset("npy_fp32", "--layers", "0,2,3")).torch([0])
    with pytest.raises(hsx.HsxError, match="has no final state"):
        hsx.open(dataset("specforge_dflash", "--layers", "1,2")).torch([1])
    with pytest.raises(hsx.HsxError, match="one position to the left"):
        hsx.open(dataset("automodel", "--layers", "0,2,3")).torch([0], final=None)


def padded(t, tokens):
    return torch.cat([t, t.new_zeros(tokens - len(t), *t.shape[1:])])


@pytest.mark.parametrize("chosen", [[3], [0], [0, 3, 2]])
def test_batches_are_those_of_specforge(eagle3, fixtures, chosen):
    ds = hsx.open(eagle3)
    data = ds.torch([0, 2, 3])
    records = list(items_of_dump(ds, fixtures))
    items = [data[i] for i in chosen]
    batch = data.collate(items)
    for got, i in zip(items, chosen, strict=True):
        equal(got, data[i])  # the items are as they were
    assert list(batch) == ["input_ids", "attention_mask", "loss_mask", "hidden_state", "target"]
    n = max(len(records[i]["input_ids"]) for i in chosen)
    for b, i in enumerate(chosen):
        want = records[i]
        mask = want["loss_mask"].clone()
        mask[-1] = 0
        equal(
            {key: value[b] for key, value in batch.items()},
            {
                "input_ids": padded(want["input_ids"], n),
                "attention_mask": padded(torch.ones_like(mask), n),
                "loss_mask": padded(mask, n),
                "hidden_state": padded(want["aux_hidden_state"][0], n),
                "target": padded(want["hidden_state"][0], n),
            },
        )


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers(eagle3, start, monkeypatch):
    monkeypatch.setattr(_arena, "_SMALL", 1)  # in forked ones, every tensor is of the memory that is used again
    ds = hsx.open(eagle3, verify="samples")
    data = ds.torch([0, 2, 3])
    want = [data.collate([data[i]]) for i in range(len(data))]  # the maps are open when the workers start
    loader = DataLoader(
        data,
        batch_size=1,
        collate_fn=data.collate,
        num_workers=2,
        multiprocessing_context=multiprocessing.get_context(start),
        persistent_workers=True,
    )
    for _ in range(2):
        for got, expected in zip(loader, want, strict=True):
            equal(got, expected)


def test_pickle(eagle3):
    ds = hsx.open(eagle3, verify="samples")
    data = ds.torch([0, 2, 3])
    _ = data[0]
    copy = pickle.loads(pickle.dumps(data))
    equal(copy[2], data[2])
    assert copy._dataset._check
    assert len(pickle.dumps(data)) < len(pickle.dumps(ds.manifest)) + 4096  # no sample travels along


def test_ranks(eagle3):
    data = hsx.open(eagle3).torch([0], final=None)
    seen = [i for rank in range(2) for i in DistributedSampler(data, num_replicas=2, rank=rank, seed=1)]
    assert set(seen) == set(range(len(data)))


def test_tensors_own_their_memory(eagle3):
    data = hsx.open(eagle3).torch([0, 2, 3])
    first, again = data[2], data[2]
    for key in first:
        first[key].fill_(1)
    equal(data[2], again)


def test_memory_is_used_again_but_never_too_early():
    arena, shape = Arena(), (1 << 10, 1 << 10)
    one = arena.empty(shape, torch.bfloat16)
    place, part = one.data_ptr(), one[5:7].fill_(3)
    array = part.view(torch.int16).numpy()
    del one
    other = arena.empty(shape, torch.bfloat16).fill_(0)
    assert other.data_ptr() != place
    del part
    assert (array == np.int16(0x4040)).all()  # a view of a view, through NumPy, still holds the memory
    del array
    assert arena.empty(shape, torch.bfloat16).data_ptr() == place
    assert arena.empty((4, 4), torch.float32).shape == (4, 4)
    huge = arena.empty((1 << 14, 1 << 10), torch.float32)
    assert huge.nbytes == 1 << 26


def test_threads_never_share_memory():
    arena = Arena()

    def work(n):
        tensors = [arena.empty((1 << 9, 1 << 9), torch.float32).fill_(n * 10 + i) for i in range(3)]
        return all((t == n * 10 + i).all() for i, t in enumerate(tensors))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))
