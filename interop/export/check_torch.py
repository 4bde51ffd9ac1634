"""Reads torch files that hsx wrote with torch itself.

    python check_torch.py DIR [--twins DIR]

Every .ckpt and .pt below DIR is loaded in each way that a trainer may choose: weights_only, mapped,
mapped with the offsets that torch works out without reading the archive, and without weights_only. All
must give the same values bit for bit, mapped storages must begin at multiples of 64, and the checksums
must be right. Then torch saves what it read under the same name: the bytes must be those of hsx, but for
the serialization id, a member that only torch writes. With --twins, the file of the same path that ends in
.safetensors there must hold the same tensors.
"""
import argparse
import os
import pathlib
import sys
import tempfile
import zipfile

os.environ["TORCH_SERIALIZATION_DEBUG"] = "1"  # torch compares the offsets it works out with those it finds

import torch
from safetensors.torch import load_file
from torch.utils.serialization import config

WAYS = {
    "weights_only": {"weights_only": True},
    "mapped": {"weights_only": True, "mmap": True},
    "mapped by offsets": {"weights_only": True, "mmap": True},
    "trusting": {"weights_only": False},
}


class Bad(Exception):
    """What was read differs from what was written."""


def need(ok, message):
    if not ok:
        raise Bad(message)


def load(path, way):
    config.load.calculate_storage_offsets = way == "mapped by offsets"
    return torch.load(path, map_location="cpu", **WAYS[way])


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list)):
        for v in value.values() if isinstance(value, dict) else value:
            yield from tensors(v)


def same(a, b):
    """Whether two values are equal in type, order and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)  # so that NaN is NaN, and -0.0 is not 0.0


def bits(t):
    return t.contiguous().reshape(-1).view(torch.uint8)


def without_id(data):
    """A torch archive without its last member, and without the end records, which count it."""
    local, entry, end = data.rfind(b"PK\x03\x04"), data.rfind(b"PK\x01\x02"), data.rfind(b"PK\x06\x06")
    need(b"/.data/serialization_id" in data[entry:end], "torch ends an archive with another member than its serialization id")
    directory = data.find(b"PK\x01\x02", local)
    return data[:local] + data[directory:entry]


def check(path, twin):
    with zipfile.ZipFile(path) as z:
        need(z.testzip() is None, f"member {z.testzip()} has a wrong checksum")
    read = {way: load(path, way) for way in WAYS}
    value = read["weights_only"]
    for way, other in read.items():
        need(same(value, other), f"{way} gives other values than weights_only")
    for way in ("mapped", "mapped by offsets"):
        for t in tensors(read[way]):
            need(t.is_contiguous(), f"{way}: a tensor of shape {tuple(t.shape)} is not contiguous")
            need(t.numel() == 0 or t.data_ptr() % 64 == 0, f"{way}: a tensor of shape {tuple(t.shape)} is not at a multiple of 64")
    with tempfile.TemporaryDirectory() as work:
        again = pathlib.Path(work, path.name)
        torch.save(value, again)
        need(path.read_bytes().startswith(without_id(again.read_bytes())), f"torch {torch.__version__} saves the same values in other bytes")
    if twin:
        known = load_file(twin)
        mine = {k: v for k, v in value.items() if isinstance(v, torch.Tensor)}
        need(mine.keys() == known.keys(), f"tensors are {sorted(mine)}, those of {twin} {sorted(known)}")
        for k in known:
            need(same(mine[k], known[k]), f"tensor {k} differs from that of {twin}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--twins", type=pathlib.Path)
    args = parser.parse_args()
    paths = sorted(p for p in args.dir.rglob("*") if p.suffix in (".ckpt", ".pt"))
    if not paths:
        print(f"{args.dir}: no .ckpt or .pt file")
        return 1
    for path in paths:
        twin = args.twins and args.twins / path.relative_to(args.dir).with_suffix(".safetensors")
        try:
            check(path, twin)
        except Exception as e:  # torch has many ways to say no
            print(f"{path}: {type(e).__name__}: {e}")
            return 1
    print(f"{args.dir}: {len(paths)} files: equal through {', '.join(WAYS)}, and byte for byte as torch {torch.__version__} saves them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
