"""Ingests dumps in parts on a Ray cluster, merges them, and audits the dataset in parts.

    python hsx_ray.py --parts 64 --out DS -- --layers 2,30,58 --target config.json dumps/

What stands after -- is handed to hsx ingest. All nodes must have the program hsx and see the dumps and DS under the
same names. A part whose worker or node dies is run again, and goes on where its last commit was; a part that fails for
another reason ends the run, and so does ^C: the same command goes on with all parts.
"""

import argparse
import os
import subprocess
import sys

import ray

BAD_DATA = 3  # the work was done, and some inputs or samples are not good


class Died(Exception):
    """hsx was ended by a signal."""


def run(command, out=None):
    """Runs hsx, which ends with this worker, whatever ends that, and returns its exit code and what it said."""
    with open(out, "wb") if out else open(os.devnull, "wb") as stdout:
        done = subprocess.run(["setpriv", "--pdeathsig", "KILL", *command], stdout=stdout, stderr=subprocess.PIPE)
    talk = done.stderr.decode(errors="replace").strip()
    if done.returncode < 0 or done.returncode == 130:
        raise Died(f"{' '.join(command)}: ended by a signal\n{talk}")
    if done.returncode not in (0, BAD_DATA):
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{talk}")
    return done.returncode, talk


@ray.remote(num_cpus=1, max_retries=10, retry_exceptions=[Died])
def ingest(hsx, dataset, of, part, arguments):
    partition = f"{part}/{of}"
    return run([hsx, "ingest", "--out", part_of(dataset, part, of), "--partition", partition, *arguments])


@ray.remote(num_cpus=1, max_retries=10, retry_exceptions=[Died])
def audit(hsx, dataset, directory, of, part):
    out = report_of(directory, part, of)
    result = run([hsx, "audit", "--partition", f"{part}/{of}", dataset], out + ".tmp")
    os.replace(out + ".tmp", out)  # whole, or not there
    return result


def part_of(dataset, part, of):
    return f"{dataset}.parts/{part}-of-{of}"


def report_of(directory, part, of):
    return f"{directory}/{part}-of-{of}.json"


def finish(what, tasks):
    """Waits for tasks, says how many are done, and stops the others when one fails."""
    part = {task: i for i, task in enumerate(tasks, 1)}
    left = list(tasks)
    try:
        while left:
            done, left = ray.wait(left)
            code, talk = ray.get(done[0])
            print(f"{what}: part {part[done[0]]}, {len(tasks) - len(left)} of {len(tasks)} are done", flush=True)
            if code == BAD_DATA:
                print(talk, flush=True)
    finally:
        for task in left:
            ray.cancel(task, force=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--parts", type=int, required=True, help="a few for each node")
    p.add_argument("--out", required=True, help="the dataset to make; its parts lie beside it")
    p.add_argument("--reports", help="directory of the audit (default: DS.audit)")
    p.add_argument("--hsx", default="hsx", help="the program, as the nodes find it")
    p.add_argument("--address", default=None, help="of the cluster (default: RAY_ADDRESS, or one of this machine)")
    p.add_argument("ingest", nargs="+", help="flags and paths of hsx ingest")
    a = p.parse_args()
    ray.init(address=a.address, log_to_driver=False)

    parts = range(1, a.parts + 1)
    out = a.out if "://" in a.out else os.path.abspath(a.out)
    finish("ingest", [ingest.remote(a.hsx, out, a.parts, i, a.ingest) for i in parts])
    # It names and refuses what is missing, there twice, not done or of another plan.
    subprocess.run([a.hsx, "merge", "--out", out, *(part_of(out, i, a.parts) for i in parts)], check=True)

    reports = os.path.abspath(a.reports or f"{os.path.basename(out) if '://' in out else out}.audit")
    os.makedirs(reports, exist_ok=True)
    finish("audit", [audit.remote(a.hsx, out, reports, a.parts, i) for i in parts])
    report = [a.hsx, "audit", "--merge", "--html", f"{reports}/report.html"]
    sys.exit(subprocess.run(report + [report_of(reports, i, a.parts) for i in parts]).returncode)


if __name__ == "__main__":
    main()
