"""What must come out of the fixtures' dumps, bit for bit."""
import dataclasses
import hashlib
import json
import pathlib

import numpy as np
import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


class Bad(Exception):
    """What was read differs from what was written."""


def need(ok, message):
    if not ok:
        raise Bad(message)


@dataclasses.dataclass
class Seen:
    """One sample as a reader gave it. States are [T, hidden size], by the names "P0", "P1", … and "final"."""

    tokens: list
    mask: list | None
    states: dict


@dataclasses.dataclass
class Dump:
    """One dump of the fixtures: an entry of dumps/INDEX.json."""

    name: str
    path: pathlib.Path
    container: str
    dtype: str
    layers: list  # "P0", "P2", …
    final: str | None  # "N" or "P4": what the final state is
    norm: str | None  # "post" or "pre"
    mask: str  # "in-file", "absent", …
    ids: list | None  # the layers as its producer's config has them, in that producer's convention
    convention: str
    rows: dict  # by sample: how many tokens it has there

    @property
    def shifted(self):
        return "shifted" in self.mask

    @property
    def arrays(self):
        """Plain arrays, which do not say what state their final is in."""
        return self.name.startswith("np")


class Answers:
    """The fixtures' dumps/INDEX.json and expected/."""

    def __init__(self, fixtures):
        self.root = pathlib.Path(fixtures)
        index = self._json("dumps/INDEX.json")
        self.hidden, self.samples = index["hidden_size"], self._json("expected/samples.json")["samples"]
        self.sums = self._json("expected/checksums.json")
        self.dumps = {d["id"]: self._dump(d) for d in index["dumps"]}

    def _json(self, name):
        return json.loads((self.root / name).read_text())

    def _dump(self, d):
        final = d["final"] or {}
        return Dump(
            d["id"], self.root / "dumps" / d["dir"], d["container"], d["dtype"], d["aux_layers"], final.get("layer"), final.get("norm"),
            d["loss_mask"], d.get("ids_as_configured"), d.get("convention") or "post", {s["id"]: s["rows"] for s in d["samples"]},
        )

    def mask(self, dump, sample):
        return None if dump.mask == "absent" else self.samples[sample]["loss_mask"][: dump.rows[sample]]

    def compare(self, dump, seen, layers, final, left_out=()):
        """Hold what a reader saw of a whole export against the answers.

        layers are the aux states that must be there, final is "N" or "P4" or None. The samples of left_out must be missing.
        """
        left = {tuple(self.samples[s]["tokens"][:n]): s for s, n in dump.rows.items() if s not in left_out}
        want = len(left)
        for got in seen:
            sample = left.pop(tuple(got.tokens), None)
            need(sample, f"token ids {got.tokens[:8]}… belong to no sample that is still expected")
            mask = self.mask(dump, sample)
            need(got.mask == mask, f"{sample}: loss mask is {got.mask}, want {mask}")
            names = [*layers, *(["final"] if final else [])]
            need(list(got.states) == names, f"{sample}: states {list(got.states)}, want {names}")
            for name, state in got.states.items():
                self._state(dump, sample, state, name if name != "final" else final)
        need(not left, f"{len(left)} of {want} samples were not read: {sorted(left.values())}")

    def _state(self, dump, sample, state, layer):
        rows = dump.rows[sample]
        need(state.dtype == DTYPES[dump.dtype], f"{sample}: {layer} is {state.dtype}, want {dump.dtype}")
        need(tuple(state.shape) == (rows, self.hidden), f"{sample}: {layer} has shape {tuple(state.shape)}, want {(rows, self.hidden)}")
        got = state.contiguous().view(torch.uint8).numpy().tobytes()
        if dump.dtype != "bf16":  # of these types there are checksums only, of whole samples
            need(rows == len(self.samples[sample]["tokens"]), f"{sample}: no answer for {rows} rows in {dump.dtype}")
            need(hashlib.sha256(got).hexdigest() == self.sums[dump.dtype][sample][layer], f"{sample}: {layer} differs")
            return
        want = np.load(self.root / "expected" / sample / f"{layer}.bf16.npy")[:rows]
        off = np.frombuffer(got, "<u2").reshape(want.shape) != want
        need(not off.any(), f"{sample}: {layer} differs in {off.sum()} of {off.size} values, the first at {np.argwhere(off)[:1].tolist()}")
