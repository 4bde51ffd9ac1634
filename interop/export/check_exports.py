"""Exports every dump of the fixtures to every trainer with hsx, and opens what was written with that trainer's own reader.

    python check_exports.py --hsx bin/hsx --fixtures DIR [--only DUMP] WORK

Each dump is ingested, then exported to each target. What the target needs and the dump lacks must be refused with that
reason, and nothing written. Everything else is read with the trainer's code (peers.py), and every value is compared with
the answers (answers.py); torch files also with torch in each way of loading (check_torch.py), and whatever the fixtures' own
oracle.py knows with that. Exit 1 when anything differs.
"""
import check_torch  # first: it sets what torch reads when it is imported

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import types

import numpy
import torch
from safetensors.torch import load_file

import peers
from answers import Answers, Bad, need


@dataclasses.dataclass
class Target:
    """What --to takes, and what its reader wants (None: any)."""

    name: str
    read: object  # of the export: a function of the dump and the state of the final that was written
    layers: int | None = None
    norms: tuple = ("post", "pre", "unknown")  # of the final, the best first; () when its files hold none
    needs: tuple = ()  # of "aux", "final", "mask", "pair"
    oracle: str = ""  # the name of the format in oracle.py

    @property
    def torch(self):
        return self.oracle not in ("", "speculators")


def targets():
    post, eagle = ("post",), ("aux", "final", "mask")

    def modelopt(dump, norm):
        return peers.modelopt(norm == "pre", dump.mask != "absent")

    return [
        Target("specforge-eagle3", lambda d, norm: peers.specforge("eagle3"), 3, post, eagle, "specforge_eagle3"),
        Target("specforge-dflash", lambda d, norm: peers.specforge("dflash"), None, (), ("aux", "mask", "pair"), "specforge_dflash"),
        Target("specforge-dspark", lambda d, norm: peers.specforge("dspark"), None, post, (*eagle, "pair"), "specforge_dspark"),
        Target("speculators", lambda d, norm: peers.speculators, None, ("pre",), eagle, "speculators"),
        Target("modelopt", modelopt, None, ("post", "pre"), ("aux", "final"), "modelopt"),
        Target("angelslim", lambda d, norm: peers.angelslim, None, post, eagle, "angelslim_eagle3"),
        Target("torchspec", lambda d, norm: peers.torchspec, None, post, eagle, "torchspec"),
        Target("safetensors", lambda d, norm: peers.safetensors(norm)),
        Target("npy", lambda d, norm: peers.npy),
        Target("datasets", lambda d, norm: peers.hugging_face),
    ]


class Checker:
    def __init__(self, hsx, fixtures, work):
        self.hsx, self.work, self.fixtures, self.model = os.path.abspath(hsx), work, fixtures, os.path.join(fixtures, "model")
        self.answers = Answers(fixtures)
        sys.path.insert(0, os.path.join(fixtures, "oracles"))
        import oracle

        self.oracle, self.expected = oracle, oracle.Expected(os.path.join(fixtures, "expected"))
        self.read, self.refused, self.wrong = 0, 0, []

    def run(self, *args):
        return subprocess.run([self.hsx, *map(str, args)], capture_output=True, text=True)

    def ingest(self, dump):
        """The dataset of a dump, made as TestFixtureDumps does, and the state of its final. None: it cannot be ingested."""
        out, args = self.work / dump.name / "ds", []
        if dump.ids is not None:
            args = ["--layers", ",".join(map(str, dump.ids)), "--convention", dump.convention]
        elif dump.layers:
            args = ["--layers", ",".join(name[1:] for name in dump.layers)]
        if dump.container == "json" or dump.name == "npy_bf16_as_uint16":
            args += ["--dtype", dump.dtype]
        norm = dump.norm
        if dump.arrays and dump.name != "npz":
            args += ["--final", norm]
        elif dump.arrays:
            norm = "unknown"
        done = self.run("ingest", "--out", out, "--target", self.model, *args, dump.path)
        if dump.container == "torch-legacy":
            need(done.returncode == 3 and "non-zip" in done.stderr, f"ingest: exit {done.returncode}, want 3 and the reason\n{done.stderr}")
            return None, None
        need(done.returncode == 0, f"ingest: exit {done.returncode}\n{done.stderr}")
        return out, norm

    def dump(self, dump):
        try:
            dataset, norm = self.ingest(dump)
        except Bad as e:
            self.wrong.append(f"{dump.name}: {e}")
            return
        if dataset is None:
            print(f"{dump.name}: not ingested, as it must be", flush=True)
            return
        read, refused = [], []
        for target in targets():
            for args, final in variants(target, norm):
                case = f"{dump.name} --to {target.name}{' with the norm of the target' if args else ''}"
                want = refusal(dump, target, final)
                try:
                    if self.export(dump, dataset, target, args, final, want):
                        read.append(target.name + ("*" if args else ""))
                    else:
                        refused.append(target.name + ("*" if args else ""))
                except Exception as e:  # the trainers have many ways to say no
                    self.wrong.append(f"{case}: {type(e).__name__}: {e}")
                    print(f"FAIL {self.wrong[-1]}")
        self.read += len(read)
        self.refused += len(refused)
        print(f"{dump.name}: read {' '.join(read) or 'none'}; refused {' '.join(refused) or 'none'}", flush=True)

    def export(self, dump, dataset, target, args, final, want):
        """One export and what is read of it. False: it was refused, as it had to be."""
        out = self.work / dump.name / (target.name + ("-normed" if args else ""))
        done = self.run("export", "--to", target.name, "--out", out, "--json", *(args and [*args, "--target", self.model]), dataset)
        if want:
            need(done.returncode == 1 and want in done.stderr, f"exit {done.returncode}, want 1 and {want!r}\n{done.stderr}")
            need(not out.exists(), f"{out} was made, want nothing")
            return False
        alone = self.no_pair(dump) if "pair" in target.needs else ()
        need(done.returncode == (3 if alone else 0), f"exit {done.returncode}, want {3 if alone else 0}\n{done.stderr}")
        result = json.loads(done.stdout)
        need(result["refused"] == len(alone), f"{result['refused']} samples refused, want {len(alone)}")
        layers = [int(name[1:]) for name in dump.layers]
        need(result["layers"] == layers and result["boundary"] == [k + 1 for k in layers], f"layers are {result['layers']}, want {layers}")
        need(result["ids"] == (result["boundary"] if target.name == "speculators" else layers), f"ids are {result['ids']} for {layers}")
        need(json.loads((out / "hsx-export.json").read_text()).items() <= result.items(), "hsx-export.json is not what was printed")

        state = ("N" if args else dump.final) if target.norms else None
        self.compare(dump, target.read(dump, final), out, dump.layers, state, alone)
        if target.torch:
            for path in [*out.rglob("*.ckpt"), *out.rglob("*.pt")]:
                check_torch.check(path, None)
        if target.oracle:
            asked = types.SimpleNamespace(dir=str(out), aux=dump.layers, final=state or "", dtype=dump.dtype)
            seen = [s[0] for s in self.oracle.check(target.oracle, asked, self.expected)]
            need(sorted(seen) == sorted(dump.rows.keys() - set(alone)), f"the oracle read {sorted(seen)}")
        return True

    def compare(self, dump, read, out, layers, final, left_out=()):
        self.answers.compare(dump, read(out, layers, self.answers.hidden), layers, final, left_out)

    def choices(self):
        """Exports of parts of the samples and of the layers, and with a draft's vocabulary map."""
        post, pre = self.answers.dumps["specforge_eagle3"], self.answers.dumps["speculators"]
        datasets = {d.name: self.ingest(d)[0] for d in (post, pre)}

        def export(dump, name, *args):
            out = self.work / name
            done = self.run("export", "--out", out, *args, datasets[dump.name])
            need(done.returncode == 0, f"exit {done.returncode}\n{done.stderr}")
            return out

        def parts():
            """Shuffled and split: each part is a dataset whose rows have their own files, and none is lost."""
            out = export(pre, "parts", "--to", "speculators", "--shuffle", "--seed", 7, "--split", "train=0.6,val=0.4")
            seen = [list(peers.speculators(out / name, pre.layers, self.answers.hidden)) for name in ("train", "val")]
            need(all(seen), f"the parts have {[len(s) for s in seen]} samples")
            self.answers.compare(pre, seen[0] + seen[1], pre.layers, "P4")
            need(list(peers.datasets.load_from_disk(str(out))) == ["train", "val"], "the whole is no DatasetDict of train and val")

        def layers():
            """A part of the layers, by either convention; one that was not captured is refused."""
            read = peers.specforge("dflash")
            for name, ids, convention in (("layers", "0,3", "post"), ("inputs", "1,4", "boundary")):
                out = export(pre, name, "--to", "specforge-dflash", "--layers", ids, "--convention", convention, "--min-tokens", 2)
                self.compare(pre, read, out, ["P0", "P3"], None, self.no_pair(pre))
            done = self.run("export", "--out", self.work / "missing", "--to", "npy", "--layers", "0,1", datasets[pre.name])
            need(done.returncode == 1 and "P_1 was not captured" in done.stderr, f"exit {done.returncode}, want 1\n{done.stderr}")

        def vocabulary():
            """The map of a draft, where each trainer looks for it."""
            draft = os.path.join(self.fixtures, "drafts", "nested_post")
            want = {k: v for k, v in load_file(os.path.join(draft, "model.safetensors")).items() if k in ("d2t", "t2d")}
            for to, dump, file in (
                ("specforge", post, "vocab_mapping/vocab_mapping.pt"),
                ("angelslim", post, "vocab_mapping.pt"),
                ("speculators", pre, "{}.npy"),
            ):
                out = export(dump, "vocabulary-" + to, "--to", to, "--draft", draft)
                if file.endswith(".pt"):
                    check_torch.check(out / file, None)
                    got = torch.load(out / file, weights_only=True)
                else:
                    got = {k: torch.from_numpy(numpy.load(out / file.format(k))) for k in want}
                same = got.keys() == want.keys() and all(torch.equal(got[k], want[k]) for k in want)
                need(same, f"{to}: the map differs from that of the draft")

        for choice in (parts, layers, vocabulary):
            try:
                choice()
                print(f"{choice.__name__}: {choice.__doc__}")
            except Exception as e:
                self.wrong.append(f"{choice.__name__}: {type(e).__name__}: {e}")

    def no_pair(self, dump):
        """The samples whose mask marks no two tokens in a row."""
        masks = {s: self.answers.mask(dump, s) for s in dump.rows}
        return [s for s, mask in masks.items() if not any(a and b for a, b in zip(mask, mask[1:], strict=False))]


def variants(target, norm):
    """The ways to export a dump to a target: further flags, and the state of the final that is asked for."""
    yield [], norm
    if norm == "pre" and "post" in target.norms:
        yield ["--final", "post"], "post"


def refusal(dump, target, final):
    """What the refusal must say, or "" when there is nothing to refuse."""
    if dump.shifted:
        return "one position to the left"
    if "aux" in target.needs and not dump.layers:
        return "needs aux layers"
    if target.layers and len(dump.layers) != target.layers:
        return f"wants {target.layers} layers"
    if "final" in target.needs and not final:
        return "final is missing"
    if target.norms and final and final not in target.norms:
        return {"pre": "(--target)", "post": "the RMS of each row is lost", "unknown": "unknown norm state"}[final]
    if "mask" in target.needs and dump.mask == "absent":
        return "loss_mask is missing"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hsx", required=True)
    parser.add_argument("--fixtures", required=True)
    parser.add_argument("--only", help="one dump, by its id")
    parser.add_argument("work", type=pathlib.Path)
    args = parser.parse_args()
    check = Checker(args.hsx, args.fixtures, args.work)
    for dump in check.answers.dumps.values():
        if args.only in (None, dump.name):
            check.dump(dump)
    if not args.only:
        check.choices()
    for wrong in check.wrong:
        print(f"FAIL {wrong}")
    print(f"{check.read} exports read and equal, {check.refused} refused with the reason; * with the norm of the target")
    return 1 if check.wrong or not check.read else 0


if __name__ == "__main__":
    sys.exit(main())
