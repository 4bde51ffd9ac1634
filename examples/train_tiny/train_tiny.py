"""Trains a tiny EAGLE-3 draft on a dataset of hsx, and once more on a dump with the embedding in place of a layer.

    python train_tiny.py --model DIR --hsx hsx

DIR is the Hugging Face folder of a small Llama in fp32 with tied embeddings; the texts are the model's own. Both losses
fall alike. Only the server would notice, which feeds the draft what its config names, or hsx.
"""

import argparse
import itertools
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import hsx
import torch
from draft import STEPS, Draft
from llama import Llama
from torch.utils.data import DataLoader, Subset

TEXTS, TOKENS, PROMPT = 512, 96, 8
HELD = 64  # texts that the draft is judged on and not trained on
LAYERS = [0, 2, 3]
UPDATES, BATCH, RATE = 200, 16, 3e-2
MARKS = [1, 50, 100, 150, 200]  # updates at which the loss is shown, as the mean of the last ten


def dump(directory, ids, layers, final):
    """Write samples as SpecForge does: layers and final are tensors [samples, tokens, H]."""
    mask = torch.ones(TOKENS, dtype=torch.int64)
    mask[:PROMPT] = 0
    aux = torch.cat(layers, dim=-1)
    rows = directory / "rows_0-2000"
    rows.mkdir(parents=True)
    for i in range(len(ids)):
        record = {
            "input_ids": ids[i],
            "loss_mask": mask,
            "aux_hidden_state": aux[i, None],
            "hidden_state": final[i, None],
        }
        torch.save({key: value.clone() for key, value in record.items()}, rows / f"data_{i}.ckpt")


def run(directory, command, *args):
    """Run the command in a directory and return what it printed."""
    print("$ hsx", *args)
    done = subprocess.run([command, *args], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode not in (0, 3):  # 3: the work was done, and the data is not good
        sys.exit(done.stdout)
    return done.stdout


def train(target, data, seed):
    """Return a trained draft and its losses."""
    torch.manual_seed(seed)
    draft = Draft(target, len(LAYERS))
    optimizer = torch.optim.AdamW(draft.parameters(), lr=RATE, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1, (i + 1) / 20) * (1 - i / UPDATES))
    order = torch.Generator().manual_seed(seed)
    trained = Subset(data, range(HELD, len(data)))
    loader = DataLoader(trained, BATCH, shuffle=True, drop_last=True, collate_fn=data.collate, generator=order)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    losses = []
    for batch in itertools.islice(batches, UPDATES):
        loss = draft.loss(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.parameters(), 1)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return draft, losses


def accept_length(rates):
    """Return the tokens that a verify step yields: those drafted before the first miss, and one of the target's."""
    return 1 + sum(math.prod(rates[: k + 1]) for k in range(STEPS))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="directory with config.json and model.safetensors of the target")
    p.add_argument("--hsx", default="hsx", help="the command")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    torch.set_num_threads(1)  # the tensors are tiny, and sums then do not depend on the number of cores
    torch.manual_seed(a.seed)
    command = shutil.which(a.hsx) or p.error(f"--hsx: no command {a.hsx!r}")

    target = Llama(a.model)
    ids = target.write(TEXTS, TOKENS)
    states = [s.to(torch.bfloat16) for s in target.states(ids, [])]  # P_-1, P_0, … P_4 and the final state
    with tempfile.TemporaryDirectory() as work:
        shutil.copy(Path(a.model, "config.json"), work)
        data = {}
        for name, layers in (("right", LAYERS), ("wrong", [-1, *LAYERS[1:]])):
            dump(Path(work, name), ids, [states[1 + k] for k in layers], states[-1])
            args = "--out", f"ds-{name}", "--layers", "0,2,3", "--target", "config.json", name
            said = run(work, Path(command).absolute(), "ingest", *args).splitlines()
            print(*(line for line in said if line.startswith("ingested")))
            data[name] = hsx.open(Path(work, f"ds-{name}"), verify="samples").torch(layers=LAYERS, final="post")

        print(f"\n{'':13} {'loss after so many updates':>32} {'accept length, served':>29}")
        print(f"{'trained on':13}", *(f"{n:6}" for n in MARKS), f"{'P_0 P_2 P_3':>14} {'P_-1 P_2 P_3':>14}")
        loss, length = {}, {}
        for name in data:
            draft, loss[name] = train(target, data[name], a.seed)
            for served in data:
                held = data[served].collate([data[served][i] for i in range(HELD)])
                length[name, served] = accept_length(draft.accept(held))
            curve = [sum(loss[name][max(n - 10, 0) : n]) / min(n, 10) for n in MARKS]
            cells = [f"{length[name, served]:14.2f}" for served in data]
            print(f"{'P_0 P_2 P_3' if name == 'right' else 'P_-1 P_2 P_3':13}", *(f"{x:6.2f}" for x in curve), *cells)

        print()
        found = run(work, Path(command).absolute(), "validate", "--layers", "0,2,3", "ds-wrong")
        at = found.find("error embedding-captured")
        print("\n".join(found[at:].splitlines()[:7]))

    if at < 0:
        sys.exit("hsx validate did not find the embedding")
    if any(losses[-1] > losses[0] / 2 for losses in loss.values()):
        sys.exit("a loss did not fall")
    if length["right", "right"] <= max(length["wrong", "right"], length["right", "wrong"]):
        sys.exit("the embedding did no harm")


if __name__ == "__main__":
    main()
