"""Holds the cost model of docs/cluster.md against runs of 1, 2 and 4 parts on this machine, and predicts larger ones.

    python scale.py --hsx bin/hsx --work build/scale --gib 1 --rounds 3

What the model needs is measured in each round, by other means than the runs that it predicts: half of the dumps
ingested alone, two copies at once, commits and merges of tiny samples. Times of one call compare with each other
only. The best of the rounds counts on both sides, since other work on the machine only adds.
"""

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

WIDTH, LAYERS, TOKENS = 7168, (2, 30, 58), 512  # and the final: 57,344 bytes a token in bf16, 29 MB a dump
SHARD = 256 << 20  # so that a run of a GiB has several
ENTRY = 1250  # bytes of a manifest for a shard of four states
PARTS = (1, 2, 4)
TINY = (100, 400)  # samples of a token, each in a shard of its own


def dump(path, sample, tokens, width, block):
    """Writes a sample as hsx export --to safetensors does; block is the bytes of a state and more."""
    size, at, header = tokens * width * 2, 0, {"__metadata__": {"hsx.id": sample, "hsx.norm": "post"}}
    for name in [*(f"layer_{k}" for k in LAYERS), "final"]:
        header[name] = {"dtype": "BF16", "shape": [tokens, width], "data_offsets": [at, at + size]}
        at += size
    header["input_ids"] = {"dtype": "I64", "shape": [tokens], "data_offsets": [at, at + 8 * tokens]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _ in range(len(LAYERS) + 1):
            f.write(block[:size])
        f.write(struct.pack(f"<{tokens}q", *range(tokens)))


def dumps(directory, n, tokens, width):
    if not directory.exists():
        part = directory.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        block = bytearray(os.urandom(tokens * width * 2))
        block[1::2] = b"\x3f" * (len(block) // 2)  # from 0.5 to 2
        for i in range(n):
            dump(part / f"data_{i}.safetensors", f"sample-{i}", tokens, width, block)
        part.rename(directory)  # whole, or not there
    return sorted(directory.iterdir())


class Run:
    """Commands that run at once: the wall time until the last ends, and the CPU time of all."""

    def __init__(self, *commands):
        os.sync()
        start = time.monotonic()
        children = [
            subprocess.Popen([str(a) for a in c], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for c in commands
        ]
        self.cpu = 0.0
        for child, command in zip(children, commands, strict=True):
            talk = child.stderr.read()
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.cpu += usage.ru_utime + usage.ru_stime
            if child.returncode:
                sys.exit(f"scale: {command}: exit {child.returncode}\n{talk.decode()}")
        self.wall = time.monotonic() - start


def ingest(hsx, out, *args, shard=SHARD):
    return [hsx, "ingest", "--out", out, "--layers", ",".join(map(str, LAYERS)), "--shard-size", shard, *args]


def merge(hsx, out, parts):
    return Run([hsx, "merge", "--out", out, *parts]).wall


def calibrate(hsx, work, files, tiny):
    """Seconds of what tells the rates and costs of this machine, by name."""
    t = {}
    run = Run(ingest(hsx, work / "alone", *files[: len(files) // 2]))
    t["alone"], t["cpu"] = run.wall, run.cpu
    # What is not on the disk is not copied. sync of all would wait for what others wrote.
    copy = 'mkdir "$1"; to=$1; shift; cp "$@" "$to" && sync "$to"/*'
    halves = files[::2], files[1::2]
    t["copies"] = Run(*(["sh", "-c", copy, "sh", work / f"copy-{i}", *half] for i, half in enumerate(halves))).wall
    for n, dumps in tiny.items():
        one, many = work / f"one-{n}", work / f"many-{n}"
        t[f"one-{n}"], t[f"many-{n}"] = Run(ingest(hsx, one, dumps)).wall, Run(ingest(hsx, many, dumps, shard=1)).wall
    t["merge-one"], t["merge-many"] = merge(hsx, work / "merged-one", [one]), merge(hsx, work / "merged-many", [many])
    return t


def model(t, files):
    """The figures of the model, from the seconds that calibrate took."""
    size, alone = (sum(f.stat().st_size for f in some) for some in (files, files[: len(files) // 2]))
    few, many = TINY
    each = {n: (t[f"many-{n}"] - t[f"one-{n}"]) / n for n in TINY}  # a commit of so many, on average
    entry = max(0, 2 * (each[many] - each[few]) / (many - few))
    return {
        "rate": alone / t["alone"],
        "cpu": t["cpu"] / alone,
        "copy": size / t["copies"],
        "commit": max(0, each[few] - few / 2 * entry),
        "entry": entry,
        "start": t["merge-one"],
        "link": max(0, t["merge-many"] - t["merge-one"]) / many,
        "list": 0,  # so few names are no work
        "shard": SHARD,
    }


def measure(hsx, work, dumps, parts):
    """Wall times of an ingest in so many parts at once, and of their merge."""
    outs = [work / f"{i}-of-{parts}" for i in range(1, parts + 1)]
    whole = work / f"merged-{parts}"
    run = Run(*(ingest(hsx, out, "--partition", f"{i}/{parts}", dumps) for i, out in enumerate(outs, 1)))
    got = run.wall, merge(hsx, whole, outs)
    for out in [*outs, whole]:
        shutil.rmtree(out)
    return got


def predict(m, size, parts, cores=0):
    """Seconds of an ingest and of its merge, by docs/cluster.md. Without cores each part has a node of its own."""
    ingest = max(size / (parts * m["rate"]), size / m["copy"], size * m["cpu"] / cores if cores else 0)
    commits = -(-size // (parts * m["shard"]))
    commit = commits * m["commit"] + commits**2 / 2 * m["entry"]
    return m["start"] + parts * m["list"] + ingest + commit, m["start"] + parts * commits * m["link"]


def compare(a):
    work = Path(a.work)
    n = max(16, round(a.gib * 2**30 / (TOKENS * WIDTH * 2 * (len(LAYERS) + 1))))
    files = dumps(work / f"dumps-{n}", n, TOKENS, WIDTH)
    tiny = {k: work / f"tiny-{k}" for k in TINY}
    for k, directory in tiny.items():
        dumps(directory, k, 1, 8)
    size, cores = sum(f.stat().st_size for f in files), len(os.sched_getaffinity(0))
    rounds, runs = [], []
    for _ in range(a.rounds):
        scratch = work / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        rounds.append(calibrate(a.hsx, scratch, files, tiny))
        runs.append([measure(a.hsx, scratch, files[0].parent, parts) for parts in PARTS])
    shutil.rmtree(scratch)
    m = model({name: min(t[name] for t in rounds) for name in rounds[0]}, files)

    print(f"{n} dumps, {size / 1e9:.2f} GB, {cores} cores, the best of {a.rounds} rounds\n")
    print(f"one part alone  {m['rate'] / 1e9:.2f} GB/s, {m['cpu'] * 1e9:.2f} s of CPU a GB")
    print(f"two copies      {m['copy'] / 1e9:.2f} GB/s together")
    print(f"a commit        {m['commit'] * 1e3:.1f} ms, and {m['entry'] * 1e3:.3f} ms a shard that is there")
    print(f"a merge         {m['start'] * 1e3:.0f} ms, and {m['link'] * 1e3:.2f} ms a shard\n")
    print(
        "| parts | predicted s | measured s | measured / predicted | all rounds s | merge: predicted s | measured s |"
    )
    print("|---|---|---|---|---|---|---|")
    for i, parts in enumerate(PARTS):
        want = predict(m, size, parts, cores)
        walls, merges = zip(*(r[i] for r in runs), strict=True)
        print(
            f"| {parts} | {want[0]:.2f} | {min(walls):.2f} | {min(walls) / want[0]:.2f} "
            f"| {min(walls):.2f} to {max(walls):.2f} | {want[1]:.2f} | {min(merges):.2f} |"
        )


def extrapolate(a):
    """What the model says of clusters, with rates that somebody names."""
    size, shard = a.bytes, 1 << 30
    what = f"{size / 1e12:.1f} TB in {a.inputs:.0f} inputs"
    print(f"{what}; {a.names:.0f} names a second; a node alone {a.node / 1e9:.1f} GB/s;")
    costs = f"{a.commit * 1e3:.0f} ms and {a.entry * 1e3:.2f} ms a shard that is there"
    print(f"a commit {costs}; a merge {a.link * 1e3:.0f} ms a shard\n")
    storages = [f"storage {c / 1e9:.0f} GB/s" for c in a.copy]
    print(f"| nodes | a part | its shards | its manifest | {' | '.join(storages)} | merge |")
    print("|---|---|---|---|" + "---|" * (len(a.copy) + 1))
    for nodes in (1, *a.nodes):
        shards = -(-size // (nodes * shard))
        m = {"rate": a.node, "commit": a.commit, "entry": a.entry, "start": 0.1, "link": a.link, "shard": shard}
        m["list"] = a.inputs / a.names
        times = [predict(m | {"copy": c}, size, nodes) for c in a.copy]
        cells = [f"{size / nodes / 1e9:.0f} GB", f"{shards:.0f}", f"{shards * ENTRY / 1e3:.0f} kB"]
        cells += [f"{t / 60:.1f} min" for t, _ in times] + [f"{times[0][1]:.0f} s"]
        print(f"| {nodes} | {' | '.join(cells)} |")


def main():
    def numbers(kind):
        return lambda text: [kind(float(x)) for x in text.split(",")]

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hsx", default="bin/hsx")
    p.add_argument("--work", default="build/scale", help="on the disk that is to be measured; dumps stay there")
    p.add_argument("--gib", type=float, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--predict", action="store_true", help="measure nothing: predict from the figures below")
    p.add_argument("--bytes", type=float, default=4.6e12)
    p.add_argument("--inputs", type=float, default=80e3)
    p.add_argument("--nodes", type=numbers(int), default=[8, 64, 512])
    p.add_argument("--node", type=float, default=1e9, help="bytes a second of one node whose storage is no limit")
    p.add_argument("--copy", type=numbers(float), default=[2e9, 20e9, 200e9], help="bytes a second that all nodes copy")
    p.add_argument("--names", type=float, default=100e3, help="names a second that the storage looks up for all nodes")
    p.add_argument("--commit", type=float, default=0.05, help="seconds")
    p.add_argument("--link", type=float, default=1e-3, help="seconds of a merge for a shard")
    p.add_argument("--entry", type=float, default=50e-6, help="seconds of a commit for a shard that is there")
    a = p.parse_args()
    a.hsx = os.path.abspath(a.hsx)
    (extrapolate if a.predict else compare)(a)


if __name__ == "__main__":
    main()
