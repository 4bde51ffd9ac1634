"""Times the loader of hsx against SpecForge's and speculators' own, on the same samples in the same random order.

    pip install torch numpy datasets ./python/hsx && pip install --no-deps specforge==0.2.0 speculators==0.9.0
    python loader.py --dumps DUMPS --dataset DS [--speculators EXPORT] [--lines FILE]

DUMPS holds SpecForge's .ckpt files, DS what `hsx ingest --layers 2,30,58` made of them, and EXPORT what `hsx export --to
speculators` made of that. Each way makes batches of one sample, speculators in its own names and all others in those of
SpecForge's trainer, and is first compared with SpecForge's loader, value by value. A pass makes all batches and copies
each to a buffer, as a transfer to a device would, so that every byte is read; `only loaded` leaves the copy out. The ways
take turns, in an order that is turned round from round to round. Ratios are taken within a round; the table has medians.
FILE gets the same as lines of Go benchmarks.
"""

import argparse
import functools
import os
import random
import statistics
import sys
import time
import types

import torch

import hsx

# SpecForge's collator asks for its process groups, which only its trainer has, with all that the trainer imports.
groups = types.ModuleType("specforge.distributed")
groups.get_draft_sp_group = groups.get_sp_ulysses_group = lambda: None
sys.modules["specforge.distributed"] = groups

from specforge.algorithms.eagle3.data import normalize_offline_sample  # noqa: E402
from specforge.data.utils import DataCollatorWithPadding  # noqa: E402
from specforge.runtime.data_plane.feature_dataloader import FeatureDataLoader  # noqa: E402
from specforge.runtime.data_plane.feature_store import LocalFeatureStore, load_feature_file  # noqa: E402
from specforge.runtime.data_plane.offline_reader import OfflineManifestReader  # noqa: E402

BASE, OURS = "SpecForge", "hsx"
normalise = functools.partial(normalize_offline_sample, max_len=1 << 20)


def specforge(refs, **settings):
    loader = FeatureDataLoader(
        LocalFeatureStore(),
        refs=refs,
        batch_size=1,
        collate_fn=DataCollatorWithPadding(),
        per_sample_transform=normalise,
        **settings,
    )
    return (batch.tensors for batch in loader)


def file_alone(refs):
    return (normalise(load_feature_file(ref.feature_store_uri.removeprefix("file://"))) for ref in refs)


def speculators(directory, order, width):
    """speculators' dataset and collator; order numbers its rows. What it makes is cut to the sample's own length."""
    from speculators.train.data import ArrowDataset, CollateFn

    rows = ArrowDataset(max_len=1 << 20, datapath=directory, on_missing="raise")
    for i in order:
        item = rows[i]
        batch = CollateFn(rows.approx_lengths[i], width, 3, dtype=item["hidden_states"].dtype)([item])
        yield {k: v for k, v in batch.items() if isinstance(v, torch.Tensor)}  # not the count of faulty samples


def loader(data, order, **settings):
    return torch.utils.data.DataLoader(data, batch_size=1, sampler=order, collate_fn=data.collate, **settings)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--dumps", required=True)
    p.add_argument("--dataset", required=True)
    p.add_argument("--speculators")
    p.add_argument("--lines")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()

    ds = hsx.open(a.dataset)
    data = ds.torch(layers=ds.layers)
    files = {
        os.path.relpath(r.feature_store_uri.removeprefix("file://"), a.dumps): r
        for r in OfflineManifestReader(a.dumps).read()
    }
    order = list(range(len(ds)))
    random.Random(a.seed).shuffle(order)
    refs = [files[ds[i]["source"]] for i in order]

    ways = {
        BASE: lambda: specforge(refs),
        "SpecForge, 4 threads": lambda: specforge(refs, num_workers=4),
        "SpecForge, not cloned": lambda: specforge(refs, clone_on_fetch=False),
        "torch.load and normaliser": lambda: file_alone(refs),
        OURS: lambda: (data.collate([data[i]]) for i in order),
        "hsx, DataLoader": lambda: loader(data, order),
        "hsx, DataLoader, 2 workers": lambda: loader(data, order, num_workers=2),
    }
    if a.speculators:
        for got, want in zip(speculators(a.speculators, order, ds.hidden_size), specforge(refs), strict=True):
            assert torch.equal(got["hidden_states"], want["hidden_state"]), "speculators: aux states"
            assert torch.equal(got["input_ids"], want["input_ids"]), "speculators: ids"
    size = 0
    for name, way in ways.items():
        for got, want in zip(way(), specforge(refs), strict=True):
            assert got.keys() == want.keys(), (name, got.keys(), want.keys())
            assert all(torch.equal(got[k], want[k]) for k in want), name
            size += sum(v.nbytes for v in want.values()) * (name == BASE)

    if a.speculators:
        ways["speculators"] = lambda: speculators(a.speculators, order, ds.hidden_size)
    staging = {}

    def run(way, copied):
        begin = time.perf_counter()
        for batch in way():
            if copied:
                for key, value in batch.items():
                    if key not in staging or staging[key].shape != value.shape:
                        staging[key] = torch.empty_like(value)
                    staging[key].copy_(value)
        return time.perf_counter() - begin

    rounds = []
    for turn in range(a.rounds):
        names = list(ways)[:: -1 if turn % 2 else 1]
        rounds.append({(name, copied): run(ways[name], copied) for copied in (True, False) for name in names})

    print(
        f"{len(order)} samples, {size / 2**30:.2f} GiB, {a.rounds} rounds, medians; "
        f"{os.cpu_count()} cores, torch {torch.__version__}"
    )
    print(f"{'':28} {'ms a sample':>12} {'only loaded':>12} {'hsx is faster':>14} {'only loaded':>12}")
    lines = []
    for name in ways:
        cells = [statistics.median(r[name, c] for r in rounds) / len(order) * 1e3 for c in (True, False)]
        ratios = [statistics.median(r[name, c] / r[OURS, c] for r in rounds) for c in (True, False)]
        print(f"{name:28} {cells[0]:12.1f} {cells[1]:12.1f} {ratios[0]:13.2f}x {ratios[1]:11.2f}x")
        units = ("ms/sample", "loaded-ms/sample", "hsx-faster", "hsx-faster-loaded")
        values = " ".join(f"{v:.4g} {unit}" for v, unit in zip(cells + ratios, units, strict=True))
        lines.append(f"BenchmarkLoaders/{name.replace(' ', '_')} {a.rounds} {values}\n")
    if a.lines:
        with open(a.lines, "w") as f:
            f.writelines(lines)


if __name__ == "__main__":
    main()
