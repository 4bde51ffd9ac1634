"""What main.py of Model-Optimizer's examples does with an EAGLE recipe and offline data, without transformers' Trainer.

    python cpu_modelopt.py --config RECIPE [KEY=VALUE...]

Takes training.max_steps steps on one batch of all samples, and prints the loss of each.
"""
import argparse
import pathlib

import modelopt.torch.speculative as mtsp
import torch
from modelopt.recipe import load_recipe
from modelopt.torch.speculative.eagle.utils import EagleOfflineDataCollator, OfflineSupervisedDataset
from modelopt.torch.speculative.utils import load_vlm_or_llm

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
args, overrides = parser.parse_known_args()
recipe = load_recipe(args.config, overrides=overrides)
if recipe.data.mode != "offline":
    raise SystemExit(f"data.mode is {recipe.data.mode}, want offline")
torch.manual_seed(0)
model = load_vlm_or_llm(recipe.model.model_name_or_path, use_offline_training=True, dtype="auto")
mtsp.convert(model, [("eagle", recipe.eagle.model_dump())])
files = sorted(map(str, pathlib.Path(recipe.data.offline_data_path).rglob("*.pt")))
data = OfflineSupervisedDataset(files, answer_only_loss=recipe.training.answer_only_loss)
batch = EagleOfflineDataCollator(recipe.training.training_seq_len)([data[i] for i in range(len(data))])
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), recipe.training.learning_rate)
model.train()
for _ in range(recipe.training.max_steps):
    with torch.autocast("cpu", torch.bfloat16):  # bf16: true of the recipe
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", round(loss.item(), 4), flush=True)
