import json
import pickle
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import ingest
from fsspec.implementations.memory import MemoryFileSystem
from test_damage import sealed
from torch.utils.data import DataLoader

import hsx
from hsx import _remote

WAYS = {"plain": (), "packed": ("--compress",)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a dataset of many shards, plain and compressed."""
    root = tmp_path_factory.mktemp("remote")
    (root / "dumps").mkdir()
    for i in range(24):
        generator, tokens = torch.Generator().manual_seed(i), 60 + 37 * i % 100
        states = torch.randn(1, tokens, 4 * 64, generator=generator).bfloat16()
        ids = torch.arange(tokens) + i
        aux, last = states[:, :, :192].clone(), states[:, :, 192:].clone()
        dump = {"input_ids": ids, "loss_mask": ids % 2, "aux_hidden_state": aux, "hidden_state": last}
        torch.save(dump, root / "dumps" / f"data_{i:02d}.ckpt")
    args = ("--layers", "0,2,3", "--shard-size", "256KiB", root / "dumps")
    return {way: ingest(root / way, *more, *args) for way, more in WAYS.items()}


@pytest.fixture(params=WAYS)
def both(request, made, monkeypatch):
    """A dataset in a directory, and the same in fsspec's own store, fetched in small pieces."""
    monkeypatch.setattr(_remote, "_PIECE", 512)
    monkeypatch.setattr(_remote, "_REQUEST", 2048)
    local = made[request.param]
    fs = MemoryFileSystem()
    fs.put(str(local), "/bucket/ds", recursive=True)
    yield local, "memory://bucket/ds"
    fs.rm("/bucket", recursive=True)


@pytest.fixture
def fetched(monkeypatch):
    """Count the bytes that are fetched of shards."""
    count = [0]
    fetch = _remote.RemotePath.fetch

    def counting(self, ranges):
        count[0] += sum(end - start for start, end in ranges)
        return fetch(self, ranges)

    monkeypatch.setattr(_remote.RemotePath, "fetch", counting)
    return count


def same(a, b):
    assert a.keys() == b.keys()
    for key, want in b.items():
        if isinstance(want, np.ndarray):
            assert (a[key].dtype, a[key].shape, a[key].tobytes()) == (want.dtype, want.shape, want.tobytes()), key
        else:
            assert a[key] == want


@pytest.mark.parametrize("verify", [False, "manifest", "files", "samples"])
def test_a_dataset_in_a_store_reads_as_one_in_a_directory(both, verify):
    local, url = both
    want, got = hsx.open(local), hsx.open(url, verify=verify)
    assert len(got) == len(want) == 24
    assert got.manifest == want.manifest
    for i in random.Random(1).sample(range(len(want)), len(want)):
        same(got[i], want[i])
    assert url in repr(got)


def test_only_what_is_used_is_fetched(both, fetched):
    local, url = both
    total = sum(s["bytes"] for s in hsx.open(local).manifest["shards"])
    ds = hsx.open(url)
    assert fetched[0] == 0
    ds[0]
    one = fetched[0]
    assert 0 < one < total / 4
    ds[0]
    assert fetched[0] == one
    for sample in ds:
        assert len(sample["input_ids"])
    assert fetched[0] <= total + 2048


def test_threads_and_copies(both):
    local, url = both
    want, ds = hsx.open(local), hsx.open(url, verify="samples")
    with ThreadPoolExecutor(8) as pool:
        for got, i in zip(pool.map(ds.__getitem__, range(len(ds))), range(len(ds)), strict=True):
            same(got, want[i])
    same(pickle.loads(pickle.dumps(ds))[3], want[3])


def test_a_sampler_fetches_ahead(both, fetched):
    local, url = both
    want, ds = hsx.open(local), hsx.open(url)
    sampler = ds.sampler(seed=1)
    assert list(sampler) == list(want.sampler(seed=1))
    for thread in threading.enumerate():
        if thread.daemon and thread is not threading.main_thread():
            thread.join(10)
    there = fetched[0]
    for i, sample in zip(sampler, ds.iter_shards(sampler), strict=True):
        same(sample, want[i])
    assert there > 0


def test_it_trains(both):
    local, url = both
    batches = [
        next(iter(DataLoader(d, batch_size=2, collate_fn=d.collate)))
        for d in (hsx.open(p).torch(layers=[0, 2, 3]) for p in (local, url))
    ]
    for key, value in batches[0].items():
        assert value.equal(batches[1][key])


def test_damage_in_a_store(both):
    local, url = both
    want = hsx.open(local)
    fs = MemoryFileSystem()
    name = "/bucket/ds/shards/" + hsx.open(url).manifest["shards"][0]["name"]
    whole = fs.cat_file(name)
    seen = 0
    for at in range(0, len(whole), max(len(whole) // 60, 1)):
        bad = bytearray(whole)
        bad[at] ^= 0x41
        fs.pipe_file(name, bytes(bad))
        found = None
        try:
            for i in range(want.manifest["shards"][0]["rows"]):
                same(hsx.open(url, verify="samples")[i], want[i])  # a byte of padding or of the footer changes nothing
        except hsx.CorruptError as e:
            found = str(e)
        seen += found is not None
        assert found is None or found.startswith("shards/")
    assert seen > 40
    fs.pipe_file(name, whole[:-1])
    with pytest.raises(hsx.CorruptError, match=r"bytes, the manifest calls for"):
        hsx.open(url)[0]
    fs.rm(name)
    with pytest.raises(hsx.CorruptError, match=r"^shards/"):
        hsx.open(url)[0]
    with pytest.raises(hsx.HsxError, match="it is no dataset"):
        hsx.open("memory://bucket/elsewhere")


def test_a_store_that_fails_is_no_damage(both, monkeypatch):
    _, url = both

    def fail(*_, **__):
        raise ConnectionResetError("cut")

    monkeypatch.setattr(MemoryFileSystem, "cat_ranges", fail)
    for verify in (False, "samples"):
        with pytest.raises(hsx.HsxError, match=r"^read memory://bucket/ds/shards/.*: cut$") as e:
            hsx.open(url, verify=verify)[0]
        assert e.type is hsx.HsxError


def test_lines_in_parts(both):
    """A writer to a store cannot append: the lines of inputs.jsonl lie in several objects."""
    local, url = both
    fs, lines, at = MemoryFileSystem(), (local / "inputs.jsonl").read_bytes(), 100
    names = ["inputs-0123456789abcdef.jsonl", "inputs-fedcba9876543210.jsonl"]
    for name, part in zip(names, (lines[:at], lines[at:]), strict=True):
        fs.pipe_file(f"/bucket/ds/{name}", part)
    fs.rm("/bucket/ds/inputs.jsonl")

    def list_parts(first):
        document = json.loads((local / "manifest.json").read_text())
        sizes = (at, len(lines) - at)
        document["inputs"]["parts"] = [{"name": n, "bytes": b} for n, b in zip((first, names[1]), sizes, strict=True)]
        del document["xxh3"]
        fs.pipe_file("/bucket/ds/manifest.json", sealed(document))

    list_parts(names[0])
    assert len(hsx.open(url, verify="files")) == 24
    fs.pipe_file(f"/bucket/ds/{names[1]}", lines[at:][::-1])
    with pytest.raises(hsx.CorruptError, match=f"{names[1]}: has XXH3"):
        hsx.open(url, verify="files")
    fs.rm(f"/bucket/ds/{names[0]}")
    with pytest.raises(hsx.CorruptError, match=f"{names[0]}: is missing"):
        hsx.open(url, verify="files")
    list_parts("../" + names[0])
    with pytest.raises(hsx.CorruptError, match=r"manifest\.json: "):
        hsx.open(url)


def test_names(eagle3):
    assert len(hsx.open(f"file://{eagle3}")) == len(hsx.open(eagle3))
    with pytest.raises(hsx.HsxError, match="takes no storage_options"):
        hsx.open(eagle3, storage_options={"anon": True})
