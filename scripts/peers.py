"""Times hsx against cp, a pyarrow script, a datasets script and xxhsum on the same dumps, in turn.

    python peers.py --hsx bin/hsx --dumps DIR --work DIR --peers ingest_peers.py --rounds 3 [--lines FILE]

Each round runs every way once, with the order turned round from one round to the next, and every run begins
with the dumps in the page cache and ends when its output is on disk (sync). Numbers of one call compare with
each other and with nothing else. Ratios are taken within a round; the table has their medians and ranges. FILE gets the same as lines of Go benchmarks.
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import threading
import time

XXHASH = """
import sys, xxhash
for path in sys.argv[1:]:
    h = xxhash.xxh3_128()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    print(h.hexdigest(), path)
"""


class Run:
    """Wall time, CPU time and memory of some commands, one after the other."""

    def __init__(self, commands):
        self.wall = self.cpu = 0.0
        self.rss = self.anon = 0  # bytes; anon leaves out mapped files
        self.stdout = ""
        for command in commands:
            self.one(command)

    def one(self, command):
        start = time.monotonic()
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        done = threading.Event()
        watch = threading.Thread(target=self.watch, args=(child.pid, done))
        errors = []
        talk = threading.Thread(target=lambda: errors.append(child.stderr.read()))
        watch.start(), talk.start()
        out = child.stdout.read()
        talk.join()
        # wait4 and not subprocess: it alone gives the usage of this child.
        _, status, usage = os.wait4(child.pid, 0)
        self.wall += time.monotonic() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        done.set(), watch.join()
        self.cpu += usage.ru_utime + usage.ru_stime
        self.rss = max(self.rss, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
        self.stdout += out
        if child.returncode:
            sys.exit(f"peers: {' '.join(command)[:200]} ended with {child.returncode}:\n{out}{errors[0]}")

    def watch(self, pid, done):
        while not done.wait(0.01):
            try:
                with open(f"/proc/{pid}/status") as f:
                    kib = [line.split()[1] for line in f if line.startswith("RssAnon:")]
            except OSError:
                return
            if kib:
                self.anon = max(self.anon, int(kib[0]) * 1024)


def heap(stdout):
    """The heap peak in the JSON that hsx printed, if it says one, in bytes."""
    try:
        doc = json.loads(stdout)
    except ValueError:
        return None
    todo = [doc]
    while todo:
        v = todo.pop()
        if isinstance(v, dict):
            for key, value in v.items():
                if "heap" in key and isinstance(value, (int, float)):
                    return value
            todo += v.values()
    return None


def bytes_under(root):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(root) for f in files)


def drop(*paths):
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
    os.sync()  # nor may one run pay for the writes of the last


def hash_command(files):
    xxhsum = shutil.which("xxhsum")
    return [xxhsum, "-H2", *files] if xxhsum else [sys.executable, "-c", XXHASH, *files]


def round_of(a, turn):
    """One round: a Run by name, and the bytes that were hashed."""
    ds, out = os.path.join(a.work, "ds"), os.path.join(a.work, "out")
    ways = {
        "cp": [["cp", "-r", a.dumps, out], ["sync"]],
        "hsx": [[a.hsx, "ingest", "--json", "--out", ds, "--layers", "2,30,58", a.dumps], ["sync"]],
        "pyarrow": [[sys.executable, a.peers, "pyarrow", a.dumps, out]],
        "datasets": [[sys.executable, a.peers, "datasets", a.dumps, out]],
    }
    runs = {}
    drop(ds, out)
    subprocess.run(["cat", *(os.path.join(d, f) for d, _, files in os.walk(a.dumps) for f in files)], stdout=subprocess.DEVNULL, check=True)
    for name in reversed(ways) if turn % 2 else ways:
        runs[name] = Run(ways[name])
        if name == "hsx":
            os.rename(ds, ds + ".kept")
        drop(out)
        print(f"  round {turn + 1}: {name} {runs[name].wall:.2f} s", file=sys.stderr, flush=True)
    os.rename(ds + ".kept", ds)
    shards = sorted(os.path.join(ds, "shards", f) for f in os.listdir(os.path.join(ds, "shards")))
    size = sum(os.path.getsize(f) for f in shards)
    subprocess.run(["cat", *shards], stdout=subprocess.DEVNULL, check=True)
    checks = {"verify": [a.hsx, "verify", ds], "xxhsum": hash_command(shards)}
    for name in reversed(checks) if turn % 2 else checks:
        runs[name] = Run([checks[name]])
    drop(ds)
    return runs, size


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--hsx", "--dumps", "--work", "--peers"):
        p.add_argument(flag, required=True, type=os.path.abspath)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--lines", type=os.path.abspath)
    a = p.parse_args()
    drop(os.path.join(a.work, "ds.kept"))
    size = bytes_under(a.dumps)
    rounds, hashed = [], 0
    for turn in range(a.rounds):
        runs, hashed = round_of(a, turn)
        rounds.append(runs)

    def median(f):
        return statistics.median(f(r) for r in rounds)

    print(f"{size / 2**30:.2f} GiB of dumps, {hashed / 2**30:.2f} GiB of shards, {a.rounds} rounds, medians; "
          f"{os.cpu_count()} cores, {platform.system()} {platform.release()}")
    if not shutil.which("xxhsum"):
        print("xxhsum is not installed: its row is the Python xxhash module, reading 1 MiB at a time")
    print(f"\n{'':10} {'wall s':>8} {'cpu s':>8} {'rss MiB':>8} {'anon MiB':>9} {'GiB/s':>7}")
    for name in rounds[0]:
        work = hashed if name in ("verify", "xxhsum") else size
        print(f"{name:10} {median(lambda r: r[name].wall):8.2f} {median(lambda r: r[name].cpu):8.2f} "
              f"{median(lambda r: r[name].rss) / 2**20:8.0f} {median(lambda r: r[name].anon) / 2**20:9.0f} "
              f"{work / 2**30 / median(lambda r: r[name].wall):7.2f}")
    heaps = [h for h in (heap(r["hsx"].stdout) for r in rounds) if h is not None]
    if heaps:
        print(f"\nhsx heap peak {statistics.median(heaps) / 2**20:.0f} MiB")

    print(f"\n{'ratio':22} {'median':>7} {'least':>7} {'most':>7}")
    for label, over, under, what, _ in GOALS:
        ratios = ratios_of(rounds, over, under, what)
        print(f"{label:22} {statistics.median(ratios):7.2f} {min(ratios):7.2f} {max(ratios):7.2f}")
    if a.lines:
        with open(a.lines, "w") as f:
            f.writelines(lines(rounds, size, hashed))


# What is compared: a name, over, under, in what, and the goal, positive for at least and negative for at most.
GOALS = (
    ("hsx / cp, wall", "hsx", "cp", "wall", -1.15),
    ("hsx / cp, CPU", "hsx", "cp", "cpu", -1.5),
    ("pyarrow / hsx, wall", "pyarrow", "hsx", "wall", 2),
    ("datasets / hsx, wall", "datasets", "hsx", "wall", 6),
    ("verify / xxhsum, rate", "xxhsum", "verify", "wall", 0.8),
)


def ratios_of(rounds, over, under, what):
    return [getattr(r[over], what) / max(getattr(r[under], what), 1e-3) for r in rounds]


def lines(rounds, size, hashed):
    """The medians and ratios as lines of Go benchmarks, whose names have no blanks."""
    for name in rounds[0]:
        wall, cpu, anon = (statistics.median(getattr(r[name], what) for r in rounds) for what in ("wall", "cpu", "anon"))
        work = hashed if name in ("verify", "xxhsum") else size
        yield (f"BenchmarkPeers/{name} {len(rounds)} {wall * 1e9:.0f} ns/op {work / 1e6 / wall:.1f} MB/s "
               f"{cpu:.4f} cpu-s {anon / 2**20:.1f} own-MiB\n")
    for label, over, under, what, goal in GOALS:
        r = ratios_of(rounds, over, under, what)
        yield (f"BenchmarkPeerRatios/{label.replace(' ', '_')} {len(rounds)} {statistics.median(r):.4f} median "
               f"{min(r):.4f} least {max(r):.4f} most {abs(goal)} {'at-least' if goal > 0 else 'at-most'}\n")


if __name__ == "__main__":
    main()
