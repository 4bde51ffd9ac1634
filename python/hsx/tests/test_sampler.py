import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

import hsx
from hsx import ShardSampler

FIRST = [0, 10, 13, 13 + 40, 60, 101]  # shards of 10, 3, 40, 7 and 41 samples


def sampler(tmp_path, **options):
    paths = [tmp_path / f"{k}" for k in range(len(FIRST) - 1)]
    return ShardSampler(FIRST, paths, **{"seed": 0, "rank": 0, "world": 1, "buffer": 1, **options})


def shard_of(i):
    return int(np.searchsorted(FIRST, i, side="right")) - 1


@pytest.mark.parametrize("world", [1, 2, 3, 7, 101, 200])
def test_ranks_share_the_samples(tmp_path, world):
    ranks = [list(sampler(tmp_path, rank=r, world=world)) for r in range(world)]
    assert {len(r) for r in ranks} == {101 // world} == {len(sampler(tmp_path, world=world))}
    seen = [i for r in ranks for i in r]
    assert len(set(seen)) == len(seen) == 101 - 101 % world


def test_reads_shard_after_shard(tmp_path):
    shards = [shard_of(i) for i in sampler(tmp_path)]
    assert len(list(itertools.groupby(shards))) == 5
    pooled = [shard_of(i) for i in sampler(tmp_path, buffer=2)]
    assert len(list(itertools.groupby(pooled))) > 10
    seen = list(dict.fromkeys(pooled))
    first = sum(FIRST[k + 1] - FIRST[k] for k in seen[:2])
    assert set(pooled[:first]) == set(seen[:2])
    assert set(pooled[first:]) == set(seen[2:])


def test_order_follows_from_seed_and_epoch(tmp_path):
    one = sampler(tmp_path, seed=1)
    first = list(one)
    assert list(one) == first == list(sampler(tmp_path, seed=1))
    assert first != list(sampler(tmp_path, seed=2))
    one.set_epoch(1)
    second = list(one)
    assert second != first
    assert [shard_of(i) for i in second] != [shard_of(i) for i in first]
    assert sorted(second) == sorted(first) == list(range(101))
    assert all(isinstance(i, int) for i in first)


def test_what_is_left_over_changes(tmp_path):
    left = set()
    for epoch in range(10):
        missing = set(range(101))
        for rank in range(2):
            one = sampler(tmp_path, rank=rank, world=2)
            one.set_epoch(epoch)
            missing -= set(one)
        left |= missing
    assert len(left) > 1


@pytest.mark.parametrize("bad", [{"rank": 2, "world": 2}, {"rank": -1}, {"world": 0}, {"buffer": 0}])
def test_refusals(tmp_path, bad):
    with pytest.raises(hsx.HsxError, match=r"rank is .* want 0 to|buffer is 0 shards, want at least 1"):
        sampler(tmp_path, **bad)


def test_of_a_dataset(eagle3):
    ds = hsx.open(eagle3)
    order = ds.sampler(seed=3)
    want = list(order)
    assert [s["id"] for s in ds.iter_shards(order)] == [ds[i]["id"] for i in want]
    assert {s["id"] for s in ds.iter_shards()} == {s["id"] for s in ds}
    data = ds.torch([0, 2, 3])
    batches = list(DataLoader(data, batch_size=1, sampler=order, collate_fn=data.collate))
    assert [b["input_ids"][0].tolist() for b in batches] == [ds[i]["input_ids"].tolist() for i in want]


def test_reading_ahead_ends_with_the_iteration():
    before = set(threading.enumerate())
    it = iter(ShardSampler([0, 3], [Path("/dev/zero")], seed=0, rank=0, world=1, buffer=1))  # never read to its end
    next(it)
    (reader,) = set(threading.enumerate()) - before
    it.close()
    reader.join(10)
    assert not reader.is_alive()


def test_a_file_that_cannot_be_read_ahead_is_left_to_its_reader(tmp_path):
    assert sorted(sampler(tmp_path)) == list(range(101))  # there are no files
