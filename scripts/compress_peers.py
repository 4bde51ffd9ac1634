"""Times hsx ingest --compress against zipnn and zstd on the states of the same dumps, in turn.

    python compress_peers.py --hsx bin/hsx --dumps DIR --work DIR --rounds 3 [--lines FILE]

zipnn and zstd (level 1, of whole values) compress each tensor of states in memory, with as many threads as there are
cores; hsx reads the dumps and writes a dataset, durably. The order is turned round from one round to the next, and the
table has medians. Rates are of the bytes before. FILE gets the same as lines of Go benchmarks.
"""
import argparse
import glob
import os
import shutil
import statistics
import subprocess
import time

import torch
import zipnn
import zstandard


def states(dumps):
    """The states of all dumps, one tensor after the other."""
    for path in sorted(glob.glob(os.path.join(dumps, "**", "*.ckpt"), recursive=True)):
        d = torch.load(path, weights_only=True, mmap=True)
        yield d["aux_hidden_state"]
        yield d["hidden_state"]


def in_memory(dumps, compress):
    """Seconds, and bytes before and after."""
    took = before = after = 0
    for t in states(dumps):
        t = t.clone()  # reading it from the file is not compression
        start = time.monotonic()
        after += len(compress(t))
        took += time.monotonic() - start
        before += t.nbytes
    return took, before, after


def with_zipnn(t):
    return zipnn.ZipNN(input_format="torch", threads=os.cpu_count()).compress(t)


def with_zstd(t):
    return zstandard.ZstdCompressor(level=1, threads=os.cpu_count()).compress(t.view(torch.uint8).numpy())


def with_hsx(a, *flags):
    ds = os.path.join(a.work, "compressed")
    shutil.rmtree(ds, ignore_errors=True)
    start = time.monotonic()
    subprocess.run([a.hsx, "ingest", *flags, "--out", ds, "--layers", "2,30,58", a.dumps], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took = time.monotonic() - start
    after = sum(os.path.getsize(f) for f in glob.glob(os.path.join(ds, "shards", "*")))
    shutil.rmtree(ds)
    return took, sum(t.nbytes for t in states(a.dumps)), after


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--hsx", "--dumps", "--work"):
        p.add_argument(flag, required=True, type=os.path.abspath)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--lines", type=os.path.abspath)
    a = p.parse_args()
    ways = {
        "zipnn": lambda: in_memory(a.dumps, with_zipnn),
        "zstd": lambda: in_memory(a.dumps, with_zstd),
        "hsx_ingest_--compress": lambda: with_hsx(a, "--compress"),
        "hsx_ingest": lambda: with_hsx(a),
    }
    runs = {name: [] for name in ways}
    for turn in range(a.rounds):
        for name in reversed(ways) if turn % 2 else ways:
            runs[name].append(ways[name]())
    lines = []
    print(f"{'':24} {'of the bytes':>12} {'GB/s':>7}")
    for name, results in runs.items():
        share = statistics.median(after / before for _, before, after in results)
        rate = statistics.median(before / 1e9 / took for took, before, _ in results)
        print(f"{name.replace('_', ' '):24} {share:12.3f} {rate:7.2f}")
        lines.append(f"BenchmarkCompression/{name} {a.rounds} {share:.4f} of-bytes {rate:.4f} GB/s\n")
    if a.lines:
        with open(a.lines, "w") as f:
            f.writelines(lines)


if __name__ == "__main__":
    main()
