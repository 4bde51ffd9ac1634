#!/usr/bin/env python3
"""Has hsx ingest and validate (and audit) the dumps of make_dumps.py, and says whether
it found what is wrong with each, and nothing else.

    python check.py --hsx bin/hsx DIR

One line for each case; exit 1 when one went wrong.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time

STD = (1, 14, 26)
FILES = 24


@dataclasses.dataclass
class Case:
    """What hsx must say of a dump. needs is what it is given besides the dataset:
    target (its weights), reference (a fingerprint of other texts) or nothing."""

    dump: str
    needs: tuple = ()
    rule: str = ""  # that must report an error; "" for a dump without fault
    files: tuple = ()  # the only ones that it may name, each at least once; () for all of them together
    layers: tuple = ()  # which P_k the reference must name for each block
    severity: str = "error"
    also: tuple = ()  # rules that see another side of the same fault
    flags: tuple = ()
    command: str = "validate"


def cases():
    target, reference = ("target",), ("reference",)
    both = target + reference
    odd = tuple(range(1, FILES, 2))
    for dump in ("good", "reversed", "half_reversed"):
        for needs in ((), target, reference, both):
            yield Case(dump, needs)
        yield Case(dump, both, command="audit")
    yield Case("all_layers", both)
    yield Case("good", flags=("--layers", "2,15,27"), rule="layers-differ")
    yield Case("half_deeper", rule="prefix-consistency", files=odd)
    yield Case("one_deeper", rule="prefix-consistency", files=(7,))
    yield Case("one_earlier", rule="prefix-consistency", files=(7,))
    yield Case("all_deeper")  # of itself consistent
    yield Case("all_deeper", reference, "reference-layer", layers=(2, 15, 27))
    yield Case("all_earlier", reference, "reference-layer", layers=(0, 13, 25))
    yield Case("embedding_first", rule="embedding-captured")
    yield Case("final_prenorm", target, "final-norm", also=("next-token",))
    yield Case("final_early", target, "final-layer")
    # Without a reference an opinion, of statistics that rise with depth.
    yield Case("permuted", rule="block-order", severity="warning")
    yield Case("permuted", reference, "reference-layer", layers=(14, 26, 1), also=("block-order",))
    yield Case("last_two_exchanged", rule="block-order", severity="warning")
    yield Case("late_one_file", rule="prefix-consistency", files=(7,), also=("self-shift",))
    yield Case("late", rule="self-shift")
    yield Case("rolled", target, "next-token", also=("prefix-consistency",))
    yield Case("swapped", rule="prefix-consistency", files=(4, 9))


class Checker:
    def __init__(self, hsx, directory):
        self.hsx, self.dir = hsx, directory
        self.target, self.reference = directory / "target", directory / "reference.json"

    def run(self, *args, exits=(0,)):
        done = subprocess.run([self.hsx, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode not in exits:
            raise SystemExit(f"hsx {' '.join(map(str, args))}: exit {done.returncode}, want one of {exits}\n{done.stderr}")
        return done

    def ingest(self, dump, *layers):
        dataset = self.dir / "ds" / dump
        done = self.run("ingest", "--json", "--out", dataset, *layers, "--target", self.target, self.dir / "dumps" / dump)
        return json.loads(done.stdout)

    def judge(self, case):
        """The exit code and the report."""
        args = [case.command, "--json", "--strict", "--keep", 1000, *case.flags]
        if case.command == "validate":
            args.append("--all")
        if "target" in case.needs:
            args += ["--target", self.target]
        if "reference" in case.needs:
            args += ["--reference", self.reference]
        done = self.run(*args, self.dir / "ds" / case.dump, exits=(0, 3))
        document = json.loads(done.stdout)
        return done.returncode, document.get("report", document)  # audit adds statistics


def problems(case, code, report):
    """What differs from the case's answer."""
    loud = {g["rule"]: g for g in report["groups"] if g["severity"] != "info"}
    if report["samples"] == 0:
        yield "no sample was read"
    if not case.rule:
        if code != 0 or report["verdict"] != "sound":
            yield f"exit {code} and {report['verdict']}, want 0 and sound"
    elif code != 3:
        yield f"exit {code}, want 3"
    for rule in sorted(loud.keys() - {case.rule, *case.also}):
        yield f"{loud[rule]['severity']} {rule}: {loud[rule]['findings'][0]['message']}"
    if not case.rule:
        return
    group = loud.get(case.rule)
    if group is None or group["severity"] != case.severity:
        yield f"no {case.severity} of {case.rule}"
        return
    found = [f for f in group["findings"] if f["severity"] == case.severity]
    named = {int(pathlib.Path(f["sample"]).stem.removeprefix("data_").split(".")[0]) for f in found if f.get("sample")}
    if case.files and named != set(case.files):
        yield f"{case.rule} names files {sorted(named)}, want {sorted(case.files)}"
    if case.layers:
        want = {f"layer_{k}": {f"P_{seen}"} for k, seen in zip(STD, case.layers)}
        named = {}
        for f in found:
            named.setdefault(f["column"], set()).add(re.search(r"looks like (\w+)", f["message"])[1])
        if named != want:
            yield f"{case.rule} says {named}, want {want}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hsx", required=True)
    parser.add_argument("--verbose", action="store_true", help="print every finding")
    parser.add_argument("dir", type=pathlib.Path)
    options = parser.parse_args()
    check = Checker(os.path.abspath(options.hsx), options.dir)

    every = ",".join(map(str, range(31)))
    made = check.ingest("all_layers", "--layers", every, "--convention", "boundary")
    print(f"all_layers: {made['samples']} samples, {made['tokens']} tokens, {made['bytes'] / 1e6:.1f} MB of dumps")
    print(check.run("fingerprint", "--out", check.reference, options.dir / "ds" / "all_layers").stdout.strip())

    ingested, failed, total = {"all_layers"}, 0, 0
    for case in cases():
        if case.dump not in ingested:
            ingested.add(case.dump)
            check.ingest(case.dump, "--layers", ",".join(map(str, STD)))
        code, report = check.judge(case)
        wrong = list(problems(case, code, report))
        total += 1
        failed += bool(wrong)
        given = " ".join([case.command, "data", *case.needs, *case.flags])
        answer = "; ".join(wrong) or (f"{case.rule} found" if case.rule else "silent")
        print(f"{'FAIL' if wrong else 'ok  '} {case.dump:20} {given:30} {answer}", flush=True)
        if options.verbose:
            for g in report["groups"]:
                for f in g["findings"][:4]:
                    print(f"       {g['count']:3} {f['severity']} {f['rule']} {f.get('sample', '')} {f.get('column', '')}: {f['message']}")
    rates(check)
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


def rates(check):
    """How fast the states of all layers are read, best of three."""
    dataset = check.dir / "ds" / "all_layers"
    size = sum(f.stat().st_size for f in (dataset / "shards").iterdir())
    print(f"all_layers as a dataset: {size / 1e6:.1f} MB")
    both = ["--target", check.target, "--reference", check.reference]
    for name, args in {
        "verify": ["verify"],
        "validate --all": ["validate", "--all"],
        "validate --all, target, reference": ["validate", "--all", *both],
        "audit": ["audit"],
    }.items():
        best = min(timed(lambda: check.run(*args, dataset)) for _ in range(3))
        print(f"{name:34} {best:6.2f} s {size / 1e6 / best:6.0f} MB/s")


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
