"""Runs examples/ray/hsx_ray.py on a Ray cluster of this machine and kills one of its workers while it ingests.

The dataset must have the inputs and ids of one undisturbed run, in its order, and the audit must say the same of both,
to the last digit of its sums.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HSX = str(ROOT / "bin/hsx")
KIT = ROOT / "cmd/hsx/testdata/kit/dumps/specforge_eagle3/rows_0-2000"
PARTS, KILLED = 4, 2
FLAGS = ["--layers", "0,2,3", "--shard-size", "8kB", "--lock-timeout", "5m"]
PLACES = {"seconds", "dataset", "shard", "shards", "row"}  # when and where, which differ by nature


def hsx(*args, ok=(0,)):
    done = subprocess.run([HSX, *map(str, args)], capture_output=True, text=True)
    if done.returncode not in ok:
        sys.exit(f"ray: hsx {args}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def wait(what, look, process):
    """Waits for a truth, for two minutes at most."""
    end = time.monotonic() + 120
    while not (seen := look()):
        if time.monotonic() > end or process.poll() is not None:
            sys.exit(f"ray: no {what}")
        time.sleep(0.05)
    return seen


def status(pid):
    """The fields of a process, empty when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {} if fields["State"].startswith("Z") else fields


def making(part):
    """The process of hsx that makes a part, 0 when there is none."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            args = line.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if args[0] == HSX.encode() and str(part).encode() in args:
            return int(line.parent.name)
    return 0


def placeless(v):
    if isinstance(v, dict):
        return {k: placeless(m) for k, m in v.items() if k not in PLACES}
    return [placeless(m) for m in v] if isinstance(v, list) else v


def check(work):
    dumps, whole, ds = work / "dumps", work / "whole", work / "ds"
    dumps.mkdir()
    for i in range(60):
        shutil.copy(KIT / f"data_{i * i // 3 % 4}.ckpt", dumps / f"data_{i}.ckpt")
    os.truncate(dumps / "data_20.ckpt", 1000)  # no dump
    hsx("ingest", "--out", whole, *FLAGS, dumps, ok=(3,))
    plan = json.loads(hsx("plan", "--json", "--parts", PARTS, *FLAGS, dumps))
    part = Path(f"{ds}.parts/{KILLED}-of-{PARTS}")

    # The reader of the part's last dump waits for this lock, as for vLLM's.
    with open(dumps / (plan["parts"][KILLED - 1]["last"] + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, ROOT / "examples/ray/hsx_ray.py", "--parts", str(PARTS), "--out", ds, "--hsx", HSX]
        env = os.environ | {"RAY_TMPDIR": str(work / "r"), "RAY_USAGE_STATS_ENABLED": "0"}
        env.pop("RAY_ADDRESS", None)  # a cluster of its own
        program = subprocess.Popen([*command, "--", *FLAGS, dumps], env=env, stdout=subprocess.PIPE, text=True)
        try:
            wait("commit of the part", (part / "manifest.json").exists, program)
            pid = wait("process of the part", lambda: making(part), program)
            worker = int(status(pid)["PPid"])
            os.kill(worker, signal.SIGKILL)
            wait("end of hsx with its worker", lambda: not status(pid), program)
            wait("second run of the part", lambda: making(part), program)
        except BaseException:
            program.terminate()
            raise
    out, _ = program.communicate(timeout=120)
    print(out)
    if program.returncode != 0:
        sys.exit(f"ray: hsx_ray.py: exit {program.returncode}")
    for name in ("inputs.jsonl", "rejected.jsonl"):
        if (ds / name).read_bytes() != (whole / name).read_bytes():
            sys.exit(f"ray: {name} differs from that of one run")
    reports = [placeless(json.loads(hsx("audit", "--json", d, ok=(0, 3)))) for d in (whole, ds)]
    if reports[0] != reports[1]:
        sys.exit("ray: the audit differs from that of one run")
    hsx("verify", ds)
    print(f"ray: the dataset of {PARTS} parts is that of one run; worker {worker} was killed on the way")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="hsx") as work:  # a short name: Ray has sockets in it
        check(Path(work))
