"""Compares the ways to store 16-bit states without loss, on the states of a dataset.

    pip install numpy pyarrow zipnn && python compress_peers.py --hsx bin/hsx --work DIR DS

DS is a plain dataset. The peers code the values of its states, a column of a shard at a time: zipnn as bfloat16, zstd (levels 1
and 3) on whole values, and zstd on the halves that hsx makes of them, high ones coded and low ones raw. Each result is
compared with what went in. hsx recompresses a copy of the dataset and does all of its work: it reads, checks digests, codes,
writes and syncs. Prints one JSON object for each way: ratio (of bytes stored to bytes of states), and MB/s of states, wall and
for each second of processor time. Numbers of one call compare with each other and with nothing else.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import time

import numpy as np
import pyarrow as pa
import zipnn


def states(dataset):
    """Yield the states of each shard, a column at a time, as uint16."""
    with open(os.path.join(dataset, "manifest.json")) as f:
        manifest = json.load(f)
    for shard in manifest["shards"]:
        table = pa.ipc.open_file(pa.memory_map(os.path.join(dataset, "shards", shard["name"]))).read_all()
        for state in manifest["states"]:
            for chunk in table[state["column"]].chunks:
                yield chunk.flatten().flatten().to_numpy().view(np.uint16)


class Zstd:
    """Whole values."""

    def __init__(self, level):
        self.codec = pa.Codec("zstd", level)

    def pack(self, values):
        return [self.codec.compress(values.data, asbytes=True)]

    def unpack(self, parts, size):
        return np.frombuffer(self.codec.decompress(parts[0], size), np.uint16)


class Halves(Zstd):
    """The halves of values that were turned left by a bit: high ones coded, low ones raw."""

    def pack(self, values):
        turned = values << 1 | values >> 15
        return [self.codec.compress((turned >> 8).astype(np.uint8).data, asbytes=True), turned.astype(np.uint8).tobytes()]

    def unpack(self, parts, size):
        hi = np.frombuffer(self.codec.decompress(parts[0], size // 2), np.uint8)
        v = hi.astype(np.uint16) << 8 | np.frombuffer(parts[1], np.uint8)
        return v >> 1 | v << 15


class ZipNN:
    """What zipnn makes of bfloat16."""

    def __init__(self):
        self.codec = zipnn.ZipNN(bytearray_dtype="bfloat16", threads=os.cpu_count())

    def pack(self, values):
        return [self.codec.compress(bytearray(values.tobytes()))]  # which it writes to

    def unpack(self, parts, size):
        return np.frombuffer(self.codec.decompress(parts[0]), np.uint16)


def processor(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


class Clock:
    """Wall and processor time of what runs within it."""

    def __init__(self, who=resource.RUSAGE_SELF):
        self.wall = self.cpu = 0.0
        self.who = who

    def __enter__(self):
        self.begin = time.perf_counter(), processor(self.who)

    def __exit__(self, *_):
        self.wall += time.perf_counter() - self.begin[0]
        self.cpu += processor(self.who) - self.begin[1]


def row(way, raw, stored, pack, unpack):
    line = {"way": way, "ratio": round(stored / raw, 4)}
    for name, clock in (("pack", pack), ("unpack", unpack)):
        line[f"{name}_MBps"] = round(raw / clock.wall / 1e6, 1)
        line[f"{name}_cpu_MBps"] = round(raw / clock.cpu / 1e6, 1)
    print(json.dumps(line), flush=True)


def hsx(command, dataset, work, raw):
    copy = os.path.join(work, "compress-peers-ds")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(dataset, copy)
    clocks, after = [], []
    for more in ([], ["--plain"]):
        clocks.append(Clock(resource.RUSAGE_CHILDREN))
        with clocks[-1]:
            out = subprocess.run([command, "recompress", "--json", *more, copy], check=True, stdout=subprocess.PIPE).stdout
        after.append(json.loads(out)["after"]["bytes"])
    shutil.rmtree(copy)
    row("hsx recompress, files", raw, after[0], *clocks)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hsx", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("dataset")
    args = p.parse_args()
    ways = {"zipnn": ZipNN(), "zstd -1": Zstd(1), "zstd -3": Zstd(3), "zstd -1, halves": Halves(1)}
    for name, way in ways.items():
        raw = stored = 0
        pack, unpack = Clock(), Clock()
        for values in states(args.dataset):
            with pack:
                parts = way.pack(values)
            with unpack:
                again = way.unpack(parts, values.nbytes)
            if not np.array_equal(again, values):
                raise SystemExit(f"{name} does not give back what it was given")
            raw += values.nbytes
            stored += sum(len(part) for part in parts)
        row(name, raw, stored, pack, unpack)
    hsx(args.hsx, args.dataset, args.work, raw)


if __name__ == "__main__":
    main()
