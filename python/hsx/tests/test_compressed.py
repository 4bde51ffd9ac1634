import random
import shutil

import numpy as np
import pytest
import torch
from conftest import ingest

import hsx

WAYS = {"plain": (), "packed": ("--compress",)}
DUMPS = {"specforge_eagle3": "0,2,3", "specforge_eagle3_fp16": "0,2,3", "npy_fp32": "0,2,3", "specforge_dflash": "1,2"}


def same(a, b):
    """Compare two samples, bit for bit."""
    assert a.keys() == b.keys()
    for key, want in b.items():
        if isinstance(want, np.ndarray):
            assert (a[key].dtype, a[key].shape, a[key].flags.writeable) == (want.dtype, want.shape, False)
            assert a[key].tobytes() == want.tobytes(), key
        else:
            assert a[key] == want


@pytest.mark.parametrize("verify", [False, "samples"])
@pytest.mark.parametrize("dump", DUMPS)
def test_a_compressed_dataset_reads_as_a_plain_one(dump, verify, dataset):
    args = ("--layers", DUMPS[dump], "--shard-size", "64KiB")
    plain = hsx.open(dataset(dump, *args), verify=verify)
    packed = hsx.open(dataset(dump, *args, "--compress"), verify=verify)
    assert len(packed) == len(plain) > 0
    assert {s["encoding"] for s in packed.manifest["shards"]} == {"split-zstd"}
    for i in random.Random(1).sample(range(len(plain)), len(plain)):
        same(packed[i], plain[i])


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """Make a plain and a compressed dataset of samples that take many blocks, one of them all zeros."""
    root = tmp_path_factory.mktemp("long")
    (root / "dumps").mkdir()
    random = torch.Generator().manual_seed(1)
    for i, tokens in enumerate((700, 1, 1500, 900, 3)):
        states = torch.randn(1, tokens, 4 * 256, generator=random).bfloat16() * (i != 3)
        if i == 0:
            states.view(torch.int16)[0, 5, :64] = torch.arange(64, dtype=torch.int16) + 0x7F81  # NaN of many kinds
        torch.save(
            {
                "input_ids": torch.arange(tokens),
                "loss_mask": torch.ones(tokens, dtype=torch.int64),
                "aux_hidden_state": states[:, :, :768].clone(),
                "hidden_state": states[:, :, 768:].clone(),
            },
            root / "dumps" / f"data_{i}.ckpt",
        )
    return [ingest(root / name, "--layers", "0,2,3", *more, root / "dumps") for name, more in WAYS.items()]


def test_blocks_that_hold_a_sample(long):
    plain, packed = (hsx.open(path, verify="samples") for path in long)
    assert len(packed) == 5
    for i in (2, 0, 4, 1, 3):
        same(packed[i], plain[i])
    item, want = (ds.torch(layers=[0, 2, 3])[2] for ds in (packed, plain))
    for key, value in want.items():
        assert torch.equal(item[key], value), key


def test_no_changed_byte_of_states_is_returned(long, tmp_path):
    plain, copy = hsx.open(long[0]), tmp_path / "ds"
    shutil.copytree(long[1], copy)
    (shard,) = (copy / "shards").iterdir()
    good = shard.read_bytes()
    found = 0
    for at in np.random.default_rng(2).integers(0, len(good), 60):
        bad = bytearray(good)
        bad[at] ^= 0x10
        shard.write_bytes(bad)
        try:
            packed = hsx.open(copy, verify="samples")
            for i in range(len(plain)):
                same(packed[i], plain[i])
        except hsx.CorruptError:
            found += 1
    assert found > 50  # a byte of padding is nobody's
