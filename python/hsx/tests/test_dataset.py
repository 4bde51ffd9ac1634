import hashlib
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from conftest import COMMAND, ingest

import hsx
from hsx import _dataset

DTYPES = {"bf16": np.uint16, "fp16": np.float16, "fp32": np.float32}

DUMPS = {
    "specforge_eagle3": ("0,2,3", "post", "post"),
    "specforge_eagle3_fp16": ("0,2,3", "post", "post"),
    "specforge_dflash": ("1,2", "post", None),
    "speculators": ("1,3,4,5", "boundary", "pre"),
    "vllm_connector": ("1,3,4,5", "boundary", "pre"),
    "modelopt_vllm": ("0,2,3", "post", "pre"),
    "npy_fp32": ("0,2,3", "post", "unknown"),
}


@pytest.mark.parametrize("dump", DUMPS)
def test_every_value_is_that_of_the_dump(dump, dataset, index, fixtures):
    layers, convention, norm = DUMPS[dump]
    ds = hsx.open(dataset(dump, "--layers", layers, "--convention", convention), verify="samples")
    entry = index[dump]
    names = {f"P_{name[1:]}": name for name in entry["aux_layers"]}
    if entry["final"]:
        names["final"] = entry["final"]["layer"]
    assert ds.layers == [int(name[2:]) for name in names if name != "final"]
    assert (ds.final_norm, ds.hidden_size, len(ds)) == (norm, 64, len(entry["samples"]))
    samples = {s["source"]: s for s in ds}
    for want in entry["samples"]:
        got = samples[want["file"]]
        assert list(got) == ["id", "source", "input_ids", "loss_mask", *names]
        assert (got["loss_mask"] is None) == (entry["loss_mask"] == "absent")
        for name, layer in names.items():
            state = got[name]
            assert state.shape == (want["rows"], 64)
            assert hashlib.sha256(state.tobytes()).hexdigest() == want["sha256"][layer], (want["id"], name)
            known = fixtures / "expected" / want["id"] / f"{layer}.{entry['dtype']}.npy"
            if known.exists():  # in the full fixtures
                np.testing.assert_array_equal(state.view(DTYPES[entry["dtype"]]), np.load(known)[: want["rows"]])


def test_ids_and_masks_are_those_of_the_dump(eagle3, fixtures):
    for sample in hsx.open(eagle3):
        want = torch.load(fixtures / "dumps/specforge_eagle3" / sample["source"], weights_only=True)
        assert (sample["input_ids"].dtype, sample["loss_mask"].dtype) == (np.int32, np.uint8)
        np.testing.assert_array_equal(sample["input_ids"], want["input_ids"].numpy())
        np.testing.assert_array_equal(sample["loss_mask"], want["loss_mask"].numpy())


def test_arrays_are_read_only_views_of_the_file(eagle3):
    ds = hsx.open(eagle3)
    for key in ("input_ids", "loss_mask", "P_0", "final"):
        one, other = ds[1][key], ds[1][key]
        assert one.__array_interface__["data"] == other.__array_interface__["data"]
        assert not one.flags.writeable
        assert one.flags.c_contiguous
    kept = ds[1]["P_2"]
    want = kept.tobytes()
    del ds
    assert kept.tobytes() == want  # the array keeps its map


def test_bfloat16_without_ml_dtypes(eagle3, monkeypatch):
    assert hsx.open(eagle3)[0]["P_0"].dtype.name == "bfloat16"
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    _dataset._bfloat16.cache_clear()
    assert hsx.open(eagle3)[0]["P_0"].dtype == np.uint16
    _dataset._bfloat16.cache_clear()


def test_layers_that_nobody_named(dataset):
    ds = hsx.open(dataset("specforge_eagle3"))
    assert ds.layers == []
    assert list(ds[0])[4:] == ["block_0", "block_1", "block_2", "final"]


def test_is_a_sequence(eagle3):
    ds = hsx.open(eagle3)
    ids = [s["id"] for s in ds]
    n = len(ids)
    assert n == len(ds) == len(set(ids))
    assert [ds[np.int64(i)]["id"] for i in range(-n, n)] == ids + ids
    assert [s["id"] for s in ds[1:-1]] == ids[1:-1]
    assert [s["id"] for s in ds[::-2]] == ids[::-2]
    for bad in (n, -n - 1):
        with pytest.raises(IndexError, match=f"of {n}"):
            ds[bad]
    with pytest.raises(TypeError):
        ds["0"]
    assert repr(ds) == f"<hsx.Dataset {str(eagle3)!r}: {n} samples of P_0 P_2 P_3 final [T, 64]>"
    assert ds.manifest["producer"] == "specforge-eagle3"


def test_goes_on_seeing_what_it_was_opened_with(tmp_path, fixtures):
    dumps, new = tmp_path / "dumps", tmp_path / "dumps/rows_0-2000/data_2.ckpt"
    shutil.copytree(fixtures / "dumps/specforge_eagle3", dumps)
    later = new.rename(tmp_path / "later")
    command = (tmp_path / "ds", "--layers", "0,2,3", dumps)
    before = hsx.open(ingest(*command))
    later.rename(new)
    after = hsx.open(ingest(*command))
    assert len(after) == len(before) + 1 == len(pickle.loads(pickle.dumps(before))) + 1
    assert after[-1]["source"] == "rows_0-2000/data_2.ckpt"
    assert [s["id"] for s in before] == [s["id"] for s in after[:-1]]


def test_a_shard_that_was_replaced_is_no_damage(tmp_path, fixtures):
    """The samples are there, in shards of other names: those that are mapped go on being read."""
    out = ingest(tmp_path / "ds", "--layers", "0,2,3", "--shard-size", "8KiB", fixtures / "dumps/specforge_eagle3")
    ds = hsx.open(out)
    first = ds[0]["id"]
    subprocess.run([COMMAND, "recompress", "--plain", out], check=True, stdout=subprocess.PIPE)
    assert ds[0]["id"] == first
    with pytest.raises(hsx.HsxError, match=r"^shards/00000\d\.arrow was replaced since .*: open it again$") as e:
        list(ds)
    assert not isinstance(e.value, hsx.CorruptError)
    assert len(list(hsx.open(out))) == len(ds)


def test_reads_only_what_is_listed(eagle3, tmp_path):
    copy = shutil.copytree(eagle3, tmp_path / "ds")
    (copy / "shards/999999.arrow").write_bytes(b"not a shard")
    (copy / "shards/000003.arrow.tmp").write_bytes(b"")
    assert [s["id"] for s in hsx.open(copy, verify="files")] == [s["id"] for s in hsx.open(eagle3)]


def test_few_shards_are_open_at_a_time(eagle3, monkeypatch):
    monkeypatch.setattr(_dataset, "_MOST_OPEN", 1)
    ds = hsx.open(eagle3)
    assert len(ds.manifest["shards"]) > 2
    kept = list(ds)
    assert ds._shard.cache_info().currsize == 1
    for a, b in zip(kept, hsx.open(eagle3), strict=True):
        assert a["final"].tobytes() == b["final"].tobytes()


def test_threads_share_it(eagle3):
    ds = hsx.open(eagle3, verify="samples")
    want = [s["P_3"].tobytes() for s in hsx.open(eagle3)]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: ds[i % len(ds)]["P_3"].tobytes(), range(400)))
    assert got == [want[i % len(ds)] for i in range(400)]
