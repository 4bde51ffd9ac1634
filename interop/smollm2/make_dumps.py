#!/usr/bin/env python3
"""Writes dumps of SmolLM2-135M-Instruct to OUT: good ones, and such with one mistake each.

    python make_dumps.py OUT

OUT/target has the config and the few weights that validate reads, OUT/all_layers every
state of other texts. Seeded: two runs on the same machine write the same tensors.
"""

import os
import pathlib
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402: after the environment

from smollm2 import LAYERS, Model  # noqa: E402

STD = [1, LAYERS // 2 - 1, LAYERS - 4]  # what SpecForge captures unless told otherwise

SYSTEMS = [None, "You are a patient teacher who explains with examples.", "Answer in plain words, as to a friend."]
REQUESTS = [
    "Explain {} to a child.", "Write a short story about {}.", "Give advice to somebody who is new to {}.",
    "What are the most common mistakes with {}?", "Describe the history of {}.", "Write a letter about {}.",
]
SUBJECTS = [
    "sailing", "the moon", "baking bread", "chess", "volcanoes", "bees", "a lighthouse", "gardening", "fractions",
    "trains", "photography", "swimming", "rivers", "a lost key", "coffee", "winter", "libraries", "guitars",
]
OTHER_SUBJECTS = [
    "whales", "the desert", "cheese", "football", "earthquakes", "owls", "a bridge", "carpentry", "statistics",
    "bicycles", "painting", "climbing", "glaciers", "a broken clock", "tea", "summer", "museums", "drums",
]


def chats(subjects, again=0):
    """One chat for each subject, and then the first few prompts again, so that texts
    part late."""
    out = []
    for i in [*range(len(subjects)), *range(again)]:
        system = [{"role": "system", "content": SYSTEMS[i % 3]}] if SYSTEMS[i % 3] else []
        out.append(system + [{"role": "user", "content": REQUESTS[i % len(REQUESTS)].format(subjects[i])}])
    return out


def backwards(model, sample):
    """The text in reverse after its first token, with the states that belong to it: text
    that no model wrote, captured as it should be."""
    return model.capture(torch.cat([sample.ids[:1], sample.ids[1:].flip(0)]), 1)


def record(sample, layers=STD, final=None, aux=None):
    """An offline eagle3 sample of SpecForge."""
    if aux is None:
        aux = torch.cat([sample.layer(k) for k in layers], -1)
    final = sample.final if final is None else final
    return {
        "input_ids": sample.ids.clone(), "loss_mask": sample.mask.clone(),
        "aux_hidden_state": aux[None].clone(), "hidden_state": final[None].clone(),
    }


def all_layers(sample):
    """A dspark sample of SpecForge with every state that there is."""
    return {
        "input_ids": sample.ids.clone(), "loss_mask": sample.mask.clone(),
        "hidden_states": torch.cat([sample.layer(k) for k in range(-1, LAYERS)], -1)[None],
        "target_last_hidden_states": sample.final[None].clone(),
    }


def moved(sample, rows):
    """The sample with row t holding the states of token rows[t]."""
    return record(sample, aux=torch.cat([sample.layer(k)[rows] for k in STD], -1), final=sample.final[rows])


def swapped(samples, i, j):
    """Samples i and j, cut to one length, with each other's states."""
    n = min(len(samples[i].ids), len(samples[j].ids))
    out = [record(s) for s in samples]
    a, b = record(samples[i].cut(n)), record(samples[j].cut(n))
    for key in ("aux_hidden_state", "hidden_state"):
        a[key], b[key] = b[key], a[key]
    out[i], out[j] = a, b
    return out


def variants(model, good, reverse):
    """Name and records of each dump."""
    every = range(len(good))
    deeper, earlier = [k + 1 for k in STD], [k - 1 for k in STD]
    yield "good", [record(s) for s in good]
    yield "reversed", [record(s) for s in reverse]
    yield "half_reversed", [record(s) for s in [*good[::2], *reverse]]
    yield "half_deeper", [record(good[i], deeper if i % 2 else STD) for i in every]
    yield "one_deeper", [record(good[i], deeper if i == 7 else STD) for i in every]
    yield "one_earlier", [record(good[i], earlier if i == 7 else STD) for i in every]
    yield "all_deeper", [record(s, deeper) for s in good]
    yield "all_earlier", [record(s, earlier) for s in good]
    yield "embedding_first", [record(s, [-1, *STD[1:]]) for s in good]
    yield "final_prenorm", [record(s, final=s.layer(LAYERS - 1)) for s in good]
    yield "final_early", [record(s, final=model.norm(s.layer(STD[-1]))) for s in good]
    yield "permuted", [record(s, [STD[1], STD[2], STD[0]]) for s in good]
    yield "last_two_exchanged", [record(s, [STD[0], STD[2], STD[1]]) for s in good]
    rows = [torch.arange(len(s.ids)) for s in good]
    yield "late_one_file", [moved(s, (r - int(i == 7)).clamp(min=0)) for i, (s, r) in enumerate(zip(good, rows))]
    yield "late", [moved(s, (r - 1).clamp(min=0)) for s, r in zip(good, rows)]
    yield "rolled", [moved(s, r.roll(-1)) for s, r in zip(good, rows)]
    yield "swapped", swapped(good, 4, 9)


def write(directory, records):
    rows = directory / "rows_0-2000"
    rows.mkdir(parents=True)
    for i, r in enumerate(records):
        torch.save(r, rows / f"data_{i}.ckpt")


def main():
    out = pathlib.Path(sys.argv[1])
    torch.set_num_threads(os.cpu_count() or 1)
    torch.use_deterministic_algorithms(True)
    start = time.perf_counter()

    def done(what):
        print(f"{time.perf_counter() - start:6.1f} s  {what}", flush=True)

    model = Model()
    model.save_target(out / "target")
    done("model loaded")
    wanted, others = chats(SUBJECTS, again=6), chats(OTHER_SUBJECTS)
    lengths = [70 + 37 * i % 101 for i in range(len(wanted) + len(others))]
    texts = model.write(wanted + others, lengths, seed=1)
    done(f"{len(texts)} texts of {sum(len(ids) for ids, _ in texts)} tokens")
    samples = [model.capture(*t) for t in texts]
    good, other = samples[: len(wanted)], samples[len(wanted) :]
    reverse = [backwards(model, s) for s in good[1::2]]
    done(f"states of them, and of {len(reverse)} backwards")
    write(out / "dumps" / "all_layers", [all_layers(s) for s in other])
    names = []
    for name, records in variants(model, good, reverse):
        write(out / "dumps" / name, records)
        names.append(name)
    done(f"{len(names) + 1} dumps")


if __name__ == "__main__":
    main()
