"""Reads what hsx export wrote with the trainers' own code, from their packages.

Each function reads a whole directory and yields answers.Seen. A file that the trainer would take otherwise than it is meant is
answers.Bad; what the trainer itself says is passed on. names are those of the aux states in order, width is the hidden size.
"""
import contextlib
import functools
import importlib
import importlib.util
import os
import pathlib
import sys
import types
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"  # before datasets is imported: nothing must be looked up
os.environ["SPECFORGE_VALIDATE_OFFLINE_FEATURES"] = "1"

import datasets
import numpy as np
import torch
from safetensors import safe_open

from answers import Seen, need

datasets.disable_progress_bars()


def side_by_side(state, names, width):
    need(state.shape[-1] == len(names) * width, f"aux states of width {state.shape[-1]}, want {len(names)} times {width}")
    return dict(zip(names, state.split(width, dim=-1), strict=True))


def specforge(strategy):
    """SpecForge's reader, store, loader, normaliser and collator, which make one batch of all samples."""
    from specforge.runtime.data_plane.feature_dataloader import FeatureDataLoader
    from specforge.runtime.data_plane.feature_store import LocalFeatureStore, load_feature_file

    longest = {"run_id": "hsx", "ttt_length": 7, "max_len": 2048}
    if strategy == "eagle3":
        from specforge.algorithms.eagle3 import data

        open_reader, normal, collate = data.build_offline_reader, data.build_offline_normalizer(2048), data.build_offline_collator()
        aux, last = "hidden_state", "target"
    else:
        from specforge.algorithms.common import dflash_family_data as data

        dspark = strategy == "dspark"
        builder = data.build_dspark_offline_reader if dspark else data.build_offline_reader
        normal = (data.build_dspark_offline_normalizer if dspark else data.build_offline_normalizer)(2048)
        collate = data.build_dspark_collator() if dspark else data.build_collator()
        aux, last = "hidden_states", "target_last_hidden_states" if dspark else None

        def open_reader(directory, **options):
            return builder(strategy, directory, **options)

    def read(directory, names, width):
        refs = open_reader(str(directory), **longest).read()
        loader = FeatureDataLoader(
            LocalFeatureStore(), refs=refs, batch_size=len(refs), per_sample_transform=normal, collate_fn=collate, strategy=strategy,
        )
        (batch,) = loader
        for i, ref in enumerate(refs):
            mask = load_feature_file(ref.feature_store_uri.removeprefix("file://"))["loss_mask"].tolist()
            n, padded = ref.num_tokens, batch.tensors["loss_mask"][i]
            trained = [*mask[:-1], 0] if strategy == "eagle3" else mask  # nothing comes after the last token
            need(padded.tolist() == trained + [0] * (len(padded) - n), f"{ref.sample_id}: loss mask of the batch differs")
            states = side_by_side(batch.tensors[aux][i, :n], names, width)
            if last:
                states["final"] = batch.tensors[last][i, :n]
            yield Seen(batch.tensors["input_ids"][i, :n].tolist(), mask, states)

    return read


def speculators(directory, names, width):
    """speculators' dataset, its check of what a server sends, and its collator, which packs all samples into one row."""
    from speculators.data_generation.offline import check_hidden_states
    from speculators.train.data import ArrowDataset, CollateFn

    need(not list(pathlib.Path(directory).rglob("*.lock")), "lock files were left")
    ds = ArrowDataset(max_len=2048, datapath=str(directory), on_missing="raise")
    items = []
    for i in range(len(ds)):
        check_hidden_states(ds.transfer.get_cached(i), ds.data[i]["input_ids"].tolist())
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it warns, and leaves a sample out
            items.append(ds[i])
    total = sum(ds.approx_lengths)
    batch = CollateFn(total, width, len(names), dtype=items[0]["hidden_states"].dtype)(items)
    need(batch["error_records"] == 0, f"{batch['error_records']} samples were left out")
    at = 0
    for n in ds.approx_lengths:
        states = side_by_side(batch["hidden_states"][0, at : at + n], names, width)
        states["final"] = batch["verifier_last_hidden_states"][0, at : at + n]
        yield Seen(batch["input_ids"][0, at : at + n].tolist(), batch["loss_mask"][0, at : at + n].tolist(), states)
        at += n


def modelopt(prenorm, masks):
    """Model-Optimizer's offline dataset and collator. prenorm is what it must believe of the final."""
    from modelopt.torch.speculative.eagle.utils import EagleOfflineDataCollator, OfflineSupervisedDataset

    def read(directory, names, width):
        files = sorted(map(str, pathlib.Path(directory).rglob("*.pt")))
        ds = OfflineSupervisedDataset(files, answer_only_loss=masks)
        items = [ds[i] for i in range(len(ds))]
        batch = EagleOfflineDataCollator(max(len(item["input_ids"]) for item in items))(items)
        outputs = batch["base_model_outputs"]
        need(outputs["base_hidden_prenorm"] is prenorm, f"base_hidden_prenorm is {outputs['base_hidden_prenorm']}, want {prenorm}")
        for i, n in enumerate(batch["attention_mask"].sum(1).tolist()):
            states = side_by_side(outputs["aux_hidden_states"][i, :n], names, width)
            states["final"] = outputs["base_model_hidden_states"][i, :n]
            yield Seen(batch["input_ids"][i, :n].tolist(), batch["loss_mask"][i, :n].tolist() if masks else None, states)

    return read


def angelslim(directory, names, width):
    """AngelSlim's offline dataset and collator."""
    data = angelslim_data()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warns, and reads another file instead
        with contextlib.redirect_stdout(None):
            ds = data.OfflineEagle3Dataset(str(directory))
        items = [ds[i] for i in range(len(ds))]
    batch = data.DataCollatorWithPadding()(items)
    for i, n in enumerate(len(item["input_ids"][0]) for item in items):
        states = side_by_side(batch["hidden_states"][i, :n], names, width)
        states["final"] = batch["target_hiddens"][i, :n]
        yield Seen(batch["input_ids"][i, :n].tolist(), batch["loss_mask"][i, :n].tolist(), states)


@functools.cache
def angelslim_data():
    """The module of AngelSlim's offline dataset, without what its packages import on the way: the wheel lacks a part of that."""
    name = "angelslim.compressor.speculative.train.data.dataset_builder"
    root = pathlib.Path(importlib.util.find_spec("angelslim").origin).parent.parent
    parts = name.split(".")
    for i in range(len(parts)):
        package = types.ModuleType(".".join(parts[: i + 1]))
        package.__path__ = [str(root.joinpath(*parts[: i + 1]))]
        sys.modules.setdefault(package.__name__, package)
    return importlib.import_module(name + ".offline_dataset_builder")


def torchspec(directory, names, width):
    """What TorchSpec's offline reader does with a file; its package has no code."""
    for path in sorted(pathlib.Path(directory).rglob("*.ckpt")):
        got = torch.load(path, weights_only=False)
        need(got["input_ids"].ndim == got["loss_mask"].ndim == 1, f"{path.name}: input_ids or loss_mask has more than one dimension")
        states = side_by_side(got["aux_hidden_states"].squeeze(0), names, width)
        states["final"] = got["hidden_states"].squeeze(0)
        yield Seen(got["input_ids"].tolist(), got["loss_mask"].tolist(), states)


def safetensors(norm):
    """One file for each sample. norm is what the metadata must say of the final, None that there is none."""

    def read(directory, names, width):
        for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
            with safe_open(path, "pt") as f:
                got, meta = {k: f.get_tensor(k) for k in f.keys()}, f.metadata()
            need(meta.get("hsx.norm") == norm, f"{path.name}: hsx.norm is {meta.get('hsx.norm')}, want {norm}")
            need(meta.get("hsx.id"), f"{path.name}: no hsx.id in the metadata")
            yield from named([got], names)

    return read


def npy(directory, names, width):
    """A directory of arrays for each sample; bfloat16 is uint16 there."""
    for path in sorted(p for p in pathlib.Path(directory).iterdir() if p.is_dir()):
        got = {}
        for f in sorted(path.glob("*.npy")):
            got[f.stem] = from_numpy(np.load(f, allow_pickle=False))
        yield from named([got], names)


def from_numpy(array):
    """A tensor of an array, in which uint16 are the bits of bfloat16."""
    array = array.copy()  # torch wants to be able to write
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == np.uint16 else torch.from_numpy(array)


def named(samples, names):
    """Samples that are tensors by the names of the columns of hsx."""
    for got in samples:
        states = {name: got.pop(f"layer_{name[1:]}") for name in names}
        if "final" in got:
            states["final"] = got.pop("final")
        ids, mask = got.pop("input_ids"), got.pop("loss_mask", None)
        need(ids.dtype == torch.int64, f"input_ids are {ids.dtype}, want int64")
        need(mask is None or mask.dtype == torch.uint8, f"loss_mask is {mask.dtype if mask is not None else None}, want uint8")
        need(not got, f"further tensors: {sorted(got)}")
        yield Seen(ids.tolist(), None if mask is None else mask.tolist(), states)


def hugging_face(directory, names, width):
    """datasets.load_from_disk, read as Arrow: its arrays and tensors are of wider types by default."""
    ds = datasets.load_from_disk(str(directory)).with_format("arrow")
    columns = [f"layer_{name[1:]}" for name in names]
    columns += ["final"] if "final" in ds.column_names else []
    need(ds.column_names == ["id", "input_ids", "loss_mask", "seq_len", *columns], f"columns are {ds.column_names}")
    for i in range(len(ds)):
        row, states = ds[i], {}
        tokens = row["input_ids"][0].as_py()
        need(row["seq_len"][0].as_py() == len(tokens), f"row {i}: seq_len is {row['seq_len'][0]}, want {len(tokens)}")
        for name, column in zip([*names, "final"][: len(columns)], columns, strict=True):
            states[name] = from_numpy(row[column][0].values.flatten().to_numpy().reshape(-1, width))
        yield Seen(tokens, row["loss_mask"][0].as_py(), states)
